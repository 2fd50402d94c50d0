"""The asyncio twin: the blocking client's behaviour, order within a transaction, cancellation."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pyarrow as pa
import pytest

import omidpy
from omidpy import aio
from omidpy import manager as manager_module
from omidpy.aio import manager as aio_manager
from omidpy.aio import transaction as aio_transaction
from omidpy.base.tables import CONTROL_TABLE
from omidpy.codec import INT64
from omidpy.errors import (
    NoSuchTable,
    OracleUnavailable,
    StorageUnavailable,
    TransactionAborted,
    TransactionClosed,
    UsageError,
    WriteConflict,
)
from omidpy.facts import holds
from omidpy.model import Aborted, Committed
from omidpy.recipes.export_queue import Entry, Exporter, ExportQueue
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx import batch, table, transaction
from omidpy.tx.parts import worker
from omidpy.tx.transaction import Transaction as BlockingTransaction
from omidpy.tx.writes import savepoint
from omidpy.tx.writes.buffer import WriteBuffer
from omidpy.tx.writes.layers import Scope
from tests.machines.clients import TABLE, Client
from tests.machines.threads import refuse_threads

PATIENCE_S = 20.0
"""How long a test waits for what must happen."""


def run(main: Callable[[aio.TransactionManager, Client], Coroutine[Any, Any, None]]) -> Client:
    """Run a coroutine over a manager on memory; return the machines under it."""
    client = Client()
    asyncio.run(_with_manager(main, client))
    return client


async def _with_manager(
    main: Callable[[aio.TransactionManager, Client], Coroutine[Any, Any, None]], client: Client
) -> None:
    async with aio.TransactionManager(client.tm) as tm:
        async with asyncio.timeout(PATIENCE_S):
            await main(tm, client)


# -- the same client -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("twin", "blocking", "missing"),
    [
        (
            aio.TransactionManager,
            manager_module.TransactionManager,
            set(),
        ),
        (
            aio.Transaction,
            transaction.Transaction,
            # What the parts of the blocking client say to each other.
            {
                "after_rollback",
                "before_commit",
                "before_commit_last",
                "changes",
                "check_horizon",
                "check_open",
                "check_unindexed",
                "check_writable",
                "forbid_commit",
                "is_in_block",
                "is_inherited",
                "is_running",
                "learn",
                "reopened",
                "session",
                "snapshot",
                "when_undone",
                "whole",
                "witness",
                "witnesses",
                "wrote",
            },
        ),
        (aio.TransactionalTable, table.TransactionalTable, set()),
        (aio.Batch, batch.Batch, set()),
        (aio.Savepoint, savepoint.Savepoint, set()),
        (
            aio.Worker,
            worker.Worker,
            {"check_open", "check_unindexed", "check_writable", "is_running", "session", "wrote"},
        ),
        (aio.HeldSnapshot, holds.HeldSnapshot, {"confirm", "write"}),
    ],
)
def test_every_public_name_has_its_twin(twin: type, blocking: type, missing: set[str]) -> None:
    """A method added to the blocking client must not be forgotten here."""
    names = {name for name, _ in inspect.getmembers(blocking) if not name.startswith("_")}
    assert {name for name in names if not hasattr(twin, name)} == missing


def test_entries_of_a_queue_go_with_their_transaction() -> None:
    """Added in order, by the names of the blocking client."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        queue = ExportQueue.create(client.tm, "orders", buckets=1, codec="bytes")
        async with tm.begin() as tx:
            await tx.queue("orders").add(b"a", b"1", headers={"kind": "new"})
            await tx.queue("orders").add_all([(b"b", b"2"), (b"a", b"3")])
        given: list[tuple[bytes, object]] = []

        class Sink(Exporter):
            def export(self, batch: Iterable[Entry]) -> None:
                given.extend((entry.key, entry.value) for entry in batch)

        await asyncio.to_thread(queue.run_once, Sink())
        assert sorted(given) == [(b"a", b"1"), (b"a", b"3"), (b"b", b"2")]

    run(main)


def test_a_twin_has_the_arguments_and_the_documentation_of_its_namesake() -> None:
    """It is made from it."""
    row, namesake = aio.TransactionalTable.row, table.TransactionalTable.row
    assert row.__doc__ == namesake.__doc__
    assert inspect.signature(row) == inspect.signature(namesake)


def test_a_transaction_from_begin_to_commit() -> None:
    """Reads, writes, scans, batches and counters; the block commits."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        async with tm.begin() as tx:
            accounts = tx.table(TABLE)
            await accounts.put(b"a", {b"cf:q": b"1"})
            async with accounts.batch() as many:
                await many.put(b"b", {b"cf:q": b"2"})
                await many.delete(b"a")
            assert await accounts.row(b"a") == {}
            assert await accounts.counter_inc(b"c", b"cf:n") == 1
            assert [key async for key, _ in accounts.scan()] == [b"b", b"c"]
            assert client.read(b"b") == {}
        assert tx.status == "committed"
        assert tx.commit_ts is not None
        assert client.read(b"b") == {b"cf:q": b"2"}

    run(main)


def test_a_block_that_raises_is_rolled_back() -> None:
    """And its own exception wins."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what raises
            async with tm.begin() as tx:
                await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
                await tx.flush()
                raise ZeroDivisionError
        assert tx.status == "rolled_back"
        assert client.raw() == []

    run(main)


