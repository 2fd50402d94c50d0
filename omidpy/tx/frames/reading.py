"""Rows of a scan as Arrow record batches, every one of which has the columns of its shape exactly.

Numbers, texts and bytes are turned column by column, without a Python value for each; what cannot
be, a value that its codec does not know among them, goes one by one, and is named.

Lacks the scan.  pyarrow is imported at the first such read: nothing else needs it.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from omidpy.base.installation import install_hint
from omidpy.codec import BYTES, FLOAT32, FLOAT64, INT16, INT32, INT64, JSON, TEXT, Codec
from omidpy.errors import ConfigError, CorruptCell, UsageError
from omidpy.tx.frames.asked import DEFAULT_BATCH_ROWS
from omidpy.tx.frames.keys import WIDTHS
from omidpy.tx.frames.names import text_of
from omidpy.tx.frames.shape import COMMIT_TS, Shape

if TYPE_CHECKING:
    import pyarrow as pa

SeenRow: TypeAlias = tuple[bytes, Mapping[bytes, Any]]
"""A row key, and `family:qualifier` -> value; with `_commit_ts` -> (value, commit_ts)."""

_NO_SIZES: Final = "decimal128"
_MOMENT: Final = "timestamp[us, tz=UTC]"
_DECIMAL: Final = re.compile(r"decimal128\((\d+), ?(\d+)\)")
_ARRAYS: Final = {INT64: "q", INT32: "i", INT16: "h", FLOAT64: "d", FLOAT32: "f"}
"""How Python's arrays call numbers that are a codec's bytes, the other way round."""


def pyarrow(what: str = "reading into Arrow") -> Any:
    """Return the module.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import pyarrow as arrow  # noqa: ICN001, PLC0415 - for those who ask; `pa` names its types
    except ImportError as error:
        raise ConfigError(
            f"{what} needs pyarrow, which is not installed: {install_hint('spark')}, or pip "
            "install pyarrow"
        ) from error
    return arrow


def schema_of(arrow: Any, shape: Shape) -> pa.Schema:
    """Return the columns of a frame in Arrow.

    Raises:
        UsageError: a codec names a type that Arrow does not have.
    """
    fields = [
        arrow.field(part.name, type_of(arrow, part.codec), nullable=False)
        for part in shape.key.parts
    ]
    fields += [arrow.field(one.name, type_of(arrow, one.codec)) for one in shape.fields]
    if shape.rest is not None:
        fields.append(arrow.field(shape.rest, arrow.map_(arrow.string(), arrow.binary())))
    if shape.has_commit_ts:
        fields.append(arrow.field(COMMIT_TS, arrow.int64()))
    return arrow.schema(fields)


def type_of(arrow: Any, codec: Codec[Any]) -> Any:
    """Return the Arrow type of a codec's values."""
    sizes = _DECIMAL.fullmatch(codec.arrow_type)
    try:
        if sizes is not None:
            return arrow.decimal128(int(sizes[1]), int(sizes[2]))
        if codec.arrow_type == _MOMENT:
            return arrow.timestamp("us", "UTC")
        return arrow.type_for_alias(codec.arrow_type)
    except ValueError as error:
        if codec.arrow_type == _NO_SIZES:
            raise UsageError(
                f"the codec {codec.name} does not say how many digits a column has, which Arrow "
                f"wants to know; name one that does, such as {codec.name}(38,10)"
            ) from error
        raise UsageError(
            f"the codec {codec.name} names the Arrow type {codec.arrow_type!r}: {error}"
        ) from error


