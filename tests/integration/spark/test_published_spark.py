"""Frames of Spark that are published with a transaction, and read at its snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import omidpy
from omidpy.errors import UsageError
from tests.machines.processes import tso_server
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a frame, in order."""
    return sorted(tuple(one) for one in frame.select("id", "p", "text").collect())


def test_frames_are_published_and_read(spark: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    """By tasks; the driver's transaction decides."""
    from omidpy.spark.published import PublishedSource, published

    address = f"s3://{Bucket(s3).name}/lake"
    columns = ("id", "id % 3 as p", "cast(id as string) as text")
    frame = spark.range(30, numPartitions=3).selectExpr(*columns)
    expected = [(at, at % 3, str(at)) for at in range(30)]
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with tso_server(url) as server:
        with omidpy.connect(url, tso=server.address) as tm:
            with tm.begin() as tx:
                made = tx.publish(frame, address, partition_by=["p"])
                assert sum(one.rows or 0 for one in made.files) == 30
                assert rows(published(spark, tx, address)) == expected
                assert tm.snapshot().published(address).files == ()
                with pytest.raises(UsageError, match="no Parquet file"):
                    published(spark, tm.snapshot(), address)
            before = tm.begin(read_only=True)
            with tm.begin() as tx:
                more = pa.table({"id": [99], "p": [1], "text": ["x"]})
                tx.publish(more, address, conflict="replace", partition_by=["p"])
            assert rows(published(spark, before, address)) == expected
            assert published(spark, before, address).where("p = 2").count() == 10
        spark.dataSource.register(PublishedSource)
        reader = spark.read.format("omidpy-published").option("store", url)
        reader = reader.option("tso", server.address)
        assert rows(reader.load(address)) == [(99, 1, "x")]
        assert rows(reader.option("at", str(before.start_ts)).load(address)) == expected


def test_a_frame_whose_task_fails_is_not_published(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    """And nothing of it is left, whether the transaction commits or not."""
    bucket = Bucket(s3)
    frame = spark.range(4, numPartitions=2).selectExpr("raise_error('no') as v")
    with omidpy.connect(f"sqlite:///{tmp_path / 'lake.db'}") as tm:
        with tm.begin() as tx, pytest.raises(Exception, match="no"):
            tx.publish(frame, f"s3://{bucket.name}/lake", inline_bytes=0)
        assert tm.begin().published(f"s3://{bucket.name}/lake").files == ()
    assert (bucket.keys(), bucket.uploads()) == ([], [])


def test_a_reader_without_a_store_is_told_what_it_needs(spark: SparkSession) -> None:
    """The error is Spark's, and has the words."""
    from omidpy.spark.published import PublishedSource

    spark.dataSource.register(PublishedSource)
    with pytest.raises(Exception, match=r"needs option\('store'"):
        spark.read.format("omidpy-published").load("s3://b/lake").count()
