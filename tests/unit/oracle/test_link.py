"""One link, many threads: what they send goes together, and of what was not sent it is said so."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

import pytest

from omidpy.base import outgoing as outgoings
from omidpy.base.outgoing import Piece
from omidpy.base.timing.clock import SystemClock
from omidpy.base.within import within
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.link import Link, LinkDown, _Call
from omidpy.oracle.tls import TlsSocket
from omidpy.wire.connection import ClientConnection
from omidpy.wire.frames import (
    MAX_REQUEST_FRAME_BYTES,
    FrameReader,
    decode_request,
    encode_response,
    frame,
    frame_request,
)
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    CommitResponse,
    HandshakeResponse,
    PeerCapabilities,
    Request,
    Response,
    TimestampRequest,
    TimestampResponse,
)
from tests.machines.interrupts.lines import Interrupt, Interrupter
from tests.machines.waiting import wait_for

LIMIT_S: Final = 20.0
BEGIN: Final = TimestampRequest()


def commit(start_ts: int, cell_count: int = 1) -> CommitRequest:
    """Return a commit of some cells."""
    return CommitRequest(
        Timestamp(start_ts), tuple(map(CellId, range(-cell_count, 0))), (TableId(7),)
    )


class Peer:
    """The oracle's end of a link, which reads and says what a test tells it to."""

    def __init__(self, far: socket.socket) -> None:
        """Answer a handshake that is to come."""
        self._far = far
        far.settimeout(LIMIT_S)
        self._reader = FrameReader(max_frame_bytes=MAX_REQUEST_FRAME_BYTES)
        self._requests: list[Request] = []
        self.say(HandshakeResponse(is_compatible=True, capabilities=PeerCapabilities(ALL_FEATURES)))

    def say(self, *responses: Response) -> None:
        """Send responses in one piece."""
        self._far.sendall(b"".join(frame(encode_response(one)) for one in responses))

    def read(self, count: int) -> list[Request]:
        """Return the next requests."""
        while len(self._requests) < count:
            data = self._far.recv(1 << 20)
            assert data, "the client has hung up"
            self._requests += map(decode_request, self._reader.feed(data))
        taken, self._requests = self._requests[:count], self._requests[count:]
        return taken

    def whole_requests(self) -> list[Request]:
        """Return all that ever comes whole, until the client hangs up."""
        with suppress(ConnectionResetError):
            while data := self._far.recv(1 << 20):
                self._requests += map(decode_request, self._reader.feed(data))
        return self._requests

    def grant_all(self) -> list[int]:
        """Let all commits that come whole commit, until the client hangs up; return which."""
        granted: list[int] = []
        with suppress(ConnectionResetError, BrokenPipeError):
            while data := self._far.recv(1 << 20):
                for one in map(decode_request, self._reader.feed(data)):
                    assert isinstance(one, CommitRequest)
                    granted.append(one.start_ts)
                    self.say(CommitResponse(one.start_ts, Timestamp(1000 + one.start_ts)))
        return granted


class Sealed(TlsSocket):
    """A socket that has sent more than it says, as TLS has whose caller is taken out."""

    def __init__(self, plain: socket.socket) -> None:
        """Say what is sent until `says_less` is set."""
        plain.setblocking(False)
        self._plain = plain
        self.says_less = False
        self.has_sent = threading.Event()
        self.ends = threading.Event()

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """Send all, and say so, or end."""
        sent = self._plain.send(data, flags)
        if self.says_less:
            self.has_sent.set()
            assert self.ends.wait(LIMIT_S)
            raise OSError("it has ended")
        return sent

    def recv(self, size: int) -> bytes:
        """Return what has arrived."""
        return self._plain.recv(size)


@contextmanager
def linked(
    wrapped: Callable[[socket.socket], socket.socket | TlsSocket] = lambda near: near,
) -> Iterator[tuple[Link, Peer]]:
    """Return a link past its handshake, and its other end."""
    near, far = socket.socketpair()
    with near, far:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        peer = Peer(far)
        connection: ClientConnection[_Call] = ClientConnection()
        link = Link(wrapped(near), connection, clock=SystemClock())
        link.shake_hands(timeout_s=LIMIT_S)
        peer.read(1)
        yield link, peer
        link.kill("the test is over")


def ask(link: Link, question: TimestampRequest | CommitRequest = BEGIN) -> int | None:
    """Ask and return the timestamp of the answer."""
    answer = link.call(question, timeout_s=LIMIT_S)
    assert isinstance(answer, TimestampResponse | CommitResponse)
    return answer.start_ts if isinstance(answer, TimestampResponse) else answer.commit_ts


