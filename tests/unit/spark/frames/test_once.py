"""A write with a key, and a batch of a stream, is done by one transaction, whoever dies."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from omidpy.base.tables import KEYS_TABLE
from omidpy.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    TransactionAborted,
    UsageError,
    WriteConflict,
)
from omidpy.model import KeyRange
from omidpy.spark.frames.writes import jobs
from omidpy.spark.frames.writes.once import KeyedWrite, Once, StreamBatch, keyed_write
from omidpy.tx.frames.shape import Shape
from omidpy.tx.keys import COLUMN, USED, key_row, open_keys
from omidpy.tx.transaction import Transaction
from tests.machines.clients import Loss
from tests.machines.frame_jobs import COLUMNS, JobWorld, batch

WRITE = keyed_write(b"the load of monday", "t", Shape.of(COLUMNS))
BATCH = StreamBatch("q", "q", 7)


@pytest.fixture
def world() -> JobWorld:
    """Give a store with a table."""
    return JobWorld()


@pytest.fixture(params=[WRITE, BATCH], ids=["write", "batch"])
def once(request: pytest.FixtureRequest) -> Once:
    """Give what is to be done."""
    found: Once = request.param
    return found


def rows(*names: bytes) -> list[pa.RecordBatch]:
    """Return rows to write."""
    return [batch(row=list(names), n=[1] * len(names))]


def test_a_repetition_is_known_before_its_tasks_run(world: JobWorld, once: Once) -> None:
    """It says when the first was committed."""
    job = world.begin(once=once)
    commit_ts = jobs.commit(job, [jobs.run(job, rows(b"a"), 0)])
    assert commit_ts is not None
    with pytest.raises(AlreadyCommitted) as found:
        world.begin(once=once)
    assert found.value.commit_ts == commit_ts
    done = jobs.Job(world.place, "t", job.shape, b"", "job", done_ts=commit_ts)
    assert jobs.run(done, iter(()), 0) == b""
    assert jobs.commit(done, [b""]) == commit_ts
    jobs.abort(done, [])
    assert set(world.seen()) == {b"a"}


@pytest.mark.parametrize("begins_first", [True, False])
def test_what_tasks_of_a_repetition_wrote_is_removed(
    world: JobWorld, once: Once, *, begins_first: bool
) -> None:
    """By the commit: Spark began it before anybody knew, or both ran at the same time."""
    first = world.begin(once=once)
    again = world.begin(once=once) if begins_first else None
    expected = jobs.commit(first, [jobs.run(first, rows(b"a", b"b"), 0)])
    before = world.cells()
    again = again or world.begin()
    job = jobs.Job(world.place, "t", again.shape, again.token, "job", once=once)
    parts = [jobs.run(job, rows(b"c", b"d"), 0), jobs.run(job, rows(b"e"), 1)]
    assert jobs.commit(job, parts) == expected
    assert (set(world.seen()), world.cells()) == ({b"a", b"b"}, before)
    jobs.abort(job, parts)
    assert (set(world.seen()), world.cells()) == ({b"a", b"b"}, before)


def test_one_that_failed_leaves_its_name_free(world: JobWorld, once: Once) -> None:
    """A conflict with somebody else, and a driver that died."""
    world.begin(once=once)
    job = world.begin(once=once)
    parts = [jobs.run(job, rows(b"a"), 0)]
    with world.tm.begin() as tx:
        tx.table("t").put(b"a", {b"cf:n": b"x"})
    with pytest.raises(WriteConflict):
        jobs.commit(job, parts)
    job = world.begin(once=once)
    assert jobs.commit(job, [jobs.run(job, rows(b"b"), 0)]) is not None
    assert set(world.seen()) == {b"a", b"b"}


def test_an_answer_that_is_lost_is_found_out(world: JobWorld, once: Once) -> None:
    """Committed by itself, or by another one meanwhile."""
    job = world.begin(once=once)
    parts = [jobs.run(job, rows(b"a"), 0)]
    world.oracle.losses.append(Loss.REPLY)
    commit_ts = jobs.commit(job, parts)
    assert commit_ts is not None
    with pytest.raises(AlreadyCommitted) as found:
        world.begin(once=once)
    assert found.value.commit_ts == commit_ts


def test_a_commit_that_never_arrived_is_done_by_the_next(world: JobWorld, once: Once) -> None:
    """It was forbidden, and nobody has the name."""
    job = world.begin(once=once)
    parts = [jobs.run(job, rows(b"a"), 0)]
    world.oracle.losses.append(Loss.REQUEST)
    with pytest.raises(TransactionAborted):
        jobs.commit(job, parts)
    job = world.begin(once=once)
    assert jobs.commit(job, [jobs.run(job, rows(b"b"), 0)]) is not None
    assert set(world.seen()) == {b"b"}


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_second_process_that_commits_takes_nothing_back(
    world: JobWorld, once: Once, monkeypatch: pytest.MonkeyPatch, *, is_made_anew: bool
) -> None:
    """J1: the first died right behind the decision, and its own note is no other's."""
    job = world.begin(once=once)
    parts = [jobs.run(job, rows(b"a"), 0)]
    with world.place.connect() as tm:
        tx = Transaction.reopened(tm.session, job.token)
        jobs.use_once(tx, once)
        jobs.merge(tx, parts)

        def die(step: str) -> None:
            if step == "decided":
                raise KeyboardInterrupt(step)

        monkeypatch.setattr(tm.session, "on_step", die)
        with pytest.raises(KeyboardInterrupt, match="decided"):
            tx.commit()
    if is_made_anew:
        world.tm.drop_table("t")
        world.tm.create_table("t", ["cf"])
    assert jobs.commit(job, parts) is not None
    assert set(world.seen()) == (set() if is_made_anew else {b"a"})
    with world.tm.begin(read_only=True) as tx:
        assert len(list(tx.table(KEYS_TABLE).scan())) == 1


