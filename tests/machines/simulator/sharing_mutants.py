"""Tokens and parts with a guard taken out, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from omidpy.base.tables import CONTROL_TABLE
from omidpy.facts.registration import Flush, PartsRow, WorkerRow
from omidpy.storage.base import RowMutation
from omidpy.tx.parts import owner
from omidpy.tx.parts.owner import Parts
from omidpy.tx.writes.buffer import WriteBuffer
from tests.machines.simulator.mutants import BUSY
from tests.machines.simulator.simulation import Mutant, Patch
from tests.machines.simulator.simulation import Parts as World
from tests.machines.simulator.store import Stall

SHARING: Final = BUSY._replace(
    sharers=(2,),
    helpers=(3,),
    share_pauses_s=(0.3,),
    pauses_s=(3.0,),
    careless_shares=(0.0,),
    garbled_shares=(0.0,),
    flushes_bytes=(None,),
    ages_ms=(900_000,),
    conflict_maps=(4096,),
    workloads=(("long fork",),),
)
"""Transactions of many writers, and little else."""

IN_A_HURRY: Final = SHARING._replace(
    share_patiences_s=(0.5,),
    unnamed_shares=(1.0,),
    store_kinds=("cluster",),
    helper_stalls=(Stall(0.2, 2.0, "write v_shared|check_and_mutate"),),
)
"""Owners who do not wait for those who write one row after the other."""

_send = WorkerRow.send


def closes_nothing(self: PartsRow) -> None:
    """Let workers begin flushes for ever."""
    del self


def settles_nothing(self: Parts) -> None:
    """Commit what was merged, as if nobody else had written."""
    self._row.close()


def removes_nothing(self: Parts, *_: Any, **__: Any) -> None:
    """Leave what was given up where it is."""
    del self


def writes_first(self: Any, flush: Flush, batch: Mapping[str, Sequence[RowMutation]]) -> None:
    """Send cells, and announce them."""
    self._store.write(batch)
    _send(self, flush, {})


def announces_whatever(self: Any, name: bytes, flush: Flush, *, durable: bool = False) -> bool:
    """Announce a flush in a row that is closed."""
    self._store.write({CONTROL_TABLE: [self._announcement(name, flush)]}, durable=durable)
    return True


def counts_nothing(self: WriteBuffer, *_: Any, **__: Any) -> None:
    """Take a part, and count none of its cells."""
    del self


def compares_nothing(self: Parts, *_: Any) -> None:
    """Take merged cells for what their worker wrote."""
    del self


def takes_any(*_: Any) -> None:
    """Take every part for what its worker wrote."""


_announcement = WorkerRow._announcement


def acknowledges_at_once(self: WorkerRow, name: bytes, flush: Flush) -> RowMutation:
    """Say that a flush is in the store before it is sent."""
    return _announcement(self, name, msgspec.structs.replace(flush, is_acknowledged=True))


SHARING_MUTANTS: Final[dict[str, Mutant]] = {
    "row of parts left open": Mutant(
        World(patches=(Patch(PartsRow, "close", closes_nothing),)), "part", IN_A_HURRY
    ),
    "nobody answered for": Mutant(
        World(patches=(Patch(Parts, "settle", settles_nothing),)), "part", IN_A_HURRY
    ),
    "given up, and left there": Mutant(
        World(patches=(Patch(Parts, "_remove", removes_nothing),)),
        "part",
        IN_A_HURRY._replace(helper_stalls=(Stall(),), share_patiences_s=(0.3,)),
    ),
    "written, and then announced": Mutant(
        World(patches=(Patch(WorkerRow, "send", writes_first),)), "part", IN_A_HURRY
    ),
    "announced where it is closed": Mutant(
        World(patches=(Patch(WorkerRow, "_announce", announces_whatever),)), "part", IN_A_HURRY
    ),
    "acknowledged before it is sent": Mutant(
        World(patches=(Patch(WorkerRow, "_announcement", acknowledges_at_once),)),
        "part",
        IN_A_HURRY,
    ),
    "parts merged, and not counted": Mutant(
        World(patches=(Patch(WriteBuffer, "merge", counts_nothing),)),
        "part|I8|lost update",
        SHARING,
    ),
    "overwritten, and not compared": Mutant(
        World(patches=(Patch(Parts, "_compare", compares_nothing),)),
        "part",
        SHARING._replace(careless_shares=(0.5,), unnamed_shares=(0.0,)),
    ),
    "any part taken": Mutant(
        World(
            patches=(
                Patch(owner, "contradiction", takes_any),
                Patch(owner, "to_remove", lambda *_, **__: []),
            )
        ),
        "part",
        SHARING._replace(garbled_shares=(1.0,)),
    ),
}
"""By name."""
