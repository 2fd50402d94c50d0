"""When may a step that has failed be tried again, by whichever executor?

How often it has failed, and how long it rests, is stored with the operation: four executors
that each kept pauses of their own called it four times at once, and used its tries up.

The end of a rest is a moment of the elapsed time of the machine where the step failed, which every
process of that boot can read.  An executor elsewhere, or behind a reboot, lets the whole pause pass
by its own clock, since it first saw that the step rests: that is late by a pause at most, and never
early.  Wall clocks, which jump and differ, are not asked: one set forward would use up tries, one
set back would wait for ever.  No rest is longer than its pause, whatever is stored.

No threads, no store.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final, NamedTuple

from omidpy.base.timing.clock import Clock
from omidpy.fate.operation import FateId, Operation, Rest

MAX_RESTS: Final = 100_000
"""Operations whose rests are remembered; beyond that all begin anew."""


class _Seen(NamedTuple):
    """A rest as it was first seen here."""

    rest: Rest
    failures: int
    at_s: float


def rest_of(clock: Clock, pause_s: float) -> Rest:
    """Return a rest that begins now."""
    # Rounded down: our own wait, which begins later, must not end before it.
    due_ms = math.floor((clock.monotonic_s() + pause_s) * 1000)
    return Rest(round(pause_s * 1000), clock.boot, due_ms)


class Rests:
    """Judges rests by one executor's clock.  One caller at a time."""

    def __init__(self, boot: str) -> None:
        """Judge by the clock of a boot; see `Clock.boot`."""
        self._boot = boot
        self._seen: dict[FateId, _Seen] = {}

    def due_s(self, operation: Operation, *, now_s: float) -> float:
        """Return when the rest of an operation is over, by our own clock; now, if it has none."""
        rest = operation.rest
        if rest is None:
            return now_s
        seen = self._seen.get(operation.id)
        if seen is None or (seen.rest, seen.failures) != (rest, operation.failures):
            if len(self._seen) >= MAX_RESTS:
                self._seen.clear()
            seen = self._seen[operation.id] = _Seen(rest, operation.failures, now_s)
        longest_s = seen.at_s + rest.pause_ms / 1000
        return min(rest.due_ms / 1000, longest_s) if rest.boot == self._boot else longest_s

    def keep(self, operations: Collection[FateId]) -> None:
        """Forget the rests of all others."""
        self._seen = {one: seen for one, seen in self._seen.items() if one in operations}
