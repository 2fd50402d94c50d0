"""Requests of several threads as one piece: none is lost, none goes twice, and what is unsent."""

from __future__ import annotations

import random

import pytest

from omidpy.storage.hbase.native.connections.outgoing import Outgoing
from tests.machines.interrupts.lines import Interrupt, Interrupter


def send(outgoing: Outgoing, most: int = 1000) -> bytes:
    """Send as much of the next piece as one system call takes, and return it."""
    data, sent, _ = piece = outgoing.piece(None)
    done = sum(sent)
    taken = data[done : done + most]
    sent.append(len(taken))
    if sum(sent) == len(data):
        outgoing.leave(piece)
    return taken


def test_what_is_in_line_goes_as_one_piece_in_its_order() -> None:
    """And what comes meanwhile goes in the next one."""
    outgoing = Outgoing()
    for number, request in enumerate((b"one", b"two", b"three")):
        outgoing.add(number, request)
    assert send(outgoing, 5) == b"onetw"
    outgoing.add(3, b"four")
    assert outgoing.is_begun
    assert send(outgoing) == b"othree"
    assert not outgoing.is_begun
    assert send(outgoing) == b"four"
    assert outgoing.line == {}
    assert outgoing.piece(None)[0] == b""


def test_what_is_unsent_was_not_sent_whole() -> None:
    """Byte by byte: a request is unsent until its last byte has gone."""
    outgoing = Outgoing()
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
    outgoing = Outgoing()
    outgoing.add(1, b"abc")
    outgoing.add(2, b"de")
    outgoing.withdraw(1)
    assert send(outgoing, 1) == b"d"
    outgoing.withdraw(2)
    assert send(outgoing) == b"e"
    assert outgoing.line == {}


def test_a_piece_of_which_nothing_went_is_in_line_again() -> None:
    """One of it may be withdrawn then; of one that has begun, none may."""
    outgoing = Outgoing()
    outgoing.add(1, b"abc")
    outgoing.add(2, b"de")
    outgoing.piece(None)
    outgoing.put_back()
    outgoing.withdraw(1)
    assert send(outgoing, 1) == b"d"
    outgoing.put_back()
    assert send(outgoing) == b"e"


def test_what_is_sealed_is_unsent_until_all_of_it_went() -> None:
    """Where in the sealed bytes a request ends, nobody knows."""
    outgoing = Outgoing()
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

    def started() -> tuple[Outgoing, bytes]:
        outgoing = Outgoing()
        requests = [bytes([65 + number]) * rng.randint(1, 5) for number in range(4)]
        for number, request in enumerate(requests):
            outgoing.add(number, request)
        return outgoing, b"".join(requests)

    def send_all(outgoing: Outgoing, socket: list[bytes]) -> None:
        while True:
            data, sent, _ = piece = outgoing.piece(None)
            if not data:
                return
            done = sum(sent)
            rest = data[done : done + 3]
            # Both at once, as `map` of the socket's method does it.
            sent.extend(map(len, [socket.append(rest) or rest]))  # type: ignore[func-returns-value]
            if sum(sent) == len(data):
                outgoing.leave(piece)

    places = list(interrupter.places(lambda: send_all(started()[0], [])))
    assert len(places) > 20
    for number in places:
        outgoing, expected = started()
        socket: list[bytes] = []
        try:
            interrupter.interrupt(lambda: send_all(outgoing, socket), number, Interrupt())  # noqa: B023
        except Interrupt:
            send_all(outgoing, socket)
        assert b"".join(socket) == expected
        assert outgoing.line == {}
