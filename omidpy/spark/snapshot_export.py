"""Writes a snapshot of tables by the tasks of one Spark job.

Each task opens the store by its address, reads a region at the snapshot that the driver holds, and
uploads; its answer goes to the driver, which commits.  A task that Spark runs again writes anew;
what its lost attempts have uploaded is swept by the job's id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from omidpy.base.telemetry.stages import described
from omidpy.committers.snapshots import Portion, Run, Work, write_portion
from omidpy.committers.spark.settling import wait_for_tasks
from omidpy.committers.values import TaskMessage
from omidpy.connect import connect
from omidpy.opening import open_store
from omidpy.storage.handed import handed
from omidpy.storage.spreading import spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_on(spark: SparkSession, *, store: str, tso: str) -> Run:
    """Return what runs the tasks of an export in a session.

    Args:
        spark: The session.
        store: The address of the store, as executors reach it.
        tso: That of its oracle.
    """

    def run(work: Work, progress: Callable[[int, int], None]) -> list[TaskMessage]:
        with closing(open_store(store, must_exist=True)) as opened:
            sent = handed(opened, store).of(opened)
            portions = spread(opened, work.portions, lambda one: (one.table, one.start))

        def write(portions: Iterable[Portion]) -> Iterator[TaskMessage]:
            from pyspark import TaskContext  # noqa: PLC0415 - on an executor

            context = TaskContext.get()
            assert context is not None, "Spark calls this in a task"
            with sent.opened(partial(connect, tso=tso)) as tm:
                for one in portions:
                    # Which no other attempt has, also where the stage is run again.
                    yield write_portion(tm, work, one, attempt=context.taskAttemptId())

        work.made.sweep = "always"
        count = len(portions)
        progress(0, count)
        messages = spark.sparkContext.parallelize(portions, count).mapPartitions(write)
        with described(spark, f"omidpy: export a snapshot of {store} to {work.made.folder.url}"):
            try:
                found: list[TaskMessage] = messages.collect()
            except Exception:
                # Who takes the job back looks for uploads, and other tasks of it still run.
                wait_for_tasks()
                raise
        progress(count, count)
        return found

    return run
