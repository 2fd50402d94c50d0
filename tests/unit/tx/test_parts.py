"""Parts that nobody merged: who is answered for, whose cells go, and what a commit says of them."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest

from omidpy.base.cells import is_shadow_qualifier
from omidpy.errors import (
    StorageUnavailable,
    TransactionAborted,
    TransactionClosed,
    UsageError,
    WriteConflict,
)
from omidpy.facts.registration import parts_row
from omidpy.model import Aborted, Committed
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx.parts import worker as worker_module
from omidpy.tx.parts.status import PartStatus, RegisteredPart
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.buffer import WriteBuffer
from tests.machines.clients import TABLE, Client
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.workers import (
    COLUMN,
    begun,
    compacted,
    dying,
    finished,
    flushed,
    interrupted,
    put,
    rows_of_parts,
    seen,
)


@pytest.fixture(params=[MemoryStore, LikeThrift2], ids=["one change for all", "row by row"])
def client(request: pytest.FixtureRequest) -> Client:
    """Return the owner's manager."""
    return Client(FaultyStore(request.param()))


@pytest.fixture
def row_by_row() -> Client:
    """Return one whose workers announce a flush, then send it."""
    return Client(FaultyStore(LikeThrift2()))


# -- a part that is missing ------------------------------------------------------------------------


def test_a_part_that_nobody_merged_aborts_the_commit(client: Client) -> None:
    """Its cells would be visible until the entry goes, and then gone; so all of it goes now."""
    tx, token = begun(client)
    tx.merge(finished(client, token, b=b"merged"))
    lost = flushed(client, token, task="load 7", c=b"lost")
    with pytest.raises(TransactionAborted, match=r"tx\.merge.*tx\.discard") as caught:
        tx.commit()
    assert str(caught.value).startswith(f"transaction {tx.start_ts} was rolled back: the part of")
    assert f"worker {lost.worker_id} of task 'load 7'" in str(caught.value)
    assert not caught.value.retryable
    assert tx.status == "rolled_back"
    assert client.raw() == []
    assert rows_of_parts(client.store) == []
    assert "commit" not in client.oracle.asked
    assert client.tm.outcome(token) == Aborted()


def test_a_worker_that_finished_is_missed_like_one_that_died(client: Client) -> None:
    """Its part was lost on the way to the owner."""
    tx, token = begun(client)
    finished(client, token, b=b"1")
    with pytest.raises(TransactionAborted, match="neither merged nor discarded"):
        tx.commit()
    assert seen(client) == {}


def test_every_worker_that_is_missing_is_named(client: Client) -> None:
    """Whoever looks for them looks once."""
    tx, token = begun(client)
    lost = [flushed(client, token, b=b"lost"), flushed(client, token, c=b"lost")]
    with pytest.raises(TransactionAborted) as caught:
        tx.commit()
    assert all(worker.worker_id in str(caught.value) for worker in lost)


def test_a_worker_that_wrote_nothing_is_not_missed(client: Client) -> None:
    """Nothing of it could be seen; and its part is empty."""
    tx, token = begun(client)
    client.tm.resume(token, task="idle")
    client.tm.resume(token).finish()
    tx.commit()
    assert tx.commit_ts is not None


def test_an_owner_that_wrote_nothing_answers_for_its_workers_too(client: Client) -> None:
    """Where it merges nothing there is nothing to commit, and the oracle is not asked."""
    tx = client.tm.begin()
    flushed(client, tx.token(), b=b"lost")
    with pytest.raises(TransactionAborted, match="neither merged nor discarded"):
        tx.commit()
    assert client.raw() == []


def test_a_commit_of_nothing_leaves_no_row(client: Client) -> None:
    """A token that nobody used costs nothing later."""
    tx = client.tm.begin()
    token = tx.token()
    assert rows_of_parts(client.store) == [parts_row(tx.start_ts)]
    tx.commit()
    assert tx.commit_ts is None
    assert rows_of_parts(client.store) == []
    with pytest.raises(TransactionClosed, match="comes too late"):
        finished(client, token, b=b"late")


