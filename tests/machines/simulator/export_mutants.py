"""Exporters with one part broken on purpose, by name: each must be found by the simulator."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from omidpy.base.tables import CONTROL_TABLE
from omidpy.commit import outcome
from omidpy.recipes.export_queue.delivery import bucket
from omidpy.recipes.export_queue.delivery.bucket import Delivery
from omidpy.recipes.export_queue.delivery.failing import Paused
from omidpy.recipes.export_queue.entries.acknowledgement import remove
from omidpy.recipes.export_queue.entries.ordering import Window
from omidpy.recipes.export_queue.entries.stored.state import BucketRows
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.exporter import Deposed
from omidpy.tx import transaction
from tests.machines.simulator.plan import PLAIN, USUAL
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


_deliver_batch = Delivery._deliver_batch
_export = Delivery._export
_replace = BucketRows.replace


def moves_the_cursor_first(
    self: Any, lease: Any, memory: Any, graves: Any, batch: Any, *rest: Any
) -> Any:
    """Say how far it has come before it has got there."""
    lease.update(**self._moved(batch[-1].position))
    return _deliver_batch(self, lease, memory, graves, batch, *rest)


def removes_first(self: Any, lease: Any, patience: Any, good: Any, *rest: Any) -> int:
    """Remove rows, and then hand over what was in them."""
    remove(self._tm.store, self._in_store, [found for found, _ in good])
    return _send(self, lease, patience, good, *rest)


def scans_from_the_snapshot(view: Any, window: Any) -> int:
    """Begin the next scan where this one's snapshot was, which sees not all that began before."""
    del window
    return int(view.start_ts)


def waits_for_nobody(self: Window) -> bool:
    """Take entries in the order of their begins."""
    if self._next is not None and not self._waiting:
        self._push(self._next)
        self._next = next(self._found, None)
        return self._has_first()
    return bool(self._waiting)


def writes_over_the_state(self: BucketRows, old: Any, state: Any, removing: Any = ()) -> Any:
    """Write the state of a bucket, whoever has it by now."""
    row = self._places.bucket(self.number, old.bucket)
    return _replace(self, old._replace(raw=self._control.read(row)), state, removing)


def hands_over_and_believes(self: Any, lease: Any, good: Any, *rest: Any) -> int:
    """Take an answer that speaks of a newer owner for one that all was there already."""
    try:
        return _export(self, lease, good, *rest)
    except Deposed:
        return len(good)


EXPORTING: Final = USUAL._replace(
    **PLAIN,
    crowds=(0,),
    committers=(0,),
    keepers=(0,),
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


TAKING_OVER: Final = EXPORTING._replace(
    exporters=(2,),
    leases_s=(3.0,),
    exporter_stalls=(Stall(0.05, 9.0), Stall(0.3, 9.0, "check_and_mutate|write_guarded")),
    troubles=(0.0, 0.3),
)
"""Exporters that stand still, and find their buckets in other hands."""

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
    "deposed, and delivered": Mutant(
        Parts(
            patches=(
                Patch(BucketRows, "replace", writes_over_the_state),
                Patch(Delivery, "_export", hands_over_and_believes),
            )
        ),
        "E1",
        TAKING_OVER._replace(is_fencing=(True,)),
    ),
    "cursor moved first": Mutant(
        Parts(patches=(Patch(Delivery, "_deliver_batch", moves_the_cursor_first),)),
        "E1",
        EXPORTING._replace(troubles=(0.3,)),
    ),
    "rows removed first": Mutant(
        Parts(patches=(Patch(Delivery, "_send", removes_first),)),
        "E1",
        EXPORTING._replace(troubles=(0.3,)),
    ),
    "scan begun at the snapshot": Mutant(
        Parts(patches=(Patch(bucket, "_scan_from", scans_from_the_snapshot),)),
        "E1",
        EXPORTING._replace(thinking_shares=(0.1,), thoughts_s=(3.0,)),
    ),
    "order of begins": Mutant(
        Parts(patches=(Patch(Window, "_has_first", waits_for_nobody),)),
        "E2",
        EXPORTING._replace(thinking_shares=(0.3,), thoughts_s=(3.0,)),
    ),
}
"""By name."""
