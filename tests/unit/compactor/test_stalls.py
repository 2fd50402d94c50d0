"""A run, or one of its tasks, stands still; another takes over and the world changes; it goes on.

Unlike one that was killed it still has in hand what it had read, and does the next thing on its
list.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from compactor.options import Options
from compactor.ranges.range_pass import RangePass
from compactor.ranges.range_task import RangeTask
from compactor.report import RunRecord
from omidpy.errors import ReservationLost
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.watermarks import Watermarks
from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, FAMILY, World, outcome, troubled
from tests.machines.interleaving import interleaved
from tests.unit.compactor.test_operation import RESUMING, WAITING, Stage, at, unharmed

LEASE_S: Final = 30.0
WRITES: Final = ("write", "write_guarded", "check_and_mutate")
MANY_WRITES: Final = 5
"""Fewer would mean that the driver was hardly stopped anywhere."""


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Return a store with one table of ours in two regions, and L = 1000."""
    sqlite = request.param == "sqlite"
    with closing(SqliteStore(str(tmp_path / "s.db")) if sqlite else MemoryStore()) as store:
        made = World(store)
        made.table(splits=[b"m"], incarnation="1")
        yield made


# -- a pass whose table is another one by now ------------------------------------------------------


@pytest.mark.parametrize("step", ["page-read", "page-resolved"])
def test_a_pass_drops_nothing_of_the_table_that_took_the_name(world: World, step: str) -> None:
    """What was copied back has one version less: the one that hid it is not wanted any more."""
    world.healed(b"a", 100, 150, b"wanted")
    world.healed(b"a", 200, 250, b"not wanted")
    world.healed(b"b", 100, 150, b"wanted")
    world.compact(ALL_AT_ONCE)
    world.clock.advance(3600)

    def copy_back() -> None:
        world.store.drop_table("t")
        world.table("t", incarnation="2")
        world.healed(b"a", 100, 150, b"wanted")
        world.healed(b"b", 100, 150, b"wanted")

    report = world.compact(on_step=at(step, copy_back))
    assert world.visible(b"a", 2000) == {b"q": b"wanted"}
    assert world.visible(b"b", 2000) == {b"q": b"wanted"}
    assert report.cells_dropped == 0


def test_a_pass_heals_nothing_in_a_plain_table_that_took_the_name(world: World) -> None:
    """With shadow cells in it the plain table would hold the horizon for ever."""
    world.put(b"a", 100)
    world.enter(100, 150)

    def make_plain() -> None:
        world.store.drop_table("t")
        world.store.create_table(TableSchema("t", (FamilySchema(FAMILY),)))

    world.compact(on_step=at("page-resolved", make_plain))
    assert world.cells() == []
    report = world.compact()
    assert (list(report.laggards), report.horizon) == ([], 1000)


def test_a_late_pass_does_nothing_in_the_table_that_took_the_name(world: World) -> None:
    """Its claim speaks of the incarnation that was listed, whenever it comes."""
    task = RangeTask(
        "t", KeyRange(), frozenset({FAMILY}), 1000, 0, 0, COMMIT_TABLE, incarnation="1", run="late"
    )
    world.store.drop_table("t")
    world.table("t", incarnation="2")
    RangePass(world.store, task, clock=world.clock).run()
    assert [one.incarnation for one in Watermarks(world.control).claims()] == ["1"]
    world.put(b"a", 100)
    world.enter(100, 150)
    done = RangePass(world.store, task, clock=world.clock).run()
    assert (done.claim, "made anew" in done.obstacle) == (None, True)
    assert world.shadows() == {}
    report = world.compact(replace(ALL_AT_ONCE, exclude=frozenset({"t"})))
    assert (report.horizon, world.entries()) == (0, {100: 150}), "it counts for no other table"
    assert world.compact().entries_pruned == 1
    assert world.shadows() == {(b"a", 100): 150}


# -- a driver that was taken for dead, whatever it is about to do ----------------------------------


@pytest.mark.parametrize("options", [WAITING, RESUMING], ids=["anew", "resumed"])
@pytest.mark.parametrize("left", ["ranges-passed", "horizon-raised", "run-ended"])
def test_a_driver_that_stood_still_changes_nothing_of_what_others_finished(
    left: str, options: Options
) -> None:
    """It had taken over from one that was killed; a third does so while it stands still.

    Stopped before each of its writes.  What the third has recorded stays, its own as well as what
    became of the run that it finished, and nobody loses a cell.
    """
    calls = itertools.count()
    is_over = False
    while not is_over:
        stage = Stage(MemoryStore())
        troubled(stage.world)
        stage.kill(left)
        third: list[list[RunRecord]] = []
        until = [next(calls)]

        def before(
            method: str,
            _table: str,
            stage: Stage = stage,
            until: list[int] = until,
            third: list[list[RunRecord]] = third,
        ) -> None:
            if method not in WRITES or threading.current_thread() is not threading.main_thread():
                return
            until[0] -= 1
            if until[0] == -1:
                stage.world.clock.advance(LEASE_S)
                stage.compact(ALL_AT_ONCE)
                third.append([one for one in stage.runs() if one.report is not None])

        with contextlib.suppress(ReservationLost):
            stage.compact(options, store=interleaved(stage.world.store, before))
        is_over = not third
        now = {one.run_id: one for one in stage.runs()}
        for one in (one for found in third for one in found):
            assert now[one.run_id] == one, f"before call {calls}"
        stage.compact()
        assert outcome(stage.world)[1:] == ({}, unharmed()[2])
        assert all(one.is_finished for one in stage.operations())
    assert next(calls) > MANY_WRITES
