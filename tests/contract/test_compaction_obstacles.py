"""What a compaction cannot read, reach or understand stops its range, and nothing else.

It is reported with its place, left byte for byte as it was, and everything else is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from compactor.pruning.prune import MOST_NAMED
from compactor.report import RUN_PREFIX, Laggard, Report, RunLog
from compactor.run.local import compact
from compactor.tables.ownership import IGNORED_PREFIX, Standing, survey
from omidpy.base.cells import INVALIDATION_VALUE, commit_row, encode_long, shadow_qualifier
from omidpy.base.commit_facts import INVALID
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, OMID_ENABLED
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    INVALIDATION,
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
)
from omidpy.facts.control import encode_document
from omidpy.facts.watermarks import (
    CLAIM_PREFIX,
    COLLECTION_LOG,
    HOLD_PREFIX,
    SAMPLE_PREFIX,
    STAMP_PREFIX,
    Claim,
    Watermarks,
)
from omidpy.model import Cell
from omidpy.reports.commit_table import count_entries
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, FAMILY, World
from tests.machines.interleaving import interleaved

CEILING: Final = 5000


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Return a store with one table of ours in two regions, one in one, and L = 1000."""
    sqlite = request.param == "sqlite"
    with closing(SqliteStore(str(tmp_path / "s.db")) if sqlite else MemoryStore()) as store:
        made = World(store)
        ceiling = Put(*TIMESTAMP_CEILING, 1, encode_long(CEILING))
        store.write({TIMESTAMP_TABLE: [RowMutation(TIMESTAMP_CEILING_ROW, (ceiling,))]})
        made.table(splits=[b"m"])
        made.table("u")
        yield made


def enter_raw(world: World, start_ts: int, value: bytes) -> None:
    """Write a commit entry byte for byte."""
    put = Put(*COMMIT, start_ts, value)
    world.store.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), (put,))]})


def raw_entries(world: World) -> list[Cell]:
    """Return what the commit table holds, byte for byte."""
    return world.cells(COMMIT_TABLE)


def versions(world: World) -> list[tuple[bytes, int]]:
    """Return row and version of every data cell, whatever its shadow cell holds."""
    return [(cell.row, cell.version) for cell in world.cells() if cell.qualifier == b"q"]


def laggards_of(report: Report, table: str) -> list[Laggard]:
    """Return what a report says of one table."""
    return [one for one in report.laggards if one.table == table]


def notes(world: World) -> str:
    """Return the notes of all runs."""
    return "\n".join(note for run in RunLog(world.control).runs() for note in run.notes)


# -- shadow cells ----------------------------------------------------------------------------------

BAD_SHADOWS: Final = {
    "short": b"short",
    "empty": b"",
    "long": bytes(9),
    "negative": encode_long(-1),
    "before its transaction": encode_long(99),
    "never issued": encode_long(CEILING + 50),
}


@pytest.mark.parametrize("value", BAD_SHADOWS.values(), ids=BAD_SHADOWS)
@pytest.mark.parametrize("is_legacy", [False, True])
def test_malformed_shadow_cell_stops_its_range_alone(
    world: World,
    value: bytes,
    is_legacy: bool,  # noqa: FBT001 - a table
) -> None:
    """One bad cell stopped every range and all pruning, every night."""
    qualifier = b"q\xc2\x80" if is_legacy else shadow_qualifier(b"q")
    bad = [world.put(b"bad", 100), world.put(b"bad", 100, value, qualifier=qualifier)]
    world.put(b"good", 200)
    world.put(b"dead", 300)
    world.put(b"z", 400)
    world.put(b"a", 500, table="u")
    for start_ts in (100, 200, 400, 500):
        world.enter(start_ts, start_ts + 50)
    report = world.compact()
    (laggard,) = report.laggards
    assert (laggard.table, laggard.start, laggard.end) == ("t", "", b"m".hex())
    for found in (b"bad".hex(), qualifier.hex(), value.hex(), "omidpy tx inspect 100"):
        assert found in laggard.reason
    assert set(bad) <= set(world.cells())
    assert versions(world) == [(b"bad", 100), (b"good", 200), (b"z", 400)]
    assert world.visible(b"good", 2000)
    assert (report.cells_healed, report.transactions_invalidated) == (3, 1)
    claims = {(claim.table, claim.start) for claim in Watermarks(world.control).claims()}
    assert claims == {("t", b"m"), ("u", b"")}
    assert (report.horizon, world.entries()[100]) == (0, 150)
    world.store.write({"t": [RowMutation(b"bad", [Put(*bad[1][1:4], encode_long(150))])]})
    mended = world.compact()
    assert (list(mended.laggards), mended.horizon) == ([], 1000)
    assert world.entries() == {}
    assert world.visible(b"bad", 2000) == {b"q": b"v"}


