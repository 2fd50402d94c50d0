"""The server's shell in this process: a store that fails, bounds, back-pressure, and every end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from omidpy.base.telemetry.metrics import NO_METRICS, NoMetrics
from omidpy.base.timing.clock import ManualClock
from omidpy.base.timing.wakefulness import LOOKS_S, SOON_COUNT, SOON_S
from omidpy.errors import LeaseLost, StorageUnavailable
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import LEASE_FACT
from omidpy.model import TIMESTAMP_STEP, CellId, TableId, Timestamp
from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.sqlite import SqliteStore
from omidpy.wire.frames import FrameReader, decode_response, frame_request
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    CommitResponse,
    Feature,
    FenceRequest,
    FenceResponse,
    HandshakeRequest,
    PeerCapabilities,
    Response,
    TimestampRequest,
    TimestampResponse,
)
from tests.machines.processes import tso_server
from tests.machines.tls import client_hello, counted_steps, loopback_certificate
from tso.cli import _Service
from tso.config import load_config
from tso.core.events import Batch, FlushResult, Question
from tso.core.machine import Machine
from tso.core.settings import Settings
from tso.core.shares import heavy as heavy_module
from tso.core.shares.heavy import MAX_WAIT_S
from tso.core.shares.rates import WAIT_S
from tso.durable.lease import AnyLease
from tso.durable.persist import NoPersistence
from tso.instance import begin
from tso.serving import connection as connection_module
from tso.serving import server as server_module
from tso.serving import turns as turns_module
from tso.serving.connection import BYTES_OF_WORK, SLOW_AT_ONCE, SLOW_WORK, Connection
from tso.serving.conversation import Conversation, share_of_address
from tso.serving.flushing import FlushThread, Queueing
from tso.serving.server import OracleServer
from tso.serving.tls import ServerTls, TlsSettings
from tso.serving.turns import ASKS_S, MAX_TURN_WORK

pytestmark = pytest.mark.integration

SETTINGS = Settings(timestamps="incremental")
LONGEST_S = 30.0


class ScriptedPersistence(NoPersistence):
    """Persists nothing, when and how it is told."""

    is_instant = False

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.flushed: list[Batch[Any]] = []

    def flush(self, batch: Batch[Any]) -> FlushResult:
        """Wait at the gate, then fail or not."""
        assert self.gate.wait(LONGEST_S)
        if self.failures:
            raise self.failures.pop(0)
        self.flushed.append(batch)
        return super().flush(batch)


class Client:
    """A client that speaks frames over asyncio streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use a connected socket."""
        self.reader = reader
        self.writer = writer

    def send(self, *requests: Any) -> None:
        """Send requests in one write."""
        self.writer.write(b"".join(frame_request(request) for request in requests))

    async def receive(self) -> Response | None:
        """Return the next answer; None if the connection was closed."""
        try:
            head = await asyncio.wait_for(self.reader.readexactly(4), LONGEST_S)
            payload = await self.reader.readexactly(struct.unpack(">I", head)[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return decode_response(payload)

    async def begin(self) -> Timestamp:
        """Begin a transaction."""
        self.send(TimestampRequest())
        answer = await self.receive()
        assert isinstance(answer, TimestampResponse)
        return answer.start_ts


class Running:
    """An `OracleServer` on a free port."""

    def __init__(
        self,
        server: OracleServer,
        persistence: ScriptedPersistence,
        clock: ManualClock,
        port: int,
        executor: ThreadPoolExecutor,
    ) -> None:
        """Know the server's parts."""
        self.server = server
        self.clock = clock
        self.machine = server._machine
        self.persistence = persistence
        self.port = port
        self.executor = executor
        self.clients: list[Client] = []

    async def connect(
        self, *, shakes_hands: bool = True, features: int = 7, host: str = "127.0.0.1"
    ) -> Client:
        """Connect a client from an address; one without features is Omid's."""
        opened = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0))
        client = Client(*opened)
        self.clients.append(client)
        if shakes_hands:
            client.send(HandshakeRequest(PeerCapabilities(features)))
            await client.receive()
        return client


@asynccontextmanager
async def running(
    settings: Settings = SETTINGS, tls: ServerTls | None = None
) -> AsyncIterator[Running]:
    """Run a server for the length of a block."""
    persistence, clock = ScriptedPersistence(), ManualClock()
    begun = begin(
        settings, persistence, clock, max_transaction_age_ms=settings.max_transaction_age_ms
    )
    with ThreadPoolExecutor(1) as executor:
        server = OracleServer(
            begun.machine,
            persistence,
            lease=None,
            capabilities=PeerCapabilities(epoch=Timestamp(0)),
            clock=clock,
            metrics=NO_METRICS,
            worker=FlushThread(asyncio.get_running_loop(), executor),
            tls=tls,
        )
        bound = socket.create_server(("127.0.0.1", 0))
        await server.listen(bound)
        found = Running(server, persistence, clock, bound.getsockname()[1], executor)
        try:
            yield found
        finally:
            persistence.gate.set()
            if not server._ended.done():
                server.stop()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(server.ended(), LONGEST_S)
            await server.close()
            for client in found.clients:
                client.writer.close()


def run(
    test: Callable[[Running], Coroutine[Any, Any, None]], settings: Settings = SETTINGS
) -> None:
    """Run a test with a server in an event loop of its own."""

    async def main() -> None:
        async with running(settings) as found:
            await test(found)

    asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    """Let the event loop turn until something holds."""
    async with asyncio.timeout(LONGEST_S):
        while not holds():  # noqa: ASYNC110  what is waited for is another task's business
            await asyncio.sleep(0)


