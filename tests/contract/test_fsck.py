"""What `omidpy fsck` finds: damage of each kind, planted, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.check import fsck
from compactor.check.findings import CheckReport, Kind
from compactor.check.fsck import Check, CheckOptions
from omidpy.base.cells import commit_row, encode_commit, encode_long, shadow_qualifier
from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE, LOW_WATERMARK_FACT
from omidpy.facts.watermarks import CLAIM_PREFIX, Watermarks
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World, outcome, troubled
from tests.machines.interleaving import interleaved

AT_ONCE: Final = CheckOptions(settle_s=0.0)
REPAIR: Final = replace(AT_ONCE, is_repair=True)


on_every_store: Final = pytest.mark.parametrize(
    "store", ["memory", "sqlite", pytest.param("hbase", marks=pytest.mark.hbase)], indirect=True
)
"""For what rests on how the store itself scans and writes."""


@pytest.fixture
def world(store: Store) -> World:
    """Return a store with one table of ours in two regions, and L = 1000."""
    return began(store)


def began(store: Store) -> World:
    """Return a store at the beginning of its life."""
    world = World(store)
    world.table(splits=[b"m"])
    return world


def checked(
    world: World, options: CheckOptions = AT_ONCE, store: Store | None = None
) -> CheckReport:
    """Check a store; waiting turns the clock."""
    return Check(store or world.store, options, sleep=world.clock.advance).run()


def found(report: CheckReport) -> dict[str, int]:
    """Return what was found, by kind."""
    return {str(kind): count for kind, count in report.counts.items()}


# -- each kind, planted ----------------------------------------------------------------------------


@on_every_store
def test_everything_that_is_planted_is_found_and_no_more(world: World) -> None:
    """One of each kind at once, beside sound cells and everything above L."""
    world.healed(b"sound", 100, 150)
    world.put(b"a", 200)
    world.enter(200, 250)
    world.put(b"b", 300)
    world.put(b"c", 350)
    world.invalidate(350)
    orphan = world.healed(b"d", 400, 450)
    world.remove(orphan)
    world.healed(b"e", 500, 550)
    world.enter(500, 550)
    world.enter(600, 650)
    bad = world.put(b"f", 700)
    world.put(b"f", 700, b"short", qualifier=shadow_qualifier(bad.qualifier))
    put = Put(*COMMIT, 800, b"\xff")
    world.store.write({COMMIT_TABLE: [RowMutation(commit_row(800), (put,))]})
    world.put(b"g", 800)
    world.put(b"h", 1050)
    world.put(b"i", 1100)
    world.enter(1100, 1150)
    world.heal(world.put(b"j", 1200)._replace(row=b"k"), 1250)
    world.control.write(CLAIM_PREFIX + b"t///%020d" % 900, b"{")
    image = world.image()
    report = checked(world)
    assert found(report) == {
        "unhealed": 1,
        "uncommitted": 2,
        "orphan-shadow": 1,
        "leaked-entry": 1,
        "entry-without-cells": 1,
        "malformed-shadow": 1,
        "malformed-entry": 1,
        "malformed-fact": 1,
    }
    rows = {one.kind: one.row for one in report.findings if one.table == "t"}
    assert rows[Kind.UNHEALED] == b"a".hex()
    assert rows[Kind.ORPHAN_SHADOW] == b"d".hex()
    entries = {one.kind: one.start_ts for one in report.findings if one.table == COMMIT_TABLE}
    assert entries == {
        Kind.LEAKED_ENTRY: 500,
        Kind.ENTRY_WITHOUT_CELLS: 600,
        Kind.MALFORMED_ENTRY: 800,
    }
    assert (report.low_watermark, report.left) == (1000, 9)
    assert world.image() == image, "a look changes nothing"


def test_sound_store_is_clean_whatever_goes_on_above_the_watermark(world: World) -> None:
    """Cells of transactions at work have neither shadow cells nor entries."""
    world.healed(b"a", 100, 150)
    world.healed(b"b", 200, 250, b"")
    world.put(b"c", 1050)
    world.put(b"d", 1099)
    report = checked(world)
    assert (found(report), report.left, report.entries_read) == ({}, 0, 0)
    assert report.document()["clean"] is True


def test_what_dead_clients_leave_is_gone_after_a_compaction(world: World) -> None:
    """The one judges as the other does."""
    troubled(world)
    assert found(checked(world)).keys() == {"unhealed", "uncommitted", "orphan-shadow"}
    world.compact()
    assert found(checked(world)) == {}


def test_cell_without_any_proof_below_the_prune_horizon_may_be_a_lost_commit(world: World) -> None:
    """Where entries are kept still, their absence tells that it never committed."""
    world.compact()
    world.put(b"a", 200)
    world.put(b"b", 300)
    world.invalidate(300)
    world.set_low_watermark(2000)
    world.put(b"c", 1500)
    report = checked(world)
    assert found(report) == {"unproven": 1, "uncommitted": 2}
    assert [one.row for one in report.findings if one.kind is Kind.UNPROVEN] == [b"a".hex()]


def test_claim_against_reality_is_found(world: World) -> None:
    """Below a claim no committed cell is without its shadow cell, or an entry goes too early."""
    world.compact()
    world.put(b"a", 200)
    world.put(b"z", 1200)
    world.enter(200, 250)
    world.enter(1200, 1250)
    world.set_low_watermark(2000)
    report = checked(world)
    assert found(report) == {"broken-claim": 1, "unhealed": 1}
    assert [one.row for one in report.findings if one.kind is Kind.BROKEN_CLAIM] == [b"a".hex()]


def test_watermark_below_what_was_relied_on_is_found(world: World) -> None:
    """The oracle has lost its state; a compaction refuses to go on."""
    world.compact()
    world.control.write(LOW_WATERMARK_FACT, encode_long(500))
    assert found(checked(world)) == {"watermark-regressed": 1}


def test_foreign_and_plain_cells_are_nobodys_business(world: World) -> None:
    """Cells below the first timestamp were never written under this oracle."""
    world.control.raise_number(b"first-timestamp", 300)
    world.put(b"a", 100)
    world.enter(200, 250)
    world.put(b"b", 299)
    assert found(checked(world)) == {}


# -- what it has not looked at ---------------------------------------------------------------------


def test_no_entry_is_superfluous_while_a_table_was_not_read(world: World) -> None:
    """Its cells may lie there."""
    world.table("u")
    world.enter(200, 250)

    def before(method: str, table: str) -> None:
        if method in ("scan", "scan_portions") and table == "u":
            raise StorageUnavailable("the region is in transition")

    report = checked(world, store=interleaved(world.store, before))
    assert found(report) == {"unreadable": 1}
    assert found(checked(world, replace(AT_ONCE, tables=frozenset({"t"})))) == {}
    assert found(checked(world)) == {"entry-without-cells": 1}


def test_no_entry_is_superfluous_while_its_cell_lies_in_a_table_that_is_not_ours(
    world: World,
) -> None:
    """A client of Omid's writes into any table."""
    world.table("java", families=(), plain_families=(b"cf",), owner=None)
    world.put(b"a", 200, table="java")
    world.enter(200, 250)
    report = checked(world)
    assert found(report) == {}
    assert "java" in report.notes[0]


