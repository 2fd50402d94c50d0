"""A job of frames for `spark-submit`: it writes a table, reads it, follows it, and prints.

spark-submit ... tests/machines/frames_cluster.py STORE TSO CHECKPOINT
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import SparkSession

import omidpy
import omidpy.spark

ROWS: Final = 1000


def main(store: str, tso: str, checkpoint: str) -> None:
    """Write in two transactions, read at one snapshot and by a stream, all by executors."""
    spark = SparkSession.builder.getOrCreate()
    omidpy.spark.register(spark)

    def where(_: Iterable[int]) -> Iterable[str]:
        import omidpy as found

        yield str(found.__file__)

    for file in set(spark.sparkContext.parallelize([0, 1], 2).mapPartitions(where).collect()):
        print("omidpy of a task:", file, flush=True)
    frame = spark.range(ROWS, numPartitions=4).selectExpr(
        "format_string('%04d', id) as id", "id as n"
    )
    columns: Any = {"n": ("cf:n", "bigint")}
    options = {"store": store, "tso": tso, "table": "t", "key": "id", "columns": "n=cf:n"}
    with omidpy.connect(store, tso=tso) as tm:
        for table in ("t", "copy"):
            tm.create_table(table, ["cf"], splits=[b"05"])
        before = tm.begin(read_only=True).start_ts
        with tm.begin() as tx:
            omidpy.spark.write(frame, tx, "t", columns, key="id")
        twice = frame.selectExpr("id", "n * 2 as n")
        twice.write.format("omidpy").options(**options).mode("append").save()
        changes = spark.readStream.format("omidpy-changes").options(
            store=store, tso=tso, table="t", since=str(before)
        )
        followed = changes.load().selectExpr(
            "concat(cast(row as string), '@', commit_ts) as id", "1L as n"
        )
        sink = followed.writeStream.format("omidpy").options(**options | {"table": "copy"})
        sink = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        sink.start().awaitTermination()
        for table in ("t", "copy"):
            read = omidpy.spark.read(spark, tm, table, columns, key={"id": "string"})
            found = read.selectExpr("count(*)", "sum(n)").first() or ()
            print(f"rows and sum of {table}:", *found, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
