"""An instance of the oracle before it answers: what it took over, and the machine that decides.

`tso-server`, the oracle inside a client's process, and the simulator begin here, each with its own
persistence and lease.  Lacks how requests come (`serving`, `driver.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

from omidpy.base.telemetry.metrics import NO_METRICS, Metrics
from omidpy.base.timing.clock import Clock
from omidpy.model import Timestamp
from omidpy.wire.messages import PeerCapabilities
from tso.core.events import Ticket, now_by
from tso.core.machine import Machine
from tso.core.settings import Settings

if TYPE_CHECKING:
    from tso.durable.persist import Persistence


@dataclass(frozen=True, slots=True)
class Instance(Generic[Ticket]):
    """One that has begun: no instance before it can raise its ceiling any more."""

    machine: Machine[Ticket]
    settings: Settings
    """As chosen, with the age that a transaction may have on this store."""
    epoch: Timestamp
    """No transaction that began at or below it can commit."""

    def capabilities(self, store_id: str | None) -> PeerCapabilities:
        """Return what clients are told of it; `store_id` None: nothing is persisted."""
        return PeerCapabilities(
            store_id=None if store_id is None else store_id.encode(),
            epoch=self.epoch,
            max_transaction_age_ms=self.settings.max_transaction_age_ms,
            max_commit_cells=self.machine.max_commit_cells,
        )


def begin(
    settings: Settings,
    persistence: Persistence,
    clock: Clock,
    *,
    max_transaction_age_ms: int | None,
    accept_clock: bool = False,
    metrics: Metrics = NO_METRICS,
    machine: Any = Machine,
) -> Instance[Any]:
    """Take over the timestamps of a store, and make the machine that goes on from there.

    Args:
        settings: What the machine is made with.
        persistence: Whose lease, if it has one, is held.
        clock: What time it is.
        max_transaction_age_ms: Older transactions can no longer commit; None: as the store's
            history has it.
        accept_clock: Begin although the clock is more than 30 days above the last timestamp.
        metrics: Where counters go.
        machine: The machine's class, or a broken variant of it.

    Raises:
        ConfigError: the wall clock is absurd, or the store's timestamps were lost.
        LeaseLost: another oracle has taken over meanwhile.
    """
    now = now_by(clock)
    inherited = persistence.start(settings, now, accept_clock=accept_clock)
    age_ms = inherited.transaction_age_ms(max_transaction_age_ms)
    settings = replace(settings, max_transaction_age_ms=age_ms)
    made = machine(settings, inherited, now, metrics=metrics)
    return Instance(made, settings, Timestamp(inherited.epoch))
