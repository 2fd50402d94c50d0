"""Compactors that take a restored table for what it was: each loses what was committed.

The scenarios hold for the product as it is; each mutant must make its own fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from compactor.options import Options
from compactor.ranges.progress import NoProgress
from compactor.ranges.range_pass import OnStep, RangePass, ignore_step
from compactor.ranges.range_task import RangeTask
from compactor.run.environment import Environment
from compactor.run.local import ranges_here
from compactor.run.plan import Compaction
from compactor.tables.ownership import TableStanding
from omidpy.base.tables import undated_incarnation
from omidpy.facts.tables.sightings import NO_DOUBT
from omidpy.model import base
from omidpy.storage.base import Store
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.restoring import RestoringStore


class Stage:
    """A store whose tables are restored one by one, and a compactor that may be broken."""

    def __init__(self, compaction: type[Compaction], range_pass: type[RangePass]) -> None:
        self.store = RestoringStore()
        self.world = World(self.store)
        self.world.table(incarnation="one")
        self._compaction = compaction
        self._range_pass = range_pass
        self.compact()

    def compact(self, options: Options = ALL_AT_ONCE, *, on_step: OnStep = ignore_step) -> None:
        """Compact once."""
        clock = self.world.clock
        passes = ranges_here(self.store, clock, on_step=on_step, pass_type=self._range_pass)
        environment = Environment(clock, passes, clock.advance, NoProgress(), on_step)
        self._compaction(self.store, options, environment).run()

    def torn(self, start_ts: int) -> Any:
        """Commit a transaction; return a snapshot from before its shadow cell, and its entry go."""
        cell = self.world.put(b"a", start_ts)
        self.world.enter(start_ts, start_ts + 50)
        snapshot = self.store.snapshot("t")
        self.world.heal(cell, start_ts + 50)
        self.world.commit_table.complete([base(cell.version)])
        return snapshot


# -- what the mutants must fail --------------------------------------------------------------------


def what_comes_back_without_a_proof_stays(stage: Stage) -> None:
    """See that nothing else is left of it."""
    snapshot = stage.torn(900)
    stage.store.restore("t", snapshot)
    stage.compact()
    assert [cell.version for cell in stage.world.cells()] == [900]


def what_comes_back_during_a_pass_stays(stage: Stage) -> None:
    """See that what was found before says nothing of what is there."""
    stage.world.put(b"z", 1210)
    snapshot = stage.torn(1200)
    stage.world.set_low_watermark(2000)

    def restore_once(step: str) -> None:
        if step == "page-read" and stage.store.changes["t"] == 1:
            stage.store.restore("t", snapshot)

    stage.compact(on_step=restore_once)
    assert [cell.version for cell in stage.world.cells()] == [1200, 1210]


def entries_outlive_claims_that_a_restore_made_false(stage: Stage) -> None:
    """See that the heals went back with the table."""
    world = stage.world
    world.put(b"a", 900)
    world.enter(900, 950)
    snapshot = stage.store.snapshot("t")
    stage.compact(replace(ALL_AT_ONCE, grace_s=3600.0))
    stage.store.restore("t", snapshot)
    world.clock.advance(7200)
    stage.compact(replace(ALL_AT_ONCE, exclude=frozenset({"t"})))
    assert world.visible(b"a", 2000) == {b"q": b"v"}


# -- the mutants -----------------------------------------------------------------------------------


class TakesAbsenceForProof(RangePass):
    """Forbids and drops whatever has neither a shadow cell nor an entry."""

    def __init__(self, store: Store, task: RangeTask, **more: Any) -> None:
        super().__init__(store, replace(task, doubtful=NO_DOUBT), **more)


class LooksOnceAtTheState(RangePass):
    """Drops by what the list of tables said, however long ago."""

    def check_state(self) -> None:
        """Do nothing."""


class CountsClaimsOfEveryState(Compaction):
    """Believes that a table stays what its incarnation says."""

    def survey(self) -> list[TableStanding]:
        """Forget the states."""
        return [
            replace(one, incarnation=undated_incarnation(one.incarnation))
            for one in super().survey()
        ]


MUTANTS: Final[list[tuple[type[Compaction], type[RangePass], Callable[[Stage], None]]]] = [
    (Compaction, TakesAbsenceForProof, what_comes_back_without_a_proof_stays),
    (Compaction, LooksOnceAtTheState, what_comes_back_during_a_pass_stays),
    (CountsClaimsOfEveryState, RangePass, entries_outlive_claims_that_a_restore_made_false),
]


@pytest.mark.parametrize("scenario", [scenario for _, _, scenario in MUTANTS])
def test_the_product_does_it_right(scenario: Callable[[Stage], None]) -> None:
    """What the scenario asserts is no more than what is promised."""
    scenario(Stage(Compaction, RangePass))


@pytest.mark.parametrize(("compaction", "range_pass", "scenario"), MUTANTS)
def test_each_mutant_is_caught(
    compaction: type[Compaction], range_pass: type[RangePass], scenario: Callable[[Stage], None]
) -> None:
    """One thing differs, and something committed is lost."""
    with pytest.raises(AssertionError):
        scenario(Stage(compaction, range_pass))
