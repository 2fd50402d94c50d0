"""A transaction that two threads use at once is refused, or ended by one of them: never torn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from omidpy.errors import TransactionAborted, TransactionClosed, UsageError
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx.parts import worker as worker_module
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.layers import Layer
from tests.machines.clients import TABLE, Client

PATIENCE_S = 20.0


def put(tx: Any, row: bytes) -> None:
    """Write one cell."""
    tx.table(TABLE).put(row, {b"cf:q": b"1"})


def leave(tx: Transaction) -> None:
    """Leave its block by an exception."""
    tx.__exit__(ValueError, ValueError(), None)


def told(call: Callable[[], object]) -> str:
    """Return what a call says in the end."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - its kind is what is asked for
        return type(error).__name__
    return "done"


class Beside:
    """A client in which something happens in another thread, in the middle of a write."""

    def __init__(self, point: str) -> None:
        """Wait for a call at a point of the table."""
        self.store = FaultyStore(MemoryStore())
        self.client = Client(self.store)
        self.calls: list[Callable[[], object]] = []
        self.told: list[str] = []
        self.store.plans.append(on(point, self._go, nth=1, table=TABLE))

    def _go(self) -> None:
        for call in self.calls:
            thread = threading.Thread(target=lambda call=call: self.told.append(told(call)))
            thread.start()
            thread.join(PATIENCE_S)


@pytest.mark.parametrize("point", ["write.before", "write.after"])
@pytest.mark.parametrize("end", [Transaction.rollback, leave])
def test_what_is_rolled_back_in_the_middle_of_its_commit_is_not_committed(
    point: str, end: Callable[[Transaction], object]
) -> None:
    """I8: its cells were removed, and the oracle was asked all the same: committed, and empty."""
    beside = Beside(point)
    tx = beside.client.tm.begin()
    put(tx, b"a")
    beside.calls.append(lambda: end(tx))
    with pytest.raises(TransactionAborted, match="was rolled back while its commit"):
        tx.commit()
    assert beside.told == ["done"]
    assert tx.status == "rolled_back"
    assert beside.client.raw() == []


def test_so_is_one_that_a_signal_rolls_back() -> None:
    """Its handler runs in the thread of the commit."""
    beside = Beside("write.after")
    tx = beside.client.tm.begin()
    put(tx, b"a")
    beside.store.plans[:] = [on("write.after", tx.rollback, nth=1, table=TABLE)]
    with pytest.raises(TransactionAborted, match="was rolled back while its commit"):
        tx.commit()
    assert beside.client.raw() == []


def test_what_is_to_be_rolled_back_is_not_committed() -> None:
    """Who says so is heard until the oracle is asked, or told that it is too late."""
    beside = Beside("write.after")
    tx = beside.client.tm.begin()
    put(tx, b"a")
    beside.calls.append(tx.set_rollback_only)
    with pytest.raises(TransactionAborted, match="set_rollback_only was called"):
        tx.commit()
    assert beside.told == ["done"]
    assert beside.client.raw() == []


def test_of_two_commits_neither_says_what_is_not_so() -> None:
    """One was told that it was rolled back for certain, and the other committed it."""
    beside = Beside("write.after")
    tx = beside.client.tm.begin()
    put(tx, b"a")
    beside.calls.append(tx.commit)
    with pytest.raises(TransactionAborted):
        tx.commit()
    assert beside.told == ["TransactionAborted"]
    assert beside.client.raw() == []


