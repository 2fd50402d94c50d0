"""Exporters that are real processes, killed and stopped: nothing is lost, and order is kept."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from omidpy.cli.operations.run import Environment
from omidpy.connect import connect
from omidpy.errors import TransactionAborted
from omidpy.fate.client import Fate
from omidpy.fate.table.store import TableFateStore
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import ExportQueue
from omidpy.recipes.export_queue import queue as queue_module
from omidpy.recipes.export_queue.upkeep import rebucketing
from tests.machines.export_processes import QUEUE, Work, lines, run, start
from tests.machines.export_queues import Collector
from tests.machines.processes import tso_server
from tests.machines.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.in_memory]


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
    assert sum(one.exported for one in queue.lag().buckets) == added, "each was counted once"


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


def test_buckets_change_under_load_from_four_to_seven(
    work: Work, tm: TransactionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While threads add and exporters of two processes deliver; each key keeps its order."""
    monkeypatch.setattr(queue_module, "DEFINITION_AGE_S", 0.1)
    monkeypatch.setattr(rebucketing, "SETTLE_S", 0.5)
    queue = ExportQueue.create(tm, QUEUE, buckets=4)
    is_over = threading.Event()
    added: list[int] = []
    numbers = itertools.count()

    def add() -> None:
        while not is_over.is_set():
            for attempt in tm.attempts(budget_s=60):
                with attempt as tx:
                    number = next(numbers)
                    queue.add(tx, b"%d" % (number % 11), number)
            added.append(number)

    sink = Collector()
    runners = [queue.runner(sink, workers=2, max_poll_s=0.05, lease_s=1.0) for _ in range(2)]
    exporting = [threading.Thread(target=runner.run) for runner in runners]
    adding = [threading.Thread(target=add) for _ in range(3)]
    for thread in (*exporting, *adding):
        thread.start()
    wait_for(lambda: len(sink.entries) > 20, 60)
    queue.rebucket(7, wait_s=60)
    before = len(added)
    wait_for(lambda: len(added) > before + 20, 60)
    is_over.set()
    for thread in adding:
        thread.join()
    wait_for(lambda: set(sink.values) >= set(added), 60)
    for runner in runners:
        runner.stop()
    for thread in exporting:
        thread.join()
    assert queue.buckets == 7
    assert queue.lag().entries == 0
    assert set(sink.values) == set(added)
    for key in {entry.key for entry in sink.entries}:
        new = list(dict.fromkeys(entry.seq for entry in sink.entries if entry.key == key))
        assert new == sorted(new)


def test_an_executor_finishes_what_whoever_gave_buckets_has_left(
    work: Work, tm: TransactionManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`omidpy fate run --tso` opens the queues' tables itself."""
    monkeypatch.setattr(rebucketing, "SETTLE_S", 0.0)
    queue = ExportQueue.create(tm, QUEUE, buckets=2)
    known = queue._find()
    store = TableFateStore(tm.store)
    first = rebucketing.Prepare(QUEUE, known.made, known.number, 3)
    Fate(None, store, {rebucketing.KIND: 1}).submit(rebucketing.KIND, first)
    with Environment(store, work.url, work.tso) as env:
        executor = Fate(env, store, {"general": 1})
        wait_for(lambda: executor.run_pending() is None, 60)
        executor.close()
    assert ExportQueue.open(tm, QUEUE).buckets == 3


def test_an_oracle_that_starts_again_holds_up_and_loses_nothing(tmp_path: Path) -> None:
    """One exporter runs on through it; what had begun before aborts, and is added again."""
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    sink = Collector()
    with ExitStack() as first:
        assert first.enter_context(tso_server(url)).address, "it listens"
        with connect(url, "store:") as tm:
            queue = ExportQueue.create(tm, QUEUE, buckets=2)
            runner = queue.runner(sink, max_poll_s=0.05)
            exporting = threading.Thread(target=runner.run)
            exporting.start()
            try:
                with tm.begin() as tx:
                    queue.add(tx, b"k", "before")
                wait_for(lambda: sink.values == ["before"], 60)
                late = tm.begin()
                queue.add(late, b"k", "never")
                first.close()
                with tso_server(url) as second:
                    assert second.address, "it listens"
                    for attempt in tm.attempts(budget_s=60):
                        with attempt as tx:
                            queue.add(tx, b"k", "after")
                    with pytest.raises(TransactionAborted):
                        late.commit()
                    wait_for(lambda: sink.values == ["before", "after"], 60)
                    runner.stop()
                    exporting.join()
            finally:
                runner.stop()
                exporting.join()
    assert sink.values == ["before", "after"]
