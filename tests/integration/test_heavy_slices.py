"""A heavy request is served slice by slice, and everybody else in between."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace

import pytest

from omidpy.model import CellId, Timestamp
from omidpy.wire.frames import frame, frame_request
from omidpy.wire.messages import CommitRequest, CommitResponse
from tests.integration.test_oracle_server import SETTINGS, Client, Running, run, until
from tso.core.shares import slices as slices_module
from tso.core.shares.slices import LongRequest
from tso.serving import connection as connection_module
from tso.serving import slicing as slicing_module
from tso.serving.slicing import SLICED_S

pytestmark = pytest.mark.integration

CELLS = tuple(map(CellId, range(20_000)))


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits of 20,000 cells be heavy, and take hundreds of turns of the loop."""
    monkeypatch.setattr(connection_module, "HEAVY_BYTES", 32 * 1024)
    _slice(monkeypatch, 100)


def _slice(monkeypatch: pytest.MonkeyPatch, cell_count: int) -> None:
    """Let a slice have so many cells."""
    for name in ("READ", "SORTED", "EXAMINED", "FILLED"):
        monkeypatch.setattr(slices_module, f"{name}_AT_ONCE", cell_count)
    monkeypatch.setattr("tso.core.machine.FILLED_AT_ONCE", cell_count)


async def _send_heavy(running: Running, client: Client, *, is_retry: bool = False) -> Timestamp:
    """Send a heavy commit, and wait until it is under way."""
    start_ts = await client.begin()
    client.send(CommitRequest(start_ts, CELLS, (), is_retry))
    await until(lambda: bool(running.server._slicing._long))
    return start_ts


def test_others_are_served_between_the_slices_of_a_heavy_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also once it is decided, until all that it wrote is in its place."""
    # One slice a turn however long that takes, and thousands of them: the others' answers come from
    # another thread, which on a busy machine has few turns.
    monkeypatch.setattr(slicing_module, "SLICED_S", math.inf)
    _slice(monkeypatch, 10)

    async def test(running: Running) -> None:
        loader, other = await running.connect(), await running.connect()
        start_ts = await _send_heavy(running, loader)
        connection = next(one for one in running.server._connections if one._long_bytes)
        other_ts = await other.begin()
        loader.send(CommitRequest(other_ts, (CellId(-1),)))
        count = 0
        while running.server._slicing._long:
            assert connection.buffered_bytes > 3 * len(CELLS)
            assert connection._is_paused
            mine = await other.begin()
            other.send(CommitRequest(mine, (CellId(-2),)))
            assert (await other.receive()) is not None
            count += 1
        assert count > 5
        answer = await loader.receive()
        assert isinstance(answer, CommitResponse)
        assert answer.start_ts == start_ts
        assert answer.commit_ts is not None
        behind = await loader.receive()
        assert isinstance(behind, CommitResponse)
        assert behind.start_ts == other_ts
        await until(lambda: running.machine.is_filled)
        assert not connection.buffered_bytes

    run(test)


def test_what_is_not_in_its_place_yet_is_not_overwritten_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heavy commit counts from its decision on, for older snapshots and for them alone."""

    async def test(running: Running) -> None:
        loader, other = await running.connect(), await running.connect()
        monkeypatch.setattr("tso.core.machine.FILLED_AT_ONCE", 0)
        older = await other.begin()
        await _send_heavy(running, loader)
        assert await loader.receive()
        other.send(CommitRequest(older, CELLS[-1:]))
        refused = await other.receive()
        assert isinstance(refused, CommitResponse)
        assert (refused.commit_ts, refused.conflicts) == (None, CELLS[-1:])
        other.send(CommitRequest(await other.begin(), CELLS[-1:]))
        later = await other.receive()
        assert isinstance(later, CommitResponse)
        assert later.commit_ts
        assert not running.machine.is_filled

    run(test)


def test_a_commit_in_between_is_not_overwritten_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heavy one's snapshot did not see it."""
    monkeypatch.setattr(slicing_module, "SLICED_S", math.inf)  # as above: there is an in between
    _slice(monkeypatch, 10)

    async def test(running: Running) -> None:
        loader, other = await running.connect(), await running.connect()
        await _send_heavy(running, loader)
        other.send(CommitRequest(await other.begin(), (CELLS[0],)))
        assert await other.receive()
        assert running.server._slicing._long
        answer = await loader.receive()
        assert isinstance(answer, CommitResponse)
        assert (answer.commit_ts, answer.conflicts) == (None, (CELLS[0],))

    run(test)


def test_who_is_hung_up_on_between_two_slices_leaves_nothing_behind() -> None:
    """Nothing is decided, nothing is kept, and the next one has its turn."""

    async def test(running: Running) -> None:
        loader, other = await running.connect(), await running.connect()
        start_ts = await _send_heavy(running, loader)
        # A client that hangs up itself is not noticed while it is not read from.
        next(one for one in running.server._connections if one._long_bytes).abort("it must go")
        await until(lambda: len(running.server._connections) == 1)
        assert not running.server._slicing._long
        assert not running.server.buffered_bytes
        before = running.machine._engine.remembered_cell_count
        await _send_heavy(running, other)
        answer = await other.receive()
        assert isinstance(answer, CommitResponse)
        assert answer.commit_ts
        assert running.machine._engine.remembered_cell_count == before + len(CELLS)
        assert not running.machine._decisions.get(start_ts)

    run(test)


