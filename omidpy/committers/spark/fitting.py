"""Columns of a file in the types that are asked for: jobs of one destination may differ in them.

Whatever is nested in a column is looked at as the column is: a field is found by its name, also in
other case, one that is not there is null, and no value becomes another one.

INT96 is a moment, as Spark reads it.  Arrow takes it for a time without a zone, in nanoseconds of
64 bits, which wrap around before 1677 and behind 2262.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from omidpy.committers.tables import with_leaves
from omidpy.tx.frames.encoding import checked_cast

Named = Callable[[str, Iterable[str]], "str | None"]
"""Finds a name among others; None if it is not there."""

_MOMENT: Final = pa.timestamp("us", "UTC")
_INT96: Final = "INT96"


def opened(data: bytes) -> pq.ParquetFile:
    """Return a file that is in memory."""
    return pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us")


def schema_of(file: pq.ParquetFile) -> pa.Schema:
    """Return the columns of a file."""
    schema = file.schema_arrow
    stored = [file.schema.column(at).physical_type for at in range(len(file.schema))]
    if _INT96 not in stored:
        return schema
    left = iter(stored)

    def as_stored(kind: pa.DataType) -> pa.DataType:
        return _MOMENT if next(left) == _INT96 else kind

    fields = [field.with_type(with_leaves(field.type, as_stored)) for field in schema]
    return pa.schema(fields, schema.metadata)


def read(file: pq.ParquetFile) -> pa.Table:
    """Return the rows of a file, with the columns of `schema_of`."""
    table, schema = file.read(), schema_of(file)
    return table if table.schema.equals(schema) else table.cast(schema)


def fitted(column: Any, wanted: pa.DataType, named: Named) -> Any:
    """Return a column in the type that is asked for.

    Args:
        column: An array, or chunks of one.
        wanted: The type.
        named: Finds fields of what is nested.

    Raises:
        ArrowInvalid, ArrowTypeError, ArrowNotImplementedError: a value would become another one.
        Exception: what `named` raises.
    """
    given, types = column.type, pa.types
    if given == wanted:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([fitted(one, wanted, named) for one in column.chunks], wanted)
    if column.offset and types.is_nested(given):
        # A part of a longer one: below, offsets and values are those of the whole.
        column = pa.concat_arrays([column, column.slice(0, 0)])
    if types.is_struct(given) and types.is_struct(wanted):
        fields = dict(zip([one.name for one in given], column.flatten(), strict=True))
        arrays = []
        for field in wanted:
            found = named(field.name, fields)
            arrays.append(
                pa.nulls(len(column), field.type)
                if found is None
                else fitted(fields[found], field.type, named)
            )
        return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=column.is_null())
    if types.is_list(given) and types.is_list(wanted):
        values = fitted(column.values, wanted.value_type, named)
        return pa.ListArray.from_arrays(column.offsets, values, wanted, mask=column.is_null())
    if types.is_map(given) and types.is_map(wanted):
        keys = fitted(column.keys, wanted.key_type, named)
        items = fitted(column.items, wanted.item_type, named)
        return pa.MapArray.from_arrays(column.offsets, keys, items, wanted, mask=column.is_null())
    return checked_cast(pa, column, wanted, may_round=False)
