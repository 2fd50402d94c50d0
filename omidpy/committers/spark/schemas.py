"""What do the columns of a frame have to do with what its session says of Parquet?

Some settings mean something only where a frame has columns of certain types; then, and only then,
what is not written as asked is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from omidpy.committers.spark.session import (
    LEGACY_FORMAT,
    REBASE,
    REBASE_INT96,
    TIMESTAMPS,
    SessionSettings,
)
from omidpy.errors import UsageError

FIELD_ID: Final = "parquet.field.id"
"""What Spark calls the id of a column, in its metadata."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns as Spark expects them of a source."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # of Spark before 4.3
        return to_arrow_schema(schema)


def stored_as(kind: pa.DataType) -> pa.DataType:
    """Return how Spark stores a type: times of day in microseconds, and it reads no others."""
    return pa.time64("us") if pa.types.is_time64(kind) else kind


def check_settings(said: SessionSettings, schema: StructType) -> None:
    """Refuse columns that the session asks to be stored in a way that is not done here.

    Raises:
        UsageError: There is one; it names the setting and the column.
    """
    if said.is_legacy:
        _refuse(
            schema,
            (ArrayType, MapType),
            f"{LEGACY_FORMAT}=true asks for the lists and maps of Spark 1.4, and those of today "
            "are written; set it to false",
        )
    remedy = (
        "asks for the calendar of Spark 2, which has other days before 1582, and is not written; "
        "set it to CORRECTED"
    )
    if said.rebases:
        _refuse(schema, (DateType, TimestampType), f"{REBASE}=LEGACY {remedy}")
    if said.rebases_int96 and said.timestamps == "INT96":
        _refuse(schema, (TimestampType,), f"{REBASE_INT96}=LEGACY {remedy}")


def timestamps_of(said: SessionSettings, schema: StructType) -> str:
    """Return how timestamps are stored: as the session says, but for those without a time zone.

    Spark stores these in microseconds, whatever the session says: as INT96 they would be moments to
    every reader, and milliseconds have fewer digits.

    Raises:
        UsageError: There are both, and one file cannot store them in two ways.
    """
    kinds = {type(field.dataType) for _, field in _fields(schema)}
    if said.timestamps in {"", "TIMESTAMP_MICROS"} or TimestampNTZType not in kinds:
        return said.timestamps
    _refuse(
        schema,
        (TimestampType,),
        f"{TIMESTAMPS}={said.timestamps} is not for timestamps without a time zone, which the "
        "frame has, too, and both would be written so; set it to TIMESTAMP_MICROS",
    )
    return ""


def field_ids(schema: StructType) -> dict[tuple[str, ...], int]:
    """Return the ids of Parquet's that fields have, by their path.

    On a path, what is in a list is `element`, and in a map `key` and `value`.

    Raises:
        UsageError: One is no integer.
    """
    found: dict[tuple[str, ...], int] = {}
    for path, field in _fields(schema):
        if FIELD_ID not in field.metadata:
            continue
        number = field.metadata[FIELD_ID]
        if not isinstance(number, int) or isinstance(number, bool) or abs(number) >= 2**31:
            raise UsageError(
                f"the column {'.'.join(path)!r} has {FIELD_ID}={number!r}, which must be an "
                "integer of 32 bits"
            )
        found[path] = number
    return found


def _refuse(schema: StructType, kinds: tuple[type[DataType], ...], why: str) -> None:
    for path, field in _fields(schema):
        if isinstance(field.dataType, kinds):
            raise UsageError(
                f"{why}, or leave out the column {'.'.join(path)!r} of type "
                f"{field.dataType.simpleString()}"
            )


def _fields(
    kind: DataType, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Yield every field of a type with its path, and what is in lists and maps as fields."""
    inner: list[StructField] = []
    if isinstance(kind, StructType):
        inner = kind.fields
    elif isinstance(kind, ArrayType):
        inner = [StructField("element", kind.elementType)]
    elif isinstance(kind, MapType):
        inner = [StructField("key", kind.keyType), StructField("value", kind.valueType)]
    for field in inner:
        below = (*path, field.name)
        yield below, field
        yield from _fields(field.dataType, below)
