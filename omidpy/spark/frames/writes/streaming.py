"""Writes the batches of a stream, each once: `df.writeStream.format("omidpy")`, and `each_batch`.

Spark runs the newest batch again after a restart, if its checkpoint does not say that it was done.
The transaction of a batch notes its number (`once.py`), so that one which has committed is not
written again, whatever the checkpoint says.

Spark makes the writer anew in three places, and only one of them is to begin a transaction: that
from where it is sent to tasks.  The process that commits learns from the tasks' answers which
transaction it was.  Which batch it is, tasks know first: they look whether it was written, and so
does the commit.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from omidpy.base.telemetry.stages import GROUP
from omidpy.base.words.arguments import is_unrun
from omidpy.errors import AlreadyCommitted, TransactionClosed, UsageError
from omidpy.manager import DEFAULT_RETRY_BUDGET_S, TransactionManager
from omidpy.spark.frames.options import Words, WriteWords, words, write_words
from omidpy.spark.frames.types import shape_of
from omidpy.spark.frames.writes import jobs
from omidpy.spark.frames.writes.jobs import Job
from omidpy.spark.frames.writes.once import StreamBatch
from omidpy.tx.frames.shape import OP, Shape
from omidpy.tx.frames.writing import check_names
from omidpy.tx.keys import open_keys
from omidpy.tx.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
RUN: Final = GROUP
"""What Spark calls the three, where it runs a batch and in its tasks: jobs of a query are a group,
which has the name of its run."""


@dataclass
class BatchMessage(WriterCommitMessage):
    """What a task wrote, and of which transaction and batch it is."""

    part: bytes
    token: bytes
    client: int | None
    name: str
    query: str
    run: str = ""


class BatchWriter(DataSourceStreamArrowWriter):
    """One batch, in any of the three places."""

    def __init__(
        self, said: Words, given: WriteWords, shape: Shape, *, has_ops: bool = False
    ) -> None:
        self._said = said
        self._given = given
        self._shape = shape
        self._has_ops = has_ops
        self._job: Job | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begin the transaction, once: it is sent to tasks."""
        if self._job is None:
            self._job = self._begin()
        return self.__dict__

    def _begin(self) -> Job:
        with jobs.handing_on(self._said.place) as tm:
            # A transaction that uses a key begins behind the table of keys.
            open_keys(tm.session)
            place = self._said.place.seen(tm.store)
            token = jobs.begin(tm, self._said.table, self._shape, hold_s=self._given.hold_s)
            client: int | None = getattr(tm.oracle, "client", None)
        return replace(self._plain(), place=place, token=token, client=client)

    def _plain(self) -> Job:
        return Job(
            self._said.place,
            self._said.table,
            self._shape,
            b"",
            uuid.uuid4().hex,
            nulls=self._given.nulls,
            is_conflict_free=self._given.is_conflict_free,
            has_ops=self._has_ops,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run a task: on an executor."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        query, number = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        assert query is not None, "Spark says which query a task is of"
        assert number is not None, "Spark says which batch a task is of"
        run = context.getLocalProperty(RUN) or ""
        return self.written(iterator, context.partitionId(), query, int(number), run)

    def written(
        self, batches: Iterator[pa.RecordBatch], task: int, query: str, number: int, run: str = ""
    ) -> BatchMessage:
        """Write what a task has, unless its batch was written before."""
        assert self._job is not None, "it was begun where it was sent from"
        job = self._job
        message = BatchMessage(b"", job.token, job.client, job.name, query, run)
        with job.place.connect() as tm:
            try:
                jobs.check_once(tm, self._batch(query, number, run))
            except AlreadyCommitted as before:
                log.info("nothing is to be written to table %s: %s", job.table, before)
                return message
        return replace(message, part=jobs.run(job, batches, task))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit a batch, unless it was before: on the driver."""
        found = _found(messages)
        job = self._job_of(found[0])
        batch = self._batch(found[0].query, batchId, found[0].run)
        jobs.commit(replace(job, once=batch), [one.part for one in found])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - see above
        """Take a batch back: on the driver."""
        if found := _found(messages):
            try:
                jobs.abort(self._job_of(found[0]), [one.part for one in found])
            except TransactionClosed as error:
                raise TransactionClosed(
                    f"all of batch {batchId} is written to table {self._said.table!r}, whatever "
                    "failed behind that; start the query again, which passes over it"
                ) from error

    def _job_of(self, message: BatchMessage) -> Job:
        return replace(self._plain(), token=message.token, client=message.client, name=message.name)

    def _batch(self, query: str, number: int, run: str) -> StreamBatch:
        return StreamBatch(self._given.app_id or query, query, number, _plain_run(run))


def _plain_run(run: str | None) -> str:
    """Return the name of a run; none where it is one that somebody has given its jobs."""
    return run if run and " " not in run else ""


def _found(messages: Sequence[WriterCommitMessage | None]) -> list[BatchMessage]:
    return [one for one in messages if isinstance(one, BatchMessage)]


def batch_writer_of(
    options: Mapping[str, str], schema: pa.Schema, *, overwrite: bool
) -> BatchWriter:
    """Return what writes a batch; nothing is asked of the store yet.

    Raises:
        UsageError: an option or a column is wrong.
    """
    if overwrite:
        raise UsageError(
            "outputMode('complete') would replace the whole table with each batch, which no "
            "transaction could; write outputMode('update'), whose rows go over those of the same "
            "key"
        )
    said = words(options)
    given = write_words(said)
    if given.replaced is not None:
        raise UsageError("a stream replaces no range of rows; leave row_start and the like out")
    if given.is_fencing:
        raise UsageError(
            "conflict='fence' would abort the writes of others with each batch of a stream, also "
            "with one that is repeated; write conflict='check'"
        )
    if given.idempotency_key is not None or given.rows_per_transaction is not None:
        raise UsageError(
            "idempotency_key and rows_per_transaction are of a batch alone: each batch of a stream "
            "is one transaction, and known by its number"
        )
    shape = shape_of(said, schema)
    if shape.has_commit_ts:
        raise UsageError("_commit_ts is read alone; leave it out of the frame")
    check_names(shape, schema.names)
    jobs.check_counters(shape, is_conflict_free=given.is_conflict_free)
    return BatchWriter(said, given, shape, has_ops=OP in schema.names)


def each_batch(
    tm: TransactionManager,
    apply: Callable[[Transaction, DataFrame, int], object],
    *,
    app_id: str | None = None,
    retry_budget_s: float = DEFAULT_RETRY_BUDGET_S,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that runs each batch in a transaction, once.

        query = df.writeStream.foreachBatch(omidpy.spark.each_batch(tm, apply)).start()

    A batch that Spark repeats, and that has committed, is passed over.  One that was aborted is run
    again, from `apply`, for as long as the budget says; so it must have no effect but in the
    transaction.

    Args:
        tm: A manager; each batch has a transaction of its own.
        apply: Called with the transaction, the batch and its number; what it returns is ignored.
            A plain function: an `async def` or a generator is refused when a batch comes.
        app_id: Names the stream; None: the id that the query has in its checkpoint.  With a name a
            second checkpoint is refused, and a second query, which would write the same rows again,
            or have its batches taken for those of the first.
        retry_budget_s: How long a batch is tried.

    Raises:
        UsageError: from the query: its checkpoint was lost or put back, another query has the
            name, or Spark does not say which query a batch is of.
        OmidError: from the query: it was aborted, or that is not known; a restart finds out.
    """

    @wraps(apply)
    def run(frame: DataFrame, number: int) -> None:
        context = frame.sparkSession.sparkContext
        query = context.getLocalProperty(QUERY) or ""
        if not query:
            # Also with a name: another query that has it would be taken for this one, and each pass
            # over batches that only the other has written.
            raise UsageError(
                "Spark does not say which query this batch is of, so that it cannot be told from "
                "one of another query; run it where Spark does: in the thread that called the "
                "function, and without PYSPARK_PIN_THREAD=false in the driver's environment"
            )
        run_id = _plain_run(context.getLocalProperty(RUN))
        batch = StreamBatch(app_id or query, query, number, run_id)
        open_keys(tm.session)
        try:
            for attempt in tm.attempts(budget_s=retry_budget_s):
                with attempt as tx:
                    batch.check(tx)
                    tx.has_key = True
                    if is_unrun(returned := apply(tx, frame, number)):
                        raise TypeError(
                            f"each_batch: {apply!r:.80} returned {returned!r:.80}, which nobody "
                            "goes on with, so that nothing was written; let it be a plain function"
                        )
                    batch.note(tx)
        except AlreadyCommitted as before:
            if before.key != batch.key:
                raise
            batch.pass_over(tm)
            log.info("batch %d is passed over: %s", number, before)

    return run
