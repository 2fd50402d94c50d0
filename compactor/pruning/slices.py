"""Which part of the commit table is it about, and who goes through it?  Ends first, then slices.

Before anything goes, only the least and the greatest transaction about to be forgotten must be
known, so that places that no pass goes over can be asked about them.  A bucket is in order, so
these are found from its two ends, however many entries lie between.

Then the table is pruned in slices: parts of a bucket, each a task of its own.  A task that has read
enough leaves the rest of its slice, which is cut up for the next round.  So nothing needs to be
known of how entries are spread: the next round begins where they are.  What is left between two
rounds is all that a successor needs to go on.

This module does not know who executes tasks; see `run/environment.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final, Protocol

from compactor.horizon import HOLE
from compactor.pruning.prune import (
    MEND_ENTRY,
    MOST_NAMED,
    PruneLimits,
    PruneResult,
    PruneTask,
    malformed_rows,
)
from compactor.ranges.progress import Progress
from compactor.report import Laggard
from omidpy.base.cells import LONG_BYTES
from omidpy.base.reach import reached
from omidpy.errors import ReservationLost, StorageError
from omidpy.facts.commit_table import CommitTable, EntryRow, buckets
from omidpy.model import FIRST_WORLD_TIMESTAMP, MAX_VERSION, TIMESTAMP_STEP, KeyRange, Timestamp

SEARCH_ROWS: Final = 100
"""Rows read at once where an end is looked for; it is nearly always the first."""

SEARCHES_AT_ONCE: Final = 8
"""Buckets that are searched for their ends at the same time, each by a connection."""

FEW_ENTRIES: Final = 10_000
"""So many are counted at the end of a run, to say what is left."""
TASKS_A_WORKER: Final = 4
"""Slices are cut until there are so many for each worker, that none waits long for another."""


class ExecuteSlices(Protocol):
    """Prunes slices of the commit table, in any order and anywhere."""

    @property
    def workers(self) -> int:
        """How many slices are worked on at once."""
        ...

    def run(self, tasks: Sequence[PruneTask]) -> Sequence[PruneResult]:
        """Carry out tasks, and return one result for each."""
        ...


@dataclass(slots=True)
class Ends:
    """Between which transactions those lie whose entries could go."""

    start_timestamps: list[Timestamp] = field(default_factory=list)
    """The least and the greatest of each bucket."""
    malformed: dict[Timestamp, str] = field(default_factory=dict)
    """Entries that were met on the way and say nothing, and why."""
    obstacles: list[Laggard] = field(default_factory=list)
    """Buckets that could not be read, so that what lies there stays."""


def find_ends(commit_table: CommitTable, limits: PruneLimits) -> Ends:
    """Find the least and the greatest transaction whose entry could go, in every bucket.

    Timestamps that count and those of world time are looked at apart, see `unvisited.py`.

    Cost: 2 short reads a bucket, 3 where there are entries; more where those at an end must stay.
    """
    middle = min(FIRST_WORLD_TIMESTAMP, limits.horizon + 1)
    parts = zip(buckets(middle), buckets(limits.horizon + 1, first=middle), strict=True)
    search = partial(_ends_of, commit_table, limits)
    if commit_table.is_remote:
        # HBase goes through what earlier runs have deleted, bucket by bucket where it is not asked
        # for several: each is a region of its own.
        with ThreadPoolExecutor(SEARCHES_AT_ONCE, thread_name_prefix="compaction-ends") as pool:
            found = list(pool.map(search, parts))
    else:
        found = list(map(search, parts))
    ends = Ends()
    for one in found:
        ends.start_timestamps += one.start_timestamps
        ends.malformed |= one.malformed
        ends.obstacles += one.obstacles
    return ends


def _ends_of(commit_table: CommitTable, limits: PruneLimits, parts: Sequence[KeyRange]) -> Ends:
    """Return where slices of a bucket end, and what could not be read."""
    ends = Ends()
    try:
        for part in parts:
            _search(commit_table, part, limits, ends)
    except StorageError as error:
        rows = KeyRange(parts[0].start, parts[-1].end)
        ends.obstacles.append(kept(commit_table.name, rows, str(error)))
    return ends


def _search(commit_table: CommitTable, part: KeyRange, limits: PruneLimits, ends: Ends) -> None:
    if part.start == part.end:
        return
    for reverse in (False, True):
        for row in _rows(commit_table, part, reverse=reverse):
            if row.complaint:
                ends.malformed[row.start_ts] = row.complaint
            elif limits.is_old_enough(row):
                ends.start_timestamps.append(row.start_ts)
                break
        else:
            # Nothing there may go, whichever way one comes.
            return


def _rows(commit_table: CommitTable, part: KeyRange, *, reverse: bool) -> Iterator[EntryRow]:
    pages = commit_table.scan_bucket(part, reverse=reverse, page_rows=SEARCH_ROWS)
    return chain.from_iterable(pages)


# -- the slices ------------------------------------------------------------------------------------


def slices(limits: PruneLimits) -> list[KeyRange]:
    """Return the rows of every entry that was asked about and is not above the horizon."""
    return [
        rows
        for stretch in limits.asked
        for rows in buckets(min(stretch.stop, limits.horizon + 1), first=stretch.start)
        if rows.start < rows.end
    ]


def cut(parts: Sequence[KeyRange], *, at_least: int) -> list[KeyRange]:
    """Cut slices in the middle until there are enough of them, or none can be cut."""
    pieces = list(parts)
    while pieces and len(pieces) < at_least:
        halves = [half for piece in pieces for half in _halves(piece)]
        if len(halves) == len(pieces):
            break
        pieces = halves
    return pieces


def _halves(rows: KeyRange) -> list[KeyRange]:
    # A rest begins behind a row, one byte longer than the others.
    low = int.from_bytes(rows.start[1 : 1 + LONG_BYTES])
    high = int.from_bytes(rows.end[1 : 1 + LONG_BYTES])
    if high - low < 2 * TIMESTAMP_STEP:
        return [rows]
    middle = rows.start[:1] + ((low + high) // 2).to_bytes(LONG_BYTES)
    return [KeyRange(rows.start, middle), KeyRange(middle, rows.end)]


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many entries went, and what was met that could not be judged."""

    entries: int = 0
    invalidations: int = 0
    obstacles: Sequence[Laggard] = ()


