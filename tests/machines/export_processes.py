"""Exporters that are processes: each appends what it is given to one file, durably, and may die."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from omidpy.connect import connect
from omidpy.recipes.export_queue import Batch, Exporter, ExportQueue
from omidpy.recipes.export_queue.sinks.address import sink_at
from tests.machines.forks import PROCESSES

QUEUE: Final = "q"
LONGEST_S: Final = 120.0


@dataclass(frozen=True)
class Work:
    """What one process is to do."""

    url: str
    tso: str
    file: Path
    dies_at: int | None = None
    """At the step of this number it is killed, from 1."""
    stops: bool = False
    """Whether it is stopped before it writes its first batch."""
    to: str | None = None
    """Where it delivers to, as the command line has it; None: lines into `file`."""
    at_least_once: bool = False
    """Whether it is told to be content with that."""
    append: bool = False
    """Whether a table has a row for every entry."""
    stops_at: int | None = None
    """At the step of this number it is stopped, from 1, until somebody lets it go on."""
    buffer_bytes: int = 200
    lease_s: float = 10.0


class Lines(Exporter):
    """Appends a line for each entry."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._is_first = True

    def export(self, batch: Batch) -> None:
        """Append, and sync."""
        if self._is_first and self._work.stops:
            self._is_first = False
            os.kill(os.getpid(), signal.SIGSTOP)
        lines = [
            json.dumps([entry.key.decode(), entry.value, *entry.seq, batch.fence])
            for entry in batch
        ]
        with self._work.file.open("a", encoding="ascii") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())


def export(work: Work) -> None:
    """Deliver what is there, or die."""
    count = 0

    def on_step(_: str) -> None:
        nonlocal count
        count += 1
        if count == work.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if count == work.stops_at:
            os.kill(os.getpid(), signal.SIGSTOP)

    sink: Exporter = Lines(work)
    if work.to is not None:
        sink = sink_at(work.to, append=work.append, at_least_once=work.at_least_once)
    with connect(work.url, work.tso) as tm:
        ExportQueue.open(tm, QUEUE).run_once(
            sink, buffer_bytes=work.buffer_bytes, lease_s=work.lease_s, on_step=on_step
        )


def start(work: Work) -> Any:
    """Start a process."""
    process = PROCESSES.Process(target=export, args=(work,), daemon=True)
    process.start()
    return process


def run(work: Work) -> bool:
    """Let a process run to its end; say whether it was killed."""
    process = start(work)
    process.join(LONGEST_S)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return bool(process.exitcode)


def is_stopped(pid: int) -> bool:
    """Say whether a process was stopped, and not let go on."""
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "T"


def lines(file: Path) -> list[list[Any]]:
    """Return [key, value, commit_ts, ordinal, fence] of what was delivered, in order."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text("ascii").splitlines()]
