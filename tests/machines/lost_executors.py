"""Executors of a real Spark that are killed, or suspended and come back, while a task runs.

    frame.mapInArrow(halting(folder), frame.schema)

The first attempt at task 0 of each batch says who it is behind its first rows, in FOLDER/<batch>-0,
and waits there for FOLDER/go-<batch>; the next attempts say so, too, and wait for nobody.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

HEARTBEATS: Final = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "8s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "8000",
    "spark.network.timeoutInterval": "2s",
    "spark.task.maxFailures": "6",
}
"""Settings of a session that soon takes an executor for lost."""
LONGEST_S: Final = 90.0
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
_POLL_S: Final = 0.05


def halting(folder: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what lets the first attempts at task 0 wait in their middle."""

    def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.getLocalProperty("streaming.sql.batchId") or "0"
        has_said = context.partitionId() != 0
        for batch in batches:
            yield batch
            if has_said:
                continue
            has_said = True
            hidden = Path(folder, f"{number}-{context.attemptNumber()}.part")
            hidden.write_text(str(os.getpid()))
            hidden.replace(hidden.with_suffix(""))
            if not context.attemptNumber():
                wait_for(Path(folder, f"go-{number}"))

    return pass_on


def wait_for(file: Path) -> Path:
    """Wait for a file; return it."""
    until_s = time.monotonic() + LONGEST_S
    while not file.exists():
        assert time.monotonic() < until_s, f"{file} does not come"
        time.sleep(_POLL_S)
    return file


class Executor:
    """The executor of a task: its Java, and what runs below it."""

    def __init__(self, file: Path) -> None:
        """Find it by what the task says of itself."""
        pid = int(wait_for(file).read_text())
        while _EXECUTOR not in Path(f"/proc/{pid}/cmdline").read_bytes():
            pid = _parent(pid)
        self._java = pid
        self._pids = [pid, *_below(pid)]

    def kill(self) -> None:
        """Kill its Java; what runs below it ends with that, or goes on for a moment."""
        os.kill(self._java, signal.SIGKILL)

    def suspend(self) -> None:
        """Let nothing of it run."""
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again, as far as it is there."""
        for pid in self._pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue

    def wait_gone(self) -> None:
        """Wait until Spark has ended it, which it had given up."""
        until_s = time.monotonic() + LONGEST_S
        while any(map(_is_running, self._pids)):
            assert time.monotonic() < until_s, "it goes on for ever"
            time.sleep(_POLL_S)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _below(pid: int) -> list[int]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            found += [child, *_below(child)]
    return found


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