def test_malformed_shadow_cell_holds_the_horizon_at_the_last_claim(world: World) -> None:
    """What was proven before is proven; other entries go as far as that allows."""
    world.compact(replace(ALL_AT_ONCE, grace_s=3600.0))
    world.clock.advance(3600)
    world.put(b"bad", 1050)
    world.put(b"bad", 1050, b"?", qualifier=shadow_qualifier(b"q"))
    world.enter(900, 950)
    world.enter(1050, 1100)
    world.set_low_watermark(2000)
    report = world.compact(replace(ALL_AT_ONCE, grace_s=3600.0))
    (laggard,) = report.laggards
    assert (laggard.watermark, report.horizon, report.entries_pruned) == (1000, 1000, 1)
    assert world.entries() == {1050: 1100}


def test_malformed_shadow_cell_of_no_cell_is_left_alone(world: World) -> None:
    """An orphan may go, but nobody knows whether this is one."""
    bad = world.put(b"a", 100, b"?", qualifier=shadow_qualifier(b"q"))
    report = world.compact()
    assert world.cells() == [bad]
    assert len(report.laggards) == 1


def test_what_may_lie_above_or_below_a_malformed_cell_stays(world: World) -> None:
    """It may be visible, or hide what is below it; so neither a tombstone nor an old value goes."""
    world.healed(b"a", 100, 150, b"old")
    world.put(b"a", 200, b"")
    world.put(b"a", 200, b"?", qualifier=shadow_qualifier(b"q"))
    world.healed(b"b", 300, 350, b"")
    world.put(b"b", 100)
    world.put(b"b", 100, b"?", qualifier=shadow_qualifier(b"q"))
    world.compact(replace(ALL_AT_ONCE, should_wait=True))
    assert versions(world) == [(b"a", 200), (b"a", 100), (b"b", 300), (b"b", 100)]


def test_many_malformed_cells_are_counted(world: World) -> None:
    """A report of a million reasons is none."""
    for number in range(10):
        row = b"%d" % number
        world.put(row, 100)
        world.put(row, 100, b"?", qualifier=shadow_qualifier(b"q"))
    (laggard,) = world.compact().laggards
    assert laggard.reason.count("malformed shadow cell") == 3
    assert laggard.reason.endswith("and 7 more")


# -- commit entries --------------------------------------------------------------------------------

BAD_ENTRIES: Final = {
    "no varint": b"\xff\xff",
    "too long": b"\x32\x32",
    "overflow": b"\xff" * 9 + b"\x7f",
    "never issued": b"\xff\xff\x7f",
}


