"""Connections between clients and oracles: bytes that are slow, held up, cut into pieces or lost.

Each direction of a connection keeps its order, as TCP does; two connections keep none between them.
A partition holds bytes up until it is over.  The end of a connection travels behind its bytes, so
that what was sent before it may arrive after the client has connected anew.  A host that loses its
power says nothing at all, and of a connection that is half closed one direction carries nothing any
more while the other one does.
"""

from __future__ import annotations

import random
import select
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from omidpy.oracle.network import Poller, Reader
from omidpy.oracle.tls import TlsSocket
from tests.machines.simulator.world import Process, World

if TYPE_CHECKING:
    from tests.machines.simulator.watch import Wiretap


class End:
    """What travels behind the last byte."""

    def __init__(self, *, is_reset: bool) -> None:
        self.is_reset = is_reset


class Listener(Protocol):
    """An oracle that accepts connections."""

    @property
    def process(self) -> Process:
        """The process that it lives in."""
        ...

    def transport(self, peer: str) -> Transport:
        """Return its end of a new connection."""
        ...

    def accept(self, transport: Transport) -> None:
        """Take the connection."""
        ...


class Weather:
    """How the network, and the way to the store, are at the moment."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.slowness = 1.0
        self.late_share = 0.0
        """Messages between clients and oracles that come seconds late."""
        self._cut_until: dict[tuple[str, str], float] = {}

    def cut(self, source: str, target: str, seconds: float) -> None:
        """Let nothing pass from one process to another for a while."""
        self._cut_until[source, target] = self._world.now_s + seconds

    def clear(self) -> None:
        """Be fine from now on."""
        self._cut_until.clear()
        self.slowness = 1.0
        self.late_share = 0.0

    def held_up_s(self, source: str, target: str) -> float:
        """Return how long a partition still lasts; 0 if there is none."""
        return max(0.0, self._cut_until.get((source, target), 0.0) - self._world.now_s)

    def delay_s(self, rng: random.Random) -> float:
        """Return how long a message takes: mostly a fraction of a millisecond, seldom long."""
        delay_s = rng.uniform(0.0001, 0.001)
        if rng.random() < 0.02:
            delay_s += rng.expovariate(1 / 0.05)
        return delay_s * self.slowness


class Flow:
    """One direction of a connection."""

    def __init__(
        self,
        network: Network,
        source: Process,
        target: Process,
        rng: random.Random,
        deliver: Callable[[bytes | End], None],
    ) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._rng = rng
        self._deliver = deliver
        self._arrives_s = 0.0
        self._is_over = False
        self.is_half_closed = False
        """Whether nothing arrives any more, of which neither end is told."""

    def send(self, item: bytes | End) -> None:
        """Let bytes, or the end, arrive behind what was sent before."""
        if self._is_over:
            return
        self._is_over = isinstance(item, End)
        world, weather = self._network.world, self._network.weather
        delay_s = weather.held_up_s(self._source.name, self._target.name)
        delay_s += weather.delay_s(self._rng)
        if self._rng.random() < weather.late_share:  # lost, and sent again
            delay_s += self._rng.uniform(0, 10)
        self._arrives_s = max(self._arrives_s, world.now_s + delay_s)
        pieces: list[bytes | End] = [item]
        if isinstance(item, bytes) and len(item) > 1 and self._rng.random() < 0.1:
            middle = self._rng.randrange(1, len(item))
            pieces = [item[:middle], item[middle:]]
        for piece in pieces:
            self._deliver_at(self._arrives_s, piece)
            self._arrives_s += 1e-6

    def _deliver_at(self, arrives_s: float, item: bytes | End) -> None:
        def deliver() -> None:
            if self.is_half_closed:
                return
            what = "an end" if isinstance(item, End) else f"{len(item)} bytes"
            self._network.world.note(f"{self._source.name} -> {self._target.name} {what}")
            self._deliver(item)

        world = self._network.world
        world.at(arrives_s - world.now_s, self._target, deliver)


class Transport:
    """The oracle's end of a connection, as asyncio shows it to a protocol."""

    def __init__(self, peer: str, wiretap: Wiretap, call_soon: Callable[..., object]) -> None:
        self.flow: Flow
        """To the client."""
        self.requests: Flow
        """From the client."""
        self.protocol: Any = None
        self.wiretap = wiretap
        self._peer = peer
        self._call_soon = call_soon
        self._is_over = False
        self._is_paused = False
        self._unread: list[bytes | End] = []

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return who the peer is, or something whose options can be set."""
        return (self._peer, 0) if name == "peername" else _NoOptions()

    def set_write_buffer_limits(self, high: int) -> None:
        """Have no limits: a client reads what comes."""

    def get_write_buffer_size(self) -> int:
        """Say that everything was sent."""
        return 0

    def write(self, data: bytes) -> None:
        """Send answers."""
        if not self._is_over:
            self.wiretap.answered(data)
            self.flow.send(data)

    def close(self) -> None:
        """End the connection behind what was written."""
        self._end(is_reset=False)

    def abort(self) -> None:
        """End it by a reset."""
        self._end(is_reset=True)

    def refuse(self) -> None:
        """End a connection that nobody takes."""
        self._is_over = True
        self.flow.send(End(is_reset=True))

    def pause_reading(self) -> None:
        """Leave what comes in the kernel."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Take what came meanwhile."""
        self._is_paused = False
        unread, self._unread = self._unread, []
        for item in unread:
            self._call_soon(self.receive, item)

    def receive(self, item: bytes | End) -> None:
        """Hand over what arrived."""
        if self._is_over:
            return
        if self._is_paused:
            self._unread.append(item)
        elif isinstance(item, End):
            self._end(is_reset=False)
        else:
            self.wiretap.asked(item)
            self.protocol.data_received(item)

    def _end(self, *, is_reset: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self.flow.send(End(is_reset=is_reset))
            self._call_soon(self.protocol.connection_lost, None)


class _NoOptions:
    def setsockopt(self, *_: object) -> None:
        """Forget an option."""


class SimSocket:
    """The client's end of a connection: a socket that does not block, and its poller."""

    def __init__(self, process: Process, network: Network, rng: random.Random) -> None:
        self.flow: Flow
        """To the oracle."""
        self._process = process
        self._network = network
        self._rng = rng
        self._arrived = b""
        self._end: End | None = None
        self._is_reset_on_close = False

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 - a socket's own signature
        """Never block anyway."""

    def setsockopt(self, level: int, option: int, value: object) -> None:
        """Note whether closing resets."""
        self._is_reset_on_close |= option == socket.SO_LINGER

    def getsockname(self) -> str:
        """Return another address than the peer's."""
        return "here"

    def getpeername(self) -> str:
        """Return another address than ours."""
        return "there"

    def receive(self, item: bytes | End) -> None:
        """Keep what arrived, and wake whoever waits for it."""
        if isinstance(item, End):
            self._end = item
        else:
            self._arrived += item
        if (reader := self._network.readers.get(self)) is not None:
            reader.wake()

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """Send all, or a beginning."""
        del flags
        self._check()
        taken = bytes(data)
        if len(taken) > 1 and self._rng.random() < 0.05:
            taken = taken[: self._rng.randrange(1, len(taken))]
        self.flow.send(taken)
        return len(taken)

    def recv(self, size: int) -> bytes:
        """Return what is there."""
        if self._arrived:
            taken, self._arrived = self._arrived[:size], self._arrived[size:]
            return taken
        self._check()
        if self._end is None:
            raise BlockingIOError
        return b""

    def shutdown(self, how: int) -> None:
        """End both directions."""
        self._end = self._end or End(is_reset=False)
        if (reader := self._network.readers.get(self)) is not None:
            reader.wake()  # another thread of its process ends it under its reader
        self.flow.send(End(is_reset=self._is_reset_on_close))

    def close(self) -> None:
        """End both directions."""
        self.shutdown(socket.SHUT_RDWR)

    def _check(self) -> None:
        if self._end is not None and self._end.is_reset:
            raise ConnectionResetError("connection reset by peer")

    def poll(self, timeout: int, /) -> Sequence[object]:
        """Wait until there is something to read."""
        program = self._network.world.running
        if not self._is_readable and timeout > 0:
            assert program is not None, "a program reads"
            self._network.readers[self] = program
            program.wait(timeout / 1000)
            del self._network.readers[self]
        return [self] if self._is_readable else []

    @property
    def _is_readable(self) -> bool:
        return bool(self._arrived) or self._end is not None


class _AlwaysReady:
    def poll(self, timeout: int, /) -> Sequence[object]:
        return [timeout]


class Network:
    """Who listens where, and how a process gets there."""

    def __init__(self, world: World, weather: Weather) -> None:
        self.world = world
        self.weather = weather
        self.listeners: dict[str, Listener] = {}
        """By host name."""
        self.readers: dict[SimSocket, Any] = {}

    def of(self, process: Process) -> NetworkOf:
        """Return the network as one process sees it."""
        return NetworkOf(self, process)


class NetworkOf:
    """The `Network` that a client of the oracle is given."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    def connect(self, address: tuple[str, int], *, timeout_s: float) -> socket.socket:
        """Connect to whoever listens there."""
        world, weather = self._network.world, self._network.weather
        program = world.running
        assert program is not None, "a program connects"
        there, here = address[0], self._process.name
        held_up_s = weather.held_up_s(here, there) + weather.held_up_s(there, here)
        delay_s = 2 * weather.delay_s(self._process.dice("connecting"))
        program.sleep(min(delay_s + held_up_s, timeout_s))
        listener = self._network.listeners.get(there)
        if held_up_s + delay_s >= timeout_s or (
            listener is not None and listener.process.paused_until_s > world.now_s + timeout_s
        ):
            raise TimeoutError("timed out")
        if listener is None or listener.process.is_dead:
            raise ConnectionRefusedError("connection refused")
        return cast("socket.socket", self._connected(listener))

    def _connected(self, listener: Listener) -> SimSocket:
        network, process = self._network, self._process
        rng = process.dice("connections")
        client = SimSocket(process, network, random.Random(rng.getrandbits(64)))
        transport = listener.transport(process.name)
        client.flow = Flow(
            network,
            process,
            listener.process,
            random.Random(rng.getrandbits(64)),
            transport.receive,
        )
        transport.flow = Flow(
            network, listener.process, process, random.Random(rng.getrandbits(64)), client.receive
        )
        transport.requests = client.flow
        network.world.at(0, listener.process, lambda: listener.accept(transport))
        silently = rng.random() < 0.3
        for one, end in ((process, client.flow), (listener.process, transport.flow)):
            if not silently:
                one.at_its_end.append(partial(end.send, End(is_reset=True)))
        return client

    def poller(self, sock: socket.socket | TlsSocket, events: int) -> Poller:
        """Return what waits for a socket."""
        return cast("SimSocket", sock) if events == select.POLLIN else _AlwaysReady()

    def reader(self, sock: socket.socket | TlsSocket) -> Reader:
        """Return what reads a socket."""
        return Reader(cast("SimSocket", sock), cast("SimSocket", sock))

    def pause(self, seconds: float, *, until_free: threading.Lock) -> None:
        """Let virtual time pass."""
        del until_free
        program = self._network.world.running
        assert program is not None, "a program pauses"
        program.sleep(seconds)