def test_a_stop_waits_for_the_heavy_request_that_is_under_way() -> None:
    """It had arrived before."""

    async def test(running: Running) -> None:
        loader = await running.connect()
        await _send_heavy(running, loader)
        running.server.stop()
        answer = await loader.receive()
        assert isinstance(answer, CommitResponse)
        assert answer.commit_ts

    run(test)


def test_the_end_of_an_oracle_ends_what_is_under_way() -> None:
    """Another one answers by then."""

    async def test(running: Running) -> None:
        loader = await running.connect()
        start_ts = await _send_heavy(running, loader)
        running.server.end(RuntimeError("deposed"))
        assert await loader.receive() is None
        await asyncio.sleep(0)
        assert not running.machine._decisions.get(start_ts)
        with pytest.raises(RuntimeError, match="deposed"):
            await running.server.ended()

    run(test)


@pytest.mark.parametrize("kind", ["damaged", "of another kind"])
def test_a_heavy_request_that_is_no_commit_ends_its_connection(kind: str) -> None:
    """Whatever slice finds it out."""

    async def test(running: Running) -> None:
        client = await running.connect()
        start_ts = await client.begin()
        payload = frame_request(CommitRequest(start_ts, CELLS))[4:]
        changed = payload[:-1] + b"\x80" if kind == "damaged" else b"\x0a" + payload[1:]
        client.writer.write(frame(changed))
        assert await client.receive() is None
        assert not running.server._slicing._long
        other = await running.connect()
        assert await other.begin()

    run(test)


def test_a_heavy_request_without_a_handshake_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the handshake nobody has the loop for long, however often it connects."""

    async def test(running: Running) -> None:
        client = await running.connect(shakes_hands=False)
        (connection,) = await _accepted(running)
        read: list[object] = []
        monkeypatch.setattr(connection._conversation, "receive", read.append)
        connection.data_received(frame_request(CommitRequest(Timestamp(50), CELLS)))
        assert await client.receive() is None
        assert not read
        assert not running.server._slicing._long

    run(test)


async def _accepted(running: Running) -> list[connection_module.Connection]:
    await until(lambda: bool(running.server._connections))
    return list(running.server._connections)


def test_a_heavy_retry_is_looked_up_and_not_decided() -> None:
    """Of a commit that was never heard of nothing is known."""

    async def test(running: Running) -> None:
        client = await running.connect()
        start_ts = await _send_heavy(running, client, is_retry=True)
        assert await client.receive() is None
        assert not running.machine._decisions.get(start_ts)

    run(test)


def test_a_heavy_commit_that_is_looked_up_first_gets_into_its_place() -> None:
    """It is decided when the table was read, which no client's turn does."""

    async def test(running: Running) -> None:
        loader, other = await running.connect(), await running.connect()
        start_ts = await loader.begin()
        for number in range(3):
            other.send(CommitRequest(await other.begin(), (CellId(-number - 1),)))
            assert await other.receive()
        loader.send(CommitRequest(start_ts, CELLS))
        await until(lambda: not running.machine.is_filled)
        answer = await loader.receive()
        assert isinstance(answer, CommitResponse)
        assert answer.commit_ts
        await until(lambda: running.machine.is_filled)

    run(test, replace(SETTINGS, decision_memory=2))


def test_a_heavy_request_that_lasts_gets_more_of_each_turn() -> None:
    """Clients wait for an answer for five seconds, however long the turns of others are."""

    async def test(running: Running) -> None:
        loader = await running.connect()
        counts: list[int] = []
        original = running.server._slicing._go_on

        def go_on(
            connection: connection_module.Connection, request: LongRequest, slice_count: int
        ) -> bool:
            counts.append(slice_count)
            running.clock.advance(SLICED_S / 8)
            return original(connection, request, slice_count)

        running.server._slicing._go_on = go_on  # type: ignore[method-assign]
        for _ in range(2):
            first = len(counts)
            await _send_heavy(running, loader)
            assert isinstance(await loader.receive(), CommitResponse)
            assert counts[first : first + 17] == [1] * 8 + [2] * 8 + [3]
            await until(lambda: running.machine.is_filled)

    run(test)


def test_no_slice_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million cells take the loop away for a moment at a time, of which the median counts."""
    monkeypatch.undo()

    async def test(running: Running) -> None:
        loader = await running.connect()
        start_ts = await loader.begin()
        took: list[float] = []
        original = running.server._slice

        def timed() -> None:
            since_s = time.thread_time()
            original()
            took.append(time.thread_time() - since_s)

        running.server._slice = timed  # type: ignore[method-assign]
        loader.send(CommitRequest(start_ts, tuple(map(CellId, range(300_000)))))
        assert isinstance(await loader.receive(), CommitResponse)
        await until(lambda: running.machine.is_filled)
        assert len(took) > 50
        assert sorted(took)[len(took) // 2] < 0.01

    run(test)
