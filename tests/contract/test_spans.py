"""A range that was claimed is not read again: what a run reads, and what it must not miss by that.

Counts of cells, on every store that this machine has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from compactor.options import Options
from compactor.report import Report
from omidpy.base.cells import encode_long, shadow_qualifier
from omidpy.base.tables import INCARNATION_ATTRIBUTE, OMID_ENABLED
from omidpy.facts.control import encode_document
from omidpy.facts.watermarks import MIN_COLLECTION_GRACE_S, Claim, Watermarks
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, FAMILY, World, outcome, troubled

pytestmark = pytest.mark.usefixtures("spans_however_small")

ROWS: Final = 200
WAITING: Final = replace(ALL_AT_ONCE, should_wait=True)
COLLECTING: Final = replace(ALL_AT_ONCE, should_collect=True)


@pytest.fixture
def world(store: Store) -> World:
    """Return a store with a table of ours, and L = 1000."""
    made = World(store)
    made.table()
    return made


def fill(world: World) -> None:
    """Write a row for each number, healed."""
    cell, shadow = (
        Put(FAMILY, b"q", 100, b"v"),
        Put(FAMILY, shadow_qualifier(b"q"), 100, encode_long(150)),
    )
    rows = [RowMutation(b"%04d" % number, (cell, shadow)) for number in range(ROWS)]
    world.store.write({"t": rows})


def dirty(world: World, version: int, *, rows: int = ROWS // 100) -> None:
    """Commit a new version of some rows, without shadow cells."""
    for number in range(rows):
        world.put(b"%04d" % (7 * number), version)
    world.enter(version, version + 50)


def later(world: World, low_watermark: int, options: Options = ALL_AT_ONCE) -> Report:
    """Compact after the low watermark has risen, and after horizons came of age."""
    world.clock.advance(2 * MIN_COLLECTION_GRACE_S)
    world.set_low_watermark(low_watermark)
    return world.compact(options)


@pytest.mark.parametrize("options", [Options(), ALL_AT_ONCE, WAITING])
def test_a_hundredth_that_changed_costs_a_twentieth_at_most(world: World, options: Options) -> None:
    """It is healed, and what it superseded is dropped; the rest of the table is not read."""
    fill(world)
    first = later(world, 1000, options)
    assert (first.cells_read, first.ranges_whole) == (2 * ROWS, 1)
    dirty(world, 1100)
    second = later(world, 2000, options)
    assert second.cells_healed == ROWS // 100
    assert second.ranges_whole == 0
    assert second.cells_read <= first.cells_read // 20
    assert later(world, 3000, options).cells_read <= first.cells_read // 20
    assert world.visible(b"0007", 5000) == {b"q": b"v"}
    assert len(world.data()) == ROWS + (options == Options()) * ROWS // 100


def test_a_range_without_a_write_is_claimed_unread(world: World) -> None:
    """One call finds nothing, and the horizon follows."""
    fill(world)
    later(world, 1000)
    for low_watermark in (2000, 3000):
        report = later(world, low_watermark)
        assert (report.cells_read, report.horizon) == (0, low_watermark)


def test_old_versions_go_without_another_look_at_all_others(world: World) -> None:
    """They were seen by a run whose horizon did not let them go yet."""
    fill(world)
    for version in (200, 300):
        world.healed(b"0005", version, version + 50)
    assert later(world, 1000).cells_dropped == 0
    report = later(world, 1000)
    assert (report.cells_dropped, report.ranges_whole) == (2, 0)
    assert report.cells_read < 10
    assert later(world, 1000).cells_read == 0


def test_a_run_in_spans_comes_to_what_one_comes_to_that_reads_all(store: Store) -> None:
    """Every kind of cell, above a claim and below, in rows that have both."""
    world, twin = World(store, low_watermark=50), World(MemoryStore(), low_watermark=50)
    for one, options in ((world, ALL_AT_ONCE), (twin, COLLECTING)):
        one.table()
        for number in range(100):
            one.healed(b"other-%03d" % number, 50, 60)
        troubled(one)
        for low_watermark in (99, 100, 120, 349, 350, 400, 480, 550, 1000, 2000):
            later(one, low_watermark, options)
    assert outcome(world) == outcome(twin)


def test_what_came_late_goes_when_the_range_is_read_whole(world: World) -> None:
    """Garbage below a claim is nobody's to see: it may wait for `--collect`, or the n-th pass."""
    fill(world)
    later(world, 1000)
    orphan = world.put(b"0001", 500)
    world.heal(orphan, 550)
    world.remove(orphan)
    world.put(b"0002", 600)
    assert later(world, 2000).cells_dropped == 0
    assert world.visible(b"0002", 5000) == {b"q": b"v"}
    assert later(world, 3000, COLLECTING).cells_dropped == 2
    world.put(b"0003", 600)
    whole = [
        later(world, low_watermark, replace(ALL_AT_ONCE, collect_every=3)).ranges_whole
        for low_watermark in (4000, 5000, 6000, 7000)
    ]
    assert whole == [0, 0, 1, 0]
    assert len(world.cells()) == 2 * ROWS


def test_a_span_parts_no_transaction_from_its_checkpoints(world: World) -> None:
    """A watermark is any number; what it decides about is a transaction with all its versions."""
    later(world, 1049, Options())
    world.put(b"a", 1050)
    world.put(b"b", 1099)
    world.enter(1050, 1100)
    assert later(world, 1051, Options()).cells_healed == 2
    assert later(world, 1099, Options()).cells_read == 0
    assert world.shadows() == {(b"a", 1050): 1100, (b"b", 1099): 1100}


