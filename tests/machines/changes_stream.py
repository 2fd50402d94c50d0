"""A Spark query over the changes of a table, in a process of its own that dies as it is told.

    python -m tests.machines.changes_stream FOLDER URL TSO DIES_AT [HOW]

Each batch is written to FOLDER/batches/<number>.json, as a sink does that knows batches by their
number.  DIES_AT is the number of a batch, and HOW says where it ends itself and Spark: `within`,
when it has read the rows, or `behind`, when they are in the file and the checkpoint does not know.
At its end it prints what a frame over the whole window has, by its kinds.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tests.machines.frames_session import death, streaming_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TABLE: Final = "stock"


Die: TypeAlias = "Callable[[int, str], None]"
"""Told the number of a batch, and where it is."""


def begin(spark: SparkSession, folder: Path, options: dict[str, str], die: Die) -> StreamingQuery:
    """Begin the query, which ends when all is read, or with the death."""

    def write(rows: Any, number: int) -> None:
        found = [
            [bytes(row.row).decode(), row.kind, bytes(row.value or b"").decode(), row.commit_ts]
            for row in rows.collect()
        ]
        die(number, "within")
        file = folder / "batches" / f"{number:05}.json"
        hidden = file.with_suffix(".part")
        hidden.write_text(json.dumps(found), "ascii")
        hidden.replace(file)
        die(number, "behind")

    (folder / "batches").mkdir(exist_ok=True)
    started = (
        spark.readStream.format("omidpy-changes")
        .options(**options)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    return started.trigger(availableNow=True).start()


def print_kinds(spark: SparkSession, options: dict[str, str]) -> None:
    """Print what a frame over the whole window has, by its kinds."""
    frame = spark.read.format("omidpy-changes").options(**options).load()
    print(json.dumps(Counter(row.kind for row in frame.collect())))


def main(folder: Path, url: str, tso: str, dies_at: int, how: str) -> None:
    """Run the query."""
    with streaming_session() as spark:
        options = {"store": url, "tso": tso, "table": TABLE}
        begin(spark, folder, options, death(spark, dies_at, how)).awaitTermination()
        print_kinds(spark, options)


if __name__ == "__main__":
    how = sys.argv[5] if len(sys.argv) > 5 else ""
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), how)
