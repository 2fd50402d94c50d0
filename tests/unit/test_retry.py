"""Which failures run a transaction again, how often, and after how long."""

from __future__ import annotations

import random
from typing import Self, cast

import pytest

from omidpy.clock import ManualClock
from omidpy.errors import (
    CommitOutcomeUnknown,
    OmidError,
    OracleUnavailable,
    TransactionAborted,
    UsageError,
    WriteConflict,
)
from omidpy.model import Timestamp, TransactionStatus
from omidpy.retry import FIRST_PAUSE_S, LONGEST_PAUSE_S, Attempts
from omidpy.transaction import Transaction
from tests.machines.clients import TABLE, Client


class Scripted:
    """Stands in for a transaction: its commit raises what the script says."""

    def __init__(self, error: OmidError | None) -> None:
        self.error = error
        self.status = TransactionStatus.RUNNING

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, exc: object, traceback: object) -> None:
        if exc_type is not None:
            self.status = TransactionStatus.ROLLED_BACK
        elif self.error is not None:
            self.status = TransactionStatus.ROLLED_BACK
            raise self.error
        else:
            self.status = TransactionStatus.COMMITTED


class Loop:
    """Attempts over scripted transactions, a cranked clock and recorded pauses."""

    def __init__(self, *script: OmidError | None, budget_s: float = 100.0) -> None:
        self.script = list(script)
        self.begun = 0
        self.pauses: list[float] = []
        self.clock = ManualClock()
        self.attempts = Attempts(
            self.begin, self.clock, budget_s, pause=self.pause, rng=random.Random(1)
        )

    def begin(self) -> Transaction:
        """Begin the next of the script; beyond its end, one that commits."""
        self.begun += 1
        error = self.script.pop(0) if self.script else None
        if isinstance(error, OracleUnavailable):
            raise error
        return cast("Transaction", Scripted(error))

    def pause(self, seconds: float) -> None:
        """Turn the clock."""
        self.pauses.append(seconds)
        self.clock.advance(seconds)

    def run(self) -> None:
        """Try until it ends."""
        for attempt in self.attempts:
            with attempt:
                pass


def test_a_success_ends_the_loop() -> None:
    """The body of the loop runs once."""
    loop = Loop()
    loop.run()
    assert (loop.begun, loop.pauses) == (1, [])


def test_aborts_are_retried_until_one_try_commits() -> None:
    """Each try is a whole new transaction."""
    loop = Loop(WriteConflict("a"), WriteConflict("b"))
    loop.run()
    assert loop.begun == 3


@pytest.mark.parametrize(
    "error",
    [
        CommitOutcomeUnknown("?", start_ts=Timestamp(50)),
        TransactionAborted("rollback only", retryable=False),
        UsageError("wrong"),
    ],
    ids=["unknown", "not-retryable-abort", "usage"],
)
def test_other_errors_are_raised_at_once(error: OmidError) -> None:
    """An unknown outcome run again could apply it twice; a bug stays a bug."""
    loop = Loop(error)
    with pytest.raises(type(error)):
        loop.run()
    assert loop.begun == 1


def test_the_last_error_is_raised_when_the_budget_is_spent() -> None:
    """The caller hears why, not that time passed."""
    loop = Loop(*(WriteConflict(str(number)) for number in range(1000)), budget_s=3.0)
    with pytest.raises(WriteConflict) as last:
        loop.run()
    assert str(last.value) == str(loop.begun - 1)
    assert sum(loop.pauses) == pytest.approx(3.0)


def test_no_budget_is_one_try() -> None:
    """`budget_s=0` asks for no repetition."""
    loop = Loop(WriteConflict("once"), budget_s=0)
    with pytest.raises(WriteConflict, match="once"):
        loop.run()
    assert loop.begun == 1


def test_a_negative_budget_is_refused() -> None:
    """It would be one try by accident."""
    with pytest.raises(UsageError, match="-1 seconds"):
        Loop(budget_s=-1)


def test_pauses_are_drawn_below_a_cap_that_doubles() -> None:
    """Full jitter: from nothing to the cap, and the cap has a bound of its own."""
    loop = Loop(*(WriteConflict("x") for _ in range(40)))
    loop.run()
    caps = [min(FIRST_PAUSE_S * 2**number, LONGEST_PAUSE_S) for number in range(40)]
    assert all(0 <= pause <= cap for pause, cap in zip(loop.pauses, caps, strict=True))
    assert max(loop.pauses) > LONGEST_PAUSE_S / 2
    assert min(loop.pauses[10:]) < LONGEST_PAUSE_S / 2


def test_an_oracle_that_is_not_there_is_waited_for() -> None:
    """Nothing has begun yet, so asking again is harmless."""
    loop = Loop(OracleUnavailable("gone"), OracleUnavailable("gone"))
    loop.run()
    assert loop.begun == 3


def test_an_oracle_that_stays_away_is_reported() -> None:
    """With its own error, after the budget."""
    loop = Loop(*(OracleUnavailable("gone") for _ in range(1000)), budget_s=2.0)
    with pytest.raises(OracleUnavailable, match="gone"):
        loop.run()


# -- over a real manager ---------------------------------------------------------------------------


def test_a_retryable_error_in_the_block_runs_it_again() -> None:
    """An inner call may find the conflict before the commit does."""
    client = Client()
    tries = 0
    for attempt in client.tm.attempts(budget_s=60):
        with attempt as tx:
            tries += 1
            tx.table(TABLE).put(b"r", {b"cf:q": b"%d" % tries})
            if tries == 1:
                tx.flush()
                raise WriteConflict("seen early")
    assert tries == 2
    assert client.read() == {b"cf:q": b"2"}


def test_a_block_that_committed_by_itself_is_not_run_again() -> None:
    """A conflict of something else, after the commit, must not apply the block twice."""
    client = Client()
    tries = 0

    def run() -> None:
        nonlocal tries
        for attempt in client.tm.attempts(budget_s=60):
            with attempt as tx:
                tries += 1
                tx.table(TABLE).put(b"r", {b"cf:q": b"%d" % tries})
                tx.commit()
                raise WriteConflict("of another transaction")

    with pytest.raises(WriteConflict, match="of another"):
        run()
    assert tries == 1
    assert client.read() == {b"cf:q": b"1"}


def test_a_foreign_exception_leaves_the_loop() -> None:
    """A bug of the block is nobody's conflict."""
    client = Client()

    def run() -> None:
        for attempt in client.tm.attempts(budget_s=60):
            with attempt as tx:
                tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert client.read() == {}
