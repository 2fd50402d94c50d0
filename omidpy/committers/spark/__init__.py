"""Spark's output through these committers, and what they have published as its input.

    import omidpy.committers.spark

    omidpy.committers.spark.register(spark)
    df.write.format("omidpy-parquet").mode("append").option("partitionBy", "year").save("s3://b/f")

Importing this package needs no extra; calling anything of it needs `omidpy[spark,s3]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(session: SparkSession) -> None:
    """Let a session know `omidpy-parquet`, and its writer what Spark refuses of a Python source.

    Raises:
        ConfigError: there is no pyspark, or it is too old.
    """
    from omidpy.committers.spark.source import register as register_source  # noqa: PLC0415 - an extra

    register_source(session)
