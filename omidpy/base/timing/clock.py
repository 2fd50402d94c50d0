"""What time is it?  Asked through an argument, so that tests turn the clock by hand.

Two questions, never mixed: `wall_ms` is the date, which operators and NTP may move; `monotonic_s`
is elapsed time, which counts while the machine is suspended and never goes back.  Readings of
`monotonic_s` may be compared among all processes that see the same `boot`.
"""

from __future__ import annotations

import time
import uuid
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """A source of wall time and of elapsed time."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since some fixed moment, suspends included."""
        ...

    @property
    def boot(self) -> str:
        """Which fixed moment that is: a name that no other clock has, or will have."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    # In C: a get reads it two times, a commit a dozen.
    monotonic_s = staticmethod(
        partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    )
    """Return seconds since boot, suspends included where the kernel tells."""

    @cached_property
    def boot(self) -> str:
        """The kernel's id of this boot of the machine; where there is none, of this process."""
        return _boot()


@cache
def _boot() -> str:
    kernel = Path("/proc/sys/kernel/random/boot_id")
    # A container may have a time namespace of its own, in which the clock is moved by so much.
    offsets = Path("/proc/self/timens_offsets")
    try:
        moved = offsets.read_text("ascii").split() if offsets.exists() else []
        is_moved = any(word.strip("-").isdigit() and int(word) for word in moved)
        return "/".join([kernel.read_text("ascii").strip(), *(moved if is_moved else ())])
    except OSError:
        return f"process {uuid.uuid4()}"


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, *, wall_ms: int = 1_700_000_000_000, monotonic_s: float = 1000.0) -> None:
        """Stand still at the given moments."""
        self._wall_ms = wall_ms
        self._monotonic_s = monotonic_s
        self._boot = uuid.uuid4().hex

    @property
    def boot(self) -> str:
        """A name for this very clock."""
        return self._boot

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
