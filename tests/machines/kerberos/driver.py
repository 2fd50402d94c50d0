"""A driver of Spark that has a ticket, and tasks that have none: `... STORE TSO FILE`.

It writes a frame, reads it, and compacts the store, and prints a line for each.
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
from omidpy.storage.handed import HandsOn

ROWS = 200


def main(store: str, tso: str, forms_file: str) -> None:
    """Write, read, compact; write into a file how the token would be shown."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = session.config("spark.log.level", "INFO")
    # Tasks are processes of this machine here; on others there would be no ticket either.
    session = session.config("spark.executorEnv.KRB5CCNAME", "FILE:/nowhere")
    spark = session.config("spark.executorEnv.KRB5_CONFIG", "/nowhere").getOrCreate()
    where = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ["KRB5CCNAME"])
    assert where.collect() == ["FILE:/nowhere"], "a task has no ticket"
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
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
