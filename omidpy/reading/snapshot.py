"""Reads tables as they were at one start timestamp.

Drives `visibility.visible_row` over pages of a store: reads the newest few versions of each column,
resolves cells without a shadow cell in batches, heals those that had committed, and reads
deeper, step by step, only where the newest few are all too new.  What is seen of a column is the
newest version that counts, so that the first one found ends the search.

It knows nothing of the transaction's buffer, which `transaction.py` lays over what is read here.
What the transaction has flushed already it recognises by the versions.

    I10  a batch is released only once the collection horizon, asked for after the batch arrived, is
         found at or below the snapshot; for `HORIZON_FREE_AGE_S` from its begin, and from each such
         look, a snapshot need not look

Nothing holds up who removes a table, or truncates it, until snapshots are older than that.  What
shows of it is that nothing is seen where there was something; so in a store that is near, where a
look costs no call, one that sees nothing looks whatever its age.

Cells that the transaction itself has flushed can be taken away too: a compaction drops them as soon
as the transaction cannot commit any more.  So one that has flushed looks at the low watermark after
each batch, whatever its age.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, cast, overload

from omidpy.base.cells import FAMILY_MARKER_QUALIFIER, encode_long, shadow_qualifier
from omidpy.base.commit_facts import CommitEntry
from omidpy.base.reach import reached
from omidpy.base.rows.simple import paired, simple_row
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.base.timing.pauses import Seldom
from omidpy.errors import NoSuchTable, SnapshotTooOld
from omidpy.facts.watermarks import HORIZON_FREE_AGE_S, Watermarks
from omidpy.model import (
    FIRST_WORLD_TIMESTAMP,
    TIMESTAMP_STEP,
    Cell,
    ColumnSpec,
    KeyRange,
    Timestamp,
)
from omidpy.oracle.base import Begun
from omidpy.reading.paired_pages import Page, PageOfValues, PairedPages
from omidpy.reading.resolution import CellResolver
from omidpy.reading.row_facts import RowFacts
from omidpy.reading.visibility import (
    SeenRow,
    SortedRow,
    Truncated,
    Unresolved,
    VisibleCell,
    VisibleRow,
    is_nothing,
    sort_row,
    visible_row,
)
from omidpy.storage.base import LONG_READ_S, Row, Store
from omidpy.storage.options import PairsCells, ShapesRows

if TYPE_CHECKING:
    from omidpy.base.telemetry.tracing import Tracing
    from omidpy.facts.tables.plain_versions import PlainVersions
    from omidpy.facts.tables.removed import Removals
    from omidpy.reading.one_table import KnownStates, OneTable

log = logging.getLogger(__name__)

FIRST_VERSIONS: Final = 3
"""Versions of a column in the first read; older ones are fetched where none of these is seen.