def test_once_the_oracle_is_asked_nobody_rolls_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor commits it once more."""
    client = Client()
    tx = client.tm.begin()
    put(tx, b"a")
    decide, found = tx._decide, list[str]()

    def decided(ids: Any) -> Any:
        found.extend((told(tx.rollback), told(tx.commit), told(tx.set_rollback_only)))
        tx._buffer.is_closed = False
        found.append(told(tx._roll_back))
        return decide(ids)

    monkeypatch.setattr(tx, "_decide", decided)
    tx.commit()
    assert found == [TransactionClosed.__name__] * 4
    assert client.read(b"a") == {b"cf:q": b"1"}


def test_a_write_beside_the_commit_is_refused() -> None:
    """It was in nothing that was sent, and nobody said so."""
    beside = Beside("write.after")
    tx = beside.client.tm.begin()
    put(tx, b"a")
    beside.calls += [lambda: put(tx, b"b"), tx.flush, tx.token]
    tx.commit()
    assert beside.told == ["UsageError"] * 3
    assert beside.client.read(b"b") == {}


def test_a_write_beside_a_flush_is_refused_and_nothing_is_committed() -> None:
    """The end of the flush forgot it with what had been sent."""
    beside = Beside("write.after")
    tx = beside.client.tm.begin()
    put(tx, b"a")
    beside.calls += [lambda: put(tx, b"b")]
    tx.flush()
    assert beside.told == ["UsageError"]
    put(tx, b"c")
    with pytest.raises(TransactionAborted, match="by another thread"):
        tx.commit()
    assert beside.client.raw() == []


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_write_beside_another_is_refused_and_nothing_is_committed(
    monkeypatch: pytest.MonkeyPatch, *, is_batch: bool
) -> None:
    """Of two threads that began a row at once, the cells of one were gone, and nobody said so."""
    client = Client()
    tx = client.tm.begin()
    put_cells, found = Layer.put_cells, list[BaseException | None]()

    def beside(layer: Layer, table: str, row: bytes, cells: Any) -> None:
        if not found:
            found.append(None)
            with ThreadPoolExecutor(1) as pool:
                found[0] = pool.submit(put, tx, b"b").exception()
        put_cells(layer, table, row, cells)

    monkeypatch.setattr(Layer, "put_cells", beside)
    if is_batch:
        with tx.table(TABLE).batch() as batch:
            batch.put(b"a", {b"cf:q": b"1"})
    else:
        put(tx, b"a")
    assert isinstance(found[0], UsageError)
    assert "let one thread write what others have found" in str(found[0])
    put(tx, b"c")
    with pytest.raises(TransactionAborted, match="two threads wrote in it at the same time"):
        tx.commit()
    assert client.raw() == []


def test_a_counter_that_two_threads_raise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read one value, and the transaction counted once for two."""
    client = Client()
    tx = client.tm.begin()
    table = tx.table(TABLE)
    row, found = TransactionalTable.row, list[BaseException | None]()

    def read_beside(self: TransactionalTable, *args: Any, **options: Any) -> Any:
        seen = row(self, *args, **options)
        if not found:
            found.append(None)
            with ThreadPoolExecutor(1) as pool:
                found[0] = pool.submit(table.counter_inc, b"a", b"cf:q").exception()
        return seen

    monkeypatch.setattr(TransactionalTable, "row", read_beside)
    assert table.counter_inc(b"a", b"cf:q") == 1
    assert isinstance(found[0], UsageError)
    with pytest.raises(TransactionAborted, match="two threads wrote in it at the same time"):
        tx.commit()


def test_a_write_of_a_signal_in_the_middle_of_another_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs in the same thread, which goes on behind it."""
    client = Client()
    tx = client.tm.begin()
    put_cells, calls = Layer.put_cells, [b"b"]

    def beside(layer: Layer, table: str, row: bytes, cells: Any) -> None:
        while calls:
            put(tx, calls.pop())
        put_cells(layer, table, row, cells)

    monkeypatch.setattr(Layer, "put_cells", beside)
    put(tx, b"a")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(put, tx, b"c").result()
    tx.commit()
    assert [row for row, *_ in client.raw_data()] == [b"a", b"b", b"c"]


def test_a_commit_beside_a_flush_is_refused() -> None:
    """It would be a commit of what is still on its way."""
    beside = Beside("write.after")
    tx = beside.client.tm.begin()
    put(tx, b"a")
    beside.calls += [tx.commit]
    tx.flush()
    assert beside.told == ["UsageError"]
    with pytest.raises(TransactionAborted):
        tx.commit()


def test_a_flush_that_failed_refuses_nothing() -> None:
    """Nothing is on its way any more."""
    beside = Beside("write.before")

    def fail() -> None:
        raise OSError("the disk is gone")

    tx = beside.client.tm.begin()
    put(tx, b"a")
    beside.store.plans[:] = [on("write.before", fail, nth=1, table=TABLE)]
    with pytest.raises(OSError, match="the disk is gone"):
        tx.flush()
    put(tx, b"b")
    tx.commit()
    assert beside.client.read(b"b") == {b"cf:q": b"1"}


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_a_write_beside_one_of_a_worker_is_refused(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Its part lacked the row: of the flush that is past a limit, and of the last one."""
    monkeypatch.setattr(worker_module, "FLUSH_LIMIT_BYTES", limit)
    beside = Beside("write_guarded.after")
    with beside.client.tm.begin() as tx:
        worker = beside.client.tm.resume(tx.token())
        beside.calls += [lambda: put(worker, b"b")]
        put(worker, b"a")
        if limit:
            worker.finish()
        else:
            with pytest.raises(UsageError, match="wrote half of something"):
                worker.finish()
        assert beside.told == ["UsageError"]
        tx.rollback()


def test_what_is_whole_or_absent_forbids_the_commit_from_its_first_line_on() -> None:
    """Who is interrupted, and again as that is noted, commits no half of it."""
    client = Client()
    tx = client.tm.begin()
    with tx.whole("of the first"):
        put(tx, b"a")

    def cut_short() -> None:
        with tx.whole("of the second"):
            put(tx, b"b")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut_short()
    with pytest.raises(TransactionAborted, match="of the second"):
        tx.commit()
    assert client.raw() == []


def test_a_savepoint_that_is_undone_undoes_its_half() -> None:
    """And the rest commits."""
    client = Client()
    with client.tm.begin() as tx:
        put(tx, b"a")

        def cut_short() -> None:
            with tx.savepoint(), tx.whole("cut short"):
                put(tx, b"b")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            cut_short()
    assert client.read(b"a") == {b"cf:q": b"1"}
    assert client.read(b"b") == {}
