"""Exporters with one part broken on purpose, by name: each must be found by the simulator."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from omidpy.commit import outcome
from omidpy.recipes.export_queue.delivery.bucket import Delivery
from omidpy.recipes.export_queue.delivery.failing import Paused
from omidpy.recipes.export_queue.entries.view import View
from tests.machines.simulator.simulation import Parts, Patch

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


EXPORT_MUTANTS: Final[dict[str, Parts]] = {
    "refusal taken for delivered": Parts(
        patches=(Patch(Delivery, "_send", takes_refusals_for_deliveries),)
    ),
    "removed taken for never written": Parts(
        patches=(Patch(outcome, "OWN_TABLE_PREFIX", "nobody's "),)
    ),
    "snapshot before the watermark": Parts(
        patches=(Patch(View, "__init__", takes_snapshots_first),)
    ),
}
"""By name."""
