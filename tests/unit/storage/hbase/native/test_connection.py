"""One connection, many calls: each answer to its own, and nobody harmed by another's end."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from omidpy.base import outgoing
from omidpy.base.outgoing import Piece
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.connections import connection as connections
from omidpy.storage.hbase.native.connections.connection import Connection
from omidpy.storage.hbase.native.connections.diagnosis import what_answers
from omidpy.storage.hbase.native.faults import (
    CallFailed,
    Disagreed,
    Fault,
    Garbled,
    Lost,
    NotSent,
    TooLarge,
    Unanswered,
)
from omidpy.storage.hbase.native.translate import translate
from omidpy.storage.hbase.native.wire import frames
from omidpy.storage.hbase.native.wire.answers import Answer
from tests.machines.fake_hbase import SILENCE, Call, FakeHBase, Reply, fault, frame_of
from tests.machines.interrupts.lines import Interrupt, Interrupter
from tests.machines.waiting import wait_for

LIMIT_S = 20.0


def until(seconds: float = LIMIT_S) -> float:
    """Return a deadline."""
    return time.monotonic() + seconds


def connected(server: FakeHBase, *, max_frame_bytes: int = 2**20) -> Connection:
    """Connect to a fake."""
    return connections.connect(
        "127.0.0.1",
        server.port,
        "ClientService",
        user="me",
        timeout_s=LIMIT_S,
        max_frame_bytes=max_frame_bytes,
    )


def echo(call: Call) -> Reply:
    """Answer with what was asked."""
    return Reply(body=call.body, cells=call.cells)


@pytest.fixture(name="server")
def echoing() -> Iterator[FakeHBase]:
    """Return a server that answers with what it is asked."""
    with FakeHBase(echo) as server:
        yield server


def test_calls_of_many_threads_get_their_own_answers(server: FakeHBase) -> None:
    """Hundreds of them over one socket."""
    connection = connected(server)

    def call(number: int) -> bool:
        body = b"%d" % number * (1 + number % 50 * 100)
        answer = connection.call("Echo", body, b"c" * (number % 3), until_s=until())
        return answer.body == body and len(answer.frame) - answer.cells_at == number % 3

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(600)))
    assert len(server.openings) == 1
    connection.close()


def test_answers_may_come_in_any_order() -> None:
    """HBase executes the calls of a connection at the same time."""
    held: list[Call] = []

    def script(call: Call) -> Reply:
        held.append(call)
        if len(held) < 3:
            return SILENCE
        return Reply(raw=b"".join(frame_of(one.call_id, Reply(one.body)) for one in reversed(held)))

    with FakeHBase(script) as server:
        connection = connected(server)
        sent = [connection.send("M", b"%d" % number, until_s=until()) for number in range(3)]
        assert [connection.wait(one, until_s=until()).body for one in sent] == [b"0", b"1", b"2"]
        connection.close()


def test_an_answer_that_was_given_up_is_dropped_when_it_comes() -> None:
    """It is never taken for that of the next call."""
    first: list[Call] = []

    def script(call: Call) -> Reply:
        if call.number == 0:
            first.append(call)
            return SILENCE
        late = frame_of(first[0].call_id, Reply(b"late"))
        return Reply(raw=late + frame_of(call.call_id, Reply(b"mine")))

    with FakeHBase(script) as server:
        connection = connected(server)
        with pytest.raises(Unanswered):
            connection.call("M", b"", until_s=until(0.05))
        assert connection.call("M", b"", until_s=until()).body == b"mine"
        assert not connection.has_ended
        connection.close()


@pytest.mark.parametrize(
    "reply", [Reply(body=b"b" * 40, cells=b"c" * 30), fault("SomeException", "x" * 30)]
)
def test_a_connection_cut_at_any_byte_of_an_answer_is_lost(reply: Reply) -> None:
    """The outcome is not known, whatever part of it came; and the whole of it is an answer."""
    whole = frame_of(1, reply)
    for length in (*range(len(whole)), len(whole)):
        cut = Reply(reply.body, reply.cells, reply.fault, after_bytes=length)
        with FakeHBase(lambda _, cut=cut: cut) as server:  # type: ignore[misc] # bound now
            connection = connected(server)
            if length < len(whole):
                with pytest.raises(Lost) as caught:
                    connection.call("M", b"", until_s=until())
                assert not caught.value.is_certain
            elif reply.fault is not None:
                with pytest.raises(Fault, match="SomeException"):
                    connection.call("M", b"", until_s=until())
            else:
                assert connection.call("M", b"", until_s=until()).body == reply.body
            assert _ends(connection)
            with pytest.raises(NotSent):
                connection.call("M", b"", until_s=until())
            connection.close()


def _ends(connection: Connection) -> bool:
    limit_s = until()
    while not connection.has_ended and time.monotonic() < limit_s:
        time.sleep(0.001)
    return connection.has_ended


def test_all_who_wait_hear_that_the_connection_ended() -> None:
    """Not only the one that reads; each gets an error of its own."""
    with FakeHBase(lambda _: SILENCE) as server:
        connection = connected(server)
        with ThreadPoolExecutor(5) as pool:
            calls = [pool.submit(connection.call, "M", b"", until_s=until()) for _ in range(5)]
            while len(server.calls) < 5:
                time.sleep(0.001)
            server.hang_up()
            errors = [call.exception() for call in calls]
        assert all(isinstance(error, Lost) for error in errors)
        assert len({id(error) for error in errors}) == 5
        connection.close()


def test_a_slow_call_keeps_no_other_waiting() -> None:
    """Whoever reads, reads for all, and passes it on when he has his own."""

    def script(call: Call) -> Reply:
        return SILENCE if call.body == b"slow" else Reply(call.body)

    with FakeHBase(script) as server, ThreadPoolExecutor(3) as pool:
        connection = connected(server)
        slow = connection.send("M", b"slow", until_s=until())
        reader = pool.submit(connection.wait, slow, until_s=until(2.0))
        for _ in range(50):
            began_s = time.monotonic()
            assert connection.call("M", b"quick", until_s=until()).body == b"quick"
            assert time.monotonic() - began_s < connections.LOOK_S / 2, "without a look of its own"
        assert isinstance(reader.exception(), Unanswered)
        connection.close()


def test_a_refused_opening_is_told_to_the_call() -> None:
    """The server's own answer has the id -1, and the connection is of no more use."""
    with FakeHBase(
        lambda _: Reply(raw=frame_of(2**32 - 1, fault("ipc.WrongVersionException")))
    ) as fake:
        connection = connected(fake)
        with pytest.raises(Fault, match="WrongVersionException"):
            connection.call("M", b"", until_s=until())
        assert connection.has_ended
        connection.close()


