"""What is added to what is there is not added twice, where a flush behind it has failed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from omidpy.errors import AlreadyCommitted, StorageUnavailable, TransactionAborted, UsageError
from omidpy.recipes.export_queue import ExportQueue
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx import transaction as transaction_module
from omidpy.tx.parts import worker as worker_module
from omidpy.tx.parts.worker import Worker
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client

Write: TypeAlias = Callable[[Any], object]

COUNTER = b"cf:n"
QUEUE = "q"


def count(tx: Transaction | Worker) -> None:
    """Add to a counter."""
    tx.table(TABLE).counter_inc(b"r", COUNTER)


def count_frame(tx: Transaction | Worker) -> None:
    """Add to a counter by a frame."""
    frame = pa.table({"row": pa.array([b"r"], pa.binary()), "n": pa.array([1], pa.int64())})
    tx.table(TABLE).write_arrow(frame, columns={"n": ("cf:n", "counter")})


def add(tx: Transaction | Worker) -> None:
    """Add an entry to a queue."""
    tx.queue(QUEUE).add(b"key", 1)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """Return a manager over a store that can fail, whose transactions flush behind each write."""
    found = Client(FaultyStore(MemoryStore()))
    ExportQueue.create(found.tm, QUEUE, buckets=1)
    for module in (transaction_module, worker_module):
        monkeypatch.setattr(module, "FLUSH_LIMIT_BYTES", 1)
    return found


def fail_once(client: Client, call: str = "write.before") -> None:
    """Let the next flush fail."""
    assert isinstance(client.store, FaultyStore)
    client.store.plans.append(on(call, StorageUnavailable("away"), nth=1))


def seen(client: Client) -> tuple[int, list[object]]:
    """Return the counter, and the entries of the queue."""
    with client.tm.begin(read_only=True) as tx:
        counter = tx.table(TABLE).counter_get(b"r", COUNTER)
    return counter, [entry.value for entry in ExportQueue.open(client.tm, QUEUE).peek()]


@pytest.mark.parametrize("write", [count, count_frame, add])
def test_what_adds_is_not_repeated_behind_a_flush_that_failed(client: Client, write: Write) -> None:
    """It is in the transaction already, which its caller was not told: it was there twice."""
    tx = client.tm.begin()
    fail_once(client)
    with pytest.raises(StorageUnavailable, match="away"):
        write(tx)
    write(tx)
    with pytest.raises(TransactionAborted, match="was interrupted"):
        tx.commit()
    assert seen(client) == (0, [])


@pytest.mark.parametrize("write", [count, count_frame, add])
def test_a_savepoint_lets_it_be_repeated(
    client: Client, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is undone is not there; what was flushed stood before it."""
    with client.tm.begin() as tx:
        monkeypatch.setattr(transaction_module, "FLUSH_LIMIT_BYTES", 1000)
        tx.table(TABLE).put(b"before", {COUNTER: bytes(900)})
        fail_once(client)
        with pytest.raises(StorageUnavailable, match="away"), tx.savepoint():
            write(tx)
        write(tx)
    assert seen(client) in ((1, []), (0, [1]))


@pytest.mark.parametrize("write", [count, add])
def test_a_worker_hands_over_nothing_that_was_added_twice(client: Client, write: Write) -> None:
    """Its owner would commit it."""
    with client.tm.begin() as tx:
        worker = client.tm.resume(tx.token())
        fail_once(client, "write_guarded.before")
        with pytest.raises(StorageUnavailable, match="away"):
            write(worker)
        with pytest.raises(UsageError, match="failed with what it wrote in the transaction"):
            worker.finish()
        tx.discard(worker)
    assert seen(client) == (0, [])


@pytest.mark.parametrize("write", [count, count_frame, add])
def test_what_could_not_be_read_was_not_added(client: Client, write: Write) -> None:
    """Nothing was written, and the transaction goes on."""
    assert isinstance(client.store, FaultyStore)
    client.store.plans.append(on("get.before", StorageUnavailable("away"), nth=1, table=TABLE))
    with client.tm.begin() as tx:
        with suppress(StorageUnavailable):
            write(tx)
            return  # an addition to a queue reads nothing
        write(tx)
    assert seen(client) == (1, [])


def test_a_put_is_repeated_behind_a_flush_that_failed(client: Client) -> None:
    """It comes to the same, however often it is made."""
    with client.tm.begin() as tx:
        fail_once(client)
        with pytest.raises(StorageUnavailable, match="away"):
            tx.table(TABLE).counter_set(b"r", COUNTER, 7)
        tx.table(TABLE).counter_set(b"r", COUNTER, 7)
    assert seen(client) == (7, [])


def test_a_key_is_not_used_up_by_who_is_told_that_it_could_not_be(client: Client) -> None:
    """Asked again the transaction says that it has used the key, and its program did nothing."""
    tx = client.tm.begin()
    tx.use_key(b"before")  # makes the table
    tx.rollback()
    tx = client.tm.begin()
    fail_once(client)
    with pytest.raises(StorageUnavailable, match="away"):
        tx.use_key(b"key")
    with pytest.raises(AlreadyCommitted):
        tx.use_key(b"key")
    with pytest.raises(TransactionAborted, match="failed with what it wrote in the transaction"):
        tx.commit()
    with client.tm.begin(idempotency_key=b"key") as tx:
        count(tx)
    assert seen(client) == (1, [])
