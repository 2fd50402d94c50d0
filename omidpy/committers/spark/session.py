"""What has the session said, that Spark tells no data source of Python?  Its settings, in a task.

Spark hands a data source the options of one write alone.  The settings of the session that began
the write travel with its tasks, as their local properties; a task reads them there, and its message
takes to the driver what only the driver can honour.

Lacks what the options say, which win over the session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omidpy.errors import UsageError

OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
CODEC: Final = "spark.sql.parquet.compression.codec"
MOST_RECORDS: Final = "spark.sql.files.maxRecordsPerFile"
TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
SPECULATION: Final = "spark.speculation"

COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")
_CODECS: Final = {"uncompressed": "none", "lz4_raw": "lz4"}
"""Spark's names for what is called otherwise here."""
_TIMESTAMP_TYPES: Final = ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What of a session's settings means something to a write."""

    is_dynamic: bool = False
    """An overwrite replaces the partitions that it writes, and no others."""
    compression: str | None = None
    """None where the session says nothing."""
    most_records: int = 0
    """Of one file; 0 for any number."""
    timestamps: str = ""
    """How Parquet stores them; empty where the session says nothing."""
    speculates: bool = False
    """Attempts may run that nobody hears of again."""


def read(setting: Callable[[str], str | None]) -> SessionSettings:
    """Read a session's settings.

    Args:
        setting: Returns the text of a setting; None where it is not set.

    Raises:
        UsageError: One asks for what is not done here; it names the setting.
    """
    codec = setting(CODEC)
    timestamps = (setting(TIMESTAMPS) or "").upper()
    if timestamps and timestamps not in _TIMESTAMP_TYPES:
        raise UsageError(f"{TIMESTAMPS}={timestamps!r} is none of {', '.join(_TIMESTAMP_TYPES)}")
    most = setting(MOST_RECORDS) or "0"
    return SessionSettings(
        is_dynamic=overwrites_partitions(OVERWRITE_MODE, setting(OVERWRITE_MODE) or "static"),
        compression=None if codec is None else compression_of(CODEC, codec),
        most_records=max(int(most), 0) if most.lstrip("-").isdecimal() else 0,
        timestamps=timestamps,
        speculates=(setting(SPECULATION) or "").lower() == "true",
    )


def overwrites_partitions(name: str, value: str) -> bool:
    """Say whether a mode of overwriting is `dynamic`, and not `static`.

    Raises:
        UsageError: It is neither.
    """
    if value.lower() not in {"static", "dynamic"}:
        raise UsageError(f"{name}={value!r} is none of static and dynamic")
    return value.lower() == "dynamic"


def compression_of(name: str, value: str) -> str:
    """Return how files are compressed, by a name of Spark's.

    Raises:
        UsageError: Nothing here compresses so.
    """
    plain = value.lower()
    found = _CODECS.get(plain, plain)
    if found not in COMPRESSIONS:
        raise UsageError(
            f"{name}={value!r} is none of {', '.join(COMPRESSIONS)}; choose another with "
            ".option('compression', ...)"
        )
    return found