@dataclass(frozen=True, slots=True)
class Pruning:
    """How far the pruning has come between two rounds: all that its next driver needs to know."""

    rests: tuple[KeyRange, ...]
    """Rows of the commit table that are still to be gone through."""
    read: int = 0
    entries: int = 0
    invalidations: int = 0
    obstacles: tuple[Laggard, ...] = ()
    malformed: tuple[tuple[int, str], ...] = ()
    """Some entries that say nothing, and why."""
    malformed_count: int = 0

    def pruned(self, commit_table: str) -> Pruned:
        """Return what it came to."""
        malformed = _malformed(commit_table, self.malformed, self.malformed_count)
        return Pruned(self.entries, self.invalidations, [*self.obstacles, *malformed])


def begun(limits: PruneLimits, ends: Ends) -> Pruning:
    """Return how far it has come before the first round.

    Args:
        limits: What may go.
        ends: As `find_ends` came to them; what is malformed outside of the slices is reported too.
    """
    complaints: dict[int, str] = {
        start_ts: complaint
        for start_ts, complaint in ends.malformed.items()
        if not any(start_ts in stretch for stretch in limits.asked)
    }
    return Pruning(
        tuple(slices(limits)), malformed=_named(complaints), malformed_count=len(complaints)
    )


def prune_round(task: PruneTask, execute: ExecuteSlices, before: Pruning) -> Pruning:
    """Go on with every slice that is left, once.

    Args:
        task: What is the same for every slice.
        execute: Carries out tasks, and says how many at once.
        before: How far it has come.

    Raises:
        ReservationLost: another run may prune by now, and this one may not.
    """
    results = _round(task, before.rests, execute)
    if any(result.is_deposed for result in results):
        reached("compaction.slice_deposed", "I7")
        raise ReservationLost("another run has taken the lease over, while slices were pruned")
    complaints = dict(before.malformed)
    for result in results:
        complaints.update(result.malformed.items())
    obstacles = list(_obstacles(task.commit_table, results))
    rests = tuple(result.rest for result in results if result.rest is not None)
    if any(result.is_over for result in results):
        obstacles.append(out_of_time(task))
        rests = ()
    return Pruning(
        rests,
        before.read + sum(result.read for result in results),
        before.entries + sum(result.entries for result in results),
        before.invalidations + sum(result.invalidations for result in results),
        (*before.obstacles, *obstacles),
        _named(complaints),
        before.malformed_count + sum(result.malformed_count for result in results),
    )