@pytest.mark.parametrize("window", [1, 2, 3])
def test_windows_change_nothing(world: World, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are held in memory a part at a time, each with the cells of its versions."""
    troubled(world)
    world.enter(700, 750)
    world.enter(600, 650)
    world.healed(b"k", 600, 650)
    world.put(b"l", 649)
    whole = checked(world)
    monkeypatch.setattr(fsck, "WINDOW_ENTRIES", window)
    parts = checked(world)
    assert sorted(map(repr, parts.findings)) == sorted(map(repr, whole.findings))
    assert parts.counts == whole.counts


@pytest.mark.parametrize("limit", ["MOST_SUSPECTS", "MOST_SUSPECT_CELLS"])
@pytest.mark.parametrize("options", [AT_ONCE, REPAIR], ids=["look", "repair"])
def test_everything_is_looked_at_again_however_much_it_is(
    world: World, options: CheckOptions, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory has a bound; what comes behind it is no less a finding, and may be the worst."""
    for number in range(1, 6):
        world.put(b"%d" % number, 50 * number)
        world.put(b"%d" % number, 300 + 50 * number)
        world.enter(300 + 50 * number, 900)
        world.enter(600 + 50 * number, 1000)
    whole = checked(world)
    monkeypatch.setattr(fsck, limit, 2)
    monkeypatch.setattr(fsck, "PAGE_ROWS", 2)
    report = checked(world, options)
    assert report.counts == whole.counts
    assert found(report) == {"unhealed": 5, "uncommitted": 5, "entry-without-cells": 5}
    assert report.notes == []
    if options.is_repair:
        assert report.left == 10
        assert found(checked(world)) == {
            "leaked-entry": 5,
            "uncommitted": 5,
            "entry-without-cells": 5,
        }


def test_findings_that_are_not_named_are_counted(world: World) -> None:
    """A store after a bad night has millions."""
    for number in range(1, 6):
        world.put(b"%d" % number, 50 * number)
    report = checked(world, replace(AT_ONCE, most_named=2))
    assert (len(report.findings), report.left) == (2, 5)


# -- repair ----------------------------------------------------------------------------------------


@on_every_store
def test_repair_heals_and_drops_what_is_alone_and_nothing_else(world: World) -> None:
    """No reader sees a difference; what needs a person's word, or a grace, stays."""
    troubled(world)
    world.enter(600, 650)
    _, entries, seen = outcome(world)
    data = world.data()
    report = checked(world, REPAIR)
    assert {str(kind): count for kind, count in report.repaired.items()} == {
        "unhealed": 2,
        "orphan-shadow": 1,
    }
    assert report.left == 3, "two uncommitted cells, and an entry"
    assert all(
        one.repaired == (one.kind in (Kind.UNHEALED, Kind.ORPHAN_SHADOW)) for one in report.findings
    )
    assert world.data() == data, "no data cell goes"
    assert outcome(world)[1:] == (entries, seen)
    assert found(checked(world)) == {
        "uncommitted": 2,
        "leaked-entry": 1,
        "entry-without-cells": 1,
    }, "the entry of what was healed is needed no more"


def test_repair_leaves_what_may_be_the_last_copy_of_a_lost_commit(world: World) -> None:
    """A compaction drops it, since nobody sees it; whoever runs a check may know better."""
    world.compact()
    world.put(b"a", 200)
    image = world.image()
    assert checked(world, REPAIR).left == 1
    assert world.image() == image


def test_repair_withdraws_the_claims_that_are_false(world: World) -> None:
    """Nothing may rest on them: until the rows are passed over again, no entry goes."""
    world.compact()
    world.put(b"a", 200)
    world.enter(200, 250)
    report = checked(world, REPAIR)
    assert found(report) == {"broken-claim": 1}
    assert report.left == 0
    assert world.shadows() == {(b"a", 200): 250}
    assert [claim.start for claim in Watermarks(world.control).claims()] == [b"m"]
    world.set_low_watermark(2000)
    left_out = world.compact(replace(ALL_AT_ONCE, exclude=frozenset({"t"})))
    assert left_out.entries_pruned == 0
    assert world.compact().entries_pruned == 1


def test_repair_does_not_touch_what_is_malformed(world: World) -> None:
    """Somebody meant something by it."""
    bad = world.put(b"f", 700)
    world.put(b"f", 700, b"short", qualifier=shadow_qualifier(bad.qualifier))
    world.store.write({COMMIT_TABLE: [RowMutation(commit_row(800), (Put(*COMMIT, 800, b"\xff"),))]})
    world.put(b"g", 800)
    image = world.image()
    assert checked(world, REPAIR).left == 2
    assert world.image() == image


CELLS: Final = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"m", b"z"]),
        st.integers(1, 30),
        st.integers(0, 2),
        st.sampled_from(["healed", "committed", "dead", "forbidden", "orphan"]),
    ),
    max_size=12,
)


