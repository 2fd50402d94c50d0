"""One range of rows: read, resolved, healed, cleaned, and only then claimed.

The claim says that every cell of the range with base(version) <= L is healed or gone, so its order
is the proof (I6): L was read before the scan began, every cell is seen by the scan, what became of
each is final (committed, or durably invalidated), and every write is acknowledged before the claim.

What a claim says already needs no second look: then a span of versions is read (`spans.py`).

A cell about which nothing can be found out, or a region that does not answer, is an obstacle: then
there is no claim, and the result says why.

Safe to run twice, at once with itself, and to kill anywhere: it puts what is true for ever,
deletes exact versions that no snapshot can see, and a range without a claim is simply scanned
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compactor.obstacles import Doubts, Obstacles, malformed_shadow, undecided_cell
from compactor.pacing import Pacer, page_bytes
from compactor.ranges import range_reading
from compactor.ranges.range_reading import RangeReading
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.ranges.spans import SMALL_CELLS
from compactor.rows.clean import FoundRow, sifted
from compactor.rows.heal import (
    DURABLE_PHASES,
    PHASE_COUNT,
    ExaminedRow,
    RowPlan,
    Scope,
    examine,
    plan_row,
    unresolved,
)
from compactor.rows.invalidations import InvalidationCounter, RehearsedCommitTable
from compactor.rows.long_rows import pass_long_row
from compactor.rows.orphans import confirmed_orphans, orphan_bytes, removing
from compactor.rows.spool import UnkeptRow
from omidpy.base.reach import reached
from omidpy.base.timing.clock import Clock
from omidpy.errors import CorruptCell, NoSuchTable, StorageError
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.sameness import is_same
from omidpy.facts.watermarks import Claim, Watermarks
from omidpy.model import MAX_VERSION, Cell, Timestamp, base
from omidpy.reading.resolution import CellResolver, TableCell
from omidpy.reading.visibility import Resolution
from omidpy.storage.base import Row, RowMutation, Store
from omidpy.storage.options import LongRow, Sifted

PASS_STEPS: Final = (
    "page-read",
    "page-resolved",
    "page-healed",
    "page-garbage-dropped",
    "page-superseded-dropped",
    "page-tops-dropped",
    "page-markers-dropped",
    "page-orphans-dropped",
    "before-claim",
    "claimed",
)
"""Where a pass can be stopped by a test, in order; the page's steps repeat."""

_PHASE_STEPS: Final = PASS_STEPS[2 : 2 + PHASE_COUNT]

OnStep = Callable[[str], None]


OnRead = Callable[[RangeResult], None]
"""Called with what a pass has come to so far, behind each page."""


def ignore_step(name: str) -> None:
    """Do nothing at a step."""


def ignore_read(so_far: RangeResult) -> None:
    """Do nothing behind a page."""


@dataclass(slots=True)
class _Tally:
    rows_read: int = 0
    cells_read: int = 0
    bytes_read: int = 0
    cells_healed: int = 0
    cells_dropped: int = 0
    bytes_dropped: int = 0
    foreign_cells: int = 0
    unseen_cells: int = 0
    rows_sifted: int = 0
    settled: int = MAX_VERSION
    """A row without a version from here on has nothing to drop, at any horizon."""
    collected: int = MAX_VERSION
    """No row has anything to drop at a horizon up to this one."""


class WindowOverError(Exception):
    """The window ended within a long row."""


