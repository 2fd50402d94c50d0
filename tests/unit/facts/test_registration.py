"""The row of a transaction with workers: what it costs, and that it goes, whoever dies when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import (
    CommitOutcomeUnknown,
    StorageUnavailable,
    TransactionAborted,
    TransactionClosed,
)
from omidpy.facts.commit_table import COMMIT_TABLE, create_system_tables
from omidpy.facts.registration import (
    Flush,
    PartsRow,
    Registration,
    Stretch,
    WorkerRow,
    forget_parts,
    parts_row,
)
from omidpy.manager import TransactionManager
from omidpy.model import (
    Aborted,
    Column,
    Committed,
    FamilySchema,
    Forgotten,
    TableSchema,
    Timestamp,
)
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, Point, on
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client, Loss
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.workers import (
    COLUMN,
    begun,
    compacted,
    finished,
    flushed,
    put,
    rows_of_parts,
    seen,
)

START = Timestamp(100)


@pytest.fixture(params=[MemoryStore, LikeThrift2], ids=["one change for all", "row by row"])
def client(request: pytest.FixtureRequest) -> Client:
    """Return the owner's manager."""
    return Client(FaultyStore(request.param()))


class Synced(LikeThrift2):
    """Remembers which changes were to be durable."""

    def __init__(self) -> None:
        """Remember none."""
        super().__init__()
        self.calls: list[tuple[str, bool]] = []

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """See `Store`."""
        self.calls += [(table, durable) for table in batch]
        super().write(batch, durable=durable)

    def check_and_mutate(
        self,
        table: str,
        row: bytes,
        column: Column,
        expected: bytes | None,
        mutation: RowMutation,
        *,
        durable: bool = False,
    ) -> bool:
        """See `Store`."""
        self.calls.append((table, durable))
        return super().check_and_mutate(table, row, column, expected, mutation, durable=durable)


def test_what_forbids_a_flush_and_what_tells_of_it_outlive_the_power() -> None:
    """Cells and commit are in other logs: the row may not be open again where these are there."""
    store = Synced()
    create_system_tables(store)
    store.create_table(TableSchema(TABLE, (FamilySchema(b"cf"),)))
    owner, worker = PartsRow(store, START), WorkerRow(store, START, "a")
    owner.open()
    store.calls.clear()
    cells = RowMutation(b"r", puts=(Put(b"cf", b"q", 101, b"v"),))
    worker.send(Flush(101, None, [Stretch(TABLE, [b"cf"], b"r", b"r")]), {TABLE: [cells]})
    assert store.calls == [(CONTROL_TABLE, True), (TABLE, False), (CONTROL_TABLE, False)]
    store.calls.clear()
    owner.close()
    assert store.calls == [(CONTROL_TABLE, True)]


def faulty(client: Client) -> FaultyStore:
    """Return its store."""
    assert isinstance(client.store, FaultyStore)
    return client.store


@contextmanager
def asked(client: Client) -> Iterator[list[str]]:
    """Note what is asked of the store: the calls with their tables."""
    found: list[str] = []

    def note(point: Point) -> None:
        call, _, moment = point.name.partition(".")
        if moment == "before":
            found.append(" ".join((call, *dict.fromkeys(point.tables))))

    faulty(client).plans.append(note)
    yield found
    faulty(client).plans.remove(note)


# -- what it costs ---------------------------------------------------------------------------------


def test_a_transaction_without_a_token_makes_no_extra_call(client: Client) -> None:
    """Neither when it commits nor when it rolls back: for workers only those pay who have some."""
    client.write()  # The layout of the table is known from here on.
    with asked(client) as calls:
        client.write()
    entry = f"write {COMMIT_TABLE}"  # made by the oracle, then removed
    assert calls == [f"write {TABLE}", entry, f"write {TABLE}", entry]
    with asked(client) as calls:
        tx = client.tm.begin()
        put(tx, b=b"1")
        tx.flush()
        tx.rollback()
    assert calls == [f"write {TABLE}"] * 2
    with asked(client) as calls:
        assert client.tm.begin().parts() == []
        client.tm.begin().commit()
    assert calls == []


