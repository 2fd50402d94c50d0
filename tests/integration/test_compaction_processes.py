"""Compactors as processes: killed with SIGKILL at every named step, and two of them at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from compactor.plan import STEPS
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, World, outcome, troubled

ROOT: Final = Path(__file__).parents[2]
OPTIONS: Final = replace(ALL_AT_ONCE, should_wait=True)
DEADLINE_S: Final = 120.0

KILLED_AT: Final = """
import os, signal, sys
from dataclasses import replace
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, World

path, step = sys.argv[1:]

def kill(name):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)

World(SqliteStore(path)).compact(replace(ALL_AT_ONCE, should_wait=True), on_step=kill)
"""

AT_FULL_SPEED: Final = """
import sys
from dataclasses import replace
from compactor.local import compact
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE

store = SqliteStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(3):
    compact(store, ALL_AT_ONCE)
"""


@pytest.mark.integration
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
    child = subprocess.run(
        [sys.executable, "-c", KILLED_AT, str(path), step],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert outcome(world)[2] == shown
    world.clock.advance(60)
    world.compact(OPTIONS)
    assert outcome(world) == outcome(unharmed)
    world.store.close()


@pytest.mark.integration
def test_two_compactors_at_once_lose_nothing(tmp_path: Path) -> None:
    """They share no lock: claims only add up, and every write is true whoever makes it."""
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
