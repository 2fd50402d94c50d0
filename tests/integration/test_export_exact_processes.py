"""Exactly once into PostgreSQL and files, by processes that are killed and stopped at any step.

As into Kafka (`test_export_kafka_exactly.py`): each entry is there once, and those of a key in
their order, however many owners have died or slept.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from omidpy.connect import connect
from omidpy.recipes.export_queue import ExportQueue
from tests.machines.export_processes import QUEUE, Work, is_stopped, run, start
from tests.machines.postgresql import Postgresql
from tests.machines.processes import tso_server
from tests.machines.waiting import wait_for

pytestmark = pytest.mark.integration

KEYS: Final = [b"%d" % key for key in range(5)]
STEPS_OF_A_BATCH: Final = 5
NIGHT: Final = pytest.mark.nightly
Seen = dict[bytes, list[Any]]


@pytest.fixture(params=["files", "PostgreSQL"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Callable[[], Seen]]:
    """Return where entries go, and how they are read there, by key and in their order."""
    if request.param == "files":
        folder = tmp_path / "out"
        return f"jsonl:{folder}", partial(_of_files, folder)
    server: Postgresql = request.getfixturevalue("postgresql")
    return server.url, partial(_of_rows, server)


def _of_files(folder: Path) -> Seen:
    # Of one bucket the names of files are in order; a key is in one bucket.
    found: Seen = {}
    for file in sorted(folder.glob("*.jsonl")):
        for one in map(json.loads, file.read_text("utf-8").splitlines()):
            found.setdefault(one["key"].encode(), []).append(one["value"])
    return found


def _of_rows(server: Postgresql) -> Seen:
    found: Seen = {}
    with server.connect() as connection:
        rows = connection.execute("SELECT key, value FROM entries ORDER BY commit_ts, ordinal")
        for key, value in rows:
            found.setdefault(bytes(key), []).append(value)
    return found


@pytest.fixture
def work(
    receiver: tuple[str, Callable[[], Seen]], tmp_path: Path
) -> Iterator[tuple[Work, ExportQueue]]:
    """Return what a process is to do, and the queue."""
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    with tso_server(url) as server, connect(url, server.address) as tm:
        queue = ExportQueue.create(tm, QUEUE, buckets=2)
        add(queue, *range(4))
        to = receiver[0]
        append = to.startswith("postgresql")
        made = Work(
            url, server.address, tmp_path, to=to, append=append, buffer_bytes=300, lease_s=1.0
        )
        yield made, queue


def add(queue: ExportQueue, *numbers: int) -> None:
    """Add an entry to each key, in a transaction for each number."""
    for number in numbers:
        with queue._tm.begin() as tx:
            queue.add_all(tx, [(key, number) for key in KEYS])


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((3, 8), id="two"),
        pytest.param([*range(1, 3 * STEPS_OF_A_BATCH), 3, 3], id="each", marks=NIGHT),
    ],
)
def test_processes_that_are_killed_bring_nothing_twice(
    receiver: tuple[str, Callable[[], Seen]],
    work: tuple[Work, ExportQueue],
    steps: Sequence[int],
) -> None:
    """SIGKILL, one after the other, each at a step of its own; and nothing is missing."""
    what, queue = work
    died = 0
    for turn, step in enumerate(steps, 1):
        died += run(replace(what, dies_at=step))
        add(queue, *range(4 * turn, 4 * turn + 4))
    assert died == len(steps), "something was left for each"
    assert not run(what)
    assert queue.lag().entries == 0
    everything = list(range(4 * len(steps) + 4))
    assert receiver[1]() == dict.fromkeys(KEYS, everything)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((3,), id="behind a delivery"),
        pytest.param(range(1, 2 * STEPS_OF_A_BATCH), id="each", marks=NIGHT),
    ],
)
def test_a_process_that_is_stopped_and_goes_on_brings_nothing_twice(
    receiver: tuple[str, Callable[[], Seen]],
    work: tuple[Work, ExportQueue],
    steps: Sequence[int],
) -> None:
    """SIGSTOP: another one takes over and finishes, and the first wakes behind it."""
    what, queue = work
    for number, step in enumerate(steps, 4):
        stopped = start(replace(what, stops_at=step))
        wait_for(partial(is_stopped, stopped.pid), 60.0)
        assert not run(what)
        assert queue.lag().entries == 0
        os.kill(stopped.pid, signal.SIGCONT)
        stopped.join(60.0)
        assert stopped.exitcode == 0
        add(queue, number)
    assert not run(what)
    everything = list(range(4 + len(steps)))
    assert receiver[1]() == dict.fromkeys(KEYS, everything)
