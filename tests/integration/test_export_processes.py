"""Exporters that are real processes, killed and stopped: nothing is lost, and order is kept."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from omidpy.connect import connect
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import ExportQueue
from tests.machines.export_processes import QUEUE, Work, lines, run, start
from tests.machines.processes import tso_server
from tests.machines.waiting import wait_for

pytestmark = pytest.mark.integration


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    """Return a store with an oracle, and a file to deliver to."""
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    with tso_server(url) as server:
        yield Work(url, server.address, tmp_path / "lines.json")


@pytest.fixture
def tm(work: Work) -> Iterator[TransactionManager]:
    """Return a manager of the adder."""
    with connect(work.url, work.tso) as manager:
        yield manager


@pytest.mark.parametrize(
    "kills", [50, pytest.param(1000, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)])]
)
def test_whenever_exporters_are_killed_nothing_is_lost(
    work: Work, tm: TransactionManager, kills: int
) -> None:
    """At a random step of a random batch; and no more comes twice than one batch for each death."""
    chance = random.Random(13)
    queue = ExportQueue.create(tm, QUEUE, buckets=3)
    added = 1
    deaths = 0
    slow = tm.begin()
    queue.add(slow, b"slow", 0)
    while deaths < kills:
        with tm.begin() as tx:
            for _ in range(chance.randint(1, 8)):
                queue.add(tx, b"%d" % chance.randint(0, 5), added)
                added += 1
        if chance.random() < 0.2:
            slow.commit()
            slow = tm.begin()
            queue.add(slow, b"slow", added)
            added += 1
        dying = Work(work.url, work.tso, work.file, dies_at=chance.randint(1, 15))
        deaths += run(dying)
    slow.commit()
    assert not run(work)
    assert queue.lag().entries == 0
    found = lines(work.file)
    assert {value for _, value, *_ in found} == set(range(added))
    newest: dict[str, tuple[int, int]] = {}
    repeated = 0
    for key, _, commit_ts, ordinal, _ in found:
        if (commit_ts, ordinal) > newest.get(key, (0, 0)):
            newest[key] = commit_ts, ordinal
        else:
            repeated += 1
    # Whatever is new is larger, so that what is left when repetitions are refused is in order.
    assert len(found) - repeated == len({value for _, value, *_ in found})
    assert repeated <= deaths * 8


def is_stopped(pid: int) -> bool:
    """Say whether a process stands still, as the kernel shows it."""
    return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "T"


def test_an_owner_that_is_stopped_past_its_lease_is_refused_by_its_fence(
    work: Work, tm: TransactionManager
) -> None:
    """Its batch arrives when others have gone on long ago; the cursor does not go back."""
    queue = ExportQueue.create(tm, QUEUE, buckets=1)
    with tm.begin() as tx:
        queue.add(tx, b"k", "old")
    stopped = start(Work(work.url, work.tso, work.file, stops=True, lease_s=2.0))
    wait_for(lambda: is_stopped(stopped.pid), 60)
    with tm.begin() as tx:
        queue.add(tx, b"k", "new")
    while not lines(work.file):
        run(Work(work.url, work.tso, work.file, lease_s=2.0))
    assert [value for _, value, *_ in lines(work.file)] == ["old", "new"]
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.join(60)
    assert stopped.exitcode == 0
    found = lines(work.file)
    assert [value for _, value, *_ in found] == ["old", "new", "old"]
    fences = [fence for *_, fence in found]
    assert fences[2] < fences[1]
    assert queue.lag().entries == 0
    assert not run(work)
    assert lines(work.file) == found
