"""One instance of the oracle, from standing by to its end: the real server on a simulated loop.

Real are the server, its connections and sessions, the machine, the persistence and the lease; they
are put together here as `tso/cli.py` does it.  The event loop has virtual time, and the thread that
touches the store is a program.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from omidpy.base.telemetry.metrics import NO_METRICS
from omidpy.errors import ConfigError, OmidError, StorageUnavailable
from omidpy.facts.commit_table import create_system_tables
from tests.machines.simulator.network import Network, Transport
from tests.machines.simulator.store import SharedStore
from tests.machines.simulator.watch import Wiretap
from tests.machines.simulator.world import Process, Program, World
from tso.cli import STANDBY_LOOK_S, STOP_S
from tso.core.settings import Settings
from tso.durable.lease import AnyLease
from tso.instance import begin
from tso.serving.connection import Connection
from tso.serving.server import MAX_CONNECTION_COUNT, BrokenInvariant, OracleServer

if TYPE_CHECKING:
    from omidpy.oracle.zookeeper import ZooKeeperAddress
    from tests.machines.simulator.ensemble import Ensemble
    from tests.machines.simulator.simulation import Parts

PORT: Final = 24758

LOOK_S: Final = 1e-5
"""A turn of the loop in which the oracle looks whether somebody asks again at once."""


class Loop:
    """As much of an event loop as the server uses."""

    def __init__(self, world: World, process: Process, slice_s: float) -> None:
        self._world = world
        self._turns_s = {"_slice": slice_s, "_look": LOOK_S}
        """How long a turn takes that does more than others, by what it does."""
        self._process = process
        self.factory: Callable[[], Connection] | None = None
        """Makes the protocol of a new connection, once the server listens."""

    def time(self) -> float:
        """Return the elapsed seconds."""
        return self._process.clock.monotonic_s()

    def call_soon(self, act: Callable[..., object], *args: Any, context: object = None) -> None:
        """Call behind whatever else happens now, or when the turn is over in which that does."""
        delay_s = self._turns_s.get(getattr(act, "__name__", ""), 0.0)
        self._world.at(delay_s, self._process, lambda: void(act(*args)))

    def call_later(self, delay_s: float, act: Callable[..., object], *args: Any) -> Timer:
        """Call after a while."""
        timer = Timer(lambda: act(*args))
        self._world.at(delay_s, self._process, timer.ring)
        return timer

    def create_future(self) -> asyncio.Future[None]:
        """Return a future of this loop."""
        return asyncio.Future(loop=cast("asyncio.AbstractEventLoop", self))

    def get_debug(self) -> bool:
        """Say no."""
        return False

    def call_exception_handler(self, context: object) -> None:
        """Forget what nobody waited for."""

    async def create_server(self, factory: Callable[[], Connection], **_: object) -> Loop:
        """Let connections come."""
        self.factory = factory
        return self

    def close(self) -> None:
        """Let no more connections come."""
        self.factory = None


class Timer:
    """A call that can be cancelled."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    def cancel(self) -> None:
        """Never call."""
        self._act = None

    def ring(self) -> None:
        """Call now."""
        if self._act is not None:
            self._act()


def void(_: object) -> None:
    """Forget a result."""


class Inline(Executor):
    """Does at once what another thread would do at the same time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an instance is put into."""

    world: World
    network: Network
    store: SharedStore
    settings: Settings
    lease_period_s: float
    parts: Parts
    connection_count: int | None = None
    """How many clients it has room for."""
    slice_s: float = 0.0
    """How long a slice takes of what is done in slices."""
    ensemble: Ensemble | None = None
    """Where oracles hold their lease besides; None: there is no ZooKeeper."""
    znode_leases: Mapping[str, ZooKeeperAddress] = field(default_factory=dict)
    """By the name of an oracle's host: as what address it is told where."""


