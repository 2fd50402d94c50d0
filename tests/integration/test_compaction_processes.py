"""Compactors as processes: killed with SIGKILL at every named step, stopped, and two at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from compactor.options import Options
from compactor.report import RunLog
from compactor.run.local import compact
from compactor.run.plan import STEPS
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, World, outcome, troubled
from tests.machines.dying_compactor import compact_and_die

pytestmark = [pytest.mark.integration, pytest.mark.in_memory]

ROOT: Final = Path(__file__).parents[2]
OPTIONS: Final = replace(ALL_AT_ONCE, should_wait=True)
DEADLINE_S: Final = 120.0

STANDING_AT: Final = """
import sys, time
from compactor.ranges.progress import NoProgress
from compactor.run.environment import Environment
from compactor.run.local import ranges_here
from compactor.run.plan import run
from omidpy.base.timing.clock import SystemClock
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE

path, step, lease_s = sys.argv[1:]

def stand(name):
    if name == step:
        print("standing", flush=True)
        sys.stdin.readline()

store, clock = SqliteStore(path), SystemClock()
executor = ranges_here(store, clock, on_step=stand)
environment = Environment(
    clock, executor, time.sleep, NoProgress(), stand, lease_s=float(lease_s)
)
try:
    print("done", run(store, ALL_AT_ONCE, environment).entries_pruned, flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""

AT_FULL_SPEED: Final = """
import sys
from dataclasses import replace
from compactor.run.local import compact
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE

store = SqliteStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(3):
    compact(store, ALL_AT_ONCE)
"""


@pytest.mark.parametrize("step", STEPS)
def test_killed_compactor_is_finished_by_a_plain_rerun(tmp_path: Path, step: str) -> None:
    """No committed cell is lost at any step, and the next run leaves what one run would have."""
    unharmed = World(MemoryStore())
    unharmed.table(splits=[b"m"])
    troubled(unharmed)
    shown = outcome(unharmed)[2]
    unharmed.compact(OPTIONS)

    path = tmp_path / "s.db"
    world = World(SqliteStore(str(path)))
    world.table(splits=[b"m"])
    troubled(world)
    assert compact_and_die(path, step) == -signal.SIGKILL
    assert outcome(world)[2] == shown
    world.clock.advance(60)
    world.compact(OPTIONS)
    assert outcome(world) == outcome(unharmed)
    world.store.close()


def test_two_compactors_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each waits for the other one, and both come to their end."""
    path = tmp_path / "s.db"
    world = World(SqliteStore(str(path)), low_watermark=50_000)
    world.table(splits=[b"%04d" % number for number in range(100, 800, 100)])
    for number in range(800):
        start_ts = 50 * (number + 1)
        world.put(b"%04d" % number, start_ts)
        if number % 3:
            world.enter(start_ts, start_ts + 60_000)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", AT_FULL_SPEED, str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.communicate("go\n", timeout=DEADLINE_S)
            assert child.returncode == 0
    finally:
        for child in children:
            child.kill()
            child.wait()
    committed = [number for number in range(800) if number % 3]
    assert [row for row, *_ in world.data()] == [b"%04d" % number for number in committed]
    assert world.shadows() == {
        (b"%04d" % number, 50 * (number + 1)): 50 * (number + 1) + 60_000 for number in committed
    }
    assert world.entries() == {}
    world.store.close()


@contextmanager
def standing(path: Path, step: str, *, lease_s: float) -> Iterator[subprocess.Popen[str]]:
    """Start a compactor, and yield it once it stands at a step."""
    child = subprocess.Popen(
        [sys.executable, "-c", STANDING_AT, str(path), step, str(lease_s)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "standing\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def world_at(path: Path) -> World:
    """Return a store with one entry that may go."""
    world = World(SqliteStore(str(path)))
    world.table()
    world.put(b"a", 100)
    world.enter(100, 150)
    return world


def compacted(world: World, options: Options = ALL_AT_ONCE) -> list[str]:
    """Compact a store by real clocks; return what the run had to say."""
    compact(world.store, options)
    return list(RunLog(world.control).runs()[-1].notes)


def test_a_compactor_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    """Its lease would last for an hour."""
    world = world_at(tmp_path / "s.db")
    with standing(tmp_path / "s.db", "page-judged", lease_s=3600) as child:
        child.kill()
        child.wait()
        notes = compacted(world)
    assert not any("waiting" in note for note in notes)
    assert any("finishing run" in note for note in notes)
    assert world.entries() == {}
    world.store.close()


def test_a_compactor_that_is_at_work_is_waited_for(tmp_path: Path) -> None:
    """Its lease is shorter than the time for which it stands, but it shows that it lives."""
    world = world_at(tmp_path / "s.db")
    with (
        standing(tmp_path / "s.db", "page-judged", lease_s=1) as child,
        ThreadPoolExecutor() as pool,
    ):
        waiting = pool.submit(compacted, world)
        with pytest.raises(TimeoutError):
            waiting.result(2)
        answer, _ = child.communicate("go on\n", timeout=DEADLINE_S)
        assert answer == "done 1\n"
        notes = waiting.result(DEADLINE_S)
    assert [note for note in notes if f"process {child.pid}" in note] == notes[:1]
    world.store.close()


@pytest.mark.parametrize("step", ["page-read", "unvisited-asked", "page-judged"])
def test_a_compactor_that_was_stopped_does_no_harm_when_it_goes_on(
    tmp_path: Path, step: str
) -> None:
    """Another one took its place meanwhile, and found a table that needs the entry."""
    world = world_at(tmp_path / "s.db")
    with standing(tmp_path / "s.db", step, lease_s=2) as child:
        child.send_signal(signal.SIGSTOP)
        world.table("restored", families=(), plain_families=(b"cf",), owner=None)
        world.put(b"a", 100, table="restored")
        notes = compacted(world)
        assert any(f"process {child.pid}" in note for note in notes)
        assert world.entries() == {100: 150}
        child.send_signal(signal.SIGCONT)
        answer, _ = child.communicate("go on\n", timeout=DEADLINE_S)
    assert answer.startswith("ReservationLost run ")
    assert world.entries() == {100: 150}
    world.store.close()
