"""Forget what no cell needs any more: commits and invalidations at or below the horizons.

Called once the prune horizon has been raised durably (I7), and every place that no pass goes over
was asked (`unvisited.py`).  Commits go where every cell of their transaction has its shadow cell;
invalidations wait longer, because the moment one goes, a commit that was under way all the time
would stand alone.

Each row goes by compare-and-delete of what was read, one exact version of one column, so that what
a reader wrote meanwhile stays.  Rows below the oracle's first timestamp belong to someone else, and
Omid's low watermark, whose row key has another length, is never seen as an entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from compactor.range_pass import OnStep, ignore_step
from omidpy.commit_facts import INVALID
from omidpy.commit_table import CommitTable, EntryRow
from omidpy.model import Timestamp

SLICE_ROWS: Final = 1000
"""Rows read and judged together; a run that dies between two slices has lost nothing."""

PRUNE_STEPS: Final = ("entry-pruned", "slice-pruned")


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """What may go."""

    first_timestamp: Timestamp
    horizon: Timestamp
    """Commits at or below it."""
    invalidation_horizon: Timestamp
    """Invalidations at or below it, and at or below `horizon`."""
    asked: Sequence[range] = ()
    """Start timestamps of which no cell lies where no pass goes.  Entries of others stay, because
    nobody has asked about them."""

    def may_prune(self, row: EntryRow) -> bool:
        """Say whether an entry is no longer needed."""
        return self.is_old_enough(row) and any(row.start_ts in stretch for stretch in self.asked)

    def is_old_enough(self, row: EntryRow) -> bool:
        """Say whether an entry is no longer needed as far as the horizons go."""
        if not self.first_timestamp <= row.start_ts <= self.horizon:
            return False
        if row.entry is INVALID:
            return row.start_ts <= self.invalidation_horizon
        return row.entry is not None


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many entries went."""

    entries: int = 0
    invalidations: int = 0


class Pruner:
    """Removes entries, slice by slice."""

    def __init__(
        self, commit_table: CommitTable, *, is_dry_run: bool = False, on_step: OnStep = ignore_step
    ) -> None:
        self.commit_table = commit_table
        self.is_dry_run = is_dry_run
        self.on_step = on_step

    def old_enough(self, limits: PruneLimits) -> Iterator[Timestamp]:
        """Yield the transactions whose entries could go, if nothing else needs them.

        Cost: 1 read a slice.
        """
        for page in self.commit_table.scan(below=limits.horizon + 1, page_rows=SLICE_ROWS):
            for row in page:
                if limits.is_old_enough(row):
                    yield row.start_ts

    def prune(self, limits: PruneLimits) -> Pruned:
        """Remove what `limits` allow.

        Cost: 1 read a slice, 1 conditional delete for each entry removed.
        """
        entries = invalidations = 0
        for page in self.commit_table.scan(below=limits.horizon + 1, page_rows=SLICE_ROWS):
            for row in page:
                if not limits.may_prune(row) or not (self.is_dry_run or self.remove(row)):
                    continue
                if row.entry is INVALID:
                    invalidations += 1
                else:
                    entries += 1
                self.on_step("entry-pruned")
            self.on_step("slice-pruned")
        return Pruned(entries, invalidations)

    def remove(self, row: EntryRow) -> bool:
        """Remove one entry if it still says what was read."""
        if row.entry is INVALID:
            return self.commit_table.remove_invalidation(row)
        return self.commit_table.remove_commit(row)