def test_a_key_that_was_used_for_something_else_is_refused(world: JobWorld) -> None:
    """A write would be missing otherwise; the other table and the other columns are named."""
    job = world.begin(once=WRITE)
    jobs.commit(job, [jobs.run(job, rows(b"a"), 0)])
    key, shape = WRITE.key, Shape.of(COLUMNS)
    for other in (
        keyed_write(key, "u", shape),
        keyed_write(key, "t", Shape.of({"m": ("cf:m", "bigint")})),
        keyed_write(key, "t", shape, KeyRange(b"a", b"b")),
    ):
        with pytest.raises(UsageError, match="was used for another write, of table 't'"):
            world.begin(once=other)
    started = world.begin()
    job = jobs.Job(world.place, "t", shape, started.token, "job", once=keyed_write(key, "u", shape))
    parts = [jobs.run(job, rows(b"b"), 0)]
    with pytest.raises(UsageError, match="was used for another write"):
        jobs.commit(job, parts)
    jobs.abort(job, parts)
    assert set(world.seen()) == {b"a"}


def test_a_key_of_other_transactions_is_the_same_key(world: JobWorld) -> None:
    """What has used it says nothing of what it was about."""
    with world.tm.begin(idempotency_key=WRITE.key) as tx:
        tx.table("t").put(b"x", {b"cf:n": b"1"})
    with pytest.raises(AlreadyCommitted):
        world.begin(once=WRITE)
    other = KeyedWrite(b"other", "t", "0")
    job = world.begin(once=other)
    jobs.commit(job, [b""])
    with pytest.raises(AlreadyCommitted):
        world.tm.begin(idempotency_key=b"other")


def test_a_key_of_a_table_that_is_gone_is_refused(world: JobWorld) -> None:
    """The rows went with it, and nobody would write them into the one that was made anew."""
    job = world.begin(once=WRITE)
    jobs.commit(job, [jobs.run(job, rows(b"a"), 0)])
    begun = world.begin()
    world.tm.drop_table("t")
    gone = "was used for this write of an earlier table 't'"
    with world.tm.begin() as tx, pytest.raises(UsageError, match=gone):
        WRITE.check(tx)
    world.tm.create_table("t", ["cf"])
    with pytest.raises(UsageError, match=gone):
        world.begin(once=WRITE)
    with pytest.raises((UsageError, TransactionAborted)):
        jobs.commit(replace(begun, once=WRITE), [b""])
    other = keyed_write(b"the load of tuesday", "t", Shape.of(COLUMNS))
    job = world.begin(once=other)
    jobs.commit(job, [jobs.run(job, rows(b"b"), 0)])
    with pytest.raises(AlreadyCommitted):
        world.begin(once=other)
    assert set(world.seen()) == {b"b"}


def test_a_note_of_an_earlier_version_names_no_incarnation(world: JobWorld) -> None:
    """It counts for whatever table has the name, as it did."""
    open_keys(world.tm.session)
    about = f"t {WRITE.digest}".encode()
    with world.tm.begin() as tx:
        row = key_row(WRITE.key, table_prefix="")
        tx.table(KEYS_TABLE).put(row, {COLUMN: USED + b" write " + about})
    with pytest.raises(AlreadyCommitted):
        world.begin(once=WRITE)
    other = keyed_write(WRITE.key, "u", Shape.of(COLUMNS))
    with pytest.raises(UsageError, match="was used for another write, of table 't'"):
        world.begin(once=other)


