"""Reads what was committed between two offsets, in the order of rows.

An offset T stands for everything that was committed at or below T.  No start timestamp is a commit
timestamp, so where T is one, that is what a snapshot at T sees.

    C1 (upper)     a window ends at or below F, a start timestamp that was drawn before it is read.
                   Commits below F were durable before F was handed out (I2), and their cells were
                   in the store before their commit was asked for: each is found, whether or not it
                   has its shadow cell.  What commits later does so above F.
    C2 (lower)     cells are read from version L + 1 on, where L is the low watermark of the oracle
                   at a moment when `since` had not been exceeded yet: what committed above `since`
                   was decided later, and did not begin at or below L (I4).  So a transaction that
                   began long before `since` is in, and files of HBase that are older than L are not
                   read.
    C3 (horizon)   once everything is read, the collection horizon is at or below `since` + 1: a
                   compaction drops no cell that was committed at or above it.  Else nothing is
                   told at all.

Without a recorded L (a store of Omid's oracle, samples that do not reach back so far) every version
is read, which takes longer and comes to the same.

    C4 (table)     once everything is read, no table of the name was removed behind `since`: what
                   was committed to that went with it.  Nor did it become another one while it was
                   read, where that took several reads.

Old values need the whole of a row, so that those that have changed are read again, as they are now:
what was committed up to the window's end does not change any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omidpy.base.cells import encode_long
from omidpy.base.reach import reached
from omidpy.errors import ConfigError, NoSuchTable, SnapshotTooOld
from omidpy.model import Change, ChangeKind, ColumnSpec, KeyRange, Timestamp
from omidpy.reading.changes.change import changes_of, simple_changes
from omidpy.reading.row_facts import RowFacts
from omidpy.reading.snapshot import Snapshot, SnapshotReader, physical_columns
from omidpy.reading.visibility import (
    SortedRow,
    Unresolved,
    VisibleRow,
    sort_row,
    visible_row,
)
from omidpy.storage.base import WHOLE_TABLE, Row
from omidpy.storage.options import ShapesChanges

if TYPE_CHECKING:
    from omidpy.reading.one_table import OneTable

PAGE_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class Window:
    """Which changes to read: of what table, between which commit timestamps."""

    table: str
    """Its name in the store."""
    since: int
    until: int
    low_watermark: int
    """L of C2; 0 where none is known."""
    key_range: KeyRange = WHOLE_TABLE
    columns: tuple[ColumnSpec, ...] | None = None
    """None: all."""
    with_old: bool = False
    incarnation: str | None = None
    """Which of its name the table is; None: that was not looked at."""
    spans_tables: bool = False
    """Whether an earlier table of the name may have been removed behind `since`."""


class WindowReader:
    """Reads windows at the snapshot that was drawn for them."""

    def __init__(self, reader: SnapshotReader, snapshot: Snapshot) -> None:
        """Read at a snapshot; no window ends above it.

        Raises:
            ConfigError: the store shows one version of a cell alone.
        """
        if not reader.store.capabilities.multi_version_scan:
            raise ConfigError(
                f"{reader.store.url} shows the newest version of a cell alone, so that changes in "
                "between would be missed; open the store through hbase:// or hbase+thrift2://"
            )
        self._reader = reader
        self._snapshot = snapshot

    def scan(self, window: Window) -> Iterator[list[Change]]:
        """Yield the changes of a window, page by page, in no order; a page may have none.

        Raises:
            SnapshotTooOld: some may have been collected, or have gone with an earlier table.
            StorageError: at the end: the table became another one meanwhile.

        Cost: 1 RPC a page of rows that have cells of the window; see `RowFacts.find` for those that
        are not healed.  With old values 1 more a page.  Behind several reads 1 look at the table.
        """
        self.check_horizon(window)
        one_table = self._snapshot.one_table(window.table, window.incarnation)
        for found, rows in self._pages(window, one_table):
            yield self._changes(rows, window, found, one_table)
        one_table.check()
        self.check_horizon(window)

    def _pages(
        self, window: Window, one_table: OneTable
    ) -> Iterator[tuple[list[Change], list[Row]]]:
        """Yield changes that came as such, and rows whose changes are to be found."""
        store = self._reader.store
        key_range, columns = window.key_range, physical_columns(window.columns)
        bounds = window.low_watermark + 1, window.until + 1
        if not isinstance(store, ShapesChanges):
            plain = store.scan(
                window.table,
                key_range,
                columns=columns,
                min_version=bounds[0],
                max_version=bounds[1],
                page_rows=PAGE_ROWS,
            )
            for page in one_table.over(plain):
                yield [], page
            return
        pages = store.scan_changes(
            window.table,
            key_range,
            columns=columns,
            min_version=bounds[0],
            max_version=bounds[1],
            first=encode_long(window.since + 1),
            before=encode_long(window.until + 1),
            page_rows=PAGE_ROWS,
        )
        for shaped in one_table.over(pages):
            found: list[Change] = []
            rows: list[Row] = []
            for _, changes, cells in shaped:
                if cells:
                    rows.append(cells)
                else:
                    found += changes
            yield found, rows

    def row(self, row: bytes, window: Window) -> list[Change]:
        """Return the changes of one row, in no order.

        Raises:
            SnapshotTooOld: some may have been collected.

        Cost: 1 get, and what `scan` says.
        """
        found = self._reader.store.get(
            window.table,
            (row,),
            columns=physical_columns(window.columns),
            min_version=window.low_watermark + 1,
            max_version=window.until + 1,
        )
        changes = self._changes([cells for cells in found if cells], window, [], None)
        self.check_horizon(window)
        return changes

    def check_horizon(self, window: Window) -> None:
        """Raise `SnapshotTooOld` if changes of a window may be gone (C3, C4).  Cost: 1 get."""
        removals = self._reader.removals
        try:
            horizon, raw = self._reader.watermarks.read_horizon_beside(removals.row(window.table))
        except NoSuchTable:
            return  # A store that only Java ever initialised has never been collected by us.
        if window.since + 1 < horizon:
            raise SnapshotTooOld(
                f"changes of table {window.table!r} after {window.since} may be gone: compactions "
                f"have collected old versions up to {horizon}; read the table anew, with "
                "tm.changes(TABLE), and go on from the offset of that.  A longer --retention, or "
                "tm.hold(OFFSET, for_s=...), keeps them for who comes rarely",
                retryable=False,
            )
        if not window.spans_tables:
            refuse_removed(window, removals.told(window.table, raw, window.since))

    # -- one page ------------------------------------------------------------------------------

    def _changes(
        self,
        page: Sequence[Row],
        window: Window,
        found: list[Change],
        one_table: OneTable | None,
    ) -> list[Change]:
        """Add the changes of the rows of a page to those that were found there already."""
        rows: list[SortedRow] = []
        after, upto = encode_long(window.since), encode_long(window.until)
        for cells in page:
            simple = simple_changes(cells, after=after, upto=upto, columns=window.columns)
            if simple is None:
                rows.append(sort_row(cells))
            else:
                found += simple
        if rows:
            reached("changes.not_simple", "I8")
            facts = self._snapshot.facts(window.table)
            facts.find_all(rows)
            for row in rows:
                committed = list(facts.committed(row))
                found += changes_of(
                    committed, since=window.since, until=window.until, columns=window.columns
                )
                facts.seen_all(row, committed)
            facts.heal()
        if not (window.with_old and found):
            return found
        return list(self._with_old(found, window, one_table))

    # -- old values ----------------------------------------------------------------------------

    def _with_old(
        self, changes: Sequence[Change], window: Window, one_table: OneTable | None
    ) -> Iterator[Change]:
        keys = list(dict.fromkeys(change.row for change in changes))
        found = self._reader.store.get(
            window.table,
            keys,
            columns=physical_columns(window.columns),
            max_version=window.until + 1,
        )
        if [] in found and one_table is not None:
            # It had cells a moment ago, and the table may be another one by now.
            one_table.read_again()
        rows = {key: sort_row(cells) for key, cells in zip(keys, found, strict=True)}
        facts = self._snapshot.facts(window.table)
        facts.find_all(list(rows.values()))
        seen: dict[tuple[bytes, Timestamp], dict[bytes, bytes]] = {}
        for change in changes:
            moment = change.row, change.commit_ts
            if moment not in seen:
                seen[moment] = _seen(rows[change.row], change.commit_ts, facts)
            is_family = change.kind is ChangeKind.DELETE_FAMILY
            yield change if is_family else change._replace(old=seen[moment].get(change.column))


def refuse_removed(window: Window, at_ts: Timestamp | None) -> None:
    """Raise `SnapshotTooOld` if a table of the name was removed behind the begin of a window."""
    if at_ts is not None:
        raise SnapshotTooOld(
            f"table {window.table!r} was dropped or truncated at {at_ts}, and what had been "
            f"committed to it after {window.since} went with it; what has its name now is another "
            "table: forget what came of the first, read this one with tm.changes(TABLE), and go on "
            "from the offset of that, in Spark with another checkpoint.  Who wants what there is "
            "of both says tm.changes(..., spans_tables=True), in Spark option('spansTables', "
            "'true')",
            retryable=False,
        )


def _seen(row: SortedRow, commit_ts: Timestamp, facts: RowFacts) -> dict[bytes, bytes]:
    """Return what a snapshot sees of a row right before a commit."""
    fates = {cell: facts.cells.get(cell) for cell in row.data}
    decision = visible_row(
        row, commit_ts, fates, facts.commits, versions_read=None, has_own_cells=False
    )
    assert not isinstance(decision, Unresolved), "all fates are given"
    assert isinstance(decision, VisibleRow), "every version was read"
    return {
        seen.cell.family + b":" + seen.cell.qualifier: seen.cell.value for seen in decision.cells
    }
