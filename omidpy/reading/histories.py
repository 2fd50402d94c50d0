"""Which values have rows held, and since when?  Scans all versions that one snapshot can tell of.

Of a column that is what `Snapshot.history` says of it: what the snapshot sees, then what was there
before that commit, and so on down to the last delete, because what is older was seen by no snapshot
after it.  What compactions have collected is not there any more: below the collection horizon only
the newest value is sure to be.

Lacks cells of the snapshot's own transaction: it is for readers that write nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from omidpy.base.cells import is_family_marker, is_tombstone
from omidpy.errors import ConfigError
from omidpy.model import Cell, ColumnSpec, KeyRange, Timestamp
from omidpy.reading.snapshot import Snapshot, SnapshotReader, physical_columns
from omidpy.reading.visibility import VisibleCell, is_hidden, sort_row
from omidpy.storage.base import Row

PAGE_ROWS: Final = 200
"""Fewer than a plain scan takes: a row comes with all that it has been."""

RowHistory: TypeAlias = tuple[bytes, list[VisibleCell]]
"""A row key, and its values: by column, the newest first."""


class HistoryReader:
    """Reads every version, as one snapshot sees them."""

    def __init__(self, reader: SnapshotReader, snapshot: Snapshot) -> None:
        """Read at a snapshot that has no cells of its own.

        Raises:
            ConfigError: the store shows one version of a cell alone.
        """
        if not reader.store.capabilities.multi_version_scan:
            raise ConfigError(
                f"{reader.store.url} shows the newest version of a cell alone; open the store "
                "through hbase:// or hbase+thrift2://"
            )
        self._store = reader.store
        self._snapshot = snapshot

    def scan(
        self, table: str, key_range: KeyRange, columns: Sequence[ColumnSpec] | None
    ) -> Iterator[RowHistory]:
        """Yield the rows of a range that have a value, in key order.

        Args:
            table: Its name in the store.
            key_range: The rows.
            columns: Which columns, or whole families; None: all.

        Raises:
            SnapshotTooOld: versions that this snapshot needs may have been collected.

        Cost: 1 RPC a page; see `RowFacts.find` for cells that are not healed.
        """
        for page in self._store.scan(
            table,
            key_range,
            columns=physical_columns(columns),
            max_version=self._snapshot.start_ts,
            page_rows=PAGE_ROWS,
        ):
            yield from self._histories(table, page, columns)
        self._snapshot.check_horizon(table, sees_nothing=True)  # perhaps: one look a scan

    def rows(
        self, table: str, rows: Sequence[bytes], columns: Sequence[ColumnSpec] | None
    ) -> list[RowHistory]:
        """Return those of some rows that have a value; arguments and errors are as in `scan`.

        Cost: 1 get; see `scan`.
        """
        found = self._store.get(
            table,
            rows,
            columns=physical_columns(columns),
            max_version=self._snapshot.start_ts,
        )
        seen = list(self._histories(table, [cells for cells in found if cells], columns))
        self._snapshot.check_horizon(table, sees_nothing=len(seen) < len(rows))
        return seen

    def _histories(
        self, table: str, page: Sequence[Row], columns: Sequence[ColumnSpec] | None
    ) -> Iterator[RowHistory]:
        found: list[RowHistory] = []
        facts = self._snapshot.facts(table)
        rows = [sort_row(cells) for cells in page]
        facts.find_all(rows)
        for row in rows:
            committed = dict(facts.committed(row))
            seen = [
                one
                for one in values_held(committed, self._snapshot.start_ts)
                if _is_wanted(one.cell, columns)
            ]
            facts.seen_all(row, committed.items())
            if seen:
                found.append((seen[0].cell.row, seen))
        facts.heal()
        # A version that is missing may have been collected while the page was read.
        self._snapshot.check_horizon(table)
        yield from found


def values_held(committed: dict[Cell, Timestamp], before: int) -> list[VisibleCell]:
    """Return what the columns of one row have held before a moment; pure.

    Args:
        committed: Its committed data cells, tombstones and family markers, in HBase's order.
        before: The start timestamp of a snapshot.
    """
    markers: dict[bytes, list[tuple[Cell, Timestamp]]] = {}
    columns: dict[tuple[bytes, bytes], list[tuple[Cell, Timestamp]]] = {}
    for cell, commit_ts in committed.items():
        columns.setdefault((cell.family, cell.qualifier), []).append((cell, commit_ts))
        if is_family_marker(cell.qualifier, cell.value):
            markers.setdefault(cell.family, []).append((cell, commit_ts))
    found: list[VisibleCell] = []
    for (family, _), versions in columns.items():
        at = before
        for cell, commit_ts in versions:
            if commit_ts >= at:
                continue
            # The newest version that was committed before `at` is what a snapshot there sees.
            if is_tombstone(cell.value):
                break
            marker = next((one for one in markers.get(family, ()) if one[1] < at), None)
            if marker is not None and is_hidden(cell, commit_ts, *marker):
                break
            found.append(VisibleCell(cell, commit_ts))
            at = commit_ts
    return found


def _is_wanted(cell: Cell, columns: Sequence[ColumnSpec] | None) -> bool:
    if columns is None:
        return True
    return (cell.family, None) in columns or (cell.family, cell.qualifier) in columns
