"""omidpy in Spark: `omidpy.spark.register(spark)` makes its formats known.

Importing this package needs no extra; calling anything of it needs `omidpy[spark]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omidpy.errors import ConfigError
from omidpy.spark.exporting import export_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["export_once", "register"]


def register(spark: SparkSession) -> None:
    """Let a session know all formats.

    These are omidpy-parquet, omidpy-published, omidpy-changes and omidpy-export.

    Raises:
        ConfigError: this Spark is too old for omidpy-changes and omidpy-export; the others are
            registered.
    """
    from omidpy.committers.spark.source import register as register_parquet  # noqa: PLC0415 - an extra
    from omidpy.spark.published import PublishedSource  # noqa: PLC0415 - see above

    register_parquet(spark)
    spark.dataSource.register(PublishedSource)
    try:
        from omidpy.spark.changes_stream import ChangesSource  # noqa: PLC0415 - an extra

        spark.dataSource.register(ChangesSource)
        from omidpy.spark.export_stream import ExportSource  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"omidpy reads changes and export queues in Spark 4.2 or newer ({error}): pip install "
            "'omidpy[spark]'"
        ) from error
    spark.dataSource.register(ExportSource)
