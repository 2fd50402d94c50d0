"""Memory of one heavy request is found by the next, and given back when there is none for long."""

from __future__ import annotations

from tso.core.memory import KEPT_S, KeptMemory


class User:
    """Somebody who has memory."""


def test_the_next_one_finds_it() -> None:
    """With whatever stands in it."""
    memory, user = KeptMemory(least_bytes=8), User()
    room = memory.take("q", 3)
    room[2] = 7
    memory.give_back(user, "q", room)
    assert memory.kept_bytes == 0
    del user
    assert memory.kept_bytes == 24
    assert memory.take("q", 2) is room
    assert memory.kept_bytes == 0


def test_it_has_one_user_at_a_time() -> None:
    """Who comes while another is there gets memory that is new."""
    memory, user = KeptMemory(least_bytes=8), User()
    room = memory.take("i", 3)
    memory.give_back(user, "i", room)
    assert memory.take("i", 3) is not room


def test_the_largest_is_kept_of_each_kind() -> None:
    """And what is too small for the next one is not handed out."""
    memory = KeptMemory(least_bytes=8)
    for count in (2, 5, 3):
        memory.give_back(User(), "q", memory.take("q", count))
    assert memory.kept_bytes == 40
    memory.give_back(User(), "i", memory.take("i", 3))
    assert memory.kept_bytes == 52
    assert len(memory.take("q", 6)) == 6


def test_what_is_small_is_not_kept() -> None:
    """It costs nothing to take it anew."""
    memory = KeptMemory()
    memory.give_back(User(), "q", memory.take("q", 1000))
    assert memory.kept_bytes == 0
    memory.give_back(User(), "q", memory.take("q", 2**18))
    assert memory.kept_bytes == 2**21


def test_what_nobody_asks_for_is_let_go() -> None:
    """Not before it was idle for a while."""
    memory = KeptMemory(least_bytes=8)
    memory.pass_time(0.0)
    memory.give_back(User(), "q", memory.take("q", 3))
    memory.pass_time(100.0)
    memory.pass_time(99.9 + KEPT_S)
    assert memory.kept_bytes == 24
    memory.pass_time(100.0 + KEPT_S)
    assert memory.kept_bytes == 0
