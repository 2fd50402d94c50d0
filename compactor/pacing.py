"""How fast may a run go, and until when?  So many rows and bytes a second, and the end of a window.

`Pacing` travels with every task.  A `Pacer` keeps to it between two pages: it tells how long to
wait, sleeps, and says when the window is over.  It is a bucket that starts empty, is filled at the
rate that is allowed, and holds a second's worth; a page is read on credit, and what it took is
waited for behind it.  So the rate holds over any stretch longer than a page, in tasks of one page
too, and a pause elsewhere is not made up for by a rush.

What counts is what is read: rows with all their versions, and of the commit table, entries.  What
is written comes on top, and is less, but where everything must be healed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final

from omidpy.base.cells import LONG_BYTES
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.model import Cell

LONGEST_NAP_S: Final = 1.0
"""A wait is cut into naps, so that a window ends it."""

SHORTEST_WAIT_S: Final = 1e-6

ENTRY_BYTES: Final = 32
"""What an entry of the commit table counts, keys and values."""

_family: Final = itemgetter(1)
_qualifier: Final = itemgetter(2)
_value: Final = itemgetter(4)


@dataclass(frozen=True, slots=True)
class Pacing:
    """What a run, or a task of it, may take of the store."""

    rows_per_s: float | None = None
    """None: as many as it can read."""
    bytes_per_s: float | None = None
    ends_ms: int | None = None
    """Wall time at which its window ends; None is never."""
    whose: str = "the run"
    """Who has that window."""

    def shared_by(self, tasks: int) -> Pacing:
        """Return what each of some tasks may take that run at once."""
        among = max(tasks, 1)
        return replace(
            self,
            rows_per_s=None if self.rows_per_s is None else self.rows_per_s / among,
            bytes_per_s=None if self.bytes_per_s is None else self.bytes_per_s / among,
        )

    def at_most(self, rows_per_s: float | None, bytes_per_s: float | None) -> Pacing:
        """Return what keeps to these rates as well; None is no rate."""
        return replace(
            self,
            rows_per_s=_lesser(self.rows_per_s, rows_per_s),
            bytes_per_s=_lesser(self.bytes_per_s, bytes_per_s),
        )

    def until(self, ends_ms: int | None, *, whose: str) -> Pacing:
        """Return what ends at that moment at the latest; None is never."""
        if ends_ms is None or (self.ends_ms is not None and self.ends_ms <= ends_ms):
            return self
        return replace(self, ends_ms=ends_ms, whose=whose)

    def page_rows(self, most: int) -> int:
        """Return how many rows to read at once: what a second allows, and one at least."""
        return most if self.rows_per_s is None else max(1, min(most, int(self.rows_per_s)))

    def has_rate(self) -> bool:
        """Say whether it may not read as fast as it can."""
        return self.rows_per_s is not None or self.bytes_per_s is not None

    def over(self) -> str:
        """Say that the window is over, for the reason of a laggard."""
        moment = datetime.fromtimestamp((self.ends_ms or 0) / 1000, UTC)
        return f"{self.whose}'s window ended at {moment:%Y-%m-%d %H:%M:%S} UTC"


def _lesser(one: float | None, other: float | None) -> float | None:
    return min((rate for rate in (one, other) if rate is not None), default=None)


UNPACED: Final = Pacing()


class Pacer:
    """Keeps one task, or tasks one after another, to a pacing."""

    def __init__(
        self,
        pacing: Pacing = UNPACED,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Begin with empty buckets."""
        self.pacing = pacing
        self._clock = clock or SystemClock()
        self._sleep = sleep
        rates = (pacing.rows_per_s, pacing.bytes_per_s)
        now_s = self._clock.monotonic_s()
        self._buckets = [None if rate is None else _Bucket(rate, now_s) for rate in rates]

    def is_over(self) -> bool:
        """Say whether the window has ended."""
        ends_ms = self.pacing.ends_ms
        return ends_ms is not None and self._clock.wall_ms() >= ends_ms

    def pause(self, *, rows: int, size_bytes: int) -> None:
        """Wait for what was read, until the window ends at most."""
        for bucket, amount in zip(self._buckets, (rows, size_bytes), strict=True):
            if bucket is None:
                continue
            bucket.take(amount, self._clock.monotonic_s())
            while (left_s := bucket.owed_s(self._clock.monotonic_s())) and not self.is_over():
                self._sleep(min(left_s, LONGEST_NAP_S))


class _Bucket:
    """Tokens that come at a rate, up to those of a second, and may be owed."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._tokens = 0.0
        self._filled_s = now_s

    def take(self, amount: int, now_s: float) -> None:
        """Take tokens.  What came before is at most a second's worth, however long ago that was."""
        self._fill(now_s)
        self._tokens -= amount

    def owed_s(self, now_s: float) -> float:
        """Return for how long tokens are owed still; 0 for less than a microsecond."""
        self._fill(now_s)
        left_s = -self._tokens / self._rate
        return left_s if left_s >= SHORTEST_WAIT_S else 0.0

    def _fill(self, now_s: float) -> None:
        come = (now_s - self._filled_s) * self._rate
        self._filled_s = now_s
        self._tokens = min(self._tokens + come, self._rate)


def page_bytes(page: Iterable[Sequence[Cell]]) -> int:
    """Return the size of the cells of a page, keys and values."""
    return sum(
        len(row) * (len(row[0][0]) + LONG_BYTES)
        + sum(map(len, map(_family, row)))
        + sum(map(len, map(_qualifier, row)))
        + sum(map(len, map(_value, row)))
        for row in page
    )