def record_batches(
    shape: Shape, rows: Iterable[SeenRow], *, batch_rows: int = DEFAULT_BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Return batches of `batch_rows` rows, the last one shorter; none where there is no row.

    Raises:
        ConfigError: at once, if pyarrow is not installed.
        CorruptCell: naming row and column, a value that its codec cannot read.
    """
    arrow = pyarrow()
    return _batches(arrow, shape, schema_of(arrow, shape), rows, batch_rows)


def page_batches(
    shape: Shape, pages: Iterable[Sequence[SeenRow]], *, batch_rows: int = DEFAULT_BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Return what `record_batches` returns, of rows that come many at a time.

    Raises:
        ConfigError: at once, as there.
        CorruptCell: as there.
    """
    arrow = pyarrow()
    schema = schema_of(arrow, shape)
    if shape.has_commit_ts or shape.rest is not None:
        return _batches(arrow, shape, schema, chain.from_iterable(pages), batch_rows)
    return _plain_batches(arrow, shape, schema, pages, batch_rows)


def _plain_batches(
    arrow: Any, shape: Shape, schema: Any, pages: Iterable[Sequence[SeenRow]], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    def made(rows: Sequence[SeenRow]) -> pa.RecordBatch:
        keys = [key for key, _ in rows]
        columns = [[seen.get(field.column) for _, seen in rows] for field in shape.fields]
        return _batch(arrow, shape, schema, keys, columns, (), ())

    held: list[SeenRow] = []
    for page in pages:
        held += page
        while len(held) >= batch_rows:
            yield made(held[:batch_rows])
            held = held[batch_rows:]
    if held:
        yield made(held)


def _batches(
    arrow: Any, shape: Shape, schema: Any, rows: Iterable[SeenRow], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    keys: list[bytes] = []
    columns: list[list[bytes | None]] = [[] for _ in shape.fields]
    wanted = [
        (field.column, values.append) for field, values in zip(shape.fields, columns, strict=True)
    ]
    named = frozenset(field.column for field in shape.fields)
    others: list[list[tuple[str, bytes]]] = []
    times: list[int] = []
    for row, found in rows:
        seen = found
        if shape.has_commit_ts:
            times.append(max(at for _, at in found.values()))
            seen = {column: value for column, (value, _) in found.items()}
        keys.append(row)
        for column, append in wanted:
            append(seen.get(column))
        if shape.rest is not None:
            others.append(
                [(text_of(one), value) for one, value in seen.items() if one not in named]
            )
        if len(keys) == batch_rows:
            yield _batch(arrow, shape, schema, keys, columns, others, times)
            keys.clear()
            others.clear()
            times.clear()
            for values in columns:
                values.clear()
    if keys:
        yield _batch(arrow, shape, schema, keys, columns, others, times)


def _batch(
    arrow: Any,
    shape: Shape,
    schema: Any,
    keys: Sequence[bytes],
    columns: Sequence[Sequence[bytes | None]],
    others: Sequence[Sequence[tuple[str, bytes]]],
    times: Sequence[int],
) -> pa.RecordBatch:
    arrays = list(_key_arrays(arrow, shape, keys))
    for field, values in zip(shape.fields, columns, strict=True):
        arrays.append(_array(arrow, field.codec, values, keys, column=field.column))
    if shape.rest is not None:
        arrays.append(arrow.array(others, schema.field(shape.rest).type))
    if shape.has_commit_ts:
        arrays.append(arrow.array(times, arrow.int64()))
    return arrow.record_batch(arrays, schema=schema)


def _key_arrays(arrow: Any, shape: Shape, keys: Sequence[bytes]) -> Iterator[Any]:
    parts = shape.key.parts
    if len(parts) == 1:
        yield _array(arrow, parts[0].codec, keys, keys, column=None)
        return
    decoded = [shape.key.decode(row) for row in keys]
    for at, part in enumerate(parts):
        values = [one[at] for one in decoded]
        if part.codec is JSON:
            values = [JSON.encode(one).decode() for one in values]
        yield _typed(arrow, part.codec, values, keys, column=None)


def _array(
    arrow: Any,
    codec: Codec[Any],
    data: Sequence[bytes | None],
    keys: Sequence[bytes],
    *,
    column: bytes | None,
) -> Any:
    """Return a column of values, None for those that are not there."""
    found = _in_bulk(arrow, codec, data)
    if found is not None:
        return found
    read = _reader(codec)
    values: list[Any] = []
    for row, one in zip(keys, data, strict=True):
        try:
            values.append(None if one is None else read(one))
        except CorruptCell as error:
            raise CorruptCell(f"{_place(row, column)}: {error}") from error
    return _typed(arrow, codec, values, keys, column=column)


def _typed(
    arrow: Any,
    codec: Codec[Any],
    values: Sequence[Any],
    keys: Sequence[bytes],
    *,
    column: bytes | None,
) -> Any:
    """Return values as a column; what is not of its type is named."""
    wanted = type_of(arrow, codec)
    try:
        return arrow.array(values, wanted)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        for row, value in zip(keys, values, strict=True):
            try:
                arrow.array([value], wanted)
            except (arrow.ArrowInvalid, arrow.ArrowTypeError) as wrong:
                raise UsageError(
                    f"{_place(row, column)}: {value!r:.60}, which the codec {codec.name} reads, is "
                    f"not of its Arrow type {codec.arrow_type!r}: {wrong}"
                ) from wrong
        raise UsageError(
            f"what the codec {codec.name} reads is not of its Arrow type {codec.arrow_type!r}: "
            f"{error}"
        ) from error


def _place(row: bytes, column: bytes | None) -> str:
    return f"row {row!r}" + ("" if column is None else f", column {column!r}")


def _in_bulk(arrow: Any, codec: Codec[Any], data: Sequence[bytes | None]) -> Any | None:
    """Return a column made of the bytes themselves; None where these are not all as they should."""
    if codec is BYTES:
        return arrow.array(data, arrow.binary())
    if codec is TEXT:
        try:
            return arrow.array(data, arrow.binary()).cast(arrow.string())
        except arrow.ArrowInvalid:
            return None
    form = _ARRAYS.get(codec)
    if form is None or sys.byteorder != "little":
        return None
    width = WIDTHS[codec]
    absent = bytes(width)
    filled = [absent if one is None else one for one in data]
    if any(len(one) != width for one in filled):
        return None
    numbers = array(form, b"".join(filled))
    numbers.byteswap()
    is_there = None
    if any(one is None for one in data):
        is_there = arrow.array([one is not None for one in data], arrow.bool_()).buffers()[1]
    buffers = [is_there, arrow.py_buffer(numbers)]
    return arrow.Array.from_buffers(type_of(arrow, codec), len(data), buffers)


def _reader(codec: Codec[Any]) -> Callable[[bytes], Any]:
    if codec is not JSON:
        return codec.decode

    def read(data: bytes) -> str:
        """Check that it is JSON, and leave it text: its values have no one type in Arrow."""
        JSON.decode(data)
        return data.decode()

    return read
