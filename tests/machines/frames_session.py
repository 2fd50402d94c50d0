"""Sessions of Spark in processes that tests kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def streaming_session() -> Iterator[SparkSession]:
    """Give a session to a process that will be killed with it."""
    from pyspark.sql import SparkSession

    import omidpy.spark

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    omidpy.spark.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def death(spark: SparkSession, dies_at: int, how: str) -> Callable[[int, str], None]:
    """Return what ends Spark and this process once it is told that batch, and `how`."""

    def die(number: int, where: str) -> None:
        if (number, where) == (dies_at, how):
            os.kill(java_of(spark), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def java_of(spark: SparkSession) -> int:
    """Return the id of the session's Java process."""
    gateway: Any = spark.sparkContext._gateway
    return int(gateway.proc.pid)
