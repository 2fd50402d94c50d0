"""Arrow record batches as writes of a table: puts, deletes of rows, and numbers that are added.

Every batch is held to the shape, the first and all others: a column that is missing, unknown or of
another type ends the write.  A row comes once: which of two would win is not said anywhere.  A row
of a table of Phoenix's gets its empty column, too (`marking.py`).

What depends on what is there, a delete of a row and a number that is added to, is read from `base`.
In a task that is the snapshot alone: an attempt that read what the attempt before it has written
would add twice, or delete what is deleted already and write nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, Protocol

from omidpy.base.callers.once import gone_over_once
from omidpy.codec import INT64, JSON, Codec
from omidpy.errors import UsageError
from omidpy.facts.tables.layout import TableLayout
from omidpy.model import KeyRange
from omidpy.storage.base import WHOLE_TABLE
from omidpy.tx.batch import Batch
from omidpy.tx.frames.encoding import checked_cast, encoded
from omidpy.tx.frames.marking import Marking
from omidpy.tx.frames.names import column_of
from omidpy.tx.frames.reading import pyarrow, type_of
from omidpy.tx.frames.shape import COMMIT_TS, OP, Field, Shape

if TYPE_CHECKING:
    import pyarrow as pa

NULLS: Final = ("keep", "delete")
"""What a null says of a column: nothing, or that it is to have no value."""
PUT: Final = "put"
DELETE: Final = "delete"


class Base(Protocol):
    """A table to read what a write depends on."""

    def rows(
        self, rows: Sequence[bytes], columns: Iterable[bytes] | None = None
    ) -> list[tuple[bytes, dict[bytes, Any]]]:
        """Read several rows in one request."""
        ...


class Sink(Protocol):
    """What takes the writes of a frame: a transaction's table, or a worker's."""

    def put(self, row: bytes, data: Mapping[bytes, bytes]) -> None:
        """Write columns of a row."""
        ...

    def delete(self, row: bytes, columns: Iterable[bytes] | None = None) -> None:
        """Delete columns of a row."""
        ...


class Target(Base, Sink, Protocol):
    """A table to write."""

    @property
    def layout(self) -> TableLayout:
        """What is known of it."""
        ...

    @property
    def name(self) -> str:
        """The name of the table."""
        ...

    @property
    def is_conflict_free(self) -> bool:
        """Whether the oracle looks for no conflict of what is written through this object."""
        ...


class Scanned(Target, Protocol):
    """The table that the frames are of."""

    def scan(
        self,
        row_start: bytes | None = None,
        row_stop: bytes | None = None,
        row_prefix: bytes | None = None,
        columns: Iterable[bytes] | None = None,
        filter: None = None,  # noqa: A002 - happybase's signature
        timestamp: None = None,
        include_timestamp: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
        batch_size: int | None = None,
    ) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
        """Iterate over the rows of a range."""
        ...


class TakesRows(Protocol):
    """What takes many rows at once."""

    def put_rows(
        self,
        rows: Sequence[bytes],
        columns: Sequence[bytes],
        values: Sequence[Sequence[bytes | None]],
    ) -> bool:
        """Write the same columns of many rows; False: it wrote nothing, and they go one by one."""
        ...


class Written(Target, Protocol):
    """The table that frames are written to."""

    def batch(
        self,
        timestamp: None = None,
        batch_size: int | None = None,
    ) -> Batch:
        """Collect writes, and hand them over together."""
        ...


class FrameWriter:
    """Writes the batches of one frame to one table."""

    def __init__(
        self,
        target: Target,
        shape: Shape,
        *,
        nulls: str = "keep",
        base: Base | None = None,
        sink: Sink | None = None,
        bulk: TakesRows | None = None,
        key_range: KeyRange = WHOLE_TABLE,
    ) -> None:
        """Write nothing yet.

        Args:
            target: Where to write.
            shape: Which column is which.
            nulls: One of `NULLS`.
            base: What is read for deletes and counters; by default the target itself.
            sink: What takes the writes for the target; by default itself.
            bulk: What takes plain rows in place of `sink`; None: nothing does.
            key_range: Where rows may be.

        Raises:
            UsageError: an argument is wrong, counters would not be checked for conflicts, or the
                table is one of Phoenix's whose rows would lack their empty column.
        """
        if nulls not in NULLS:
            raise UsageError(f"nulls={nulls!r} is none of {', '.join(NULLS)}")
        counters = [one.name for one in shape.fields if one.is_counter]
        if counters and target.is_conflict_free:
            raise UsageError(
                f"the counters {', '.join(counters)} of table {target.name!r} cannot be changed "
                "without conflict detection: two transactions would count once"
            )
        self._sink = target if sink is None else sink
        self._base = target if base is None else base
        self._bulk = bulk
        self._shape = shape
        self._key_range = key_range
        self._nulls = nulls
        self._counters = [one.column for one in shape.fields if one.is_counter]
        self._marking = Marking(target.layout, shape)
        self._seen: set[bytes] = set()
        self.row_count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch.

        Raises:
            UsageError: a column is missing, unknown or of another type, a key is null, comes twice
                or lies elsewhere, or a value cannot be stored.

        Cost: what the writes cost; 1 read for the counters and 1 for the deletes of a batch.
        """
        columns = _Columns(self._shape, batch)
        keys = columns.keys()
        self._check_unique(keys)
        for row in keys:
            if not self._key_range.contains(row):
                raise UsageError(
                    f"the frame has the row {row[:60]!r}, which is not among those to be replaced; "
                    "leave it out, or name a longer range of rows"
                )
        if self._bulk is not None and self._puts_at_once(self._bulk, columns, keys):
            self.row_count += len(keys)
            return
        ops = columns.ops()
        counts = self._found(keys, self._counters) if self._counters else {}
        doomed = [row for row, op in zip(keys, ops, strict=True) if op == DELETE]
        found = self._found(doomed, None) if doomed else {}
        for row, op, cells in zip(keys, ops, columns.cells(counts, keys), strict=True):
            if op == DELETE:
                if old := found.get(row):
                    self._sink.delete(row, list(old))
                continue
            put = {column: value for column, value in cells.items() if value is not None}
            self._marking.mark(row, put)
            if self._nulls == "delete" and (absent := [one for one in cells if one not in put]):
                self._sink.delete(row, absent)
            if put:
                self._sink.put(row, put)
        self.row_count += len(keys)

    def _puts_at_once(self, bulk: TakesRows, columns: _Columns, keys: Sequence[bytes]) -> bool:
        """Write rows of which nothing depends on another, nor on what is there."""
        if self._counters or self._shape.rest is not None or self._marking.is_needed:
            return False
        values = columns.encoded()
        if values is None or (self._nulls == "delete" and any(None in one for one in values)):
            return False
        return bulk.put_rows(keys, [field.column for field in self._shape.fields], values)

    def _found(
        self, rows: Sequence[bytes], columns: Sequence[bytes] | None
    ) -> dict[bytes, dict[bytes, bytes]]:
        return dict(self._base.rows(rows, columns))

    def _check_unique(self, keys: Sequence[bytes]) -> None:
        fresh = set(keys)
        if len(fresh) == len(keys) and self._seen.isdisjoint(fresh):
            self._seen |= fresh
            return
        known: set[bytes] = set()
        for row in keys:
            if row in known:
                raise twice(row)
            known.add(row)
        raise twice(next(row for row in keys if row in self._seen))


