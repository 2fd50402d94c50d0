"""What has the session said, that Spark tells no data source of Python?  Its settings, in a task.

Spark hands a data source the options of one write alone.  The settings of the session that began
the write travel with its tasks, as their local properties; a task reads them there, and its message
takes to the driver what only the driver can honour.  Those of Hadoop travel only where their names
begin with `spark.hadoop.`; the taught writer (`writing.py`) sends the rest along.

What would be written in another way than a setting asks for is refused by name: here where the
setting alone says so, and where it depends on the columns in `schemas.py`.

Lacks what the options say, which win over the session.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from omidpy.committers.heads.standing import AWAITED_BESIDE_S, AWAITED_S
from omidpy.errors import UsageError

OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
CODEC: Final = "spark.sql.parquet.compression.codec"
MOST_RECORDS: Final = "spark.sql.files.maxRecordsPerFile"
TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
SPECULATION: Final = "spark.speculation"
LOST: Final = "spark.network.timeout"
"""For how long an executor is silent that Spark takes for lost."""
LEGACY_FORMAT: Final = "spark.sql.parquet.writeLegacyFormat"
FIELD_IDS: Final = "spark.sql.parquet.fieldId.write.enabled"
REBASE: Final = "spark.sql.parquet.datetimeRebaseModeInWrite"
REBASE_INT96: Final = "spark.sql.parquet.int96RebaseModeInWrite"

MARKS_SUCCESS: Final = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
GROUP_BYTES: Final = "parquet.block.size"
KEYS: Final = (
    "parquet.encryption.footer.key",
    "parquet.encryption.column.keys",
    "parquet.encryption.uniform.key",
)
OF_HADOOP: Final = (MARKS_SUCCESS, GROUP_BYTES, *KEYS)
"""Settings of Hadoop, each of which Spark has under its name, or behind `spark.hadoop.`."""

COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")
_CODECS: Final = {"uncompressed": "none", "lz4_raw": "lz4"}
"""Spark's names for what is called otherwise here."""
_TIME: Final = re.compile(r"([0-9]{1,9})\s*(us|ms|s|m|min|h|d|)")
_UNITS_S: Final = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
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
    """Attempts may run that no driver hears of again."""
    awaited_s: float = AWAITED_S
    """For how long an attempt is certainly waited for, behind its beginning or its last look."""
    marks_success: bool = True
    """`_SUCCESS` is written."""
    group_bytes: int = 0
    """How many bytes of rows make a row group; 0 where the session says nothing."""
    writes_field_ids: bool = True
    """Columns that have an id of Parquet's keep it, as Spark does by default."""
    is_legacy: bool = False
    """Lists and maps are to be stored as Spark 1.4 did."""
    rebases: bool = False
    """Dates and timestamps are to be stored by the calendar of Spark 2."""
    rebases_int96: bool = False
    """The same of timestamps as INT96."""


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
    for name in KEYS:
        if of_hadoop(setting, name):
            raise UsageError(
                f"{name} asks for encrypted files, and these would not be; unset it, and let the "
                "store encrypt what it keeps"
            )
    speculates = (setting(SPECULATION) or "").lower() == "true"
    group_bytes = (of_hadoop(setting, GROUP_BYTES) or "").strip()
    if group_bytes and (not group_bytes.isdecimal() or int(group_bytes) < 1):
        raise UsageError(f"{GROUP_BYTES}={group_bytes!r} must be a whole number of bytes from 1 up")
    return SessionSettings(
        is_dynamic=overwrites_partitions(OVERWRITE_MODE, setting(OVERWRITE_MODE) or "static"),
        compression=None if codec is None else compression_of(CODEC, codec),
        most_records=max(int(most), 0) if most.lstrip("-").isdecimal() else 0,
        timestamps=timestamps,
        speculates=speculates,
        awaited_s=AWAITED_BESIDE_S if speculates else _awaited_s(setting(LOST) or ""),
        # As Hadoop reads it: what is neither true nor false changes nothing.
        marks_success=(of_hadoop(setting, MARKS_SUCCESS) or "").strip().lower() != "false",
        group_bytes=int(group_bytes or 0),
        writes_field_ids=(setting(FIELD_IDS) or "").lower() != "false",
        is_legacy=(setting(LEGACY_FORMAT) or "").lower() == "true",
        rebases=(setting(REBASE) or "").upper() == "LEGACY",
        rebases_int96=(setting(REBASE_INT96) or "").upper() == "LEGACY",
    )


def _awaited_s(lost: str) -> float:
    """Return how long Spark waits for an attempt, by a time as it is written there, by half."""
    found = _TIME.fullmatch(lost.strip().lower())
    if found is None:
        return AWAITED_S
    return min(AWAITED_S, int(found[1]) * _UNITS_S[found[2]] / 2)


def of_hadoop(setting: Callable[[str], str | None], name: str) -> str | None:
    """Return the text of a setting of Hadoop's by either of its names; None where it is not set."""
    said = setting(name)
    return setting(f"spark.hadoop.{name}") if said is None else said


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
