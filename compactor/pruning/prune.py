"""Forget what no cell needs any more: commits and invalidations at or below the horizons.

Called once the prune horizon has been raised durably (I7), and every place that no pass goes over
was asked (`unvisited.py`).  Commits go where every cell of their transaction has its shadow cell;
invalidations wait longer, because the moment one goes, a commit that was under way all the time
would stand alone (I5).

One task is one slice of the commit table: its entries are read page by page, and of each page
everything that may go is removed in one batch of exact deletes.  They carry no condition, because
what lets an entry go is its transaction's number alone, which is settled before the slice is read:

    a commit at or below the horizon is never decided anew (L1 of `docs/explanation/pruning.md`), so
    that it says what it said or is gone, and every cell of it has its proof

    an invalidation that takes its place waits for a horizon of its own: of a row that was read as
    a commit, the column of the commit goes and nothing else

    a commit that takes the place of an old invalidation was forbidden: it goes with it, in the
    same row mutation

So a task may run twice, at once with itself, and be killed anywhere.  It deletes only while its run
has the lease (`run/lease.py`), since the run that has taken that over may have found a place where
a cell lies by now.  Rows below the oracle's first timestamp belong to someone else, and Omid's
low watermark, whose row key has another length, is never seen as an entry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

from compactor.pacing import ENTRY_BYTES, UNPACED, Pacer, Pacing
from compactor.ranges.ahead import read_ahead
from compactor.ranges.range_pass import OnStep, ignore_step
from omidpy.base.cells import commit_row
from omidpy.base.commit_facts import INVALID
from omidpy.base.timing.clock import Clock
from omidpy.errors import ReservationLost, StorageError
from omidpy.facts.commit_table import CommitTable, EntryRow
from omidpy.model import MAX_VERSION, KeyRange, Timestamp
from omidpy.storage.base import Condition, Store

MOST_NAMED: Final = 20
"""Malformed entries that are named; more are only counted."""

MEND_ENTRY: Final = (
    "it is kept, and so are its transaction's cells without a shadow cell: `omidpy fsck --repair` "
    "keeps a copy and mends it, or says what only you can know"
)

PAGE_ENTRIES: Final = 1000
"""Entries read and judged together, and removed by one write."""

TASK_ENTRIES: Final = 500_000
"""Entries that a task reads before it leaves the rest of its slice to others."""

PRUNE_STEPS: Final = ("page-judged", "page-pruned")


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """Which entries a run may delete: bounds of their start timestamps."""

    first_timestamp: Timestamp
    horizon: Timestamp
    """Commits at or below it."""
    invalidation_horizon: Timestamp
    """Invalidations at or below it, and at or below `horizon`."""
    asked: Sequence[range] = ()
    """Start timestamps of which no cell lies where no pass goes.  Entries of others stay, because
    this run has not asked about them."""

    def may_prune(self, row: EntryRow) -> bool:
        """Say whether an entry is no longer needed."""
        if self.is_old_enough(row):
            for stretch in self.asked:
                if row.start_ts in stretch:
                    return True
        return False

    def is_old_enough(self, row: EntryRow) -> bool:
        """Say whether an entry is no longer needed as far as the horizons go."""
        if not self.first_timestamp <= row.start_ts <= self.horizon:
            return False
        if row.entry is INVALID:
            return row.start_ts <= self.invalidation_horizon
        return row.entry is not None


@dataclass(frozen=True, slots=True)
class PruneTask:
    """A slice of the commit table, and what of it may go; all that a worker needs to know."""

    rows: KeyRange
    """Within one bucket."""
    limits: PruneLimits
    commit_table: str
    newest: int = MAX_VERSION
    """No commit timestamp can be above it."""
    is_dry_run: bool = False
    most_entries: int = TASK_ENTRIES
    pacing: Pacing = UNPACED
    """How fast it may be read, and until when."""
    lease: Condition | None = None
    """What must hold for anything to go; None: no other run prunes this table."""


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What became of a slice."""

    task: PruneTask
    read: int = 0
    """Rows that were read."""
    entries: int = 0
    """Commits that went."""
    invalidations: int = 0
    rest: KeyRange | None = None
    """Rows that this task did not come to; None if it did all, or met an obstacle."""
    malformed: Mapping[Timestamp, str] = field(default_factory=dict)
    """Why entries say nothing, for some of them."""
    malformed_count: int = 0
    kept: KeyRange | None = None
    """Rows that could not be read or removed."""
    obstacle: str = ""
    """Why they could not."""
    is_over: bool = False
    """The run's window ended before it came to the rest."""
    is_deposed: bool = False
    """Whether another run has the lease by now, so that nothing more may go."""


