"""What may go of old versions, and who may see them still, with a guard taken out, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from compactor.pruning.collection import Collection
from compactor.ranges.range_pass import RangePass
from compactor.rows.heal import RowPlan
from compactor.rows.old_versions import Column
from omidpy.base.timing.ages import Ages
from omidpy.facts.holds import HeldSnapshot
from omidpy.facts.watermarks import Hold, Watermarks
from omidpy.model import Cell, Timestamp
from omidpy.reading import snapshot
from omidpy.reading.changes.window import WindowReader
from tests.machines.simulator.compaction_mutants import COMPACTING
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall

COLLECTING: Final = COMPACTING._replace(
    compactors=(2,),
    retentions_s=(0.0,),
    compaction_pauses_s=(0.3,),
    holders=(2,),
    hold_pauses_s=(0.3,),
    pauses_s=(0.1,),
    workloads=(("registers", "bank"),),
)
"""Compactors that keep nothing for long, and readers who look again."""

HELD: Final = COLLECTING._replace(held_shares=(1.0,), hold_lengths_s=((5.0, 15.0),))
READ: Final = COLLECTING._replace(held_shares=(0.0,), hold_lengths_s=((5.0, 15.0),))


# -- the horizon -----------------------------------------------------------------------------------


def acts_at_once(self: Watermarks, ages: Ages, *, grace_s: float) -> Timestamp:
    """Act on a horizon as soon as it is published."""
    del ages, grace_s
    return self.collection_horizon()


def publishes_nothing(self: Watermarks, to: Timestamp, clock: Any) -> None:
    """Tell no reader of a horizon."""


def acts_on_its_own(self: Collection, low_watermark: Timestamp) -> Timestamp:
    """Drop below the horizon that retention allows, whatever was published."""
    return self.target(low_watermark)


def never_looks(
    self: snapshot.Snapshot, table: str | None = None, *, sees_nothing: bool = False
) -> None:
    """Give out whatever was read."""


def feeds_without_a_look(self: WindowReader, window: Any) -> None:
    """Tell changes of whatever versions are left."""


# -- holds -----------------------------------------------------------------------------------------


def knows_of_no_hold(self: Collection) -> list[Hold]:
    """Collect as if nobody held anything."""
    del self
    return []


def holds_whatever_was_published(self: HeldSnapshot) -> None:
    """Be content with having written it."""


def raises_no_intent(self: Collection, target: Timestamp) -> None:
    """Read the holds, and publish."""


# -- versions --------------------------------------------------------------------------------------


def goes_by_the_beginning(self: Column, cell: Cell, commit_ts: int) -> None:
    """Judge a version by when its transaction began."""
    sees(self, cell, cell.version if cell.version < self.horizon else commit_ts)


sees: Final = Column.see


def shows_what_is_seen_now(self: Column, cell: Cell, commit_ts: int) -> None:
    """Take the newest of all versions for the top, beyond the horizon, too."""
    if self.top is None or cell.version > self.top[0].version:
        self.top = self.latest = cell, min(commit_ts, self.horizon - 1)


class DropsTombstonesFirst(RangePass):
    """Drops what hides before what it hides."""

    def apply(self, plans: Sequence[RowPlan]) -> None:
        """Take them in the other order."""
        super().apply([one._replace(superseded=one.tops, tops=one.superseded) for one in plans])


COLLECTION_MUTANTS: Final[dict[str, Mutant]] = {
    "horizon acted on at once": Mutant(
        Parts(patches=(Patch(Watermarks, "aged_collection_horizon", acts_at_once),)),
        "I10",
        READ._replace(
            compactor_stalls=(Stall(),),
            compaction_pauses_s=(0.1,),
            looks_s=(0.2,),
            hold_lengths_s=((2.0,),),
        ),
    ),
    "horizon not published": Mutant(
        Parts(
            patches=(
                Patch(Watermarks, "publish_collection_horizon", publishes_nothing),
                Patch(Collection, "settle", acts_on_its_own),
            )
        ),
        "I10",
        READ,
    ),
    "horizon not looked at": Mutant(
        Parts(patches=(Patch(snapshot.Snapshot, "check_horizon", never_looks),)), "I10", READ
    ),
    "young for a minute": Mutant(
        Parts(patches=(Patch(snapshot, "HORIZON_FREE_AGE_S", 60.0),)), "I10", READ
    ),
    "fed below the horizon": Mutant(
        Parts(patches=(Patch(WindowReader, "check_horizon", feeds_without_a_look),)),
        "feed",
        COLLECTING._replace(
            holders=(0,), followers=(2,), follow_pauses_s=(6.0,), follow_page_shares=(0.5,)
        ),
    ),
    "holds not read": Mutant(
        Parts(patches=(Patch(Collection, "holds", knows_of_no_hold),)), "hold", HELD
    ),
    "hold not confirmed": Mutant(
        Parts(patches=(Patch(HeldSnapshot, "confirm", holds_whatever_was_published),)),
        "hold",
        HELD,
    ),
    "intent not raised": Mutant(
        Parts(patches=(Patch(Collection, "announce", raises_no_intent),)), "hold", HELD
    ),
    "versions judged by their beginning": Mutant(
        Parts(patches=(Patch(Column, "see", goes_by_the_beginning),)), "I10", COLLECTING
    ),
    "top beyond the horizon": Mutant(
        Parts(patches=(Patch(Column, "see", shows_what_is_seen_now),)), "I10", COLLECTING
    ),
    "tombstones dropped first": Mutant(Parts(range_pass=DropsTombstonesFirst), "I10", COLLECTING),
}
"""By name."""
