"""The Spark job on files, whose workers or whose driver kill themselves at a step.

    python -m tests.machines.mortal_job workers FOLDER STEP...
    python -m tests.machines.mortal_job driver FILE STEP

For each step there is a file FOLDER/STEP.db.  A worker that comes to the step for the first time
leaves a mark and dies; Spark tries its task again.  What the runs reported is printed, one a line.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compactor.pruning.prune import PruneResult, PruneTask, SlicePruner
from compactor.ranges.progress import NoProgress
from compactor.ranges.range_pass import OnStep, RangePass, ignore_step
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.report import Report
from compactor.run.environment import Environment
from compactor.run.plan import run
from compactor.shell import job
from omidpy.base.timing.clock import SystemClock
from omidpy.opening import open_store
from omidpy.storage.handed import HandedStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.workload import DEADLINE_S, ROOT

if TYPE_CHECKING:
    from pyspark import SparkContext

OPTIONS: Final = replace(ALL_AT_ONCE, should_wait=True)
MASTER: Final = "local[2,4]"
"""Two workers, and each task is tried four times."""


def killing(step: str, mark: str | None = None) -> OnStep:
    """Return what kills this process at a step, once if there is a mark to leave."""

    def on_step(name: str) -> None:
        if name != step:
            return
        if mark is not None:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
        os.kill(os.getpid(), signal.SIGKILL)

    return on_step


@contextmanager
def mortal_workers(step: str, mark: str) -> Iterator[None]:
    """Send tasks that die on their way; Spark takes them along by value."""
    of_ranges, of_slices = job.pass_on_worker, job.prune_on_worker

    def pass_on_worker(
        sent: HandedStore, task: RangeTask, told_as: bytes | None = None, tell_every_s: float = 0.0
    ) -> RangeResult:
        del told_as, tell_every_s
        store = open_store(sent.accept(), must_exist=True)
        try:
            on_step = killing(step, mark)
            return RangePass(store, task, clock=SystemClock(), on_step=on_step).run()
        finally:
            store.close()

    def prune_on_worker(sent: HandedStore, task: PruneTask) -> PruneResult:
        store = open_store(sent.accept(), must_exist=True)
        try:
            return SlicePruner(store, task, on_step=killing(step, mark)).run()
        finally:
            store.close()

    job.pass_on_worker, job.prune_on_worker = pass_on_worker, prune_on_worker
    try:
        yield
    finally:
        job.pass_on_worker, job.prune_on_worker = of_ranges, of_slices


def started() -> SparkContext:
    """Start Spark as the job does, but for the number of tries."""
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(MASTER)
    for key, value in job.defaults(conf).items():
        conf.setIfMissing(key, value)
    return SparkContext.getOrCreate(conf)


def compacted(path: str, on_step: OnStep = ignore_step) -> Report:
    """Compact a file on Spark; the waits turn a clock."""
    world = World(SqliteStore(path))
    executors = job.executors_on_spark(started(), world.store, world.clock)
    environment = Environment(
        clock=world.clock,
        execute_ranges=executors.ranges,
        execute_slices=executors.slices,
        sleep=world.clock.advance,
        progress=NoProgress(),
        on_step=on_step,
    )
    try:
        return run(world.store, OPTIONS, environment)
    finally:
        world.store.close()


def main(victim: str, path: str, *steps: str) -> None:
    """Compact, with somebody dying at each step."""
    if victim == "driver":
        compacted(path, killing(steps[0]))
        return
    for step in steps:
        store = Path(path) / f"{step}.db"
        with mortal_workers(step, f"{store}.died"):
            print(compacted(str(store)).json(), flush=True)


def submitted(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the job in a process of its own, and Spark below it."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, "-m", "tests.machines.mortal_job", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=10 * DEADLINE_S,
        check=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