def test_what_an_owner_and_its_workers_pay(client: Client) -> None:
    """Five calls, and two a flush where rows change one by one."""
    client.write()
    tx = client.tm.begin()
    with asked(client) as calls:
        token = tx.token()
        assert tx.token() == token
    assert calls == [f"write {CONTROL_TABLE}"]
    worker = client.tm.resume(token)
    put(worker, b=b"1")
    with asked(client) as calls:
        part = worker.finish()
    if client.store.capabilities.guarded_batches:
        assert calls == [f"write_guarded {CONTROL_TABLE} {TABLE}"]
    else:
        announcement = f"check_and_mutate {CONTROL_TABLE}"
        assert calls == [announcement, f"write {TABLE}", announcement]
    with asked(client) as calls:
        tx.merge(part)
    assert calls == [f"get {CONTROL_TABLE}"]
    with asked(client) as calls:
        tx.commit()
    assert calls == [
        *(f"write {CONTROL_TABLE}", f"get {CONTROL_TABLE}"),
        *(f"write {COMMIT_TABLE}", f"write {TABLE}", f"write {COMMIT_TABLE}"),
        f"write {CONTROL_TABLE}",
    ]


def test_parts_that_were_finished_before_are_merged_without_a_call(client: Client) -> None:
    """A thousand tasks cost one look, if the driver waits for them."""
    client.write()
    tx = client.tm.begin()
    token = tx.token()
    parts = [
        finished(client, token, b=b"1"),
        finished(client, token, c=b"1"),
        finished(client, token, d=b"1"),
    ]
    with asked(client) as calls:
        for part in parts:
            tx.merge(part)
    assert calls == [f"get {CONTROL_TABLE}"]