def test_a_transaction_without_a_block() -> None:
    """`await tm.begin()` is the same without `async with`."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        await tx.commit()
        with pytest.raises(TransactionClosed):
            await tx.table(TABLE).row(b"a")
        with pytest.raises(TransactionClosed):
            await tx.rollback()
        assert client.read(b"a") == {b"cf:q": b"1"}

    run(main)


def test_errors_are_those_of_the_blocking_client() -> None:
    """Raised where the call is awaited."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        async with tm.begin(read_only=True) as tx:
            with pytest.raises(NoSuchTable):
                await tx.table("none").row(b"a")
            with pytest.raises(UsageError, match="read-only"):
                await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
            with pytest.raises(UsageError, match="limit"):
                await anext(aiter(tx.table(TABLE).scan(limit=0)))
            with pytest.raises(TypeError):
                await tx.table(TABLE).row(b"a", nonsense=1)  # type: ignore[call-arg]
            with pytest.raises(TypeError, match="plain function"):
                tx.after_commit(main)  # type: ignore[arg-type]

    run(main)


def test_a_callback_that_only_returns_a_coroutine_is_told_of() -> None:
    """Nobody goes on with it, and nobody said so; a plain function alone is no proof."""
    told: list[str] = []

    async def main(tm: aio.TransactionManager, _: Client) -> None:
        is_told = asyncio.Event()

        def hear(_: object, found: dict[str, Any]) -> None:
            told.append(str(found["exception"]))
            is_told.set()

        asyncio.get_running_loop().set_exception_handler(hear)

        async def later() -> None: ...

        coroutine = later()
        async with tm.begin() as tx:
            await tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
            tx.after_commit(lambda _: coroutine)
        await is_told.wait()
        coroutine.close()

    run(main)
    assert "which nobody goes on with" in told[0]


def test_scans_fetch_more_and_more_rows_at_a_time() -> None:
    """In order, in both directions, to the end or to the limit."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        keys = [b"%04d" % number for number in range(3000)]
        async with tm.begin() as tx, tx.table(TABLE).batch() as many:
            for key in keys:
                await many.put(key, {b"cf:q": INT64.encode(1)})
        async with tm.begin() as tx:
            accounts = tx.table(TABLE)
            assert [key async for key, _ in accounts.scan()] == keys
            assert [key async for key, _ in accounts.scan(reverse=True, limit=3)] == keys[:-4:-1]
            batches = [
                batch
                async for batch in accounts.scan_arrow(codecs={b"cf:q": INT64}, batch_rows=2000)
            ]
            assert [batch.num_rows for batch in batches] == [2000, 1000]

    run(main)


def test_savepoints_nest_and_are_undone() -> None:
    """The exception goes on."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        async with tm.begin() as tx:
            accounts = tx.table(TABLE)
            await accounts.put(b"a", {b"cf:q": b"1"})
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what raises
                async with tx.savepoint():
                    await accounts.put(b"a", {b"cf:q": b"2"})
                    raise ZeroDivisionError
            async with tx.savepoint() as inner:
                assert inner is None
                await accounts.put(b"b", {b"cf:q": b"3"})
            once = tx.savepoint()
            async with once:
                pass
            with pytest.raises(TransactionClosed, match="twice"):
                await once.__aenter__()
        assert client.read(b"a") == {b"cf:q": b"1"}
        assert client.read(b"b") == {b"cf:q": b"3"}

    run(main)


def test_snapshots_holds_tokens_and_outcomes() -> None:
    """Everything that takes or gives a transaction takes or gives its twin."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        async with tm.begin() as tx:
            await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
            worker = await tm.resume(await tx.token(), task="t")
            await worker.table(TABLE).put(b"b", {b"cf:q": b"2"})
            assert worker.start_ts == tx.start_ts
            await tx.merge(await worker.finish())
        assert await tm.outcome(tx) == Committed(tx.commit_ts)
        assert await tm.outcome(tx.start_ts + 1_000_000) != Aborted()
        async with tm.snapshot(at=tx.start_ts) as past:
            assert await past.table(TABLE).row(b"a") == {}
            async with tm.hold(past, for_s=60):
                watermarks = client.tm.session.watermarks
                assert len(watermarks.holds(watermarks.ages(client.clock))) == 1
            assert watermarks.holds(watermarks.ages(client.clock)) == []
        held = await tm.hold(await tm.snapshot(), for_s=60)
        await held.release()
        await tm.create_table("other", ["cf"])
        assert await tm.tables() == ["other", TABLE]
        assert await tm.fence("other") > tx.start_ts
        await tm.drop_table("other")
        assert await tm.low_watermark() == 0
        async with tm.begin() as last:
            await last.set_rollback_only()
            with pytest.raises(TransactionAborted):
                await last.commit()

    run(main)


def test_connect_opens_and_closes_a_store(tmp_path: Path) -> None:
    """With `async with`, or by `await` and `close`."""

    async def main() -> None:
        url = f"sqlite:///{tmp_path}/bank.db"
        async with aio.connect(url) as tm:
            await tm.create_table("accounts", families=["cf"])
            async with tm.begin() as tx:
                await tx.table("accounts").put(b"a", {b"cf:q": b"1"})
        tm = await aio.connect(url, threads=1)
        async with tm.begin() as tx:
            assert await tx.table("accounts").row(b"a") == {b"cf:q": b"1"}
        await tm.close()
        with pytest.raises(UsageError, match="closed"):
            await asyncio.to_thread(tm.blocking.begin)

    asyncio.run(main())


def test_a_store_whose_connect_was_cancelled_can_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread goes on and opens it: left open, it would be the store's oracle for ever."""
    url = f"sqlite:///{tmp_path}/bank.db"
    reached, goes_on = threading.Event(), threading.Event()
    found: list[manager_module.TransactionManager] = []

    def slow(*args: Any, **kwargs: Any) -> manager_module.TransactionManager:
        found.append(omidpy.connect(*args, **kwargs))
        reached.set()
        assert goes_on.wait(PATIENCE_S)
        return found[0]

    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(aio_manager, "connect_blocking", slow)
            task = asyncio.ensure_future(aio.connect(url)._open())
            assert await asyncio.to_thread(reached.wait, PATIENCE_S)
            task.cancel()
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with aio.connect(url) as tm:
            assert await tm.tables() == []
        with pytest.raises(UsageError, match="closed"):
            found[0].begin()

    asyncio.run(main())


