"""Saves frames in a Spark of its own, as a program of some checkout does; told by its input.

    python saver.py        with the checkout on PYTHONPATH, and an S3 server around it

Each line of the input is the address of a folder and a number of files, as JSON; each line of the
output, the first but for `null`, says when a save has begun and ended, in monotonic seconds.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession

import omidpy.committers.spark

ROWS_A_FILE = 10_000


def main() -> None:
    """Save whatever is asked for."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    omidpy.committers.spark.register(spark)
    print("null", flush=True)
    for line in sys.stdin:
        address, files, options = json.loads(line)
        numbers = spark.range(files * ROWS_A_FILE, numPartitions=files)
        frame = numbers.selectExpr("id", "id % 7 as kind", "sha1(cast(id as string)) as text")
        began_s = time.monotonic()
        frame.write.format("omidpy-parquet").mode("append").options(**options).save(address)
        print(json.dumps([began_s, time.monotonic()]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
