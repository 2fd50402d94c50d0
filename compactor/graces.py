"""How old is what a run has claimed, and is that old enough?  Stamps are the driver's.

A worker records a claim without a time: its clock may be anybody's.  Once all passes are done, the
driver stamps the *run*; before that the claims of a run have no age.  A run that was killed, or ran
on another machine or before this one was started again, is stamped by the first run that sees it,
and then counts from that moment on, unless the oracle's samples say more
(`omidpy/base/timing/ages.py`).

That a run is stamped by another while it still claims ranges does no harm.  What a grace protects
began to wait before the run read its L, and a run is seen after that.
"""

from __future__ import annotations

from collections.abc import Iterable

from omidpy.base.timing.ages import Ages, Stamp, stamped
from omidpy.base.timing.clock import Clock
from omidpy.facts.watermarks import Claim, Watermarks


class ClaimAges:
    """The ages of claims, for one run of the compactor."""

    def __init__(
        self, watermarks: Watermarks, clock: Clock, run: str, *, is_dry_run: bool = False
    ) -> None:
        """Know of no age yet.

        Args:
            watermarks: Where claims, stamps and samples are recorded.
            clock: The driver's.
            run: Its own id.
            is_dry_run: Write no stamp; judge as if it had been written.
        """
        self._watermarks = watermarks
        self._clock = clock
        self._run = run
        self._is_dry_run = is_dry_run
        self._stamps: dict[str, tuple[Stamp, ...]] = {}
        self._ages = Ages(clock, ())

    def stamp(self, claims: Iterable[Claim]) -> int:
        """Stamp the runs that made these claims, where this machine has not done so.

        Returns:
            Of how many earlier runs nothing told the age, so that they count from now on.

        Cost: 3 scans, and 1 get and 1 durable write for each run that is stamped.
        """
        self._ages = self._watermarks.ages(self._clock)
        stamps = self._watermarks.stamps()
        now = self._watermarks.stamp(self._clock)
        begun_anew = 0
        for run in sorted({claim.run for claim in claims if claim.run}):
            known = stamps.get(run, ())
            if run != self._run and not any(map(self._ages.can_judge, known)):
                begun_anew += 1
            more = stamped(known, now)
            if more != known and not self._is_dry_run:
                more = self._watermarks.stamp_run(run, now)
            self._stamps[run] = more
        return begun_anew

    def age_ms(self, claim: Claim) -> int:
        """Return how old a claim is at least (I7); 0 for one whose run was never stamped."""
        return self._ages.age_ms(self._stamps.get(claim.run, ()))

    def forget(self) -> None:
        """Remove the stamps of runs of which no claim is left.

        Cost: 2 scans, and 1 write if there is one.
        """
        # In this order: a run claims before it is stamped.
        runs = self._watermarks.stamps().keys()
        in_use = {claim.run for claim in self._watermarks.claims()}
        self._watermarks.forget_stamps(runs - in_use)
