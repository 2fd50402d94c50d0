"""A scan that has failed does not look as if it had ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterator
from threading import Event
from typing import Any, cast

import pytest

from omidpy import ChangeFeed, aio
from omidpy.aio import changes
from omidpy.aio.lanes import Lane
from omidpy.codec import BYTES
from omidpy.errors import CorruptCell, StorageError, StorageUnavailable, TransactionClosed
from omidpy.reading.whole import whole
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx.table import TransactionalTable
from tests.machines.clients import TABLE, Client

ROWS = [b"%02d" % number for number in range(12)]
MISSING = "has failed before, or was interrupted"


@pytest.fixture
def client() -> Client:
    """Return a manager over a store that can fail, with some rows."""
    found = Client(FaultyStore(MemoryStore()))
    for row in ROWS:
        found.write(row)
    return found


def fails_once(client: Client, *, nth: int) -> None:
    """Let a page of the next scan not be read."""
    assert isinstance(client.store, FaultyStore)
    client.store.plans.append(on("scan.before", StorageUnavailable("away"), nth=nth, table=TABLE))


def scanned(table: TransactionalTable, **options: Any) -> Callable[[], object]:
    """Return what reads the next row of a scan."""
    found = table.scan(batch_size=3, **options)
    return lambda: next(found)


def arrow(table: TransactionalTable) -> Callable[[], object]:
    """Return what reads the next batch of a scan in Arrow."""
    found = table.scan_arrow(codecs={b"cf:q": BYTES}, batch_rows=3)
    return lambda: next(found)


def reader(table: TransactionalTable) -> Callable[[], object]:
    """Return what reads the next batch of a reader."""
    found = table.read_arrow(batch_rows=3)
    return lambda: found.read_next_batch()  # noqa: PLW0108 - which has no type


def read_all(read_next: Callable[[], object]) -> None:
    """Read until it raises."""
    while True:
        read_next()


@pytest.mark.parametrize(
    "scan",
    [
        scanned,
        lambda table: scanned(table, reverse=True),
        lambda table: scanned(table, limit=10),
        lambda table: scanned(table, include_timestamp=True),
        arrow,
        reader,
    ],
    ids=["rows", "backwards", "the first ten", "with times", "arrow", "a reader"],
)
def test_who_goes_on_behind_a_failure_is_told_that_rows_are_missing(
    client: Client, scan: Callable[[TransactionalTable], Callable[[], object]]
) -> None:
    """As a loop that catches it and goes on: it took what had come for all that there is."""
    with client.tm.begin() as tx:
        fails_once(client, nth=2)
        read_next = scan(tx.table(TABLE))
        assert read_next()
        with pytest.raises(StorageUnavailable, match="away"):
            read_all(read_next)
        for _ in range(2):
            with pytest.raises(StorageError, match=MISSING):
                read_next()


def test_a_scan_ends_where_its_rows_do(client: Client) -> None:
    """At their end, or at the limit; and however often it is asked behind that."""
    with client.tm.begin() as tx:
        for limit, count in ((None, 12), (5, 5), (12, 12), (50, 12)):
            found = tx.table(TABLE).scan(batch_size=3, limit=limit)
            assert [key for key, _ in found] == ROWS[:count]
            assert list(found) == []


def test_a_scan_that_outlives_its_transaction_has_not_ended(client: Client) -> None:
    """It says why, and then that it has failed."""
    with client.tm.begin() as tx:
        found = tx.table(TABLE).scan()
        next(found)
    with pytest.raises(TransactionClosed):
        next(found)
    with pytest.raises(StorageError, match=MISSING):
        next(found)


def test_a_value_that_cannot_be_read_ends_nothing() -> None:
    """What is behind it does not come as if it were the rest."""

    def damaged() -> Iterator[int]:
        yield 1
        raise CorruptCell("no number")

    found = whole(damaged(), "this scan")
    assert next(found) == 1
    with pytest.raises(CorruptCell):
        next(found)
    with pytest.raises(StorageError, match=MISSING):
        next(found)


def test_a_row_that_is_waited_for_in_vain_comes_later_in_asyncio(client: Client) -> None:
    """A timeout around one row cancels the wait alone: the scan was over, with all its rows."""
    goes_on = Event()
    assert isinstance(client.store, FaultyStore)
    client.store.plans.append(on("scan.before", lambda: goes_on.wait(20), nth=2, table=TABLE))

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)
        async with tm.begin() as tx:
            found = tx.table(TABLE).scan(batch_size=3)
            rows = [(await anext(found))[0] for _ in range(3)]
            waits = asyncio.ensure_future(anext(found))
            await asyncio.sleep(0.01)
            waits.cancel()
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await waits
            rows += [key async for key, _ in found]
            assert rows == ROWS

    asyncio.run(main())


def test_tasks_that_share_a_scan_get_each_row_once(client: Client) -> None:
    """And one that fails hands out what came before the failure."""

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)
        async with tm.begin() as tx:
            found = tx.table(TABLE).scan(batch_size=3)
            got: list[bytes] = []

            async def take() -> None:
                async for key, _ in found:
                    got.append(key)
                    await asyncio.sleep(0)

            async with asyncio.timeout(20):
                await asyncio.gather(*(take() for _ in range(3)))
            assert got == ROWS
            fails_once(client, nth=3)
            found = tx.table(TABLE).scan(batch_size=3)
            assert [(await anext(found))[0] for _ in range(6)] == ROWS[:6]
            with pytest.raises(StorageUnavailable):
                await anext(found)
            for _ in range(2):
                with pytest.raises(StorageError, match=MISSING):
                    await anext(found)

    asyncio.run(main())


def test_a_scan_that_was_closed_in_asyncio_is_over(client: Client) -> None:
    """What was fetched and not handed out goes with it."""

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)
        async with tm.begin() as tx:
            found: Any = tx.table(TABLE).scan(batch_size=3)
            assert (await anext(found))[0] == ROWS[0]
            assert (await anext(found))[0] == ROWS[1]
            await found.aclose()
            assert await anext(found, None) is None

    asyncio.run(main())


def test_a_feed_that_is_closed_while_it_is_opened_holds_nothing(client: Client) -> None:
    """Nobody closed what another task was about to get, and its file stayed."""
    begun, goes_on = Event(), Event()
    opened: list[ChangeFeed] = []

    def slowly() -> ChangeFeed:
        opened.append(client.tm.changes(TABLE, since=0))
        begun.set()
        assert goes_on.wait(20)
        return opened[0]

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)
        feed = changes.ChangeFeed(Lane(tm.threads), slowly)
        first = asyncio.ensure_future(anext(feed, None))
        assert await asyncio.to_thread(begun.wait, 20)
        closing = asyncio.ensure_future(feed.aclose())
        await asyncio.sleep(0)
        goes_on.set()
        await asyncio.gather(first, closing)
        assert await anext(feed, None) is None

    asyncio.run(main())
    assert next(opened[0], None) is None


def test_one_that_is_closed_frees_what_it_holds_and_has_ended() -> None:
    """As a generator, which scans were: `contextlib.closing` takes them."""
    freed = []

    def rows() -> Iterator[int]:
        try:
            yield from range(3)
        finally:
            freed.append(True)

    with contextlib.closing(
        cast("Generator[int, None, None]", whole(rows(), "this scan"))
    ) as found:
        assert next(found) == 0
        assert not freed
    assert freed
    assert list(found) == []
