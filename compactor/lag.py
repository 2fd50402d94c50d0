"""How long ago was a timestamp issued?  For those who are called at night; it decides nothing.

World time tells its own age.  Timestamps that count are dated by the oracle's samples.  Both by the
date, which an operator may set: an alarm may come early or late by that, and nothing is pruned by
it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import msgspec

from compactor.report import Held, Laggard
from omidpy.base.timing.ages import Ages, Sample
from omidpy.facts.watermarks import Watermarks
from omidpy.model import FIRST_WORLD_TIMESTAMP

NANOSECONDS_A_MS: Final = 1_000_000


class TimestampAges:
    """Says how long ago a timestamp was issued, by the oracle's samples."""

    def __init__(self, samples: Iterable[Sample], *, now_ms: int) -> None:
        """Date them by the oracle's `samples`, as of `now_ms`."""
        self._samples = sorted(samples, key=lambda sample: sample.last_issued_ts)
        self._issued = [sample.last_issued_ts for sample in self._samples]
        self._now_ms = now_ms

    def age_s(self, timestamp: int) -> float | None:
        """Return how long ago a timestamp was issued, at least; None if nothing tells."""
        if timestamp >= FIRST_WORLD_TIMESTAMP:
            issued_ms = timestamp // NANOSECONDS_A_MS
        else:
            # It was issued before the first sample that knows of it.
            index = bisect_left(self._issued, timestamp)
            if timestamp <= 0 or index == len(self._samples):
                return None
            issued_ms = self._samples[index].wall_ms
        return max(self._now_ms - issued_ms, 0) / 1000

    def dated(self, laggard: Laggard, *, floor: int) -> Laggard:
        """Return a laggard with its age: how long ago that was issued which it keeps from going.

        Args:
            laggard: Rows behind.
            floor: The prune horizon, or the first timestamp: what is at or below is gone, and held
                by no run.
        """
        return msgspec.structs.replace(laggard, age_s=self.age_s(max(laggard.watermark, floor)))


def holds_of(watermarks: Watermarks, ages: Ages) -> list[Held]:
    """Return who holds versions, and for how long still; the oldest snapshot first."""
    found = [
        Held(name, hold.owner, hold.start_ts, ages.wall_ms() + hold.left_ms(ages))
        for name, hold in watermarks.named_holds(ages)
    ]
    return sorted(found, key=lambda held: held.start_ts)


def is_late(laggards: Iterable[Laggard], *, max_lag_s: float | None) -> bool:
    """Say whether some rows have been behind for longer than an operator wants to sleep through.

    Those without a date count: they have been behind for as long as is known.
    """
    if max_lag_s is None:
        return False
    return any(one.age_s is None or one.age_s > max_lag_s for one in laggards)