@pytest.mark.parametrize("value", BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_cells_of_a_malformed_entry_are_neither_healed_nor_forbidden_nor_dropped(
    world: World, value: bytes
) -> None:
    """It may be the only proof of a commit; what it said nobody knows."""
    bad = [world.put(row, 100) for row in (b"a", b"l", b"z")]
    enter_raw(world, 100, value)
    world.put(b"good", 200)
    world.enter(200, 250)
    world.put(b"dead", 300)
    before = raw_entries(world)
    report = world.compact()
    assert set(bad) <= set(world.cells())
    assert world.shadows() == {(b"good", 200): 250}
    assert [cell for cell in raw_entries(world) if cell.row != commit_row(300)] == before
    assert (report.cells_dropped, report.transactions_invalidated, report.horizon) == (1, 1, 0)
    assert [(one.start, one.end) for one in laggards_of(report, "t")] == [
        ("", b"m".hex()),
        (b"m".hex(), ""),
    ]
    first, second = (one.reason for one in laggards_of(report, "t"))
    for found in (b"a".hex(), commit_row(100).hex(), value.hex(), "omidpy tx inspect 100"):
        assert found in first
    assert "more" not in first, "one transaction is one obstacle, however many cells it has"
    assert b"z".hex() in second


@pytest.mark.parametrize("value", BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_malformed_entry_is_kept_and_the_others_go(world: World, value: bytes) -> None:
    """Nothing is known to need it; nothing is known not to."""
    enter_raw(world, 100, value)
    world.enter(200, 250)
    world.put(b"a", 200)
    report = world.compact()
    assert [cell.row for cell in raw_entries(world)] == [commit_row(100)]
    (laggard,) = report.laggards
    assert (laggard.table, laggard.start) == (COMMIT_TABLE, commit_row(100).hex())
    assert value.hex() in laggard.reason
    assert (report.entries_pruned, report.horizon) == (1, 1000)


def test_malformed_entries_are_counted_by_themselves(world: World) -> None:
    """`omidpy status` failed at the first of them."""
    world.enter(200, 250)
    counted = {"entries": 1, "invalidations": 0, "oldest_start_ts": 200}
    assert count_entries(world.store) == counted
    enter_raw(world, 300, b"\xff")
    assert count_entries(world.store) == {**counted, "malformed": 1}


def test_entry_of_no_transaction_is_kept(world: World) -> None:
    """Its number is no multiple of fifty; removing it would remove another's."""
    world.enter(100, 150)
    put = Put(*COMMIT, 120, b"\x32")
    world.store.write({COMMIT_TABLE: [RowMutation(commit_row(120), (put,))]})
    report = world.compact()
    assert [cell.row for cell in raw_entries(world)] == [commit_row(120)]
    assert "120" in report.laggards[0].reason


def test_invalidation_above_a_malformed_commit_is_one(world: World) -> None:
    """Every reader says invalid there, whatever stands beside it."""
    world.put(b"a", 100)
    enter_raw(world, 100, b"\xff")
    put = Put(*INVALIDATION, 100, INVALIDATION_VALUE)
    world.store.write({COMMIT_TABLE: [RowMutation(commit_row(100), (put,))]})
    assert world.entries() == {100: INVALID}
    report = world.compact()
    assert (list(report.laggards), world.data(), raw_entries(world)) == ([], [], [])


def test_many_malformed_entries_are_counted(world: World) -> None:
    """A few are named, with their rows."""
    world.set_low_watermark(3000)
    for number in range(MOST_NAMED + 5):
        enter_raw(world, 50 * (number + 1), b"\xff")
    found = world.compact().laggards
    assert len(found) == MOST_NAMED + 1
    assert found[-1].reason.startswith("5 more entries")


# -- facts in the control table --------------------------------------------------------------------


def write_fact(world: World, row: bytes, value: bytes = b"{") -> None:
    """Write a fact byte for byte."""
    world.control.write(row, value)


@pytest.mark.parametrize(
    "row",
    [
        CLAIM_PREFIX + b"t///%020d" % 900,
        SAMPLE_PREFIX + b"%020d" % 60_000,
        SAMPLE_PREFIX + b"x",
        STAMP_PREFIX + b"20260101",
        RUN_PREFIX + b"20260101",
        IGNORED_PREFIX + b"u",
        COLLECTION_LOG,
    ],
)
def test_malformed_fact_counts_for_nothing(world: World, row: bytes) -> None:
    """Nobody was told anything by it; the run goes on as if it were not there."""
    world.healed(b"a", 100, 150)
    world.healed(b"a", 200, 250)
    world.put(b"b", 300)
    world.enter(300, 350)
    write_fact(world, row)
    report = world.compact(replace(ALL_AT_ONCE, should_wait=True))
    assert (report.entries_pruned, report.cells_dropped, report.horizon) == (1, 1, 1000)
    assert not report.laggards
    if row.startswith((CLAIM_PREFIX, COLLECTION_LOG)):
        assert repr(row) in notes(world)
        assert b"{".hex() in notes(world)


def test_claim_that_says_other_than_its_row_is_none(world: World) -> None:
    """One turned bit in a key would claim rows that nobody has passed over."""
    world.put(b"z", 100)
    world.enter(100, 150)
    world.compact(replace(ALL_AT_ONCE, tables=frozenset({"u"})))
    claim = Claim("t", b"", b"", 1000, 0, (FAMILY,))
    write_fact(world, claim.row()[:-1] + b"7", encode_document(claim))
    report = world.compact(replace(ALL_AT_ONCE, tables=frozenset({"u"})))
    assert (report.horizon, world.entries()) == (0, {100: 150})
    assert "holds what belongs at" in notes(world)


@pytest.mark.parametrize("value", [b"{", b"of another version"])
def test_claim_that_proves_nothing_gives_way_to_the_same_claim(world: World, value: bytes) -> None:
    """While the low watermark stands still, every run claims the same rows."""
    world.healed(b"a", 100, 150)
    world.enter(100, 150)
    claim = Claim("t", b"m", b"", 1000, 0, (FAMILY,))
    write_fact(
        world, claim.row(), encode_document(claim) if value == b"of another version" else value
    )
    hourly = replace(ALL_AT_ONCE, grace_s=3600.0)
    assert world.compact(hourly).horizon == 0
    world.clock.advance(3600)
    assert world.compact(hourly).entries_pruned == 1


def test_malformed_hold_holds_everything(world: World) -> None:
    """Somebody was granted something; what it was nobody knows."""
    world.healed(b"a", 100, 150)
    world.healed(b"a", 200, 250)
    world.put(b"b", 300)
    world.enter(300, 350)
    write_fact(world, HOLD_PREFIX + b"h")
    options = replace(ALL_AT_ONCE, should_wait=True)
    report = world.compact(options)
    assert (report.cells_dropped, report.entries_pruned) == (0, 1)
    assert Watermarks(world.control).collection_horizon() == 0
    assert "a hold of every snapshot" in notes(world)
    world.control.forget([HOLD_PREFIX + b"h"])
    assert world.compact(options).cells_dropped == 1


# -- what does not answer --------------------------------------------------------------------------


def unanswered(*tables: str, methods: tuple[str, ...]) -> Callable[[str, str], None]:
    """Return what lets some calls of some tables fail."""

    def before(method: str, table: str) -> None:
        if method in methods and table in tables:
            raise StorageUnavailable(f"scan of {table!r}: it is disabled; enable it")

    return before


def compact_through(
    world: World, before: Callable[[str, str], None], **changes: object
) -> tuple[Report, Store]:
    """Compact a store some of whose calls fail."""
    store = interleaved(world.store, before)
    options = replace(ALL_AT_ONCE, **changes)  # type: ignore[arg-type]  # fields by name
    return compact(store, options, clock=world.clock, sleep=world.clock.advance), store


@pytest.mark.parametrize(
    "methods", [("scan_portions",), ("scan_portions", "regions"), ("write",), ("get",)]
)
def test_table_that_does_not_answer_is_an_obstacle_of_its_own_ranges(
    world: World, methods: tuple[str, ...]
) -> None:
    """A disabled table, or a region that moves for an hour; tomorrow it is healed."""
    world.put(b"a", 100)
    world.put(b"z", 100)
    world.put(b"dead", 200)
    world.put(b"a", 100, table="u")
    world.enter(100, 150)
    report, _ = compact_through(world, unanswered("t", methods=methods))
    assert world.shadows("u") == {(b"a", 100): 150}
    assert {one.table for one in report.laggards} == {"t"}
    assert all("enable it" in one.reason for one in report.laggards)
    if "scan_portions" in methods:
        (laggard,) = report.laggards
        assert (laggard.start, laggard.end) == ("", ""), "one reason is one laggard"
    assert (report.horizon, world.entries()[100]) == (0, 150)
    assert world.compact().horizon == 1000
    assert world.visible(b"z", 2000)


def test_region_that_does_not_answer_leaves_the_others_their_claims(world: World) -> None:
    """The second region of a table is passed over although the first fails."""
    world.put(b"a", 100)
    world.put(b"z", 100)
    world.enter(100, 150)
    calls: list[str] = []

    def before(method: str, table: str) -> None:
        if (method, table) == ("scan_portions", "t"):
            calls.append(table)
            if len(calls) == 1:
                raise StorageUnavailable("the region is in transition")

    report, _ = compact_through(world, before)
    (laggard,) = report.laggards
    assert (laggard.table, laggard.start, laggard.end) == ("t", "", b"m".hex())
    assert world.shadows() == {(b"z", 100): 150}


def test_plain_table_that_does_not_answer_is_a_note(world: World) -> None:
    """It ended the run, and every command that lists tables, though nothing is about to go."""
    world.table("plain", families=(), plain_families=(b"cf",), owner=None)
    world.healed(b"a", 100, 150)
    report, store = compact_through(world, unanswered("plain", methods=("find_cell",)))
    assert (report.horizon, list(report.laggards)) == (1000, [])
    assert "table plain could not be searched for shadow cells" in notes(world)
    standings = {one.name: one for one in survey(store, COMMIT_TABLE)}
    assert standings["plain"].standing is Standing.PLAIN
    assert "enable it" in standings["plain"].note


def test_entries_stay_while_a_table_that_may_need_them_does_not_answer(world: World) -> None:
    """A client of Omid's may have written there and died; an operator can say that none did."""
    world.table("plain", families=(), plain_families=(b"cf",), owner=None)
    world.put(b"a", 100)
    world.enter(100, 150)
    report, _ = compact_through(world, unanswered("plain", methods=("find_cell",)))
    assert [one.table for one in report.laggards] == ["plain"]
    assert world.entries() == {100: 150}
    assert world.shadows() == {(b"a", 100): 150}


@pytest.mark.parametrize(
    ("method", "number"),
    [("scan", 16 + 100 % 16 + 1), ("scan", 16 + 16 + 3 + 100 % 16 + 1), ("write_guarded", 1)],
    ids=["asking", "pruning", "removing"],
)
def test_part_of_the_commit_table_that_does_not_answer_keeps_its_entries(
    world: World, method: str, number: int
) -> None:
    """Those of the other parts go."""
    for start_ts in (100, 150, 200):
        world.enter(start_ts, start_ts + 50)
    calls: list[str] = []

    def before(called: str, table: str) -> None:
        if (called, table) == (method, COMMIT_TABLE):
            calls.append(table)
            # Sixteen parts are looked into for their newest entry; then for what to ask about,
            # three of them from both ends; and then they are pruned.
            if len(calls) == number:
                raise StorageUnavailable("the region is in transition")

    report, _ = compact_through(world, before)
    (laggard,) = report.laggards
    assert laggard.table == COMMIT_TABLE
    assert "in transition" in laggard.reason
    assert report.entries_pruned == 2
    assert len(world.entries()) == 1


def test_look_for_the_newest_entry_does_without_what_does_not_answer(world: World) -> None:
    """It is evidence against the oracle, and one part less of it is no reason to stop."""
    world.enter(200, 250)
    calls: list[str] = []

    def before(method: str, table: str) -> None:
        if (method, table) == ("scan", COMMIT_TABLE):
            calls.append(table)
            if len(calls) == 1:
                raise StorageUnavailable("the region is in transition")

    report, _ = compact_through(world, before)
    assert (report.entries_pruned, list(report.laggards)) == (1, [])


def test_mark_without_any_answer_still_blocks(world: World) -> None:
    """What the description of a table says needs no region."""
    world.table("java", owner=None)
    report, _ = compact_through(world, unanswered("java", methods=("find_cell", "scan", "get")))
    (laggard,) = report.laggards
    assert laggard.table == "java"
    assert OMID_ENABLED in laggard.reason
    assert COMMIT_TABLE_ATTRIBUTE not in laggard.reason
