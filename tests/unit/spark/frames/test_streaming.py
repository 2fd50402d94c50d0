"""Each batch of a stream is written once, however often Spark runs it and wherever it died."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from omidpy.errors import AlreadyCommitted, TransactionClosed, UsageError, WriteConflict
from omidpy.spark.frames.options import Words, write_words
from omidpy.spark.frames.writes.streaming import (
    QUERY,
    RUN,
    BatchMessage,
    BatchWriter,
    batch_writer_of,
    each_batch,
)
from omidpy.tx.frames.shape import Shape
from omidpy.tx.transaction import Transaction
from tests.machines.clients import Loss
from tests.machines.frame_jobs import COLUMNS, JobWorld, batch

PLACE = {"store": "sqlite:///x.db", "tso": "here:1", "table": "t", "key": "row"}
SCHEMA = pa.schema([("row", pa.binary()), ("n", pa.int64())])


class Query:
    """A query of Spark: its writer is made anew for each batch, and for each commit."""

    def __init__(self, world: JobWorld, query: str = "q", run: str = "", **given: str) -> None:
        """Write to the table of a world."""
        self.world, self.query, self.run_id = world, query, run
        self.said = Words(world.place, "t", None, None, None, None, {**PLACE, **given})

    def make(self) -> BatchWriter:
        """Return a writer, as Spark makes one."""
        return BatchWriter(self.said, write_words(self.said), Shape.of(COLUMNS))

    def tasks(self, number: int, *rows: bytes) -> list[Any]:
        """Run the tasks of a batch, one a row; return what they answer."""
        writer = self.make()
        writer.__getstate__()
        writer.__getstate__()
        return [
            writer.written(
                iter([batch(row=[row], n=[number])]), task, self.query, number, self.run_id
            )
            for task, row in enumerate(rows)
        ]

    def commit(self, number: int, messages: list[Any]) -> None:
        """Commit a batch, by a writer that knows nothing of it."""
        self.make().commit(messages, number)

    def run(self, number: int, *rows: bytes) -> None:
        """Run a batch."""
        self.commit(number, self.tasks(number, *rows))


@pytest.fixture
def world() -> JobWorld:
    """Give a store with a table."""
    return JobWorld()


def test_batches_follow_one_another(world: JobWorld) -> None:
    """Each in a transaction of its own; what its tasks answer travels."""
    query = Query(world)
    query.run(0, b"a", b"b")
    messages = pickle.loads(
        pickle.dumps(
            [
                BatchMessage(one.part, one.token, one.client, one.name, one.query)
                for one in query.tasks(1, b"c")
            ]
        )
    )
    assert set(world.seen()) == {b"a", b"b"}
    query.commit(1, [None, *messages])
    assert set(world.seen()) == {b"a", b"b", b"c"}


def test_a_batch_that_is_run_again_is_written_once(world: JobWorld) -> None:
    """The driver died behind the commit: tasks write nothing; before it, they write it all."""
    query = Query(world)
    query.tasks(0, b"a")
    query.run(0, b"a")
    seen, cells = world.seen(), world.cells()
    messages = query.tasks(0, b"other")
    assert [one.part for one in messages] == [b""]
    query.commit(0, messages)
    assert (world.seen(), world.cells()) == (seen, cells)


def test_of_two_drivers_one_writes(world: JobWorld) -> None:
    """The one that was taken for dead comes last, and what its tasks wrote is removed."""
    query = Query(world)
    late, later = (query.tasks(0, b"a", b"late") for _ in range(2))
    query.run(0, b"a")
    cells = world.cells()
    query.commit(0, late)
    assert (set(world.seen()), world.cells() - cells) == ({b"a"}, -2)
    query.run(1, b"b")
    with pytest.raises(UsageError, match="batch 0 of the stream 'q' comes behind batch 1"):
        query.commit(0, later)
    assert set(world.seen()) == {b"a", b"b"}


def test_a_batch_that_failed_leaves_nothing(world: JobWorld) -> None:
    """Spark aborts it, with the answers of those tasks that had one."""
    query = Query(world)
    before = world.cells()
    query.make().abort([*query.tasks(0, b"a"), None], 0)
    query.make().abort([None], 0)
    assert (world.seen(), world.cells()) == ({}, before)
    messages = query.tasks(0, b"b")
    query.commit(0, messages)
    with pytest.raises(TransactionClosed, match=r"all of batch 0 is written .*start the query aga"):
        query.make().abort(messages, 0)
    query.make().abort(query.tasks(0, b"b"), 0)
    assert set(world.seen()) == {b"b"}


def test_a_stream_with_a_name_has_one_checkpoint(world: JobWorld) -> None:
    """A second one would write its rows again."""
    Query(world, "q1", app_id="orders").run(0, b"a")
    with pytest.raises(UsageError, match="the stream 'orders' is that of another query, q1"):
        Query(world, "q2", app_id="orders").tasks(0, b"b")
    Query(world, "q2", app_id="orders-2").run(0, b"b")
    assert set(world.seen()) == {b"a", b"b"}


def test_a_query_with_a_copy_of_the_checkpoint_is_found_out(world: JobWorld) -> None:
    """By its tasks, and by its commit if they ran before the other one committed."""
    one, other = Query(world, run="run one"), Query(world, run="two")
    one.run(0, b"a")
    first, copy = Query(world, run="one"), other
    first.run(1, b"b")
    first.run(2, b"c")
    copy.run(2, b"passed over")
    late = first.tasks(3, b"late")
    copy.run(3, b"d")
    with pytest.raises(UsageError, match="copies of one checkpoint"):
        first.commit(3, late)
    with pytest.raises(UsageError, match="copies of one checkpoint"):
        first.run(3, b"other rows")
    assert set(world.seen()) == {b"a", b"b", b"c", b"d"}


@pytest.mark.parametrize(
    ("more", "overwrite", "message"),
    [
        ({}, True, "outputMode\\('complete'\\) would replace"),
        ({"idempotency_key": "x"}, False, "each batch of a stream is one transaction"),
        ({"rows_per_transaction": "5"}, False, "each batch of a stream is one transaction"),
        ({"conflict": "fence"}, False, "would abort the writes of others"),
        ({"columns": "n=cf:n, m=cf:m"}, False, "the frame has no column m"),
        ({"columns": "n=cf:n counter", "conflict": "free"}, False, "would count once"),
    ],
)
def test_what_no_stream_can_do_is_refused(
    more: dict[str, str], message: str, *, overwrite: bool
) -> None:
    """Before a batch begins."""
    options = {**PLACE, "columns": "n=cf:n", **more}
    with pytest.raises(UsageError, match=message):
        batch_writer_of(options, SCHEMA, overwrite=overwrite)


# -- foreachBatch ----------------------------------------------------------------------------------


def frame(query: str | None = "q", run: str | None = None) -> Any:
    """Return a batch, as far as it is looked at."""
    properties = SimpleNamespace(getLocalProperty={QUERY: query, RUN: run}.get)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=properties))


def test_each_batch_is_applied_once(world: JobWorld) -> None:
    """Beside whatever else it writes; one that raised is not done."""
    calls: list[int] = []

    def apply(tx: Transaction, _: Any, number: int) -> None:
        calls.append(number)
        tx.table("t").counter_inc(b"count", b"cf:n")
        if calls == [0]:
            raise OSError("stop")

    run = each_batch(world.tm, apply)
    with pytest.raises(OSError, match="stop"):
        run(frame(), 0)
    for number in (0, 0, 1, 1):
        run(frame(), number)
    assert calls == [0, 0, 1]
    assert world.tm.begin().table("t").counter_get(b"count", b"cf:n") == 2
    with pytest.raises(UsageError, match="its checkpoint was put back"):
        run(frame(), 0)


def test_a_batch_that_was_only_begun_is_not_done(world: JobWorld) -> None:
    """A function that yields writes nothing when it is called, and its batches were passed over."""

    def apply(tx: Transaction, _: Any, __: int) -> Iterator[None]:
        tx.table("t").counter_inc(b"count", b"cf:n")
        yield

    with pytest.raises(TypeError, match="nobody goes on with, so that nothing was written"):
        each_batch(world.tm, apply)(frame(), 0)
    calls: list[int] = []
    each_batch(world.tm, lambda _tx, _frame, number: calls.append(number))(frame(), 0)
    assert calls == [0]


def test_a_batch_of_nobody_knows_which_query_is_refused(world: JobWorld) -> None:
    """Two queries of one name would take each other's batches for done, and miss their rows."""
    applied: list[str] = []

    def query(name: str) -> Callable[[Any, int], None]:
        def apply(tx: Transaction, _: Any, number: int) -> None:
            applied.append(f"{name}{number}")
            tx.table("t").counter_inc(b"count", b"cf:n")

        return each_batch(world.tm, apply, app_id="orders")

    for run in (query("a"), query("b"), each_batch(world.tm, lambda *_: None)):
        with pytest.raises(UsageError, match=r"does not say which query .* PYSPARK_PIN_THREAD"):
            run(frame(None), 0)
    assert applied == []
    first, second = query("a"), query("b")
    first(frame("one"), 0)
    with pytest.raises(UsageError, match="the stream 'orders' is that of another query, one"):
        second(frame("two"), 0)
    first(frame("one"), 1)
    assert applied == ["a0", "a1"]


