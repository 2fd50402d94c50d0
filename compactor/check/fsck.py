"""Is what the store holds what it should hold?  Looks at every cell and entry, and may mend some.

What is judged lies at or below L, the low watermark that was read first: of those transactions
every cell was there before (L2 of `docs/explanation/pruning.md`), and none of them comes to commit.
The judgement is compaction's own (`rows/heal.py`).  Nothing is forbidden, so that a look changes
nothing.

Others may be at work all the same: a client that removes what it could not commit, one that is
about to write its last shadow cell, a compaction.  So whatever looks wrong is looked at again,
after a while that such a one needs (`settle_s`), and only what is wrong both times is a finding.

An entry is called superfluous only if every cell of ours was read, and no cell of its transaction
lies where no run has read (`pruning/unvisited.py`).  Entries are taken in windows of start
timestamps, in order, each with the cells of its versions, and rows in pieces (`rows/pieces.py`), so
that memory is bounded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, TypeVar

from compactor.check.findings import CheckReport, Finding, FindingTally, Kind, of_kinds
from compactor.check.grace import EntryGrace
from compactor.check.judging import (
    Judgement,
    Seen,
    SeenEntry,
    commit_ts_of,
    commits_of,
    examined,
    shadow_of,
)
from compactor.check.malformed import Assumption, Malformed
from compactor.check.repair import Repair, Suspicion
from compactor.check.singletons import Singletons
from compactor.horizon import claims_by_table, coverage, relevant
from compactor.obstacles import is_hold, malformed_hold
from compactor.pruning.timestamps import NOBODY, recorded_ceiling
from compactor.pruning.unvisited import ask, stretches
from compactor.rows.heal import Scope, unresolved
from compactor.rows.pieces import Piece, get_pieces, scan_pieces
from compactor.tables.ownership import TableStanding, owned, survey
from omidpy.base.cells import commit_row
from omidpy.base.commit_facts import INVALID
from omidpy.base.schema.phoenix import misadoption
from omidpy.base.tables import CONTROL_TABLE
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.errors import NoSuchTable, StorageError, UsageError
from omidpy.facts.commit_table import (
    COMMIT_TABLE,
    FIRST_TIMESTAMP_FACT,
    CommitTable,
    EntryRow,
    buckets,
    read_low_watermark,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.format import check_format
from omidpy.facts.tables.plain_versions import presumed_plain
from omidpy.facts.watermarks import Watermarks
from omidpy.model import (
    MAX_VERSION,
    TIMESTAMP_STEP,
    KeyRange,
    Timestamp,
    base,
)
from omidpy.storage.base import Store
from omidpy.storage.options import Wanted

T = TypeVar("T")

PAGE_ROWS: Final = 500
WINDOW_ENTRIES: Final = 1_000_000
"""Entries that are held in memory at once, about 200 MB of them."""
MOST_SUSPECTS: Final = 10_000
"""Rows that look wrong, about, at which these are looked at again before it goes on."""
MOST_SUSPECT_CELLS: Final = 200_000
"""Cells of such rows."""
AGAIN_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What a check is asked to do."""

    settle_s: float = 10.0
    """How long those at work may take to finish what looks wrong."""
    is_repair: bool = False
    assume: Assumption | None = None
    """What is taken for true of malformed cells of which nothing else tells; None: nothing is."""
    grace_s: float | None = None
    """How long an entry may wait; None is what a compaction takes by itself."""
    stated: Mapping[str, int] = field(default_factory=dict)
    """What an operator says of single facts that cannot be read (`facts.STATED`)."""
    most_named: int = 100
    """Findings of each kind that are named."""
    tables: frozenset[str] | None = None
    """Look at these alone; then no entry is called superfluous.  None is every table of ours."""
    commit_table: str = COMMIT_TABLE


