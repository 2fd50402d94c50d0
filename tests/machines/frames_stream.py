"""A Spark query that writes a stream into a table, in a process that dies as it is told.

    python -m tests.machines.frames_stream FOLDER URL TSO KIND DIES_AT [HOW]

Its input is files in FOLDER/input, one a batch, of rows with an `id` and an `n`.  KIND is `format`,
a sink; `each`, a function for each batch; `fence`, one whose write fences the table; all add `n` to
a counter, so that what is written twice is seen.  With `overwrite` a function replaces the rows by
those of the batch, under a key of the batch.

DIES_AT is the number of a batch, and HOW says where Spark dies with its driver: `before` the
commit, when all tasks have written, or `behind` it, when no checkpoint knows.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import omidpy.spark
from omidpy.spark.frames.source import OmidSource
from omidpy.spark.frames.writes.streaming import BatchWriter
from omidpy.spark.frames.writes.writing import TableWriter
from tests.machines.frames_session import java_of, streaming_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from omidpy.manager import TransactionManager

TABLE: Final = "t"
WAITS: Final = "waits"
"""What stands behind HOW, where it is another query that kills all."""
FOLDER: Final = "OMIDPY_TEST_FOLDER"
"""Names the variable that has it before Spark starts, whose Python processes must know."""


def _die(folder: Path, number: int, how: str) -> None:
    """Kill everybody, if it is the time; or wait for another one to do it."""
    said = (folder / "dies").read_text().split()
    if said[:2] == [str(number), how]:
        if said[2:] == [WAITS]:
            (folder / WAITS).touch()
            threading.Event().wait()
        for pid in (folder / "pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class _MortalWriter(BatchWriter):
    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit, and die."""
        folder = Path(os.environ[FOLDER])
        _die(folder, batchId, "before")
        super().commit(messages, batchId)
        _die(folder, batchId, "behind")


class _MortalTableWriter(TableWriter):
    number: int

    def commit(self, messages: Any) -> None:
        """Commit, and die."""
        folder = Path(os.environ[FOLDER])
        _die(folder, self.number, "before")
        super().commit(messages)
        _die(folder, self.number, "behind")


class MortalSource(OmidSource):
    """The format, whose commits kill the driver."""

    def writer(self, schema: Any, overwrite: bool) -> TableWriter:  # noqa: FBT001 - Spark's
        """Return what dies, in the batch that its key names."""
        made = super().writer(schema, overwrite)
        made.__class__ = _MortalTableWriter
        made.number = int(self.options["idempotency_key"])  # type: ignore[attr-defined]  # as made
        return made

    def streamWriter(self, schema: Any, overwrite: bool) -> BatchWriter:  # noqa: FBT001, N802 - Spark's
        """Return what dies."""
        made = super().streamWriter(schema, overwrite)
        made.__class__ = _MortalWriter
        return made


def begin(
    spark: SparkSession, tm: TransactionManager, folder: Path, tso: str, kind: str
) -> StreamingQuery:
    """Begin the query, which ends when all is read, or with the death."""
    (folder / "pids").write_text(f"{java_of(spark)} {os.getpid()}")
    frame = (
        spark.readStream.schema("id string, n bigint")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "input"))
    )
    started = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    where = {"store": tm.store.url, "tso": tso, "table": TABLE, "key": "id"}
    if kind == "format":
        started = started.format("omidpy").options(**where, columns="n=cf:n counter")
    elif kind == "fence":

        def fencing(rows: Any, number: int) -> None:
            writer = rows.write.format("omidpy").options(**where, columns="n=cf:n counter")
            writer = writer.option("idempotency_key", str(number)).option("conflict", "fence")
            writer.mode("append").save()

        started = started.foreachBatch(fencing)
    elif kind == "overwrite":

        def replace(rows: Any, number: int) -> None:
            writer = rows.write.format("omidpy").options(**where, columns="n=cf:n")
            writer = writer.option("idempotency_key", str(number)).option("row_start", "a")
            writer.mode("overwrite").save()

        started = started.foreachBatch(replace)
    else:

        def apply(tx: Any, rows: Any, number: int) -> None:
            columns: Any = {"n": ("cf:n", "counter")}
            omidpy.spark.write(rows, tx, TABLE, columns, key="id")
            _die(folder, number, "before")
            tx.after_commit(lambda _: _die(folder, number, "behind"))

        started = started.foreachBatch(omidpy.spark.each_batch(tm, apply))
    return started.trigger(availableNow=True).start()


def main(folder: Path, url: str, tso: str, kind: str) -> None:
    """Run the query."""
    os.environ[FOLDER] = str(folder)
    with streaming_session() as spark, omidpy.connect(url, tso=tso) as tm:
        spark.dataSource.register(MortalSource)
        begin(spark, tm, folder, tso, kind).awaitTermination()


if __name__ == "__main__":
    where = Path(sys.argv[1])
    (where / "dies").write_text(" ".join(sys.argv[5:]))
    main(where, *sys.argv[2:5])
