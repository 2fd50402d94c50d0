"""Does an entry that no cell needs any more only wait for its grace?

A client that lost its reply looks for its entry, so that a compaction keeps each for a grace, and a
little longer: it goes with the first run whose claims are old enough.  Until then it is where it
should be.  It has leaked if it is older than that, and no claim is on its way to let it go.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compactor.horizon import HOLE, aged, minimum, without_tables
from compactor.lag import TimestampAges
from compactor.options import Options
from omidpy.base.timing.clock import Clock
from omidpy.facts.commit_table import ADOPTED_CEILING_FACT, COMMIT_TABLE
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import Claim, Watermarks


class EntryGrace:
    """Judges entries by their own age, and by that of the claims that would let them go."""

    def __init__(
        self,
        control: ControlTable,
        claims: Sequence[Claim],
        tables: Collection[str],
        *,
        clock: Clock,
        grace_s: float | None,
    ) -> None:
        """Look at what the claims say now, and what they said a grace ago.

        Args:
            control: Where stamps and samples are.
            claims: Those that speak of tables of ours as they are.
            tables: The tables of ours.
            clock: Says how old they are.
            grace_s: How old a claim must be; None is what a compaction takes by itself.

        Cost: 2 scans and 1 get.
        """
        if grace_s is None:
            follows_omid = control.read(ADOPTED_CEILING_FACT) is not None
            grace_s = Options().grace_on(follows_omid=follows_omid)
        self._grace_s = grace_s
        watermarks = Watermarks(control)
        ages, stamps = watermarks.ages(clock), watermarks.stamps()
        old = aged(claims, lambda one: ages.age_ms(stamps.get(one.run, ())), grace_s=grace_s)
        self._claimed = _least(tables, claims)
        self._due = _least(tables, old)
        self._dates = TimestampAges(watermarks.samples(), now_ms=clock.wall_ms())

    def is_waiting(self, start_ts: int) -> bool:
        """Say whether the entry of a transaction is only waiting."""
        if self._due < start_ts <= self._claimed:
            return True
        age_s = self._dates.age_s(start_ts)
        return age_s is not None and age_s < self._grace_s


def _least(tables: Collection[str], claims: Sequence[Claim]) -> int:
    if not tables:
        return without_tables(claims, COMMIT_TABLE)
    return minimum(tables, claims) or HOLE
