"""Heavy requests: at once for whoever asks alone, else at a pace, in order, and never too late."""

from __future__ import annotations

from math import inf

from tso.core.shares.heavy import HEAVY_BYTES_PER_S, MAX_WAIT_S, HeavyTurns

SIZE: int = HEAVY_BYTES_PER_S  # the next one may go a second later


def test_whoever_asks_alone_waits_for_nothing() -> None:
    """A load into an idle store is as fast as it was."""
    turns: HeavyTurns[str] = HeavyTurns()
    assert all(turns.may_go("loader", SIZE, 0.0, others_ask=False) for _ in range(100))
    assert turns.due_s is None


def test_beside_others_the_next_one_waits_for_what_the_last_one_took() -> None:
    """By bytes, whoever sent them: a second connection gains nothing."""
    turns: HeavyTurns[str] = HeavyTurns()
    assert turns.may_go("a", 2 * SIZE, 0.0, others_ask=True)
    assert not turns.may_go("b", SIZE, 0.5, others_ask=True)
    assert turns.due_s == 2.0
    assert turns.next(1.99) is None
    assert turns.next(2.0) == "b"
    assert turns.may_go("b", SIZE, 2.0, others_ask=True)
    assert not turns.may_go("b", SIZE, 2.5, others_ask=True)
    assert turns.due_s == 3.0


def test_nobody_waits_longer_than_clients_do() -> None:
    """Sent again, on another connection, it would only be one more."""
    turns: HeavyTurns[str] = HeavyTurns()
    assert turns.may_go("a", 40 * SIZE, 0.0, others_ask=True)
    assert not turns.may_go("b", 40 * SIZE, 1.0, others_ask=True)
    assert not turns.may_go("c", 40 * SIZE, 1.5, others_ask=True)
    assert turns.next(1.0 + MAX_WAIT_S) == "b"
    assert turns.next(1.0 + MAX_WAIT_S) is None
    assert turns.next(1.5 + MAX_WAIT_S) == "c"


def test_those_that_wait_go_in_the_order_in_which_they_came() -> None:
    """Whoever sends more goes behind all that wait, and so does one that would not have waited."""
    turns: HeavyTurns[str] = HeavyTurns()
    assert turns.may_go("a", SIZE, 0.0, others_ask=True)
    assert not turns.may_go("b", SIZE, 0.1, others_ask=True)
    assert not turns.may_go("a", SIZE, 0.2, others_ask=True)
    assert not turns.may_go("c", SIZE, 0.3, others_ask=False)
    assert not turns.may_go("b", SIZE, 0.4, others_ask=True)  # it keeps its place
    order = [turns.next(number) for number in (1.0, 1.5, 2.0, 3.0, 4.0)]
    assert order == ["b", None, "a", "c", None]


def test_one_that_left_is_forgotten() -> None:
    """Nobody waits for it, and nothing of it is kept."""
    turns: HeavyTurns[str] = HeavyTurns()
    assert turns.may_go("a", SIZE, 0.0, others_ask=True)
    assert not turns.may_go("b", SIZE, 0.1, others_ask=True)
    assert not turns.may_go("c", SIZE, 0.2, others_ask=True)
    assert "b" in turns
    turns.forget("b")
    assert "b" not in turns
    assert turns.next(1.0) == "c"
    assert turns.last_s("a") == 0.0
    for ticket in "abc":
        turns.forget(ticket)
    assert turns.last_s("a") == -inf
    assert turns.due_s is None