class Instance:
    """One process of `tso-server`."""

    def __init__(
        self, around: Surroundings, process: Process, name: str, on_end: Callable[[], None]
    ) -> None:
        self.process = process
        self.name = name
        self.is_answering = False
        self._around = around
        self._on_end = on_end
        self._loop = Loop(around.world, process, around.slice_s)
        self._server: OracleServer | None = None
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()
        self._transports: list[Transport] = []
        self._program: Program = process.start(self._run)

    # -- the thread that touches the store -------------------------------------------------------

    def _run(self) -> None:
        around, process = self._around, self.process
        store = around.store.of(process)
        own = around.parts.lease(
            store, holder=self.name, clock=process.clock, period_s=around.lease_period_s
        )
        lease: AnyLease = own
        address = around.znode_leases.get(process.name)
        if around.ensemble is not None and address is not None:
            lease = around.parts.znode_lease(
                own,
                around.ensemble.client(address.timeout_s),
                address,
                holder_address=f"{process.name}:{PORT}",
                clock=process.clock,
            )
        try:
            create_system_tables(store)
            self._acquire(lease)
            self._serve(store, lease)
        except ConfigError as error:
            around.store.watch.found(f"operator: {self.name} wants one: {error}")
        except OmidError as error:
            around.world.note(f"{self.name} ends: {type(error).__name__}")
            around.world.counts[f"oracles ended by {type(error).__name__}"] += 1
        except BrokenInvariant as broken:
            around.store.watch.found(f"invariant: {self.name} broke one: {broken}")
        lease.release()
        around.world.at(0, None, self._end)

    def _end(self) -> None:
        if not self.process.is_dead:
            self.process.crash()
            self._on_end()

    def _acquire(self, lease: AnyLease) -> None:
        while True:
            try:
                if lease.try_acquire() is None:
                    return
            except StorageUnavailable:
                pass
            self._program.sleep(STANDBY_LOOK_S)

    def _serve(self, store: Any, lease: AnyLease) -> None:
        around, clock = self._around, self.process.clock
        persistence = around.parts.persistence(store, lease, reader=Inline())
        begun = begin(
            around.settings,
            persistence,
            clock,
            max_transaction_age_ms=around.settings.max_transaction_age_ms,
            machine=around.parts.machine,
        )
        asyncio._set_running_loop(cast("asyncio.AbstractEventLoop", self._loop))
        try:
            self._server = server = OracleServer(
                begun.machine,
                persistence,
                lease=lease,
                capabilities=begun.capabilities(store.store_id),
                clock=clock,
                metrics=NO_METRICS,
                worker=self,
                connection_count=around.connection_count or MAX_CONNECTION_COUNT,
            )
        finally:
            asyncio._set_running_loop(None)
        lease.publish(address=f"{self.process.name}:{PORT}", epoch=begun.epoch)
        around.world.note(f"{self.name} answers from {begun.epoch}")
        around.world.counts["oracles that answered"] += 1
        self._listen(server)
        self._work(server)

    def _listen(self, server: OracleServer) -> None:
        listening = server.listen(cast("Any", _Listening()))
        try:
            listening.send(None)
        except StopIteration:
            self._around.network.listeners[self.process.name] = self
            self.is_answering = True
            return
        raise AssertionError("nothing in it waits")

    def _work(self, server: OracleServer) -> None:
        """Do the jobs of the server until its end, and raise what ended it."""
        ended = server._ended
        while not ended.done() or self._jobs:
            if not self._jobs:
                self._program.wait(1.0)
                continue
            work, then = self._jobs.popleft()
            try:
                outcome = work()
            except Exception as error:  # noqa: BLE001 - the server sorts it
                outcome = error
            self._loop.call_soon(then, outcome)
            self._program.sleep(1e-6)
        self.is_answering = False
        for connection in list(server._connections):
            connection.close()
        ended.result()

    def hand_over(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Do something for the server when the program gets to it."""
        self._jobs.append((work, then))
        self._program.wake()

    def close(self) -> None:
        """Have nothing to give back: the program ends with its server."""

    # -- what others do to it --------------------------------------------------------------------

    def transport(self, peer: str) -> Transport:
        """Return its end of a new connection."""
        wiretap = Wiretap(self._around.store.watch, self.name, peer)
        transport = Transport(peer, wiretap, self._loop.call_soon)
        self._transports.append(transport)
        return transport

    def accept(self, transport: Transport) -> None:
        """Take the connection."""
        if self._loop.factory is None:
            transport.refuse()
        else:
            transport.protocol = self._loop.factory()
            transport.protocol.connection_made(transport)

    def stop(self) -> None:
        """Ask it to end, as SIGTERM does."""
        if self._server is not None and self.is_answering:
            self._server.stop()
            self._around.world.at(STOP_S, self.process, self._end)

    def hang_up(self) -> None:
        """Lose every connection."""
        for transport in self._transports:
            if transport.protocol is not None:
                transport.abort()

    def half_close(self, *, is_deaf: bool) -> None:
        """Let it hear nothing more by any connection that there is, or not be heard."""
        for transport in self._transports:
            (transport.requests if is_deaf else transport.flow).is_half_closed = True

    def crash(self) -> None:
        """End it without a word."""
        self.is_answering = False
        self._end()


class _Listening:
    def listen(self, backlog: int) -> None:
        """Have no queue."""
