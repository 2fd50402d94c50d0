"""A job of frames for `spark-submit`: it writes a table, reads it, and prints what it found.

spark-submit ... tests/machines/frames_cluster.py STORE TSO
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

import omidpy
import omidpy.spark

ROWS = 1000


def main(store: str, tso: str) -> None:
    """Write in one transaction, read at one snapshot, by executors."""
    spark = SparkSession.builder.getOrCreate()
    omidpy.spark.register(spark)

    def where(_: Iterable[int]) -> Iterable[str]:
        import omidpy as found

        yield f"{socket.gethostname()} {found.__file__}"

    for line in sorted(
        set(spark.sparkContext.parallelize([0, 1], 2).mapPartitions(where).collect())
    ):
        print("omidpy of a task:", line, flush=True)
    frame = spark.range(ROWS, numPartitions=4).selectExpr(
        "format_string('%04d', id) as id", "id as n"
    )
    columns: Any = {"n": ("cf:n", "bigint")}
    with omidpy.connect(store, tso=tso) as tm:
        tm.create_table("t", ["cf"], splits=[b"05"])
        with tm.begin() as tx:
            omidpy.spark.write(frame, tx, "t", columns, key="id")
        options = {"store": store, "tso": tso, "table": "t", "key": "id", "columns": "n=cf:n"}
        twice = frame.selectExpr("id", "n * 2 as n")
        twice.write.format("omidpy").options(**options).mode("append").save()
        read = omidpy.spark.read(spark, tm, "t", columns, key={"id": "string"})
        print("rows and sum:", *read.selectExpr("count(*)", "sum(n)").first() or (), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
