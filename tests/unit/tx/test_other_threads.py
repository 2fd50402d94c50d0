"""A transaction is joined by the thread and the task that it belongs to, and by no other."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

import pytest

from omidpy import aio
from omidpy.base.callers.runners import Runner
from omidpy.errors import UsageError
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


def in_a_thread(function: Callable[[], Any]) -> Any:
    """Return what a call returns in a thread of its own, or raise what it raises."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(function())
        except Exception as error:  # noqa: BLE001 - passed on
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def writing(client: Client) -> Any:
    """Return a decorated function that writes one cell."""

    @client.tm.transactional
    def write(tx: Transaction) -> int:
        tx.table(TABLE).put(b"%d" % tx.start_ts, {b"cf:q": b"v"})
        return tx.start_ts

    return write


def test_a_thread_that_was_handed_the_context_does_not_join(client: Client) -> None:
    """Its write went into a transaction that another thread was about to commit, or undo."""
    write = writing(client)
    with client.tm.begin() as tx:
        context = copy_context()
        with pytest.raises(UsageError, match=f"{tx.start_ts}, which belongs to another thread"):
            in_a_thread(lambda: context.run(write))
        assert in_a_thread(lambda: Context().run(write)) > tx.start_ts
        assert write() == tx.start_ts


def test_a_thread_that_was_handed_the_transaction_does_not_join(client: Client) -> None:
    """By a name that its function had captured."""
    write = writing(client)
    with client.tm.begin() as tx:
        with pytest.raises(UsageError, match="begin one in this thread"):
            in_a_thread(lambda: write(tx))
        assert write(tx) == tx.start_ts


def test_a_transaction_belongs_to_the_thread_that_enters_it(client: Client) -> None:
    """One may begin it for another."""
    write = writing(client)
    tx = in_a_thread(client.tm.begin)
    with pytest.raises(UsageError):
        write(tx)
    with tx:
        assert write() == write(tx) == tx.start_ts


def test_a_thread_is_not_taken_for_one_that_has_ended() -> None:
    """Threads are given the numbers of earlier ones."""
    runner: Runner = in_a_thread(Runner)
    assert not runner.is_this_thread
    assert not in_a_thread(lambda: runner.is_this_thread)


def test_a_task_does_not_join_the_transaction_of_the_one_that_started_it(client: Client) -> None:
    """Nor does a thread that asyncio gives its context."""
    write = writing(client)

    async def other() -> int:
        start_ts: int = write()
        return start_ts

    async def main() -> None:
        apart = asyncio.create_task(other())
        with client.tm.begin() as tx:
            with pytest.raises(UsageError, match="another thread or task"):
                await asyncio.create_task(other())
            with pytest.raises(UsageError, match="another thread or task"):
                await asyncio.to_thread(write)
            assert await other() == tx.start_ts
            assert await apart > tx.start_ts

    asyncio.run(main())


def test_a_transaction_of_another_event_loop_is_refused(client: Client) -> None:
    """It belongs to one, whose tasks may share it."""

    async def main() -> None:
        async with aio.TransactionManager(client.tm) as tm:

            @tm.transactional
            async def write(tx: aio.Transaction) -> int:
                return tx.start_ts

            tx = await tm.begin()
            assert await asyncio.create_task(write(tx)) == tx.start_ts
            with pytest.raises(UsageError, match="begin one in this event loop"):
                await asyncio.to_thread(lambda: asyncio.run(write(tx)))

    asyncio.run(main())


def test_a_transaction_inside_a_block_is_independent_and_says_so(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """It sees nothing of the one around it, and outlives its rollback."""
    with caplog.at_level(logging.DEBUG, logger="omidpy.manager"), client.tm.begin() as outer:
        outer.table(TABLE).put(b"outer", {b"cf:q": b"v"})
        with client.tm.begin() as inner:
            assert inner.table(TABLE).row(b"outer") == {}
            inner.table(TABLE).put(b"inner", {b"cf:q": b"v"})
        outer.rollback()
    assert client.read(b"inner") == {b"cf:q": b"v"}
    assert client.read(b"outer") == {}
    (record,) = [one for one in caplog.records if "independent" in one.getMessage()]
    assert str(outer.start_ts) in record.getMessage()