# -- workers that come late ------------------------------------------------------------------------


@pytest.mark.parametrize("end", [Transaction.commit, Transaction.rollback])
def test_a_worker_that_comes_late_writes_nothing(
    client: Client, end: Callable[[Transaction], None]
) -> None:
    """Whether it starts late or had begun; and whatever has become of the row since."""
    tx, token = begun(client)
    begun_before = client.tm.resume(token)
    put(begun_before, b=b"late")
    end(tx)
    assert rows_of_parts(client.store) == []
    cells = client.raw()
    with pytest.raises(TransactionClosed, match=f"{tx.start_ts} has begun to commit it") as caught:
        begun_before.finish()
    assert begun_before.worker_id in str(caught.value)
    with pytest.raises(TransactionClosed, match="comes too late"):
        flushed(client, token, b=b"late")
    assert client.raw() == cells


def test_a_worker_that_is_too_slow_hears_of_it(row_by_row: Client) -> None:
    """It flushed while the owner committed without it."""
    tx, token = begun(row_by_row)
    worker = row_by_row.tm.resume(token)
    put(worker, b=b"slow")
    tx.discard(worker.worker_id)

    def commit() -> None:
        with pytest.raises(TransactionAborted, match="may still arrive"):
            tx.commit()

    assert isinstance(row_by_row.store, FaultyStore)
    row_by_row.store.plans.append(on("write.before", commit, nth=1, table=TABLE))
    with pytest.raises(TransactionClosed, match="its last flush was under way"):
        worker.finish()
    assert seen(row_by_row) == {}


# -- workers that are given up ---------------------------------------------------------------------


def test_a_discarded_worker_leaves_nothing(client: Client) -> None:
    """Neither before the entry goes nor afterwards; and a compaction finds nothing to forbid."""
    tx, token = begun(client)
    tx.merge(finished(client, token, b=b"merged"))
    dead = flushed(client, token, c=b"lost", d=b"lost")
    tx.discard(dead.worker_id)
    tx.discard(dead.worker_id)
    tx.commit()
    assert {cell.row for cell in client.raw()} == {b"a", b"b"}
    assert seen(client) == {"a": b"owner's", "b": b"merged"}
    assert rows_of_parts(client.store) == []
    compacted(client)
    assert seen(client) == {"a": b"owner's", "b": b"merged"}
    assert client.tm.outcome(token) == Committed(tx.commit_ts)
    assert client.tm.outcome(tx.start_ts) != Aborted()


def test_cells_of_a_merged_part_stay_where_a_discarded_worker_wrote_them_too(
    client: Client,
) -> None:
    """I8: the worker that took over wrote the same rows, at the same version."""
    tx, token = begun(client)
    dead = flushed(client, token, b=b"1", c=b"2", d=b"lost")
    tx.merge(finished(client, token, b=b"1", c=b"2"))
    tx.discard(dead.worker_id)
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1", "c": b"2"}
    assert {cell.row for cell in client.raw()} == {b"a", b"b", b"c"}


def test_a_discarded_worker_that_overwrote_merged_cells_aborts_the_commit(client: Client) -> None:
    """What the worker wrote that was merged is not in the store any more."""
    other = b"discarded"
    for written in ({"c": other}, {"a": other, "c": other}, {"c": other, "e": other}):
        tx, token = begun(client)
        part = finished(client, token, b=b"merged", c=b"merged", d=b"merged")
        slow = client.tm.resume(token)
        with mock.patch.object(worker_module, "FLUSH_LIMIT_BYTES", 1):
            put(slow, **written)
        tx.merge(part)
        tx.discard(slow.worker_id)
        with pytest.raises(TransactionAborted, match="have other values than it wrote"):
            tx.commit()
        assert client.raw() == []


def test_the_values_of_the_worker_that_came_last_are_committed(client: Client) -> None:
    """The one that was given up wrote before."""
    tx, token = begun(client)
    dead = flushed(client, token, b=b"discarded")
    tx.merge(finished(client, token, b=b"merged"))
    tx.discard(dead.worker_id)
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"merged"}


