"""A hold that is granted is kept, wherever in a compaction its two steps fall (I10).

A holder writes its hold and then looks whether that was in time.  Pairs of moments in a run are
tried for the two, with the real holder and the real run: by day all that are close and a fourth of
the others, by night every one.  A moment is before one of the run's calls of the control table, or
behind them.  Once the passes are over a run publishes no horizon and drops no version, so that all
later calls are one moment.  Afterwards the snapshot of a granted hold is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Final

import pytest

from compactor.pruning.collection import Collection
from compactor.ranges.progress import NoProgress
from compactor.ranges.range_pass import OnStep, ignore_step
from compactor.run.environment import Environment
from compactor.run.local import ranges_here
from compactor.run.plan import Compaction
from omidpy.base.tables import CONTROL_TABLE
from omidpy.base.timing.clock import Clock, ManualClock
from omidpy.errors import SnapshotTooOld
from omidpy.facts.holds import HeldSnapshot
from omidpy.facts.watermarks import MIN_COLLECTION_GRACE_S, Watermarks
from omidpy.model import Timestamp
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.interleaving import interleaved

HELD: Final = Timestamp(200)
"""A snapshot that sees the first of two versions."""

CLOSE: Final = 2
"""Two moments with so few calls between them are tried by day, wherever they fall."""

FIRST, SECOND = {b"q": b"first"}, {b"q": b"second"}


class Stage:
    """A column with two versions, a run that drops the first, and a holder of that one."""

    def __init__(self, collection: type[Collection]) -> None:
        self.world = World(MemoryStore())
        self.world.table()
        self.world.healed(b"a", 100, 150, b"first")
        self.world.healed(b"a", 300, 350, b"second")
        self.watermarks = Watermarks(self.world.control)
        self.held = HeldSnapshot(self.watermarks, HELD)
        self.is_granted: bool | None = None
        self._collection = collection

    def run(self, write_at: int, confirm_at: int) -> int:
        """Compact, with the holder's steps before two of the run's calls; return their number."""
        count = 0
        is_over = False

        def before(method: str, table: str) -> None:
            nonlocal count
            if table == CONTROL_TABLE and not is_over:
                self.act(count, write_at, confirm_at)
                count += 1

        def on_step(name: str) -> None:
            nonlocal is_over
            is_over |= name == "ranges-passed"

        compact(self.world, self._collection, before, on_step)
        self.act(count, write_at, confirm_at)
        return count + 1

    def act(self, moment: int, write_at: int, confirm_at: int) -> None:
        """Take the holder's steps that fall on a moment."""
        if moment == write_at:
            self.held.write(self.world.clock, for_s=3600)
        if moment == confirm_at:
            try:
                self.held.confirm()
            except SnapshotTooOld:
                self.is_granted = False
            else:
                self.is_granted = True

    def is_kept(self) -> bool:
        """Say whether the held snapshot is still read, and read right."""
        horizon, _ = self.watermarks.read_horizons()
        return horizon <= HELD and self.world.visible(b"a", HELD) == FIRST


def compact(
    world: World,
    collection: type[Collection],
    before: object = lambda method, table: None,
    on_step: OnStep = ignore_step,
) -> None:
    """Run a compaction that waits for its graces, with a part of it replaced."""

    class Replaced(Compaction):
        def collection(self) -> Collection:
            made = super().collection()
            return collection(**{name: getattr(made, name) for name in made.__dataclass_fields__})

    store = interleaved(world.store, before)  # type: ignore[arg-type]  # a function of two words
    executor = ranges_here(store, world.clock)
    environment = Environment(world.clock, executor, world.clock.advance, NoProgress(), on_step)
    Replaced(store, replace(ALL_AT_ONCE, should_wait=True), environment).run()


def pairs(calls: int) -> list[tuple[int, int]]:
    """Return every pair of moments of a run, those that are close together first.

    A guard that is gone shows where both steps fall into the same gap, so it is found soon.
    """
    found = combinations_with_replacement(range(calls), 2)
    return sorted(found, key=lambda moments: moments[1] - moments[0])


