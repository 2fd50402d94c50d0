"""A batch is all or nothing: what it refuses at once, and what it leaves when it fails half-way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from omidpy.base.words.arguments import MAX_VALUE_BYTES
from omidpy.errors import (
    NoSuchFamily,
    StorageUnavailable,
    TransactionAborted,
    TransactionClosed,
    UsageError,
)
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.buffer import WriteBuffer
from omidpy.tx.writes.layers import Layer
from tests.machines.clients import TABLE, Client

Use = Callable[[Any], object]

BAD: list[tuple[str, Use, type[Exception]]] = [
    ("column", lambda b: b.put(b"r", {b"q": b"v"}), UsageError),
    ("text-column", lambda b: b.put(b"r", {"cf:q": b"v"}), TypeError),
    ("family", lambda b: b.put(b"r", {b"missing:q": b"v"}), NoSuchFamily),
    ("value", lambda b: b.put(b"r", {b"cf:q": 5}), TypeError),
    ("empty-value", lambda b: b.put(b"r", {b"cf:q": b""}), UsageError),
    ("huge-value", lambda b: b.put(b"r", {b"cf:q": b"x" * (MAX_VALUE_BYTES + 1)}), UsageError),
    ("data", lambda b: b.put(b"r", [(b"cf:q", b"v")]), TypeError),
    ("row", lambda b: b.put(b"", {b"cf:q": b"v"}), UsageError),
    ("wal", lambda b: b.put(b"r", {b"cf:q": b"v"}, wal=False), UsageError),
    ("delete-row", lambda b: b.delete("r"), TypeError),
    ("delete-family", lambda b: b.delete(b"r", [b"missing"]), NoSuchFamily),
    ("delete-reserved", lambda b: b.delete(b"r", [b"cf:q\xc2\x80"]), UsageError),
    ("delete-nothing", lambda b: b.delete(b"r", []), UsageError),
    ("delete-bytes", lambda b: b.delete(b"r", b"cf:q"), TypeError),
]


@pytest.fixture
def client() -> Client:
    """Return a client with a table of the families `cf` and `other`."""
    return Client()


@pytest.mark.parametrize(
    ("use", "error"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_what_cannot_be_written_is_refused_at_once(
    client: Client, use: Use, error: type[Exception]
) -> None:
    """In `send` it would come half-way; and whoever catches it goes on with the rest."""
    with client.tm.begin() as tx, tx.table(TABLE).batch() as batch:
        batch.put(b"before", {b"cf:q": b"1"})
        with pytest.raises(error):
            use(batch)
        batch.put(b"after", {b"cf:q": b"2"})
    assert [row for row, *_ in client.raw_data()] == [b"after", b"before"]


def test_a_batch_of_an_ended_transaction_is_refused_at_once(client: Client) -> None:
    """As its table is."""
    with client.tm.begin() as tx:
        batch = tx.table(TABLE).batch()
    with pytest.raises(TransactionClosed):
        batch.put(b"r", {b"cf:q": b"v"})


def test_columns_may_come_from_a_generator(client: Client) -> None:
    """It is read once, when the delete is collected."""
    client.write(b"r", column=b"cf:q")
    with client.tm.begin() as tx, tx.table(TABLE).batch() as batch:
        batch.delete(b"r", (column for column in [b"cf:q"]))
    assert client.read(b"r") == {}


def test_deletes_of_a_batch_read_once() -> None:
    """As many rows as there may be."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    rows = [b"%d" % number for number in range(5)]
    for row in rows:
        client.write(row)
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        before = store.calls["get"]
        with table.batch() as batch:
            for row in rows:
                batch.delete(row)
        assert store.calls["get"] == before + 1
    assert [client.read(row) for row in rows] == [{}] * 5


def test_a_read_that_fails_leaves_the_batch_as_it_was() -> None:
    """Nothing of it is in the transaction, and sending it again sends all of it."""
    away = on("get.before", StorageUnavailable("away"), nth=1, table=TABLE)
    client = Client(FaultyStore(MemoryStore(), away))
    client.write(b"gone")
    with client.tm.begin() as tx:
        batch = tx.table(TABLE).batch()
        batch.put(b"r", {b"cf:q": b"v"})
        batch.delete(b"gone")
        with pytest.raises(StorageUnavailable):
            batch.send()
        assert [key for key, _ in tx.table(TABLE).scan()] == [b"gone"]
        batch.send()
    assert (client.read(b"r"), client.read(b"gone")) == ({b"cf:q": b"v"}, {})


# -- left half-way ---------------------------------------------------------------------------------


def leave_half_way(tx: Transaction) -> None:
    """Hand over two operations of three, and raise."""
    with tx.table(TABLE).batch(batch_size=2) as batch:
        for row in (b"a", b"b", b"c"):
            batch.put(row, {b"cf:q": b"v"})
        raise ZeroDivisionError


def test_half_of_a_batch_is_not_committed(client: Client) -> None:
    """Whoever caught the exception hears of it, and no later than at the commit."""
    tx = client.tm.begin()
    with pytest.raises(ZeroDivisionError):
        leave_half_way(tx)
    message = r"batch of table 't' was left by ZeroDivisionError after 2 of its .* savepoint"
    with pytest.raises(TransactionAborted, match=message) as aborted:
        tx.commit()
    assert not aborted.value.retryable
    assert client.raw() == []


