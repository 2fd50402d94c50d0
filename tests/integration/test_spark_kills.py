"""Workers and the driver of the Spark job are killed with SIGKILL at every step that is theirs.

A worker's task is tried again by Spark, and the run ends as if nothing had been.  A driver's work
is finished by whatever runs next.  A compactor in one process: `test_compaction_processes.py`.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from compactor.pruning.prune import PRUNE_STEPS
from compactor.ranges.range_pass import PASS_STEPS
from compactor.run.plan import STEPS
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.integration.test_spark_job import needs_spark
from tests.machines.cells import World, outcome, troubled
from tests.machines.mortal_job import OPTIONS, submitted

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly, needs_spark]

OF_WORKERS: Final = (*PASS_STEPS, *PRUNE_STEPS)
OF_THE_DRIVER: Final = tuple(step for step in STEPS if step not in OF_WORKERS)


def in_trouble(path: Path) -> World:
    """Write what a compaction has work with, in two ranges."""
    world = World(SqliteStore(str(path)))
    world.table(splits=[b"m"])
    troubled(world)
    return world


def unharmed() -> World:
    """Return what one run leaves of it to which nothing happens."""
    world = World(MemoryStore())
    world.table(splits=[b"m"])
    troubled(world)
    world.compact(OPTIONS)
    return world


def check_workers(folder: Path, steps: Sequence[str]) -> None:
    """Let a worker die at each step, each in a store of its own."""
    worlds = {step: in_trouble(folder / f"{step}.db") for step in steps}
    ended = submitted("workers", str(folder), *steps)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == len(steps)
    expected = outcome(unharmed())
    for step, world in worlds.items():
        assert (folder / f"{step}.db.died").exists(), f"no worker came to {step}"
        assert outcome(world) == expected, step
        world.store.close()


def test_a_worker_that_dies_at_any_step_is_replaced_within_the_run(tmp_path: Path) -> None:
    """Healing, claiming, collecting and pruning."""
    check_workers(tmp_path, OF_WORKERS)


@pytest.mark.parametrize("step", OF_THE_DRIVER)
def test_a_driver_that_dies_is_finished_by_the_next_run(tmp_path: Path, step: str) -> None:
    """Whatever its workers still do; no committed cell is lost meanwhile."""
    world = in_trouble(tmp_path / "s.db")
    shown = outcome(world)[2]
    ended = submitted("driver", str(tmp_path / "s.db"), step)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert outcome(world)[2] == shown
    world.clock.advance(60)
    world.compact(OPTIONS)
    assert outcome(world) == outcome(unharmed())
    world.store.close()
