"""What a run needs from outside: time, somewhere to execute tasks, somewhere to show progress.

The steps of a run are the same whatever is in here: `local.py` executes ranges and slices in this
process, `shell/job.py` on Spark, and a test with a clock that it turns by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, Protocol, TypeAlias

from compactor.pruning.prune import PruneResult, PruneTask
from compactor.pruning.snapshots import OpenFolder, local_folder
from compactor.pruning.timestamps import NOBODY, Asked
from compactor.ranges.range_pass import OnStep, ignore_step
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.run.lease import DEFAULT_LEASE_S
from omidpy.base.clock import Clock


class Passed(NamedTuple):
    """What passes have come to so far."""

    rows: int = 0
    cells: int = 0
    size_bytes: int = 0
    healed: int = 0

    def with_result(self, one: RangeResult) -> Passed:
        """Return what they come to with one more."""
        return Passed(
            self.rows + one.rows_read,
            self.cells + one.cells_read,
            self.size_bytes + one.bytes_read,
            self.healed + one.cells_healed,
        )

    @classmethod
    def by(cls, results: Iterable[RangeResult]) -> Passed:
        """Return what some passes came to."""
        return reduce(cls.with_result, results, cls())


OnProgress: TypeAlias = Callable[[int, Passed], None]
"""Called with the number of ranges done, and with what was passed over so far."""

ExecuteRanges: TypeAlias = Callable[[Sequence[RangeTask], OnProgress], Sequence[RangeResult]]
"""Passes over ranges, in any order and anywhere, and returns one result for each."""


class ExecuteSlices(Protocol):
    """Prunes slices of the commit table, in any order and anywhere."""

    @property
    def workers(self) -> int:
        """How many slices are worked on at once."""
        ...

    def run(self, tasks: Sequence[PruneTask]) -> Sequence[PruneResult]:
        """Carry out tasks, and return one result for each."""
        ...


class Progress(Protocol):
    """Where a run shows how far it is."""

    def note(self, text: str) -> None:
        """Show one line."""
        ...

    def update(self, done: int, total: int, passed: Passed) -> None:
        """Show that `done` of `total` ranges are done, and what was passed over."""
        ...


class NoProgress:
    """Shows nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def update(self, done: int, total: int, passed: Passed) -> None:
        """Do nothing."""


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
