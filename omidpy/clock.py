"""What time is it?  Asked through an argument, so that tests turn the clock by hand.

Two questions, never mixed: `wall_ms` is the date, which operators and NTP may move; `monotonic_s`
is elapsed time, which counts while the machine is suspended and never goes back.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall time and of elapsed time."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since some fixed moment, suspends included."""
        ...


class SystemClock:
    """The machine's own clocks."""

    _elapsed_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds since boot, suspends included where the kernel tells."""
        return time.clock_gettime(self._elapsed_clock)


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, *, wall_ms: int = 1_700_000_000_000, monotonic_s: float = 1000.0) -> None:
        """Stand still at the given moments."""
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s

    def wall_ms(self) -> int:
        """Return the wall time last set."""
        return self._wall_ms

    def monotonic_s(self) -> float:
        """Return the elapsed time last set."""
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        self._monotonic_s += seconds
        self._wall_ms += round(seconds * 1000)

    def step_wall(self, *, milliseconds: int) -> None:
        """Move the date alone, as an operator or NTP does."""
        self._wall_ms += milliseconds