def test_two_queries_with_one_checkpoint_are_found_out(world: JobWorld) -> None:
    """The one that goes on behind its own batch, and finds the next one written."""

    def apply(tx: Transaction, _: Any, number: int) -> None:
        tx.table("t").put(b"%d" % number, {b"cf:n": b"1"})

    run = each_batch(world.tm, apply)
    for number, name in ((0, "one"), (0, "two"), (1, "two"), (1, "three"), (2, "three")):
        run(frame(run=name), number)
    with pytest.raises(UsageError, match="another run of the query, three, while this one, two"):
        run(frame(run="two"), 2)
    assert set(world.seen()) == {b"0", b"1", b"2"}


def test_a_query_that_lags_behind_a_copy_of_its_checkpoint_is_found_out(world: JobWorld) -> None:
    """It never writes a batch, and would pass over all of them, with rows that are its own."""

    def apply(tx: Transaction, _: Any, number: int) -> None:
        tx.table("t").put(b"%d" % number, {b"cf:n": b"1"})

    ahead, behind = each_batch(world.tm, apply), each_batch(world.tm, apply)
    for number in range(2):
        ahead(frame(run="one"), number)
    behind(frame(run="two"), 1)  # as after a restart, of which it cannot be told
    ahead(frame(run="one"), 2)
    with pytest.raises(UsageError, match="written by another run of the query, one, while this"):
        behind(frame(run="two"), 2)
    behind(frame(run="three"), 2)
    behind(frame(run="three"), 3)
    assert set(world.seen()) == {b"0", b"1", b"2", b"3"}


