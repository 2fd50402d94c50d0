"""A write set that the oracle would refuse is refused before any of it is in the store."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing

import pytest

from omidpy.errors import TransactionAborted
from omidpy.manager import TransactionManager
from omidpy.model import CellId, TableId, Timestamp, TransactionStatus
from omidpy.oracle.base import CommitVerdict
from omidpy.storage.base import RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.tx.transaction import Transaction
from tso.core.settings import MIN_COMMIT_CELLS
from tso.embedded import EmbeddedOracle

TABLE = "t"
MOST = MIN_COMMIT_CELLS - 1
"""Cells that one commit may have here, beside their table."""


class CountingStore(MemoryStore):
    """Counts the cells of the table that are sent."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.written_count = 0

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Count, and write."""
        rows = batch.get(TABLE, ())
        self.written_count += sum(len(row.puts) for row in rows)
        super().write(batch, durable=durable)


class CountingOracle(EmbeddedOracle):
    """Counts the commits that it is asked for."""

    asked_count = 0

    def commit(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        *,
        is_retry: bool = False,
    ) -> CommitVerdict:
        """Count, and decide."""
        self.asked_count += 1
        return super().commit(start_ts, cell_ids, table_ids, is_retry=is_retry)


@pytest.fixture
def store() -> CountingStore:
    """Return an empty store."""
    return CountingStore()


@pytest.fixture
def oracle(store: CountingStore) -> Iterator[CountingOracle]:
    """Return an oracle with a small map."""
    with closing(CountingOracle(store, conflict_map_size=1)) as oracle:
        assert oracle.max_commit_cells == MIN_COMMIT_CELLS
        yield oracle


@pytest.fixture
def tm(store: CountingStore, oracle: CountingOracle) -> Iterator[TransactionManager]:
    """Return a manager with one table."""
    with TransactionManager(store, oracle) as tm:
        tm.create_table(TABLE, families=["f"])
        yield tm


def put(tx: Transaction, count: int, *, first: int = 0, value: bytes = b"v") -> None:
    """Write so many cells, each in a row of its own."""
    table = tx.table(TABLE)
    for number in range(first, first + count):
        table.put(b"%d" % number, {b"f:q": value})


def test_what_is_too_large_is_refused_before_any_cell_is_written(
    tm: TransactionManager, store: CountingStore, oracle: CountingOracle
) -> None:
    """It was written whole, and then aborted; the error says how many cells, and the option."""
    tx = tm.begin()
    put(tx, MOST + 1)
    with pytest.raises(TransactionAborted, match="--conflict-map-size") as caught:
        tx.commit()
    assert f"its write set of {MOST + 1} cells in 1 tables" in str(caught.value)
    assert f"the {MIN_COMMIT_CELLS} that" in str(caught.value)
    assert not caught.value.retryable
    assert tx.status is TransactionStatus.ROLLED_BACK
    assert store.written_count == 0
    assert oracle.asked_count == 0


def test_what_fits_exactly_is_committed(tm: TransactionManager, oracle: CountingOracle) -> None:
    """Cells that are written again count once, also when they were flushed between."""
    with tm.begin() as tx:
        put(tx, MOST)
        put(tx, 10)
        tx.flush()
        put(tx, MOST, value=b"w")
    assert tx.status is TransactionStatus.COMMITTED
    assert oracle.asked_count == 1


def test_what_is_flushed_on_the_way_stops_at_the_limit(
    tm: TransactionManager, store: CountingStore
) -> None:
    """The put that would have the next cells sent is refused, and what was sent is taken back."""
    with pytest.raises(TransactionAborted, match="write set of"), tm.begin() as tx:
        put(tx, 5 * MOST, value=bytes(10_000))
    assert tx.status is TransactionStatus.ROLLED_BACK
    assert 0 < store.written_count <= MOST
    with tm.begin(read_only=True) as tx:
        assert list(tx.table(TABLE).scan()) == []


def test_who_goes_on_behind_the_refusal_does_not_commit_a_part(tm: TransactionManager) -> None:
    """The refused put stays in the buffer, and the transaction is told to be rolled back."""
    tx = tm.begin()
    put(tx, MOST + 1)
    with pytest.raises(TransactionAborted):
        tx.flush()
    with pytest.raises(TransactionAborted, match="was rolled back: its write set"):
        tx.commit()
    assert tx.status is TransactionStatus.ROLLED_BACK


def test_what_a_savepoint_took_back_makes_no_room_that_is_not_there(
    tm: TransactionManager, store: CountingStore
) -> None:
    """Nor does it count."""
    with tm.begin() as tx:
        put(tx, MOST - 10)
        for _ in range(3):
            with contextlib.suppress(KeyError), tx.savepoint():
                put(tx, 500, first=2000)
                tx.flush()
                raise KeyError
        put(tx, 10, first=5000)
    assert tx.status is TransactionStatus.COMMITTED
    written_count = store.written_count
    tx = tm.begin()
    put(tx, MOST - 10)
    with contextlib.suppress(KeyError), tx.savepoint():
        put(tx, 500, first=2000)
        tx.flush()
        raise KeyError
    put(tx, 11, first=5000)
    with pytest.raises(TransactionAborted, match=f"write set of {MOST + 1} cells"):
        tx.commit()
    assert store.written_count <= written_count + MOST - 10


def test_rows_count_where_conflicts_are_told_by_rows(
    store: CountingStore, oracle: CountingOracle
) -> None:
    """What is refused is what the oracle would be asked about, and no more."""
    with TransactionManager(store, oracle, conflict_level="row") as tm:
        tm.create_table(TABLE, families=["f"])
        with tm.begin() as tx:
            table = tx.table(TABLE)
            for number in range(MOST):
                table.put(b"%d" % (number // 2), {b"f:%d" % (number % 2): b"v"})
                table.put(b"%d" % (number // 2), {b"f:x%d" % (number % 2): b"v"})
        assert tx.status is TransactionStatus.COMMITTED


def test_cells_free_of_conflicts_do_not_count(tm: TransactionManager) -> None:
    """The oracle does not hear of them."""
    with tm.begin() as tx:
        table = tx.table(TABLE, conflict_free=True)
        for number in range(2 * MOST):
            table.put(b"%d" % number, {b"f:q": b"v"})
    assert tx.status is TransactionStatus.COMMITTED


def test_parts_that_are_too_large_together_are_not_asked_about(
    tm: TransactionManager, oracle: CountingOracle
) -> None:
    """No worker knows what the others write; the owner does before the commit."""
    tx = tm.begin()
    token = tx.token()
    for number in range(2):
        worker = tm.resume(token)
        table = worker.table(TABLE)
        for row in range(MOST - 1):
            table.put(b"%d/%d" % (number, row), {b"f:q": b"v"})
        tx.merge(worker.finish())
    with pytest.raises(TransactionAborted, match=f"write set of {2 * MOST - 2} cells"):
        tx.commit()
    assert oracle.asked_count == 0
    with tm.begin(read_only=True) as tx:
        assert list(tx.table(TABLE).scan()) == []
