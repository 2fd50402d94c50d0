"""Speculation in a real Spark: two attempts at one task, both of which write everything."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server
from tests.machines.s3.spark import reaching, session_at
from tests.machines.spark_cluster import spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def spark(s3: S3Server, tmp_path: Path) -> Iterator[SparkSession]:
    """Give a session on a cluster of two hosts, which speculates as soon as it may."""
    hosts = ("127.0.0.1", "127.0.0.2")
    settings = {
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    }
    with (
        reaching(s3),
        spark_cluster(tmp_path / "work", hosts=hosts) as master,
        session_at(master, settings) as session,
    ):
        yield session


def test_of_two_attempts_that_both_finish_one_is_there(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    """The slow one ends after the quick one, and what it has uploaded is swept."""
    from tests.machines.s3.troubled_source import NAME, TroubledSource

    bucket = Bucket(s3)
    marks = tmp_path / "marks"
    marks.mkdir()
    spark.dataSource.register(TroubledSource)
    options = {"trouble": "waits", "marks": str(marks), "inlineBytes": "0", "sweep": "always"}
    writer = spark.range(100, numPartitions=4).write.format(NAME).mode("append")
    writer.options(**options).save(f"s3://{bucket.name}/out")
    assert {"0-0", "0-1"} <= {one.name for one in marks.iterdir()}
    ids = [
        row["id"]
        for path in bucket.visible("out")
        for row in pq.read_table(io.BytesIO(bucket.get(f"out/{path}"))).to_pylist()
    ]
    assert sorted(ids) == [*range(100)]
    assert bucket.uploads() == []