@pytest.mark.parametrize(
    "raw", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 64, b"\x00\x00\x00\x02\xff\xff"]
)
def test_garbage_ends_the_connection_and_says_so(raw: bytes) -> None:
    """Nothing behind it could be trusted."""
    with FakeHBase(lambda _: Reply(raw=raw)) as server:
        connection = connected(server)
        with pytest.raises(Garbled):
            connection.call("M", b"", until_s=until())
        assert connection.has_ended
        connection.close()


def test_an_endless_frame_takes_no_memory(server: FakeHBase) -> None:
    """Its length is refused before a byte of it is kept."""
    with FakeHBase(lambda _: Reply(raw=b"\x7f\xff\xff\xff" + b"x" * 100)) as endless:
        connection = connected(endless, max_frame_bytes=1000)
        with pytest.raises(Garbled, match="more than 1000"):
            connection.call("M", b"", until_s=until())
        connection.close()
    connection = connected(server, max_frame_bytes=1000)
    with pytest.raises(TooLarge, match="1001 bytes"):
        connection.call("M", b"x" * 1001, until_s=until())
    assert connection.call("M", b"x" * 900, until_s=until()).body == b"x" * 900
    connection.close()


def test_a_connection_that_the_server_closed_is_noticed_before_a_call(server: FakeHBase) -> None:
    """A call that may not be made twice would be of unknown outcome otherwise."""
    connection = connected(server)
    connection.call("M", b"", until_s=until())
    assert not connection.has_ended
    server.hang_up()
    assert _ends(connection)
    with pytest.raises(NotSent):
        connection.call("M", b"", until_s=until())
    connection.close()


