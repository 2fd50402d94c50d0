"""One client process of `omidpy verify`: transactions until its time is up, or until it is killed.

It is started by `verification.py`, which gives it everything as one JSON argument.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

import omidpy
from omidpy.base.documents import prepared
from omidpy.errors import ConfigError, OracleUnavailable
from omidpy.manager import TransactionManager
from omidpy.testing.clients import Client, run
from omidpy.testing.history import EventFile, Recorder
from omidpy.testing.workloads import standard_workloads

PAUSE_S: Final = 0.05
"""Between two looks for an oracle that is not there."""


class Assignment(msgspec.Struct, frozen=True):
    """What a client process is to do."""

    store: str
    tso: str
    prefix: str
    number: int
    seed: int
    until_s: float
    """By the monotonic clock, which the processes of a machine share."""
    least_s: float
    """A client that a busy machine lets start late works so long all the same."""
    post_commit: str
    history: str


def work(assignment: Assignment) -> None:
    """Do transactions until the time is up."""
    until_s = max(assignment.until_s, time.monotonic() + assignment.least_s)
    tm = _connected(assignment, until_s)
    if tm is None:
        return
    rng = random.Random(assignment.seed)
    workloads = standard_workloads(assignment.prefix)
    pause = threading.Event()
    with tm, EventFile(Path(assignment.history)) as sink:
        recorder = Recorder(str(assignment.number), sink)
        client = Client(tm, recorder, rng, number=assignment.number)
        while time.monotonic() < until_s and not recorder.is_full:
            before = recorder.event_count
            run(rng.choice(workloads).transaction(client))
            if recorder.event_count == before:
                pause.wait(PAUSE_S)


def _connected(assignment: Assignment, until_s: float) -> TransactionManager | None:
    """Connect as soon as the oracle is there; None if it does not come in time."""
    pause = threading.Event()
    while time.monotonic() < until_s:
        try:
            return omidpy.connect(
                assignment.store, tso=assignment.tso, post_commit=assignment.post_commit
            )
        except (OracleUnavailable, ConfigError):
            # While an oracle is started again its lease may name nobody.
            pause.wait(PAUSE_S)
    return None


def main() -> None:
    """Read the assignment and carry it out."""
    work(msgspec.json.decode(sys.argv[1], type=prepared(Assignment)))


if __name__ == "__main__":
    main()
