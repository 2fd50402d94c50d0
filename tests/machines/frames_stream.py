"""A Spark query that writes a stream into a table, in a process that dies as it is told.

    python -m tests.machines.frames_stream FOLDER URL TSO KIND DIES_AT [HOW]

Its input is files in FOLDER/input, one a batch, of rows with an `id` and an `n`.  KIND is `format`,
a sink; `fence`, one that fences its table; `each`, a function for each batch; all add `n` to a
counter, so that what is written twice is seen.  With `overwrite` a function replaces the rows by
those of the batch, under a key of the batch.

DIES_AT is the number of a batch, and HOW says where Spark dies with its driver: `before` the
commit, when all tasks have written, or `behind` it, when no checkpoint knows.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import omidpy.spark
from omidpy.spark.frames.source import OmidSource
from omidpy.spark.frames.streaming import BatchWriter
from omidpy.spark.frames.writing import TableWriter

TABLE: Final = "t"
_FOLDER: Final = "OMIDPY_TEST_FOLDER"


def _die(folder: Path, number: int, how: str) -> None:
    """Kill everybody, if it is the time."""
    if (folder / "dies").read_text() == f"{number} {how}":
        for pid in (folder / "pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class _MortalWriter(BatchWriter):
    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit, and die."""
        folder = Path(os.environ[_FOLDER])
        _die(folder, batchId, "before")
        super().commit(messages, batchId)
        _die(folder, batchId, "behind")


class _MortalTableWriter(TableWriter):
    number: int

    def commit(self, messages: Any) -> None:
        """Commit, and die."""
        folder = Path(os.environ[_FOLDER])
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


def main(folder: Path, url: str, tso: str, kind: str) -> None:
    """Run the query until all is read, or until the death."""
    from pyspark.sql import SparkSession

    os.environ[_FOLDER] = str(folder)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    java: Any = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # it is there
    (folder / "pids").write_text(f"{java} {os.getpid()}")
    omidpy.spark.register(spark)
    spark.dataSource.register(MortalSource)
    frame = (
        spark.readStream.schema("id string, n bigint")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "input"))
    )
    started = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    with omidpy.connect(url, tso=tso) as tm:
        where = {"store": url, "tso": tso, "table": TABLE, "key": "id"}
        if kind in ("format", "fence"):
            conflict = "fence" if kind == "fence" else "check"
            started = started.format("omidpy").options(
                **where, columns="n=cf:n counter", conflict=conflict
            )
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
        started.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    where = Path(sys.argv[1])
    (where / "dies").write_text(" ".join(sys.argv[5:]))
    main(where, *sys.argv[2:5])
