"""A Spark query over an export queue, in a process of its own that dies as it is told.

    python -m tests.machines.export_stream FOLDER URL TSO DIES_AT [HOW]

Each batch is written to FOLDER/batches/<number>.json, as a sink does that knows batches by their
number.  DIES_AT is the number of a batch, and HOW says where it ends itself and Spark: `within`,
when it has read the rows, or `behind`, when they are in the file and the checkpoint does not know.
Then what is left is delivered by `export_once`, into FOLDER/files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import omidpy.spark
from omidpy.recipes.export_queue import Exporter
from tests.machines.export_processes import QUEUE
from tests.machines.frames_session import death, streaming_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MOST: int = 20


def main(folder: Path, url: str, tso: str, dies_at: int, how: str) -> None:
    """Run the query until all is read, or until the death."""
    with streaming_session() as spark:
        begin(spark, folder, url, tso, death(spark, dies_at, how)).awaitTermination()
        export_the_rest(spark, folder, url, tso)


def begin(
    spark: SparkSession, folder: Path, url: str, tso: str, die: Callable[[int, str], None]
) -> StreamingQuery:
    """Begin the query, which ends when all is read, or with the death."""

    def write(rows: Any, number: int) -> None:
        found = [
            [bytes(row.key).decode(), json.loads(bytes(row.value)), row.commit_ts, row.bucket]
            for row in rows.collect()
        ]
        die(number, "within")
        file = folder / "batches" / f"{number:05}.json"
        hidden = file.with_suffix(".part")
        hidden.write_text(json.dumps(found), "ascii")
        hidden.replace(file)
        die(number, "behind")

    (folder / "batches").mkdir(exist_ok=True)
    stream = (
        spark.readStream.format("omidpy-export")
        .option("store", url)
        .option("tso", tso)
        .option("queue", QUEUE)
        .option("maxEntriesPerTrigger", MOST)
        .load()
    )
    started = stream.writeStream.foreachBatch(write)
    started = started.option("checkpointLocation", str(folder / "checkpoint"))
    return started.trigger(availableNow=True).start()


def export_the_rest(spark: SparkSession, folder: Path, url: str, tso: str) -> None:
    """Deliver what the last batch has left in the queue, and print how much that was."""
    files = str(folder / "files")

    def make() -> Exporter:
        from omidpy.recipes.export_queue.sinks import JsonLinesSink

        return JsonLinesSink(files)

    count = omidpy.spark.export_once(spark, make, store=url, tso=tso, queue=QUEUE)
    print(json.dumps({"left": count}))


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        sys.argv[2],
        sys.argv[3],
        int(sys.argv[4]),
        sys.argv[5] if len(sys.argv) > 5 else "",
    )