def test_a_worker_that_never_wrote_can_be_discarded(client: Client) -> None:
    """Whoever gives it up cannot know; and if it comes to write, it is discarded all the same."""
    tx, token = begun(client)
    worker = client.tm.resume(token)
    tx.discard(worker)
    put(worker, b=b"1")
    worker.finish()
    tx.commit()
    assert seen(client) == {"a": b"owner's"}


def test_a_worker_is_merged_or_discarded(client: Client) -> None:
    """Not both, in whatever order."""
    tx, token = begun(client)
    for is_merged_first in (True, False):
        worker = client.tm.resume(token)
        put(worker, **{"b" if is_merged_first else "c": b"1"})
        part = worker.finish()
        if is_merged_first:
            tx.merge(part)
            with pytest.raises(UsageError, match="merged already and cannot be discarded"):
                tx.discard(worker.worker_id)
        else:
            tx.discard(worker.worker_id)
            with pytest.raises(UsageError, match="was discarded; its part cannot be merged"):
                tx.merge(part)
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1"}


def test_what_cannot_be_discarded_is_refused(client: Client) -> None:
    """Bytes, a worker, and any of a transaction without workers."""
    tx = client.tm.begin()
    with pytest.raises(UsageError, match=r"tx\.token\(\) first"):
        tx.discard("worker")
    worker = client.tm.resume(tx.token())
    with pytest.raises(TypeError, match=r"worker\.worker_id"):
        tx.discard(worker.worker_id.encode())  # type: ignore[arg-type]  # the mistake
    tx.commit()
    with pytest.raises(TransactionClosed):
        tx.discard(worker.worker_id)


def test_an_interrupted_merge_may_be_repeated_and_not_discarded(client: Client) -> None:
    """Some of its cells count as the transaction's: with a discard these would stay."""
    tx, token = begun(client)
    worker = client.tm.resume(token)
    put(worker, b=b"1", c=b"2")
    part = worker.finish()

    def merge_and_stop(*arguments: object, **options: object) -> None:
        true(*arguments, **options)  # type: ignore[arg-type]  # passed on
        raise KeyboardInterrupt

    true = WriteBuffer.merge
    with mock.patch.object(WriteBuffer, "merge", merge_and_stop), pytest.raises(KeyboardInterrupt):
        tx.merge(part)
    with pytest.raises(UsageError, match="cannot be discarded"):
        tx.discard(worker.worker_id)
    assert [part.status for part in tx.parts()] == [PartStatus.MISSING]
    tx.merge(part)
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1", "c": b"2"}


def test_a_table_that_was_dropped_meanwhile_holds_nothing_to_remove(client: Client) -> None:
    """What the worker wrote is gone with it."""
    client.tm.create_table("gone", ["cf"])
    tx, token = begun(client)
    worker = client.tm.resume(token)
    worker.table("gone").put(b"b", {COLUMN: b"1"})
    worker.finish()
    client.tm.drop_table("gone")
    tx.discard(worker.worker_id)
    tx.commit()
    assert seen(client) == {"a": b"owner's"}


# -- attempts of one task --------------------------------------------------------------------------


def test_the_attempt_that_ended_covers_one_that_died(client: Client) -> None:
    """It had written some of the same cells, which stay."""
    tx, token = begun(client)
    flushed(client, token, task="t", b=b"1")
    tx.merge(finished(client, token, task="t", b=b"1", c=b"2"))
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1", "c": b"2"}
    compacted(client)
    assert client.tm.outcome(token) == Committed(tx.commit_ts)
    assert client.tm.outcome(tx.start_ts) != Aborted()


def test_what_only_the_attempt_wrote_that_died_is_removed(client: Client) -> None:
    """It was an attempt with another token, or with another input."""
    tx, token = begun(client)
    flushed(client, token, task="t", b=b"1", e=b"other input")
    put(tx, z=b"owner's")
    later = tx.token()
    assert later != token
    tx.merge(finished(client, later, task="t", b=b"1", c=b"2"))
    tx.commit()
    assert {cell.row for cell in client.raw()} == {b"a", b"b", b"c", b"z"}
    assert len([cell for cell in client.raw() if cell.row == b"b"]) == 2


