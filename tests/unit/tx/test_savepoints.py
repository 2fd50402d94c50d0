"""A part of a transaction that is undone alone, and what that costs once it was flushed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import pytest

from omidpy.errors import (
    StorageUnavailable,
    TransactionAborted,
    TransactionClosed,
    UsageError,
)
from omidpy.storage.base import Capabilities
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx import transaction as transaction_module
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.buffer import MAX_CHECKPOINTS
from omidpy.tx.writes.savepoint import Savepoint
from tests.machines.clients import TABLE, Client
from tests.machines.interrupts.lines import Interrupt, Interrupter


class Undo(Exception):
    """Leaves a savepoint."""


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


@pytest.fixture
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every write go past the limit at which the buffer is flushed."""
    monkeypatch.setattr(transaction_module, "FLUSH_LIMIT_BYTES", 1)


def put(tx: Transaction, row: bytes, value: bytes) -> None:
    """Write the one column of a row."""
    tx.table(TABLE).put(row, {b"cf:q": value})


@contextmanager
def undone(tx: Transaction) -> Iterator[None]:
    """Run the block in a savepoint, and undo it."""
    with pytest.raises(Undo), tx.savepoint():  # noqa: PT012 - the block is the test's own
        yield
        raise Undo


def rows(tx: Transaction) -> dict[bytes, bytes]:
    """Return row -> value as the transaction sees the table."""
    return {key: data[b"cf:q"] for key, data in tx.table(TABLE).scan()}


def committed(client: Client) -> dict[bytes, bytes]:
    """Return row -> value as everybody sees the table."""
    with client.tm.begin() as tx:
        return rows(tx)


# -- what is undone and what stays -----------------------------------------------------------------


def test_an_exception_undoes_the_inner_writes_and_goes_on(client: Client) -> None:
    """The outer writes commit without them."""
    with client.tm.begin() as tx:
        put(tx, b"a", b"outer")
        with undone(tx):
            put(tx, b"a", b"inner")
            put(tx, b"b", b"inner")
            assert rows(tx) == {b"a": b"inner", b"b": b"inner"}
        assert rows(tx) == {b"a": b"outer"}
    assert committed(client) == {b"a": b"outer"}


def test_a_clean_end_keeps_the_inner_writes(client: Client) -> None:
    """A savepoint is not a transaction: nothing is committed by it."""
    with client.tm.begin() as tx:
        put(tx, b"a", b"outer")
        with tx.savepoint():
            put(tx, b"a", b"inner")
            put(tx, b"b", b"inner")
        assert committed(client) == {}
    assert committed(client) == {b"a": b"inner", b"b": b"inner"}


def test_deletes_are_undone_too(client: Client) -> None:
    """A tombstone is a write like any other."""
    client.write(b"a", b"old")
    with client.tm.begin() as tx:
        with undone(tx):
            tx.table(TABLE).delete(b"a")
            assert rows(tx) == {}
        assert rows(tx) == {b"a": b"old"}
    assert committed(client) == {b"a": b"old"}


def test_undoing_an_outer_savepoint_undoes_kept_inner_ones(client: Client) -> None:
    """They became part of it."""
    with client.tm.begin() as tx:
        put(tx, b"a", b"0")
        with undone(tx):
            put(tx, b"b", b"1")
            with tx.savepoint():
                put(tx, b"c", b"2")
            with undone(tx):
                put(tx, b"d", b"3")
            assert set(rows(tx)) == {b"a", b"b", b"c"}
        assert rows(tx) == {b"a": b"0"}
    assert committed(client) == {b"a": b"0"}


def test_an_explicit_flush_leaves_an_open_savepoint_buffered(client: Client) -> None:
    """What is not in the store need not be deleted from it."""
    with client.tm.begin() as tx:
        put(tx, b"a", b"outer")
        with undone(tx):
            put(tx, b"b", b"inner")
            tx.flush()
            assert [row for row, *_ in client.raw_data()] == [b"a"]
    assert committed(client) == {b"a": b"outer"}


# -- bounds and misuse -----------------------------------------------------------------------------


def test_the_fiftieth_savepoint_is_refused(client: Client) -> None:
    """Omid's format has room for 49 checkpoints; the transaction goes on without it."""
    with client.tm.begin() as tx:
        put(tx, b"a", b"1")
        for _ in range(MAX_CHECKPOINTS):
            with tx.savepoint():
                pass
        with pytest.raises(UsageError, match="49 checkpoints"), tx.savepoint():
            pytest.fail("the block must not run")
        assert rows(tx) == {b"a": b"1"}
    assert committed(client) == {b"a": b"1"}


