"""Rows of a scan as Arrow record batches: a typed column for each that was asked for, by its name.

It is the shape of a frame that needs no other words than codecs; `reading.py` makes the
columns, and `TransactionalTable.scan_arrow` reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.words.arguments import parse_column
from omidpy.codec import BYTES, Codec
from omidpy.errors import UsageError
from omidpy.tx.frames import reading
from omidpy.tx.frames.keys import Key, KeyPart
from omidpy.tx.frames.reading import SeenRow
from omidpy.tx.frames.shape import Field, Shape

if TYPE_CHECKING:
    import pyarrow as pa

ROW_COLUMN: Final = "row"
"""The name of the column of row keys; no other can have it, because they hold a colon."""


def check_codecs(codecs: object) -> dict[bytes, Codec[Any]]:
    """Return the codec of each column asked for.

    Raises:
        UsageError: there is none, a column is not `b"family:qualifier"`, or two would have one
            name in Arrow.
        TypeError: something is no codec.
    """
    if not isinstance(codecs, Mapping):
        raise TypeError(
            f"codecs must be a mapping such as {{b'cf:balance': codec.INT64}}, not {codecs!r:.80}"
        )
    if not codecs:
        raise UsageError("codecs is empty; name at least one column, as b'family:qualifier'")
    names: set[str] = set()
    for column, codec in codecs.items():
        parse_column(column)
        if not isinstance(codec, Codec):
            raise TypeError(
                f"the codec of column {column!r} must be one of omidpy.codec, not {codec!r:.80}"
            )
        if (name := column_name(column)) in names:
            raise UsageError(f"two of the columns would both be named {name!r}; scan them apart")
        names.add(name)
    return dict(codecs)


def column_name(column: bytes) -> str:
    """Return a column's name in Arrow: UTF-8, other bytes escaped."""
    return column.decode(errors="backslashreplace")


def record_batches(
    rows: Iterable[SeenRow], codecs: Mapping[bytes, Codec[Any]], *, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Return batches of `batch_rows` rows, the last one shorter; none where there is no row.

    Raises:
        ConfigError: at once, if pyarrow is not installed.
        CorruptCell: naming row and column, a value that its codec cannot read.
    """
    return reading.record_batches(_shape(codecs), rows, batch_rows=batch_rows)


def schema_of(arrow: Any, codecs: Mapping[bytes, Codec[Any]]) -> pa.Schema:
    """Return the columns of such batches."""
    return reading.schema_of(arrow, _shape(codecs))


def _shape(codecs: Mapping[bytes, Codec[Any]]) -> Shape:
    fields = (Field(column_name(column), column, codec) for column, codec in codecs.items())
    return Shape(Key((KeyPart(ROW_COLUMN, BYTES),)), tuple(fields))