# -- staying awake ---------------------------------------------------------------------------------


async def wake(server: OracleServer, client: Client) -> None:
    """Ask alone until the loop looks for the next request."""
    async with asyncio.timeout(LONGEST_S):
        while not server._is_looking:
            await client.begin()


@pytest.fixture(name="processors", params=[2])
def processor_count(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let the machine have so many processors."""
    monkeypatch.setattr(os, "cpu_count", lambda: request.param)
    return cast("int", request.param)


@pytest.mark.usefixtures("processors")
def test_the_loop_looks_for_what_a_lone_client_asks_next_and_not_for_long() -> None:
    """To be woken takes longer than a decision; to look in vain takes a processor from others."""

    async def main(running: Running) -> None:
        client = await running.connect()
        for _ in range(SOON_COUNT):
            assert not running.server._is_looking
            await client.begin()
        await wake(running.server, client)
        running.clock.advance((LOOKS_S + SOON_S) / 2)
        await until(lambda: not running.server._is_looking)
        await client.begin()
        assert not running.server._is_looking, "it was looked in vain"

    run(main)


@pytest.mark.usefixtures("processors")
@pytest.mark.parametrize("question", [TimestampRequest(), FenceRequest(TableId(1))])
def test_a_client_that_is_looked_for_is_answered_at_once(question: Any) -> None:
    """Others' requests might come in the same turn, so otherwise its end is waited for."""

    async def main(running: Running) -> None:
        client = await running.connect()
        (connection,) = running.server._connections
        connection.data_received(frame_request(question))
        assert running.server._is_releasing
        assert await client.receive()
        await wake(running.server, client)
        connection.data_received(frame_request(question))
        assert not running.server._is_releasing
        assert await client.receive()

    run(main)


@pytest.mark.usefixtures("processors")
def test_the_loop_sleeps_while_a_batch_is_flushed() -> None:
    """The thread that writes it needs its turn."""

    async def main(running: Running) -> None:
        client = await running.connect()
        await wake(running.server, client)
        start_ts = await client.begin()
        running.persistence.gate.clear()
        client.send(CommitRequest(start_ts, (CellId(1),)))
        await until(lambda: running.machine.queue_length == 1 and running.server._flusher.is_busy)
        await until(lambda: not running.server._is_looking)
        running.persistence.gate.set()
        assert await client.receive()

    run(main)


class Seen(NoMetrics):
    """Keeps what was observed of the queue."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.queue_s: list[float] = []

    def observe(self, name: str, value: float) -> None:
        """Keep it."""
        assert name == "tso.queue.seconds"
        self.queue_s.append(value)


def test_it_is_measured_how_long_answers_wait_for_their_flush() -> None:
    """From the first one that is decided behind a flush, until that one has ended."""

    async def main(running: Running) -> None:
        client = await running.connect()
        starts = [await client.begin() for _ in range(4)]
        commits = [CommitRequest(one, (CellId(at),)) for at, one in enumerate(starts)]
        seen = Seen()
        await until(lambda: not running.server._flusher.is_busy)
        running.server._queueing = Queueing(seen)
        running.persistence.gate.clear()
        client.send(commits[0])
        await until(lambda: running.machine.queue_length == 1)
        running.clock.advance(1)
        client.send(commits[1])
        await until(lambda: running.machine.queue_length == 2)
        running.clock.advance(2)
        client.send(commits[2])
        await until(lambda: running.machine.queue_length == 3)
        running.clock.advance(4)
        running.persistence.gate.set()
        for _ in range(3):
            assert isinstance(await client.receive(), CommitResponse)
        client.send(commits[3])
        assert isinstance(await client.receive(), CommitResponse)
        assert seen.queue_s == [0, 6, 0]

    run(main)


@pytest.mark.usefixtures("processors")
def test_the_loop_sleeps_where_several_clients_ask() -> None:
    """What one of them does not ask, another one does."""

    async def main(running: Running) -> None:
        clients = [await running.connect() for _ in range(2)]
        for number in range(3 * SOON_COUNT):
            await clients[number % 2].begin()
            assert not running.server._is_looking

    run(main)


@pytest.mark.parametrize("processors", [1], indirect=True)
def test_the_loop_sleeps_on_a_lone_processor(processors: int) -> None:
    """Nobody could ask meanwhile."""

    async def main(running: Running) -> None:
        client = await running.connect()
        for _ in range(2 * SOON_COUNT):
            await client.begin()
            assert not running.server._is_looking, processors

    run(main)


# -- a store in trouble ----------------------------------------------------------------------------


def test_a_batch_that_failed_is_repeated_until_the_store_takes_it() -> None:
    """It may have been written, so nothing can overtake it; clients only wait."""

    async def test(running: Running) -> None:
        client = await running.connect()
        start_ts = await client.begin()
        running.persistence.failures = [StorageUnavailable("full")] * 3
        client.send(CommitRequest(start_ts, (CellId(1),)), TimestampRequest())
        await until(lambda: not running.server.is_answering)
        committed, begun = await client.receive(), await client.receive()
        assert committed == CommitResponse(start_ts, Timestamp(100))
        assert begun == TimestampResponse(Timestamp(150), Timestamp(0))
        assert running.server.is_answering
        written = [batch.commits for batch in running.persistence.flushed if batch.commits]
        assert written == [[(50, 100)]]

    run(test)


def test_a_client_of_omids_may_invalidate_unseen_from_its_handshake_on() -> None:
    """Every later batch says so, whose commits they are, and also when the client is gone."""

    async def test(running: Running) -> None:
        ours = await running.connect()

        async def may_be_invalidated() -> bool:
            ours.send(CommitRequest(await ours.begin(), (CellId(1),)))
            assert await ours.receive()
            return running.persistence.flushed[-1].may_be_invalidated

        assert not await may_be_invalidated()
        omids = await running.connect(features=0)
        assert await may_be_invalidated()
        omids.writer.close()
        await until(lambda: len(running.server._connections) == 1)
        assert await may_be_invalidated()

    run(test)


def test_a_begin_waits_for_a_flush_once_the_lease_may_be_anothers() -> None:
    """The flush looks at the lease; until then a successor may be committing already."""

    async def test(running: Running) -> None:
        client = await running.connect()
        await client.begin()
        assert not any(batch.answers for batch in running.persistence.flushed)
        running.server._lease = cast(
            AnyLease, SimpleNamespace(vouched_until_s=0.0, needs_renewal=False)
        )
        await client.begin()
        assert any(batch.answers for batch in running.persistence.flushed)

    run(test)


@pytest.mark.parametrize("error", [LeaseLost("taken"), AssertionError("I2"), RuntimeError("bug")])
def test_whatever_else_goes_wrong_ends_the_service(error: Exception) -> None:
    """Nothing that waits is answered, and every connection is closed."""

    async def test(running: Running) -> None:
        client, bystander = await running.connect(), await running.connect()
        start_ts = await client.begin()
        running.persistence.failures = [error]
        client.send(CommitRequest(start_ts, (CellId(1),)))
        with pytest.raises(type(error)):
            await running.server.ended()
        assert await client.receive() is None
        assert await bystander.receive() is None
        assert not running.server.is_answering

    run(test)


def test_a_server_that_closed_leaves_its_thread_to_others() -> None:
    """What says farewell to the store and the lease waits for it, and so does the process."""

    async def test(running: Running) -> None:
        client = await running.connect()
        client.send(CommitRequest(await client.begin(), (CellId(1),)))
        assert await client.receive() is not None
        running.server.stop()
        await running.server.ended()
        await running.server.close()
        loop = asyncio.get_running_loop()
        in_thread = loop.run_in_executor(running.executor, threading.get_ident)
        assert await asyncio.wait_for(in_thread, LONGEST_S) != threading.get_ident()

    run(test)


# -- bounds ----------------------------------------------------------------------------------------


def test_nobody_is_read_from_while_too_many_answers_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Back-pressure: the queue is bounded by what one read may bring, and nothing is lost."""
    monkeypatch.setattr(turns_module, "MAX_QUEUE_LENGTH", 100)
    monkeypatch.setattr(connection_module, "MAX_UNSENT_BYTES", 2**26)

    async def test(running: Running) -> None:
        client = await running.connect()
        start_ts = await client.begin()
        running.persistence.gate.clear()
        client.send(CommitRequest(start_ts, (CellId(1),)))
        await until(lambda: running.machine.queue_length == 1)
        count = 5000
        client.send(*[TimestampRequest()] * count)
        await until(lambda: running.machine.queue_length > 100)
        waiting = running.machine.queue_length
        other = await running.connect()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert running.machine.queue_length == waiting < count
        running.persistence.gate.set()
        assert isinstance(await client.receive(), CommitResponse)
        for _ in range(count):
            assert isinstance(await client.receive(), TimestampResponse)
        assert await other.begin()

    run(test)


def test_a_flood_of_requests_keeps_nobody_waiting() -> None:
    """One read brings 20,000 of them, and the others would wait for all of their answers."""

    async def test(running: Running) -> None:
        flood, other = await running.connect(), await running.connect()
        count = 20_000
        flood.send(*[TimestampRequest()] * count)
        await until(lambda: running.machine.last_issued > 0)
        assert await other.begin() < TIMESTAMP_STEP * count // 4
        for number in range(1, count):
            answer = await flood.receive()
            assert isinstance(answer, TimestampResponse)
            assert answer.start_ts >= TIMESTAMP_STEP * number

    run(test)


def test_one_conflict_costs_the_requests_behind_it_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is ordinary is decided in one go, though a request before it was not."""
    asked: list[Question] = []
    ask = OracleServer.ask

    def listen(server: OracleServer, connection: Connection, questions: list[Question]) -> None:
        asked.extend(questions)
        ask(server, connection, questions)

    monkeypatch.setattr(OracleServer, "ask", listen)

    async def test(running: Running) -> None:
        client = await running.connect()
        late, early = await client.begin(), await client.begin()
        client.send(CommitRequest(early, (CellId(1),)))
        await client.receive()
        refused = CommitRequest(late, (CellId(1),))
        count = 100
        client.send(TimestampRequest(), refused, *[TimestampRequest()] * count)
        answers = [await client.receive() for _ in range(count + 2)]
        refusal = answers[1]
        assert isinstance(refusal, CommitResponse)
        assert refusal.commit_ts is None
        assert asked == [refused]

    run(test)


def test_a_turn_is_measured_by_what_its_requests_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is not ordinary costs as much as many, and a long one more."""
    asked: list[Question] = []
    ask = OracleServer.ask

    def listen(server: OracleServer, connection: Connection, questions: list[Question]) -> None:
        asked.extend(questions)
        ask(server, connection, questions)

    monkeypatch.setattr(OracleServer, "ask", listen)

    async def test(running: Running) -> None:
        client = await running.connect()
        (connection,) = running.server._connections
        starts = [await client.begin() for _ in range(100)]
        cells = tuple(map(CellId, range(1000)))
        client.send(CommitRequest(starts.pop(), cells))
        await client.receive()
        asked.clear()
        refused = [frame_request(CommitRequest(start_ts, cells)) for start_ts in starts]
        connection.data_received(b"".join(refused))
        least_work = SLOW_WORK + len(refused[0]) // BYTES_OF_WORK
        assert 0 < len(asked) <= MAX_TURN_WORK // least_work + SLOW_AT_ONCE // 2
        for _ in starts:
            await client.receive()
        asked.clear()
        connection.data_received(frame_request(TimestampRequest(hold_ms=1)) * 1000)
        assert 0 < len(asked) <= MAX_TURN_WORK // SLOW_WORK + SLOW_AT_ONCE

    run(test)


@pytest.mark.parametrize("kept_bytes", [0, 3])
def test_a_turn_is_measured_by_the_length_of_ordinary_requests_too(kept_bytes: int) -> None:
    """Whether they are served as they come, or behind what was kept of one."""

    async def test(running: Running) -> None:
        client = await running.connect(features=0)
        (connection,) = running.server._connections
        starts = [await client.begin() for _ in range(100)]
        running.persistence.gate.clear()
        commits = [
            frame_request(CommitRequest(start_ts, tuple(map(CellId, range(1000)))))
            for start_ts in starts
        ]
        data = b"".join(commits)
        connection.data_received(data[:kept_bytes])
        connection.data_received(data[kept_bytes:])
        most = MAX_TURN_WORK * BYTES_OF_WORK // len(commits[0]) + 1
        assert 0 < running.machine.queue_length <= most < len(commits)
        running.persistence.gate.set()
        for _ in commits:
            assert isinstance(await client.receive(), CommitResponse)

    run(test)


def test_many_that_flood_share_a_turn() -> None:
    """However many they are, whoever asks little is served within a few milliseconds."""

    async def test(running: Running) -> None:
        floods = [await running.connect() for _ in range(40)]
        other = await running.connect()
        for flood in floods:
            flood.send(*[TimestampRequest()] * 4000)
        await until(lambda: running.server.turns._behind_count == len(floods))
        before = running.machine.last_issued
        other.send(TimestampRequest())
        await until(lambda: running.machine.last_issued > before)
        answer = await other.receive()
        assert isinstance(answer, TimestampResponse)
        turns = 3
        served = (answer.start_ts - before) // TIMESTAMP_STEP
        assert served < turns * len(floods) * MAX_TURN_WORK // 10

    run(test)


class Whole(bytes):
    """Bytes that can be joined with many others at once, and not one by one."""

    def __radd__(self, other: object) -> bytes:
        raise AssertionError("each addition copies everything before it")


def test_a_turn_shakes_hands_with_one_whoever_knocks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each signature takes a millisecond; 512 at once held up everybody for half a second."""
    cert, key = loopback_certificate(tmp_path)
    steps = counted_steps(monkeypatch)
    hello = client_hello()

    async def main() -> None:
        async with running(tls=ServerTls(TlsSettings(str(cert), str(key)))) as found:
            floods = [await found.connect(shakes_hands=False) for _ in range(40)]
            other = await found.connect(shakes_hands=False, host="127.0.0.2")
            for flood in floods:
                flood.writer.write(hello)
            await until(lambda: found.server._handshakes._waiting != {})
            other.writer.write(hello)
            answer = asyncio.ensure_future(other.reader.readexactly(1))
            while not answer.done():
                steps.append(0)
                await asyncio.sleep(0)
            assert max(steps[1:]) == 1
            assert answer.result() == b"\x16"
            assert len(found.server._handshakes._waiting) == 1
            await until(lambda: not found.server._handshakes._waiting)
            for flood in floods:
                assert await flood.reader.readexactly(1) == b"\x16"

    asyncio.run(main())


def test_answers_that_leave_together_are_joined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush may release 32,000 of them to one client."""
    encode = Conversation.encode
    monkeypatch.setattr(Conversation, "encode", lambda self, answer: Whole(encode(self, answer)))
    written: list[bytes] = []
    write = Connection.write

    def note(connection: Connection, frames: bytes) -> None:
        written.append(frames)
        write(connection, frames)

    monkeypatch.setattr(Connection, "write", note)

    async def test(running: Running) -> None:
        client = await running.connect()
        client.send(*[TimestampRequest(hold_ms=1)] * 3)
        written.clear()
        answers = [await client.receive() for _ in range(3)]
        assert [getattr(answer, "start_ts", None) for answer in answers] == [50, 100, 150]
        assert len(written) == 1

    run(test)


def test_the_first_answers_of_a_long_turn_do_not_wait_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A turn of the loop may bring requests of thousands of clients."""
    monkeypatch.setattr(server_module, "MAX_DECIDED_BYTES", 100)

    async def test(running: Running) -> None:
        clients = [await running.connect() for _ in range(2)]
        begins = frame_request(TimestampRequest()) * 10
        waiting = []
        for connection in list(running.server._connections):
            connection.data_received(begins)
            waiting.append(running.machine.queue_length)
        assert waiting == [10, 0]
        for client in clients:
            for _ in range(10):
                assert isinstance(await client.receive(), TimestampResponse)

    run(test)


def test_the_kernel_keeps_little_of_what_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep megabytes for each client, which no count of ours sees."""
    monkeypatch.setattr(connection_module, "KERNEL_BUFFER_BYTES", 10_000)

    async def test(running: Running) -> None:
        await running.connect()
        (connection,) = running.server._connections
        assert connection._transport is not None
        raw = connection._transport.get_extra_info("socket")
        # Linux says twice what was asked for: its own notes count too.
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (10_000, 20_000)

    run(test)


def test_connections_beyond_the_limit_are_refused() -> None:
    """The others go on."""

    async def test(running: Running) -> None:
        running.server._places.count = 2
        first, _ = await running.connect(), await running.connect()
        third = await running.connect(shakes_hands=False)
        assert await third.receive() is None
        assert await first.begin()

    run(test)


def test_silent_connections_keep_nobody_out() -> None:
    """They took every place before a handshake, and nobody else got in."""

    async def test(running: Running) -> None:
        running.server._places.count = 40
        early = await running.connect()
        mute = [await running.connect(shakes_hands=False) for _ in range(50)]
        late = await running.connect()
        assert await early.begin() < await late.begin()
        assert await mute[0].receive() is None
        mute[-1].send(HandshakeRequest(PeerCapabilities(7)))
        assert await mute[-1].receive() is not None

    run(test)


def test_a_peer_whose_machine_is_gone_is_noticed_in_seconds() -> None:
    """It kept its place, and its holds, for two hours."""

    async def test(running: Running) -> None:
        await running.connect()
        (connection,) = running.server._connections
        assert connection._transport is not None
        raw = connection._transport.get_extra_info("socket")
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        if not all(hasattr(socket, name) for name in names):
            pytest.skip("this system cannot be told how long to wait for a peer")
        idle, interval, count, patience = (
            raw.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names
        )
        assert idle + interval * count <= 30
        assert patience <= 30_000

    run(test)


def test_no_address_has_all_places() -> None:
    """What is left is for others; whoever leaves makes room again."""

    async def test(running: Running) -> None:
        running.server._places.count = 40
        greedy = [await running.connect() for _ in range(60)]
        served = [client for client in greedy if not client.reader.at_eof()]
        assert len(served) == 27
        assert len({await client.begin() for client in served}) == 27
        served[0].writer.close()
        await until(lambda: len(running.server._connections) == 26)
        again = await running.connect()
        assert await again.begin()

    run(test)


def test_a_connection_without_a_handshake_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that shook hands may rest as long as it likes."""
    monkeypatch.setattr(connection_module, "HANDSHAKE_TIMEOUT_S", 0.05)

    async def test(running: Running) -> None:
        idle = await running.connect()
        mute = await running.connect(shakes_hands=False)
        assert await mute.receive() is None
        assert await idle.begin()

    run(test)


def test_unfinished_requests_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many clients that each announce a long frame cannot fill the memory; the greediest pays."""
    monkeypatch.setattr(server_module, "MAX_BUFFERED_BYTES", 100_000)

    async def test(running: Running) -> None:
        sizes = 30_000, 40_000, 20_000, 20_000
        clients = [await running.connect() for _ in sizes]
        for client, size in zip(clients, sizes, strict=True):
            client.writer.write(struct.pack(">I", 1_000_000) + b"\x00" * (size - 4))
        await until(lambda: running.server.buffered_bytes == 70_000)
        assert await clients[1].receive() is None
        assert sorted(c.buffered_bytes for c in running.server._connections) == [
            20_000,
            20_000,
            30_000,
        ]

    run(test)


def test_whoever_leaves_keeps_nothing() -> None:
    """What the dead began would count against the living for ever."""

    async def test(running: Running) -> None:
        client = await running.connect()
        client.writer.write(struct.pack(">I", 100))
        await until(lambda: running.server.buffered_bytes == 4)
        client.writer.close()
        await until(lambda: not running.server._connections)
        assert running.server.buffered_bytes == 0

    run(test)


def test_a_request_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """26 idle clients kept 256 MiB of unfinished requests for ever."""
    monkeypatch.setattr(connection_module, "REQUEST_TIMEOUT_S", 0.05)
    monkeypatch.setattr(server_module, "WATCH_PERIOD_S", 0.01)

    async def test(running: Running) -> None:
        idle, slow = await running.connect(), await running.connect()
        slow.writer.write(struct.pack(">I", 100))
        assert await slow.receive() is None
        assert await idle.begin()

    run(test)


def test_a_request_that_comes_in_drops_is_not_waited_for_either() -> None:
    """Its time runs from the first byte, not from the last one that came."""

    async def test(running: Running) -> None:
        client = await running.connect()
        (connection,) = running.server._connections
        client.writer.write(struct.pack(">I", 100))
        await until(lambda: connection.buffered_bytes == 4)
        begun_s = running.server.loop.time()
        await asyncio.sleep(0.2)
        client.writer.write(b"1")
        await until(lambda: connection.buffered_bytes == 5)
        connection.check_time(begun_s + connection_module.REQUEST_TIMEOUT_S + 0.01)
        assert await client.receive() is None

    run(test)


def test_each_request_has_its_own_time() -> None:
    """A busy client's socket always ends somewhere within a request."""

    async def test(running: Running) -> None:
        client = await running.connect()
        (connection,) = running.server._connections
        begin = frame_request(TimestampRequest())
        begun_s = running.server.loop.time()
        client.writer.write(begin[:3])
        await until(lambda: connection.buffered_bytes == 3)
        await asyncio.sleep(0.2)
        client.writer.write(begin[3:] + begin[:4])
        assert isinstance(await client.receive(), TimestampResponse)
        connection.check_time(begun_s + connection_module.REQUEST_TIMEOUT_S + 0.1)
        client.writer.write(begin[4:])
        assert isinstance(await client.receive(), TimestampResponse)

    run(test)


def test_a_request_of_a_client_that_is_not_read_from_is_not_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot go on while the store makes everybody wait."""
    monkeypatch.setattr(turns_module, "MAX_QUEUE_LENGTH", 0)

    async def test(running: Running) -> None:
        client = await running.connect()
        start_ts = await client.begin()
        running.persistence.gate.clear()
        begin = frame_request(TimestampRequest())
        client.writer.write(frame_request(CommitRequest(start_ts, (CellId(1),))) + begin[:3])
        await until(lambda: running.machine.queue_length == 1)
        (connection,) = running.server._connections
        paused_s = running.server.loop.time()
        connection.check_time(paused_s + 1000)
        await asyncio.sleep(0.2)
        running.persistence.gate.set()
        assert isinstance(await client.receive(), CommitResponse)
        await until(lambda: not connection._is_paused)
        # From here on the client can send, and has as long as everybody.
        connection.check_time(paused_s + connection_module.REQUEST_TIMEOUT_S + 0.1)
        client.writer.write(begin[3:])
        assert isinstance(await client.receive(), TimestampResponse)

    run(test)


def test_unread_answers_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """4,096 clients with a MiB each would fill the memory; the one with the most pays."""
    monkeypatch.setattr(server_module, "MAX_UNSENT_BYTES_IN_ALL", 100_000)
    monkeypatch.setattr(server_module, "WATCH_PERIOD_S", 0.01)
    monkeypatch.setattr(connection_module, "MAX_UNSENT_BYTES", 2**26)

    async def test(running: Running) -> None:
        other = await running.connect()
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, ("127.0.0.1", running.port))
            await loop.sock_sendall(deaf, frame_request(HandshakeRequest(PeerCapabilities(7))))
            await until(lambda: len(running.server._connections) == 2)
            begins = frame_request(TimestampRequest()) * 1000
            with contextlib.suppress(ConnectionError):
                while len(running.server._connections) == 2:
                    await loop.sock_sendall(deaf, begins)
        assert await other.begin()

    run(test)
    assert "of all clients it has the most" in caplog.text


def test_a_client_is_the_same_on_its_next_connection_and_missed_after_its_last() -> None:
    """Who it is comes with its handshake, and that it went with the end of its connection."""

    async def test(running: Running) -> None:
        first, second, third = [await running.connect(shakes_hands=False) for _ in range(3)]
        for client, number in ((first, 7), (second, 7), (third, 8)):
            client.send(HandshakeRequest(PeerCapabilities(7, client=number)))
            await client.receive()
        first.send(TimestampRequest(hold_ms=10**9))
        begun = await first.receive()
        assert isinstance(begun, TimestampResponse)
        commit = CommitRequest(begun.start_ts, (CellId(1),))
        third.send(commit)
        assert await third.receive() is None
        second.send(commit)
        assert isinstance(await second.receive(), CommitResponse)
        second.send(TimestampRequest(hold_ms=10**9))
        begun = await second.receive()
        assert isinstance(begun, TimestampResponse)
        first.writer.close()
        await until(lambda: len(running.server._connections) == 1)
        hold = running.machine._age._holds[begun.start_ts]
        assert hold.end_ms == hold.agreed_ms
        second.writer.close()
        await until(lambda: hold.end_ms < hold.agreed_ms)

    run(test)


def test_what_a_client_hands_on_is_held_when_it_goes() -> None:
    """Its successor, which has its number, may come long after it; that one is missed."""

    async def test(running: Running) -> None:
        planner, successor = [await running.connect(shakes_hands=False) for _ in range(2)]
        said = int(ALL_FEATURES | Feature.HANDS_ON)
        planner.send(HandshakeRequest(PeerCapabilities(said, client=7)))
        await planner.receive()
        planner.send(TimestampRequest(hold_ms=10**9))
        left = await planner.receive()
        planner.send(TimestampRequest(hold_ms=10**9))
        begun = await planner.receive()
        assert isinstance(left, TimestampResponse)
        assert isinstance(begun, TimestampResponse)
        planner.writer.close()
        await until(lambda: len(running.server._connections) == 1)
        hold = running.machine._age._holds[left.start_ts]
        assert hold.end_ms == hold.agreed_ms
        successor.send(HandshakeRequest(PeerCapabilities(int(ALL_FEATURES), client=7)))
        await successor.receive()
        successor.send(CommitRequest(begun.start_ts, (CellId(1),)))
        answer = await successor.receive()
        assert isinstance(answer, CommitResponse)
        assert answer.commit_ts is not None
        successor.writer.close()
        await until(lambda: hold.end_ms < hold.agreed_ms)

    run(test)


def test_a_begin_that_is_asked_for_again_holds_once() -> None:
    """The client's link broke before the answer: what the first one held is of no use to it."""

    async def test(running: Running) -> None:
        for repetition in range(2):
            client = await running.connect(shakes_hands=False)
            client.send(HandshakeRequest(PeerCapabilities(7, client=7)))
            await client.receive()
            client.send(TimestampRequest(10**9, 5, repetition))
            begun = await client.receive()
            assert isinstance(begun, TimestampResponse)
            assert list(running.machine._age._holds) == [begun.start_ts]

    run(test)


# -- heavy requests --------------------------------------------------------------------------------


def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commits of these tests be heavy, and timers be short; the server's clock is ours."""
    monkeypatch.setattr(connection_module, "HEAVY_BYTES", 32 * 1024)
    monkeypatch.setattr(heavy_module, "HEAVY_BYTES_PER_S", 2**26)


async def _heavy_commits(client: Client, count: int) -> None:
    """Send commits of 54 KiB, more cells than a run takes, in one write."""
    starts = [await client.begin() for _ in range(count)]
    client.send(*[CommitRequest(start_ts, (CellId(-1),) * 5000) for start_ts in starts])


async def _decided(client: Client, count: int) -> None:
    for _ in range(count):
        assert isinstance(await client.receive(), CommitResponse)


def test_heavy_requests_leave_room_while_others_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """One a second costs hardly anybody anything, and ten would delay each tenth request."""
    _hurry(monkeypatch)

    async def test(running: Running) -> None:
        loader, other = await running.connect(), await running.connect()
        await other.begin()
        await _heavy_commits(loader, 3)
        loader.send(TimestampRequest())
        heavy = running.server.turns._heavy
        await _decided(loader, 1)
        await until(lambda: heavy.due_s is not None)
        due_s = heavy.due_s
        for _ in range(100):
            await other.begin()
        assert heavy.due_s == due_s
        running.clock.advance(ASKS_S / 4)
        await _decided(loader, 1)
        await until(lambda: heavy.due_s is not None)
        running.clock.advance(ASKS_S / 4)
        await _decided(loader, 1)
        assert isinstance(await loader.receive(), TimestampResponse)

    run(test)


def test_a_heavy_request_behind_one_that_is_not_ordinary_waits_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that are not are passed on several at once, unless a heavy one may be among them."""
    _hurry(monkeypatch)

    async def test(running: Running) -> None:
        loader = await running.connect()
        (connection,) = running.server._connections
        other = await running.connect()
        await other.begin()
        await _heavy_commits(loader, 1)
        await _decided(loader, 1)
        heavy = CommitRequest(await loader.begin(), (CellId(-1),) * 5000)
        fences = [frame_request(FenceRequest(TableId(number))) for number in (1, 2)]
        connection.data_received(b"".join(fences) + frame_request(heavy))
        assert running.server.turns._heavy.due_s is not None
        for _ in fences:
            assert isinstance(await loader.receive(), FenceResponse)
        running.clock.advance(ASKS_S)
        await _decided(loader, 1)

    run(test)


def test_whoever_is_over_its_rate_waits_and_nobody_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On every connection of its share; then it is served, so that no client gives it up."""
    waits: list[float] = []

    async def test(running: Running) -> None:
        server, loop = running.server, asyncio.get_running_loop()
        original = loop.call_later

        def later(seconds: float, call: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
            if args[:1] == (server.turns._end_wait,):
                waits.append(seconds)
            return original(seconds, call, *args)

        monkeypatch.setattr(loop, "call_later", later)
        first, second = [await running.connect(host="127.0.0.2") for _ in range(2)]
        other = await running.connect()
        first.send(*[TimestampRequest()] * 180)
        assert [isinstance(await first.receive(), TimestampResponse) for _ in range(180)]
        for client in (first, second):
            client.send(*[TimestampRequest()] * 3)
        await until(lambda: len(server.turns._deferred) == 2)
        assert all(one._is_paused and one.buffered_bytes for one in server.turns._deferred)
        for _ in range(50):
            assert await other.begin()
        assert not any(one.reader._buffer for one in (first, second))  # type: ignore[attr-defined]
        for client in (first, second):
            assert [isinstance(await client.receive(), TimestampResponse) for _ in range(3)]
        assert waits == [WAIT_S, WAIT_S]
        running.clock.advance(60.0)
        assert await first.begin()
        assert not server.turns.over
        assert len(waits) == 2
        first.send(*[TimestampRequest()] * 180)
        assert await first.receive()
        first.send(TimestampRequest())
        await until(lambda: len(server.turns._deferred) == 1)
        first.writer.close()
        await until(lambda: not server.turns._deferred)
        second.send(TimestampRequest())
        await until(lambda: len(server.turns._deferred) == 1)
        ((connection, timer),) = server.turns._deferred.items()
        connection.abort("it must go while it waits")
        await until(lambda: connection not in server._connections)
        assert not server.turns._deferred
        assert timer is not None
        assert timer.cancelled()

    run(test, replace(SETTINGS, begins_per_s=60))


def test_lines_about_a_client_count_for_its_share(caplog: pytest.LogCaptureFixture) -> None:
    """Else a stranger with many connections hides what is said about others."""

    async def test(running: Running) -> None:
        noisy = await running.connect(shakes_hands=False, host="127.0.0.2")
        noisy.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await noisy.receive() is None
        greedy = await running.connect(host="127.0.0.3")
        greedy.send(*[TimestampRequest()] * 180)
        assert [isinstance(await greedy.receive(), TimestampResponse) for _ in range(180)]
        greedy.send(TimestampRequest())
        await until(lambda: len(running.server.turns._deferred) == 1)

    run(test, replace(SETTINGS, begins_per_s=60))
    kinds = [getattr(record, "kind_of_line", ()) for record in caplog.records]
    assert {kind[0]: kind[-1] for kind in reversed(kinds) if kind} == {
        "connection-closed": share_of_address("127.0.0.2"),
        "over-its-rate": share_of_address("127.0.0.3"),
    }


def test_whoever_loads_alone_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do several, for each other; the clock stands still all the time."""
    _hurry(monkeypatch)

    async def test(running: Running) -> None:
        first, second = await running.connect(), await running.connect()
        for client in (first, second, first, second):
            await _heavy_commits(client, 5)
            await _decided(client, 5)

    run(test)


def test_one_turn_serves_one_heavy_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though they have waited long enough, and came together, others are heard in between."""
    _hurry(monkeypatch)

    async def test(running: Running) -> None:
        loaders = [await running.connect() for _ in range(3)]
        other = await running.connect()
        await other.begin()
        for loader in loaders:
            await _heavy_commits(loader, 1)
        await _decided(loaders[0], 1)
        heavy = running.server.turns._heavy
        await until(lambda: len(heavy._waiting) == 2)
        running.clock.advance(2 * MAX_WAIT_S)
        await until(lambda: len(heavy._waiting) == 1)
        await _decided(loaders[1], 1)
        await _decided(loaders[2], 1)

    run(test)


# -- the end ---------------------------------------------------------------------------------------


def test_a_stop_answers_what_was_asked_before_it() -> None:
    """Then the connections end, in that order."""

    async def test(running: Running) -> None:
        client = await running.connect()
        start_ts = await client.begin()
        running.persistence.gate.clear()
        client.send(CommitRequest(start_ts, (CellId(1),)))
        await until(lambda: running.machine.queue_length == 1)
        running.server.stop()
        running.persistence.gate.set()
        await running.server.ended()
        await running.server.close()
        assert await client.receive() == CommitResponse(start_ts, Timestamp(100))
        assert await client.receive() is None
        assert running.persistence.flushed[-1].ceiling == 100

    run(test)


@asynccontextmanager
async def _reading_little(running: Running) -> AsyncIterator[tuple[socket.socket, int]]:
    """Connect somebody whose answers wait in the server; say how many requests that took."""
    loop = asyncio.get_running_loop()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        await loop.sock_connect(slow, ("127.0.0.1", running.port))
        await loop.sock_sendall(slow, frame_request(HandshakeRequest(PeerCapabilities(7))))
        await until(lambda: bool(running.server._connections))
        (connection,) = running.server._connections
        count = 0
        while not connection.unsent_bytes:
            await loop.sock_sendall(slow, frame_request(TimestampRequest()) * 1000)
            count += 1000
            begun = TIMESTAMP_STEP * count
            await until(lambda begun=begun: running.machine.last_issued == begun)  # type: ignore[misc]  # a bound default
        yield slow, count


def test_answers_that_nobody_reads_do_not_put_off_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor would kill what does not end, with all that it could still have done."""
    monkeypatch.setattr(server_module, "DRAIN_S", 0.05)

    async def test(running: Running) -> None:
        async with _reading_little(running), asyncio.timeout(LONGEST_S):
            running.server.stop()
            await running.server.ended()
            await running.server.close()
            await until(lambda: not running.server._connections)

    run(test)


def test_answers_that_are_read_slowly_leave_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were decided, and whoever asked would have to find out what became of it."""
    monkeypatch.setattr(server_module, "DRAIN_S", LONGEST_S)

    async def test(running: Running) -> None:
        async with _reading_little(running) as (slow, count):
            running.server.stop()
            await running.server.ended()
            closing = asyncio.create_task(running.server.close())
            await until(lambda: all(one._is_closing for one in running.server._connections))
            found = bytearray()
            while data := await asyncio.get_running_loop().sock_recv(slow, 2**16):
                found += data
            frames = FrameReader(max_frame_bytes=2**16).feed(bytes(found))
            assert len(frames) == 1 + count
            await closing

    run(test)


def test_a_lost_lease_exits_3(tmp_path: Path) -> None:
    """Every connection is closed; a supervisor starts a standby."""
    url = f"sqlite:///{tmp_path}/store.db"
    with tso_server(url) as server:
        oracle = TcpOracle(server.address, reconnect_budget_s=0)
        start_ts = oracle.begin().start_ts
        store = SqliteStore(f"{tmp_path}/store.db", must_exist=True)
        record = b'{"holder":"x","address":"h:1","epoch":1,"pid":7,"host":"h","period_ms":1,'
        ControlTable(store).write(LEASE_FACT, record + b'"sequence":1}')
        store.close()
        with pytest.raises(Exception, match="no answer"):
            oracle.commit(start_ts, [CellId(1)], [])
        assert server.wait() == 3
        assert "process 7 on h" in server.wait_for("^lease-lost")
        oracle.close()


@pytest.mark.parametrize("where", [(Machine, "handle"), (OracleServer, "_now")])
@pytest.mark.parametrize(
    "error", [AssertionError("I2: said too early"), KeyError("early"), StorageUnavailable("early")]
)
def test_a_broken_invariant_exits_70(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: tuple[type, str],
    error: Exception,
) -> None:
    """The service ends by itself rather than decide on, whatever nobody foresaw."""

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(*where, broken)
    options = ["--store", f"sqlite:///{tmp_path}/store.db", "--listen", "127.0.0.1:0"]
    config = load_config(options, {})

    async def main() -> int:
        return await _Service(config).run()

    assert asyncio.run(main()) == 70
    assert "early" in caplog.text


def test_a_store_that_cannot_be_opened_exits_1(tmp_path: Path) -> None:
    """With the store's own words."""
    (tmp_path / "store.db").write_bytes(b"this is no database, and long enough to tell" * 100)
    with tso_server(f"sqlite:///{tmp_path}/store.db") as server:
        assert server.wait() in (1, 2)
        assert "store.db" in server.log
