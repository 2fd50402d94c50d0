"""How long ago was that, at least?  Judged by clocks that cannot be set.

Graces protect those who have nothing else: a client whose reply was lost, the last write of a
deposed oracle, a reader of old versions.  The date cannot judge them, because an operator sets it
forward by an hour, and everything waits no longer.  So a moment that will be judged is recorded as
a *stamp*: readings of clocks that run evenly.  Two kinds of evidence say how old a stamp is at
least:

    the same boot          the machine's own elapsed time, suspends included, is larger by so much
    the oracle's samples   from the second sample after the stamp to the newest one, the oracle's
                           own machines counted so much

The second sample, because the first may have been under way when the stamp was taken; it was
measured before it was written.  Between samples of different boots nothing is counted: how long the
oracle was away only the date could tell.

Too low an age lets something wait for longer, which is harmless; too high a one is never given
(I7).
Where neither kind of evidence reaches back to a stamp its age is 0, so a caller that relies on it
adds a stamp of his own, which counts from that moment on.

Pure but for the one reading of the clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from omidpy.base.documents import Natural
from omidpy.base.timing.clock import Clock

MOST_STAMPS: Final = 4
"""Stamps of one moment that are kept: the first, and the newest of the others."""

NO_SAMPLE: Final = -1


class Sample(msgspec.Struct, frozen=True):
    """The oracle's word on its newest timestamp at `elapsed_ms` of its own time."""

    elapsed_ms: Natural
    wall_ms: Natural
    last_issued_ts: Natural
    boot: str = ""
    """By which run of which machine's clock `boot_ms` counts; empty in samples of old."""
    boot_ms: Natural = 0
    low_watermark: Natural = 0
    """What it was at that moment: whatever is decided later began above it; 0 in samples of old."""


class Stamp(msgspec.Struct, frozen=True):
    """A moment that had come when this was written."""

    boot: str
    boot_ms: Natural
    sample_ms: int = NO_SAMPLE
    """`elapsed_ms` of the newest of the oracle's samples that could be read by then."""


def stamped(stamps: Sequence[Stamp], stamp: Stamp) -> tuple[Stamp, ...]:
    """Return the stamps of a moment with one more, unless that machine has stamped it already."""
    if any(one.boot == stamp.boot for one in stamps):
        return tuple(stamps)
    others = stamps[1:][-(MOST_STAMPS - 2) :]
    return (*stamps[:1], *others, stamp)


class Ages:
    """Judges stamps by this machine's clock, and by the samples that were recorded so far."""

    def __init__(self, clock: Clock, samples: Iterable[Sample]) -> None:
        """Judge by `clock`, which goes on, and by `samples`, which do not."""
        in_order = sorted(samples, key=lambda sample: sample.elapsed_ms)
        self._clock = clock
        self._recorded_ms = [sample.elapsed_ms for sample in in_order]
        self._is_counted = bool(in_order and in_order[-1].boot)
        self._counted_ms = list(accumulate(map(_between, pairwise(in_order)), initial=0))

    def wall_ms(self) -> int:
        """Return the date, for what carries no stamp that can be judged."""
        return self._clock.wall_ms()

    def age_ms(self, stamps: Iterable[Stamp]) -> int:
        """Return how old a moment is at least, by the best of its stamps; 0 without one."""
        return max(map(self._age_ms, stamps), default=0)

    def can_judge(self, stamp: Stamp) -> bool:
        """Say whether there is evidence of any kind that reaches back to a stamp."""
        if stamp.boot == self._clock.boot:
            return True
        return self._is_counted and self._second_after(stamp) is not None

    def _age_ms(self, stamp: Stamp) -> int:
        age_ms = 0
        if stamp.boot == self._clock.boot:
            age_ms = round(self._clock.monotonic_s() * 1000) - stamp.boot_ms
        second = self._second_after(stamp)
        if second is not None:
            age_ms = max(age_ms, self._counted_ms[-1] - self._counted_ms[second])
        return age_ms

    def _second_after(self, stamp: Stamp) -> int | None:
        """Return the index of the first sample that was certainly measured after a stamp."""
        index = bisect_right(self._recorded_ms, stamp.sample_ms) + 1
        return index if index < len(self._recorded_ms) else None


def issued_before(samples: Iterable[Sample], *, age_ms: int) -> int:
    """Return the newest timestamp that was issued so long before the newest sample; 0 if unknown.

    Samples of old do not say by which clock they were taken: what the oracle believed counts there.
    """
    found, passed_ms, later = 0, 0, None
    for sample in sorted(samples, key=lambda one: one.elapsed_ms, reverse=True):
        if later is not None:
            if sample.boot or later.boot:
                passed_ms += _between((sample, later))
            else:
                passed_ms += later.elapsed_ms - sample.elapsed_ms
        if passed_ms >= age_ms:
            found = max(found, sample.last_issued_ts)
        later = sample
    return found


def _between(samples: tuple[Sample, Sample]) -> int:
    """Return the time that passed between two samples, as far as one clock counted it."""
    one, next_one = samples
    if not one.boot or one.boot != next_one.boot:
        return 0
    return max(next_one.boot_ms - one.boot_ms, 0)
