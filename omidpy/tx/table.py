"""A table inside a transaction: get, put, delete and scan, in happybase's shapes.

Columns are written `b"family:qualifier"`; a row is a dict from column to value.  Reads lay the
transaction's buffer over its snapshot.  What happybase has and a transaction cannot honour
(`timestamp`, `wal`, `filter`) is refused rather than ignored.

Source: the method names, arguments and result shapes are those of happybase 1.x.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from omidpy.base.cells import is_tombstone
from omidpy.base.rows.simple import values_of
from omidpy.base.schema.family_options import happybase_settings
from omidpy.base.words.arguments import (
    check_count,
    check_row,
    parse_column,
    parse_columns,
    refuse,
    scan_range,
)
from omidpy.codec import Codec
from omidpy.errors import UsageError
from omidpy.facts.tables.layout import TableLayout
from omidpy.model import Cell, ColumnSpec, KeyRange
from omidpy.reading.visibility import NOTHING, SeenRow, VisibleCell, VisibleRow, cells_of
from omidpy.tx.batch import Batch
from omidpy.tx.counters import Counters
from omidpy.tx.frames.asked import DEFAULT_BATCH_ROWS as DEFAULT_ARROW_ROWS
from omidpy.tx.frames.table import Frames
from omidpy.tx.writes.table_writes import TableWrites

if TYPE_CHECKING:
    import pyarrow as pa

    from omidpy.reading.paired_pages import PageOfValues
    from omidpy.reading.snapshot import Snapshot
    from omidpy.tx.writes.buffer import WriteBuffer

R = TypeVar("R")

Overlay: TypeAlias = Mapping[tuple[bytes, bytes], bytes]

DEFAULT_BATCH_ROWS: Final = 1000


class Host(Protocol):
    """The transaction, as its tables see it."""

    @property
    def is_running(self) -> bool:
        """Whether it can still be used, in the process that began it."""
        ...

    def check_open(self) -> None:
        """Raise unless the transaction is running."""
        ...

    def check_writable(self) -> None:
        """Raise unless the transaction is running and may write."""
        ...

    def check_unindexed(self, layout: TableLayout) -> None:
        """Raise if Phoenix keeps indexes of a table."""
        ...

    def wrote(self) -> None:
        """Note a buffered write."""
        ...


class TransactionalTable(Counters, Frames):
    """One table in one transaction."""

    def __init__(
        self,
        host: Host,
        snapshot: Snapshot,
        buffer: WriteBuffer,
        layout: TableLayout,
        *,
        conflict_free: bool = False,
        minds_indexes: bool = False,
    ) -> None:
        self._host = host
        self._snapshot = snapshot
        self._buffer = buffer
        self.writes = TableWrites(
            host,
            snapshot,
            buffer,
            layout,
            conflict_free=conflict_free,
            minds_indexes=minds_indexes,
        )
        self.layout = layout
        # Families that are not ours are never read: their cells have no transaction.
        self._all_columns: list[ColumnSpec] = [(name, None) for name in sorted(layout.families)]
        self.name = layout.name
        self.is_conflict_free = conflict_free

    def __repr__(self) -> str:
        return f"<TransactionalTable {self.name!r} at {self._snapshot.start_ts}>"

    # -- reading -------------------------------------------------------------------------------

    def row(
        self,
        row: bytes,
        columns: Iterable[bytes] | None = None,
        timestamp: None = None,
        include_timestamp: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> dict[bytes, Any]:
        """Read a row.

        Args:
            row: Its key.
            columns: `b"family:qualifier"` or `b"family"` each; None for all.
            timestamp: Refused; a transaction reads its own snapshot.
            include_timestamp: Return (value, commit_ts) pairs; for own writes the start_ts.

        Returns:
            Column -> value, in column order; empty if the row has nothing.

        Cost: 1 get, see `Snapshot.read`.
        """
        refuse("timestamp", timestamp)
        # Of all columns it is `_read` that looks whether the transaction runs.
        specs = self._all_columns if columns is None else self._column_specs(columns)
        (seen,) = self._read((check_row(row),), specs)
        return _with_timestamps(seen) if include_timestamp else _values(seen)

    def rows(
        self,
        rows: Sequence[bytes],
        columns: Iterable[bytes] | None = None,
        timestamp: None = None,
        include_timestamp: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> list[tuple[bytes, dict[bytes, Any]]]:
        """Read several rows in one request; those that have nothing are left out.

        Arguments as in `row`.
        """
        refuse("timestamp", timestamp)
        if isinstance(rows, (bytes, str)) or not isinstance(rows, Iterable):
            raise TypeError(
                f"rows must be a sequence of row keys, not {type(rows).__name__}: {rows!r:.80}"
            )
        specs = self._column_specs(columns)
        keys = [check_row(row) for row in rows]
        shaped = _with_timestamps if include_timestamp else _values
        found = map(shaped, self._read(keys, specs))
        return [(key, data) for key, data in zip(keys, found, strict=True) if data]

    def cells(
        self,
        row: bytes,
        column: bytes,
        versions: int | None = None,
        timestamp: None = None,
        include_timestamp: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> list[Any]:
        """Read what a column has held, newest first: what this snapshot sees, and what was before.

        It ends at the last delete.  What a compaction has collected is not there any more: beyond
        its `--retention` only the newest value is sure to be.

        Args:
            row: The row's key.
            column: `b"family:qualifier"`.
            versions: At most so many; None: all.
            timestamp: Refused, as in `row`.
            include_timestamp: Return (value, commit_ts) pairs, as in `row`.

        Cost: 1 get, see `Snapshot.history`.
        """
        refuse("timestamp", timestamp)
        check_count("versions", versions)
        name = parse_column(column)
        self._host.check_open()
        self.layout.check_family(name[0])
        own = self._buffer.row(self.name, check_row(row)).get(name)
        if own is not None and is_tombstone(own):
            return []
        found: list[tuple[bytes, int]] = []
        if own is not None:
            found.append((own, self._snapshot.start_ts))
        limit = None if versions is None else versions - len(found)
        # What is buffered replaces what the transaction has sent of the column before.
        seen = self._snapshot.history(self.name, row, name, limit=limit, has_own_cells=own is None)
        found += [(one.cell.value, one.commit_ts) for one in seen]
        return list(found) if include_timestamp else [value for value, _ in found]

    def families(self) -> dict[bytes, dict[str, Any]]:
        """Return the transactional families with their settings, in happybase's shape.

        Cost: nothing; the settings are at most 5 s old.
        """
        self._host.check_open()
        return {
            family: happybase_settings(family, self.layout.settings.get(family, {}))
            for family in sorted(self.layout.families)
        }

    def regions(self) -> list[dict[str, Any]]:
        """Return the table's regions as they are now, each with its `start_key` and `end_key`.

        Cost: 1 RPC.
        """
        self._host.check_open()
        return [
            {"start_key": region.start, "end_key": region.end}
            for region in self._snapshot.regions(self.name)
        ]

    def scan(
        self,
        row_start: bytes | None = None,
        row_stop: bytes | None = None,
        row_prefix: bytes | None = None,
        columns: Iterable[bytes] | None = None,
        filter: None = None,  # noqa: A002 - happybase's signature
        timestamp: None = None,
        include_timestamp: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
        batch_size: int | None = DEFAULT_BATCH_ROWS,
        scan_batching: None = None,
        limit: int | None = None,
        sorted_columns: bool = True,  # noqa: FBT001, FBT002 - happybase's signature
        reverse: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
        """Iterate over the rows of a range, in key order.

        The transaction's own writes are seen as they are when the scan starts; rows that it writes
        while it iterates may or may not appear.

        Args:
            row_start: First row, inclusive; with `reverse` the upper end, inclusive.
            row_stop: Last row, exclusive; with `reverse` the lower end, exclusive.
            row_prefix: Rows that start with it; not together with the two above.
            columns: As in `row`.
            filter: Refused: a filter would judge versions before the snapshot does.
            timestamp: Refused, as in `row`.
            include_timestamp: As in `row`.
            batch_size: Rows a request; None: as many as fit well.
            scan_batching: Refused: rows come whole.
            limit: At most so many rows.
            sorted_columns: Columns come sorted either way.
            reverse: From the end to the start.

        Raises:
            StorageError: from the iterator, at its end: the table was dropped or truncated
                meanwhile, or on HBase disabled and perhaps restored.  What came may be a part.  And
                whenever more is asked for of a scan that has failed.
            SnapshotTooOld: from the iterator: versions that it needs may have been collected.

        Cost: 1 RPC for `batch_size` rows, see `Snapshot.scan`.
        """
        refuse("filter", filter)
        refuse("timestamp", timestamp)
        refuse("scan_batching", scan_batching)
        del sorted_columns
        check_count("limit", limit)
        check_count("batch_size", batch_size)
        key_range = scan_range(row_start, row_stop, row_prefix, reverse=reverse)
        specs = self._column_specs(columns)
        page_rows = batch_size or DEFAULT_BATCH_ROWS
        if limit is not None:
            page_rows = min(page_rows, limit)
        rows = self._scan(
            key_range,
            specs,
            include_timestamp=include_timestamp,
            page_rows=page_rows,
            reverse=reverse,
        )
        return self._whole(rows if limit is None else islice(rows, limit))

    def _whole(self, found: Iterator[R]) -> Iterator[R]:
        from omidpy.reading.whole import whole  # noqa: PLC0415 - not all scan

        return whole(found, f"this scan of table {self.name!r}")

    def scan_arrow(
        self,
        row_start: bytes | None = None,
        row_stop: bytes | None = None,
        row_prefix: bytes | None = None,
        *,
        codecs: Mapping[bytes, Codec[Any]],
        batch_rows: int = DEFAULT_ARROW_ROWS,
        reverse: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows of a range as Arrow record batches.

        The column `row` holds the keys; each other one is named `family:qualifier` and typed by its
        codec, JSON as text.  Rows that have none of the columns are left out.

        Args:
            row_start: As in `scan`, and so are `row_stop`, `row_prefix` and `reverse`.
            row_stop: See `scan`.
            row_prefix: See `scan`.
            codecs: `b"family:qualifier"` -> one of `omidpy.codec`, for each column to read.
            batch_rows: Rows of a batch; the last one may be shorter.
            reverse: See `scan`.

        Raises:
            CorruptCell: a value that its codec cannot read, named by row and column.
            StorageError: at the end, as in `scan`.
            ConfigError: pyarrow is not installed.
        """
        from omidpy.tx.frames.arrow import check_codecs, record_batches  # noqa: PLC0415 - few read so

        check_count("batch_rows", batch_rows, or_none=False)
        checked = check_codecs(codecs)
        key_range = scan_range(row_start, row_stop, row_prefix, reverse=reverse)
        specs = self._column_specs(checked)
        page_rows = min(batch_rows, DEFAULT_BATCH_ROWS)
        rows = self._scan(
            key_range, specs, include_timestamp=False, page_rows=page_rows, reverse=reverse
        )
        return self._whole(record_batches(rows, checked, batch_rows=batch_rows))

    def _scan(
        self,
        key_range: KeyRange,
        specs: list[ColumnSpec] | None,
        *,
        include_timestamp: bool,
        page_rows: int,
        reverse: bool,
    ) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
        shaped = _with_timestamps if include_timestamp else _values
        host = self._host
        # A generator starts at its first row, and the transaction may be over by then.
        host.check_open()
        for page in self._merged_pages(
            key_range, specs, page_rows=page_rows, reverse=reverse, values_do=not include_timestamp
        ):
            host.check_open()
            for key, seen in page:
                if not host.is_running:
                    host.check_open()
                data = seen if isinstance(seen, dict) else shaped(seen)
                if data:
                    yield key, data

    def _merged_pages(
        self,
        key_range: KeyRange,
        specs: list[ColumnSpec] | None,
        *,
        page_rows: int,
        reverse: bool,
        values_do: bool,
    ) -> Iterator[PageOfValues]:
        """Yield the rows of the snapshot and of the buffer, merged in key order."""
        if key_range.is_empty():
            return
        written = self._buffer.rows_in(self.name, key_range)
        waiting = sorted(written, reverse=not reverse)  # the next one is popped from the end

        def merged(page: Iterable[tuple[bytes, SeenRow]]) -> Iterator[tuple[bytes, SeenRow]]:
            for key, seen in page:
                while waiting and _comes_first(waiting[-1], key, reverse=reverse):
                    own = waiting.pop()
                    yield own, self._overlaid(own, NOTHING, written[own], specs)
                if waiting and waiting[-1] == key:
                    waiting.pop()
                    yield key, self._overlaid(key, seen, written[key], specs)
                else:
                    yield key, seen

        if not waiting:
            yield from self._snapshot.scan(
                *(self.name, key_range, specs),
                reverse=reverse,
                page_rows=page_rows,
                incarnation=self.layout.incarnation,
                values_do=values_do,
            )
            return
        for page in self._snapshot.scan(
            self.name,
            key_range,
            specs,
            reverse=reverse,
            page_rows=page_rows,
            incarnation=self.layout.incarnation,
        ):
            yield merged(page) if waiting else page
        yield [
            (own, self._overlaid(own, NOTHING, written[own], specs)) for own in reversed(waiting)
        ]

    def _read(self, keys: Sequence[bytes], specs: list[ColumnSpec] | None) -> list[SeenRow]:
        self._host.check_open()
        found = self._snapshot.read(self.name, keys, specs)
        if self._buffer.is_clear:
            return found
        return [
            self._overlaid(key, seen, self._buffer.row(self.name, key), specs)
            for key, seen in zip(keys, found, strict=True)
        ]

    def _overlaid(
        self,
        row: bytes,
        seen: SeenRow,
        own: Overlay,
        specs: list[ColumnSpec] | None,
    ) -> SeenRow:
        """Lay the transaction's buffered writes of a row over what the snapshot sees of it."""
        if not own:
            return seen
        start_ts = self._snapshot.start_ts
        merged = {(cell.family, cell.qualifier): (cell, at) for cell, at in cells_of(seen)}
        for column, value in own.items():
            if specs is not None and column not in specs and (column[0], None) not in specs:
                continue
            if is_tombstone(value):
                merged.pop(column, None)
            else:
                merged[column] = (Cell(row, *column, start_ts, value), start_ts)
        return VisibleRow([VisibleCell(*merged[column]) for column in sorted(merged)])

    def _column_specs(self, columns: Iterable[bytes] | None) -> list[ColumnSpec] | None:
        self._host.check_open()
        specs = parse_columns(columns)
        if specs is None:
            return self._all_columns
        for family, _ in specs:
            self.layout.check_family(family)
        return specs

    # -- writing -------------------------------------------------------------------------------

    def put(
        self,
        row: bytes,
        data: Mapping[bytes, bytes],
        timestamp: None = None,
        wal: bool = True,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> None:
        """Write columns of a row; visible to others when the transaction commits.

        Args:
            row: Its key.
            data: `b"family:qualifier"` -> value.
            timestamp: Refused; the transaction sets versions.
            wal: Refused unless True; a commit is durable.

        Raises:
            UsageError: a value or a qualifier is one that the format reads as something else;
                nothing of `data` was written.
        """
        refuse("timestamp", timestamp)
        refuse("wal", None if wal is True else wal)
        self.writes.put(row, self.writes.checked_cells(row, data))

    def delete(
        self,
        row: bytes,
        columns: Iterable[bytes] | None = None,
        timestamp: None = None,
        wal: bool = True,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> None:
        """Delete a row, families of it, or columns of it.

        Args:
            row: Its key.
            columns: `b"family:qualifier"` for a column, `b"family"` for a family; None for the row.
            timestamp: Refused, as in `put`.
            wal: As in `put`.

        Cost: nothing for columns; 1 get for a row or a family, whose columns are read and deleted.
        """
        refuse("timestamp", timestamp)
        refuse("wal", None if wal is True else wal)
        self.writes.delete(self.writes.checked_delete(row, columns))

    def batch(
        self,
        timestamp: None = None,
        batch_size: int | None = None,
        transaction: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
        wal: bool = True,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> Batch:
        """Collect puts and deletes and hand them to the transaction together.

        If the `with` block raises, what was collected is not handed over, and the exception goes
        on.  If a part of it has been handed over already, because of `batch_size` or `send`, the
        transaction can no longer commit; undoing a savepoint around the batch mends that.  Without
        a block call `send` in the end: what was not sent is no part of the transaction.

        Args:
            timestamp: Refused, as in `put`.
            batch_size: Hand over whenever so many operations were collected; None: at the end.
            transaction: Changes nothing: happybase's batches behave so only if it is set.
            wal: As in `put`.
        """
        refuse("timestamp", timestamp)
        refuse("wal", None if wal is True else wal)
        check_count("batch_size", batch_size)
        if transaction and batch_size is not None:
            raise UsageError("batch: transaction=True cannot be combined with batch_size")
        self._host.check_writable()
        return Batch(self.writes, batch_size)


def _values(row: SeenRow) -> dict[bytes, Any]:
    if isinstance(row, list):
        return values_of(row)
    return {family + b":" + name: value for (_, family, name, _, value), _ in row.cells}


def _with_timestamps(row: SeenRow) -> dict[bytes, Any]:
    return {family + b":" + name: (value, at) for (_, family, name, _, value), at in cells_of(row)}


def _comes_first(own: bytes, key: bytes, *, reverse: bool) -> bool:
    return own > key if reverse else own < key


def value_pages(
    table: TransactionalTable,
    key_range: KeyRange,
    columns: Iterable[bytes] | None,
    *,
    page_rows: int,
) -> Iterator[list[tuple[bytes, dict[bytes, bytes]]]]:
    """Iterate over the rows that `table.scan` gives, many at a time.

    Args:
        table: The table.
        key_range: The rows.
        columns: As in `scan`.
        page_rows: How many are read at a time, at most.
    """
    specs = table._column_specs(columns)  # noqa: SLF001 - this module's own class
    for page in table._merged_pages(  # noqa: SLF001 - as above
        key_range, specs, page_rows=page_rows, reverse=False, values_do=True
    ):
        table._host.check_open()  # noqa: SLF001 - as above
        rows = [(key, seen if isinstance(seen, dict) else _values(seen)) for key, seen in page]
        yield [row for row in rows if row[1]]