# -- retries and ambient transactions --------------------------------------------------------------


def test_a_conflict_is_run_again() -> None:
    """By the decorator and by the loop."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tries = []

        @tm.transactional
        async def count(tx: aio.Transaction, amount: int) -> int:
            tries.append(tx)
            total = await tx.table(TABLE).counter_add(b"a", b"cf:n", amount)
            if len(tries) == 1:
                client.write(b"a", INT64.encode(10), b"cf:n")
            return total

        assert await count(1) == 11
        assert len(tries) == 2
        async for attempt in tm.attempts(budget_s=5):
            async with attempt as tx:
                await count(tx, 1)
        assert attempt.succeeded
        assert await tm.transactional(retry_budget_s=1)(read)() == {b"cf:n": INT64.encode(12)}

    async def read(tx: aio.Transaction) -> dict[bytes, bytes]:
        return await tx.table(TABLE).row(b"a")

    run(main)


def test_a_spent_budget_raises_the_last_error() -> None:
    """From a conflict and from an oracle that is not there."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        with pytest.raises(WriteConflict):  # noqa: PT012 - the block is what raises
            async for attempt in tm.attempts(budget_s=0):
                async with attempt as tx:
                    await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
                    client.write(b"a")
        client.oracle.is_dead = True
        with pytest.raises(OracleUnavailable):  # noqa: PT012 - the block is what raises
            async for _ in tm.attempts(budget_s=0):
                pytest.fail("there is no transaction")

    run(main)