class RangePass:
    """Carries out one `RangeTask`."""

    def __init__(
        self, store: Store, task: RangeTask, *, clock: Clock, on_step: OnStep = ignore_step
    ) -> None:
        self.store = store
        self.task = task
        self.clock = clock
        self.on_step = on_step
        self.on_read: OnRead = ignore_read
        self.pacer = Pacer(task.pacing, clock)
        self.scope = task.scope()
        self.reading = RangeReading(store, task, self.scope, self.check_window)
        kind = RehearsedCommitTable if task.is_dry_run else InvalidationCounter
        self.commit_table = kind(store, task.commit_table, newest=task.newest)
        self.resolver = CellResolver(store, self.commit_table)
        self.obstacles = Obstacles()
        self._unreadable: dict[Timestamp, str] = {}
        self._doubts = Doubts()
        self._tally = _Tally()

    def run(self) -> RangeResult:
        """Pass over the range and claim it, unless there is an obstacle.

        What cannot be read, reached or understood keeps this range from being claimed, and nothing
        else: all that can be healed is healed, and no error of the store ends the run.

        Cost: 1 scan page, 1 commit table get and 1 get per `PAGE_ROWS` rows, 1 durable write
        for the transactions to invalidate, 1 to 6 writes a page that has something to write, 1
        claim.
        """
        tally = self._tally
        began_s = self.clock.monotonic_s()
        claim = None
        try:
            if self.pacer.is_over():
                return RangeResult(self.task, obstacle=f"{self.task.pacing.over()} before it began")
            for page in self.pages():
                # A pass that has read its last page comes to its claim.
                self.check_window()
                self.on_step("page-read")
                tally.rows_read += len(page)
                for rows in self.read(page):
                    self._pass_page(rows, tally)
                self.on_read(self._so_far())
            if self._doubts:
                self.obstacles.add(Doubts, self._doubts.reason(self.task.table))
            if not self.obstacles:
                claim = self.claim()
        except WindowOverError:
            self.obstacles.add("window", f"{self.task.pacing.over()} before its own end")
        except NoSuchTable:
            return RangeResult(self.task, obstacle="the table was dropped during the scan")
        except StorageError as error:
            reached("compaction.range_unclaimed", "I6")
            self.obstacles.add(error, f"could not be read or written to its end: {error}")
        return replace(
            self._so_far(),
            seconds=self.clock.monotonic_s() - began_s,
            transactions_invalidated=len(self.commit_table.created),
            foreign_cells=tally.foreign_cells,
            unseen_cells=tally.unseen_cells,
            rows_sifted=tally.rows_sifted,
            claim=claim,
            obstacle=self.obstacles.reason(),
            forbidden=frozenset(self.commit_table.created) if self.task.is_dry_run else frozenset(),
        )

    def _so_far(self) -> RangeResult:
        """Return what was read and done up to now."""
        tally = self._tally
        return RangeResult(
            self.task,
            rows_read=tally.rows_read,
            cells_read=tally.cells_read,
            bytes_read=tally.bytes_read,
            cells_healed=tally.cells_healed,
            cells_dropped=tally.cells_dropped,
            bytes_dropped=tally.bytes_dropped,
        )

    def pages(self) -> Iterator[Sequence[FoundRow]]:
        """Read the range, page by page.

        Rows that are too long to be held are passed over here, and are in no page; nor are those of
        which the store says that they are clean.
        """
        for piece in self.reading.pieces():
            if isinstance(piece, Sifted):
                self._take_clean(piece)
            elif isinstance(piece, LongRow):
                self._tally.rows_read += 1
                self.pass_long_row(piece.key)
            else:
                yield piece

    def _take_clean(self, found: Sifted) -> None:
        """Count rows that the store has seen to be clean, and remember what is to be."""
        self.on_step("page-read")
        tally = self._tally
        tally.rows_read += found.rows
        tally.rows_sifted += found.rows
        if not self.scope.sees_whole_rows and found.oldest is not None:
            tally.settled = min(tally.settled, base(found.oldest))
        self._account(rows=found.rows, cells=found.cells, size_bytes=found.size_bytes)
        self.on_read(self._so_far())

    def read(self, page: Sequence[FoundRow]) -> Iterator[Sequence[FoundRow]]:
        """Return what is to be judged of the rows that were found: as found, or each whole."""
        if self.task.span.is_whole or not self.task.span.is_collecting:
            yield page
            return
        self._account_page(page, page_bytes(page))
        for rows in self.reading.whole_rows([cells[0].row for cells in page]):
            if isinstance(rows, LongRow):
                self.pass_long_row(rows.key)
            else:
                yield rows

    def _account_page(self, rows: Sequence[FoundRow], size_bytes: int) -> None:
        self._account(rows=len(rows), cells=sum(map(len, rows)), size_bytes=size_bytes)

    def _account(self, *, rows: int, cells: int, size_bytes: int) -> None:
        self._tally.cells_read += cells
        self._tally.bytes_read += size_bytes
        self.pacer.pause(rows=rows, size_bytes=size_bytes)

    def pass_long_row(self, row: bytes) -> None:
        """Do part by part to a row what is done to others at once."""
        try:
            oldest, later = pass_long_row(self, row, range_reading.PORTION)
        except UnkeptRow as error:
            # What was done to parts of it stays, and the rows around it are healed all the same.
            self.obstacles.add(row, str(error))
            return
        if oldest is not None:
            # One version stands for it where nothing more is looked at.
            cell = Cell(row, b"", b"", oldest, b"")
            plan = RowPlan(row, (), (), (), (), (), (), {}, later=later)
            self._remember([[cell]], [plan], self._tally)

    def check_window(self) -> None:
        """Go on, unless the window is over."""
        if self.pacer.is_over():
            raise WindowOverError

    def parts(self, row: bytes) -> Iterator[Row]:
        """Read a long row, a portion at a time."""
        for cells in self.reading.row_parts(row):
            self.check_window()
            self.on_step("page-read")
            self._account_page([cells], page_bytes([cells]))
            self.on_read(self._so_far())
            yield cells

    def resolve(self, rows: Sequence[ExaminedRow]) -> Mapping[Cell, Timestamp | None]:
        """Find, finally, when the unresolved cells of some rows were committed.

        A transaction at or below L can have committed already or never (I4).  One without a commit
        is invalidated all the same: its cells are about to go, and a commit that a deposed oracle
        has under way must not arrive after them.  Not so a plain cell: it stays.
        """
        table = self.task.table
        cells = [(table, cell) for row in rows for cell in unresolved(row)]
        if not cells:
            return {}
        resolutions = self._resolutions(cells)
        assert all(
            resolution.is_final or not self.may_invalidate(base(cell.version))
            for (_, cell), resolution in resolutions.items()
        ), "what is found at or below L is final"
        found = {cell: resolution.commit_ts for (_, cell), resolution in resolutions.items()}
        doubtful = [cell for cell, commit_ts in found.items() if self._is_doubtful(cell, commit_ts)]
        for cell in doubtful:
            del found[cell]
        if doubtful:
            self._doubts = self._doubts.more(doubtful)
        return found

    def _is_doubtful(self, cell: Cell, commit_ts: Timestamp | None) -> bool:
        """Say whether nothing follows from it that a cell has no proof of a commit.

        Not even from an invalidation: a reader may have planted it when the entry was gone.
        """
        return (
            commit_ts is None
            and base(cell.version) <= self.task.doubtful
            and not self.task.plain.contains(cell.version)
        )

    def _resolutions(self, cells: Sequence[TableCell]) -> dict[TableCell, Resolution]:
        """Resolve cells, but for those of a transaction about which a fact is malformed.

        Nothing is done about such a transaction: its commit is not forbidden, because the fact may
        have been meant to say when it was.

        Cost: as the resolver says; about 2 log2(n) times that for each such one of n transactions.
        """
        try:
            return self.resolver.resolve(cells, may_invalidate=self.may_invalidate)
        except CorruptCell as error:
            transactions = sorted({base(cell.version) for _, cell in cells})
            if len(transactions) == 1:
                self._unreadable[transactions[0]] = str(error)
                return {}
            middle = transactions[len(transactions) // 2]
            low = [one for one in cells if one[1].version < middle]
            high = [one for one in cells if one[1].version >= middle]
            return self._resolutions(low) | self._resolutions(high)

    def may_invalidate(self, start_ts: Timestamp) -> bool:
        """Say whether a transaction can no longer be decided a commit, and was not either."""
        task = self.task
        return task.doubtful < start_ts <= task.low_watermark and not task.plain.contains(start_ts)

    def write(self, mutations: Sequence[RowMutation], *, durable: bool = False) -> None:
        """Write, and return once every row is acknowledged."""
        self.store.write({self.task.table: mutations}, durable=durable)

    def claim(self) -> Claim:
        """Claim the range; everything written before must have been acknowledged (I6)."""
        task = self.task
        settled, collected = self._remembered(self._tally)
        claim = Claim(
            task.table,
            *task.key_range,
            task.low_watermark,
            self.clock.wall_ms(),
            tuple(sorted(task.families)),
            task.run,
            task.incarnation,
            settled,
            collected,
            task.span.passes,
            task.span.is_whole and self._tally.cells_read <= SMALL_CELLS,
        )
        if not self.task.is_dry_run:
            self.on_step("before-claim")
            # Durable, as every heal is by now (see `apply`): the claim outlives a power loss only
            # together with what it rests on.
            Watermarks(ControlTable(self.store)).record_claim(claim)
            self.on_step("claimed")
        return claim

    def _remembered(self, tally: _Tally) -> tuple[int, int]:
        """Return where nothing is left to drop, by versions and by horizons; see `spans.py`."""
        span, end = self.task.span, self.scope.max_version()
        if not span.is_collecting and not span.settled_before():
            return min(tally.settled, span.settled), span.collected
        collected = min(tally.collected, self.task.low_watermark)
        if not span.is_collecting and tally.rows_read:
            # What was found was committed above W, and what it supersedes was not looked at.
            collected = span.collected
        return min(tally.settled, end), collected

    # -- one page ------------------------------------------------------------------------------

    def _pass_page(self, page: Sequence[FoundRow], tally: _Tally) -> None:
        unclean, size_bytes = sifted(page, self.scope)
        self._account_page(page, size_bytes)
        plans = self.settle([examine(cells, self.scope) for cells in unclean], self.scope)
        self._remember(page, plans, tally)
        self.carry_out(plans)

    def settle(self, rows: Sequence[ExaminedRow], scope: Scope) -> list[RowPlan]:
        """Resolve what must be, decide what is to be done, and note what cannot be."""
        resolved = self.resolve(rows)
        self.on_step("page-resolved")
        plans = [plan_row(row, resolved, scope) for row in rows]
        self._tally.unseen_cells += sum(len(plan.unseen) for plan in plans)
        for cell in (cell for plan in plans for cell in plan.undecided):
            start_ts = base(cell.version)
            if self._is_doubtful(cell, None) and start_ts not in self._unreadable:
                # Counted by itself.
                continue
            why = self._unreadable.get(start_ts, "its transaction was not looked up")
            self.obstacles.add(start_ts, undecided_cell(cell, why))
        for row in rows:
            self._tally.foreign_cells += len(row.foreign)
            for cell in row.malformed:
                self.obstacles.add(cell[:4], malformed_shadow(cell))
        return plans

    def carry_out(self, plans: Sequence[RowPlan]) -> None:
        """Do what was decided about some rows, and return once it is acknowledged."""
        tally = self._tally
        plans = [plan for plan in plans if not plan.is_empty()]
        orphans = confirmed_orphans(
            self.store, self.task.table, plans, max_version=self.scope.max_version()
        )
        if plans and not self.task.is_dry_run:
            # Before it is healed, too: of a plain table that took the name, shadow cells would make
            # one that holds the horizon.
            self.check_state()
        tally.cells_healed += sum(len(plan.heals) for plan in plans)
        tally.cells_dropped += sum(plan.dropped_count() for plan in plans)
        tally.cells_dropped += sum(map(len, orphans.values()))
        tally.bytes_dropped += sum(plan.dropped_bytes() for plan in plans)
        tally.bytes_dropped += orphan_bytes(orphans)
        if self.task.is_dry_run:
            return
        self.apply(plans)
        if orphans:
            self.write(removing(orphans))
            self.on_step("page-orphans-dropped")

    def check_state(self) -> None:
        """Make sure, before anything is written, that this is the table that was listed.

        A pass may stand still here for hours, while its table is dropped and another is made of the
        name, or it is restored: what is in that one was never judged.

        Raises:
            StorageError: it may be another one.

        Cost: 1 get, or 1 look at the catalogue where no single table is restored.
        """
        if not is_same(self.store, self.task.table, self.task.incarnation):
            reached("compaction.table_changed", "I6")
            raise StorageError(
                "the table was made anew, disabled and enabled, or restored, during the pass; the "
                "next run reads it again"
            )

    def _remember(self, page: Sequence[FoundRow], plans: Sequence[RowPlan], tally: _Tally) -> None:
        """Note which rows may have something to drop later, and from which horizon on."""
        if not self.scope.sees_whole_rows:
            # By the oldest version: newer ones may be garbage, which this very pass drops.
            for cells in page:
                tally.settled = min(tally.settled, base(min(cell[3] for cell in cells)))
            return
        for plan in plans:
            if plan.later is not None:
                tally.settled = min(tally.settled, base(plan.later.version))
                tally.collected = min(tally.collected, plan.later.commit_ts)

    def apply(self, plans: Sequence[RowPlan]) -> None:
        """Write what the plans say, phase by phase."""
        # The claim that follows is durable.  Where one log holds everything, that makes the heals
        # before it durable too; on HBase each server has a log of its own.
        has_many_logs = not self.store.capabilities.guarded_batches
        phases = [plan.phases() for plan in plans]
        for phase, step in enumerate(_PHASE_STEPS):
            mutations = [one for plan in phases if (one := plan[phase]) is not None]
            if mutations:
                self.write(mutations, durable=phase < DURABLE_PHASES and has_many_logs)
                self.on_step(step)
