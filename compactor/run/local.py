"""The same plan in this process, for stores that one process reads in minutes.

Ranges are passed over one after another: on one file the writers would queue anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from compactor.options import Options
from compactor.pacing import Pacer, Pacing
from compactor.pruning.prune import SlicesHere
from compactor.ranges.progress import NoProgress, OnProgress, Passed, Progress
from compactor.ranges.range_pass import OnStep, RangePass, ignore_step
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.report import Report
from compactor.run.environment import Environment, ExecuteRanges, Executors
from compactor.run.plan import run
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.storage.base import Store


def ranges_here(
    store: Store,
    clock: Clock,
    *,
    on_step: OnStep = ignore_step,
    pass_type: type[RangePass] = RangePass,
    sleep: Callable[[float], None] = time.sleep,
) -> ExecuteRanges:
    """Return what passes over ranges in this thread."""

    def execute(tasks: Sequence[RangeTask], on_progress: OnProgress) -> list[RangeResult]:
        results: list[RangeResult] = []
        passed = Passed()
        # Tables have limits of their own; each is kept by the thread that reads it next.
        pacers: dict[Pacing, Pacer] = {}
        for task in tasks:
            range_pass = pass_type(store, task, clock=clock, on_step=on_step)
            if task.pacing not in pacers:
                pacers[task.pacing] = Pacer(task.pacing, clock, sleep)
            range_pass.pacer = pacers[task.pacing]
            range_pass.on_read = partial(_tell, on_progress, len(results), passed)
            results.append(range_pass.run())
            passed = passed.with_result(results[-1])
            on_progress(len(results), passed)
        return results

    return execute


def _tell(on_progress: OnProgress, done: int, passed: Passed, so_far: RangeResult) -> None:
    """Tell what was passed over, with the part of the range that is being read."""
    on_progress(done, passed.with_result(so_far))


def executors_here(store: Store, clock: Clock) -> Executors:
    """Return what carries out every task in this thread."""
    return Executors(ranges_here(store, clock), SlicesHere(store, clock=clock))


def compact(
    store: Store,
    options: Options,
    *,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
    progress: Progress | None = None,
    on_step: OnStep = ignore_step,
) -> Report:
    """Compact a store once, in this process."""
    clock = clock or SystemClock()
    environment = Environment(
        clock=clock,
        execute_ranges=ranges_here(store, clock, on_step=on_step, sleep=sleep),
        sleep=sleep,
        progress=progress or NoProgress(),
        on_step=on_step,
    )
    return run(store, options, environment)