def test_attempts_with_equal_digests_count_once(client: Client) -> None:
    """Both were merged, or only one of them; with and without the name of a task."""
    tx, token = begun(client)
    for row, task in (("b", "t"), ("c", None)):
        for _ in range(2):
            tx.merge(finished(client, token, task=task, **{row: b"1"}))
        finished(client, token, task=task, **{row: b"1"})
    flushed(client, token, b=b"1").finish()
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1", "c": b"1"}


def test_attempts_with_equal_digests_cover_their_cells_at_every_version(client: Client) -> None:
    """Each token has a version of its own, and no cell may stay without a shadow cell."""
    tx, token = begun(client)
    tx.merge(finished(client, token, task="t", b=b"1"))
    put(tx, z=b"owner's")
    tx.merge(finished(client, tx.token(), task="t", b=b"1"))
    tx.commit()
    versions = {cell.version for cell in client.raw() if not is_shadow_qualifier(cell.qualifier)}
    shadows = {cell.version for cell in client.raw() if is_shadow_qualifier(cell.qualifier)}
    assert versions == shadows


def test_an_attempt_that_is_checked_for_conflicts_makes_the_other_one_checked(
    client: Client,
) -> None:
    """Of two that differ in that the safe one counts."""
    tx, token = begun(client)
    for is_free in (True, False):
        worker = client.tm.resume(token, task="t")
        worker.table(TABLE, conflict_free=is_free).put(b"b", {COLUMN: b"1"})
        tx.merge(worker.finish())
    client.write(b"b", b"first")
    with pytest.raises(WriteConflict):
        tx.commit()


def test_an_attempt_that_died_with_other_values_is_noticed(client: Client) -> None:
    """It wrote last, and its task reads a clock."""
    tx, token = begun(client)
    part = finished(client, token, task="t", b=b"12:00", c=b"12:00")
    flushed(client, token, task="t", b=b"12:01")
    tx.merge(part)
    with pytest.raises(TransactionAborted, match="materialise their input"):
        tx.commit()
    assert client.raw() == []


def test_an_attempt_whose_write_may_still_arrive_is_covered(row_by_row: Client) -> None:
    """It writes the same cells once more."""
    tx, token = begun(row_by_row)
    interrupted(row_by_row, token, task="t", b=b"1", c=b"2")
    tx.merge(finished(row_by_row, token, task="t", b=b"1", c=b"2"))
    tx.commit()
    assert seen(row_by_row) == {"a": b"owner's", "b": b"1", "c": b"2"}


def test_an_attempt_whose_write_may_still_arrive_with_other_cells_aborts_the_commit(
    row_by_row: Client,
) -> None:
    """Its digest tells."""
    tx, token = begun(row_by_row)
    interrupted(row_by_row, token, task="t", b=b"other")
    tx.merge(finished(row_by_row, token, task="t", b=b"1"))
    with pytest.raises(TransactionAborted, match="another digest"):
        tx.commit()


def test_an_attempt_whose_write_may_still_arrive_in_another_row_aborts_the_commit(
    row_by_row: Client,
) -> None:
    """It died before its last flush and gave no digest, but said where it was about to write."""
    for row, is_covered in ((b"b", True), (b"c", True), (b"bb", False), (b"d", False)):
        tx, token = begun(row_by_row)
        worker = row_by_row.tm.resume(token, task="t")
        with dying(row_by_row), mock.patch.object(worker_module, "FLUSH_LIMIT_BYTES", 1):
            worker.table(TABLE).put(row, {COLUMN: b"1"})
        tx.merge(finished(row_by_row, token, task="t", b=b"1", c=b"1"))
        if is_covered:
            tx.commit()
        else:
            with pytest.raises(TransactionAborted, match=f"wrote row {row!r} of table 't'"):
                tx.commit()


