"""The compactor with one part broken on purpose, by name: each must be found by the simulator.

None of them is a plan that nobody would come to: most are what a compactor does that was written
without the proof beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from compactor.pruning.prune import PruneLimits
from compactor.ranges.range_pass import RangePass
from compactor.rows.clean import FoundRow
from compactor.rows.heal import RowPlan
from compactor.run.plan import Compaction
from compactor.tables.ownership import TableStanding
from omidpy.base.cells import decode_long, encode_long
from omidpy.facts.commit_table import read_low_watermark
from omidpy.facts.watermarks import Claim
from omidpy.model import TIMESTAMP_STEP, Timestamp
from tests.machines.simulator.plan import PLAIN, USUAL
from tests.machines.simulator.simulation import Mutant, Parts
from tests.machines.simulator.store import Stall

# -- passes ----------------------------------------------------------------------------------------


class ReadsTheWatermarkLate(RangePass):
    """Claims what the low watermark is once the range was read."""

    def claim(self) -> Claim:
        """Claim too much."""
        self.task = replace(self.task, low_watermark=read_low_watermark(self.store))
        return super().claim()


class ClaimsUnhealed(RangePass):
    """Drops what aborted, and leaves what committed without its shadow cells."""

    def apply(self, plans: Sequence[RowPlan]) -> None:
        """Heal nothing."""
        super().apply([plan._replace(heals=()) for plan in plans])


class LeavesTheLastRowOut(RangePass):
    """Passes over what the files of a region hold, and not over what is in memory yet."""

    def pages(self) -> Iterator[Sequence[FoundRow]]:
        """Leave out the last row."""
        for page in super().pages():
            yield page[:-1]


# -- the plan --------------------------------------------------------------------------------------


class UsesNowForTheWatermark(Compaction):
    """Takes what began just now for what can no longer commit."""

    def read_low_watermark(self) -> Timestamp:
        """Return a timestamp that is no promise."""
        low_watermark = super().read_low_watermark()
        return Timestamp(max(low_watermark, self.find_newest_timestamp(low_watermark)))


class PrunesToTheWatermark(Compaction):
    """Takes L for healed, whatever was claimed."""

    def minimum(
        self, standings: Sequence[TableStanding], claims: Iterable[Claim], *, grace_s: float
    ) -> Timestamp:
        """Return L."""
        del standings, claims, grace_s
        return self.read_low_watermark()


class ClaimsOfOneSuffice(Compaction):
    """Takes the greatest claim of all ranges in place of the least."""

    def minimum(
        self, standings: Sequence[TableStanding], claims: Iterable[Claim], *, grace_s: float
    ) -> Timestamp:
        """Take the best."""
        del standings, grace_s
        return Timestamp(max((one.watermark for one in claims), default=0))


class DropsUnforbidden(RangePass):
    """Drops what did not commit, and does not forbid that it will."""

    def may_invalidate(self, start_ts: Timestamp) -> bool:
        """Forbid nothing."""
        del start_ts
        return False


class ClaimsMore(RangePass):
    """Claims a low watermark that is higher than the one it went by."""

    def claim(self) -> Claim:
        """Claim what has been issued by now."""
        newest = max(self.task.low_watermark, min(self.task.newest, self.task.low_watermark + MORE))
        self.task = replace(self.task, low_watermark=Timestamp(newest - newest % TIMESTAMP_STEP))
        return super().claim()


class HealsAnotherTime(RangePass):
    """Writes shadow cells that name another commit."""

    def apply(self, plans: Sequence[RowPlan]) -> None:
        """Heal wrongly."""
        super().apply(
            [
                plan._replace(
                    heals=[
                        put._replace(value=encode_long(decode_long(put.value, what="a heal") + 50))
                        for put in plan.heals
                    ]
                )
                for plan in plans
            ]
        )


class ForgetsInvalidations(Compaction):
    """Forgets what was forbidden as soon as what was committed."""

    def limits(self, standings: Sequence[TableStanding], claims: Sequence[Claim]) -> PruneLimits:
        """Have no grace."""
        found = super().limits(standings, claims)
        return replace(found, invalidation_horizon=found.horizon)


MORE: Final = 2_000 * 50 * 1000
"""Timestamps, which are two seconds of the world's time."""


