"""Writes a frame into a table: Spark's commit protocol around one transaction.

Spark makes the writer in one process of the driver, sends it to tasks, and calls it again in
another process of the driver with what tasks have answered; so all that it knows travels with it.
A task that Spark kills, or whose answer it does not want, hears nothing of it: what it wrote is
not merged, and so is removed, or covered by the attempt that was.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from omidpy.errors import AlreadyCommitted, UsageError
from omidpy.spark.frames.options import words, write_words
from omidpy.spark.frames.types import shape_of
from omidpy.spark.frames.writes import jobs, several
from omidpy.spark.frames.writes.jobs import Job
from omidpy.spark.frames.writes.once import keyed_write
from omidpy.tx.frames.shape import OP
from omidpy.tx.frames.writing import check_names

log = logging.getLogger(__name__)

OVERWRITE: Final = (
    "a table is not overwritten as a whole: no transaction could delete what others write at the "
    "same time.  Name the rows to replace, by row_prefix, or row_start and row_stop; or write with "
    "mode('append'), which puts rows over those of the same key; delete "
    "rows by a column _op = 'delete'; or write a new table, and let readers change over to it"
)


@dataclass
class PartMessage(WriterCommitMessage):
    """What a task wrote, as Spark carries it."""

    part: bytes
    """Compressed; empty, where the task has committed it."""


class TableWriter(DataSourceArrowWriter):
    """Writes one save: a part of the transaction for each task."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run a task: on an executor."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        # Not `attemptNumber`, which begins anew where a stage is run again.
        number = context.taskAttemptId()
        return PartMessage(jobs.run(self.job, iterator, context.partitionId(), number))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what all tasks have written: on the driver."""
        jobs.commit(self.job, _parts(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take everything back: on the driver."""
        jobs.abort(self.job, _parts(messages), tasks=len(messages))


def partition_id() -> int:
    """Return the number of the task that runs here."""
    context = TaskContext.get()
    assert context is not None, "Spark calls this in a task"
    return context.partitionId()


def writer_of(options: Mapping[str, str], schema: pa.Schema, *, overwrite: bool) -> TableWriter:
    """Begin a write.

    Raises:
        UsageError: an option or a column is wrong, or the frame is too large; nothing was written.
        OmidError: the store or its table cannot be written.
    """
    said = words(options)
    given = write_words(said)
    if overwrite and given.replaced is None:
        raise UsageError(OVERWRITE)
    if given.replaced is not None and not overwrite:
        raise UsageError(
            "row_start, row_stop and row_prefix name the rows that mode('overwrite') replaces; "
            "mode('append') writes where the frame's keys say"
        )
    if given.app_id is not None:
        raise UsageError("app_id names a stream; a write has an idempotency_key")
    shape = shape_of(said, schema)
    if shape.has_commit_ts:
        raise UsageError("_commit_ts is read alone; leave it out of the frame")
    check_names(shape, schema.names)
    if overwrite and (
        given.rows_per_transaction is not None or any(one.is_counter for one in shape.fields)
    ):
        raise UsageError(
            "mode('overwrite') deletes and writes in one transaction, and has neither counters nor "
            "rows_per_transaction"
        )
    jobs.check_counters(
        shape,
        is_conflict_free=given.is_conflict_free,
        rows_per_transaction=given.rows_per_transaction,
    )
    done_ts: int | None = None
    token, once, key = b"", None, given.idempotency_key
    has_end = False
    if key is not None:
        once = keyed_write(key, said.table, shape, given.replaced)
    try:
        with jobs.handing_on(said.place) as tm:
            place = said.place.seen(tm.store)
            client: int | None = getattr(tm.oracle, "client", None)
            if given.rows_per_transaction is None:
                jobs.check_size(
                    tm.session,
                    said.table,
                    shape,
                    given.estimated_rows,
                    is_conflict_free=given.is_conflict_free,
                )
                token = jobs.begin(
                    tm,
                    said.table,
                    shape,
                    hold_s=given.hold_s,
                    once=once,
                    is_fencing=given.is_fencing,
                )
            else:
                has_end = several.can_end(tm.session)
                with tm.begin() as tx:
                    jobs.check_target(tx, said.table, shape)
    except AlreadyCommitted as before:
        done_ts = before.commit_ts
        log.info("nothing is to be written to table %s: %s", said.table, before)
    return TableWriter(
        Job(
            place,
            said.table,
            shape,
            token,
            uuid.uuid4().hex,
            nulls=given.nulls,
            is_conflict_free=given.is_conflict_free,
            rows_per_transaction=given.rows_per_transaction,
            has_ops=OP in schema.names,
            has_end=has_end,
            client=client,
            replaced=given.replaced,
            once=once,
            done_ts=done_ts,
        )
    )


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[bytes]:
    return [one.part for one in messages if isinstance(one, PartMessage)]