def count(task: PruneTask, execute: ExecuteSlices, progress: Progress) -> int | None:
    """Count the rows of the commit table; None if a part of it cannot be read.

    Args:
        task: It is taken for its table; nothing is allowed to go.
        execute: Carries out tasks.
        progress: Is told how far it is.
    """
    nothing = Timestamp(HOLE)
    task = replace(task, limits=PruneLimits(nothing, nothing, nothing), is_dry_run=True)
    counting = Pruning(tuple(buckets(MAX_VERSION)))
    while counting.rests:
        counting = prune_round(task, execute, counting)
        tell(progress, counting)
    return None if counting.obstacles else counting.read


def count_few(commit_table: CommitTable) -> int | None:
    """Count the rows of the commit table; None if there are many, or it does not answer.

    Cost: 1 short scan a bucket, of `FEW_ENTRIES` rows in all.
    """
    found = 0
    try:
        for bucket in buckets(MAX_VERSION):
            for page in commit_table.scan_bucket(bucket):
                found += len(page)
                if found > FEW_ENTRIES:
                    return None
    except StorageError:
        return None
    return found


def tell(progress: Progress, pruning: Pruning) -> None:
    """Say how far it has come, if it goes on."""
    if pruning.rests:
        progress.note(
            f"{pruning.read:,} entries read so far, {len(pruning.rests)} slices to go on with"
        )


def _round(
    task: PruneTask, todo: Sequence[KeyRange], execute: ExecuteSlices
) -> Sequence[PruneResult]:
    pieces = cut(todo, at_least=TASKS_A_WORKER * execute.workers)
    return execute.run([replace(task, rows=piece) for piece in pieces])


def out_of_time(task: PruneTask) -> Laggard:
    """Say that entries stay because the run's window is over."""
    reason = f"{task.pacing.over()} before all entries were gone that may go"
    return Laggard.of(task.commit_table, KeyRange(), watermark=HOLE, reason=reason)


def kept(commit_table: str, rows: KeyRange, why: str) -> Laggard:
    """Say that entries stay because they could not be read or removed."""
    reason = f"entries are kept there that could not be read or removed: {why}"
    return Laggard.of(commit_table, rows, watermark=HOLE, reason=reason)


def _obstacles(commit_table: str, results: Iterable[PruneResult]) -> Iterator[Laggard]:
    for result in results:
        if result.kept is not None:
            yield kept(commit_table, result.kept, result.obstacle)


def _named(complaints: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted(complaints.items())[:MOST_NAMED])


def _malformed(
    commit_table: str, named: Sequence[tuple[int, str]], count: int
) -> Iterator[Laggard]:
    complaints = {Timestamp(start_ts): complaint for start_ts, complaint in named}
    for rows, reason in malformed_rows(complaints):
        yield Laggard.of(commit_table, rows, watermark=HOLE, reason=reason)
    if more := count - len(named):
        reason = f"{more} more entries are malformed; {MEND_ENTRY}"
        yield Laggard.of(commit_table, KeyRange(), watermark=HOLE, reason=reason)