COMPACTING: Final = USUAL._replace(
    **PLAIN,
    crowds=(0,),
    committers=(0,),
    keepers=(0,),
    compactors=(1, 2),
    exporters=(0,),
    operators=(0,),
    young_ms=(2_000,),
    compaction_pauses_s=(0.5, 2.0),
    compactor_stalls=(Stall(), Stall(0.01, 15.0)),
    post_commits=(("none",), ("sync", "none")),
)
"""Much that clients have left to be healed, and compactions all the time."""

COMPACTION_MUTANTS: Final[dict[str, Mutant]] = {
    "watermark read behind the pass": Mutant(
        Parts(range_pass=ReadsTheWatermarkLate), "I8|I10", COMPACTING
    ),
    "claimed unhealed": Mutant(Parts(range_pass=ClaimsUnhealed), "I8", COMPACTING),
    "last row left out": Mutant(Parts(range_pass=LeavesTheLastRowOut), "fsck", COMPACTING),
    "newest timestamp taken for the watermark": Mutant(
        Parts(compaction=UsesNowForTheWatermark),
        "lost append",
        COMPACTING._replace(
            calm_share=1.0,
            thinking_shares=(0.03,),
            thoughts_s=(3.0,),
            compaction_pauses_s=(0.2,),
            compactor_stalls=(Stall(),),
            other_fault_counts=(0,),
            pauses_s=(0.2,),
            workloads=(("appends",),),
        ),
    ),
    "pruned up to the watermark": Mutant(
        Parts(compaction=PrunesToTheWatermark), "stale read", COMPACTING
    ),
    "dropped unforbidden": Mutant(
        Parts(range_pass=DropsUnforbidden),
        "I8",
        COMPACTING._replace(
            calm_share=0.0,
            fault_counts=(0,),
            undisturbed_share=1.0,
            store_kinds=("cluster",),
            oracle_leases_s=(2.0,),
            oracle_stalls=(Stall(0.05, 10.0, "COMMIT_TABLE"),),
            compaction_pauses_s=(0.2,),
            compactor_stalls=(Stall(),),
            other_fault_counts=(0,),
            pauses_s=(0.2,),
            workloads=(("appends",),),
        ),
    ),
    "invalidations forgotten": Mutant(
        Parts(compaction=ForgetsInvalidations),
        "I8|stale read",
        COMPACTING._replace(
            calm_share=0.0,
            fault_counts=(0,),
            undisturbed_share=1.0,
            store_kinds=("cluster",),
            oracle_leases_s=(2.0,),
            oracle_stalls=(Stall(0.05, 14.0, "COMMIT_TABLE"),),
            compaction_pauses_s=(0.1,),
            compactor_stalls=(Stall(),),
            compactors=(1,),
            other_fault_counts=(0,),
            pauses_s=(0.2,),
        ),
    ),
    "claimed too much": Mutant(
        Parts(range_pass=ClaimsMore), "fsck", COMPACTING._replace(timestamps=("world",))
    ),
    "healed at another time": Mutant(Parts(range_pass=HealsAnotherTime), "I8", COMPACTING),
    "one claim suffices": Mutant(
        Parts(compaction=ClaimsOfOneSuffice),
        "I8|I10",
        COMPACTING._replace(
            calm_share=0.0,
            fault_counts=(0,),
            undisturbed_share=0.0,
            lost=(0.03,),
            unheard=(0.03,),
            compactors=(2,),
            compaction_pauses_s=(0.3,),
            compactor_stalls=(Stall(),),
            other_fault_counts=(0,),
            post_commits=(("none",),),
        ),
    ),
}
"""By name."""
