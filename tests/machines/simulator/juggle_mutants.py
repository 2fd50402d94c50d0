"""The client for asyncio with a guard taken out, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from omidpy import aio
from omidpy.aio import lanes
from omidpy.aio import manager as aio_manager
from omidpy.aio.lanes import Lane
from omidpy.model import TransactionStatus
from tests.machines.simulator.mutants import BUSY
from tests.machines.simulator.simulation import Mutant, Parts, Patch

JUGGLING: Final = BUSY._replace(
    jugglers=(2,),
    juggle_pauses_s=(0.1,),
    juggle_cancel_shares=(0.5,),
    juggle_limit_shares=(0.5,),
    juggle_lives_s=((15.0,),),
    juggle_endings=(("well", "cancelled"),),
    other_fault_counts=(0,),
    juggler_stalls=BUSY.client_stalls[:1],
    pauses_s=(3.0,),
    workloads=(("long fork",),),
)
"""Tasks that are cancelled, and little else."""

_commit = aio.Transaction.commit
_run = Lane.run


async def leaves_at_once(future: asyncio.Future[Any]) -> Any:
    """Leave a call whose thread goes on."""
    return await asyncio.shield(future)


async def runs_beside_others(self: Lane, function: Callable[..., Any], /, *args: Any) -> Any:
    """Run a call whatever else of its transaction is under way."""
    return await self._threads.run(function, *args)


async def is_told_aborted(self: aio.Transaction) -> None:
    """Say of a commit that is cancelled that it was rolled back."""
    try:
        await _commit(self)
    except asyncio.CancelledError:
        self.blocking.status = TransactionStatus.ROLLED_BACK
        raise


async def keeps_what_timed_out(self: aio.Savepoint, *error: Any) -> None:
    """Leave a savepoint as it is, though its task is cancelled meanwhile."""
    assert self._blocking is not None, "entered before"
    await self._owner.lane.finish(self._blocking.__exit__, *error)


async def runs_when_nobody_waits(self: Lane, function: Callable[..., Any], /, *args: Any) -> Any:
    """Run a call in its turn, though its task was cancelled and has gone on."""
    return await asyncio.shield(asyncio.ensure_future(_run(self, function, *args)))


async def commits_what_timed_out(self: Lane, function: Callable[[], Any], *_: object) -> Any:
    """Let a write that is cancelled while it is under way be in what commits."""
    return await _run(self, function)


async def leaves_it_open(run: Any, open_one: Callable[[], Any], _: object) -> Any:
    """Forget what was opened for a task that is cancelled."""
    return await run(open_one)


JUGGLE_MUTANTS: Final[dict[str, Mutant]] = {
    "cancelled, and left at once": Mutant(
        Parts(patches=(Patch(lanes, "outlast", leaves_at_once),)), "I9", JUGGLING
    ),
    "calls of one transaction at once": Mutant(
        Parts(patches=(Patch(Lane, "run", runs_beside_others),)),
        "non-repeatable read|own write ignored",
        JUGGLING,
    ),
    "cancelled commit told as aborted": Mutant(
        Parts(patches=(Patch(aio.Transaction, "commit", is_told_aborted),)), "I9", JUGGLING
    ),
    "savepoint kept that timed out": Mutant(
        Parts(patches=(Patch(aio.Savepoint, "__aexit__", keeps_what_timed_out),)),
        "dirty read",
        JUGGLING,
    ),
    "cancelled, and run all the same": Mutant(
        Parts(patches=(Patch(Lane, "run", runs_when_nobody_waits),)),
        "I9",
        JUGGLING._replace(juggle_ways=(("hand",),)),
    ),
    "write kept that timed out": Mutant(
        Parts(patches=(Patch(Lane, "write", commits_what_timed_out),)),
        "dirty read",
        JUGGLING,
    ),
    "opened for nobody": Mutant(
        Parts(patches=(Patch(aio_manager, "opened_by", leaves_it_open),)),
        "leak",
        JUGGLING._replace(juggle_lives_s=((1.0, 3.0),)),
    ),
}
"""By name."""
