"""Which connection is served next, and how much of what it sent in one turn of the loop?

A connection that sent more than a turn takes comes again after all others had theirs.  It waits
longer where too many answers wait for a flush, where its share owes (`core/shares/rates.py`), and
with a request that takes long by itself (`core/shares/heavy.py`).  So one that floods the server
waits, and no other does.

Lacks sockets and bytes: a connection is told to take its turn, and serves what it kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable
from collections.abc import Set as AbstractSet
from typing import Any, Final, Generic, Protocol, TypeVar

from omidpy.base.telemetry.metrics import Metrics
from omidpy.base.timing.clock import Clock
from tso.core.machine import Machine
from tso.core.shares.clients import NUMBER_BITS
from tso.core.shares.heavy import HeavyTurns
from tso.core.shares.rates import WAIT_S
from tso.serving.log import log_event

logger = logging.getLogger(__name__)

MAX_TURN_WORK: Final = 1024
"""Work for one connection in one turn, in ordinary requests; shared by those that sent more.

What costs more than an ordinary request counts as several, so that a turn takes half a millisecond,
or one, whatever was sent."""

MIN_TURN_WORK: Final = 32
"""The same for each of very many that sent more."""

ASKS_S: Final = 1.0
"""So long after a request a client counts as one that asks, and heavy requests leave it room."""

LOADS_S: Final = 60.0
"""So long after a heavy request of its own it does not: loaders do not wait for each other."""

MAX_QUEUE_LENGTH: Final = 32_768
"""Answers that wait for a flush; above it no socket is read from until half of them left."""

MAX_GROUP_BYTES: Final = 32 * 1024 * 1024
"""What the cells may take that wait for a flush, as they came; the same."""


class Served(Hashable, Protocol):
    """What takes turns: a connection."""

    asked_s: float

    @property
    def client(self) -> int:
        """Its client's number; 0 where it told none."""
        ...

    @property
    def share(self) -> Hashable:
        """Whose share of all that is limited it takes."""
        ...

    @property
    def peer(self) -> str:
        """What it is called in the log."""
        ...

    def take_turn(self) -> None:
        """Serve what was kept, as far as a turn goes."""
        ...


class Loop(Protocol):
    """Where turns are given: a callback that fails there ends the server."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is answered any more."""
        ...

    def soon(self, callback: Callable[..., None], *args: Any) -> object:
        """Call back in the next turn of the loop."""
        ...

    def later(
        self, delay_s: float, callback: Callable[..., None], *args: Any
    ) -> asyncio.TimerHandle:
        """Call back after a while."""
        ...


C = TypeVar("C", bound=Served)