# -- who dies when ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [Transaction.commit, Transaction.rollback])
@pytest.mark.parametrize("point", ["before", "after"])
def test_an_owner_that_cannot_close_the_row_does_not_commit(
    client: Client, end: object, point: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot know who else writes."""
    tx, token = begun(client)
    down = StorageUnavailable("down", retryable=True)
    faulty(client).plans.append(on(f"write.{point}", down, nth=1, table=CONTROL_TABLE))
    if end is Transaction.commit:
        with pytest.raises(TransactionAborted, match="down") as caught:
            tx.commit()
        assert caught.value.retryable
    else:
        tx.rollback()
        assert "could not be stopped" in caplog.text
    assert tx.status == "rolled_back"
    assert seen(client) == {}
    assert client.raw() == []
    assert rows_of_parts(client.store) == []
    assert client.tm.outcome(token) == Aborted()


def test_an_owner_that_dies_leaves_a_row_that_the_compactor_removes(client: Client) -> None:
    """It goes once the transaction can no longer commit, and the cells of its workers with it."""
    tx, token = begun(client)
    flushed(client, token, b=b"1")
    PartsRow(client.store, tx.start_ts).close()  # the last that it did
    del tx
    young = client.tm.begin()
    put(young, c=b"1")
    young.token()
    client.naive.raise_low_watermark(young.start_ts - 50)
    compacted(client, up_to=Timestamp(young.start_ts - 50))
    assert rows_of_parts(client.store) == [parts_row(young.start_ts)]
    young.commit()
    assert {cell.row for cell in client.raw()} == {b"c"}
    with pytest.raises(TransactionClosed, match="comes too late"):
        finished(client, token, b=b"late")


def test_a_dry_run_removes_no_row(client: Client) -> None:
    """It writes nothing at all."""
    begun(client)
    assert len(rows_of_parts(compacted(client, is_dry_run=True).store)) == 1
    assert rows_of_parts(compacted(client).store) == []


def test_an_owner_that_dies_behind_its_commit_leaves_a_row_too(client: Client) -> None:
    """The transaction is committed, whole; whoever did not hear of it cannot write any more."""
    tx, token = begun(client)
    tx.merge(finished(client, token, b=b"1"))
    faulty(client).plans.append(
        on("write.before", StorageUnavailable("died"), nth=2, table=CONTROL_TABLE)
    )
    tx.commit()
    assert rows_of_parts(client.store) == [parts_row(tx.start_ts)]
    assert client.entries() == {}
    with pytest.raises(TransactionClosed, match="comes too late"):
        finished(client, token, c=b"late")
    assert rows_of_parts(compacted(client).store) == []
    assert seen(client) == {"a": b"owner's", "b": b"1"}
    with pytest.raises(TransactionClosed, match="comes too late"):
        finished(client, token, c=b"late")
    assert client.tm.outcome(token) == Committed(tx.commit_ts)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
def test_the_row_stays_until_the_outcome_is_known(client: Client, loss: Loss) -> None:
    """Meanwhile no worker may write, and what follows is done when somebody asks again."""
    tx, token = begun(client)
    tx.merge(finished(client, token, b=b"1"))
    client.oracle.losses.append(loss)
    client.oracle.can_invalidate = False
    client.oracle.losses.append(Loss.REQUEST)
    faulty(client).plans.append(down := on("get.before", StorageUnavailable("down"), table=TABLE))
    with pytest.raises(CommitOutcomeUnknown):
        tx.commit()
    faulty(client).plans.remove(down)
    assert rows_of_parts(client.store) == [parts_row(tx.start_ts)]
    with pytest.raises(TransactionClosed, match="comes too late"):
        finished(client, token, c=b"late")
    client.oracle.can_invalidate = True
    if loss is Loss.REPLY:
        assert client.tm.outcome(tx) == Committed(tx.commit_ts)
        assert seen(client) == {"a": b"owner's", "b": b"1"}
    else:
        assert client.tm.outcome(tx) == Aborted()
        assert client.raw() == []
    assert rows_of_parts(client.store) == []


def test_a_commit_that_is_left_to_others_leaves_its_row_to_the_compactor() -> None:
    """With post_commit="none" whatever follows a commit is."""
    client = Client(post_commit="none")
    tx, token = begun(client)
    tx.merge(finished(client, token, b=b"1"))
    tx.commit()
    assert len(rows_of_parts(client.store)) == 1
    assert rows_of_parts(compacted(client).store) == []
    assert seen(client) == {"a": b"owner's", "b": b"1"}
    assert isinstance(client.tm.outcome(tx.start_ts), Forgotten)


# -- the row itself --------------------------------------------------------------------------------


def test_what_a_gateway_leaves_that_checks_nothing_goes_too() -> None:
    """As Thrift1: a worker that comes late writes its announcement, and no cell."""
    store = MemoryStore()
    tm = TransactionManager(LikeThrift1(store), NaiveOracle(store), post_commit="sync")
    tm.create_table(TABLE, ["cf"])
    tx = tm.begin()
    token = tx.token()
    in_time, late = tm.resume(token), tm.resume(token)
    for worker in (in_time, late):
        worker.table(TABLE).put(b"b", {COLUMN: worker.worker_id.encode()})
    tx.merge(in_time.finish())
    tx.commit()
    with pytest.raises(TransactionClosed, match="comes too late"):
        late.finish()
    assert tm.begin().table(TABLE).row(b"b") == {COLUMN: in_time.worker_id.encode()}
    assert store.get(CONTROL_TABLE, [parts_row(tx.start_ts)]) != [[]], "the announcement"
    forget_parts(store, tx.start_ts)
    assert store.get(CONTROL_TABLE, [parts_row(tx.start_ts)]) == [[]]


def test_what_a_gateway_repeats_late_does_not_open_a_row_again() -> None:
    """The first copy of a put can be carried out behind what came after the second one."""
    store = MemoryStore()
    NaiveOracle(store)
    row = PartsRow(store, START)
    row.open()
    row.close()
    row.open()
    with pytest.raises(TransactionClosed):
        WorkerRow(store, START, "ann").send(Flush(101, None, []), {})


def test_rows_go_up_to_the_low_watermark_and_no_further() -> None:
    """At the watermark a transaction can no longer commit; above it one may be at work."""
    store = MemoryStore()
    NaiveOracle(store)
    rows = {start_ts: PartsRow(store, Timestamp(start_ts)) for start_ts in (50, 100, 150)}
    for row in rows.values():
        row.open()
    forget_parts(store, 100)
    left = [start_ts for start_ts in rows if store.get(CONTROL_TABLE, [parts_row(start_ts)])[0]]
    assert left == [150]


def test_a_row_tells_what_its_workers_announced() -> None:
    """Several of them, with several flushes each, and rows of any bytes."""
    store = LikeThrift2()
    NaiveOracle(store)
    row = PartsRow(store, START)
    row.open()
    stretch = Stretch("t", [b"f\xff"], b"\x00", b"\xff" * 9)
    first = Flush(101, "task/1", [stretch])
    last = Flush(101, "task/1", [], digest="d")
    ann, bob = (WorkerRow(store, START, worker_id) for worker_id in ("ann", "bob"))
    ann.send(first, {})
    ann.send(last, {})
    bob.send(Flush(101, None, [stretch]), {})
    found = row.read()
    assert [one.worker_id for one in found] == ["ann", "bob"]
    assert [(one.task, one.digest, one.version) for one in found] == [
        ("task/1", "d", 101),
        (None, None, 101),
    ]
    assert list(found[0].stretches()) == [stretch]
    assert all(one.is_acknowledged for one in found)
    assert not Registration("cat", [first]).is_acknowledged


def test_the_keys_of_a_stretch_are_both_in_its_range() -> None:
    """The last row of a flush is one of its rows."""
    key_range = Stretch("t", [b"f"], b"a", b"b").key_range
    assert [key_range.contains(key) for key in (b"a", b"b", b"b\x00")] == [True, True, False]