def test_a_server_that_takes_no_bytes_ends_no_wait() -> None:
    """The deadline holds for sending too, and the call was certainly not executed."""

    def script(_: Call) -> Reply:
        time.sleep(5)
        return SILENCE

    with FakeHBase(script) as stuck:
        connection = connected(stuck, max_frame_bytes=2**28)
        first = connection.send("M", b"", until_s=until())
        with pytest.raises(NotSent, match="takes no more bytes") as caught:
            connection.call("M", b"x" * 2**26, until_s=until(0.2))
        assert caught.value.is_certain
        with pytest.raises(Lost):
            connection.wait(first, until_s=until())
        connection.close()


@pytest.mark.parametrize("is_sending", [False, True])
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_call_that_was_sent_is_not_called_unsent_where_anothers_cannot_be(
    is_sending: bool,  # noqa: FBT001 - a table
    is_begun: bool,  # noqa: FBT001 - a table
) -> None:
    """A thread sends for others, too; its own change would be made a second time."""
    gate = threading.Event()

    def stuck(_: Call) -> Reply:
        gate.wait(LIMIT_S)
        return Reply(b"made")

    with FakeHBase(stuck) as server:
        connection = connected(server, max_frame_bytes=2**28)
        push = connection._outgoing.push
        other = connections.Waiting(2**30, "M")

        def put_in_line() -> None:
            connection._pending[other.id] = other
            connection._outgoing.add(other.id, frames.request(other.id, "M", b"x" * 2**26))

        def push_on(piece: Piece[int], send: Callable[..., int]) -> bool:
            if piece[2][0][0] == other.id:
                return push(piece, send) if is_begun else False
            is_whole = push(piece, send)
            if is_sending and is_whole:
                put_in_line()
            return is_whole

        connection._outgoing.push = push_on  # type: ignore[method-assign]
        mine = connection.send("M", b"", until_s=until(0.3))
        if not is_sending:
            put_in_line()
        with pytest.raises(CallFailed) as caught:
            connection.wait(mine, until_s=until(0.3))
        assert not caught.value.is_certain
        assert not connection.has_ended, "the other one may have more time"
        gate.set()
        connection._outgoing.push = push  # type: ignore[method-assign]
        assert connection.wait(other, until_s=until()).body == b"made"
        assert [len(call.body) for call in server.calls] == [0, 2**26]
        connection.close()


class Refusing:
    """A layer whose other end refuses us, from some byte on."""

    is_over = False
    refuses = False

    def seal(self, data: bytes) -> bytes:
        """Return it as it is."""
        return data

    def open(self, arrived: bytes) -> bytes:
        """Return it as it is, or refuse."""
        if self.refuses:
            raise Disagreed("it wants a certificate")
        return arrived


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_server_that_refuses_us_has_executed_nothing_unless_it_answered_before(
    server: FakeHBase,
    is_heard: bool,  # noqa: FBT001 - a table
) -> None:
    """In the middle of a conversation, it may have made what is in flight."""
    connection = connected(server)
    connection._layer = layer = Refusing()
    if is_heard:
        connection.call("M", b"", until_s=until())
    layer.refuses = True
    with pytest.raises(CallFailed, match="it wants a certificate") as caught:
        connection.call("M", b"", until_s=until())
    assert caught.value.is_certain is not is_heard
    connection.close()


def is_any_awaited(connection: Connection) -> bool:
    """Say whether a thread waits for an answer now."""
    return any(one.is_awaited for one in list(connection._pending.values()))


