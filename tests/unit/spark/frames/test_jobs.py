"""A frame's write is whole or absent, whoever dies and whatever answer is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from omidpy.codec import INT64
from omidpy.errors import (
    CommitOutcomeUnknown,
    Fenced,
    NoSuchFamily,
    NoSuchTable,
    TransactionAborted,
    TransactionClosed,
    UsageError,
    WriteConflict,
)
from omidpy.model import KeyRange, Undecided
from omidpy.spark.frames import sessions
from omidpy.spark.frames.writes import jobs, several
from omidpy.spark.frames.writes.jobs import Job
from omidpy.tx.frames.shape import Shape
from omidpy.tx.frames.writing import FrameWriter
from omidpy.tx.parts import worker as worker_module
from omidpy.tx.transaction import Transaction
from tests.machines.clients import Loss
from tests.machines.frame_jobs import COLUMNS, JobWorld, batch

COUNTED: Any = {"n": ("cf:n", "counter")}


@pytest.fixture
def world() -> JobWorld:
    """Give a store with a table."""
    return JobWorld()


@pytest.fixture
def flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers send what they write at once."""
    monkeypatch.setattr(worker_module, "FLUSH_LIMIT_BYTES", 0)


def dying(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield some batches, and fail."""
    yield from batches
    raise OSError("the executor is lost")


def test_what_tasks_write_is_visible_at_once(world: JobWorld) -> None:
    """When the job commits, and not before."""
    job = world.begin()
    parts = [jobs.run(job, [batch(row=[b"%d" % task], n=[task])], task) for task in range(3)]
    assert world.seen() == {}
    jobs.commit(job, parts)
    assert world.seen() == {b"%d" % task: {b"cf:n": INT64.encode(task)} for task in range(3)}


def test_a_task_that_is_run_again_writes_the_same(world: JobWorld, flushing: None) -> None:
    """The first attempt died behind its first flush; a zombie goes on behind the commit."""
    del flushing
    job = world.begin()
    rows = [batch(row=[b"a"], n=[1]), batch(row=[b"b"], n=[2])]
    with pytest.raises(OSError, match="lost"):
        jobs.run(job, dying(rows[:1]), 0)
    part = jobs.run(job, rows, 0)
    late = iter(rows)
    jobs.commit(job, [part])
    assert set(world.seen()) == {b"a", b"b"}
    with pytest.raises(TransactionClosed):
        jobs.run(job, late, 0)
    assert set(world.seen()) == {b"a", b"b"}


def test_a_counter_is_added_to_once(world: JobWorld, flushing: None) -> None:
    """An attempt that read what the one before it has written would add twice."""
    del flushing
    with world.tm.begin() as tx:
        tx.table("t").counter_set(b"a", b"cf:n", 10)
    job = world.begin(COUNTED)
    rows = [batch(row=[b"a"], n=[1]), batch(row=[b"b"], n=[2])]
    for _ in range(2):
        with pytest.raises(OSError, match="lost"):
            jobs.run(job, dying(rows), 0)
    jobs.commit(job, [jobs.run(job, rows, 0)])
    table = world.tm.begin().table("t")
    assert [table.counter_get(row, b"cf:n") for row in (b"a", b"b")] == [11, 2]


def test_a_row_is_deleted_whatever_an_earlier_attempt_did(world: JobWorld, flushing: None) -> None:
    """One that saw its own delete would find nothing to delete, and the row would come back."""
    del flushing
    with world.tm.begin() as tx:
        tx.table("t").put(b"a", {b"cf:n": b"1", b"cf:other": b"2"})
    job = world.begin()
    rows = [batch(row=[b"a"], n=[1], _op=["delete"])]
    with pytest.raises(OSError, match="lost"):
        jobs.run(job, dying(rows), 0)
    jobs.commit(job, [jobs.run(job, rows, 0)])
    assert world.seen() == {}


def test_a_row_that_two_tasks_delete_and_write_is_refused(world: JobWorld) -> None:
    """Though no cell is both: whether the row is to be there nobody could say."""
    world.tm.write_arrow(
        "t", batch(row=[b"a", b"b"], x=["1", "2"]), columns={"x": ("cf:x", "string")}
    )
    job = world.begin(has_ops=True)
    deletes = batch(row=[b"a"], n=pa.array([None], pa.int64()), _op=["delete"])
    puts = batch(row=[b"a"], n=[5], _op=pa.array([None], pa.string()))
    parts = [jobs.run(job, [deletes], 0), jobs.run(job, [puts], 1)]
    with pytest.raises(UsageError, match=r"has the row b'a' twice"):
        jobs.commit(job, parts)
    jobs.abort(job, parts)
    assert world.seen() == {b"a": {b"cf:x": b"1"}, b"b": {b"cf:x": b"2"}}
    job = world.begin(has_ops=True)
    puts = batch(row=[b"b"], n=[5], _op=pa.array([None], pa.string()))
    jobs.commit(job, [jobs.run(job, [deletes], 0), jobs.run(job, [puts], 1)])
    assert world.seen().keys() == {b"b"}


def test_columns_are_taken_by_their_places(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is not told their names, in which it would take a dot for a field."""
    monkeypatch.setattr(sessions, "partition_id", lambda: 0)
    job = world.begin({"a.n": ("cf:n", "bigint")})
    (found,) = sessions._run(job, ["row", "a.n"], iter([batch(c0=[b"a"], c1=[5])]))
    jobs.commit(job, found.column("part").to_pylist())
    assert world.tm.begin().table("t").counter_get(b"a", b"cf:n") == 5


def test_a_conflict_aborts_the_whole(world: JobWorld) -> None:
    """With another writer of one of the cells, and without if it was asked for."""
    for conflict_free in (False, True):
        job = world.begin(is_conflict_free=conflict_free)
        row = b"%d" % conflict_free
        parts = [jobs.run(job, [batch(row=[row + b"a", row + b"b"], n=[1, 1])], 0)]
        with world.tm.begin() as tx:
            tx.table("t").put(row + b"a", {b"cf:n": b"x"})
        if conflict_free:
            jobs.commit(job, parts)
        else:
            with pytest.raises(WriteConflict):
                jobs.commit(job, parts)
            jobs.abort(job, parts)
    assert set(world.seen()) == {b"0a", b"1a", b"1b"}


def test_a_range_is_replaced(world: JobWorld) -> None:
    """What the frame lacks goes, other rows stay; somebody else's change is a conflict."""
    with world.tm.begin() as tx:
        for row in (b"a", b"b1", b"b2", b"b3", b"c"):
            tx.table("t").put(row, {b"cf:n": b"old", b"cf:more": b"old"})
    rows = [batch(row=[b"b2", b"b4"], n=[2, 4]), batch(row=[b"b3"], n=[3], _op=["delete"])]
    job = world.begin(replaced=KeyRange(b"b", b"c"))
    doomed = world.begin(replaced=KeyRange(b"b", b"c"))
    parts = [jobs.run(job, [one], task) for task, one in enumerate(rows)]
    others = [jobs.run(doomed, rows[:1], 0)]
    jobs.commit(job, parts)
    old = {b"cf:n": b"old", b"cf:more": b"old"}
    expected = {
        b"a": old,
        b"b2": {b"cf:n": INT64.encode(2)},
        b"b4": {b"cf:n": INT64.encode(4)},
        b"c": old,
    }
    assert world.seen() == expected
    with pytest.raises(WriteConflict):
        jobs.commit(doomed, others)
    assert world.seen() == expected
    job = world.begin(replaced=KeyRange(b"b", b"c"))
    with pytest.raises(UsageError, match="the row b'd', which is not among those to be replaced"):
        jobs.run(job, [batch(row=[b"b1", b"d"], n=[1, 1])], 0)
    jobs.commit(job, [])
    assert set(world.seen()) == {b"a", b"c"}, "an empty frame leaves nothing of the range"


def test_a_fence_aborts_whoever_began_before(world: JobWorld) -> None:
    """Whatever it wrote of the table; nobody is aborted by a write that is refused."""
    shape = Shape.of(COLUMNS)
    earlier, other = world.tm.begin(), world.tm.begin()
    earlier.table("t").put(b"z", {b"cf:n": b"1"})
    with world.place.connect() as tm:
        wrong = Shape.of({"n": ("no:n", "bigint")})
        with pytest.raises(NoSuchFamily):
            jobs.begin(tm, "t", wrong, hold_s=60, is_fencing=True)
        other.table("t").put(b"y", {b"cf:n": b"1"})
        other.commit()
        token = jobs.begin(tm, "t", shape, hold_s=60, is_fencing=True)
    with world.tm.begin() as later:
        later.table("t").put(b"x", {b"cf:n": b"1"})
    with pytest.raises(Fenced):
        earlier.commit()
    job = Job(world.place, "t", shape, token, "job")
    jobs.commit(job, [jobs.run(job, [batch(row=[b"a"], n=[1])], 0)])
    assert set(world.seen()) == {b"a", b"x", b"y"}


def test_a_part_that_is_missing_aborts(world: JobWorld) -> None:
    """Spark hands over one of each task, and the store knows better."""
    job = world.begin()
    part = jobs.run(job, [batch(row=[b"a"], n=[1])], 0)
    jobs.run(job, [batch(row=[b"b"], n=[1])], 1)
    with pytest.raises(TransactionAborted, match="neither merged nor discarded"):
        jobs.commit(job, [part])
    assert (world.seen(), world.cells()) == ({}, 0)


@pytest.mark.parametrize("is_done", [False, True])
def test_what_is_not_begun_after_all_is_held_no_longer(*, is_done: bool) -> None:
    """As where a write was done before: nobody comes as the client of the process that looked."""
    connections: list[tuple[int | None, bool]] = []
    manager: Any = nullcontext(SimpleNamespace(oracle=SimpleNamespace(client=7)))
    manager.close = lambda: None

    def connect(client: int | None = None, *, hands_on: bool = False) -> Any:
        connections.append((client, hands_on))
        return manager

    place: Any = SimpleNamespace(connect=connect)
    with suppress(UsageError), jobs.handing_on(place):
        if is_done:
            raise UsageError("it was done before")
    assert connections == [(None, True), (7, False)][: 1 + is_done]


# -- answers that are lost -------------------------------------------------------------------------


def test_an_answer_that_is_lost_is_found_out(world: JobWorld) -> None:
    """What has committed is no failure: Spark would run the job again."""
    job = world.begin()
    parts = [jobs.run(job, [batch(row=[b"a"], n=[1])], 0)]
    world.oracle.losses.append(Loss.REPLY)
    jobs.commit(job, parts)
    assert set(world.seen()) == {b"a"}


def test_a_commit_that_never_arrived_is_forbidden(world: JobWorld) -> None:
    """And what tasks have written is removed."""
    job = world.begin()
    parts = [jobs.run(job, [batch(row=[b"a"], n=[1])], 0)]
    world.oracle.losses.append(Loss.REQUEST)
    with pytest.raises(TransactionAborted):
        jobs.commit(job, parts)
    jobs.abort(job, parts)
    assert (world.seen(), world.cells()) == ({}, 0)


def test_nothing_is_removed_of_what_has_committed(world: JobWorld) -> None:
    """J1: Spark aborts a job whose commit seemed to fail, as one does whose process died.

    Spark calls it failed; it is said that it has not, or it would be run again.
    """
    job = world.begin()
    parts = [jobs.run(job, [batch(row=[b"a"], n=[1])], 0)]
    jobs.commit(job, parts)
    for some in (parts, []):
        with pytest.raises(TransactionClosed, match="has committed, whatever failed behind that"):
            jobs.abort(job, some)
    assert set(world.seen()) == {b"a"}


def test_nothing_is_removed_of_what_was_decided(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died between the decision and the first shadow cell."""
    job = world.begin()
    parts = [jobs.run(job, [batch(row=[b"a"], n=[1])], 0)]
    with world.place.connect() as tm:
        tx = Transaction.reopened(tm.session, job.token)
        jobs.merge(tx, parts)

        def die(step: str) -> None:
            raise KeyboardInterrupt(step)

        monkeypatch.setattr(tm.session, "on_step", die)
        with pytest.raises(KeyboardInterrupt, match="decided"):
            tx.commit()
    with pytest.raises(TransactionClosed, match="has committed"):
        jobs.abort(job, parts)
    assert set(world.seen()) == {b"a"}


def test_a_job_that_failed_leaves_nothing(world: JobWorld) -> None:
    """Its tasks that ended, and those that did not; and those that go on can write no more."""
    job = world.begin()
    parts = [jobs.run(job, [batch(row=[b"a"], n=[1])], 0)]
    with pytest.raises(UsageError):
        jobs.run(job, [batch(row=[b"b"], n=["x"])], 1)
    jobs.abort(job, [*parts])
    assert (world.seen(), world.cells()) == ({}, 0)
    with pytest.raises(TransactionClosed):
        jobs.run(job, [batch(row=[b"b"], n=[1])], 1)
    with pytest.raises((TransactionAborted, UsageError)):
        jobs.commit(job, parts)
    assert (world.seen(), world.cells()) == ({}, 0)


def test_a_driver_that_died_leaves_what_nobody_sees(world: JobWorld) -> None:
    """Compactions remove it."""
    job = world.begin()
    jobs.run(job, [batch(row=[b"a"], n=[1])], 0)
    assert world.seen() == {}


# -- what is refused -------------------------------------------------------------------------------


def test_a_target_that_is_none_is_refused(world: JobWorld) -> None:
    """Before anything is written."""
    with world.place.connect() as tm:
        with pytest.raises(NoSuchTable):
            jobs.begin(tm, "other", Shape.of(COLUMNS), hold_s=60)
        with pytest.raises(NoSuchFamily):
            jobs.begin(tm, "t", Shape.of({"n": ("no:n", "bigint")}), hold_s=60)
    assert world.cells() == 0


@pytest.mark.parametrize(
    ("rows", "is_free", "is_refused"),
    [(9, False, False), (10, False, True), (10, True, False), (None, False, False)],
)
def test_a_write_set_that_the_oracle_would_refuse_is_refused(
    world: JobWorld, rows: int | None, *, is_free: bool, is_refused: bool
) -> None:
    """With the estimate, and the ways out; a table counts for one."""
    world.oracle.oracle.max_commit_cells = 20  # type: ignore[misc]  # of a model
    shape = Shape.of({"n": ("cf:n", "bigint"), "m": ("cf:m", "bigint")})
    if not is_refused:
        jobs.check_size(world.tm.session, "t", shape, rows, is_conflict_free=is_free)
        return
    said = r"10 rows would be about 20 cells .* takes 19.*rows_per_transaction.*conflict='free'"
    with pytest.raises(UsageError, match=said):
        jobs.check_size(world.tm.session, "t", shape, rows, is_conflict_free=is_free)


def test_rows_are_written_in_several_transactions(world: JobWorld) -> None:
    """Each of so many, whatever batches they come in; a task that is run again changes nothing."""
    job = Job(world.place, "t", Shape.of(COLUMNS), b"", "job", rows_per_transaction=3)
    rows = [
        batch(row=[b"%02d" % at for at in some], n=list(some)) for some in (range(5), range(5, 8))
    ]
    for _ in range(2):
        assert jobs.run(job, rows, 0) == b""
    jobs.commit(job, [b""])
    with world.tm.begin() as tx:
        times = {
            at
            for _, cells in tx.table("t").scan(include_timestamp=True)
            for _, at in cells.values()
        }
        assert (len(dict(tx.table("t").scan())), len(times)) == (8, 3)
    with pytest.raises(UsageError, match="would add once more"):
        jobs.check_counters(Shape.of(COUNTED), is_conflict_free=False, rows_per_transaction=3)


@pytest.mark.parametrize("has_end", [True, False])
def test_several_transactions_that_are_there_are_not_called_failed(
    world: JobWorld, *, has_end: bool
) -> None:
    """The process that ended their tasks was killed behind that: who runs it again writes over."""
    assert several.can_end(world.tm.session)
    shape = Shape.of(COLUMNS)
    job = Job(world.place, "t", shape, b"", "job", rows_per_transaction=1, has_end=has_end)
    parts = [jobs.run(job, [batch(row=[b"%d" % at], n=[1])], at) for at in range(2)]
    jobs.abort(job, parts[:1], tasks=2)
    with pytest.raises(TransactionClosed, match="has committed, whatever failed behind that"):
        jobs.abort(job, parts, tasks=2)
    assert world.seen().keys() == {b"0", b"1"}


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_late_task_of_several_transactions_writes_over_nothing(
    world: JobWorld, *, is_committed: bool
) -> None:
    """One that stood still, or that Spark has run twice at once, has old rows."""
    assert several.can_end(world.tm.session)
    job = Job(world.place, "t", Shape.of(COLUMNS), b"", "job", rows_per_transaction=1, has_end=True)
    rows = [batch(row=[b"a"], n=[1]), batch(row=[b"b"], n=[1]), batch(row=[b"c"], n=[1])]

    def stands_still() -> Iterator[pa.RecordBatch]:
        """Have written the first row when the other attempt, and the job, have ended."""
        yield rows[0]
        assert jobs.run(job, rows, 0) == b""
        if is_committed:
            jobs.commit(job, [b""])
        else:
            jobs.abort(job, [], tasks=1)
        with world.tm.begin() as tx:
            for row in (b"a", b"b", b"c"):
                tx.table("t").put(row, {b"cf:n": INT64.encode(2)})
        yield from rows[1:]

    with pytest.raises(TransactionClosed, match="attempt at task 0 comes too late"):
        jobs.run(job, stands_still(), 0)
    newer = {b"cf:n": INT64.encode(2)}
    assert world.seen() == {b"a": newer, b"b": newer, b"c": newer}


def test_an_attempt_writes_nothing_over_one_that_began_later_and_has_ended(world: JobWorld) -> None:
    """While other tasks go on, it would write its old rows over newer ones; a third one may not.

    It begins where the answer of the second was lost, and writes everything again.
    """
    assert several.can_end(world.tm.session)
    job = Job(world.place, "t", Shape.of(COLUMNS), b"", "job", rows_per_transaction=1, has_end=True)
    rows = [batch(row=[b"a"], n=[1]), batch(row=[b"b"], n=[1])]

    def stands_still() -> Iterator[pa.RecordBatch]:
        yield rows[0]
        assert jobs.run(job, rows, 0, 9) == b""
        with world.tm.begin() as tx:
            for row in (b"a", b"b"):
                tx.table("t").put(row, {b"cf:n": INT64.encode(2)})
        yield from rows[1:]

    with pytest.raises(TransactionClosed, match="another one, which began later"):
        jobs.run(job, stands_still(), 0, 7)
    newer = {b"cf:n": INT64.encode(2)}
    assert world.seen() == {b"a": newer, b"b": newer}
    assert jobs.run(job, rows[:1], 0, 12) == b""
    with pytest.raises(TransactionClosed, match="another one, which began later"):
        jobs.run(job, rows[1:], 0, 7)
    jobs.commit(job, [b""])
    assert world.seen() == {b"a": {b"cf:n": INT64.encode(1)}, b"b": newer}


def test_a_transaction_of_a_task_that_was_ended_meanwhile_aborts(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen that its task is under way, and stands still before its commit."""
    assert several.can_end(world.tm.session)
    job = Job(world.place, "t", Shape.of(COLUMNS), b"", "job", rows_per_transaction=1, has_end=True)
    write = FrameWriter.write
    calls: list[pa.RecordBatch] = []

    def slow(writer: FrameWriter, rows: pa.RecordBatch) -> None:
        write(writer, rows)
        if not calls:
            calls.append(rows)
            jobs.commit(job, [b"", b""])

    monkeypatch.setattr(FrameWriter, "write", slow)
    with pytest.raises(TransactionClosed, match="attempt at task 1 comes too late"):
        jobs.run(job, [batch(row=[b"a"], n=[1])], 1)
    assert world.seen() == {}


def test_what_depends_on_what_the_transaction_wrote_is_refused(world: JobWorld) -> None:
    """Tasks read the snapshot alone."""
    shape = Shape.of(COUNTED)
    tx = world.tm.begin()
    jobs.check_base(tx, "t", shape, ["row", "n"])
    with pytest.raises(UsageError, match="two transactions would count once"):
        jobs.check_counters(shape, is_conflict_free=True)
    jobs.check_counters(shape, is_conflict_free=False)
    tx.table("t").put(b"x", {b"cf:n": b"1"})
    plain = Shape.of(COLUMNS)
    jobs.check_base(tx, "t", plain, ["row", "n"])
    for some, names in ((shape, ["row", "n"]), (plain, ["row", "n", "_op"])):
        with pytest.raises(UsageError, match="would not see; write that frame first"):
            jobs.check_base(tx, "t", some, names)


def test_an_owner_with_cells_of_its_own_is_not_reopened(world: JobWorld) -> None:
    """Nobody knows what else it has in mind."""
    tx = world.tm.begin()
    tx.table("t").put(b"x", {b"cf:n": b"1"})
    with pytest.raises(UsageError, match="has written cells itself"):
        Transaction.reopened(world.tm.session, tx.token())


def test_an_outcome_that_stays_unknown_is_said(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers: the job fails, and its cells stay until somebody knows."""
    job = world.begin()
    parts = [jobs.run(job, [batch(row=[b"a"], n=[1])], 0)]
    cells = world.cells()
    world.oracle.losses.extend([Loss.REQUEST] * 2)
    monkeypatch.setattr("omidpy.commit.outcome.OutcomeFinder.settle", lambda *_, **__: Undecided())
    with pytest.raises(CommitOutcomeUnknown):
        jobs.commit(job, parts)
    jobs.abort(job, parts)
    assert world.cells() == cells
