"""What a run needs from outside: time, somewhere to execute tasks, somewhere to show progress.

The steps of a run are the same whatever is in here: `local.py` executes ranges and slices in this
process, `shell/job.py` on Spark, and a test with a clock that it turns by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compactor.pruning.slices import ExecuteSlices
from compactor.pruning.snapshots import OpenFolder, local_folder
from compactor.pruning.timestamps import NOBODY, Asked
from compactor.ranges.progress import OnProgress, Progress
from compactor.ranges.range_pass import OnStep, ignore_step
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.run.lease import DEFAULT_LEASE_S
from omidpy.base.timing.clock import Clock

ExecuteRanges: TypeAlias = Callable[[Sequence[RangeTask], OnProgress], Sequence[RangeResult]]
"""Passes over ranges, in any order and anywhere, and returns one result for each."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that is not in the store."""

    clock: Clock
    execute_ranges: ExecuteRanges
    sleep: Callable[[float], None]
    progress: Progress
    on_step: OnStep = ignore_step
    asked: Asked = NOBODY
    """What the oracle said about its timestamps."""
    execute_slices: ExecuteSlices | None = None
    """None: in this process."""
    open_folder: OpenFolder = local_folder
    """Opens HBase's root folder, where its snapshots are."""
    lease_s: float = DEFAULT_LEASE_S
    """How long the run may show no life before another takes its place."""


@dataclass(frozen=True, slots=True)
class Executors:
    """Where the tasks of a run are carried out."""

    ranges: ExecuteRanges
    slices: ExecuteSlices
    open_folder: OpenFolder = local_folder
    """See `Environment`."""
