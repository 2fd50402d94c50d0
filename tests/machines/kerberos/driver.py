"""A driver of Spark that has a ticket, and tasks that have none: `... STORE TSO FILE`.

It writes a frame, reads it, compacts the store, reads changes as a frame and as a stream whose sink
is a table, and delivers a queue, and prints a line for each.
"""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import omidpy
import omidpy.spark
from compactor.options import Options
from compactor.shell import job
from compactor.shell.command import compact_address
from omidpy.recipes.export_queue import Batch, Exporter, ExportQueue
from omidpy.storage.handed import HandsOn
from tests.machines.kerberos.daemon import NOWHERE
from tests.machines.processes import ROOT

ROWS = 200


def main(store: str, tso: str, forms_file: str) -> None:
    """Write, read, compact; write into a file how the token would be shown."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = session.config("spark.log.level", "INFO")
    # Tasks are processes of this machine here; on others there would be no ticket either.
    session = session.config("spark.python.daemon.module", "tests.machines.kerberos.daemon")
    spark = session.config("spark.executorEnv.PYTHONPATH", str(ROOT)).getOrCreate()
    where = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ["KRB5CCNAME"])
    assert where.collect() == [NOWHERE], "a task has no ticket"
    omidpy.spark.register(spark)
    columns: Any = {"n": "cf:n"}
    try:
        with omidpy.connect(store, tso=tso) as tm:
            assert isinstance(tm.store, HandsOn)
            token = tm.store.token_to_hand_on()
            assert token is not None
            password = token.password
            forms = (repr(password)[2:-1], password.hex(), b64encode(password).decode())
            Path(forms_file).write_text("\n".join(forms))
            tm.create_table("frames", families=["cf"])
            frame = spark.range(ROWS, numPartitions=2).selectExpr(
                "cast(id as string) as id", "id as n"
            )
            with tm.begin() as tx:
                omidpy.spark.write(frame, tx, "frames", columns, key="id")
            with tm.begin(read_only=True) as tx:
                print("written", len(list(tx.table("frames").scan())), flush=True)
        executors = partial(job.executors_on_spark, spark.sparkContext)
        report = compact_address(store, tso, Options(), executors)
        print("compacted", report.rows_read, flush=True)
        _follow(spark, store, tso, Path(forms_file).with_name("checkpoint"))
        _deliver(spark, store, tso)
    finally:
        spark.stop()


def _follow(spark: SparkSession, store: str, tso: str, checkpoint: Path) -> None:
    """Read what was written as changes, and let a stream of them write another table."""
    places = {"store": store, "tso": tso}
    read = spark.read.format("omidpy-changes").options(**places, table="frames", snapshot="true")
    print("changed", read.load().count(), flush=True)
    with omidpy.connect(store, tso=tso) as tm:
        tm.create_table("followed", families=["cf"])
        source = spark.readStream.format("omidpy-changes").options(**places, table="frames").load()
        rows = source.selectExpr("cast(row as string) as id", "commit_ts as n")
        sink = rows.writeStream.format("omidpy").options(**places, table="followed")
        sink = sink.options(key="id", columns="n=cf:n", checkpointLocation=str(checkpoint))
        for row in (b"new", b"newer"):
            sink.trigger(availableNow=True).start().awaitTermination()
            with tm.begin() as tx:
                tx.table("frames").put(row, {b"cf:n": b"1"})
        with tm.begin(read_only=True) as tx:
            print("followed", len(list(tx.table("followed").scan())), flush=True)
    kept = b"".join(one.read_bytes() for one in checkpoint.rglob("*") if one.is_file())
    assert b"hbase" not in kept.lower(), "a checkpoint says nothing of the store"


def _deliver(spark: SparkSession, store: str, tso: str) -> None:
    """Deliver a queue by tasks."""
    with omidpy.connect(store, tso=tso) as tm:
        queue = ExportQueue.create(tm, "queue", buckets=2)
        with tm.begin() as tx:
            for number in range(5):
                queue.add(tx, b"%d" % number, number)
    count = omidpy.spark.export_once(spark, Nowhere, store=store, tso=tso, queue="queue")
    print("delivered", count, flush=True)


class Nowhere(Exporter):
    """Takes what it is given."""

    def export(self, batch: Batch) -> None:
        """Take it."""


if __name__ == "__main__":
    main(*sys.argv[1:])