def in_line(link: Link) -> Callable[[], bool]:
    """Return whether three requests wait to be sent."""
    return lambda: len(link._outgoing.line) == 3


def noted(link: Link, note: Callable[[Piece[_Call]], None]) -> None:
    """Let each piece be noted before it is sent."""
    take = link._outgoing.piece

    def piece(seal: Callable[[bytes], bytes] | None = None) -> Piece[_Call]:
        taken = take(seal)
        note(taken)
        return taken

    link._outgoing.piece = piece  # type: ignore[method-assign]


def test_what_comes_while_one_thread_sends_goes_in_one_piece() -> None:
    """And in the order in which it was registered: start timestamps are told apart by that."""
    with linked() as (link, peer), ThreadPoolExecutor(4) as pool:
        pieces: list[int] = []
        noted(link, lambda piece: pieces.append(len(piece[2])))
        with link._outgoing.sending:  # as one who is in his system call
            calls = []
            for number in range(3):
                calls.append(pool.submit(ask, link, commit(50 * (number + 1))))
                wait_for(lambda: len(link._outgoing.line) == len(calls), LIMIT_S)
        mine = pool.submit(ask, link)
        assert [getattr(one, "start_ts", 0) for one in peer.read(4)] == [50, 100, 150, 0]
        peer.say(
            TimestampResponse(Timestamp(1000)),
            *(CommitResponse(Timestamp(ts), Timestamp(1000 + ts)) for ts in (150, 50, 100)),
        )
        assert mine.result(LIMIT_S) == 1000
        assert [one.result(LIMIT_S) for one in calls] == [1050, 1100, 1150]
    assert max(pieces) >= 3
    assert sum(pieces) == 4, "each was sent once"


