"""A session of Spark that knows all formats, and whose Python processes reach an S3 server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.machines.processes import ROOT
from tests.machines.s3.server import S3Server
from tests.machines.spark_java import own_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def reaching(server: S3Server) -> Iterator[None]:
    """Let what is started in the block, Java and Python of Spark among it, reach a server."""
    with own_java(), pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        yield


@contextmanager
def session_at(master: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Give a session of this process, with some settings of its own."""
    from pyspark.sql import SparkSession

    import omidpy.spark

    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    omidpy.spark.register(session)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def spark_beside(server: S3Server) -> Iterator[SparkSession]:
    """Give a session in this process's own Java, whose tasks are tried three times."""
    # Nothing but local[N, M] tries a task M times.
    with reaching(server), session_at("local[2,3]") as session:
        yield session