def twice(row: bytes) -> UsageError:
    """Return what is raised of a row that a frame has more than once."""
    return UsageError(
        f"the frame has the row {row[:60]!r} twice, and nobody could say which one is to stay; "
        "aggregate it by its key first"
    )


class _Columns:
    """The columns of one batch, checked."""

    def __init__(self, shape: Shape, batch: Any) -> None:
        self._arrow = pyarrow("writing from Arrow")
        self._shape = shape
        self._batch = batch
        check_names(shape, batch.schema.names)

    def keys(self) -> list[bytes]:
        """Return the row keys."""
        parts = self._shape.key.parts
        if len(parts) == 1 and (found := self._encoded(parts[0].name, parts[0].codec)) is not None:
            keys = [one for one in found if one is not None]
            if len(keys) == len(found):
                return keys
        return [self._shape.key.encode(values) for values in self._key_values()]

    def encoded(self) -> list[Sequence[bytes | None]] | None:
        """Return the bytes of each column; None where each row is to be looked at."""
        if OP in self._batch.schema.names:
            return None
        found: list[Sequence[bytes | None]] = []
        for field in self._shape.fields:
            values = self._encoded(field.name, field.codec)
            if values is None:
                return None
            found.append(values)
        return found

    def _encoded(self, name: str, codec: Codec[Any]) -> Sequence[bytes | None] | None:
        column = self._batch.column(name)
        if column.type != type_of(self._arrow, codec):
            return None
        return encoded(self._arrow, codec, column)

    def _key_values(self) -> Iterator[tuple[Any, ...]]:
        """Return the values of the row keys."""
        parts = [self._values(part.name, part.codec) for part in self._shape.key.parts]
        return zip(*parts, strict=True)

    def ops(self) -> list[str]:
        """Return what becomes of each row."""
        if OP not in self._batch.schema.names:
            return [PUT] * self._batch.num_rows
        found = [PUT if one is None else one for one in self._batch.column(OP).to_pylist()]
        for one in found:
            if one not in (PUT, DELETE):
                raise UsageError(f"{OP}={one!r} is none of {PUT} and {DELETE}")
        return found

    def cells(
        self, counts: Mapping[bytes, Mapping[bytes, bytes]], keys: Sequence[bytes]
    ) -> Iterator[dict[bytes, bytes | None]]:
        """Return the cells of each row; None for a null, none for a counter that is null."""
        columns = [
            (one, _encoder(one), self._values(one.name, one.codec)) for one in self._shape.fields
        ]
        rest = self._shape.rest
        maps = None if rest is None else self._batch.column(rest).to_pylist()
        named = {one.column for one in self._shape.fields}
        for at, row in enumerate(keys):
            cells: dict[bytes, bytes | None] = {}
            for field, encode, values in columns:
                value = values[at]
                if field.is_counter:
                    if value is not None:
                        cells[field.column] = _added(counts.get(row, {}), field, value)
                else:
                    cells[field.column] = None if value is None else encode(value)
            if maps is not None and maps[at]:
                _add_others(cells, row, maps[at], named)
            yield cells

    def _values(self, name: str, codec: Codec[Any]) -> list[Any]:
        column = self._batch.column(name)
        expected = type_of(self._arrow, codec)
        _check_kind(self._arrow.types, name, column.type, codec, expected)
        # A codec takes decimals as they are, and says which one does not fit.
        if column.type != expected and not self._arrow.types.is_decimal(expected):
            try:
                column = checked_cast(self._arrow, column, expected, may_round=True)
            except (self._arrow.ArrowInvalid, self._arrow.ArrowNotImplementedError) as error:
                raise UsageError(
                    f"the column {name!r} is of type {column.type}, and {codec.name} stores "
                    f"{expected}: {error}"
                ) from error
        found: list[Any] = column.to_pylist()
        return found


