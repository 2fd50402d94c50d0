"""Waiting for an answer: when a client looks for it, and when it sleeps."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence

import pytest

from omidpy.base.timing.clock import SystemClock
from omidpy.base.timing.wakefulness import LOOKS_S, MADE_WAY_S, SLEEPS_S, SOON_COUNT, SOON_S
from omidpy.model import Timestamp
from omidpy.oracle.link import Link, open_link
from omidpy.oracle.network import SYSTEM_NETWORK, Reader

LONG_S = 5.0
QUICK_S = SOON_S / 4
SIZE = 1024


class Line:
    """A socket with a clock: each answer comes when it is due."""

    def __init__(self, *, waits_in_recv: bool) -> None:
        """Begin at some time."""
        self.now_s = 1000.0
        self.look_s = 0.000_002
        """How long it takes to look once."""
        self.due_s = 0.0
        self.sleep_count = 0
        self.reader = Reader(
            self, self, lambda: self.now_s, waits_in_recv=waits_in_recv, may_look=True
        )

    def poll(self, timeout: int, /) -> Sequence[object]:
        """Sleep, or look once."""
        if timeout:
            self.sleep_count += 1
            self.now_s = max(self.now_s, min(self.due_s, self.now_s + timeout / 1000))
        else:
            self.now_s += self.look_s
        return [self] if self.now_s >= self.due_s else []

    def recv(self, size: int, /) -> bytes:
        """Return an answer, for which a socket that waits sleeps a second at most."""
        assert size == SIZE
        if self.now_s < self.due_s:
            assert self.poll(1000), "it has not come"
        return b"answer"

    def wait(self, seconds: float, *, is_alone: bool = True) -> int:
        """Wait for an answer that comes after so long; return how often that meant to sleep."""
        before = self.sleep_count
        self.due_s = self.now_s + seconds
        assert self.reader.read(SIZE, LONG_S, is_alone=is_alone) == b"answer"
        return self.sleep_count - before

    def warm_up(self) -> None:
        """Let as many answers come soon as it takes."""
        for _ in range(SOON_COUNT):
            assert self.wait(QUICK_S) == 1


@pytest.fixture(name="line", params=[True, False], ids=["waits-in-recv", "polls"])
def new_line(request: pytest.FixtureRequest) -> Line:
    """Return a line on which nothing has come yet."""
    return Line(waits_in_recv=request.param)


def test_the_next_answer_is_looked_for_once_many_came_soon(line: Line) -> None:
    """To fall asleep and to be woken would take longer than the answer."""
    line.warm_up()
    assert [line.wait(QUICK_S) for _ in range(100)] == [0] * 100


def test_what_does_not_come_soon_is_slept_for(line: Line) -> None:
    """Who looks for long takes a processor from somebody."""
    line.warm_up()
    assert line.wait(1) == 1
    # And it is not looked for the next ones either, until as many came soon again.
    line.warm_up()
    assert line.wait(QUICK_S) == 0


def test_it_is_looked_for_no_longer_than_a_short_answer_takes(line: Line) -> None:
    """The bound of what looking in vain costs."""
    line.warm_up()
    began_s = line.now_s
    line.due_s = began_s + 100
    with pytest.raises(BlockingIOError):
        line.reader.read(SIZE, 0.001, is_alone=True)
    assert began_s + 0.001 < line.now_s <= began_s + LOOKS_S + 2 * line.look_s + 0.001


def test_one_answer_that_comes_late_starts_the_count_again(line: Line) -> None:
    """Many in a row are asked for: a client that does other things in between should sleep."""
    for _ in range(SOON_COUNT - 1):
        line.wait(QUICK_S)
    line.wait(2 * SOON_S)
    line.warm_up()
    assert line.wait(QUICK_S) == 0


def test_who_was_made_to_give_way_sleeps_for_a_while(line: Line) -> None:
    """Where others want the processor, one that never sleeps waits longest for its next turn."""
    line.warm_up()
    line.look_s = 2 * MADE_WAY_S
    assert line.wait(QUICK_S) == 0
    line.look_s = 0.000_002
    slept_s = line.now_s
    while line.now_s - slept_s < SLEEPS_S - QUICK_S:
        assert line.wait(QUICK_S) == 1
    assert [line.wait(QUICK_S) for _ in range(3)][-1] == 0


def test_it_is_not_looked_for_beside_other_threads(line: Line) -> None:
    """They have something better to do with the interpreter, which each look takes twice."""
    line.warm_up()
    assert [line.wait(QUICK_S, is_alone=False) for _ in range(10)] == [1] * 10
    line.warm_up()  # what came soon to several says nothing of what comes to one
    assert line.wait(QUICK_S) == 0


@pytest.fixture(name="pair")
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return two ends of a connection."""
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.mark.parametrize(("count", "is_wakeful"), [(1, False), (None, False), (2, True)])
def test_on_one_processor_nobody_looks(
    pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    count: int | None,
    *,
    is_wakeful: bool,
) -> None:
    """The oracle could not answer meanwhile."""
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    near, far = pair
    reader = SYSTEM_NETWORK.reader(near)
    assert reader._may_look is is_wakeful
    for _ in range(2 * SOON_COUNT):
        far.send(b"x")
        assert reader.read(SIZE, LONG_S, is_alone=True) == b"x"
        with pytest.raises(BlockingIOError):
            reader.read(SIZE, 0.001, is_alone=False)


def test_an_oracle_whose_machine_is_gone_is_noticed_in_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that rests believed in its connection for two hours, and its next commit paid."""
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    if not all(hasattr(socket, name) for name in names):
        pytest.skip("this system cannot be told how long to wait for a peer")
    monkeypatch.setattr(Link, "shake_hands", lambda *_, **__: None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        link = open_link(
            listening.getsockname()[:2],
            connect_timeout_s=5.0,
            handshake_timeout_s=5.0,
            after_ts=Timestamp(0),
            clock=SystemClock(),
        )
        sock = link._sock
        assert isinstance(sock, socket.socket)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, count, patience = (
            sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names
        )
        link.kill("the test is over")
    assert idle + interval * count <= 30
    assert patience <= 30_000
