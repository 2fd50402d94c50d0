"""Which failures run a transaction again, how often, and after how long."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Self, cast

import pytest

from omidpy import aio
from omidpy.base.timing.clock import ManualClock, SystemClock
from omidpy.errors import (
    CommitOutcomeUnknown,
    OmidError,
    OracleUnavailable,
    TransactionAborted,
    UsageError,
    WriteConflict,
)
from omidpy.model import Timestamp, TransactionStatus
from omidpy.tx.retry import FIRST_PAUSE_S, LONGEST_PAUSE_S, Attempts
from omidpy.tx.transaction import Transaction
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
    assert last.value.event.startswith(f"{loop.begun - 1}; given up after {loop.begun} tries")
    assert sum(loop.pauses) == pytest.approx(3.0)


def test_no_budget_is_one_try() -> None:
    """`budget_s=0` asks for no repetition."""
    loop = Loop(WriteConflict("once"), budget_s=0)
    with pytest.raises(WriteConflict, match="once"):
        loop.run()
    assert loop.begun == 1


@pytest.mark.parametrize("budget_s", [-1, float("nan")])
def test_a_negative_budget_is_refused(budget_s: float) -> None:
    """It would be one try by accident; and of what is no number no end."""
    with pytest.raises(UsageError, match=f"{budget_s} seconds"):
        Loop(budget_s=budget_s)


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


def doubt() -> CommitOutcomeUnknown:
    """Return the error of a try with an idempotency key that got no answer."""
    return CommitOutcomeUnknown("nobody knows", start_ts=Timestamp(50), retryable=True)


@pytest.mark.parametrize(
    "later",
    [
        WriteConflict("perhaps with it"),
        OracleUnavailable("gone"),
        TransactionAborted("rollback only", retryable=False),
    ],
    ids=["conflict", "begin", "not-retryable"],
)
def test_a_try_in_doubt_is_not_told_as_failed_because_a_later_one_failed(later: OmidError) -> None:
    """I9: "certainly not" is true of the later one alone, and the first may have committed."""
    first = doubt()
    loop = Loop(first, *([later] * 1000), budget_s=2.0)
    with pytest.raises(
        CommitOutcomeUnknown, match=r"^nobody knows; .*same idempotency key"
    ) as last:
        loop.run()
    assert last.value is first
    assert last.value.__cause__ is later
    assert last.value.attempts == loop.begun
    assert last.value.retryable


def test_a_try_in_doubt_is_forgotten_where_a_later_one_commits() -> None:
    """Both have used the key, so that the first never will."""
    loop = Loop(doubt(), WriteConflict("perhaps with it"))
    loop.run()
    assert loop.begun == 3


# -- what is seen of it ----------------------------------------------------------------------------


ADVICE = "run it again, for example with @tm.transactional"


def test_an_attempt_knows_its_number() -> None:
    """From 1; one that could not begin counts."""
    loop = Loop(WriteConflict("a"), OracleUnavailable("b"))
    numbers = []
    for attempt in loop.attempts:
        numbers.append(attempt.number)
        with attempt:
            pass
    assert numbers == [1, 3]


def test_the_last_error_says_how_often_and_how_long() -> None:
    """In fields for programs and in its message; and it no longer advises what has just failed."""
    script = (WriteConflict(f"{number} conflicts", advice=ADVICE) for number in range(1000))
    loop = Loop(*script, budget_s=3.0)
    with pytest.raises(WriteConflict) as last:
        loop.run()
    error = last.value
    assert error.attempts == loop.begun
    assert error.elapsed_s == pytest.approx(3.0)
    assert str(error) == (
        f"{loop.begun - 1} conflicts; given up after {loop.begun} tries in 3.0 s, since the budget "
        "of 3 s is spent"
    )
    assert error.retryable, "a later run of the program may succeed"


def test_an_error_that_is_not_retried_says_it_too() -> None:
    """It came after other tries, which may be what was wrong."""
    unknown = CommitOutcomeUnknown("nobody knows", start_ts=Timestamp(50))
    loop = Loop(WriteConflict("first"), unknown)
    with pytest.raises(CommitOutcomeUnknown, match=r"^nobody knows$") as last:
        loop.run()
    assert last.value.attempts == 2
    assert last.value.elapsed_s == pytest.approx(sum(loop.pauses))


def test_each_further_try_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """With the conflict that made it necessary, and no advice to do what is being done."""
    loop = Loop(WriteConflict("cell x", advice=ADVICE), WriteConflict("cell y", advice=ADVICE))
    with caplog.at_level(logging.INFO, logger="omidpy"):
        loop.run()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" failed")[0] for line in lines] == ["try 1", "try 2"]
    assert [line.rpartition(": ")[2] for line in lines] == ["cell x", "cell y"]


def test_a_conflict_outside_of_any_loop_advises_to_run_it_again() -> None:
    """There it is news."""
    client = Client()
    tx = client.tm.begin()
    tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    client.write()
    with pytest.raises(WriteConflict, match=f"{ADVICE}$") as conflict:
        tx.commit()
    assert conflict.value.event.endswith("after it began")
    assert conflict.value.attempts is None


def test_an_error_of_the_block_itself_is_counted() -> None:
    """What the block raised is what its caller hears."""
    client = Client()

    def run() -> None:
        for attempt in client.tm.attempts(budget_s=60):
            with attempt as tx:
                if attempt.number == 1:
                    raise WriteConflict
                tx.table(TABLE).put(b"", {b"cf:q": b"v"})

    with pytest.raises(UsageError) as last:
        run()
    assert last.value.attempts == 2


def test_asyncio_shows_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """Numbers, fields, lines of the log."""
    client = Client(clock=SystemClock())

    async def main() -> None:
        async with aio.TransactionManager(client.tm) as tm:
            numbers = []

            async def fail() -> None:
                async for attempt in tm.attempts(budget_s=0.5):
                    async with attempt:
                        numbers.append(attempt.number)
                        raise WriteConflict("cell x", advice=ADVICE)

            with pytest.raises(WriteConflict, match="given up after") as last:
                await fail()
            assert numbers == list(range(1, len(numbers) + 1))
            assert last.value.attempts == len(numbers) > 1
            assert last.value.elapsed_s is not None
            assert ADVICE not in str(last.value)

    with caplog.at_level(logging.INFO, logger="omidpy.tx.retry"):
        asyncio.run(main())
    assert caplog.records[0].getMessage().endswith("cell x")


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
