"""What of a Spark worker's memory is never garbage?  Modules and clients, once they are there.

Spark's Python workers run one task after another, and collect garbage after each: a walk through
all that the process holds, 110,000 objects once pyarrow and boto3 are loaded, which takes several
times as long as a small file does.  What has come to stay is settled: the collector does not see it
any more, and its walk takes no time.

    M4  a process settles at most MOST_SETTLINGS times, and never garbage: what it may lose for good
        is what was alive then and ends in a cycle of references later
"""

from __future__ import annotations

import gc
import os
import threading
from typing import Final

NEW_OBJECTS: Final = 10_000
"""Fewer are walked through in a few milliseconds."""
MOST_SETTLINGS: Final = 4
"""After its first task a worker has its modules, and later perhaps a client, which a job of small
files needs none of."""
REUSED: Final = "SPARK_REUSE_WORKER"
"""What Spark sets around workers that outlive a task, which is `spark.python.worker.reuse`."""

TASKS_END_S: Final = 6.0
"""So long after a failed job its tasks may run: Spark looks every two seconds whether one is to
end, gives it `spark.python.task.killTimeout`, two more, and then kills its process."""

_never: Final = threading.Event()


def wait_for_tasks() -> None:
    """Wait until the tasks of a job that has failed have ended."""
    _never.wait(TASKS_END_S)


class Settler:
    """Counts how often this process has settled."""

    def __init__(self) -> None:
        """Begin with nothing moved out of the collector's sight."""
        self._left = MOST_SETTLINGS

    def settle(self) -> None:
        """Move what has come since the last time out of the collector's sight, if it is much.

        Call it where a task ends and has let go of what it held.
        """
        if REUSED not in os.environ or not self._left or len(gc.get_objects()) < NEW_OBJECTS:
            return
        gc.collect()
        gc.freeze()
        self._left -= 1