def test_what_comes_while_one_sends_goes_in_one_piece(server: FakeHBase) -> None:
    """And each call has its answer, though another thread has sent it."""
    connection = connected(server)
    pieces: list[int] = []
    take = connection._outgoing.piece

    def piece(seal: Callable[[bytes], bytes] | None = None) -> Piece[int]:
        taken = take(seal)
        pieces.append(len(taken[2]))
        return taken

    connection._outgoing.piece = piece  # type: ignore[method-assign]
    with ThreadPoolExecutor(3) as pool:
        with connection._outgoing.sending:  # as one who is in his system call
            calls = [
                pool.submit(connection.call, "M", b"%d" % number, until_s=until())
                for number in range(3)
            ]
            wait_for(lambda: len(connection._outgoing.line) == 3, LIMIT_S)
        assert connection.call("M", b"mine", until_s=until()).body == b"mine"
        assert [one.result(LIMIT_S).body for one in calls] == [b"0", b"1", b"2"]
    assert max(pieces) >= 3
    assert sum(pieces) == 4, "each was sent once"
    connection.close()


def test_one_who_has_sent_for_long_hands_over_at_once(
    server: FakeHBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits does look by himself now and then, which would be long for a call."""
    monkeypatch.setattr(outgoing, "MOST_TURNS", 1)
    monkeypatch.setattr(connections, "LOOK_S", 2 * LIMIT_S)
    connection = connected(server)
    take = connection._outgoing.piece
    later: list[Future[Answer]] = []
    reading = connection.send("M", b"reading", until_s=until())
    connection._reader = reading  # so that the other one waits for another thread to read

    def piece(seal: Callable[[bytes], bytes] | None = None) -> Piece[int]:
        taken = take(seal)
        if not later:
            later.append(pool.submit(connection.call, "M", b"later", until_s=until()))
            wait_for(lambda: is_any_awaited(connection), LIMIT_S)
        return taken

    connection._outgoing.piece = piece  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        connection._reads_s = time.monotonic()
        first = connection.send("M", b"first", until_s=until())
        wait_for(lambda: len(server.calls) == 3, connections.LOOK_S / 2)
        assert connection.wait(reading, until_s=until()).body == b"reading"
        assert connection.wait(first, until_s=until()).body == b"first"
        assert later[0].result(LIMIT_S).body == b"later"
    connection.close()


def test_what_was_in_line_when_the_connection_ended_was_certainly_not_sent(
    server: FakeHBase,
) -> None:
    """So a change on a condition may be made again elsewhere."""
    connection = connected(server)
    with ThreadPoolExecutor(1) as pool:
        with connection._outgoing.sending:
            call = pool.submit(connection.call, "M", b"", until_s=until())
            wait_for(lambda: is_any_awaited(connection), LIMIT_S)
            connection._end(Lost("the server closed the connection"))
        with pytest.raises(NotSent) as caught:
            call.result(LIMIT_S)
    assert caught.value.is_certain
    assert server.calls == []
    connection.close()


def test_an_interrupted_call_harms_no_other(server: FakeHBase) -> None:
    """At whatever line: other calls in flight are answered, and so are later ones."""
    interrupter = Interrupter()
    connection = connected(server)

    def call() -> object:
        return connection.call("M", b"mine" * 5000, until_s=until())

    places = list(interrupter.places(call))
    assert len(places) > 30
    ended = 0
    for number in places:
        if connection.has_ended:
            connection.close()
            connection = connected(server)
            ended += 1
        other = connection.send("M", b"other", until_s=until())
        with suppress(Interrupt):
            interrupter.interrupt(call, number, Interrupt())
        assert connection.wait(other, until_s=until()).body == b"other"
        assert connection.call("M", b"next", until_s=until()).body == b"next"
    assert ended == 0, "only a frame that was sent in part ends a connection"
    connection.close()


def test_a_reader_that_is_taken_out_leaves_nobody_waiting() -> None:
    """Another one reads, at once."""
    gate = threading.Event()

    def script(call: Call) -> Reply:
        gate.wait(LIMIT_S)
        return SILENCE if call.body == b"first" else Reply(call.body)

    with FakeHBase(script) as server, ThreadPoolExecutor(1) as pool:
        connection = connected(server)
        first = connection.send("M", b"first", until_s=until())
        second = connection.send("M", b"second", until_s=until())
        with pytest.raises(Unanswered):
            connection.wait(first, until_s=until(0.05))
        waiting = pool.submit(connection.wait, second, until_s=until())
        gate.set()
        assert waiting.result(LIMIT_S).body == b"second"
        connection.close()


def test_a_reader_with_his_own_answer_lets_another_read_at_once() -> None:
    """Who waits does look by himself each second, which would be long for a call."""
    first_two: list[Call] = []

    def script(call: Call) -> Reply:
        if len(first_two) < 2:
            first_two.append(call)
            return SILENCE
        asked = first_two[int(call.body)]
        return Reply(raw=frame_of(asked.call_id, Reply(asked.body)))

    with FakeHBase(script) as server, ThreadPoolExecutor(2) as pool:
        connection = connected(server)
        reading = pool.submit(connection.call, "M", b"first", until_s=until())
        while connection._reader is None:
            time.sleep(0.001)
        waiting = pool.submit(connection.call, "M", b"second", until_s=until())
        while len(first_two) < 2 or not all(one.is_awaited for one in connection._pending.values()):
            time.sleep(0.001)
        began_s = time.monotonic()
        connection.forget(connection.send("M", b"0", until_s=until()))
        assert reading.result(LIMIT_S).body == b"first"
        connection.forget(connection.send("M", b"1", until_s=until()))
        assert waiting.result(LIMIT_S).body == b"second"
        assert time.monotonic() - began_s < connections.LOOK_S / 2
        connection.close()


def test_nobody_listens_is_told_with_its_cause() -> None:
    """Nothing was sent."""
    with pytest.raises(NotSent, match="cannot be reached") as caught:
        connections.connect(
            "127.0.0.1", 1, "ClientService", user="me", timeout_s=1, max_frame_bytes=1000
        )
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_a_process_without_descriptors_is_told_so_and_not_that_a_name_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The resolver cannot open its files, and says that there is no such name."""

    def unknown(*_: object, **__: object) -> socket.socket:
        raise socket.gaierror(-2, "Name or service not known")

    def full() -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "create_connection", unknown)

    def told() -> str:
        with pytest.raises(NotSent) as caught:
            connections.connect("h", 1, "Service", user="me", timeout_s=1, max_frame_bytes=9)
        address = parse_native("hbase+rpc://h:1")
        meant = translate(caught.value, address=address, what="get", where=None, table=None)
        return f"{meant} {what_answers('h', 1).told('HBase')}"

    assert "name is unknown" in told()
    monkeypatch.setattr(socket, "socket", full)
    found = told()
    assert "name is unknown" not in found
    assert found.count("Too many open files") == 2