def test_one_who_has_sent_for_long_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own answer may be there long since; and what it leaves in line is sent at once."""
    monkeypatch.setattr(outgoings, "MOST_TURNS", 1)
    with linked() as (link, peer), ThreadPoolExecutor(3) as pool:
        later: list[Future[int | None]] = []
        senders: list[int] = []

        def note(piece: Piece[_Call]) -> None:
            senders.append(threading.get_ident())
            if len(senders) == 2:  # that of the second thread, the first one reads
                later.append(pool.submit(ask, link, commit(100)))
                wait_for(lambda: len(link._outgoing.line) == 2, LIMIT_S)
                wait_for(lambda: len(link._followers) == 2, LIMIT_S)

        noted(link, note)
        leader = pool.submit(ask, link)
        peer.read(1)
        first = pool.submit(ask, link, commit(50))
        peer.read(2)
        assert len(set(senders)) == 3, "the one whose request it was has sent it"
        peer.say(
            TimestampResponse(Timestamp(1000)),
            CommitResponse(Timestamp(50), Timestamp(1050)),
            CommitResponse(Timestamp(100), Timestamp(1100)),
        )
        answers = [one.result(LIMIT_S) for one in (leader, first, later[0])]
        assert answers == [1000, 1050, 1100]


def test_what_was_in_line_when_the_link_ended_was_certainly_not_sent() -> None:
    """So a commit may be asked for again, and its outcome is not in doubt."""
    with linked() as (link, peer), ThreadPoolExecutor(1) as pool:
        with link._outgoing.sending:
            call = pool.submit(ask, link, commit(50))
            wait_for(lambda: link._outgoing.line, LIMIT_S)
            link.kill("the oracle is gone")
        with pytest.raises(LinkDown, match="is gone") as caught:
            call.result(LIMIT_S)
        assert not caught.value.was_sent
        assert peer.whole_requests() == []


def test_what_was_sent_in_part_was_not_sent_and_what_was_sent_whole_may_be_decided() -> None:
    """A server executes whole requests; of one that it has whole nobody knows."""
    with linked() as (link, peer), ThreadPoolExecutor(2) as pool:
        whole = pool.submit(ask, link, commit(50))
        peer.read(1)
        part = pool.submit(ask, link, commit(100, 200_000))
        wait_for(lambda: link._outgoing.is_begun, LIMIT_S)
        link.kill("the oracle is gone")
        for call, was_sent in ((whole, True), (part, False)):
            with pytest.raises(LinkDown, match="is gone") as caught:
                call.result(LIMIT_S)
            assert caught.value.was_sent is was_sent
        assert peer.whole_requests() == []


def test_with_tls_what_somebody_has_begun_to_send_may_have_been_sent() -> None:
    """What has left is noted by Python code then, which may be interrupted before it does."""
    with linked(Sealed) as (link, peer), ThreadPoolExecutor(2) as pool:
        sealed = link._sock
        assert isinstance(sealed, Sealed)
        sealed.says_less = True
        begun = pool.submit(ask, link, commit(50))
        assert sealed.has_sent.wait(LIMIT_S)
        untouched = pool.submit(ask, link, commit(100))
        wait_for(lambda: len(link._outgoing.line) == 2, LIMIT_S)
        link.kill("the oracle is gone")
        sealed.ends.set()
        for call, was_sent in ((begun, True), (untouched, False)):
            with pytest.raises(LinkDown, match="is gone") as caught:
                call.result(LIMIT_S)
            assert caught.value.was_sent is was_sent
        assert [getattr(one, "start_ts", 0) for one in peer.whole_requests()] == [50]


def test_no_thread_stays_awake_where_another_one_waits_too() -> None:
    """Each look takes the interpreter from it twice."""
    with linked() as (link, peer), ThreadPoolExecutor(2) as pool:
        alone: list[bool] = []
        read = link._reader.read

        def noted_read(size: int, timeout_s: float, *, is_alone: bool) -> bytes:
            alone.append(is_alone)
            return read(size, timeout_s, is_alone=is_alone)

        link._reader.read = noted_read  # type: ignore[method-assign]
        first = pool.submit(ask, link)
        peer.read(1)
        wait_for(lambda: len(alone) == 1, LIMIT_S)  # else the second comes before it reads
        second = pool.submit(ask, link)
        peer.read(1)
        peer.say(TimestampResponse(Timestamp(1000)))
        assert first.result(LIMIT_S) == 1000
        wait_for(lambda: len(alone) == 2, LIMIT_S)
        assert alone[0]
        peer.say(TimestampResponse(Timestamp(1050)))
        assert second.result(LIMIT_S) == 1050
        with link._lock:
            other = _Call(SystemClock().monotonic_s() + LIMIT_S, LIMIT_S)
            link._users[other] = None
        third = pool.submit(ask, link)
        peer.read(1)
        peer.say(TimestampResponse(Timestamp(1100)))
        assert third.result(LIMIT_S) == 1100
        assert not alone[-1]
        link._leave(other)


def test_one_who_waits_for_room_lets_others_read() -> None:
    """Their answers come, and the one that is not sent yet leads again when it is."""
    with linked() as (link, peer), ThreadPoolExecutor(2) as pool:
        large = pool.submit(ask, link, commit(50, 200_000))
        wait_for(lambda: link._outgoing.is_begun and not link._has_leader, LIMIT_S)
        small = pool.submit(ask, link, commit(100))
        wait_for(lambda: link._has_leader, LIMIT_S)
        assert len(peer.read(2)) == 2
        peer.say(CommitResponse(Timestamp(100), Timestamp(150)))
        assert small.result(LIMIT_S) == 150
        peer.say(CommitResponse(Timestamp(50), Timestamp(200)))
        assert large.result(LIMIT_S) == 200
        assert not link._has_leader


@contextmanager
def beside_another(link: Link, peer: Peer) -> Iterator[tuple[_Call, Future[list[int]]]]:
    """Let another thread's request be in line, and that thread read, while commits are answered.

    Yields:
        The other thread's call, and the start timestamps of all commits that come whole.
    """
    with ThreadPoolExecutor(2) as pool:
        other = _Call(SystemClock().monotonic_s() + LIMIT_S, LIMIT_S)
        link._register(commit(50), other, frame_request(commit(50)))
        assert other.leads

        def read() -> None:
            while not other.is_settled:
                link._read(other)

        reading, answering = pool.submit(read), pool.submit(peer.grant_all)
        yield other, answering
        reading.result(LIMIT_S)
        within(link._lock, link._leave, other)
        link.kill("the test is over")


def test_an_interrupted_sender_says_of_no_other_that_it_was_not_sent_if_it_was() -> None:
    """At whatever line one is taken out that sends for both: what came whole is committed.

    The link is of full use then, or of none, and the other thread hears of it.
    """
    interrupter = Interrupter()
    with linked() as (link, peer), beside_another(link, peer):
        places = interrupter.places(lambda: ask(link, commit(100)))
    assert len(places) > 50
    outcomes = set()
    for number in places:
        with linked() as (link, peer), beside_another(link, peer) as (other, answering):
            with suppress(Interrupt):
                interrupter.interrupt(lambda: ask(link, commit(100)), number, Interrupt())
            if link.is_open:
                assert ask(link, commit(150)) == 1150
                assert other.answer is not None
                outcomes.add("open")
                continue
            wait_for(lambda: other.is_settled, LIMIT_S)
            got = answering.result(LIMIT_S)
            was_sent = link._was_sent(other)
            assert was_sent or 50 not in got
            outcomes.add("sent" if was_sent else "not sent")
    assert outcomes == {"open", "sent", "not sent"}
