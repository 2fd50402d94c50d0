"""Which versions may a run drop?  Step 3 of a run: announce, read holds, publish, wait, act (I10).

Two promises are kept.  A reader above the published horizon misses no version; and a hold that was
granted is kept until it expires, so that no snapshot at or above it is refused.

A reader looks at the horizon after its batch arrived.  So a horizon that was public for a grace has
warned every reader below it, and only then is it acted upon.

A holder writes its hold, and then reads the *intent* and the horizon; at or above both the hold is
granted.  The run raises the intent, then reads the holds, and publishes nothing above any of them.

    granted means kept   the holder read an intent at or below its snapshot, hence before this run
                         raised it above; its hold was there by then, and is among those read after

Were the horizon itself the only thing that both look at, as it once was, a hold could come between
the reading of the holds and the publishing: granted, since the old horizon was read, and refused
ever after.  `tests/simulation/test_holds.py` places a hold at every pair of steps of a run.

A run that dies behind its intent has published nothing; holds between horizon and intent are
refused until a run comes that far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isinf
from typing import Final

from compactor.ranges.range_pass import OnStep
from omidpy.base.reach import reached
from omidpy.base.timing.ages import Ages
from omidpy.base.timing.clock import Clock
from omidpy.facts.watermarks import MIN_COLLECTION_GRACE_S, Hold, Watermarks
from omidpy.model import Timestamp

COLLECTION_STEPS: Final = ("horizon-announced", "horizon-published", "holds-read")
"""Where this part of a run can be stopped by a test, in order."""


@dataclass(frozen=True)
class Collection:
    """How one run settles from which horizon on versions may go."""

    watermarks: Watermarks
    clock: Clock
    grace_s: float
    retention_s: float
    should_wait: bool
    is_dry_run: bool
    ages: Ages
    nap: Callable[[float], None]
    """Sleeps a little towards a moment of this machine's elapsed time."""
    may_wait: Callable[[], bool]
    """Says whether the run's window still lasts."""
    on_step: OnStep

    def settle(self, low_watermark: Timestamp) -> Timestamp:
        """Publish a horizon, and return the one that this run may act on; 0 collects nothing."""
        if isinf(self.retention_s):
            # How long cannot be read; what was published before may wait, too.
            return Timestamp(0)
        target = self.target(low_watermark)
        if target and not self.is_dry_run:
            self.announce(target)
            self.on_step("horizon-announced")
            target = self.below_holds(target)
            self.watermarks.publish_collection_horizon(target, self.clock)
            self.on_step("horizon-published")
            if self.should_wait:
                self.await_age(target)
        aged = self.aged_horizon()
        if self.is_dry_run and self.should_wait:
            # What a run comes to that waits for what it publishes.
            aged = max(aged, target)
        horizon = self.below_holds(min(aged, low_watermark))
        self.on_step("holds-read")
        return horizon

    def target(self, low_watermark: Timestamp) -> Timestamp:
        """Return the horizon that retention and the holds of now allow."""
        target = low_watermark
        if self.retention_s > 0:
            target = min(target, self.watermarks.issued_before(age_s=self.retention_s))
        return self.below_holds(target)

    def announce(self, target: Timestamp) -> None:
        """Grant no hold below `target` from here on."""
        self.watermarks.raise_collection_intent(target)

    def below_holds(self, horizon: Timestamp) -> Timestamp:
        """Return `horizon`, or the lowest snapshot that is held if that is lower."""
        held = min((Timestamp(hold.start_ts) for hold in self.holds()), default=horizon)
        if held < horizon:
            reached("compaction.held_back", "I10")
        return min(horizon, held)

    def await_age(self, target: Timestamp) -> None:
        """Sleep until the horizon has been public for the grace."""
        deadline_s = self.clock.monotonic_s() + max(self.grace_s, MIN_COLLECTION_GRACE_S)
        while (
            self.may_wait()
            and self.aged_horizon() < target
            and self.clock.monotonic_s() < deadline_s
        ):
            self.nap(deadline_s)

    def aged_horizon(self) -> Timestamp:
        """Return the newest horizon that has been public for the grace."""
        return self.watermarks.aged_collection_horizon(self.ages, grace_s=self.grace_s)

    def holds(self) -> list[Hold]:
        """Return the holds that have not expired."""
        return self.watermarks.holds(self.ages)