class Check:
    """One check of a store.  Each step is a method, so that a test can break one."""

    def __init__(
        self,
        store: Store,
        options: CheckOptions,
        *,
        sleep: Callable[[float], None],
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.store = store
        self.options = options
        self.sleep = sleep
        self.control = ControlTable(store)
        self.watermarks = Watermarks(self.control)
        self.tally = FindingTally(options.most_named)
        self.seen = Seen()
        self.notes: list[str] = []
        self.unread: list[str] = []
        """Why something that was to be judged was not."""
        self.has_read_all = options.tables is None
        self.low_watermark = Timestamp(0)

    def run(self) -> CheckReport:
        """Look at everything, look again at what seems wrong, and mend it if that was asked for.

        Raises:
            ConfigError: the oracle does not record its timestamps, so that nothing can be judged;
                or the store's facts are of a newer form.
            UsageError: the options name a table that is not ours.

        Cost: reads every version of every table of ours up to L, and the commit table; 1 commit
        table get for a page with unhealed cells; 1 get and 1 commit table get for 100 suspects.
        """
        check_format(self.store)
        if not self.check_singletons():
            return self.report()
        # In this order: L is at or above everything that was relied on before.
        claims = self.watermarks.claims()
        highest = max([0, *(claim.watermark for claim in claims), self.watermarks.prune_horizon()])
        self.low_watermark = self.read_low_watermark()
        self.commit_table = self._commit_table()
        if self.low_watermark < highest:
            self.add_regression(highest)
        standings = survey(self.store, self.options.commit_table)
        self.add_misadopted()
        tables = owned(standings)
        self.add_hidden(standings)
        known = tables.keys() | {one.name for one in standings if one.is_hidden}
        if unknown := sorted((self.options.tables or frozenset()) - known):
            raise UsageError(f"{', '.join(unknown)} is no table of ours in {self.store.url}")
        whole, _ = relevant(claims, tables)
        self.grace = EntryGrace(
            self.control, whole, tables, clock=self.clock, grace_s=self.options.grace_s
        )
        self.judgement = Judgement(
            {table: coverage(of_table) for table, of_table in claims_by_table(whole).items()},
            {one.name: one.doubtful for one in standings},
            self.prune_horizon,
        )
        self.listed = {name: wanted.incarnation for name, wanted in tables.items()}
        self.families = {
            table: wanted.families
            for table, wanted in tables.items()
            if self.options.tables is None or table in self.options.tables
        }
        for window, entries in self.windows():
            for table, names in self.families.items():
                self.read_table(table, self.scope(names), window, entries)
            self.judge_entries(entries)
            if self.seen.leaked:
                self.ask_elsewhere(standings)
            self.settle()
        self.check_facts(self.repair())
        return self.report()

    def report(self) -> CheckReport:
        """Return what was found so far."""
        return CheckReport(
            findings=self.tally.findings(),
            counts=of_kinds(self.tally.counts),
            repaired=of_kinds(self.tally.repaired),
            low_watermark=self.low_watermark,
            rows_read=self.seen.rows_read,
            cells_read=self.seen.cells_read,
            entries_read=self.seen.entries_read,
            invalidations=self.seen.invalidations,
            notes=self.notes,
        )

    def check_singletons(self) -> bool:
        """Look at the facts that the store has once, before anything rests on them.

        Returns:
            Whether the cells can be judged by them.
        """
        singletons = Singletons(self.store, clock=self.clock, stated=self.options.stated)
        missing = []
        for fact, cell, bad in singletons.look():
            found: Finding | None = bad
            if self.options.is_repair:
                found = singletons.mend(fact, cell, bad)
            if found is not None:
                self.tally.add([found])
            if fact.is_needed and (found is None or not found.repaired):
                missing.append(fact.name)
        if not missing:
            return True
        why = (
            "cells, entries and claims were not judged, since that cannot be done without the "
            f"facts that cannot be read: {', '.join(missing)}"
        )
        self.notes.append(why)
        self.unread.append(why)
        self.watermarks.claims()
        self.check_facts(None)
        return False

    def read_low_watermark(self) -> Timestamp:
        """Return L, below which everything is judged."""
        return read_low_watermark(self.store)

    def _commit_table(self) -> CommitTable:
        name = self.options.commit_table
        # After L: what was committed at or below it was issued before.
        ceiling = recorded_ceiling(
            self.store,
            CommitTable(self.store, name),
            low_watermark=self.low_watermark,
            asked=NOBODY,
        )
        self.newest = MAX_VERSION if ceiling is None else ceiling + TIMESTAMP_STEP - 1
        self.first_timestamp = self.control.read_number(FIRST_TIMESTAMP_FACT) or Timestamp(0)
        self.plain = presumed_plain(self.store, self.low_watermark)
        self.prune_horizon = self.watermarks.prune_horizon()
        return CommitTable(self.store, name, newest=self.newest)

    def scope(self, families: frozenset[bytes]) -> Scope:
        """Return which cells are judged; none is old enough to be dropped."""
        return Scope(families, self.low_watermark, self.first_timestamp, 0, self.plain, self.newest)

    # -- the first look ------------------------------------------------------------------------

    def windows(self) -> Iterator[tuple[range, dict[Timestamp, SeenEntry]]]:
        """Yield versions, and the commits whose cells have these versions, up to L."""
        rows = self.entries()
        start = 0
        end_of_all = base(self.low_watermark) + TIMESTAMP_STEP
        while True:
            entries = {row.start_ts: SeenEntry() for row in islice(rows, WINDOW_ENTRIES)}
            is_last = len(entries) < WINDOW_ENTRIES
            end = end_of_all if is_last else next(reversed(entries)) + TIMESTAMP_STEP
            yield range(start, end), entries
            if is_last:
                return
            start = end

    def entries(self) -> Iterator[EntryRow]:
        """Yield the commits at or below L in order; count invalidations, note what is malformed."""
        parts = [self._bucket(bucket) for bucket in buckets(self.low_watermark + 1)]
        for row in heapq.merge(*parts, key=lambda row: row.start_ts):
            if row.complaint:
                self.seen.malformed_entries.append(
                    Finding(
                        Kind.MALFORMED_ENTRY,
                        self.options.commit_table,
                        commit_row(row.start_ts).hex(),
                        start_ts=row.start_ts,
                        detail=row.complaint,
                    )
                )
                continue
            self.seen.entries_read += 1
            if row.entry is INVALID:
                self.seen.invalidations += 1
            elif row.start_ts >= self.first_timestamp:
                yield row

    def _bucket(self, bucket: KeyRange) -> Iterator[EntryRow]:
        try:
            yield from chain.from_iterable(self.commit_table.scan_bucket(bucket))
        except StorageError as error:
            self.add_unreadable(self.options.commit_table, error)

    def read_table(
        self, table: str, scope: Scope, window: range, entries: Mapping[Timestamp, SeenEntry]
    ) -> None:
        """Read the cells of some versions of a table."""
        try:
            wanted = Wanted(tuple(sorted(scope.families)), window.start, window.stop)
            for page in scan_pieces(
                self.store, table, wanted, page_rows=PAGE_ROWS, commits_of=commits_of(scope)
            ):
                self.seen.rows_read += sum(piece.is_first for piece in page)
                self.seen.cells_read += sum(len(piece.cells) for piece in page)
                self.read_page(table, page, scope, entries)
        except NoSuchTable:
            # Dropped since it was listed, with all its cells.
            return
        except StorageError as error:
            self.add_unreadable(table, error)

    def read_page(
        self,
        table: str,
        page: Sequence[Piece],
        scope: Scope,
        entries: Mapping[Timestamp, SeenEntry],
    ) -> None:
        """Note what looks wrong in some rows, and which entries they need."""
        for piece in page:
            for cell in piece.cells:
                entry = entries.get(base(cell.version))
                if entry is not None:
                    entry.has_cells = True
        for row, wrong in self.judge(table, page, scope):
            for one in wrong:
                entry = entries.get(base(one.cell.version))
                if entry is not None and one.finding.kind is not Kind.ORPHAN_SHADOW:
                    entry.is_needed = True
            if wrong:
                cells_of_row = self.seen.suspects.setdefault((table, row), set())
                self.seen.suspect_cells -= len(cells_of_row)
                cells_of_row.update(one.cell[1:4] for one in wrong)
                self.seen.suspect_cells += len(cells_of_row)
        if (
            len(self.seen.suspects) >= MOST_SUSPECTS
            or self.seen.suspect_cells >= MOST_SUSPECT_CELLS
        ):
            self.settle()

    def judge(
        self, table: str, page: Sequence[Piece], scope: Scope
    ) -> Iterator[tuple[bytes, list[Suspicion]]]:
        """Say what looks wrong in some rows.  Cost: 1 commit table get where cells are unhealed."""
        rows = [examined(piece, scope) for piece in page]
        asked = {Timestamp(base(cell.version)) for row in rows for cell in unresolved(row)}
        looked_up = self.commit_table.look_up(asked) if asked else {}
        for row in rows:
            yield row.row, list(self.judgement.wrong_in(table, row, scope, looked_up))

    def judge_entries(self, entries: Mapping[Timestamp, SeenEntry]) -> None:
        """Note the entries that no cell needs."""
        for start_ts, entry in entries.items():
            if entry.is_needed or not self.has_read_all:
                continue
            kind = Kind.LEAKED_ENTRY if entry.has_cells else Kind.ENTRY_WITHOUT_CELLS
            self.seen.leaked[start_ts] = kind

    def ask_elsewhere(self, standings: Sequence[TableStanding]) -> None:
        """Call no entry superfluous while a cell of its transaction may lie unread."""
        refusals = ask(self.store, standings, stretches(self.seen.leaked))
        if not self.has_read_all or refusals:
            self.seen.leaked.clear()
        notes = [
            f"which entries are superfluous was not judged: table {one.table} is {one.reason}"
            for one in refusals
        ]
        self.notes += [note for note in notes if note not in self.notes]

    # -- the second look -----------------------------------------------------------------------

    def settle(self) -> None:
        """Wait for those at work, and then look again at what looks wrong up to here."""
        seen = self.seen
        if (seen.suspects or seen.leaked) and self.options.settle_s:
            self.sleep(self.options.settle_s)
        self.look_again()
        seen.suspects.clear()
        seen.suspect_cells = 0
        seen.leaked.clear()
        seen.malformed_entries.clear()

    def look_again(self) -> None:
        """Keep what is wrong still, and mend what can be mended if that was asked for."""
        repair = self.repair()
        for bad in self.seen.malformed_entries:
            self.tally.add((bad,) if repair is None else repair.mend_entry(bad))
        by_table: dict[str, list[bytes]] = {}
        for table, row in self.seen.suspects:
            by_table.setdefault(table, []).append(row)
        for table, rows in by_table.items():
            try:
                for some in _parts(rows):
                    wrong = self.still_wrong(table, some)
                    if repair is None:
                        self.tally.add(one.finding for one in wrong)
                    else:
                        self.tally.add(repair.mend(table, wrong))
            except NoSuchTable:
                continue
            except StorageError as error:
                self.add_unreadable(table, error)
        for some_entries in _parts(list(self.seen.leaked)):
            for start_ts, found in self.commit_table.look_up(some_entries).items():
                if commit_ts_of(found) is not None:
                    key, kind = commit_row(start_ts).hex(), self.seen.leaked[start_ts]
                    if self.grace.is_waiting(start_ts):
                        kind = Kind.WAITING_ENTRY
                    finding = Finding(kind, self.options.commit_table, key, start_ts=start_ts)
                    self.tally.add([finding])

    def repair(self) -> Repair | None:
        """Return what mends the store; None if that was not asked for."""
        if not self.options.is_repair:
            return None
        malformed = Malformed(
            self.store,
            self.commit_table,
            newest=self.newest,
            plain=self.plain,
            listed=self.listed,
            assume=self.options.assume,
            now_ms=self.clock.wall_ms,
        )
        return Repair(self.store, malformed, listed=self.listed)

    def still_wrong(self, table: str, rows: Sequence[bytes]) -> list[Suspicion]:
        """Return what is wrong with rows in the same places as before."""
        scope = self.scope(self.families[table])
        wrong = [
            one
            for page in self._read_afresh(table, rows, scope)
            for row, of_row in self.judge(table, page, scope)
            for one in of_row
            if one.cell[1:4] in self.seen.suspects[table, row]
        ]
        unproven = [one.cell for one in wrong if one.finding.kind in _WITHOUT_COMMIT]
        if not unproven:
            return wrong
        # A client writes the shadow cell and then removes its entry; both may have come between the
        # row, as read, and the look for its entry.
        rows = list(dict.fromkeys(cell.row for cell in unproven))
        asked = {place for cell in unproven for place in (cell[:4], shadow_of(cell))}
        present = {
            cell[:4]
            for page in self._read_afresh(table, rows, scope)
            for piece in page
            for cell in piece.cells
            if cell[:4] in asked
        }
        return [
            one
            for one in wrong
            if one.finding.kind not in _WITHOUT_COMMIT
            or (one.cell[:4] in present and shadow_of(one.cell) not in present)
        ]

    def _read_afresh(
        self, table: str, rows: Sequence[bytes], scope: Scope
    ) -> Iterator[Sequence[Piece]]:
        wanted = Wanted(tuple(sorted(scope.families)), max_version=scope.max_version())
        return get_pieces(self.store, table, rows, wanted, commits_of=commits_of(scope))

    # -- what is not a cell --------------------------------------------------------------------

    def check_facts(self, repair: Repair | None) -> None:
        """Note facts of ours that cannot be read."""
        self.watermarks.stamps()
        self.watermarks.holds(self.watermarks.ages(self.clock))  # which reads the samples, too
        for row, complaint in sorted(self.watermarks.malformed.items()):
            detail = malformed_hold(row, complaint) if is_hold(row) else complaint
            bad = Finding(Kind.MALFORMED_FACT, CONTROL_TABLE, row.hex(), detail=detail)
            self.tally.add((bad,) if repair is None else repair.mend_fact(bad))

    def add_regression(self, highest: int) -> None:
        """Note that the oracle has lost its state."""
        detail = (
            f"the low watermark is {self.low_watermark}, below {highest}, which a compaction relied"
            " on: the oracle has lost its state, or the store was restored in part"
        )
        self.tally.add([Finding(Kind.WATERMARK_REGRESSED, CONTROL_TABLE, detail=detail)])

    def add_misadopted(self) -> None:
        """Note tables of Phoenix's that were taken for ours in a way that loses updates."""
        for schema in self.store.tables():
            if (complaint := misadoption(schema)) is not None:
                detail = complaint.removeprefix(f"table {schema.name} ")
                self.tally.add([Finding(Kind.MISADOPTED, schema.name, detail=detail)])

    def add_hidden(self, standings: Sequence[TableStanding]) -> None:
        """Note tables that this user may not look at, which may be ours: they were not read."""
        for one in standings:
            if one.is_hidden and one.name in (self.options.tables or (one.name,)):
                self.add_unreadable(one.name, StorageError(one.reason))

    def add_unreadable(self, table: str, error: StorageError) -> None:
        """Note that not everything was read."""
        self.has_read_all = False
        self.unread.append(f"{table} could not be read as a whole: {error}")
        self.tally.add([Finding(Kind.UNREADABLE, table, detail=str(error))])


_WITHOUT_COMMIT: Final = (Kind.UNCOMMITTED, Kind.UNPROVEN)


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), AGAIN_AT_ONCE):
        yield items[first : first + AGAIN_AT_ONCE]