@pytest.fixture
def here() -> World:
    """Return the same in memory, where regions can be split and merged."""
    made = World(MemoryStore())
    made.table()
    return made


def test_claims_of_a_former_division_count_for_the_rows_they_name(here: World) -> None:
    """Regions split, merge, and stop where another run began: rows are what was claimed."""
    world = here
    fill(world)
    later(world, 1000)
    world.store.split_region("t", b"0100")
    dirty(world, 1100)
    report = later(world, 2000)
    assert (report.ranges, report.ranges_whole, report.cells_healed) == (2, 0, ROWS // 100)
    Watermarks(world.control).forget_claims(
        [one for one in Watermarks(world.control).claims() if one.watermark == 1000]
    )
    world.store.merge_regions("t", b"0100")
    assert later(world, 3000).ranges_whole == 0


def test_a_hole_among_the_claims_is_read_whole(here: World) -> None:
    """What nobody claimed may hold anything."""
    world = here
    world.store.split_region("t", b"m")
    later(world, 1000)
    watermarks = Watermarks(world.control)
    watermarks.forget_claims([one for one in watermarks.claims() if one.start == b"m"])
    world.put(b"z", 500)
    world.enter(500, 550)
    world.store.merge_regions("t", b"m")
    report = later(world, 2000)
    assert (report.ranges_whole, report.cells_healed) == (1, 1)


def test_a_family_that_was_marked_since_is_read_whole(world: World) -> None:
    """The claim speaks of another one."""
    world.table("u", plain_families=(b"late",))
    later(world, 1000)
    world.put(b"a", 500, table="u", family=b"late")
    world.enter(500, 550)
    world.store.set_family_attributes("u", b"late", {OMID_ENABLED: "true"})
    assert later(world, 2000).cells_healed == 1


def test_a_table_made_anew_is_read_whole(world: World) -> None:
    """It may be a copy, full of cells that nobody has healed."""
    world.table("u", incarnation="first")
    later(world, 1000)
    world.put(b"a", 500, table="u")
    world.enter(500, 550)
    world.store.set_table_attributes("u", {INCARNATION_ATTRIBUTE: "second"})
    assert later(world, 2000).cells_healed == 1


def test_an_early_version_s_claim_is_relied_on_for_what_it_says(here: World) -> None:
    """It is true, and remembers nothing of old versions.

    On HBase it does not say in which state the table was, and so counts for nothing there.
    """
    world = here
    world.healed(b"a", 100, 150, b"old")
    world.healed(b"a", 200, 250, b"new")
    claim = Claim("t", b"", b"", 1000, 0, (FAMILY,), "early")
    world.control.write(claim.row(), encode_document(claim))
    assert later(world, 2000, Options()).cells_read == 0
    report = later(world, 2000, WAITING)
    assert (report.cells_read, report.cells_dropped) == (4, 1)
    newest = max(Watermarks(world.control).claims(), key=lambda claim: claim.watermark)
    assert newest.passes == 0, "a pass that reads everything counts as one that does"


def test_a_run_behind_a_faster_one_reads_nothing_and_claims_what_is_so(world: World) -> None:
    """The other one's low watermark was higher."""
    fill(world)

    def overtake(step: str) -> None:
        if step == "read-low-watermark" and not done:
            done.append(step)
            later(world, 2000)

    done: list[str] = []
    report = world.compact(on_step=overtake)
    assert (report.low_watermark, report.cells_read, report.horizon) == (1000, 0, 2000)


def test_a_dry_run_reads_and_tells_what_a_run_does(world: World) -> None:
    """By the same claims, and it leaves none."""
    fill(world)
    later(world, 1000)
    dirty(world, 1100)
    told = later(world, 2000, replace(WAITING, is_dry_run=True))
    done = world.compact(WAITING)
    assert (told.cells_read, told.cells_dropped, told.ranges_whole) == (
        done.cells_read,
        done.cells_dropped,
        done.ranges_whole,
    )
    assert done.cells_dropped == ROWS // 100


def test_adopted_plain_data_goes_once_it_is_overwritten(world: World) -> None:
    """By a run that reads a span: the row is found by its new version."""
    world.control.raise_number(b"first-timestamp", 100)
    old = world.put(b"a", 20, b"plain")
    world.heal(old, 20)
    later(world, 1000)
    later(world, 1001)
    world.healed(b"a", 1100, 1150, b"new")
    for low_watermark in (2000, 3000):
        assert later(world, low_watermark).ranges_whole == 0
    assert [cell[3] for cell in world.data()] == [b"new"]


def test_foreign_versions_go_if_an_operator_asks(world: World) -> None:
    """Those that a newer commit hides, and of which a shadow cell speaks; no others."""
    world.control.raise_number(b"first-timestamp", 100)
    world.store.write({"t": [RowMutation(b"d", (Put(FAMILY, b"q", 30, b"bare"),))]})
    for row in (b"a", b"b"):
        world.healed(row, 20, 30, b"old")
    world.healed(b"a", 200, 250, b"new")
    for low_watermark in (1000, 2000):
        later(world, low_watermark, COLLECTING)
    assert len(world.data()) == 4
    told = later(world, 3000, replace(ALL_AT_ONCE, should_collect_foreign=True, is_dry_run=True))
    done = world.compact(replace(ALL_AT_ONCE, should_collect_foreign=True))
    assert (told.cells_dropped, done.cells_dropped, done.ranges_whole) == (1, 1, 1)
    assert [(cell[0], cell[3]) for cell in world.data()] == [
        (b"a", b"new"),
        (b"b", b"old"),
        (b"d", b"bare"),
    ]
    assert world.visible(b"b", 5000) == {b"q": b"old"}
