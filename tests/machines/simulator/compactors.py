"""Compactions beside everybody else: the real plan, passes, lease and pruning, in one program.

A run shows life from a thread of its own.  Here that beats between two calls of the store, which is
when a thread of its process would have its turn: so a process that is paused shows none, another
one takes its run for dead, and the first goes on.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest import mock

from compactor.check.findings import SEVERITY, Severity
from compactor.check.fsck import Check, CheckOptions
from compactor.options import Options
from compactor.pruning import slices
from compactor.ranges import ahead
from compactor.ranges.progress import NoProgress
from compactor.ranges.range_pass import RangePass
from compactor.report import Report
from compactor.run import driver
from compactor.run.environment import Environment
from compactor.run.heart import Heart
from compactor.run.local import ranges_here
from compactor.run.plan import Compaction
from omidpy.errors import OmidError
from tests.machines.simulator.instance import Inline
from tests.machines.simulator.store import SimStore
from tests.machines.simulator.world import Process, World

COMPACTORS: Final = ("compactor-a", "compactor-b")

LATEST_WRITE_S: Final = 45.0
"""An oracle that was deposed may still write an entry for so long: beyond it invalidations go."""
FOR_EVER_S: Final = 1e6
"""No old version is dropped."""


class HeartBetweenCalls(Heart):
    """Beats whenever a call of the store is about to be made, and a beat is due."""

    def beat_while(self, work: Callable[[], object]) -> None:
        """See `Heart`."""
        fates: Any = self._fates
        store: SimStore = fates._store
        self._worker = self._fates.new_worker(lease_s=self._lease_s, clock=self._clock)
        store.beat_between_calls(self._beat_unless_at_it, lease_s=self._lease_s)
        try:
            work()
        finally:
            store.beat_no_more()
            with contextlib.suppress(OmidError):
                self.retire()

    def _beat_unless_at_it(self) -> None:
        if not self._mutex.locked():
            self.beat()


class NoPool(Inline):
    """Does one thing after the other what a pool would do at once."""

    def __init__(self, *_: object, **__: object) -> None:
        """Have no threads."""


@contextlib.contextmanager
def without_threads() -> Iterator[None]:
    """Let runs do everything in the program that they are in."""
    with (
        mock.patch.object(driver, "Heart", HeartBetweenCalls),
        mock.patch.object(slices, "ThreadPoolExecutor", NoPool),
        mock.patch.object(ahead, "ThreadPoolExecutor", NoPool),
    ):
        yield


class Compactor:
    """A process that compacts again and again."""

    def __init__(
        self,
        world: World,
        process: Process,
        store: SimStore,
        lease_s: float,
        *,
        pause_s: float = 3.0,
        compaction: type[Compaction] = Compaction,
        range_pass: type[RangePass] = RangePass,
        retention_s: float = FOR_EVER_S,
    ) -> None:
        self._retention_s = retention_s
        self._pause_s = pause_s
        self._compaction = compaction
        self._range_pass = range_pass
        self._world = world
        self._process = process
        self._store = store
        self._lease_s = lease_s

    def work(self, dice: random.Random, until_s: float) -> None:
        """Compact until it is late."""
        while self._world.now_s < until_s:
            self._world.program.sleep(dice.expovariate(1 / self._pause_s))
            options = Options(
                grace_s=dice.choice((0.0, 3.0, 10.0)),
                invalidation_grace_s=dice.choice((None, LATEST_WRITE_S)),
                retention_s=self._retention_s,
                should_resume=dice.random() < 0.5,
                should_collect=dice.random() < 0.5,
                ranges_per_region=dice.choice((None, 1, 3)),
                **self._seldom(self._process.dice("seldom options")),
            )
            try:
                report = self.compact(options)
            except OmidError as error:
                self._world.note(f"{self._process.name}: {type(error).__name__}")
                self._world.counts[f"compactions ended by {type(error).__name__}"] += 1
            else:
                self._count(report)

    def _seldom(self, dice: random.Random) -> dict[str, Any]:
        """Draw what most runs leave as it is; nothing of it may do any harm."""
        names = [one.name for one in self._store._shared.memory.tables()]
        some = frozenset(name for name in names if dice.random() < 0.3)
        table = dice.choice(names)
        seldom: dict[str, Any] = {
            "tables": some or None,
            "exclude": some,
            "collect_every": dice.choice((0, 1, 2)),
            "should_collect_foreign": True,
            "is_dry_run": True,
            "table_options": {
                table: dice.choice(({"every": "10s"}, {"retention": "5s"}, {"priority": "3"}))
            },
        }
        name = dice.choice(sorted(seldom))
        return {name: seldom[name]} if dice.random() < 0.4 else {}

    def compact(self, options: Options) -> Report:
        """Compact once."""
        clock, sleep = self._process.clock, self._world.program.sleep
        environment = Environment(
            clock=clock,
            execute_ranges=ranges_here(self._store, clock, sleep=sleep, pass_type=self._range_pass),
            sleep=sleep,
            progress=NoProgress(),
            lease_s=self._lease_s,
        )
        return self._compaction(self._store, options, environment).run()

    def check(self) -> list[str]:
        """Say what is wrong with the store that nobody may have left behind."""
        options = CheckOptions(settle_s=0.0)
        clock, sleep = self._process.clock, self._world.program.sleep
        report = Check(self._store, options, sleep=sleep, clock=clock).run()
        return [
            f"fsck: {one.kind}: {one.detail}"
            for one in report.findings
            if SEVERITY[one.kind].is_at_least(Severity.SERIOUS)
        ]

    def _count(self, report: Report) -> None:
        counts = self._world.counts
        counts["compactions done"] += 1
        counts["cells healed"] += report.cells_healed
        counts["cells dropped"] += report.cells_dropped
        counts["entries pruned"] += report.entries_pruned
        self._world.note(f"{self._process.name} has compacted up to {report.low_watermark}")
