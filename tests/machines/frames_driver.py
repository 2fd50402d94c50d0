"""The driver of a Spark job that writes a frame, to be killed or stalled where it is told.

    python -m tests.machines.frames_driver STORE TSO WHERE FOLDER

At the point it prints `ready TOKEN PID`, and goes on when it reads a line.  At its end it prints
what became of the transaction, and its token again, which names a cell by then.

PID is that of the Python process of a task that waits at `parted`, where one of two tasks has
handed its part back, and the other one has read nothing; it goes on when there is a file FOLDER/go.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import omidpy
import omidpy.spark
from omidpy.errors import TransactionAborted

WHERE: Final = ("begun", "parted", "written", "decided", "committed")
ROWS: Final = 100
_POLL_S: Final = 0.05


def main(store: str, tso: str, where: str, folder: str) -> None:
    """Write 100 rows in one transaction, and stop at a point of it."""
    spark = (
        SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false").getOrCreate()
    )
    frame = spark.range(ROWS, numPartitions=2).selectExpr("cast(id as string) as id", "id as n")
    if where == "parted":
        frame = frame.mapInArrow(partial(waiting, folder), frame.schema)
    with omidpy.connect(store, tso=tso, post_commit="sync") as tm:
        tx = tm.begin(hold_s=600)
        token = tx.token()

        def stop(here: str, pid: int = 0) -> None:
            if here == where:
                print("ready", token.hex(), pid, flush=True)
                sys.stdin.readline()

        tm.session.on_step = stop
        columns: Any = {"n": "cf:n"}
        stop("begun")
        if where == "parted":
            threading.Thread(target=say_when_parted, args=(spark, folder, stop)).start()
        try:
            omidpy.spark.write(frame, tx, "t", columns, key="id")
            token = tx.token()
            stop("written")
            tx.commit()
        except TransactionAborted as error:
            print("aborted", token.hex(), type(error).__name__, flush=True)
        else:
            stop("committed")
            print("committed", token.hex(), tx.commit_ts, flush=True)
    spark.stop()


def waiting(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Let the second task wait for a file, and say who it is."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 1:
        hidden = Path(folder, "pid.part")
        hidden.write_text(str(os.getpid()))
        hidden.replace(Path(folder, "pid"))
        while not Path(folder, "go").exists():
            time.sleep(_POLL_S)
    yield from batches


def say_when_parted(spark: SparkSession, folder: str, stop: Any) -> None:
    """Wait until one task has ended, and the other one waits."""
    tracker = spark.sparkContext.statusTracker()
    pid = Path(folder, "pid")
    while True:
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        if pid.exists() and any(one is not None and one.numCompletedTasks for one in stages):
            stop("parted", int(pid.read_text()))
            return
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
