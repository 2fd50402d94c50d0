"""Rows of a scan as Arrow record batches: a typed column for each that was asked for.

Lacks everything but the turning of rows into columns; `TransactionalTable.scan_arrow` reads.
pyarrow is imported when somebody scans so, and nobody else needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from omidpy.base.words.arguments import parse_column
from omidpy.codec import JSON, Codec
from omidpy.errors import ConfigError, CorruptCell, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

SeenRow: TypeAlias = tuple[bytes, Mapping[bytes, bytes]]
"""A row key, and b"family:qualifier" -> value."""

ROW_COLUMN: Final = "row"
"""The name of the column of row keys; no other can have it, because they hold a colon."""

DEFAULT_BATCH_ROWS: Final = 10_000


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
    return _batches(_pyarrow(), rows, codecs, batch_rows)


def schema_of(arrow: Any, codecs: Mapping[bytes, Codec[Any]]) -> pa.Schema:
    """Return the columns of such batches."""
    fields = [arrow.field(ROW_COLUMN, arrow.binary(), nullable=False)]
    for name, codec in codecs.items():
        fields.append(arrow.field(column_name(name), arrow.type_for_alias(codec.arrow_type)))
    return arrow.schema(fields)


def _batches(
    arrow: Any, rows: Iterable[SeenRow], codecs: Mapping[bytes, Codec[Any]], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    schema = schema_of(arrow, codecs)
    keys: list[bytes] = []
    columns: list[list[Any]] = [keys]
    readers = []
    for name, codec in codecs.items():
        columns.append([])
        readers.append((name, _reader(codec), columns[-1].append))
    for row, seen in rows:
        keys.append(row)
        for name, read, append in readers:
            value = seen.get(name)
            try:
                append(None if value is None else read(value))
            except CorruptCell as error:
                raise CorruptCell(f"row {row!r}, column {name!r}: {error}") from error
        if len(keys) == batch_rows:
            yield _batch(arrow, columns, schema)
            for values in columns:
                values.clear()
    if keys:
        yield _batch(arrow, columns, schema)


def _batch(arrow: Any, columns: Iterable[list[Any]], schema: Any) -> pa.RecordBatch:
    arrays = [
        arrow.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)
    ]
    return arrow.record_batch(arrays, schema=schema)


def _reader(codec: Codec[Any]) -> Callable[[bytes], Any]:
    if codec is not JSON:
        return codec.decode

    def read(data: bytes) -> str:
        """Check that it is JSON, and leave it text: its values have no one type in Arrow."""
        JSON.decode(data)
        return data.decode()

    return read


def _pyarrow() -> Any:
    try:
        import pyarrow as arrow  # noqa: ICN001, PLC0415 - for those who ask; `pa` names its types
    except ImportError as error:
        raise ConfigError(
            "scan_arrow needs pyarrow, which is not installed: pip install 'omidpy[spark]', or "
            "pip install pyarrow"
        ) from error
    return arrow
