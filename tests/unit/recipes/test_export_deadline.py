"""A connection is cut at the end of its time, and no other one."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from omidpy.recipes.export_queue.sinks.sql.deadline import Deadline

PATIENCE_S: Final = 30.0

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a connection."""
    here, there = socket.socketpair()
    with here, there:
        for end in (here, there):
            end.settimeout(PATIENCE_S)
        yield here, there


def test_who_waits_finds_the_end_of_the_stream(pair: Pair) -> None:
    """The other end is there, and says nothing."""
    here, _ = pair
    with Deadline(here.fileno(), 0.01) as deadline:
        assert here.recv(1) == b""
        assert deadline.has_passed


def test_a_block_that_ends_in_time_cuts_nothing(pair: Pair) -> None:
    """Also where its time passes right then: the timer is on its way already."""
    here, there = pair
    with Deadline(here.fileno(), PATIENCE_S) as deadline:
        pass
    deadline._pass()
    assert not deadline.has_passed
    there.send(b"x")
    assert here.recv(1) == b"x"


def test_another_connection_with_the_same_number_is_not_cut(pair: Pair) -> None:
    """The driver has found out by itself and closed its socket, and another thread opens one."""
    here, there = pair
    with Deadline(here.fileno(), PATIENCE_S) as deadline:
        one, other = socket.socketpair()
        with one, other:
            os.dup2(one.fileno(), here.fileno())
            deadline._pass()
            assert there.recv(1) == b""
            other.send(b"x")
            assert here.recv(1) == b"x"


def test_a_connection_that_is_closed_at_the_other_end_is_no_error(pair: Pair) -> None:
    """Its reset comes before the end of its time."""
    here, there = pair
    with Deadline(here.fileno(), PATIENCE_S) as deadline:
        here.shutdown(socket.SHUT_RDWR)
        there.close()
        deadline._pass()
        deadline._pass()


def test_no_thread_to_be_had_is_told_as_an_error_of_the_system(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No entry is at fault, and nothing stays open."""

    def refuse(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", refuse)
    here, there = pair
    with pytest.raises(OSError, match="new thread"):
        Deadline(here.fileno(), PATIENCE_S)
    here.close()
    assert there.recv(1) == b""