def test_a_commit_inside_a_savepoint_is_refused(client: Client) -> None:
    """Half of the block would be committed."""
    tx = client.tm.begin()
    with tx.savepoint():
        with pytest.raises(UsageError, match="open savepoint"):
            tx.commit()
        with pytest.raises(UsageError, match="open savepoint"):
            tx.token()
    tx.commit()


def test_a_rollback_inside_a_savepoint_ends_everything(client: Client) -> None:
    """The savepoint has nothing left to undo, and says nothing."""
    tx = client.tm.begin()
    with tx.savepoint():
        put(tx, b"a", b"1")
        tx.rollback()
    with pytest.raises(TransactionClosed):
        tx.savepoint()
    assert client.raw_data() == []


def test_one_savepoint_is_entered_once(client: Client) -> None:
    """A second entry would undo what the first one kept."""
    with client.tm.begin() as tx:
        savepoint = tx.savepoint()
        with savepoint:
            pass
        with pytest.raises(TransactionClosed, match="twice"), savepoint:
            pytest.fail("the block must not run")


def test_a_read_only_transaction_has_no_savepoints(client: Client) -> None:
    """There is nothing to undo."""
    with (
        client.tm.begin(read_only=True) as tx,
        pytest.raises(UsageError, match="read-only"),
        tx.savepoint(),
    ):
        pytest.fail("the block must not run")