class Turns(Generic[C]):
    """The connections that wait for a turn, and what they wait for."""

    def __init__(
        self,
        machine: Machine[C],
        loop: Loop,
        *,
        clock: Clock,
        metrics: Metrics,
        connections: Collection[C],
        is_sliced: Callable[[C], bool],
    ) -> None:
        """Have none that waits.

        Args:
            machine: The oracle, whose queue and rates say who must wait.
            loop: Where turns are given.
            clock: What time it is.
            metrics: Where waits are counted.
            connections: All there are, as they are at any moment.
            is_sliced: Whether a long request of a connection is read slice by slice, behind which
                it takes no turn.
        """
        self.work = MAX_TURN_WORK
        """How much is done for a connection in this turn: ordinary requests, or the like."""
        rates = machine.rates
        self.over: AbstractSet[int] = frozenset() if rates is None else rates.over
        """Empty where no share is over its rate; else `defers` knows."""
        self._machine = machine
        self._loop = loop
        self._clock = clock
        self._metrics = metrics
        self._connections = connections
        self._is_sliced = is_sliced
        self._behind_count = 0
        self._paused: list[C] = []
        self._heavy: HeavyTurns[C] = HeavyTurns()
        self._heavy_timer: asyncio.TimerHandle | None = None
        self._deferred: dict[C, asyncio.TimerHandle | None] = {}
        """Who waits because its share is in debt; None: it has waited."""

    @property
    def is_full(self) -> bool:
        """Say whether too many answers wait for a flush."""
        machine = self._machine
        return machine.queue_length > MAX_QUEUE_LENGTH or machine.group_bytes > MAX_GROUP_BYTES

    def wait(self, connection: C) -> None:
        """Give a connection its next turn: after those of all others, and when there is room."""
        if self._is_sliced(connection):
            return
        if connection in self._heavy:
            self._watch_heavy()
        elif self.is_full:
            self._paused.append(connection)
        else:
            self._count_behind(1)
            self._loop.soon(self._give, connection)

    def _give(self, connection: C) -> None:
        self._count_behind(-1)
        connection.take_turn()

    def _count_behind(self, change: int) -> None:
        """Share the work of a turn among those that come again in the next one."""
        self._behind_count += change
        self.work = max(MIN_TURN_WORK, MAX_TURN_WORK // (1 + self._behind_count))

    def wake(self) -> None:
        """Give turns again to those that waited for room, once there is plenty."""
        machine = self._machine
        has_plenty = (
            machine.queue_length <= MAX_QUEUE_LENGTH // 2
            and machine.group_bytes <= MAX_GROUP_BYTES // 2
        )
        if self._paused and has_plenty:
            # Another list first: `wait` puts those back for whom there is no room again.
            paused, self._paused = self._paused, []
            for connection in paused:
                self.wait(connection)

    def forget(self, connection: C) -> None:
        """Drop a connection that is closed."""
        self._heavy.forget(connection)
        if (waiting := self._deferred.pop(connection, None)) is not None:
            waiting.cancel()

    # -- shares that owe -----------------------------------------------------------------------

    def defers(self, connection: C) -> bool:
        """Say whether a client must wait, since its share is over its rate: for a moment at most.

        What it asks then is served, so that no client waits longer than it would; what would make a
        great debt greater, the machine refuses.
        """
        if connection in self._deferred:
            if self._deferred[connection] is not None:
                return True
            del self._deferred[connection]
            return False
        rates = self._machine.rates
        if rates is None or not connection.client:
            return False
        debt_s = rates.debt_s(connection.client >> NUMBER_BITS, self._clock.monotonic_s())
        if not debt_s:
            return False
        wait_s = min(debt_s, WAIT_S)
        self._deferred[connection] = self._loop.later(wait_s, self._end_wait, connection)
        self._metrics.count("tso.rates.deferred")
        if debt_s > WAIT_S:
            log_event(
                logger,
                logging.WARNING,
                "over-its-rate",
                about=connection.share,
                peer=connection.peer,
                debt_s=round(debt_s, 1),
            )
        return True

    def _end_wait(self, connection: C) -> None:
        self._deferred[connection] = None
        connection.take_turn()

    # -- requests that take long ---------------------------------------------------------------

    def may_take_long(self, connection: C, size_bytes: int) -> bool:
        """Say whether a heavy request may be served now; else `wait` awaits its time."""
        now_s = self._clock.monotonic_s()
        others_ask = any(
            now_s - other.asked_s < ASKS_S and now_s - self._heavy.last_s(other) > LOADS_S
            for other in self._connections
            if other is not connection
        )
        return self._heavy.may_go(connection, size_bytes, now_s, others_ask=others_ask)

    def _watch_heavy(self) -> None:
        """Come back when the next heavy request is due."""
        due_s = self._heavy.due_s
        if due_s is not None and self._heavy_timer is None and not self._loop.is_over:
            left_s = max(0.0, due_s - self._clock.monotonic_s())
            self._heavy_timer = self._loop.later(left_s, self._let_heavy_go)

    def _let_heavy_go(self) -> None:
        """Give one that waits with a heavy request its turn, if it is time: one in a turn."""
        self._heavy_timer = None
        connection = self._heavy.next(self._clock.monotonic_s())
        if connection is not None:
            self.wait(connection)
        self._watch_heavy()
