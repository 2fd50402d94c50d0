"""The session of Spark that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.machines.s3.server import S3Server
from tests.machines.s3.spark import spark_beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark(_s3: S3Server) -> Iterator[SparkSession]:
    """Give a session that knows all formats, and whose Python processes reach the S3 server.

    To start one, and to warm its Java and its processes, takes 20 seconds of a processor.
    """
    with spark_beside(_s3) as session:
        yield session