def test_a_decorated_function_joins_the_transaction_around_it() -> None:
    """In the same task; one that it starts may be handed it, and does not find it by itself."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        @tm.transactional
        async def joined(tx: aio.Transaction) -> int:
            return tx.start_ts

        async def other() -> int:
            return await joined()

        apart = asyncio.create_task(other())
        async with tm.begin() as outer:
            assert await joined() == outer.start_ts
            with pytest.raises(UsageError, match=f"{outer.start_ts}.*to share it, pass it on"):
                await asyncio.create_task(other())
            assert await asyncio.create_task(joined(outer)) == outer.start_ts
            new = Context().run(asyncio.create_task, other())
            assert await new > outer.start_ts
            async with tm.begin() as inner:
                assert await joined() == inner.start_ts
            assert await joined() == outer.start_ts
        assert await joined() > outer.start_ts
        assert await apart != outer.start_ts

    run(main)


def test_callbacks_run_in_the_event_loop_before_commit_returns() -> None:
    """In order, with the twin; one that fails is logged by the loop and harms nobody."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        seen: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append("failed"))
        async with tm.begin() as tx:
            tx.after_commit(lambda tx: seen.append((tx, threading.current_thread())))
            tx.after_commit(lambda _: 1 // 0)
            tx.after_commit(lambda _: seen.append("last"))
            await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        assert seen == [(tx, threading.current_thread()), "failed", "last"]
        async with tm.begin() as undone:
            undone.after_commit(lambda _: seen.append("never"))
            await undone.rollback()
        assert "never" not in seen

    run(main)


# -- order and cancellation ------------------------------------------------------------------------


class Gate:
    """Holds a call of the store until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> None:
        """Stand in the store's thread."""
        self.reached.set()
        assert self.opened.wait(PATIENCE_S)

    async def wait_reached(self) -> None:
        """Return once a call stands here."""
        assert await asyncio.to_thread(self.reached.wait, PATIENCE_S)


def gated(point: str) -> tuple[Client, Gate]:
    """Return a client whose next call at a point of the table stands at a gate."""
    gate = Gate()
    store = FaultyStore(MemoryStore())
    client = Client(store)
    store.plans.append(on(point, gate, nth=1, table=TABLE))
    return client, gate


def test_calls_of_one_transaction_run_one_at_a_time_and_in_order() -> None:
    """Tasks may share it: the second read waits for the first, whose thread is held up."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        before = client.store.calls["get"]  # type: ignore[attr-defined]
        ended: list[bytes] = []

        async def read(row: bytes) -> None:
            await tx.table(TABLE).row(row)
            ended.append(row)

        tasks = [asyncio.create_task(read(row)) for row in (b"a", b"b", b"c")]
        await gate.wait_reached()
        assert client.store.calls["get"] == before + 1  # type: ignore[attr-defined]
        assert ended == []
        gate.opened.set()
        await asyncio.gather(*tasks)
        assert ended == [b"a", b"b", b"c"]

    asyncio.run(_with_manager(main, client))


def test_a_call_of_another_event_loop_is_refused_and_does_not_hang() -> None:
    """It waited for its turn, and nobody woke its loop when that came."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        first = asyncio.create_task(tx.table(TABLE).row(b"a"))
        await gate.wait_reached()

        async def other() -> None:
            async with asyncio.timeout(PATIENCE_S / 2):
                with pytest.raises(UsageError, match="another event loop"):
                    await tx.table(TABLE).row(b"b")

        await asyncio.to_thread(lambda: asyncio.run(other()))
        gate.opened.set()
        assert await first == {}
        await tx.rollback()

    asyncio.run(_with_manager(main, client))


def test_a_transaction_goes_on_in_the_next_event_loop() -> None:
    """One that begins it may be closed before the next one ends it."""
    client = Client()
    tm = aio.TransactionManager(client.tm)

    async def begin() -> aio.Transaction:
        tx = await tm.begin()
        await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        return tx

    asyncio.run(asyncio.run(begin()).commit())
    assert client.read(b"a") == {b"cf:q": b"1"}
    asyncio.run(tm.close())


def test_transactions_do_not_wait_for_each_other() -> None:
    """One that is held up in the store leaves the others alone."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        slow, quick = await tm.begin(), await tm.begin()
        task = asyncio.create_task(slow.table(TABLE).row(b"a"))
        await gate.wait_reached()
        assert await quick.table(TABLE).row(b"a") == {}
        assert not task.done()
        gate.opened.set()
        await task

    asyncio.run(_with_manager(main, client))


def test_a_cancelled_call_is_waited_for_and_its_block_rolled_back() -> None:
    """The flush is half done in its thread; the rollback comes after it and removes all of it."""
    client, gate = gated("write.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        transactions: list[aio.Transaction] = []

        async def work() -> None:
            async with tm.begin() as tx:
                transactions.append(tx)
                await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
                await tx.flush()
                pytest.fail("the flush was cancelled")

        task = asyncio.create_task(work())
        await gate.wait_reached()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done(), "its thread is still writing"
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert transactions[0].status == "rolled_back"
        assert client.raw() == []

    asyncio.run(_with_manager(main, client))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_call_whose_wait_is_interrupted_is_waited_for_too(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], *, is_cancelled: bool
) -> None:
    """By a second interrupt, when the task has its step: the thread had the transaction as well."""
    client, gate = gated("get.before")
    wait, errors = asyncio.wait, [kind()]

    async def interrupted(futures: list[asyncio.Future[Any]]) -> object:
        if errors:
            await asyncio.sleep(0)
            raise errors.pop()
        return await wait(futures)

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        monkeypatch.setattr(asyncio, "wait", interrupted)

        async def write() -> BaseException | None:
            try:
                await tx.table(TABLE).counter_inc(b"a", b"cf:q")
            except (KeyboardInterrupt, SystemExit) as error:
                return error
            return None

        task = asyncio.create_task(write())
        await gate.wait_reached()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not errors
        assert not task.done(), "its thread is still in the store"
        if is_cancelled:
            task.cancel()
            await asyncio.sleep(0)
        gate.opened.set()
        assert isinstance(await task, kind), "who is interrupted is not told of less"
        with pytest.raises(TransactionAborted, match=r"counter_inc\(\) was cancelled"):
            await tx.commit()
        assert client.raw() == []

    asyncio.run(_with_manager(main, client))


def test_a_cancelled_commit_tells_by_its_status_what_became_of_it() -> None:
    """The thread went on and committed."""
    client, gate = gated("write.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        task = asyncio.create_task(tx.commit())
        await gate.wait_reached()
        task.cancel()
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tx.status == "committed"
        assert client.read(b"a") == {b"cf:q": b"1"}

    asyncio.run(_with_manager(main, client))


def test_a_call_cancelled_before_its_turn_never_runs() -> None:
    """It did nothing, so there is nothing to wait for."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        first = asyncio.create_task(tx.table(TABLE).row(b"a"))
        await gate.wait_reached()
        second = asyncio.create_task(tx.table(TABLE).put(b"a", {b"cf:q": b"1"}))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.opened.set()
        await first
        await tx.commit()
        assert tx.commit_ts is None, "nothing was written"

    asyncio.run(_with_manager(main, client))


def test_a_savepoint_cancelled_while_it_is_entered_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its layer stayed open: no commit was possible any more, and later writes went into it."""
    client, gate = Client(), Gate()
    opening = WriteBuffer.open_savepoint

    def slow(buffer: WriteBuffer, scope: Scope | None) -> None:
        gate()
        opening(buffer, scope)

    monkeypatch.setattr(WriteBuffer, "open_savepoint", slow)

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()

        async def work() -> None:
            async with tx.savepoint():
                pytest.fail("it was cancelled before")

        await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        task = asyncio.create_task(work())
        await gate.wait_reached()
        beside = asyncio.create_task(tx.table(TABLE).put(b"b", {b"cf:q": b"2"}))
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await beside
        await tx.commit()
        assert client.read(b"a") == {b"cf:q": b"1"}
        assert client.read(b"b") == {b"cf:q": b"2"}

    asyncio.run(_with_manager(main, client))


def test_a_savepoint_cancelled_while_it_is_left_is_undone() -> None:
    """It was kept: whoever hears of a timeout believes that what its block wrote is undone."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        beside: list[asyncio.Task[dict[bytes, bytes]]] = []

        async def work() -> None:
            async with tx.savepoint():
                await tx.table(TABLE).put(b"b", {b"cf:q": b"2"})
                beside.append(asyncio.create_task(tx.table(TABLE).row(b"z")))
                await gate.wait_reached()
                for call in (task.cancel, gate.opened.set):
                    asyncio.get_running_loop().call_soon(call)

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.gather(*beside)
        await tx.commit()
        assert client.read(b"a") == {b"cf:q": b"1"}
        assert client.read(b"b") == {}

    asyncio.run(_with_manager(main, client))


async def a_batch(tx: aio.Transaction) -> None:
    """Write a batch of two, handed over as its block is left."""
    async with tx.table(TABLE).batch() as batch:
        await batch.put(b"b", {b"cf:q": b"2"})
        await batch.delete(b"c")


def test_a_batch_cancelled_while_it_is_left_forbids_the_commit() -> None:
    """All of it was handed over, as if nobody had been told otherwise."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})

        task = asyncio.create_task(a_batch(tx))
        await gate.wait_reached()
        task.cancel()
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TransactionAborted, match="was left by CancelledError after 2 of its"):
            await tx.commit()
        assert client.raw() == []

    asyncio.run(_with_manager(main, client))


def test_a_commit_that_waits_for_a_batch_commits_none_that_is_cancelled() -> None:
    """It has its turn right behind the batch, and before the task that was cancelled goes on."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()

        task = asyncio.create_task(a_batch(tx))
        await gate.wait_reached()
        beside = asyncio.create_task(tx.commit())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TransactionAborted, match="was left by CancelledError after 2 of its"):
            await beside
        assert client.raw() == []

    asyncio.run(_with_manager(main, client))


