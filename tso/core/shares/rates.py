"""How fast may one share use up what all have: cells of the conflict map, begins and commits?

The conflict map forgets the oldest write for each new one, and what is older than the oldest that
it remembers can no longer commit.  So a client that writes very many cells aborts the long
transactions of all others, in commits that are small each: that is a rate, and is limited as one,
by share, see `clients.py`.

Each share has a bucket for each of the three.  A burst fits into it; past that the share is in debt
until time has paid for it.  A debt is waited out by the shell, which reads nothing from that share
meanwhile, and no longer than clients wait; so the machine refuses what would make a great debt
greater.  A refusal is an abort, which clients of any kind understand.

No share has to spare a map for others that are not there: unless it is told a number of cells, a
share that is alone spends what it likes, and has an empty bucket when another comes.

Pure counting; what time it is, is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tso.core.engine import Tally

WAIT_S: Final = 0.9
"""How long a request of a share in debt waits at most: clients wait 5 s for an answer, of which a
heavy request may have to wait 4 for its turn."""

GREAT_DEBT_S: Final = 2.0
"""A debt that takes longer to pay is great."""

BURST_S: Final = 1.0
"""Begins and commits of so many seconds may come at once."""

MAX_SHARE_COUNT: Final = 4096
"""Shares whose spending is remembered; past it those with the smallest debts are forgotten."""

SWEEP_S: Final = 10.0
"""How often it is looked who is still there."""

_NOBODY: Final = -1


@dataclass(frozen=True, slots=True)
class Limits:
    """What one share may spend in a second, over time; 0 is as much as it likes."""

    cells_per_s: float = 0.0
    burst_cells: int = 0
    """So many cells of the conflict map at once."""
    begins_per_s: float = 0.0
    commits_per_s: float = 0.0
    present_s: float = 0.0
    """How long after its last request a share counts as there: cells are limited only while another
    one is.  0 limits them always."""

    @property
    def are_none(self) -> bool:
        """Say whether nothing is limited."""
        return not (self.cells_per_s or self.begins_per_s or self.commits_per_s)


class _Bucket:
    """Until when, in seconds, a share has paid for what it spent: full buckets lie in the past."""

    __slots__ = ("asked_s", "begins_s", "cells_s", "commits_s")

    def __init__(self, now_s: float) -> None:
        self.cells_s = self.begins_s = self.commits_s = self.asked_s = now_s

    @property
    def paid_s(self) -> float:
        return max(self.cells_s, self.begins_s, self.commits_s)


class Rates:
    """What each share has spent lately."""

    def __init__(self, limits: Limits) -> None:
        """Let every share have a full bucket."""
        self.over: set[int] = set()
        """Shares in debt, and some that have paid meanwhile: where it is empty none waits."""
        self._cell_s = _seconds_each(limits.cells_per_s)
        self._begin_s = _seconds_each(limits.begins_per_s)
        self._commit_s = _seconds_each(limits.commits_per_s)
        self._burst_s = limits.burst_cells * self._cell_s
        self._present_s = limits.present_s
        self._counts_cells_alone = not (self._begin_s or self._commit_s)
        self._buckets: dict[int, _Bucket] = {}
        self._lone = _NOBODY
        """The only share that is there, where that one may spend what it likes."""
        self.tally: Final = Tally()
        """The same, if nothing else of it is counted.  Then the run that asks for it may add up
        what it takes in place of `spend`, which is the whole cost where one share is alone."""
        self._swept_s = 0.0

    def spend(self, share: int, now_s: float, *, cells: int, begins: int, commits: int) -> None:
        """Note what a share was given."""
        if share == self.tally.share:
            self.tally.cells_count += cells
            self.tally.request_count += begins + commits
            return
        bucket = self._buckets.get(share)
        if bucket is None:
            bucket = self._come(share, now_s)
        bucket.asked_s = now_s
        if cells:
            bucket.cells_s = max(bucket.cells_s, now_s) + cells * self._cell_s
            if share == self._lone:
                bucket.cells_s = min(bucket.cells_s, now_s + self._burst_s)
        if begins:
            bucket.begins_s = max(bucket.begins_s, now_s) + begins * self._begin_s
        if commits:
            bucket.commits_s = max(bucket.commits_s, now_s) + commits * self._commit_s
        if self._debt_s(bucket, now_s) > 0:
            self.over.add(share)

    def debt_s(self, share: int, now_s: float) -> float:
        """Return how long it takes until a share has paid its debt; 0 if it has none."""
        if share not in self.over:
            return 0.0
        bucket = self._buckets.get(share)
        debt_s = 0.0 if bucket is None else self._debt_s(bucket, now_s)
        if debt_s <= 0:
            self.over.discard(share)
            return 0.0
        return debt_s

    def pass_time(self, now_s: float) -> None:
        """Forget shares that have paid and left; see whether one is alone."""
        self._settle(now_s)
        if now_s - self._swept_s < SWEEP_S:
            return
        self._swept_s = now_s
        for share, bucket in list(self._buckets.items()):
            if bucket.paid_s <= now_s and bucket.asked_s <= now_s - self._present_s:
                del self._buckets[share]
                self.over.discard(share)
        self._see_who_is_alone(now_s)

    def _come(self, share: int, now_s: float) -> _Bucket:
        self._settle(now_s)
        if len(self._buckets) >= MAX_SHARE_COUNT:
            by_debt = sorted(self._buckets, key=lambda one: self._buckets[one].paid_s)
            for one in by_debt[: MAX_SHARE_COUNT // 4]:
                del self._buckets[one]
                self.over.discard(one)
        bucket = self._buckets[share] = _Bucket(now_s)
        if len(self._buckets) == 1:
            self._see_who_is_alone(now_s)
        else:  # until the next sweep, if the others left long ago
            self._lone = self.tally.share = _NOBODY
        return bucket

    def _see_who_is_alone(self, now_s: float) -> None:
        self._lone = self.tally.share = _NOBODY
        if not self._present_s:
            return
        there = [
            share
            for share, bucket in self._buckets.items()
            if bucket.asked_s > now_s - self._present_s
        ]
        if len(there) == 1:
            self._lone = there[0]
            bucket = self._buckets[self._lone]
            bucket.cells_s = min(bucket.cells_s, now_s + self._burst_s)
            if self._counts_cells_alone:
                self.tally.share = self._lone

    def _settle(self, now_s: float) -> None:
        """Let the share that is alone have as little in its bucket as it has left there."""
        tally = self.tally
        bucket = self._buckets.get(tally.share)
        if bucket is None or not tally.request_count:
            return
        bucket.asked_s = now_s
        owed_s = max(bucket.cells_s, now_s) + tally.cells_count * self._cell_s
        bucket.cells_s = min(owed_s, now_s + self._burst_s)
        tally.cells_count = tally.request_count = 0

    def _debt_s(self, bucket: _Bucket, now_s: float) -> float:
        return (
            max(
                bucket.cells_s - self._burst_s,
                bucket.begins_s - BURST_S,
                bucket.commits_s - BURST_S,
            )
            - now_s
        )


def _seconds_each(per_s: float) -> float:
    return 1 / per_s if per_s else 0.0
