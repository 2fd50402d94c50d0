"""The queries of `changes_stream`, `export_stream` and `frames_stream` in one process, which dies.

    python -m tests.machines.mortal_streams FOLDER URL TSO

The sink comes to its point behind the commit of its first batch, and waits there; so does the query
over a queue behind the file of its second one; then the query over changes comes to its own, behind
the file of its first batch, and kills all.  `go` lets another session go on where they were.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

import omidpy
from tests.machines import changes_stream, export_stream, frames_stream
from tests.machines.frames_session import java_of, streaming_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINK, FEED, QUEUE = "sink", "feed", "queue"
"""Their folders."""
_POLL_S: Final = 0.05


def main(folder: Path, url: str, tso: str) -> None:
    """Run all until the death."""
    sink = folder / SINK
    os.environ[frames_stream.FOLDER] = str(sink)
    (sink / "dies").write_text(f"0 behind {frames_stream.WAITS}")
    with streaming_session() as spark:
        spark.dataSource.register(frames_stream.MortalSource)
        go(spark, folder, url, tso, dies=True)


def go(spark: SparkSession, folder: Path, url: str, tso: str, *, dies: bool = False) -> None:
    """Run all until all is read, or until the death."""
    sink, feed, queue = folder / SINK, folder / FEED, folder / QUEUE
    options = {"store": url, "tso": tso, "table": changes_stream.TABLE}
    with omidpy.connect(url, tso=tso) as tm:

        def die(number: int, where: str) -> None:
            if dies and (number, where) == (0, "behind"):
                kill(spark)

        waiting = threading.Event()

        def wait(number: int, where: str) -> None:
            if dies and (number, where) == (1, "behind"):
                waiting.set()
                threading.Event().wait()

        first = frames_stream.begin(spark, tm, sink, tso, "format")
        second = export_stream.begin(spark, queue, url, tso, wait)
        if dies:
            while first.isActive and not (sink / frames_stream.WAITS).exists():
                time.sleep(_POLL_S)
            while second.isActive and not waiting.wait(_POLL_S):
                pass
        else:
            first.awaitTermination()
            second.awaitTermination()
        try:
            changes_stream.begin(spark, feed, options, die).awaitTermination()
        except BaseException:
            traceback.print_exc()
            if dies:
                kill(spark, exit_code=1)
            raise
        export_stream.export_the_rest(spark, queue, url, tso)
        changes_stream.print_kinds(spark, options)


def kill(spark: SparkSession, *, exit_code: int | None = None) -> None:
    """End Spark, whose sink waits for ever, and this process; without a code by a signal."""
    os.kill(java_of(spark), signal.SIGKILL)
    if exit_code is not None:
        os._exit(exit_code)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
