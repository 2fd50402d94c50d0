"""Exporters with one part broken on purpose, by name: each must be found by the simulator."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from omidpy.base.tables import CONTROL_TABLE
from omidpy.commit import outcome
from omidpy.recipes.export_queue.delivery.bucket import Delivery
from omidpy.recipes.export_queue.delivery.failing import Paused
from omidpy.recipes.export_queue.entries.view import View
from omidpy.tx import transaction
from tests.machines.simulator.plan import USUAL
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall

_send = Delivery._send
_init = View.__init__


def takes_refusals_for_deliveries(
    self: Any, lease: Any, patience: Any, good: Any, *rest: Any
) -> int:
    """Count what was handed over, whatever became of it."""
    with suppress(Paused):
        return _send(self, lease, patience, good, *rest)
    return len(good)


def takes_snapshots_first(self: Any, tm: Any, table: str, **settings: Any) -> None:
    """Read the low watermark behind the snapshot."""
    _init(self, tm, table, **settings)
    self.low_ts = tm.low_watermark()


EXPORTING: Final = USUAL._replace(
    calm_share=1.0,
    compactors=(0,),
    exporters=(1, 2),
    operators=(0,),
    adding_shares=(1.0,),
    pauses_s=(0.1,),
    thinking_shares=(0.0,),
    other_fault_counts=(0,),
    exporter_stalls=(Stall(),),
)
"""Entries that are added all the time, and delivered at once."""


EXPORT_MUTANTS: Final[dict[str, Mutant]] = {
    "refusal taken for delivered": Mutant(
        Parts(patches=(Patch(Delivery, "_send", takes_refusals_for_deliveries),)),
        "E1",
        EXPORTING._replace(pauses_s=(1.0,), troubles=(0.3,)),
    ),
    "removed taken for never written": Mutant(
        Parts(
            patches=(
                Patch(outcome, "OWN_TABLE_PREFIX", "nobody's "),
                Patch(transaction, "OWN_TABLE_PREFIX", "nobody's "),
            )
        ),
        "E1",
        EXPORTING._replace(
            store_kinds=("file", "shared"),
            decision_memories=(4,),
            troubles=(0.0,),
            late_message_shares=(0.05,),
            workloads=(("long fork",),),
        ),
    ),
    "snapshot before the watermark": Mutant(
        Parts(patches=(Patch(View, "__init__", takes_snapshots_first),)),
        "E1",
        EXPORTING._replace(
            conflict_maps=(8,),
            exporter_stalls=(Stall(0.3, 6.0, f"get {CONTROL_TABLE}"),),
            thinking_shares=(0.05,),
            thoughts_s=(3.0,),
        ),
    ),
}
"""By name."""