def test_a_connection_to_ourselves_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody listens the kernel may choose the wanted port as ours, and we would answer."""
    met = socket.socket()
    met.bind(("127.0.0.1", 0))
    met.connect(met.getsockname())
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: met)
    with pytest.raises(NotSent, match="nobody listens") as caught:
        connections.connect(
            "127.0.0.1", 1, "ClientService", user="me", timeout_s=1, max_frame_bytes=1024
        )
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    assert met.fileno() == -1


def test_a_connection_that_idles_is_heard_of_by_what_lies_between(
    server: FakeHBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall forgets it after some minutes otherwise, and the next call hears nothing."""
    made = socket.create_connection(("127.0.0.1", server.port))
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: made)
    connection = connected(server)
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert 0 < made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
    connection.close()


def test_a_closed_connection_fails_whoever_waits(server: FakeHBase) -> None:
    """And a second close does nothing."""
    with FakeHBase(lambda _: SILENCE) as silent, ThreadPoolExecutor(1) as pool:
        connection = connected(silent)
        waiting: Callable[[], object] = pool.submit(
            connection.call, "M", b"", until_s=until()
        ).result
        while not silent.calls:
            time.sleep(0.001)
        connection.close()
        connection.close()
        with pytest.raises(CallFailed):
            waiting()
    assert server.calls == []