def test_a_stream_has_one_row(world: JobWorld) -> None:
    """The newest batch is known, the next one is new, and a checkpoint that was put back is not."""
    for number in (7, 8, 9):
        job = world.begin(once=StreamBatch("s", "q1", number))
        jobs.commit(job, [jobs.run(job, rows(b"%d" % number), 0)])
    with world.tm.begin(read_only=True) as tx:
        assert len(list(tx.table(KEYS_TABLE).scan())) == 1
    with pytest.raises(AlreadyCommitted):
        world.begin(once=StreamBatch("s", "q1", 9))
    with pytest.raises(UsageError, match="batch 8 of the stream 's' comes behind batch 9"):
        world.begin(once=StreamBatch("s", "q1", 8))
    with pytest.raises(UsageError, match=r"that of another query, q1, .* up to batch 9"):
        world.begin(once=StreamBatch("s", "q2", 10))
    world.begin(once=StreamBatch("other", "q2", 0))


def test_two_runs_from_copies_of_one_checkpoint_meet(world: JobWorld) -> None:
    """The one that has written the batch before is not repeating this one: it has other rows."""

    def write(number: int, run: str, row: bytes) -> None:
        job = world.begin(once=StreamBatch("s", "q", number, run))
        jobs.commit(job, [jobs.run(job, rows(row), 0)])

    write(7, "first", b"7")
    write(8, "first", b"8")
    with pytest.raises(AlreadyCommitted):
        write(8, "first", b"again")
    with pytest.raises(AlreadyCommitted):
        write(8, "second", b"begins with the newest")
    write(9, "second", b"9")
    started = world.begin()
    late = replace(started, once=StreamBatch("s", "q", 9, "first"))
    part = jobs.run(late, rows(b"late"), 0)
    with pytest.raises(UsageError, match="written by another run of the query, second, while"):
        jobs.commit(late, [part])
    with pytest.raises(UsageError, match="copies of one checkpoint"):
        write(9, "first", b"other rows")
    with pytest.raises(AlreadyCommitted):
        write(9, "", b"of an earlier version")
    with pytest.raises(AlreadyCommitted):
        write(9, "third", b"begins with the newest")
    write(10, "third", b"10")
    assert set(world.seen()) == {b"7", b"8", b"9", b"10"}


@pytest.mark.parametrize("later", [0, 1])
def test_a_run_that_was_replaced_is_not_told_to_begin_anew(world: JobWorld, later: int) -> None:
    """Where its successor has its very checkpoint, a new one would write all rows again."""

    def write(number: int, run: str) -> None:
        job = world.begin(once=StreamBatch("s", "q", number, run))
        jobs.commit(job, [jobs.run(job, rows(b"%d" % number), 0)])

    write(7, "slow")
    for number in range(8, 9 + later):
        write(number, "next")
    with pytest.raises(UsageError, match=r"if run next has taken .* all is well, .*; else"):
        write(8, "slow")
    with pytest.raises(UsageError, match=r"comes behind batch \d: its checkpoint was put back"):
        write(7, "next")


def test_a_stream_of_an_earlier_version_names_no_run(world: JobWorld) -> None:
    """Its note counts as it did, whoever goes on."""
    batch_of = StreamBatch("s", "q", 7, "first")
    open_keys(world.tm.session)
    with world.tm.begin() as tx:
        row = key_row(batch_of.key, table_prefix="")
        tx.table(KEYS_TABLE).put(row, {COLUMN: USED + b" stream 7 q"})
    with pytest.raises(AlreadyCommitted):
        world.begin(once=batch_of)
    for number in (8, 9):
        job = world.begin(once=replace(batch_of, number=number))
        jobs.commit(job, [jobs.run(job, rows(b"%d" % number), 0)])
    assert set(world.seen()) == {b"8", b"9"}


def test_an_outcome_that_stays_unknown_is_said(
    world: JobWorld, once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one finds out."""
    from omidpy.model import Undecided

    job = world.begin(once=once)
    parts = [jobs.run(job, rows(b"a"), 0)]
    world.oracle.losses.append(Loss.REPLY)
    with monkeypatch.context() as patch:
        patch.setattr("omidpy.commit.outcome.OutcomeFinder.settle", lambda *_, **__: Undecided())
        with pytest.raises(CommitOutcomeUnknown):
            jobs.commit(job, parts)
    with pytest.raises(AlreadyCommitted):
        world.begin(once=once)
    assert set(world.seen()) == {b"a"}
