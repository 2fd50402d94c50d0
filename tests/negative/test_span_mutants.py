"""Spans broken on purpose: each loses a commit, keeps an old version for ever, or drops too much.

The scenarios hold for the product as it is; each mutant must make its own fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest

from compactor.horizon import relevant
from compactor.options import Options
from compactor.ranges import spans
from compactor.ranges.range_pass import RangePass
from compactor.ranges.spans import PastPasses
from compactor.run.plan import Compaction
from compactor.tables.ownership import TableStanding, owned
from omidpy.base.tables import INCARNATION_ATTRIBUTE, OMID_ENABLED
from omidpy.facts.watermarks import MIN_COLLECTION_GRACE_S, Claim, Watermarks
from omidpy.model import TIMESTAMP_STEP, KeyRange, base
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World

pytestmark = pytest.mark.usefixtures("spans_however_small")

Break = Callable[[pytest.MonkeyPatch], None]
NIGHTLY: Final = Options(grace_s=0.0, invalidation_grace_s=0.0)


def world_of(*tables: str, splits: tuple[bytes, ...] = ()) -> World:
    """Return a store that one run has been through, with L = 1000."""
    world = World(MemoryStore())
    for table in tables:
        world.table(table, splits=splits, plain_families=(b"late",), incarnation="first")
    world.compact(NIGHTLY)
    return world


def next_run(world: World, low_watermark: int = 2000, options: Options = NIGHTLY) -> None:
    """Compact once more, later."""
    world.clock.advance(2 * MIN_COLLECTION_GRACE_S)
    world.set_low_watermark(low_watermark)
    world.compact(options)


# -- what the mutants must fail --------------------------------------------------------------------


def the_first_transaction_behind_a_claim_is_healed() -> None:
    """Begin as low as the last claim does not speak of."""
    world = world_of("t")
    world.put(b"a", 1050)
    world.enter(1050, 1100)
    next_run(world)
    assert world.visible(b"a", 5000) == {b"q": b"v"}


def a_family_that_was_marked_since_is_healed() -> None:
    """See a claim that speaks of the other one."""
    world = world_of("t")
    world.put(b"a", 500, family=b"late")
    world.enter(500, 550)
    world.store.set_family_attributes("t", b"late", {OMID_ENABLED: "true"})
    next_run(world)
    assert world.visible(b"a", 5000) == {b"q": b"v"}


def a_copy_in_place_of_a_table_is_healed() -> None:
    """See a claim that speaks of the table that had its name."""
    world = world_of("t")
    world.put(b"a", 500)
    world.enter(500, 550)
    world.store.set_table_attributes("t", {INCARNATION_ATTRIBUTE: "second"})
    next_run(world)
    assert world.visible(b"a", 5000) == {b"q": b"v"}


def rows_of_a_lower_claim_are_healed() -> None:
    """Merge two regions, one of which had an obstacle for a while."""
    world = world_of("t", splits=(b"m",))
    watermarks = Watermarks(world.control)
    world.put(b"z", 1050)
    world.enter(1050, 1100)
    world.set_low_watermark(1500)
    world.compact(NIGHTLY)
    watermarks.forget_claims(
        [one for one in watermarks.claims() if one.start == b"m" and one.watermark == 1500]
    )
    for cell in world.cells():
        if len(cell.qualifier) > 1:
            world.remove(cell)
    world.enter(1050, 1100)
    world.store.merge_regions("t", b"m")
    next_run(world)
    assert world.visible(b"z", 5000) == {b"q": b"v"}


def rows_between_claims_are_healed() -> None:
    """Leave a hole."""
    world = world_of("t", splits=(b"m",))
    watermarks = Watermarks(world.control)
    watermarks.forget_claims([one for one in watermarks.claims() if one.start == b"m"])
    world.put(b"z", 500)
    world.enter(500, 550)
    world.store.merge_regions("t", b"m")
    next_run(world)
    assert world.visible(b"z", 5000) == {b"q": b"v"}


def old_versions_go_once_the_horizon_has_passed_them() -> None:
    """See them first in a run that is not yet allowed to drop them."""
    world = World(MemoryStore())
    world.table()
    world.healed(b"a", 100, 150, b"old")
    world.healed(b"a", 200, 250, b"new")
    for low_watermark in (1000, 2000, 3000):
        next_run(world, low_watermark, ALL_AT_ONCE)
    assert [cell[3] for cell in world.data()] == [b"new"]


def a_version_that_newer_ones_supersede_goes() -> None:
    """Write it far below what comes later, so that only the whole row shows it."""
    world = World(MemoryStore())
    world.table()
    world.healed(b"a", 100, 150, b"old")
    for low_watermark in (1000, 2000):
        next_run(world, low_watermark, ALL_AT_ONCE)
    world.healed(b"a", 2100, 2150, b"new")
    for low_watermark in (3000, 4000):
        next_run(world, low_watermark, ALL_AT_ONCE)
    assert [cell[3] for cell in world.data()] == [b"new"]


def a_tombstone_stays_as_long_as_what_it_hides() -> None:
    """Show the tombstone alone, which then looks as if it hid nothing."""
    world = World(MemoryStore())
    world.table()
    world.healed(b"a", 100, 150, b"old")
    for low_watermark in (1000, 1001):
        next_run(world, low_watermark, ALL_AT_ONCE)
    world.healed(b"a", 1100, 1150, b"")
    for low_watermark in (2000, 3000):
        next_run(world, low_watermark, ALL_AT_ONCE)
    assert world.visible(b"a", 5000) == {}


# -- the mutants -----------------------------------------------------------------------------------


def span_one_transaction_too_high(patch: pytest.MonkeyPatch) -> None:
    """Begin behind the first transaction that no claim speaks of."""
    patch.setattr(spans, "_behind", lambda watermark: base(watermark) + 2 * TIMESTAMP_STEP)


def _claims_whatever(patch: pytest.MonkeyPatch, **wanted: Any) -> None:
    def past_passes(self: Compaction, standings: Iterable[TableStanding]) -> PastPasses:
        tables = {name: one._replace(**wanted) for name, one in owned(standings).items()}
        return PastPasses(relevant(self.watermarks.claims(), tables)[0])

    patch.setattr(Compaction, "past_passes", past_passes)


def claims_of_other_families(patch: pytest.MonkeyPatch) -> None:
    """Take a claim for one of every family."""
    _claims_whatever(patch, families=frozenset())


def claims_of_another_incarnation(patch: pytest.MonkeyPatch) -> None:
    """Take a claim on the name for one on the table."""
    _claims_whatever(patch, incarnation="first")


def highest_claim_of_the_table(patch: pytest.MonkeyPatch) -> None:
    """Rest on the highest claim, whichever rows it names."""

    def resting_on(self: PastPasses, table: str, _rows: KeyRange) -> Sequence[Claim]:
        claims = self._by_table.get(table, [])
        return sorted(claims, key=lambda claim: claim.watermark)[-1:]

    patch.setattr(PastPasses, "_resting_on", resting_on)


def settled_whatever_was_seen(patch: pytest.MonkeyPatch) -> None:
    """Remember that nothing is left to drop."""
    patch.setattr(RangePass, "_remember", lambda *_: None)


def rows_never_read_again(patch: pytest.MonkeyPatch) -> None:
    """Judge the versions of a span as if they were the row."""
    patch.setattr(RangePass, "read", lambda _self, page: [page])


MUTANTS: Final[list[tuple[Break, Callable[[], None]]]] = [
    (span_one_transaction_too_high, the_first_transaction_behind_a_claim_is_healed),
    (claims_of_other_families, a_family_that_was_marked_since_is_healed),
    (claims_of_another_incarnation, a_copy_in_place_of_a_table_is_healed),
    (highest_claim_of_the_table, rows_of_a_lower_claim_are_healed),
    (highest_claim_of_the_table, rows_between_claims_are_healed),
    (settled_whatever_was_seen, old_versions_go_once_the_horizon_has_passed_them),
    (rows_never_read_again, a_version_that_newer_ones_supersede_goes),
    (rows_never_read_again, a_tombstone_stays_as_long_as_what_it_hides),
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