Write = Callable[[aio.TransactionalTable], Coroutine[Any, Any, Any]]

WRITES: Final[dict[str, tuple[str, Write]]] = {
    "put": ("schema.before", lambda table: table.put(b"a", {b"cf:q": b"2"})),
    "delete": ("get.before", lambda table: table.delete(b"a")),
    "counter_inc": ("get.before", lambda table: table.counter_inc(b"a", b"cf:n")),
    "counter_set": ("schema.before", lambda table: table.counter_set(b"a", b"cf:n", 7)),
    "counter_add": ("get.before", lambda table: table.counter_add(b"a", b"cf:n", 3)),
    "counter_dec": ("get.before", lambda table: table.counter_dec(b"a", b"cf:n")),
    "write_arrow": (
        "schema.before",
        lambda table: table.write_arrow(
            pa.table({"row": [b"a"], "q": [b"2"]}), columns={"q": ("cf:q", "binary")}
        ),
    ),
}


async def in_time(gate: Gate, awaited: Coroutine[Any, Any, Any]) -> None:
    """Await what stands at a gate, until the time is over; it goes on behind that."""

    async def limited() -> None:
        async with asyncio.timeout(None) as limit:

            def end(_: object) -> None:
                limit.reschedule(0)
                # Behind that: it is cancelled first, and then let through.
                asyncio.get_running_loop().call_later(0.05, gate.opened.set)

            reached = asyncio.ensure_future(gate.wait_reached())
            reached.add_done_callback(end)
            await awaited

    with pytest.raises(TimeoutError):
        await limited()


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_timed_out_while_it_was_under_way_is_not_committed(name: str) -> None:
    """Its caller does not know that it took place, and makes it again, or goes on without it."""
    point, write = WRITES[name]
    client, gate = gated(point)

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        table = tx.table(TABLE)
        await in_time(gate, write(table))
        await write(table)
        with pytest.raises(TransactionAborted, match=rf"{name}\(\) was cancelled while") as caught:
            await tx.commit()
        assert not caught.value.retryable
        assert client.raw() == []

    asyncio.run(_with_manager(main, client))