def _add_others(
    cells: dict[bytes, bytes | None],
    row: bytes,
    others: Sequence[tuple[str, bytes | None]],
    named: AbstractSet[bytes],
) -> None:
    """Add the columns of a map to those that have names of their own, which go before.

    So does a counter to which nothing is added: what the map has of it is no number to add.

    Raises:
        UsageError: the map names a column twice, so that one of the values would be lost.
    """
    seen: set[bytes] = set()
    for name, data in others:
        column = column_of(name)
        if column in seen:
            raise UsageError(f"the map of row {row!r} names the column {column!r} twice")
        seen.add(column)
        if column not in named:
            cells[column] = data


def _check_kind(types: Any, name: str, found: Any, codec: Codec[Any], expected: Any) -> None:
    """Refuse a column that a cast would make up: digits that nobody wrote, or a time zone.

    Raises:
        UsageError: it names the column.
    """
    if types.is_decimal(expected):
        is_one = types.is_decimal(found) or types.is_integer(found)
    elif types.is_timestamp(expected) and expected.tz is not None:
        is_one = types.is_timestamp(found) and found.tz is not None
    else:
        return
    if not is_one and not types.is_null(found):
        raise UsageError(
            f"the column {name!r} is of type {found}, and {codec.name} stores {expected}; cast it"
        )


def check_names(shape: Shape, names: Sequence[str]) -> None:
    """Refuse a frame that lacks a column, or has one that is not the table's.

    Raises:
        UsageError: it names them.
    """
    expected = [name for name in shape.names if name != COMMIT_TS]
    if missing := [name for name in expected if name not in names]:
        raise UsageError(
            f"the frame lacks the columns {', '.join(missing)}; it has {', '.join(names)}"
        )
    if unknown := [name for name in names if name not in expected and name != OP]:
        raise UsageError(
            f"nobody knows which columns of the table {', '.join(unknown)} are; name them, as "
            "columns={'balance': ('cf:balance', 'bigint')}, or leave them out of the frame"
        )


def _encoder(field: Field) -> Callable[[Any], bytes]:
    if field.codec is not JSON:
        return field.codec.encode

    def encode(text: str) -> bytes:
        """Store the document in its one form: text is JSON's type in Arrow."""
        return JSON.encode(JSON.decode(text.encode()))

    return encode


def _added(found: Mapping[bytes, bytes], field: Field, amount: int) -> bytes:
    """Return a counter with an amount added."""
    value = found.get(field.column)
    return INT64.encode((0 if value is None else INT64.decode(value)) + amount)


def batches_of(data: object) -> Iterator[pa.RecordBatch]:
    """Return the batches of whatever gives Arrow data.

    Args:
        data: A reader, a table or a batch of pyarrow, an iterable of batches, or what has an
            `__arrow_c_stream__`, as frames of pandas and Polars and results of DuckDB do.

    Raises:
        TypeError: it is none of them.
        UsageError: from the iterator: it is one that was read before.
    """
    arrow = pyarrow("writing from Arrow")
    if isinstance(data, arrow.RecordBatch):
        return iter((data,))
    if isinstance(data, arrow.Table):
        return iter(data.to_batches())
    if hasattr(data, "__arrow_c_stream__") and not isinstance(data, arrow.RecordBatchReader):
        return iter(arrow.RecordBatchReader.from_stream(data))
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, Mapping)):
        return _checked(arrow, gone_over_once(data, what="the rows of write_arrow"))
    raise TypeError(
        "write_arrow takes a reader, a table or batches of pyarrow, or a frame that gives Arrow "
        f"data (__arrow_c_stream__), not {type(data).__name__}"
    )


def _checked(arrow: Any, data: Iterable[object]) -> Iterator[pa.RecordBatch]:
    for one in data:
        if not isinstance(one, arrow.RecordBatch):
            raise TypeError(f"a batch must be a pyarrow.RecordBatch, not {type(one).__name__}")
        yield one
