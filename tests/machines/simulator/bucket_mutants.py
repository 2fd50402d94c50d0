"""Queues that get other buckets, with one part broken on purpose: each must be found, by name."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from omidpy.recipes.export_queue.entries.stored.state import Definition
from omidpy.recipes.export_queue.queue import ExportQueue as Queue
from omidpy.recipes.export_queue.upkeep import rebucketing
from omidpy.recipes.export_queue.upkeep.handover import begin_epochs
from omidpy.recipes.export_queue.upkeep.manual.letters import DeadLetters
from omidpy.recipes.export_queue.upkeep.rebucketing import Drain, Prepare, Settle, Sweep, Switch
from tests.machines.simulator.export_mutants import EXPORTING
from tests.machines.simulator.plan import USUAL
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall

_runner = Queue.runner


def finds_nothing_waiting(*_: Any) -> str:
    """Take the old buckets for empty."""
    return ""


def moves_no_letters(*_: Any) -> None:
    """Leave what was set aside where it is."""


def settles_unfenced(self: Any, env: Any, raw: Any, known: Any) -> Any:
    """Wait until all who add know of it, and let those commit that began before."""
    del env, raw, known
    return Drain(self.queue_id, self.made, self.old, self.first_table)


def believes_for_ever(self: Any) -> Any:
    """Never read the definition again."""
    return self._definition


def skips_poison(self: Any, exporter: Any, **settings: Any) -> Any:
    """Set poison aside, and nothing that is behind it."""
    return _runner(self, exporter, **{**settings, "poison": "skip"})


def gives_all_up(self: Any, key: Any) -> list[Any]:
    """Take what waits behind poison for poison."""
    return [grave for _, grave in self._graves() if key is None or grave.key == key]


def adds_to_the_old(self: Definition) -> Definition:
    """Add to the buckets that are exported, also while the next ones are made."""
    return self


def forgets_the_dead(self: Any, env: Any, raw: Any, known: Any) -> Any:
    """Switch when entries are out, whatever was asked to be tried again since."""
    successor = known.successor
    if known.number == self.old and successor is not None:
        begin_epochs(env.tm, self.queue_id, known, successor)
        new = msgspec.structs.replace(
            known,
            number=successor.number,
            last=known.next_number() - 1,
            buckets=successor.buckets,
            successor=None,
        )
        if not env.replace(self.queue_id, raw, new):
            return self.again()
    return Sweep(self.queue_id, self.made, self.old, self.first_table)


KEEPING: Final = EXPORTING._replace(
    exporters=(1,),
    keepers=(1,),
    keeper_verbs=(("rebucket",),),
    keeper_pauses_s=(0.1,),
    keeper_stalls=(Stall(),),
    poison_shares=(0.0,),
    pauses_s=(0.2,),
)
"""Queues that get other buckets all the time."""

FAILING: Final = KEEPING._replace(
    keepers=(2,),
    leases_s=(3.0,),
    keeper_verbs=(("rebucket", "rebucket", "fail"),),
    keeper_stalls=(Stall(0.5, 10.0, "create_table"),),
)
"""Two operators: one of them stands still right before the next table, and is failed meanwhile."""

LEAVING: Final = KEEPING._replace(keeper_stalls=(Stall(0.8, 6.0, "drop_table"),))
"""With a while between the last that is exported of the old buckets, and their end."""

SLOWLY: Final = LEAVING._replace(thinking_shares=(0.3,), thoughts_s=(15.0,), pauses_s=(0.2,))
"""Beside transactions that take long."""

POISONED: Final = KEEPING._replace(
    keeper_verbs=USUAL.keeper_verbs,
    keeper_pauses_s=(0.5,),
    poison_shares=(0.2,),
    pauses_s=(0.5,),
)
"""Beside entries that the receiver refuses."""


def _patched(owner: Any, name: str, value: Any) -> Parts:
    return Parts(patches=(Patch(owner, name, value),))


BUCKET_MUTANTS: Final[dict[str, Mutant]] = {
    "fenced at once": Mutant(_patched(rebucketing, "SETTLE_S", 0.0), "E1|E2", KEEPING),
    "settled unfenced": Mutant(_patched(Settle, "act", settles_unfenced), "E1", SLOWLY),
    "switched before it is empty": Mutant(
        _patched(rebucketing, "waiting", finds_nothing_waiting),
        "E1|E2",
        KEEPING._replace(troubles=(0.6,)),
    ),
    "dead letters left behind": Mutant(
        _patched(rebucketing, "move_dead", moves_no_letters), "E1", POISONED
    ),
    "switched without a look at the dead": Mutant(
        _patched(Switch, "act", forgets_the_dead), "E1", POISONED
    ),
    "definition believed for ever": Mutant(
        _patched(Queue, "_current", believes_for_ever), "E1", LEAVING
    ),
    "added to the old meanwhile": Mutant(
        _patched(Definition, "of_adders", adds_to_the_old), "E1", LEAVING
    ),
    "poison alone set aside": Mutant(_patched(Queue, "runner", skips_poison), "E2", POISONED),
    "table of nobody kept": Mutant(_patched(Prepare, "_is_named", lambda *_: True), "E5", FAILING),
    "given up with what waits": Mutant(
        _patched(DeadLetters, "_poison", gives_all_up), "E1", POISONED
    ),
}
"""By name."""