def test_an_attempt_at_another_version_whose_write_may_still_arrive_aborts_the_commit(
    row_by_row: Client,
) -> None:
    """The cells that arrive are not the merged ones, so that nothing would make them visible."""
    tx, token = begun(row_by_row)
    interrupted(row_by_row, token, task="t", b=b"1")
    put(tx, z=b"owner's")
    tx.merge(finished(row_by_row, tx.token(), task="t", b=b"1"))
    with pytest.raises(TransactionAborted, match="in the middle of a write"):
        tx.commit()


def test_a_write_that_was_repeated_may_still_arrive(row_by_row: Client) -> None:
    """The worker has finished, and what it sent the first time can be anywhere."""
    tx, token = begun(row_by_row)
    worker = interrupted(row_by_row, token, task=None, b=b"1")
    worker.finish()
    tx.discard(worker.worker_id)
    with pytest.raises(TransactionAborted, match="in the middle of a write"):
        tx.commit()


def test_a_worker_in_the_middle_of_a_write_cannot_be_discarded(row_by_row: Client) -> None:
    """The write may arrive when the transaction has long committed."""
    tx, token = begun(row_by_row)
    worker = interrupted(row_by_row, token, task=None, b=b"1")
    tx.discard(worker.worker_id)
    with pytest.raises(TransactionAborted, match="in the middle of a write") as caught:
        tx.commit()
    assert worker.worker_id in str(caught.value)
    assert caught.value.retryable


def test_a_worker_in_the_middle_of_a_write_on_a_file_can_be_discarded() -> None:
    """There the announcement is in the change that it announces."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    tx, token = begun(client)
    workers = []
    for point in ("write_guarded.before", "write_guarded.after"):
        workers.append(worker := client.tm.resume(token))
        put(worker, b=b"1")
        client.store.plans.append(on(point, StorageUnavailable("died"), nth=1, table=TABLE))
        with pytest.raises(StorageUnavailable):
            worker.finish()
    for worker in workers:
        tx.discard(worker.worker_id)
    tx.commit()
    assert seen(client) == {"a": b"owner's"}


def test_an_announcement_that_failed_is_made_again(row_by_row: Client) -> None:
    """Nothing was sent under it, so that the worker can be discarded when it has finished."""
    tx, token = begun(row_by_row)
    worker = row_by_row.tm.resume(token)
    put(worker, b=b"1")
    assert isinstance(row_by_row.store, FaultyStore)
    lost = StorageUnavailable("the answer was lost")
    row_by_row.store.plans.append(on("check_and_mutate.after", lost, nth=1))
    with pytest.raises(StorageUnavailable):
        worker.finish()
    put(worker, c=b"2")
    worker.finish()
    tx.discard(worker.worker_id)
    tx.commit()
    assert seen(row_by_row) == {"a": b"owner's"}


# -- what the owner can ask ------------------------------------------------------------------------


def test_the_owner_knows_its_workers(client: Client) -> None:
    """Each with its task and what the commit would do with it."""
    tx, token = begun(client)
    assert tx.parts() == []
    merged = client.tm.resume(token, task="t")
    put(merged, b=b"1")
    tx.merge(merged.finish())
    attempt = flushed(client, token, task="t", b=b"1")
    lost = flushed(client, token, task="u", c=b"2")
    dead = flushed(client, token, d=b"3")
    tx.discard(dead.worker_id)
    assert sorted(tx.parts(), key=lambda one: one.status) == [
        RegisteredPart(attempt.worker_id, "t", PartStatus.COVERED),
        RegisteredPart(dead.worker_id, None, PartStatus.DISCARDED),
        RegisteredPart(merged.worker_id, "t", PartStatus.MERGED),
        RegisteredPart(lost.worker_id, "u", PartStatus.MISSING),
    ]
    for one in tx.parts():
        if one.status == "missing":
            tx.discard(one.worker_id)
    tx.commit()
    assert seen(client) == {"a": b"owner's", "b": b"1"}
    with pytest.raises(TransactionClosed):
        tx.parts()


def test_a_transaction_without_a_token_has_no_parts(client: Client) -> None:
    """And asks nobody."""
    assert client.tm.begin().parts() == []
