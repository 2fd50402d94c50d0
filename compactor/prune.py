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

from compactor.horizon import HOLE
from compactor.range_pass import OnStep, ignore_step
from compactor.report import Laggard
from omidpy.base.cells import commit_row
from omidpy.base.commit_facts import INVALID
from omidpy.errors import StorageError
from omidpy.facts.commit_table import CommitTable, EntryRow, buckets
from omidpy.model import KeyRange, Timestamp

MOST_NAMED: Final = 20
"""Malformed entries that are named; more are only counted."""

MEND_ENTRY: Final = (
    "it is kept, and so are its transaction's cells without a shadow cell: write what it should "
    "say (`omidpy tx inspect` shows the shadow cells), or delete it if there is no such transaction"
)

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
    """How many entries went, and what was met that could not be judged."""

    entries: int = 0
    invalidations: int = 0
    obstacles: Sequence[Laggard] = ()


class Pruner:
    """Removes entries, slice by slice.

    What it cannot read it leaves and reports: a malformed entry, or the rest of a bucket of which a
    region does not answer.
    """

    def __init__(
        self, commit_table: CommitTable, *, is_dry_run: bool = False, on_step: OnStep = ignore_step
    ) -> None:
        self.commit_table = commit_table
        self.is_dry_run = is_dry_run
        self.on_step = on_step
        self._entries = 0
        self._invalidations = 0
        self._malformed: list[EntryRow] = []
        self.obstacles: list[Laggard] = []

    def old_enough(self, limits: PruneLimits) -> Iterator[Timestamp]:
        """Yield the transactions whose entries could go, if nothing else needs them.

        Of a bucket that cannot be read those are left out that nobody sees, and so stay; see
        `obstacles`.

        Cost: 1 read a slice.
        """
        for bucket in buckets(limits.horizon + 1):
            try:
                for page in self.commit_table.scan_bucket(bucket, page_rows=SLICE_ROWS):
                    yield from (row.start_ts for row in page if limits.is_old_enough(row))
            except StorageError as error:
                self.obstacles.append(self._kept(bucket, error))

    def prune(self, limits: PruneLimits) -> Pruned:
        """Remove what `limits` allow.

        Cost: 1 read a slice, 1 conditional delete for each entry removed.
        """
        for bucket in buckets(limits.horizon + 1):
            try:
                self._prune_bucket(bucket, limits)
            except StorageError as error:
                self.obstacles.append(self._kept(bucket, error))
        return Pruned(self._entries, self._invalidations, [*self.obstacles, *self._complaints()])

    def _prune_bucket(self, bucket: KeyRange, limits: PruneLimits) -> None:
        for page in self.commit_table.scan_bucket(bucket, page_rows=SLICE_ROWS):
            for row in page:
                if row.complaint:
                    self._malformed.append(row)
                if not limits.may_prune(row) or not (self.is_dry_run or self.remove(row)):
                    continue
                if row.entry is INVALID:
                    self._invalidations += 1
                else:
                    self._entries += 1
                self.on_step("entry-pruned")
            self.on_step("slice-pruned")

    def remove(self, row: EntryRow) -> bool:
        """Remove one entry if it still says what was read."""
        if row.entry is INVALID:
            return self.commit_table.remove_invalidation(row)
        return self.commit_table.remove_commit(row)

    def _kept(self, bucket: KeyRange, error: StorageError) -> Laggard:
        reason = f"entries are kept there that could not be read or removed: {error}"
        return self._laggard(bucket, reason)

    def _complaints(self) -> Iterator[Laggard]:
        for row in self._malformed[:MOST_NAMED]:
            key = commit_row(row.start_ts)
            yield self._laggard(KeyRange(key, key + b"\x00"), f"{row.complaint}; {MEND_ENTRY}")
        if more := len(self._malformed[MOST_NAMED:]):
            yield self._laggard(KeyRange(), f"{more} more entries are malformed; {MEND_ENTRY}")

    def _laggard(self, rows: KeyRange, reason: str) -> Laggard:
        return Laggard.of(self.commit_table.name, rows, watermark=HOLE, reason=reason)