def interrupt_again(function: str) -> None:
    """Interrupt a coroutine once more, at its first line behind a cancellation."""
    is_armed = False

    def at(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal is_armed
        if frame.f_code.co_qualname != function:
            return None
        if event == "exception" and issubclass(arg[0], asyncio.CancelledError):
            is_armed = True
        elif event == "line" and is_armed:
            sys.settrace(None)
            raise KeyboardInterrupt
        return at

    sys.settrace(at)


async def interrupted_twice(gate: Gate, awaited: Coroutine[Any, Any, Any]) -> None:
    """Await what stands at a gate, cancelled and interrupted, and go on."""

    async def limited() -> None:
        with pytest.raises(KeyboardInterrupt):
            await awaited

    task = asyncio.create_task(limited())
    await gate.wait_reached()
    task.cancel()
    await asyncio.sleep(0)
    interrupt_again("Lane.write")
    try:
        gate.opened.set()
        await task
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("name", WRITES)
def test_a_second_interrupt_commits_no_write_that_was_cancelled(name: str) -> None:
    """At the line where it was to be noted that the first one had come."""
    point, write = WRITES[name]
    client, gate = gated(point)

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        table = tx.table(TABLE)
        await interrupted_twice(gate, write(table))
        await write(table)
        with pytest.raises(TransactionAborted, match=rf"{name}\(\) was cancelled while"):
            await tx.commit()
        assert client.raw() == []

    asyncio.run(_with_manager(main, client))


def test_nor_a_batch() -> None:
    """All of it was handed over, and its block raised."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()

        await interrupted_twice(gate, a_batch(tx))
        with pytest.raises(TransactionAborted):
            await tx.commit()
        assert client.raw() == []

    asyncio.run(_with_manager(main, client))


def test_a_write_that_is_refused_forbids_nothing() -> None:
    """Its caller was told."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        async with tm.begin() as tx:
            with pytest.raises(UsageError):
                await tx.table(TABLE).put(b"", {b"cf:q": b"1"})
            await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        assert client.read(b"a") == {b"cf:q": b"1"}

    run(main)


@pytest.mark.parametrize("name", WRITES)
def test_a_savepoint_around_it_is_undone_and_the_transaction_goes_on(name: str) -> None:
    """With what was written before, and with what is written in its place."""
    point, write = WRITES[name]
    client, gate = gated(point)

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        async with tm.begin() as tx:
            table = tx.table(TABLE)

            async def undone() -> None:
                async with tx.savepoint():
                    await write(table)

            await in_time(gate, undone())
            await table.counter_inc(b"a", b"cf:n")
        assert client.read(b"a") == {b"cf:n": INT64.encode(1)}

    asyncio.run(_with_manager(main, client))


def test_a_write_that_timed_out_before_its_turn_is_not_there_and_the_rest_commits() -> None:
    """It waited for a read of another task."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        async with tm.begin() as tx:
            table = tx.table(TABLE)
            read = asyncio.create_task(table.row(b"a"))
            await gate.wait_reached()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await table.counter_inc(b"a", b"cf:n")
            gate.opened.set()
            await read
            await table.counter_inc(b"a", b"cf:n")
        assert client.read(b"a") == {b"cf:n": INT64.encode(1)}

    asyncio.run(_with_manager(main, client))


@pytest.mark.parametrize("name", ["add", "add_all", "record"])
def test_an_addition_to_a_queue_that_timed_out_is_not_committed(name: str) -> None:
    """Nor is what was added once more."""
    store = FaultyStore(MemoryStore())
    client, gate = Client(store), Gate()
    ExportQueue.create(client.tm, "q", codec="bytes")
    calls: dict[str, Callable[[Any], Coroutine[Any, Any, None]]] = {
        "add": lambda queue: queue.add(b"k", b"v"),
        "add_all": lambda queue: queue.add_all([(b"k", b"v")]),
        "record": lambda queue: queue.record([TABLE]),
    }

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        client.tm._queues.clear()
        store.plans.append(on("get.before", gate, nth=1, table=CONTROL_TABLE))
        tx = await tm.begin()
        await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        queue = tx.queue("q")
        await in_time(gate, calls[name](queue))
        await queue.add(b"k", b"v")
        with pytest.raises(TransactionAborted, match=rf"{name}\(\) was cancelled while"):
            await tx.commit()
        assert client.raw() == []

    asyncio.run(_with_manager(main, client))


def test_a_worker_whose_write_timed_out_has_nothing_to_merge() -> None:
    """The owner may give it up, and resume another."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        del client
        async with tm.begin() as tx:
            worker = await tm.resume(await tx.token())
            await in_time(gate, worker.table(TABLE).counter_inc(b"a", b"cf:n"))
            with pytest.raises(UsageError, match=r"counter_inc\(\) was cancelled while"):
                await worker.finish()

    asyncio.run(_with_manager(main, client))


def test_a_transaction_cancelled_while_it_is_entered_is_rolled_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its block never runs, and so never ends; one that was entered before is left alone."""
    client, gate = Client(), Gate()
    entering = BlockingTransaction.__enter__

    def slow(tx: BlockingTransaction) -> BlockingTransaction:
        gate()
        return entering(tx)

    monkeypatch.setattr(BlockingTransaction, "__enter__", slow)

    async def enter(tx: aio.Transaction) -> None:
        async with tx:
            pytest.fail("it was cancelled before")

    async def cancelled(tx: aio.Transaction) -> None:
        gate.reached.clear()
        gate.opened.clear()
        task = asyncio.create_task(enter(tx))
        await gate.wait_reached()
        task.cancel()
        await asyncio.sleep(0)
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        await tx.flush()
        await cancelled(tx)
        assert tx.status == "rolled_back"
        assert client.raw() == []
        gate.opened.set()
        async with tm.begin() as other:
            await cancelled(other)
            assert other.status == "running"

    asyncio.run(_with_manager(main, client))


def test_a_task_cannot_write_into_the_savepoint_of_another_one() -> None:
    """What it had written was undone with the other's writes, and the commit said nothing."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        is_open, may_end = asyncio.Event(), asyncio.Event()

        async def put(row: bytes) -> None:
            await tx.table(TABLE).put(row, {b"cf:q": b"v"})

        async def undone() -> None:
            async with tx.savepoint():
                await put(b"undone")
                await asyncio.create_task(put(b"started inside"))
                is_open.set()
                await may_end.wait()
                raise ZeroDivisionError

        task = asyncio.create_task(undone())
        await is_open.wait()
        with pytest.raises(UsageError, match="a savepoint of another task is open"):
            await put(b"beside")
        with pytest.raises(UsageError, match="a savepoint of another task is open"):
            await tx.savepoint().__aenter__()
        assert len(await tx.table(TABLE).rows([b"undone", b"started inside"])) == 2
        may_end.set()
        with pytest.raises(ZeroDivisionError):
            await task
        await put(b"behind")
        await tx.commit()
        assert [row for row, *_ in client.raw_data()] == [b"behind"]

    run(main)


def test_savepoints_of_two_tasks_do_not_take_each_others_writes() -> None:
    """What one undid were the other's writes."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        first, second = tx.savepoint(), tx.savepoint()
        await first.__aenter__()
        await second.__aenter__()
        await tx.table(TABLE).put(b"a", {b"cf:q": b"second's"})
        await first.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
        await second.__aexit__(None, None, None)
        await first.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
        with pytest.raises(TransactionAborted, match="reverse order"):
            await tx.commit()
        assert client.raw() == []

    run(main)


def test_a_rollback_cancelled_before_its_turn_takes_place_all_the_same() -> None:
    """Another task's call is under way when the block is cancelled, twice."""
    client, gate = gated("get.before")

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        started = asyncio.Event()
        tx = await tm.begin()

        async def work() -> None:
            async with tx:
                await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
                await tx.flush()
                started.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await started.wait()
        reader = asyncio.create_task(tx.table(TABLE).row(b"a"))
        await gate.wait_reached()
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        gate.opened.set()
        await reader
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tx.status == "rolled_back"
        assert client.raw() == []

    asyncio.run(_with_manager(main, client))


@pytest.mark.parametrize("kind", ["table", "queue"])
def test_a_store_that_does_not_answer_holds_up_nobody_elses_tables(kind: str) -> None:
    """As `cached_property` would, by the one lock of a class that Python 3.11 has."""
    is_asked, may_answer = threading.Event(), threading.Event()

    class Slow:
        lane: Any = None

        @property
        def blocking(self) -> Any:
            return self

        def table(self, *_: object, **__: object) -> str:
            return self.queue()

        def queue(self, *_: object) -> str:
            is_asked.set()
            assert may_answer.wait(30)
            return "slow"

    class Quick(Slow):
        def queue(self, *_: object) -> str:
            return "quick"

    def one_of(owner: Any) -> Any:
        if kind == "queue":
            return aio_transaction.Queue(owner, "q")
        return aio_transaction.TransactionalTable(owner, "t")

    found: list[object] = []
    slow = threading.Thread(target=lambda: found.append(one_of(Slow()).blocking))
    slow.start()
    assert is_asked.wait(30)
    quick = threading.Thread(target=lambda: found.append(one_of(Quick()).blocking))
    quick.start()
    quick.join(5)
    may_answer.set()
    slow.join()
    quick.join()
    assert found == ["quick", "slow"]


# -- what is opened, and closed --------------------------------------------------------------------


@pytest.mark.parametrize("is_raised", [False, True])
def test_a_block_whose_manager_was_closed_in_it_ends_as_a_blocking_one(*, is_raised: bool) -> None:
    """It hid the block's own exception, and said nothing of the commit."""

    async def main() -> aio.Transaction:
        tm = await aio.connect("memory:")
        await tm.create_table("t", ["cf"])
        tx = await tm.begin()

        async def block() -> None:
            async with tx:
                await tx.table("t").put(b"r", {b"cf:q": b"v"})
                await tm.close()
                if is_raised:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError if is_raised else TransactionAborted):
            await block()
        return tx

    assert asyncio.run(main()).status == "rolled_back"


