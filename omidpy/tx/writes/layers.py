"""What is buffered since one savepoint: rows by table, found by key and by range.

Lacks versions, and values that were sent: those are the buffer's, in `buffer.py`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from omidpy.model import CellName, KeyRange

FEW_KEYS: Final = 8
"""Up to this many new keys are inserted one by one; from there on one sort is quicker."""

_CELL_OVERHEAD_BYTES: Final = 64

_new: Final = tuple.__new__
"""Makes a named tuple of its fields, without the call of a Python function; see `buffer.py`."""

Columns = dict[tuple[bytes, bytes], bytes]
"""Column -> value or tombstone."""

_NOTHING: Final[Columns] = {}
"""Not to be changed."""


class Rows:
    """The buffered rows of one table: found by key, and in the order of keys by range."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, Columns] = {}
        self._ordered: list[bytes] = []
        self._unordered: list[bytes] = []

    def columns(self, row: bytes) -> Columns:
        """Return the columns of a row, to be changed."""
        columns = self.by_key.get(row)
        if columns is None:
            columns = self.by_key[row] = {}
            self._unordered.append(row)
        return columns

    def add(self, rows: Mapping[bytes, Columns]) -> None:
        """Add rows that are not there yet."""
        self.by_key.update(rows)
        self._unordered += rows

    def keys_in(self, key_range: KeyRange) -> list[bytes]:
        """Return the keys in a range, in order.

        Cost: O(log n + result), and the sorting of keys that came since the last call.
        """
        keys, added = self._ordered, self._unordered
        if len(added) <= FEW_KEYS:
            for key in added:
                insort(keys, key)
        else:
            keys += added
            keys.sort()
        added.clear()
        end = bisect_left(keys, key_range.end) if key_range.end else len(keys)
        return keys[bisect_left(keys, key_range.start) : end]


class Scope:
    """Where the writes of a savepoint come from, if several tasks share the transaction."""

    def __init__(self, is_inside: Callable[[], bool]) -> None:
        """Ask the writer's `is_inside`."""
        self.is_inside = is_inside


class Merge(NamedTuple):
    """What the merge of one part changed."""

    worker_id: str
    names: Sequence[CellName]
    """Cells that no other part had."""
    sent: Sequence[tuple[CellName, int]]
    conflict_free: Collection[CellName]
    """Cells that became free of conflicts."""


class Layer:
    """The writes since one savepoint; the lowest layer is the transaction itself."""

    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = scope
        self.tables: dict[str, Rows] = {}
        self.sent: list[tuple[CellName, int]] = []
        self.merges: list[Merge] = []
        self.size_bytes = 0
        self.put_count = 0
        self.flaw: str | None = None
        self.halves: dict[object, str] = {}
        """Of what has not ended a part is here; and why that must not be committed."""

    def put_cells(
        self, table: str, row: bytes, cells: Iterable[tuple[bytes, bytes, bytes]]
    ) -> None:
        """Buffer values, or tombstones, of a row: families, qualifiers and values; at least one."""
        rows = self.tables.get(table)
        if rows is None:
            rows = self.tables[table] = Rows()
        columns = rows.columns(row)
        count = size_bytes = 0
        for family, qualifier, value in cells:
            column = (family, qualifier)
            old = columns.get(column)
            if old is None:
                count += 1
                size_bytes += len(family) + len(qualifier) + len(value)
            else:
                size_bytes += len(value) - len(old)
            columns[column] = value
        self.put_count += count
        self.size_bytes += size_bytes + count * (len(row) + _CELL_OVERHEAD_BYTES)

    def put_rows(
        self,
        table: str,
        rows: Sequence[bytes],
        columns: Sequence[tuple[bytes, bytes]],
        values: Sequence[Sequence[bytes | None]],
    ) -> bool:
        """Buffer rows of which nothing is buffered yet, as `WriteBuffer.put_rows`.

        Returns:
            False: something is, or a row comes twice; nothing was buffered.
        """
        known = self.tables.get(table)
        if known is not None and not known.by_key.keys().isdisjoint(rows):
            return False
        found: dict[bytes, Columns] = {}
        for row, *cells in zip(rows, *values, strict=True):
            if None in cells:
                some = {
                    column: value
                    for column, value in zip(columns, cells, strict=True)
                    if value is not None
                }
                if some:
                    found[row] = some
            else:
                found[row] = cast("Columns", dict(zip(columns, cells, strict=True)))
        if len(set(rows)) != len(rows):
            return False
        if known is None:
            known = self.tables[table] = Rows()
        known.add(found)
        for family_and_name, column in zip(columns, values, strict=True):
            there = [
                (row, value) for row, value in zip(rows, column, strict=True) if value is not None
            ]
            self.put_count += len(there)
            self.size_bytes += len(there) * (sum(map(len, family_and_name)) + _CELL_OVERHEAD_BYTES)
            self.size_bytes += sum(len(row) + len(value) for row, value in there)
        return True

    def cells(self) -> Iterator[tuple[CellName, bytes]]:
        """Yield what is buffered."""
        for table, rows in self.tables.items():
            for row, columns in rows.by_key.items():
                for (family, qualifier), value in columns.items():
                    yield _new(CellName, (table, row, family, qualifier)), value

    def row(self, table: str, row: bytes) -> Columns:
        """Return what is buffered of a row.  Not to be changed."""
        rows = self.tables.get(table)
        return _NOTHING if rows is None else rows.by_key.get(row, _NOTHING)

    def clear(self) -> None:
        """Buffer nothing more of what was sent, but remember that it was."""
        self.tables = {}
        self.size_bytes = 0