@pytest.mark.usefixtures("small_buffer")
def test_a_savepoint_inherited_across_fork_touches_nothing(client: Client) -> None:
    """The parent's transaction goes on with the cells that the child would delete."""
    with client.tm.begin() as tx, tx.savepoint():
        put(tx, b"a", b"1")
        if (child := os.fork()) == 0:
            is_left_alone = False
            try:
                before = client.raw()
                Savepoint.__exit__(inherited(tx), Undo, Undo(), None)
                is_left_alone = bool(before) and client.raw() == before
            finally:
                os._exit(0 if is_left_alone else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert committed(client) == {b"a": b"1"}


def inherited(tx: Transaction) -> Savepoint:
    """Return the open savepoint of a transaction."""
    savepoint = Savepoint(tx, tx._buffer, tx._session.store, tx._callbacks)
    savepoint._is_entered = True
    return savepoint


# -- flushed savepoints ----------------------------------------------------------------------------


@pytest.mark.usefixtures("small_buffer")
def test_flushed_cells_of_an_undone_savepoint_are_deleted_exactly(client: Client) -> None:
    """Nothing else of the column goes: not the outer value, not a committed one."""
    client.write(b"a", b"old")
    with client.tm.begin() as tx:
        put(tx, b"a", b"outer")
        before = client.raw_data()
        with undone(tx):
            put(tx, b"a", b"inner")
            put(tx, b"b", b"inner")
            assert len(client.raw_data()) == len(before) + 2
        assert client.raw_data() == before
        assert rows(tx) == {b"a": b"outer"}
    assert committed(client) == {b"a": b"outer"}


@pytest.mark.usefixtures("small_buffer")
def test_nothing_is_written_again_at_a_deleted_version(client: Client) -> None:
    """HBase's delete marker would hide it."""
    tx = client.tm.begin()
    deleted: set[tuple[bytes, int]] = set()
    for _ in range(3):
        with undone(tx):
            put(tx, b"a", b"inner")
            deleted |= {(row, version) for row, _, version, _ in client.raw_data()}
    put(tx, b"a", b"after")
    written = {(row, version) for row, _, version, _ in client.raw_data()}
    assert len(deleted) == 3
    assert not written & deleted
    tx.commit()
    assert committed(client) == {b"a": b"after"}


@pytest.mark.usefixtures("small_buffer")
def test_a_worker_never_writes_at_a_deleted_version(client: Client) -> None:
    """A token hands out a version, and an undone savepoint has spoilt the newest one."""
    tx = client.tm.begin()
    with undone(tx):
        put(tx, b"a", b"inner")
        ((_, _, spoilt, _),) = client.raw_data()
    worker = client.tm.resume(tx.token())
    worker.table(TABLE).put(b"a", {b"cf:q": b"worker's"})
    tx.merge(worker.finish())
    assert all(version > spoilt for _, _, version, _ in client.raw_data())
    tx.commit()
    assert committed(client) == {b"a": b"worker's"}


@pytest.mark.usefixtures("small_buffer")
def test_a_rollback_removes_what_savepoints_flushed(client: Client) -> None:
    """Kept or not, no cell stays."""
    tx = client.tm.begin()
    put(tx, b"a", b"0")
    with tx.savepoint():
        put(tx, b"a", b"1")
        put(tx, b"b", b"1")
    tx.rollback()
    assert client.raw() == []


@pytest.mark.usefixtures("small_buffer")
def test_every_flushed_version_gets_its_shadow_cell(client: Client) -> None:
    """A version without one would outlive its commit entry (I5)."""
    with client.tm.begin() as tx:
        put(tx, b"a", b"0")
        with tx.savepoint():
            put(tx, b"a", b"1")
    assert set(client.raw_shadows()) == {(row, version) for row, _, version, _ in client.raw_data()}
    assert len(client.raw_data()) == 2


@pytest.mark.usefixtures("small_buffer")
@pytest.mark.parametrize("moment", ["write.before", "write.after"])
def test_an_unacknowledged_delete_makes_the_transaction_rollback_only(moment: str) -> None:
    """A commit would make a cell visible that the program took back."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    tx = client.tm.begin()
    put(tx, b"a", b"outer")
    with undone(tx):
        put(tx, b"b", b"inner")
        store.plans.append(on(moment, StorageUnavailable("down"), nth=1, table=TABLE))
    with pytest.raises(TransactionAborted, match=r"savepoint could not be deleted: down") as caught:
        tx.commit()
    assert not caught.value.retryable
    assert client.raw() == []


@pytest.mark.usefixtures("small_buffer")
def test_an_interrupted_delete_makes_the_transaction_rollback_only() -> None:
    """Ctrl-C between two rows leaves it open which of them are gone."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    tx = client.tm.begin()
    savepoint = tx.savepoint()
    savepoint.__enter__()
    put(tx, b"b", b"inner")
    store.plans.append(on("write.before", KeyboardInterrupt(), nth=1, table=TABLE))
    with pytest.raises(KeyboardInterrupt):
        savepoint.__exit__(Undo, Undo(), None)
    with pytest.raises(TransactionAborted, match="not all removed"):
        tx.commit()
    assert client.raw() == []


@pytest.mark.usefixtures("small_buffer")
def test_an_undo_interrupted_at_any_line_leaves_nothing_to_be_committed() -> None:
    """Between two lines the cells counted as gone, and stood in the store."""
    interrupter = Interrupter()
    for number in itertools.count(1):
        client = Client()
        tx = client.tm.begin()
        savepoint = tx.savepoint()
        savepoint.__enter__()
        put(tx, b"b", b"inner")
        undo = partial(savepoint.__exit__, Undo, Undo(), None)
        with suppress(Interrupt):
            interrupter.interrupt(undo, number, Interrupt())
        with suppress(TransactionAborted, UsageError):  # UsageError: it is still open
            tx.commit()
        assert committed(client) == {}, interrupter.where
        if interrupter.where is None:
            break
    assert number > 20


@pytest.mark.usefixtures("small_buffer")
def test_undoing_cells_whose_arrival_is_open_makes_the_transaction_rollback_only() -> None:
    """A put that was lost on its way may arrive after its delete."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    tx = client.tm.begin()
    store.plans.append(on("write.before", StorageUnavailable("timeout"), nth=1, table=TABLE))
    with pytest.raises(StorageUnavailable), tx.savepoint():
        put(tx, b"b", b"inner")
    with pytest.raises(TransactionAborted, match="may still arrive"):
        tx.commit()


class WithoutExactDelete(MemoryStore):
    """A store as Thrift1 is: a timestamped delete takes older versions with it."""

    @property
    def capabilities(self) -> Capabilities:
        """Return what is left."""
        return replace(super().capabilities, exact_delete=False)


@pytest.mark.usefixtures("small_buffer")
def test_without_exact_deletes_a_flushed_savepoint_makes_the_transaction_rollback_only() -> None:
    """The cells stay where they are, so nothing may commit."""
    client = Client(WithoutExactDelete())
    tx = client.tm.begin()
    with undone(tx):
        put(tx, b"b", b"inner")
    with pytest.raises(TransactionAborted, match="cannot delete single versions"):
        tx.commit()
    assert committed(client) == {}
    assert len(client.raw_data()) == 1, "tentative and invisible until the compactor comes"


def test_without_exact_deletes_a_buffered_savepoint_is_undone_as_always() -> None:
    """Nothing of it was sent."""
    client = Client(WithoutExactDelete())
    with client.tm.begin() as tx:
        put(tx, b"a", b"outer")
        with undone(tx):
            put(tx, b"b", b"inner")
    assert committed(client) == {b"a": b"outer"}


def test_the_limit_spares_open_savepoints_where_it_can(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the buffer is the transaction's own; flushing that is enough."""
    with client.tm.begin() as tx:
        put(tx, b"a", b"x" * 1000)
        monkeypatch.setattr(transaction_module, "FLUSH_LIMIT_BYTES", 1000)
        with undone(tx):
            put(tx, b"b", b"inner")
            assert [row for row, *_ in client.raw_data()] == [b"a"]
    assert set(committed(client)) == {b"a"}