One, where the store seeks it and a second read is a call in this process, or where the store cannot
scan more.
"""

VERSIONS_GROWTH: Final = 8
"""How many times more versions the next read asks for."""


class SnapshotReader:
    """What every snapshot of one manager shares: the store, the resolver and the horizon."""

    def __init__(
        self,
        store: Store,
        resolver: CellResolver,
        watermarks: Watermarks,
        clock: Clock,
        *,
        owes: Callable[[Timestamp], bool] = lambda _: False,
        on_healed: Callable[[int], object] = lambda _: None,
        run_soon: Callable[[Callable[[], object]], object] | None = None,
    ) -> None:
        """Join the parts.

        Args:
            store: Where the tables are.
            resolver: Finds out what became of cells without a shadow cell.
            watermarks: Where the collection horizon is read.
            clock: Measures the age of snapshots.
            owes: Whether this process is about to write a transaction's shadow cells anyway, so
                that a reader need not.
            on_healed: Told how many shadow cells a reader has written.
            run_soon: Runs something in another thread, soon or not at all; None: there is none.
        """
        self.store = store
        self.pairing = store if isinstance(store, PairsCells) else None
        self.shaping = store if isinstance(store, ShapesRows) else None
        # Where several versions cost a call a column, most reads do with the newest.
        self.scan_versions = FIRST_VERSIONS if store.capabilities.multi_version_scan else 1
        self.is_remote = store.capabilities.remote
        is_near = self.pairing is not None and not self.is_remote
        self.first_versions = 1 if is_near else self.scan_versions
        self.resolver = resolver
        self.watermarks = watermarks
        self.clock = clock
        self.owes = owes
        self.on_healed = on_healed
        self.run_soon = run_soon
        self.seldom = Seldom(log)
        self.tracing: Tracing | None = None
        self._plain: PlainVersions | None = None
        self._states: KnownStates | None = None
        self._removals: Removals | None = None

    def is_plain(self, version: int) -> bool:
        """Say whether a version is certainly no transaction's, so that there is nothing to forbid.

        An invalidation of it would never be pruned, below the oracle's first timestamp.

        Cost: 1 to 3 gets, the first time that one is asked for.
        """
        if self._plain is None:
            from omidpy.facts.tables.plain_versions import (  # noqa: PLC0415 - few ask
                NO_VERSIONS,
                plain_versions,
            )

            self._plain = plain_versions(self.store) or NO_VERSIONS
        return self._plain.contains(version)

    @property
    def states(self) -> KnownStates:
        """Which tables of their names there are, as was seen lately."""
        if self._states is None:
            from omidpy.reading.one_table import KnownStates  # noqa: PLC0415 - not all scan

            self._states = KnownStates(self.store, self.clock)
        return self._states

    @property
    def removals(self) -> Removals:
        """Which tables were removed, and when."""
        if self._removals is None:
            from omidpy.facts.tables.removed import Removals  # noqa: PLC0415 - few ask

            self._removals = Removals(self.store)
        return self._removals

    def open(self, begun: Begun, *, asked_s: float | None, at: Timestamp | None = None) -> Snapshot:
        """Return the snapshot at a start timestamp, or at an earlier moment.

        Args:
            begun: What the oracle answered.
            asked_s: This clock's monotonic time before the oracle was asked: the answer may have
                been long under way.  None: in another process, so that its age is not known.
            at: Read here instead; then no cell is the reader's own.
        """
        return Snapshot(self, begun, asked_s=asked_s, at=at)


class Snapshot:
    """The committed state below `start_ts`, and the transaction's own cells.

    One that was opened at an earlier moment has no own cells, and always looks at the horizon.

    Attributes:
        start_ts: Where it reads.
        epoch: No transaction that began below it can be decided a commit any more.
        begun: What the oracle answered to its reader.
        has_sent_cells: Whether own cells may lie in the store; set before the first is sent.
        spans_tables: Whether a later table of a name is read for the one that is seen, which is
            gone; otherwise it is refused.
        max_version: The highest version that is read.
        before: `start_ts` as a shadow cell has it: what it shows is committed below this.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        begun: Begun,
        *,
        asked_s: float | None,
        at: Timestamp | None,
    ) -> None:
        self.start_ts = begun.start_ts if at is None else at
        self.epoch = max(begun.epoch, begun.low_watermark)
        self.asked_s = -inf if asked_s is None or at is not None else asked_s
        self._looked_s = self.asked_s
        """When the last look at the horizon began that found it low enough: at first, the begin."""
        self.has_sent_cells = False
        self.spans_tables = False
        self.begun = begun
        self._reader = reader
        self._has_own_cells = at is None
        self.max_version = self.start_ts + (TIMESTAMP_STEP if at is None else 0)
        self.before = encode_long(self.start_ts)

    def read(
        self, table: str, rows: Sequence[bytes], columns: Sequence[ColumnSpec] | None = None
    ) -> list[SeenRow]:
        """Read rows in the order asked for.

        Raises:
            SnapshotTooOld: versions that this snapshot needs may have been collected.
            StorageError: the table was removed while several calls read it.

        Cost: 1 get; 1 or 2 more where a cell has no shadow cell, 1 or few more where the newest
        versions are too new, 1 more for the horizon once the snapshot is older than
        `HORIZON_FREE_AGE_S`.
        """
        if (tracing := self._reader.tracing) is None:
            return self.read_with(table, rows, columns, {})
        with tracing.span("read", table=table, rows=len(rows), start_ts=self.start_ts):
            return self.read_with(table, rows, columns, {})

    def read_with(
        self,
        table: str,
        rows: Sequence[bytes],
        columns: Sequence[ColumnSpec] | None,
        entries: Mapping[Timestamp, CommitEntry],
    ) -> list[SeenRow]:
        """Read rows, with commit entries that were read for this snapshot already."""
        versions = self._reader.first_versions
        may_be_calls = len(rows) > 1 and self._reader.is_remote
        since_s = SystemClock.monotonic_s() if may_be_calls else 0.0
        found = self._reader.store.get(
            table,
            rows,
            columns=physical_columns(columns),
            max_version=self.max_version,
            max_versions=versions,
        )
        if may_be_calls and [] in found and SystemClock.monotonic_s() - since_s > LONG_READ_S:
            # Of several calls, or of one that was made again: the table may be another one by now.
            self._note_vanished(table, None)
        return self._select(table, rows, found, columns, versions_read=versions, entries=entries)

    def history(
        self,
        table: str,
        row: bytes,
        column: tuple[bytes, bytes],
        *,
        limit: int | None,
        has_own_cells: bool = True,
    ) -> list[VisibleCell]:
        """Return what this snapshot sees in a column, then what the one before that commit saw, ...

        It ends at a delete, because no snapshot after it saw what is older.

        Args:
            table: The table.
            row: The row.
            column: Family and qualifier.
            limit: At most so many; None: all that have not been collected.
            has_own_cells: Whether what the transaction itself has sent counts.

        Raises:
            SnapshotTooOld: versions that this snapshot needs may have been collected.

        Cost: 1 get, which reads every version of the column; more as `read`.
        """
        found: list[VisibleCell] | None = None
        is_again = False
        while found is None:
            (cells,) = self._reader.store.get(
                table, (row,), columns=physical_columns((column,)), max_version=self.max_version
            )
            if is_again and not cells:
                self._note_vanished(table, None)
            is_again = True
            found = self._history(
                table, sort_row(cells), column, limit=limit, has_own_cells=has_own_cells
            )
        self.check_horizon(table, sees_nothing=not found)  # behind the last read (I10)
        return found

    def _history(
        self,
        table: str,
        row: SortedRow,
        column: tuple[bytes, bytes],
        *,
        limit: int | None,
        has_own_cells: bool,
    ) -> list[VisibleCell] | None:
        """Decide a row as ever earlier snapshots see it; None if it lost a cell meanwhile."""
        facts = self.facts(table)
        facts.learn(row.commits)
        found: list[VisibleCell] = []
        at, is_own = self.start_ts, has_own_cells and self._has_own_cells
        while limit is None or len(found) < limit:
            decision = visible_row(
                row, at, facts.cells, facts.commits, versions_read=None, has_own_cells=is_own
            )
            if isinstance(decision, Unresolved):
                facts.find(decision.cells)
                if facts.changed_rows:
                    return None
                continue
            assert isinstance(decision, VisibleRow), "every version was read"
            facts.seen(decision)
            seen = [one for one in decision.cells if one.cell[1:3] == column]
            if not seen:
                break
            found += seen
            # Own cells have the snapshot's own timestamp; what others committed before is behind.
            at, is_own = seen[0].commit_ts, False
        facts.heal()
        return found

    def regions(self, table: str) -> list[KeyRange]:
        """Return the regions of a table, as they are now."""
        return self._reader.store.regions(table)

    @overload
    def scan(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None = None,
        *,
        reverse: bool = False,
        page_rows: int = 1000,
        incarnation: str | None = None,
    ) -> Iterator[Page]: ...

    @overload
    def scan(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None = None,
        *,
        reverse: bool = False,
        page_rows: int = 1000,
        incarnation: str | None = None,
        values_do: bool,
    ) -> Iterator[PageOfValues]: ...

    def scan(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None = None,
        *,
        reverse: bool = False,
        page_rows: int = 1000,
        incarnation: str | None = None,
        values_do: bool = False,
    ) -> Iterator[PageOfValues]:
        """Yield pages of (row, what is seen of it), which may be nothing.

        Args:
            table: Its name in the store.
            key_range: The rows.
            columns: Which columns, or whole families; None: all.
            reverse: From the end to the start.
            page_rows: How many rows are read at once, at most.
            incarnation: Which of its name the table is; None: that is not known, and a store that
                tells no states of tables then does not tell that it became another one.
            values_do: Whether a row may also come as its values by column.

        Raises:
            SnapshotTooOld: versions that this snapshot needs may have been collected.
            StorageError: at the end: the table became another one meanwhile.

        Cost: 1 RPC a page, and what `read` says for the page as a whole.  Behind a scan of several
        reads 1 look at the table; see `OneTable`.
        """
        pages = self._scan(
            table,
            key_range,
            columns,
            reverse=reverse,
            page_rows=page_rows,
            incarnation=incarnation,
            values_do=values_do,
        )
        if (tracing := self._reader.tracing) is None:
            yield from pages
            return
        with tracing.apart("read", table=table, start_ts=self.start_ts):
            yield from pages

    def _scan(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        *,
        reverse: bool,
        page_rows: int,
        incarnation: str | None,
        values_do: bool,
    ) -> Iterator[PageOfValues]:
        one_table = self.one_table(table, incarnation)
        if (pairing := self._reader.pairing) is None:
            yield from self.pages(
                table, key_range, columns, one_table, reverse=reverse, page_rows=page_rows
            )
        else:
            paired_pages = PairedPages(
                self, one_table, table, key_range, columns, reverse=reverse, page_rows=page_rows
            )
            shaping = self._reader.shaping if values_do else None
            yield from paired_pages.read(pairing, shaping, values_do=values_do)
        one_table.check()
        # That nothing more was found is an answer too, and rows may have been collected whole.
        self.check_horizon(table, sees_nothing=not one_table.has_shown)

    def one_table(self, table: str, incarnation: str | None) -> OneTable:
        """Return what tells, behind a scan, whether all of it was of one table."""
        from omidpy.reading.one_table import OneTable  # noqa: PLC0415 - not all scan

        return OneTable(self._reader.states, table, incarnation, self.begun)

    def pages(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        one_table: OneTable,
        *,
        reverse: bool,
        page_rows: int,
    ) -> Iterator[Page]:
        """Yield pages as any store gives them, with the newest few versions of each column."""
        versions = self._reader.scan_versions
        pages = self._reader.store.scan(
            table,
            key_range,
            columns=physical_columns(columns),
            max_version=self.max_version,
            max_versions=versions,
            reverse=reverse,
            page_rows=page_rows,
        )
        for page in one_table.over(pages):
            keys = [cells[0].row for cells in page]
            rows = self._select(
                table, keys, page, columns, versions_read=versions, entries={}, one_table=one_table
            )
            one_table.note(rows)
            yield zip(keys, rows, strict=True)

    # -- deciding a batch of rows --------------------------------------------------------------

    def _select(
        self,
        table: str,
        keys: Sequence[bytes],
        found: Sequence[Row],
        columns: Sequence[ColumnSpec] | None,
        *,
        versions_read: int,
        entries: Mapping[Timestamp, CommitEntry],
        one_table: OneTable | None = None,
    ) -> list[SeenRow]:
        rows: list[SeenRow | None] = [simple_row(paired(cells), self.before) for cells in found]
        if None in rows:
            self._select_others(
                table, keys, found, columns, rows, versions_read, entries, one_table
            )
        seen = cast("list[SeenRow]", rows)
        # Behind the last read: a horizon that was raised before it may have taken versions (I10).
        # A scan sees only at its end whether it has seen nothing.
        sees_nothing = one_table is None and any(is_nothing(row) for row in seen)
        self.check_horizon(table, sees_nothing=sees_nothing)
        return seen

    def _select_others(
        self,
        table: str,
        keys: Sequence[bytes],
        found: Sequence[Row],
        columns: Sequence[ColumnSpec] | None,
        rows: list[SeenRow | None],
        versions_read: int,
        entries: Mapping[Timestamp, CommitEntry],
        one_table: OneTable | None,
    ) -> None:
        """Decide the rows that are not simple, and put them in their places.

        Those that must be read again come with more versions each time.  A row is read from its
        newest version again, so that what is decided was there at one moment.
        """
        indexes = [index for index, row in enumerate(rows) if row is None]
        found = [found[index] for index in indexes]
        facts = self.facts(table, entries)
        while True:
            decided, open_rows = self._decide(facts, found, versions_read)
            for position, row in decided.items():
                rows[indexes[position]] = _as_asked(row, columns)
            if not open_rows:
                break
            indexes = [indexes[position] for position in open_rows]
            versions_read *= VERSIONS_GROWTH
            found = self._reader.store.get(
                table,
                [keys[index] for index in indexes],
                columns=physical_columns(columns),
                max_version=self.max_version,
                max_versions=versions_read,
            )
            if [] in found:
                # It had cells a moment ago, and the table may be another one by now.
                self._note_vanished(table, one_table)
        facts.heal(is_scan=one_table is not None)

    def _note_vanished(self, table: str, one_table: OneTable | None) -> None:
        """Make sure that a table was not removed in the middle of a read, now or at its end."""
        if one_table is None:
            self._reader.removals.check(table, self.start_ts)
        else:
            one_table.read_again()

    def _decide(
        self, facts: RowFacts, found: Sequence[Row], versions_read: int
    ) -> tuple[dict[int, SeenRow], list[int]]:
        """Decide rows; return those decided by index, and the indexes of those to read again.

        One needs older versions, another lost a cell since it was read: what that cell had hidden
        may be gone with it.
        """
        results: dict[int, SeenRow] = {}
        open_rows: list[int] = []
        facts.changed_rows.clear()
        waiting: dict[int, SortedRow] = {}
        for index, cells in enumerate(found):
            if (simple := simple_row(paired(cells), self.before)) is not None:
                results[index] = simple
                continue
            waiting[index] = row = sort_row(cells)
            facts.learn(row.commits)
        self._reader.resolver.cache.update(facts.commits)
        while waiting:
            missing: list[Cell] = []
            undecided: dict[int, SortedRow] = {}
            for index, row in waiting.items():
                decision = visible_row(
                    row,
                    self.start_ts,
                    facts.cells,
                    facts.commits,
                    versions_read=versions_read,
                    has_own_cells=self._has_own_cells,
                )
                match decision:
                    case VisibleRow():
                        results[index] = decision
                        facts.seen(decision)
                    case Truncated():
                        open_rows.append(index)
                    case Unresolved(needed):
                        missing.extend(needed)
                        undecided[index] = row
            waiting = undecided
            if missing:
                facts.find(missing)
                changed = [i for i in waiting if found[i][0].row in facts.changed_rows]
                open_rows += changed
                for index in changed:
                    del waiting[index]
        return results, open_rows

    def facts(self, table: str, entries: Mapping[Timestamp, CommitEntry] | None = None) -> RowFacts:
        """Return what finds out about cells of a table for this snapshot.

        Args:
            table: Where the cells are.
            entries: What was looked up in the commit table already.
        """
        return RowFacts(self._reader, table, self._may_invalidate, entries)

    def _may_invalidate(self, start_ts: Timestamp) -> bool:
        """Say whether a transaction can only have committed already, if it is one at all."""
        if start_ts < FIRST_WORLD_TIMESTAMP <= self.epoch and self._reader.is_plain(start_ts):
            return False
        return start_ts < self.epoch

    def check_horizon(self, table: str | None = None, *, sees_nothing: bool = False) -> None:
        """Raise `SnapshotTooOld` if versions of this snapshot may be gone.

        Args:
            table: What was read, which may be a later table of its name than the snapshot sees;
                None: none was.
            sees_nothing: Whether a row of it was read of which nothing is seen, as of every row of
                a later table.

        Cost: 0 or 1 get: where no cells were sent, 1 every `HORIZON_FREE_AGE_S`, and at an earlier
        moment 1 each time.  In a store that is near, 1 where nothing is seen.
        """
        now_s = self._reader.clock.monotonic_s()
        must_look = self.has_sent_cells or (sees_nothing and not self._reader.is_remote)
        if now_s - self._looked_s < HORIZON_FREE_AGE_S and not must_look:
            return
        watermarks, removed = self._reader.watermarks, None
        try:
            if table is None:
                horizon, low_watermark = watermarks.read_horizons()
            else:
                row = self._reader.removals.row(table)
                horizon, low_watermark, removed = watermarks.read_horizons_beside(row)
        except NoSuchTable:
            return  # A store that only Java ever initialised has never been collected by us.
        if table is not None and removed is not None and not self.spans_tables:
            self._check_removed(table, removed)
        if self.start_ts < horizon:
            reached("reader.behind_the_horizon", "I10")
            raise SnapshotTooOld(
                f"the snapshot {self.start_ts} is below the collection horizon {horizon}: versions "
                "it needs may be gone; a compaction with a longer --retention would keep them",
                # A transaction that begins again reads a younger snapshot; time travel does not.
                retryable=self._has_own_cells,
                advice="begin a new transaction" if self._has_own_cells else "",
            )
        if self.has_sent_cells and self.start_ts <= low_watermark:
            raise SnapshotTooOld(
                f"transaction {self.start_ts} began at or below the oracle's low watermark "
                f"{low_watermark}: it can no longer commit, and what it flushed may be gone; make "
                "it shorter, or start tso-server with a longer --max-transaction-age"
            )
        if self._has_own_cells:
            # As at the begin: what could pass it is published behind this look, and nobody acts
            # upon it for the whole grace.
            self._looked_s = now_s

    def _check_removed(self, table: str, removed: bytes) -> None:
        """Refuse a table that was made anew: what this snapshot sees went with the one before."""
        at_ts = self._reader.removals.told(table, removed, self.start_ts)
        if at_ts is not None:
            raise SnapshotTooOld(
                f"table {table!r} was dropped or truncated at {at_ts}, and what the snapshot "
                f"{self.start_ts} sees of it went with it: what has its name now is another table",
                retryable=self._has_own_cells,
                advice="begin a new transaction" if self._has_own_cells else "",
            )


def physical_columns(columns: Sequence[ColumnSpec] | None) -> Sequence[ColumnSpec] | None:
    """Return what must be read to see `columns`: their shadow cells, and the family's markers."""
    if columns is None:
        return None
    for _, qualifier in columns:
        if qualifier is not None:
            break
    else:
        return columns  # families alone, the rule: all of theirs is read
    whole = {family for family, qualifier in columns if qualifier is None}
    wanted: dict[ColumnSpec, None] = {(family, None): None for family in whole}
    for family, qualifier in columns:
        if qualifier is None or family in whole:
            continue
        for name in (qualifier, FAMILY_MARKER_QUALIFIER):
            wanted[family, name] = None
            wanted[family, shadow_qualifier(name)] = None
    return list(wanted)


def _as_asked(row: SeenRow, columns: Sequence[ColumnSpec] | None) -> SeenRow:
    """Leave out what was read beside the columns asked for: a simple row has nothing of it."""
    if columns is None or isinstance(row, list):
        return row
    wanted = frozenset(columns)
    return VisibleRow(
        [seen for seen in row.cells if seen.cell[1:3] in wanted or (seen.cell[1], None) in wanted]
    )