class SlicePruner:
    """Carries out one `PruneTask`."""

    def __init__(self, store: Store, task: PruneTask, *, on_step: OnStep = ignore_step) -> None:
        self.commit_table = CommitTable(store, task.commit_table, newest=task.newest)
        self.task = task
        self.is_remote = store.capabilities.remote
        self.on_step = on_step
        self.pacer = Pacer(task.pacing)

    def run(self) -> PruneResult:
        """Remove what the limits allow.

        What cannot be read is left: a malformed entry, or the rest of the slice where a region does
        not answer.

        Cost: 1 read and at most 1 write for `PAGE_ENTRIES` entries; before the write 1 get where
        the store cannot look at the lease in it.
        """
        task = self.task
        next_row = task.rows.start
        read = entries = invalidations = malformed_count = 0
        malformed: dict[Timestamp, str] = {}
        rest: KeyRange | None = None
        kept: KeyRange | None = None
        obstacle = ""
        is_over = False
        page_rows = task.pacing.page_rows(PAGE_ENTRIES)
        is_deposed = False
        try:
            with self._pages(page_rows) as pages:
                for page in pages:
                    # Before the page is judged: the rest begins with it, since none of it went.
                    if self.pacer.is_over():
                        rest, is_over = KeyRange(next_row, task.rows.end), True
                        break
                    going = [row for row in page if task.limits.may_prune(row)]
                    self.on_step("page-judged")
                    if going and not task.is_dry_run:
                        # The lease is looked at in this write, or right before it: a driver that
                        # slept since the page was read, and was deposed, removes nothing more.
                        self.remove(going)
                        self.on_step("page-pruned")
                    of_invalidations = sum(row.entry is INVALID for row in going)
                    invalidations += of_invalidations
                    entries += len(going) - of_invalidations
                    for row in page:
                        if row.complaint:
                            malformed_count += 1
                            if malformed_count <= MOST_NAMED:
                                malformed[row.start_ts] = row.complaint
                    read += len(page)
                    # Behind the removal: where that fails, the next run goes over this page again.
                    next_row = commit_row(page[-1].start_ts) + b"\x00"
                    self.pacer.pause(rows=len(page), size_bytes=len(page) * ENTRY_BYTES)
                    if read >= task.most_entries:
                        rest = KeyRange(next_row, task.rows.end)
                        break
        except StorageError as error:
            # A removal without an answer may have been made: then the next run misses nothing.
            kept, obstacle = KeyRange(next_row, task.rows.end), str(error)
        except ReservationLost:
            # The pages before this one went while the lease was this run's, so they count (I7).
            is_deposed = True
        return PruneResult(
            task,
            read,
            entries,
            invalidations,
            rest,
            malformed,
            malformed_count,
            kept,
            obstacle,
            is_over,
            is_deposed,
        )

    def _pages(self, page_rows: int) -> AbstractContextManager[Iterator[list[EntryRow]]]:
        """Give the slice's entries, page by page.

        Behind a network the next page is read while one goes.  Nothing rests on how long ago an
        entry was read: what lets it go is settled before that.
        """
        pages = self.commit_table.scan_bucket(self.task.rows, page_rows=page_rows)
        return read_ahead(pages) if self.is_remote else nullcontext(pages)

    def remove(self, rows: Sequence[EntryRow]) -> None:
        """Remove entries that may go.

        Raises:
            ReservationLost: none of them may any more.
        """
        if not self.commit_table.forget(rows, only_if=self.task.lease):
            raise ReservationLost("another run has taken the lease over")


class SlicesHere:
    """Carries out tasks in this thread, one after another: on one file they would queue anyway."""

    workers = 1

    def __init__(
        self,
        store: Store,
        *,
        on_step: OnStep = ignore_step,
        pruner_type: type[SlicePruner] = SlicePruner,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._store = store
        self._on_step = on_step
        self._pruner_type = pruner_type

    def run(self, tasks: Sequence[PruneTask]) -> list[PruneResult]:
        """Carry out every task."""
        pacer = Pacer(tasks[0].pacing if tasks else UNPACED, self._clock, self._sleep)
        results = []
        for task in tasks:
            pruner = self._pruner_type(self._store, task, on_step=self._on_step)
            pruner.pacer = pacer
            results.append(pruner.run())
        return results


def malformed_rows(complaints: Mapping[Timestamp, str]) -> Iterator[tuple[KeyRange, str]]:
    """Yield the row of each malformed entry, and what to do about it."""
    for start_ts, complaint in sorted(complaints.items()):
        key = commit_row(start_ts)
        yield KeyRange(key, key + b"\x00"), f"{complaint}; {MEND_ENTRY}"
