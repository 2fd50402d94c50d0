"""What was registered in a savepoint goes with it: nobody is told of what was not committed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from omidpy import aio
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


@contextmanager
def undone(tx: Transaction) -> Iterator[None]:
    """Undo a savepoint behind the block."""
    with suppress(ZeroDivisionError), tx.savepoint():
        yield
        raise ZeroDivisionError


def noting(called: list[str], what: str) -> Callable[..., None]:
    """Return a callback that leaves a note."""
    return lambda *_: called.append(what)


def put(tx: Transaction) -> None:
    """Write one cell."""
    tx.table(TABLE).put(b"r", {b"cf:q": b"v"})


@pytest.mark.parametrize("register", [Transaction.after_commit, Transaction.before_commit])
@pytest.mark.parametrize("writes", [False, True], ids=["read", "written"])
def test_an_undone_savepoint_takes_its_callbacks_back(
    client: Client, register: Callable[[Transaction, Callable[..., None]], None], *, writes: bool
) -> None:
    """An e-mail would tell of an order that was not placed.  The others are called in order."""
    called: list[str] = []
    with client.tm.begin() as tx:
        register(tx, noting(called, "before"))
        with undone(tx):
            register(tx, noting(called, "undone"))
        with tx.savepoint():
            register(tx, noting(called, "kept"))
        register(tx, noting(called, "after"))
        if writes:
            put(tx)
    assert called == ["before", "kept", "after"]


@pytest.mark.parametrize("register", [Transaction.after_commit, Transaction.before_commit])
def test_savepoints_nest(
    client: Client, register: Callable[[Transaction, Callable[..., None]], None]
) -> None:
    """What an inner one has kept goes with the outer one; what an inner one lost, it alone."""
    called: list[str] = []
    with client.tm.begin() as tx:
        with undone(tx):
            register(tx, noting(called, "of the outer"))
            with tx.savepoint():
                register(tx, noting(called, "kept by the inner"))
        with tx.savepoint():
            register(tx, noting(called, "kept before"))
            with undone(tx):
                register(tx, noting(called, "undone"))
            register(tx, noting(called, "kept behind"))
        with undone(tx):
            pass
    assert called == ["kept before", "kept behind"]


@pytest.mark.parametrize("commits", [False, True])
def test_what_cleans_up_stays(client: Client, *, commits: bool) -> None:
    """It is there for a rollback, which removes what the undone has left, too."""
    called: list[str] = []
    tx = client.tm.begin()
    with undone(tx):
        tx.after_rollback(noting(called, "rolled back"))
        tx.after_commit(noting(called, "committed"))
    put(tx)
    if commits:
        tx.commit()
    else:
        tx.rollback()
    assert called == ([] if commits else ["rolled back"])


def test_whoever_remembers_is_told(client: Client) -> None:
    """The last first; a savepoint that is kept tells nobody, unless one around it is undone."""
    called: list[str] = []
    with client.tm.begin() as tx:
        tx.when_undone(noting(called, "never"))
        with tx.savepoint():
            tx.when_undone(noting(called, "kept"))
        with undone(tx):
            tx.when_undone(noting(called, "first"))
            with tx.savepoint():
                tx.when_undone(noting(called, "second"))
            assert called == []
        assert called == ["second", "first"]
        with undone(tx):
            pass
    assert called == ["second", "first"]


def test_a_callback_may_use_savepoints_and_register_others(client: Client) -> None:
    """As the commit begins; those that it registers are called, too, but for the undone."""
    called: list[str] = []
    tx = client.tm.begin()

    def prepare() -> None:
        called.append("first")
        with undone(tx):
            tx.before_commit(noting(called, "undone"))
        with tx.savepoint():
            tx.before_commit(noting(called, "registered"))
        tx.after_commit(noting(called, "committed"))

    tx.before_commit(prepare)
    tx.before_commit(noting(called, "second"))
    tx.commit()
    assert called == ["first", "second", "registered", "committed"]


def test_a_task_keeps_its_callbacks_while_another_undoes_a_savepoint(client: Client) -> None:
    """Tasks share a transaction; it is not this one's savepoint that is undone."""
    called: list[str] = []
    turns = [asyncio.Event() for _ in range(2)]

    async def undo(tx: aio.Transaction) -> None:
        with suppress(ZeroDivisionError):
            async with tx.savepoint():
                tx.after_commit(noting(called, "undone"))
                turns[0].set()
                await turns[1].wait()
                raise ZeroDivisionError

    async def other(tx: aio.Transaction) -> None:
        await turns[0].wait()
        tx.after_commit(noting(called, "of another task"))
        turns[1].set()

    async def main() -> None:
        async with aio.TransactionManager(client.tm) as tm:
            async with tm.begin() as tx:
                tx.after_commit(noting(called, "before"))
                await asyncio.gather(undo(tx), other(tx))
                with suppress(ZeroDivisionError):
                    async with tx.savepoint():
                        tx.after_commit(noting(called, "undone, too"))
                        raise ZeroDivisionError
                async with tx.savepoint():
                    tx.after_commit(noting(called, "kept"))
            await asyncio.sleep(0)

    asyncio.run(main())
    assert called == ["before", "of another task", "kept"]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_who_learns_of_the_end_at_the_same_time_calls_nothing_twice(
    client: Client, ends: str
) -> None:
    """Of two threads that ask what became of a commit, both told of it."""
    called: list[str] = []
    tx = client.tm.begin()
    put(tx)

    def learn() -> None:
        if ends == "commit":
            tx._callbacks.committed(tx, tx.start_ts)
        else:
            tx._callbacks.rolled_back(tx.start_ts)

    for what in ("first", "second", "third"):

        def call(*_: object, what: str = what) -> None:
            called.append(what)
            if len(called) == 1:
                thread = threading.Thread(target=learn)
                thread.start()
                thread.join()

        tx.after_commit(call)
        tx.after_rollback(call)
    getattr(tx, ends)()
    assert called == ["first", "second", "third"]