async def cancelled_at(gate: Gate, awaited: Coroutine[Any, Any, Any]) -> None:
    """Cancel a coroutine whose thread stands at a gate, and let that go on."""
    task = asyncio.create_task(awaited)
    await gate.wait_reached()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done(), "its thread is still at it"
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _awaited(opening: Any) -> Any:
    return await opening


def test_a_cancelled_connect_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread went on, and nobody closed what it had opened: an oracle of one's own, say."""
    client, gate = Client(), Gate()

    def connect(*_: object, **__: object) -> manager_module.TransactionManager:
        gate()
        return client.tm

    monkeypatch.setattr(aio_manager, "connect_blocking", connect)
    asyncio.run(cancelled_at(gate, _awaited(aio.connect("memory:"))))
    with pytest.raises(UsageError, match="closed"):
        client.tm.begin()


def test_a_cancelled_close_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store, and the threads."""
    client, gate = Client(), Gate()
    closing = client.tm.close

    def slow() -> None:
        gate()
        closing()

    monkeypatch.setattr(client.tm, "close", slow)

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)
        tx = await tm.begin()
        await cancelled_at(gate, tm.close())
        with pytest.raises(UsageError, match="this manager is closed"):
            await tm.begin()
        with pytest.raises(UsageError, match="this manager is closed"):
            await tx.table(TABLE).row(b"a")

    asyncio.run(main())


def test_a_cancelled_hold_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody had it who could: versions were kept until its time was over."""
    client, gate = Client(), Gate()
    confirming = holds.HeldSnapshot.confirm

    def slow(held: holds.HeldSnapshot) -> None:
        gate()
        confirming(held)

    monkeypatch.setattr(holds.HeldSnapshot, "confirm", slow)

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        snapshot = await tm.snapshot()
        await cancelled_at(gate, _awaited(tm.hold(snapshot, for_s=60)))
        watermarks = client.tm.session.watermarks
        assert watermarks.holds(watermarks.ages(client.clock)) == []

    asyncio.run(_with_manager(main, client))


