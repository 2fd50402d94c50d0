"""omidpy in Spark: `omidpy.spark.register(spark)` makes its formats known.

    frame = omidpy.spark.read(spark, tm, "accounts", {"balance": ("cf:balance", "bigint")})

    with tm.begin() as tx:
        omidpy.spark.write(frame, tx, "accounts", {"balance": "cf:balance"})

Importing this package needs no extra; calling anything of it needs `omidpy[spark]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omidpy.spark.exporting import export_once
    from omidpy.spark.frames.sessions import Snapshot, read, save, snapshot, write
    from omidpy.spark.frames.writes.streaming import each_batch

__all__ = ["Snapshot", "each_batch", "export_once", "read", "register", "save", "snapshot", "write"]

_FRAMES = frozenset({"Snapshot", "each_batch", "read", "save", "snapshot", "write"})


def __getattr__(name: str) -> Any:
    """Import what is asked for: tables need the extra, and no task of theirs needs queues."""
    if name == "export_once":
        from omidpy.spark.exporting import export_once  # noqa: PLC0415 - see above

        return export_once
    if name not in _FRAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from omidpy.spark.frames import sessions  # noqa: PLC0415 - an extra
        from omidpy.spark.frames.writes import streaming  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"DataFrames of tables need pyspark 4.1 or newer ({error}): {install_hint('spark')}"
        ) from error
    return getattr(streaming if name == "each_batch" else sessions, name)


def register(spark: SparkSession) -> None:
    """Let a session know all formats.

    These are omidpy, omidpy-parquet, omidpy-published, omidpy-changes and omidpy-export.

    Raises:
        ConfigError: this Spark is too old for omidpy-changes and omidpy-export; the others are
            registered.
    """
    from omidpy.committers.spark.source import register as register_parquet  # noqa: PLC0415 - an extra
    from omidpy.spark.published import PublishedSource  # noqa: PLC0415 - see above

    register_parquet(spark)
    spark.dataSource.register(PublishedSource)
    _register_frames(spark)
    try:
        from omidpy.spark.changes_stream import ChangesSource  # noqa: PLC0415 - an extra

        spark.dataSource.register(ChangesSource)
        from omidpy.spark.export_stream import ExportSource  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"omidpy reads changes and export queues in Spark 4.2 or newer ({error}): "
            f"{install_hint('spark')}"
        ) from error
    spark.dataSource.register(ExportSource)


def _register_frames(spark: SparkSession) -> None:
    from pyspark.sql.readwriter import DataFrameWriter  # noqa: PLC0415 - an extra

    from omidpy.spark.frames.source import OmidSource  # noqa: PLC0415 - see above
    from omidpy.spark.frames.writes.teaching import teach  # noqa: PLC0415 - see above

    spark.dataSource.register(OmidSource)
    teach(DataFrameWriter)