def test_so_is_a_sink_that_lags(world: JobWorld) -> None:
    """By its tasks, and by its commit if they ran before the other one committed."""
    ahead, behind = Query(world, run="one"), Query(world, run="two")
    ahead.run(0, b"a")
    behind.run(0, b"x")
    messages = behind.tasks(1, b"y")
    ahead.run(1, b"b")
    for act in (lambda: behind.tasks(1, b"y"), lambda: behind.commit(1, messages)):
        with pytest.raises(UsageError, match="written by another run of the query, one, while"):
            act()
    assert set(world.seen()) == {b"a", b"b"}


def test_a_run_whose_own_answers_are_lost_goes_on(world: JobWorld) -> None:
    """Time and again it finds what it has written itself."""

    def apply(tx: Transaction, _: Any, __: int) -> None:
        tx.table("t").counter_inc(b"count", b"cf:n")

    run = each_batch(world.tm, apply)
    for number in range(3):
        world.oracle.losses.append(Loss.REPLY)
        run(frame(run="one"), number)
        run(frame(run="one"), number)
    assert world.tm.begin().table("t").counter_get(b"count", b"cf:n") == 3


@pytest.mark.parametrize("loss", [Loss.REPLY, Loss.REQUEST])
def test_a_lost_answer_is_tried_again(world: JobWorld, loss: Loss) -> None:
    """And found, if it was a commit."""

    def apply(tx: Transaction, _: Any, __: int) -> None:
        tx.table("t").counter_inc(b"count", b"cf:n")

    world.oracle.losses.append(loss)
    each_batch(world.tm, apply)(frame(), 0)
    assert world.tm.begin().table("t").counter_get(b"count", b"cf:n") == 1


def test_a_conflict_runs_the_batch_again(world: JobWorld) -> None:
    """For as long as the budget says; what `apply` raises of its own goes on to Spark."""
    calls: list[int] = []

    def apply(tx: Transaction, _: Any, number: int) -> None:
        calls.append(number)
        tx.table("t").put(b"a", {b"cf:n": b"batch"})
        if len(calls) < 3:
            with world.tm.begin() as other:
                other.table("t").put(b"a", {b"cf:n": b"other"})

    each_batch(world.tm, apply)(frame(), 0)
    assert (len(calls), world.seen()) == (3, {b"a": {b"cf:n": b"batch"}})
    calls.clear()
    with pytest.raises(WriteConflict):
        each_batch(world.tm, apply, retry_budget_s=0)(frame(), 1)

    def keyed(tx: Transaction, _: Any, __: int) -> None:
        tx.use_key(b"mine")

    each_batch(world.tm, keyed)(frame(), 1)
    with pytest.raises(AlreadyCommitted):
        each_batch(world.tm, keyed)(frame(), 2)