def test_an_outcome_that_is_asked_for_waits_for_the_commit() -> None:
    """It forbade the commit that was under way, beside it, and took the cells back twice."""
    client, gate = Client(), Gate()
    deciding = client.oracle.commit

    def slow(*args: Any, **kwargs: Any) -> Any:
        gate()
        return deciding(*args, **kwargs)

    client.oracle.commit = slow  # type: ignore[method-assign]

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        tx = await tm.begin()
        await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        commit = asyncio.create_task(tx.commit())
        await gate.wait_reached()
        assert tx.status == "unknown"
        asked = asyncio.create_task(tm.outcome(tx))
        await asyncio.to_thread(lambda: asked.done() and pytest.fail("it did not wait"))
        gate.opened.set()
        await commit
        assert await asked == Committed(tx.commit_ts)

    asyncio.run(_with_manager(main, client))


# -- no more threads -------------------------------------------------------------------------------


def test_a_call_for_which_no_thread_starts_is_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was told to have failed stood, once another thread of the pool was free."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        gate = threading.Event()
        tx = aio.Transaction(tm, client.tm.begin())  # here, so that there is no other thread
        tx.blocking.table(TABLE).put(b"a", {b"cf:q": b"1"})
        busy = asyncio.ensure_future(tm.threads.run(gate.wait))
        await asyncio.sleep(0)
        goes_on = refuse_threads(monkeypatch, "omidpy-aio")
        with pytest.raises(StorageUnavailable, match=r"not made.*ulimit -u"):
            await tx.table(TABLE).counter_add(b"a", b"cf:n", 1)
        with pytest.raises(StorageUnavailable, match=r"not made.*ulimit -u"):
            await tx.commit()
        gate.set()
        await busy
        goes_on()
        await tm.threads.run(int)
        assert (tx.status, client.read(b"a")) == ("running", {})
        await tx.commit()
        assert client.read(b"a") == {b"cf:q": b"1"}

    run(main)


def test_a_block_ends_and_a_manager_closes_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What must take place is done in the thread of the loop."""
    gate, goes_on = threading.Event(), list[Callable[[], None]]()

    async def fail(tx: aio.Transaction) -> None:
        async with tx.savepoint():
            await tx.table(TABLE).put(b"b", {b"cf:q": b"1"})
            goes_on.append(refuse_threads(monkeypatch))
            raise ZeroDivisionError

    async def main() -> None:
        client = Client()
        tm = aio.TransactionManager(client.tm)
        async with tm.begin() as tx:
            await tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
            busy = asyncio.ensure_future(tm.threads.run(gate.wait))
            await asyncio.sleep(0)
            with pytest.raises(ZeroDivisionError):
                await fail(tx)
        assert client.read(b"a") == {b"cf:q": b"1"}
        assert client.read(b"b") == {}
        await tm.close()
        gate.set()
        await busy
        goes_on[0]()  # asyncio needs one, to end
        with pytest.raises(UsageError, match="is closed"):
            client.read(b"a")

    asyncio.run(main())


def test_a_worker_at_hand_is_discarded_as_by_a_blocking_client() -> None:
    """By itself, or by its id."""

    async def main(tm: aio.TransactionManager, client: Client) -> None:
        async with tm.begin() as tx:
            token = await tx.token()
            for name in (b"a", b"b"):
                async with asyncio.timeout(PATIENCE_S):
                    dead = await tm.resume(token)
                    await dead.table(TABLE).put(name, {b"cf:q": b"v"})
                    await dead.finish()
                await tx.discard(dead if name == b"a" else dead.worker_id)
            await tx.table(TABLE).put(b"c", {b"cf:q": b"v"})
        assert [cell[0] for cell in client.raw_data()] == [b"c"]

    run(main)
