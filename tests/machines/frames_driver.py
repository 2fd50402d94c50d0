"""The driver of a Spark job that writes a frame, to be killed: `python -m ... STORE TSO WHERE`.

It prints `ready` at the point it was told, and waits there for its end.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from pyspark.sql import SparkSession

import omidpy
import omidpy.spark

WHERE = ("begun", "written", "committed")


def main(store: str, tso: str, where: str) -> None:
    """Write 100 rows in one transaction, and stop at a point of it."""
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    frame = spark.range(100, numPartitions=2).selectExpr("cast(id as string) as id", "id as n")
    with omidpy.connect(store, tso=tso) as tm:
        tx = tm.begin(hold_s=60)
        columns: Any = {"n": "cf:n"}
        _stop(where, "begun")
        omidpy.spark.write(frame, tx, "t", columns, key="id")
        _stop(where, "written")
        tx.commit()
        _stop(where, "committed")


def _stop(where: str, here: str) -> None:
    if where == here:
        print("ready", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