def is_of_the_day(moments: tuple[int, int]) -> bool:
    """Say whether a pair of moments is tried by day: all that are close, an eighth of the others.

    With both steps the eighth moves on, so that each moment is some step of a pair by day, too.
    """
    write_at, confirm_at = moments
    return confirm_at - write_at <= CLOSE or (write_at + confirm_at) % 8 == 0


def stages(
    collection: type[Collection],
    is_tried: Callable[[tuple[int, int]], bool] = lambda moments: True,
) -> Iterator[tuple[tuple[int, int], Stage]]:
    """Yield what pairs of moments came to."""
    for moments in filter(is_tried, pairs(Stage(collection).run(-1, -1))):
        stage = Stage(collection)
        stage.run(*moments)
        yield moments, stage


@pytest.fixture(
    scope="module",
    params=[is_of_the_day, pytest.param(lambda moments: True, marks=pytest.mark.nightly)],
    ids=["some", "every"],
)
def played(request: pytest.FixtureRequest) -> list[tuple[tuple[int, int], Stage]]:
    """Return what pairs of moments came to, for tests that share them out among themselves."""
    return list(stages(Collection, request.param))


def test_a_granted_hold_is_kept_wherever_its_steps_fall(
    played: list[tuple[tuple[int, int], Stage]],
) -> None:
    """And each answer is given somewhere, so that the search is not blind."""
    answers = set()
    for moments, stage in played:
        assert stage.is_granted is not None
        answers.add(stage.is_granted)
        if stage.is_granted:
            assert stage.is_kept(), moments
            stage.world.clock.advance(MIN_COLLECTION_GRACE_S)
            compact(stage.world, Collection)
            assert stage.is_kept(), f"by the next run, {moments}"
    assert answers == {True, False}


def test_what_a_refused_hold_wanted_goes(played: list[tuple[tuple[int, int], Stage]]) -> None:
    """Nothing of it is left behind, and the next run collects what it would have kept."""
    refused = [stage for _, stage in played if not stage.is_granted]
    assert refused
    for stage in refused:
        compact(stage.world, Collection)
        assert stage.world.visible(b"a", HELD) == {}
        assert stage.world.visible(b"a", Timestamp(1000)) == SECOND


class PublishesUnannounced(Collection):
    """Reads the holds, and then publishes what they allow, as it once was."""

    def announce(self, target: Timestamp) -> None:
        """Say nothing."""


class ReadsTheHoldsOnce(Collection):
    """Announces, and publishes what the holds allowed before."""

    def below_holds(self, horizon: Timestamp) -> Timestamp:
        """Read them the first time only."""
        if self.watermarks.hold_floor() >= horizon:
            return horizon
        return super().below_holds(horizon)


@pytest.mark.parametrize("naive", [PublishesUnannounced, ReadsTheHoldsOnce])
def test_each_half_of_the_order_is_needed(naive: type[Collection]) -> None:
    """Somewhere a granted hold is refused ever after."""
    granted = (stage for _, stage in stages(naive) if stage.is_granted)
    assert not all(stage.is_kept() for stage in granted)  # until the first one that is not


def test_a_holder_that_looks_first_is_deceived(monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder's half of the order: what it reads before it writes may change in between."""
    confirm, write = HeldSnapshot.confirm, HeldSnapshot.write
    refused: set[HeldSnapshot] = set()

    def look_first(held: HeldSnapshot, clock: Clock, *, for_s: float) -> None:
        del clock, for_s
        try:
            confirm(held)
        except SnapshotTooOld:
            refused.add(held)

    def then_write(held: HeldSnapshot) -> None:
        if held not in refused:
            write(held, ManualClock(), for_s=3600)

    monkeypatch.setattr(HeldSnapshot, "write", look_first)
    monkeypatch.setattr(HeldSnapshot, "confirm", then_write)
    lost = 0
    for moments in pairs(Stage(Collection).run(-1, -1)):
        stage = Stage(Collection)
        stage.run(*moments)
        lost += stage.held not in refused and not stage.is_kept()
        if lost and refused:
            break
    assert lost
    assert refused
