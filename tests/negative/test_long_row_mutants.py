"""Work on long rows broken on purpose: each loses a commit, or brings something back to life.

The scenarios hold for the product as it is; each mutant must make its own fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from compactor.ranges import range_reading
from compactor.ranges.range_pass import RangePass
from compactor.rows.long_rows import LongRowWork
from compactor.rows.old_versions import Later, Markers
from compactor.rows.spool import Spool
from omidpy.base.cells import FAMILY_MARKER_QUALIFIER, shadow_qualifier
from omidpy.model import MAX_VERSION
from tests.unit.compactor.test_long_rows import ROW, SMALL, TASK, a_world, kills, passed

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pass hold hardly anything."""
    monkeypatch.setattr(range_reading, "PORTION", SMALL)


# -- what the mutants must fail --------------------------------------------------------------------


def what_is_claimed_is_healed() -> None:
    """Or it is lost with its entry."""
    world = a_world()
    assert passed(world.store).claim is not None
    shadows = {cell.qualifier for cell in world.cells()}
    assert {shadow_qualifier(b"c%d" % number) for number in range(4)} <= shadows


def another_part_speaks_for_a_cell() -> None:
    """Where the entry of a transaction is gone, its other cells are all that is known of it."""
    world = a_world()
    passed(world.store)
    assert world.visible(ROW, 2000).get(b"z") == b"v"


def another_part_speaks_for_a_cell_after_a_kill() -> None:
    """Hear it before it goes."""
    for world in kills(a_world):
        passed(world.store)
        assert world.visible(ROW, 2000).get(b"z") == b"v"


def what_was_deleted_stays_so_after_a_kill() -> None:
    """Let no tombstone, and no marker, go before what it hides."""
    for world in kills(a_world):
        assert not {b"gone", b"below"} & world.visible(ROW, 2000).keys()


def one_version_of_a_column_is_left() -> None:
    """However many parts it came in."""
    world = a_world()
    passed(world.store)
    assert [version for _, name, version, _ in world.data() if name == b"hot"] == [751]


def a_claim_remembers_what_may_go_later() -> None:
    """Or no later pass looks for it."""
    claim = passed(a_world().store, task=replace(TASK, drop_horizon=0)).claim
    assert claim is not None
    assert claim.settled <= 750


# -- mutants ---------------------------------------------------------------------------------------


def leaves_long_rows_out(patch: pytest.MonkeyPatch) -> None:
    """Claim the range without them."""
    patch.setattr(RangePass, "pass_long_row", lambda *_: None)


def forgets_what_other_parts_tell(patch: pytest.MonkeyPatch) -> None:
    """Judge a part as if it were the row."""
    patch.setattr(Spool, "commits", lambda *_: {})


def collects_before_it_heals(patch: pytest.MonkeyPatch) -> None:
    """Let shadow cells go that speak for others."""
    heal, collect = LongRowWork.heal, LongRowWork.collect

    def last(work: LongRowWork) -> Later | None:
        later = collect(work)
        heal(work)
        return later

    patch.setattr(LongRowWork, "heal", lambda _: None)
    patch.setattr(LongRowWork, "collect", last)


def drops_markers_before_columns(patch: pytest.MonkeyPatch) -> None:
    """Let go first what hides."""
    true = LongRowWork._collect_family

    def markers_first(work: LongRowWork, family: bytes) -> None:
        now = Markers(work._horizon)
        for told in work._column(family, FAMILY_MARKER_QUALIFIER):
            for one in told.committed:
                now.see(*one)
        work._collect_markers(family, now, Markers(MAX_VERSION))
        true(work, family)

    patch.setattr(LongRowWork, "_collect_family", markers_first)


def takes_versions_for_a_column(patch: pytest.MonkeyPatch) -> None:
    """Keep the newest of each part."""

    def units(work: LongRowWork, family: bytes) -> Iterator[Any]:
        for part in work._spool.parts(family):
            yield partial(list, [work._told(part)])

    patch.setattr(LongRowWork, "_units", units)


def forgets_what_may_go_later(patch: pytest.MonkeyPatch) -> None:
    """Remember that nothing is left to drop."""
    true = LongRowWork.collect

    def collect(work: LongRowWork) -> None:
        true(work)

    patch.setattr(LongRowWork, "collect", collect)


MUTANTS: Final[list[tuple[Break, Callable[[], None]]]] = [
    (leaves_long_rows_out, what_is_claimed_is_healed),
    (forgets_what_other_parts_tell, another_part_speaks_for_a_cell),
    (collects_before_it_heals, another_part_speaks_for_a_cell_after_a_kill),
    (drops_markers_before_columns, what_was_deleted_stays_so_after_a_kill),
    (takes_versions_for_a_column, one_version_of_a_column_is_left),
    (takes_versions_for_a_column, what_was_deleted_stays_so_after_a_kill),
    (forgets_what_may_go_later, a_claim_remembers_what_may_go_later),
]


@pytest.mark.parametrize("scenario", dict.fromkeys(scenario for _, scenario in MUTANTS))
def test_the_product_passes(scenario: Callable[[], None]) -> None:
    """What is asked of the mutants can be done."""
    scenario()


@pytest.mark.parametrize(("mutant", "scenario"), MUTANTS)
def test_a_mutant_is_caught(
    monkeypatch: pytest.MonkeyPatch, mutant: Break, scenario: Callable[[], None]
) -> None:
    """By the scenario that fits it."""
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        scenario()
