"""Requests of several threads as one piece: none is lost, none goes twice, and what is unsent."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

import pytest

from omidpy.base.outgoing import MOST_TURNS, Outgoing
from tests.machines.interrupts.lines import Interrupt, Interrupter


def send(outgoing: Outgoing[int], most: int = 1000) -> bytes:
    """Send as much of the next piece as one system call takes, and return it."""
    to = Socket(most)
    outgoing.push(outgoing.piece(), to.send)
    return to.taken


class Socket:
    """A socket that takes so many bytes at once."""

    def __init__(self, most: int) -> None:
        """Have taken none yet."""
        self._most = most
        self.taken = b""

    def send(self, data: bytes | memoryview, flags: int, /) -> int:
        """Take some bytes, without waiting until there is room for more."""
        assert flags == socket.MSG_DONTWAIT
        self.taken += bytes(data[: self._most])
        return min(len(data), self._most)


def test_what_is_in_line_goes_as_one_piece_in_its_order() -> None:
    """And what comes meanwhile goes in the next one."""
    outgoing = Outgoing[int]()
    for number, request in enumerate((b"one", b"two", b"three")):
        outgoing.add(number, request)
    assert send(outgoing, 5) == b"onetw"
    outgoing.add(3, b"four")
    assert outgoing.is_begun
    assert send(outgoing) == b"othree"
    assert not outgoing.is_begun
    assert send(outgoing) == b"four"
    assert outgoing.line == {}
    assert outgoing.piece()[0] == b""


def test_what_is_unsent_was_not_sent_whole() -> None:
    """Byte by byte: a request is unsent until its last byte has gone."""
    outgoing = Outgoing[int]()
    outgoing.add(1, b"abc")
    outgoing.add(2, b"de")
    for count in range(1, 6):
        send(outgoing, 1)
        outgoing.add(3, b"behind")
        assert outgoing.is_unsent(1) is (count < 3)
        assert outgoing.is_unsent(2) is (count < 5)
        assert outgoing.is_unsent(3)


def test_who_withdraws_is_not_sent_unless_it_is_under_way() -> None:
    """Half a request would be taken for the beginning of the next one."""
    outgoing = Outgoing[int]()
    outgoing.add(1, b"abc")
    outgoing.add(2, b"de")
    outgoing.withdraw(1)
    assert send(outgoing, 1) == b"d"
    outgoing.withdraw(2)
    assert send(outgoing) == b"e"
    assert outgoing.line == {}


def test_a_piece_of_which_nothing_went_is_in_line_again() -> None:
    """One of it may be withdrawn then; of one that has begun, none may."""
    outgoing = Outgoing[int]()
    outgoing.add(1, b"abc")
    outgoing.add(2, b"de")
    outgoing.piece()
    outgoing.put_back()
    outgoing.withdraw(1)
    assert send(outgoing, 1) == b"d"
    outgoing.put_back()
    assert send(outgoing) == b"e"


def test_what_is_sealed_is_unsent_until_all_of_it_went() -> None:
    """Where in the sealed bytes a request ends, nobody knows."""
    outgoing = Outgoing[int]()
    outgoing.add(1, b"abc")
    outgoing.add(2, b"de")
    data, sent, _ = outgoing.piece(lambda data: b"<" + data + b">")
    assert data == b"<abcde>"
    sent.append(6)
    assert outgoing.is_unsent(1)
    sent.append(1)
    assert not outgoing.is_unsent(1)


@pytest.mark.parametrize("seed", range(3))
def test_a_sender_taken_out_at_any_line_loses_and_doubles_nothing(seed: int) -> None:
    """Whoever sends next goes on where he stopped."""
    rng = random.Random(seed)
    interrupter = Interrupter()

    def started() -> tuple[Outgoing[int], bytes]:
        outgoing = Outgoing[int]()
        requests = [bytes([65 + number]) * rng.randint(1, 5) for number in range(4)]
        for number, request in enumerate(requests):
            outgoing.add(number, request)
        return outgoing, b"".join(requests)

    def send_all(outgoing: Outgoing[int], to: Socket) -> None:
        while (piece := outgoing.piece())[0]:
            outgoing.push(piece, to.send)

    places = list(interrupter.places(lambda: send_all(started()[0], Socket(3))))
    assert len(places) > 20
    for number in places:
        outgoing, expected = started()
        to = Socket(3)
        try:
            interrupter.interrupt(lambda: send_all(outgoing, to), number, Interrupt())  # noqa: B023
        except Interrupt:
            send_all(outgoing, to)
        assert to.taken == expected
        assert outgoing.line == {}


def test_who_puts_in_line_while_another_one_sends_is_sent_by_that_one() -> None:
    """The other one looks again behind having sent; or nobody would until the next request."""
    outgoing = Outgoing[int]()
    to = Socket(1000)

    def send_one(_: None) -> bool:
        outgoing.push(outgoing.piece(), to.send)
        if to.taken == b"first":
            outgoing.add(2, b"second")
            outgoing.send_on(send_one, None, lambda: False)  # as the other thread does
            assert to.taken == b"first", "two would send at once"
        return True

    outgoing.add(1, b"first")
    outgoing.send_on(send_one, None, lambda: False)
    assert to.taken == b"firstsecond"
    assert not outgoing.sending.locked()


def test_who_has_sent_for_long_hands_over_where_another_one_goes_on() -> None:
    """Its own answer may be there long since, while others put one request in line after another.

    Where nobody goes on it does, for as long as it takes.
    """
    for goes_on in (True, False):
        outgoing = Outgoing[int]()
        to = Socket(1000)
        names = iter(range(10))

        def send_one(_: None) -> bool:
            outgoing.push(outgoing.piece(), to.send)  # noqa: B023
            for name in names:  # noqa: B023
                outgoing.add(name, b"x")  # noqa: B023
                break
            return True

        outgoing.add(-1, b"x")
        outgoing.send_on(send_one, None, lambda: goes_on)  # noqa: B023
        assert len(to.taken) == (MOST_TURNS if goes_on else 11)


def test_what_nobody_has_begun_to_send_is_untouched() -> None:
    """Where what is sent with may have sent more than it says, nothing else is sure."""
    outgoing = Outgoing[int]()
    outgoing.add(1, b"abc")
    assert outgoing.is_untouched(1)
    piece = outgoing.piece()
    outgoing.add(2, b"de")
    assert not outgoing.is_untouched(1)
    assert outgoing.is_unsent(1)
    assert outgoing.is_untouched(2)
    outgoing.push(piece, Socket(1000).send)
    assert not outgoing.is_untouched(1)


def test_a_socket_that_takes_nothing_leaves_the_piece_to_be_sent() -> None:
    """It is no error: there is no room now."""
    outgoing = Outgoing[int]()
    outgoing.add(1, b"abc")
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(True)
        with suppress(BlockingIOError):
            while True:
                near.send(b"x" * 65536, socket.MSG_DONTWAIT)
        assert not outgoing.push(outgoing.piece(), near.send)
        assert outgoing.is_unsent(1)
        far.recv(1 << 22)
        assert outgoing.push(outgoing.piece(), near.send)
        assert not outgoing.is_unsent(1)