@given(CELLS, st.booleans())
def test_repair_shows_no_reader_anything_new(
    cells: list[tuple[bytes, int, int, str]],
    is_compacted: bool,  # noqa: FBT001 - drawn
) -> None:
    """Of whatever clients may have left, before a compaction or behind one."""
    world = began(MemoryStore())
    if is_compacted:
        world.compact()
    fates: dict[int, str] = {}
    for row, number, checkpoint, wanted in cells:
        fate = fates.setdefault(number, wanted)
        start_ts = 50 * number
        cell = world.put(row, start_ts + checkpoint, b"%d" % number)
        if fate in ("healed", "orphan"):
            world.heal(cell, start_ts + 7)
        if fate == "committed":
            world.store.write(
                {
                    COMMIT_TABLE: [
                        RowMutation(
                            commit_row(start_ts),
                            (Put(*COMMIT, start_ts, encode_commit(start_ts, start_ts + 7)),),
                        )
                    ]
                }
            )
        if fate == "forbidden":
            world.invalidate(start_ts)
        if fate == "orphan":
            world.remove(cell)
    before = [world.visible(row, at) for row in (b"a", b"m", b"z") for at in range(0, 2000, 25)]
    first = checked(world, REPAIR)
    after = [world.visible(row, at) for row in (b"a", b"m", b"z") for at in range(0, 2000, 25)]
    assert after == before
    second = checked(world)
    mendable = {Kind.UNHEALED, Kind.BROKEN_CLAIM, Kind.ORPHAN_SHADOW}
    assert not mendable & second.counts.keys()
    assert {one: first.counts[one] for one in first.counts if one in mendable} == first.repaired


def test_malformed_fact_names_its_row(world: World) -> None:
    """So that somebody can look at it."""
    row = CLAIM_PREFIX + b"t///%020d" % 900
    world.control.write(row, b"{")
    (finding,) = checked(world).findings
    assert (finding.table, finding.row) == (CONTROL_TABLE, row.hex())
