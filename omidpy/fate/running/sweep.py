"""What may go?  Outcomes that no caller will ask for any more, and marks that nothing refers to.

A finished operation stays for a while, so that callers that wait for it learn how it ended: a short
while with `auto_clean`, else until it is deleted, and not for ever.  One that is NEW and was never
seeded was given up by its maker.

Ages are wall time, because nothing else outlives every process.  A date that leaps ahead while an
executor runs takes nothing with it: all that was there stays for as long again, by elapsed time.
One that leapt while no executor ran makes outcomes go early, and never an operation that is live.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import inf
from typing import Final

from omidpy.base.timing.clock import Clock
from omidpy.base.words.arguments import check_number
from omidpy.errors import UsageError
from omidpy.fate.locks import Locks
from omidpy.fate.operation import Operation, Status, Unreadable
from omidpy.fate.store import FateStore
from omidpy.life.base import Judge

log = logging.getLogger(__name__)

SWEEP_EVERY_S: Final = 60.0

LEAP_S: Final = 10.0
"""A date that runs ahead of elapsed time by more was set."""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long what is left of an operation stays, in seconds."""

    auto_clean_s: float = 600.0
    """The outcome of one that was submitted with `auto_clean`."""
    finished_s: float = 8 * 3600.0
    """The outcome of any other."""
    new_s: float = 8 * 3600.0
    """One that was created and never seeded."""

    def __post_init__(self) -> None:
        """Refuse times before now, and what is no number."""
        for name in ("auto_clean_s", "finished_s", "new_s"):
            if not check_number(name, getattr(self, name)) >= 0:
                raise UsageError(f"{self}: use 0 seconds or more")

    def left_s(self, operation: Operation, *, now_ms: int, counted_s: float = inf) -> float | None:
        """Return how much longer an operation's record stays at least; None: it is live.

        Args:
            operation: The operation.
            now_ms: The date.
            counted_s: For how long the date has been one by which ages can be told.
        """
        if operation.status is Status.NEW:
            since_ms, kept_s = operation.created_ms, self.new_s
        elif operation.finished_ms is None:
            return None
        else:
            since_ms = operation.finished_ms
            kept_s = self.auto_clean_s if operation.auto_clean else self.finished_s
        return kept_s - min((now_ms - since_ms) / 1000, counted_s)


class Sweeper:
    """Removes what may go, now and then.  One thread at a time."""

    def __init__(self, store: FateStore, judge: Judge, clock: Clock, keep: Keep) -> None:
        self._store = store
        self._judge = judge
        self._clock = clock
        self._keep = keep
        self._read_s, self._read_ms = clock.monotonic_s(), clock.wall_ms()
        self._leapt_s = -inf
        """When the date was found to have leapt."""
        self._due_s = clock.monotonic_s()
        self._outcomes_due_s = self._due_s
        self._locks_due_s = self._due_s + SWEEP_EVERY_S

    def sweep_if_due(self) -> None:
        """Sweep once a minute; outcomes only when some of them may go, since they are many."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s:
            self._due_s = now_s + SWEEP_EVERY_S
            self._watch_date()
            self._tidy()
            if now_s >= self._outcomes_due_s:
                self._remove_outcomes()

    def free_locks_if_due(self) -> None:
        """Free the locks of operations that are over (F6), once a minute: none waits for these."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._locks_due_s:
            Locks(self._store).release_dangling()
            self._locks_due_s = now_s + SWEEP_EVERY_S

    def sweep(self) -> int:
        """Remove what may go; return how many operations that were."""
        self._tidy()
        return self._remove_outcomes()

    def _tidy(self) -> None:
        """End what others began, and remove marks; at a cost that does not grow with outcomes."""
        for operation in self._store.live_in_order():
            if operation.is_finished:
                self._store.archive(operation)
        Locks(self._store).release_dangling()
        self._store.sweep(self._judge)

    def _remove_outcomes(self) -> int:
        """Remove outcomes that are old enough, and find out when to look again."""
        now_ms = self._watch_date()
        counted_s = self._read_s - self._leapt_s
        count = 0
        # What ends from now on stays for so long at least.
        next_s = min(self._keep.auto_clean_s, self._keep.finished_s, self._keep.new_s)
        # One by one: the results of all that have ended may be more than there is memory.
        for operation in self._store.scan():
            if isinstance(operation, Unreadable):
                continue
            left_s = self._keep.left_s(operation, now_ms=now_ms, counted_s=counted_s)
            if left_s is None:
                continue
            if left_s < 0:
                count += self._store.delete(operation)
            else:
                next_s = min(next_s, left_s)
        self._outcomes_due_s = self._clock.monotonic_s() + next_s
        return count

    def _watch_date(self) -> int:
        """Return the date, and note whether it was set forward since the last look."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        ahead_s = (now_ms - self._read_ms) / 1000 - (now_s - self._read_s)
        if ahead_s > LEAP_S:
            log.warning(
                "the date was set forward by %.0f s: outcomes of operations stay for as long again "
                "as they would have",
                ahead_s,
            )
            self._leapt_s = now_s
        self._read_s, self._read_ms = now_s, now_ms
        return now_ms