def test_half_of_a_batch_is_undone_with_a_savepoint_around_it(client: Client) -> None:
    """Then nothing of it is left, and the rest may be committed."""
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
        with pytest.raises(ZeroDivisionError), tx.savepoint():
            leave_half_way(tx)
    assert [row for row, *_ in client.raw_data()] == [b"r"]


def test_half_of_a_batch_outlives_a_savepoint_that_was_kept(client: Client) -> None:
    """It is in the transaction then, whatever savepoints came and went."""
    tx = client.tm.begin()
    with tx.savepoint(), tx.savepoint(), pytest.raises(ZeroDivisionError):
        leave_half_way(tx)
    with pytest.raises(TransactionAborted, match="left by ZeroDivisionError"):
        tx.commit()


def test_half_of_a_batch_is_no_part_of_a_worker(client: Client) -> None:
    """The owner would commit it without knowing."""
    owner = client.tm.begin()
    worker = client.tm.resume(owner.token())

    def fail() -> None:
        with worker.table(TABLE).batch() as batch:
            batch.put(b"a", {b"cf:q": b"v"})
            batch.send()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(UsageError, match="must not be merged: a batch of table 't' was left"):
        worker.finish()


@pytest.mark.parametrize("is_sent", [False, True])
def test_half_of_a_batch_is_not_committed_behind_two_interrupts(
    client: Client, monkeypatch: pytest.MonkeyPatch, *, is_sent: bool
) -> None:
    """The second one comes where the first would be noted; or the block has not ended at all."""

    def interrupted_again(buffer: WriteBuffer, reason: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(WriteBuffer, "spoil", interrupted_again)
    tx = client.tm.begin()
    if is_sent:
        with pytest.raises(KeyboardInterrupt):
            leave_half_way(tx)
        with pytest.raises(TransactionAborted, match="a batch of table 't' has not ended"):
            tx.commit()
        assert client.raw() == []
        return
    with tx.table(TABLE).batch(batch_size=2) as batch:
        batch.put(b"a", {b"cf:q": b"v"})
        batch.put(b"b", {b"cf:q": b"v"})
        with tx.savepoint():
            batch.put(b"c", {b"cf:q": b"v"})
            batch.put(b"d", {b"cf:q": b"v"})
    tx.commit()
    assert [row for row, *_ in client.raw_data()] == [b"a", b"b", b"c", b"d"]


def test_a_batch_whose_end_cannot_be_read_is_half_of_it() -> None:
    """What it handed over before is in the transaction, and the rest of it in none."""
    away = on("get.before", StorageUnavailable("away"), nth=1, table=TABLE)
    client = Client(FaultyStore(MemoryStore(), away))
    tx = client.tm.begin()

    def write() -> None:
        with tx.table(TABLE).batch(batch_size=2) as batch:
            batch.put(b"a", {b"cf:q": b"v"})
            batch.put(b"b", {b"cf:q": b"v"})
            batch.delete(b"c")

    with pytest.raises(StorageUnavailable):
        write()
    with pytest.raises(TransactionAborted, match="a batch of table 't' has not ended"):
        tx.commit()


def two_columns(table: TransactionalTable) -> None:
    """Put one row."""
    table.put(b"r", {b"cf:a": b"1", b"cf:b": b"2"})


def two_rows(table: TransactionalTable) -> None:
    """Put them in one batch."""
    with table.batch() as batch:
        batch.put(b"a", {b"cf:q": b"v"})
        batch.put(b"b", {b"cf:q": b"v"})


def a_whole_row(table: TransactionalTable) -> None:
    """Delete a row of two columns."""
    table.delete(b"old")


@pytest.mark.parametrize("write", [two_columns, two_rows, a_whole_row])
def test_what_an_interrupt_cut_in_half_is_not_committed(
    client: Client, monkeypatch: pytest.MonkeyPatch, write: Callable[[TransactionalTable], None]
) -> None:
    """Ctrl-C comes at any line, twice if need be, and a program may go on to its commit."""
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"old", {b"cf:a": b"1", b"cf:b": b"2"})
    tx = client.tm.begin()
    put_cells = Layer.put_cells
    count = 0

    def cut_short(cells: Iterable[tuple[bytes, bytes, bytes]]) -> Iterator[Any]:
        nonlocal count
        for cell in cells:
            count += 1
            if count == 2:
                raise KeyboardInterrupt
            yield cell

    def interrupted(layer: Layer, table: str, row: bytes, cells: Any) -> None:
        put_cells(layer, table, row, cut_short(cells))

    def interrupted_again(buffer: WriteBuffer, reason: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Layer, "put_cells", interrupted)
    monkeypatch.setattr(WriteBuffer, "spoil", interrupted_again)
    with pytest.raises(KeyboardInterrupt):
        write(tx.table(TABLE))
    with pytest.raises(TransactionAborted, match="'t' was interrupted"):
        tx.commit()
    assert client.read(b"old") == {b"cf:a": b"1", b"cf:b": b"2"}
    assert client.read(b"a") == client.read(b"r") == {}


def test_a_batch_that_is_not_a_block_is_its_callers(client: Client) -> None:
    """Only a `with` block says what belongs together."""
    with client.tm.begin() as tx:
        batch = tx.table(TABLE).batch(batch_size=1)
        batch.put(b"a", {b"cf:q": b"v"})
        with pytest.raises(UsageError):
            batch.put(b"", {b"cf:q": b"v"})
    assert client.read(b"a") == {b"cf:q": b"v"}
