"""A compaction on real Spark shows the rows of a range while a worker reads it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from compactor.ranges.advances import PROGRESS_PREFIX
from compactor.ranges.progress import Passed
from compactor.run.environment import Environment, Executors
from compactor.run.plan import run
from compactor.shell import job
from omidpy.base.cells import shadow_qualifier
from omidpy.base.timing.clock import SystemClock
from omidpy.facts.watermarks import Watermarks
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.sqlite import SqliteStore
from tests.integration.test_spark_job import needs_spark
from tests.machines.cells import ALL_AT_ONCE, FAMILY, World
from tests.machines.watching.spark import shown_jobs

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, needs_spark]

ROWS: Final = 1500
ROWS_PER_S: Final = 200.0
"""Slow: the second worker may come seconds behind the first one, and both are to be seen."""


class Told:
    """Keeps what a run tells, and which rows were there when it did."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.updates: list[tuple[int, int]] = []
        self.row_counts: list[int] = []

    def note(self, text: str) -> None:
        """Pass over it."""

    def update(self, done: int, total: int, passed: Passed) -> None:
        """Keep how many of the ranges are done, and how many rows were read."""
        assert total == 2
        self.updates.append((done, passed.rows))
        self.row_counts.append(len(list(self.world.control.scan(PROGRESS_PREFIX))))


def _environment(world: World, told: Told, context: SparkContext, **looks: float) -> Environment:
    """Let a run work on Spark."""
    clock = SystemClock()
    executors = Executors(
        job.ranges_on_spark(context, world.store, clock, **looks),
        job.SlicesOnSpark(context, world.store),
    )
    return Environment(
        clock=clock,
        execute_ranges=executors.ranges,
        execute_slices=executors.slices,
        sleep=world.clock.advance,
        progress=told,
    )


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_rows_are_told_while_workers_read(
    *, is_dry_run: bool, spark: SparkSession, tmp_path: Path
) -> None:
    """Two ranges at once, each of some pages.  A dry run writes nothing, and tells at the end."""
    context = spark.sparkContext
    world = World(SqliteStore(str(tmp_path / "s.db")))
    world.table(splits=[b"m"])
    put = Put(FAMILY, b"q", 100, b"v")
    keys = [b"%c%04d" % (b"az"[number % 2], number) for number in range(ROWS)]
    world.store.write({"t": [RowMutation(key, (put,)) for key in keys]})
    told = Told(world)
    environment = _environment(world, told, context, tell_every_s=0.0, look_every_s=0.0)
    options = replace(ALL_AT_ONCE, is_dry_run=is_dry_run, max_rows_per_s=ROWS_PER_S)
    before = Counter(shown_jobs(context))
    report = run(world.store, options, environment)
    assert report.rows_read == ROWS
    assert told.updates[-1] == (2, ROWS)
    read = [rows for _, rows in told.updates]
    assert read == sorted(read)
    of_running = {rows for done, rows in told.updates if done == 0}
    if is_dry_run:
        assert of_running == {0}
        assert not any(told.row_counts)
    else:
        assert len(of_running) > 2, told.updates
        assert max(told.row_counts) == 2
    assert list(world.control.scan(PROGRESS_PREFIX)) == []
    shown = Counter(shown_jobs(context)) - before
    assert any("pass over 2 ranges of sqlite" in name and group for name, group in shown)
    if not is_dry_run:
        assert any("slices of the commit table of sqlite" in name for name, _ in shown)
    world.store.close()


def test_what_a_worker_cannot_read_is_a_laggard(spark: SparkSession, tmp_path: Path) -> None:
    """The other range is claimed; the reason is our own, out of a page of Java and Python."""
    world = World(SqliteStore(str(tmp_path / "s.db")))
    world.table(splits=[b"m"])
    cell = world.put(b"a", 100)
    world.put(b"a", 100, b"short", qualifier=shadow_qualifier(cell.qualifier))
    before = world.cells()
    environment = _environment(world, Told(world), spark.sparkContext)
    (laggard,) = run(world.store, ALL_AT_ONCE, environment).laggards
    assert (laggard.table, laggard.end) == ("t", b"m".hex())
    assert b"short".hex() in laggard.reason
    assert world.cells() == before
    assert [claim.start for claim in Watermarks(world.control).claims()] == [b"m"]
    world.store.close()
