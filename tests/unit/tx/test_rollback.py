"""`raise Rollback`: a block is left, its transaction rolled back, and nobody sees an error."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from omidpy import aio
from omidpy.base.commit_facts import INVALID
from omidpy.errors import (
    OmidError,
    Rollback,
    TransactionAborted,
    TransactionClosed,
    WriteConflict,
)
from omidpy.facts.commit_table import CommitTable
from omidpy.model import Aborted, Committed
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


def put(tx: Transaction, row: bytes = b"r") -> None:
    """Write something."""
    tx.table(TABLE).put(row, {b"cf:q": b"v"})


def test_a_block_is_left_without_an_error(client: Client) -> None:
    """What was flushed is gone, too, and callbacks are not called."""
    called: list[object] = []
    with client.tm.begin() as tx:
        put(tx)
        tx.flush()
        tx.after_commit(called.append)
        raise Rollback
    assert client.tm.outcome(tx) == Aborted()
    assert (client.raw(), called) == ([], [])


@pytest.mark.parametrize("hold_s", [None, 60.0, 3600.0])
@pytest.mark.parametrize("writes", [False, True])
def test_what_is_rolled_back_holds_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch, hold_s: float | None, *, writes: bool
) -> None:
    """The oracle kept the low watermark below it, though it would never commit.

    One of no longer than its age keeps nothing: a client may roll back any number of those.
    """
    monkeypatch.setattr(client.naive, "max_transaction_age_s", 900.0)
    with client.tm.begin(hold_s=hold_s) as tx:
        if writes:
            put(tx)
        raise Rollback
    entry = CommitTable(client.store).read((tx.start_ts,))[tx.start_ts]
    assert (entry is INVALID) == (hold_s == 3600.0)
    with client.tm.begin(hold_s=60) as tx:
        put(tx)
    assert isinstance(client.tm.outcome(tx), Committed)


def test_it_may_be_raised_as_an_instance_or_a_class_of_ones_own(client: Client) -> None:
    """As every exception."""

    class Enough(Rollback):
        pass

    for error in (Rollback("why"), Enough):
        with client.tm.begin() as tx:
            put(tx)
            raise error
        assert tx.status == "rolled_back"


def test_it_is_no_error_of_ours(client: Client) -> None:
    """Whoever handles errors inside the block must not swallow it."""
    assert not issubclass(Rollback, OmidError)


def test_the_innermost_transaction_is_rolled_back(client: Client) -> None:
    """It ends one block."""
    with client.tm.begin() as outer:
        put(outer, b"outer")
        with client.tm.begin() as inner:
            put(inner, b"inner")
            raise Rollback
    assert (inner.status, outer.status) == ("rolled_back", "committed")


def test_it_passes_through_savepoints(client: Client) -> None:
    """A savepoint is part of a transaction, and it is the transaction that ends."""
    with client.tm.begin() as tx:
        put(tx)
        with tx.savepoint(), tx.savepoint():
            raise Rollback
    assert tx.status == "rolled_back"


@pytest.mark.parametrize("end", [Transaction.rollback, lambda _: None], ids=["before", "here"])
def test_a_transaction_that_was_rolled_back_is_what_was_asked_for(
    client: Client, end: Callable[[Transaction], None]
) -> None:
    """Whoever did it."""
    with client.tm.begin() as tx:
        put(tx)
        end(tx)
        raise Rollback
    assert tx.status == "rolled_back"


def commit_and_roll_back(client: Client) -> None:
    """Ask for a rollback too late."""
    with client.tm.begin() as tx:
        put(tx)
        tx.commit()
        raise Rollback


def test_what_committed_cannot_be_rolled_back(client: Client) -> None:
    """A block that ended quietly would say that it was."""
    with pytest.raises(TransactionClosed, match="is committed and cannot be rolled back") as error:
        commit_and_roll_back(client)
    assert isinstance(error.value.__cause__, Rollback)


def test_a_child_does_not_end_its_parents_transaction(client: Client) -> None:
    """It is rolled back by nobody there."""
    read, write = os.pipe()
    tx = client.tm.begin()
    tx.__enter__()
    if (pid := os.fork()) == 0:
        try:
            tx.__exit__(Rollback, Rollback(), None)
            os.write(write, b"quiet")
        except TransactionClosed as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert b"forked from" in os.read(read, 1000)
    tx.__exit__(None, None, None)
    assert tx.status == "committed"


# -- decorated functions and attempts --------------------------------------------------------------


def test_a_transactional_function_returns_nothing(client: Client) -> None:
    """And is not run again; a value of an earlier try that did not commit is not returned."""
    tries = 0

    @client.tm.transactional
    def once(tx: Transaction) -> str:
        nonlocal tries
        tries += 1
        put(tx)
        if tries == 1:
            client.write()
            return "of the first try, which conflicts"
        raise Rollback

    assert once() is None
    assert tries == 2


def test_a_function_that_joined_ends_the_block_that_it_joined(client: Client) -> None:
    """There is one transaction, and it is rolled back whole."""

    @client.tm.transactional
    def inner(tx: Transaction) -> None:
        put(tx, b"inner")
        raise Rollback

    with client.tm.begin() as tx:
        put(tx, b"outer")
        inner()
        raise AssertionError("not reached")
    assert tx.status == "rolled_back"
    assert client.raw() == []


def test_attempts_end_with_it(client: Client) -> None:
    """The loop is over, and did not succeed."""
    attempts = []
    for attempt in client.tm.attempts(budget_s=5):
        attempts.append(attempt)
        with attempt as tx:
            put(tx)
            raise Rollback
    assert [(one.succeeded, one.error) for one in attempts] == [(False, None)]
    assert client.raw() == []


def test_attempts_do_not_hide_that_it_came_too_late(client: Client) -> None:
    """As outside of them."""

    def run() -> None:
        for attempt in client.tm.attempts(budget_s=5):
            with attempt as tx:
                put(tx)
                tx.commit()
                raise Rollback

    with pytest.raises(TransactionClosed, match="is committed"):
        run()


def test_asyncio_does_the_same(client: Client) -> None:
    """Blocks, attempts and decorated functions."""

    async def main() -> None:
        async with aio.TransactionManager(client.tm) as tm:
            async with tm.begin() as tx:
                await tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
                raise Rollback
            assert tx.status == "rolled_back"
            tries = 0
            async for attempt in tm.attempts(budget_s=5):
                async with attempt as tx:
                    tries += 1
                    if tries == 1:
                        raise WriteConflict
                    await tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
                    raise Rollback
            assert tries == 2

            @tm.transactional
            async def nothing(tx: aio.Transaction) -> int:
                await tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
                raise Rollback

            assert await nothing() is None
            assert client.raw() == []

    asyncio.run(main())


@pytest.mark.parametrize("where", ["_take_cells", "_run_preparations"])
def test_a_commit_that_was_interrupted_twice_is_followed_by_no_other(
    client: Client, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The next commit would write no cells, or call again what is called once, and end well."""
    interrupted = getattr(Transaction, where)

    def first(tx: Transaction) -> None:
        interrupted(tx)
        raise KeyboardInterrupt

    def second(tx: Transaction) -> None:
        raise KeyboardInterrupt

    tx = client.tm.begin()
    put(tx)
    tx.before_commit(lambda: tx.table(TABLE).counter_inc(b"n", b"cf:n") and None)
    # The oracle in this process writes the cells itself, which are taken out of the buffer.
    monkeypatch.setattr(Transaction, "_may_write_at_once", lambda _: True)
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, where, first)
        patched.setattr(Transaction, "_roll_back", second)
        with pytest.raises(KeyboardInterrupt):
            tx.commit()
    with pytest.raises(TransactionAborted, match="an earlier commit of it was interrupted"):
        tx.commit()
    assert client.tm.outcome(tx) == Aborted()
    assert client.raw() == []
