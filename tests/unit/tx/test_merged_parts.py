"""A merged part is what its worker registered, and an undone savepoint takes its merges back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from omidpy.base.tables import CONTROL_FAMILY, CONTROL_TABLE, FIXED_VERSION
from omidpy.errors import SnapshotTooOld, TransactionAborted, UsageError, WriteConflict
from omidpy.facts.registration import forget_parts, parts_row
from omidpy.model import Committed
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.workers import COLUMN, begun, finished, put, seen


@pytest.fixture(params=[MemoryStore, LikeThrift2], ids=["one change for all", "row by row"])
def client(request: pytest.FixtureRequest) -> Client:
    """Return the owner's manager."""
    return Client(FaultyStore(request.param()))


def changed(part: bytes, **fields: Any) -> bytes:
    """Return a part with other fields."""
    return json.dumps(json.loads(part) | fields).encode()


def mangle(client: Client, start_ts: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what the only worker of a transaction has registered."""
    (cells,) = client.store.get(CONTROL_TABLE, (parts_row(start_ts),), max_versions=1)
    (cell,) = [cell for cell in cells if cell.qualifier.startswith(b"w/")]
    flush = json.loads(cell.value)
    change(flush)
    value = json.dumps(flush).encode()
    mutation = RowMutation(
        cell.row, puts=(Put(CONTROL_FAMILY, cell.qualifier, FIXED_VERSION, value),)
    )
    client.store.write({CONTROL_TABLE: [mutation]})


# -- what a part says ------------------------------------------------------------------------------


def _without_a_cell(part: bytes) -> bytes:
    ((table, columns, rows),) = json.loads(part)["cells"]
    return changed(part, cells=[[table, columns, rows[:1]]])


def _with_another_cell(part: bytes) -> bytes:
    ((table, columns, rows),) = json.loads(part)["cells"]
    return changed(part, cells=[[table, columns, ["eg==", *rows[1:]]]])


def _at_another_version(part: bytes) -> bytes:
    return changed(part, version=json.loads(part)["version"] + 1)


def _unchecked(part: bytes) -> bytes:
    return changed(part, conflict_free=json.loads(part)["cells"])


def _of_another_task(part: bytes) -> bytes:
    return changed(part, task="another")


def _of_nobody(part: bytes) -> bytes:
    return changed(part, worker_id="nobody")


def _empty(part: bytes) -> bytes:
    return changed(part, cells=[])


def _empty_of_nobody(part: bytes) -> bytes:
    """Return one of a worker that has registered nothing, with the digest of another's writes."""
    return changed(part, worker_id="nobody", cells=[])


@pytest.mark.parametrize(
    "falsified",
    [
        _without_a_cell,
        _with_another_cell,
        _at_another_version,
        _unchecked,
        _of_another_task,
        _of_nobody,
        _empty,
        _empty_of_nobody,
    ],
)
def test_a_part_that_is_not_the_registered_one_is_refused(
    client: Client, falsified: Callable[[bytes], bytes]
) -> None:
    """It was believed: what it named became visible, and what it left out was lost."""
    tx, token = begun(client)
    part = finished(client, token, task="load", b=b"1", c=b"2")
    with pytest.raises(UsageError, match=r"not what was written.*pass what finish\(\) returned"):
        tx.merge(falsified(part))
    tx.merge(part)
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1", "c": b"2"}


def test_a_part_cannot_name_the_version_of_another_transaction(client: Client) -> None:
    """A commit made that one's tentative cells visible, and then it was rolled back."""
    other = client.tm.begin()
    put(other, b=b"tentative")
    other.flush()
    tx, token = begun(client)
    part = finished(client, token, b=b"1")
    with pytest.raises(UsageError, match=f"belongs to transaction {other.start_ts}"):
        tx.merge(changed(part, version=other.start_ts))
    tx.merge(part)
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1"}
    other.rollback()
    assert seen(client) == {"a": b"owner's", "b": b"1"}


def test_a_token_cannot_name_the_version_of_another_transaction(client: Client) -> None:
    """A worker would overwrite that one's cells; and its cell would be no witness."""
    other = client.tm.begin()
    tx, token = begun(client)
    names = json.loads(token)
    with pytest.raises(UsageError, match=f"{tx.start_ts} names the version {other.start_ts}"):
        client.tm.resume(changed(token, version=other.start_ts))
    witness = names["witness"] | {"version": other.start_ts}
    with pytest.raises(UsageError, match=f"belongs to transaction {other.start_ts}"):
        client.tm.outcome(changed(token, witness=witness))


@pytest.mark.parametrize("end", [Transaction.commit, Transaction.rollback])
def test_what_is_registered_at_a_version_of_another_transaction_is_left_alone(
    client: Client, end: Callable[[Transaction], None]
) -> None:
    """The owner would remove that one's cells for those of a worker that it gives up."""
    other = client.tm.begin()
    put(other, b=b"theirs")
    other.flush()
    tx, token = begun(client)
    worker = client.tm.resume(token)
    put(worker, b=b"1")
    worker.finish()
    tx.discard(worker)
    mangle(client, tx.start_ts, lambda flush: flush.update(version=other.start_ts))
    if end is Transaction.commit:
        with pytest.raises(TransactionAborted, match=f"none of transaction {tx.start_ts}"):
            tx.commit()
    else:
        tx.rollback()
    other.commit()
    assert seen(client) == {"b": b"theirs"}


def test_what_is_registered_is_compared_again_before_the_commit(client: Client) -> None:
    """Between the merge and the commit others have had the row."""
    tx, token = begun(client)
    tx.merge(finished(client, token, b=b"1"))
    mangle(client, tx.start_ts, lambda flush: flush.update(part="another"))
    with pytest.raises(TransactionAborted, match="a merged part is not what was written"):
        tx.commit()
    assert seen(client) == {}


@pytest.mark.parametrize("is_merged", [True, False], ids=["merged", "not merged"])
def test_registrations_that_a_compaction_forgot_are_told_as_a_snapshot_too_old(
    client: Client,
    is_merged: bool,  # noqa: FBT001 - a parameter
) -> None:
    """It said that the part was another, and not to try again, although nothing was wrong."""
    tx, token = begun(client)
    part = finished(client, token, b=b"1")
    if is_merged:
        tx.merge(part)
    forget_parts(client.store, client.naive.raise_low_watermark())
    with pytest.raises(SnapshotTooOld, match="can no longer commit") as refused:
        tx.commit() if is_merged else tx.merge(part)
    assert refused.value.retryable
    assert seen(client) == {}


# -- in a savepoint --------------------------------------------------------------------------------


def undo(tx: Transaction, *parts: bytes) -> None:
    """Merge parts in a savepoint that is undone."""

    def merge() -> None:
        with tx.savepoint():
            for part in parts:
                tx.merge(part)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        merge()


def test_a_merge_that_was_undone_is_not_committed(client: Client) -> None:
    """It was, whole; now its worker is one that nobody answered for."""
    tx, token = begun(client)
    undo(tx, finished(client, token, b=b"undone"))
    with pytest.raises(TransactionAborted, match="neither merged nor discarded"):
        tx.commit()
    assert client.raw() == []


def test_a_worker_whose_merge_was_undone_can_be_discarded(client: Client) -> None:
    """Then the rest commits without it."""
    tx, token = begun(client)
    worker = client.tm.resume(token)
    put(worker, b=b"undone")
    undo(tx, worker.finish())
    tx.discard(worker)
    tx.commit()
    assert seen(client) == {"a": b"owner's"}
    assert [row for row, *_ in client.raw_data()] == [b"a"]


def test_a_discard_that_was_undone_is_to_be_made_again(client: Client) -> None:
    """Its worker's writes were removed, and the rest committed, as if they had never been asked."""
    tx, token = begun(client)
    worker, other = client.tm.resume(token), client.tm.resume(token)
    put(worker, b=b"1")
    put(other, c=b"2")
    part = worker.finish()
    other.finish()
    tx.discard(other)

    def discard_and_fail() -> None:
        tx.discard(other)  # again: the first one stays
        with tx.savepoint():
            tx.discard(worker)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tx.savepoint():
        discard_and_fail()
    assert {one.worker_id: str(one.status) for one in tx.parts()} == {
        worker.worker_id: "missing",
        other.worker_id: "discarded",
    }
    tx.merge(part)
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1"}


def test_a_merge_that_was_undone_can_be_made_again(client: Client) -> None:
    """Or that of another attempt of its task, with another digest."""
    tx, token = begun(client)
    again = finished(client, token, task="again", b=b"1")
    undo(tx, again, finished(client, token, task="other", c=b"2"))
    tx.merge(again)
    tx.merge(finished(client, token, task="other", c=b"3"))
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1", "c": b"3"}


def test_a_merge_in_a_savepoint_that_is_kept_is_committed(client: Client) -> None:
    """Also where an inner one of its savepoints was undone."""
    tx, token = begun(client)
    with tx.savepoint():
        tx.merge(finished(client, token, b=b"1"))
        with tx.savepoint():
            tx.merge(finished(client, token, c=b"2"))
        undo(tx, finished(client, token, task="load", d=b"undone"))
        tx.merge(finished(client, token, task="load", e=b"3"))
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1", "c": b"2", "e": b"3"}


def test_an_outer_savepoint_takes_the_merges_of_inner_ones_back(client: Client) -> None:
    """They were kept there, and then undone with the rest."""
    tx, token = begun(client)

    def merge_and_fail() -> None:
        with tx.savepoint():
            tx.merge(finished(client, token, b=b"undone"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tx.savepoint():
        merge_and_fail()
    with pytest.raises(TransactionAborted, match="neither merged nor discarded"):
        tx.commit()


def test_an_attempt_that_was_merged_before_stays_merged(client: Client) -> None:
    """Undone was only another one of the same digest."""
    tx, token = begun(client)
    tx.merge(finished(client, token, task="load", b=b"1"))
    undo(tx, finished(client, token, task="load", b=b"1"))
    with pytest.raises(UsageError, match="different digest"):
        tx.merge(finished(client, token, task="load", b=b"2"))
    assert tx.status == "running"


def test_what_an_undone_part_wrote_unchecked_is_checked(client: Client) -> None:
    """The owner writes the cell itself, and asked nobody to let it pass."""
    tx, token = begun(client)
    worker = client.tm.resume(token)
    worker.table(TABLE, conflict_free=True).put(b"b", {COLUMN: b"undone"})
    undo(tx, worker.finish())
    tx.discard(worker)
    put(tx, b=b"mine")
    client.write(b"b")
    with pytest.raises(WriteConflict):
        tx.commit()


def test_a_commit_whose_merge_was_undone_is_what_the_oracle_knows(client: Client) -> None:
    """No cell of the undone part is checked, and none is healed."""
    tx, token = begun(client)
    worker = client.tm.resume(token)
    put(worker, b=b"undone")
    undo(tx, worker.finish())
    tx.discard(worker)
    client.write(b"b", b"theirs")
    tx.commit()
    assert client.tm.outcome(tx) == Committed(tx.commit_ts)
    assert seen(client) == {"a": b"owner's", "b": b"theirs"}
