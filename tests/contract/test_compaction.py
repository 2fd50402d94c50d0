"""The whole plan on every store that this machine has: what a run leaves, and what it reports."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

import pytest

from compactor.options import Options
from compactor.report import RUNS_KEPT, Report, RunLog, new_run
from compactor.run.local import compact
from compactor.run.plan import STEPS
from omidpy.base.cells import LOW_WATERMARK_ROW, encode_long
from omidpy.base.commit_facts import INVALID
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, CONTROL_TABLE
from omidpy.base.timing.ages import Sample
from omidpy.base.timing.clock import ManualClock
from omidpy.base.words.arguments import MAX_ROW_BYTES
from omidpy.errors import ConfigError, OracleError, ReservationLost, UsageError
from omidpy.facts.commit_table import COMMIT_TABLE, LOW_WATERMARK, LOW_WATERMARK_FACT
from omidpy.facts.control import encode_document
from omidpy.facts.holds import hold
from omidpy.facts.watermarks import (
    DATES_DIFFER_S,
    EXPIRED_HOLD_KEPT_S,
    HOLD_PREFIX,
    SAMPLE_PREFIX,
    Hold,
    Watermarks,
)
from omidpy.model import Cell
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, FAMILY, World, outcome, troubled
from tests.machines.ignoring import set_ignored
from tests.machines.interleaving import interleaved

NIGHTLY: Final = Options(retention_s=0.0)


on_every_store: Final = pytest.mark.parametrize(
    "store",
    ["memory", "sqlite", pytest.param("hbase", marks=pytest.mark.hbase)],
    indirect=True,
)
"""For what rests on how the store itself deletes, scans, checks or lists."""


@pytest.fixture
def world(store: Store) -> World:
    """Return a store with the system tables, one table of ours in two regions, and L = 1000."""
    made = World(store)
    made.table(splits=[b"m"])
    return made


# -- healing and dropping --------------------------------------------------------------------------


@on_every_store
def test_committed_cells_are_healed_and_their_entry_goes(world: World) -> None:
    """The purpose of it all: the commit table forgets, and no reader notices."""
    world.put(b"a", 100)
    world.put(b"z", 103)
    world.enter(100, 150)
    report = world.compact()
    assert world.shadows() == {(b"a", 100): 150, (b"z", 103): 150}
    assert world.entries() == {}
    assert (report.cells_healed, report.entries_pruned, report.horizon) == (2, 1, 1000)
    assert world.visible(b"z", 2000) == {b"q": b"v"}


@on_every_store
def test_cells_that_never_committed_are_invalidated_and_dropped(world: World) -> None:
    """Their client died; an invalidation forbids a late commit before the first cell goes."""
    world.put(b"a", 100)
    world.put(b"z", 100)
    report = world.compact(replace(ALL_AT_ONCE, invalidation_grace_s=3600))
    assert world.data() == []
    assert world.entries() == {100: INVALID}
    assert (report.transactions_invalidated, report.cells_dropped) == (1, 2)
    assert report.invalidations_pruned == 0
    world.clock.advance(3600)
    later = world.compact(replace(ALL_AT_ONCE, invalidation_grace_s=3600))
    assert world.entries() == {}
    assert (later.invalidations_pruned, later.transactions_invalidated) == (1, 0)


def test_next_to_nothing_is_read_whole_each_time(world: World) -> None:
    """What came late, below a claim, goes with the next run: to look costs no call more."""
    world.put(b"a", 500)
    world.enter(500, 550)
    world.compact()
    world.put(b"b", 100)
    world.set_low_watermark(2000)
    assert world.compact().ranges_whole > 0
    assert {row for row, *_ in world.data()} == {b"a"}


def test_invalidation_that_stood_before_is_not_counted_again(world: World) -> None:
    """The report counts what this run created."""
    world.put(b"a", 100)
    world.invalidate(100)
    assert world.compact().transactions_invalidated == 0
    assert world.data() == []


@on_every_store
def test_invalidation_wins_over_a_commit_beside_it(world: World) -> None:
    """A deposed oracle wrote `C` after `IT`; every reader says invalid, and both go together."""
    world.put(b"a", 100)
    world.enter(100, 150)
    world.invalidate(100)
    world.compact()
    assert world.data() == []
    assert world.cells(COMMIT_TABLE) == []


@pytest.mark.parametrize("version", [1050, 1051])
def test_transaction_above_the_low_watermark_is_left_alone(world: World, version: int) -> None:
    """It may still be running, or about to commit."""
    world.put(b"a", version)
    world.put(b"b", 1100)
    world.enter(1100, 1150)
    report = world.compact()
    assert [cell[2] for cell in world.data()] == [version, 1100]
    assert world.entries() == {1100: 1150}
    assert world.shadows() == {}
    assert report.cells_dropped == report.cells_healed == 0


@pytest.mark.parametrize("version", [1000, 1001, 1049])
def test_checkpointed_cell_of_the_transaction_at_the_watermark_is_healed(
    world: World, version: int
) -> None:
    """Its entry is at L and will be pruned, so base(version) decides and not the version."""
    world.put(b"a", version)
    world.enter(1000, 1050)
    world.compact()
    assert world.shadows() == {(b"a", version): 1050}
    assert world.entries() == {}


@on_every_store
def test_invalidations_of_a_page_are_one_durable_write(world: World) -> None:
    """One fsync a transaction would make the first run after a crash take hours."""
    writes: list[str] = []
    for number in range(20):
        world.put(b"%d" % number, 50 * (number + 1))
    store = interleaved(
        world.store,
        lambda method, table: writes.append(method) if table == COMMIT_TABLE else None,
    )
    options = replace(ALL_AT_ONCE, invalidation_grace_s=3600.0)
    report = compact(store, options, clock=world.clock, sleep=world.clock.advance)
    assert report.transactions_invalidated == 20
    if world.store.capabilities.guarded_batches:
        assert writes.count("write_guarded") == 1
        assert "check_and_mutate" not in writes
    else:
        # Whether one stands is asked and changed row by row there; an fsync is the WAL's matter.
        assert writes.count("check_and_mutate") == 20


@on_every_store
def test_orphan_shadow_cell_goes(world: World) -> None:
    """Java's rollback and a healing reader that was overtaken leave them."""
    cell = world.put(b"a", 100)
    world.heal(cell, 150)
    world.remove(cell)
    late = world.put(b"b", 1050)
    world.heal(late, 1100)
    world.remove(late)
    report = world.compact()
    assert world.shadows() == {(b"b", 1050): 1100}
    assert report.cells_dropped == 1


def test_orphan_is_looked_for_again_before_it_goes(world: World) -> None:
    """The client's write may be under way still, while a reader has healed what it saw of it."""
    world.heal(Cell(b"a", FAMILY, b"q", 100, b"v"), 150)
    report = world.compact(
        on_step=lambda step: world.put(b"a", 100) and None if step == "page-resolved" else None
    )
    assert report.cells_dropped == 0
    assert world.visible(b"a", 2000) == {b"q": b"v"}


@on_every_store
def test_horizon_is_durable_before_the_first_entry_goes(world: World) -> None:
    """I7: the oracle refuses to guess about what may have been forgotten, from then on."""
    horizons: list[int] = []
    world.enter(100, 150)
    world.compact(
        on_step=lambda step: (
            horizons.append(Watermarks(world.control).prune_horizon())
            if step == "page-judged"
            else None
        )
    )
    assert horizons == [1000]


@on_every_store
def test_second_run_finds_nothing_to_do(world: World) -> None:
    """Idempotent: the nightly job of a quiet cluster writes claims and nothing else."""
    world.put(b"a", 100)
    world.enter(100, 150)
    world.put(b"b", 200)
    world.compact()
    image = world.image()
    report = world.compact()
    assert replace_counts(report) == (0, 0, 0, 0, 0)
    for table in ("t", COMMIT_TABLE):
        assert world.image()[table] == image[table]


def replace_counts(report: Report) -> tuple[int, int, int, int, int]:
    """Return every count of writes."""
    return (
        report.cells_healed,
        report.transactions_invalidated,
        report.cells_dropped,
        report.entries_pruned,
        report.invalidations_pruned,
    )


@on_every_store
def test_omids_low_watermark_row_is_never_pruned(world: World) -> None:
    """Its key has 13 bytes and sorts among the entries; Java's coprocessor reads it."""
    put = Put(*LOW_WATERMARK, 1, encode_long(10))
    world.store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, (put,))]})
    world.enter(100, 150)
    world.compact()
    assert [cell.row for cell in world.cells(COMMIT_TABLE)] == [LOW_WATERMARK_ROW]


# -- what is not ours ------------------------------------------------------------------------------


@on_every_store
def test_plain_table_comes_out_byte_for_byte(world: World) -> None:
    """Plain HBase data beside transactional data, some of it looking like old versions."""
    world.table("plain", families=(), plain_families=(b"cf",), owner=None)
    for version in (50, 100, 1000, 1049, 1_700_000_000_000):
        world.put(b"a", version, b"" if version == 100 else b"v", table="plain")
    before = world.image()["plain"]
    report = world.compact()
    assert world.image()["plain"] == before
    assert (report.horizon, list(report.laggards)) == (1000, [])


@on_every_store
def test_family_without_the_mark_is_never_touched(world: World) -> None:
    """A table of ours may keep plain data in another family."""
    world.table("mixed", plain_families=(b"plain",))
    world.put(b"a", 100, table="mixed", family=b"plain")
    world.put(b"a", 100, table="mixed")
    assert world.compact().cells_read == 1
    assert [cell.family for cell in world.cells("mixed")] == [b"plain"]


@on_every_store
def test_shadow_cell_in_an_unmarked_family_blocks(world: World) -> None:
    """Somebody writes transactions there; what they commit would be lost."""
    world.table("mixed", plain_families=(b"plain",), splits=[b"m"])
    cell = world.put(b"x", 100, table="mixed", family=b"plain")
    world.heal(cell, 150, table="mixed")
    world.enter(100, 150)
    before = world.image()["mixed"]
    report = world.compact()
    (laggard,) = report.laggards
    assert (laggard.table, laggard.start, laggard.end, laggard.watermark) == ("mixed", "", "", 0)
    assert "family plain is not ours, but row b'x' holds the shadow cell" in laggard.reason
    assert "omidpy table adopt mixed" in laggard.reason
    assert "omidpy table ignore mixed --families plain" in laggard.reason
    assert report.horizon == 0
    assert world.entries() == {100: 150}
    assert world.image()["mixed"] == before
    set_ignored(world.control, "mixed", is_ignored=False, families=[b"plain"])
    assert world.compact().horizon == 1000
    assert (world.entries(), world.image()["mixed"]) == ({}, before)


@pytest.mark.parametrize("has_mark", [True, False])
def test_table_that_is_not_adopted_blocks_and_is_never_written(
    world: World,
    has_mark: bool,  # noqa: FBT001 - a table
) -> None:
    """Another Omid's table, or Java's before adoption: its cells may need our entries."""
    families = {"families": (b"cf",)} if has_mark else {"families": (), "plain_families": (b"cf",)}
    world.table("java", owner=None, **families)
    cell = world.put(b"a", 100, table="java")
    if not has_mark:
        world.heal(world.put(b"b", 200, table="java"), 250, table="java")
    world.enter(100, 150)
    before = world.image()["java"]
    report = world.compact()
    (laggard,) = report.laggards
    assert (laggard.table, laggard.start, laggard.end, laggard.watermark) == ("java", "", "", 0)
    assert "omidpy table adopt java" in laggard.reason
    assert world.image()["java"] == before
    assert (report.horizon, world.entries()) == (0, {100: 150})
    set_ignored(world.control, "java", is_ignored=True)
    assert world.compact().horizon == 1000
    assert world.image()["java"] == before
    assert cell in before


def test_table_that_is_no_longer_ours_blocks_whatever_was_claimed(world: World) -> None:
    """Its claims were true; who writes it now, and with what commit table, nobody knows."""
    world.table("u")
    world.enter(100, 150)
    world.compact(replace(NIGHTLY, grace_s=3600.0))
    world.store.set_table_attributes("u", {COMMIT_TABLE_ATTRIBUTE: None})
    report = world.compact()
    assert [laggard.table for laggard in report.laggards] == ["u"]
    assert (report.horizon, world.entries()) == (0, {100: 150})


@on_every_store
def test_foreign_cells_are_reported_and_left_alone(world: World, store: Store) -> None:
    """Below the oracle's first timestamp: bulk-loaded data, or another Omid's life before ours."""
    world.control.raise_number(b"first-timestamp", 500)
    foreign = world.put(b"a", 450)
    world.enter(450, 480)
    world.put(b"a", 500)
    world.enter(500, 550)
    world.compact()
    assert foreign in world.cells()
    assert world.shadows() == {(b"a", 500): 550}
    assert world.entries() == {450: 480}
    (record,) = RunLog(world.control).runs()
    assert record.foreign_cells == 1
    assert any("foreign" in note for note in record.notes)


# -- choosing tables -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [Options(tables=frozenset({"t"})), Options(exclude=frozenset({"u"}))]
)
def test_table_left_out_holds_the_horizon_at_its_last_record(
    world: World, options: Options
) -> None:
    """Choosing what to scan never changes what counts."""
    world.table("u")
    world.compact()
    world.put(b"a", 1050, table="u")
    world.enter(1050, 1100)
    world.set_low_watermark(2000)
    chosen = replace(ALL_AT_ONCE, tables=options.tables, exclude=options.exclude)
    report = world.compact(chosen)
    (laggard,) = report.laggards
    assert (laggard.table, laggard.watermark) == ("u", 1000)
    assert "--exclude" in laggard.reason or "--tables" in laggard.reason
    assert report.horizon == 1000
    assert world.entries() == {1050: 1100}


@pytest.mark.parametrize(
    "options", [Options(tables=frozenset({"tt"})), Options(exclude=frozenset({"tt"}))]
)
def test_unknown_table_is_a_usage_error(world: World, options: Options) -> None:
    """A typo in --exclude would scan the table, one in --tables would leave it out unnoticed."""
    with pytest.raises(UsageError, match="tt"):
        world.compact(options)


# -- graces ----------------------------------------------------------------------------------------


def test_entries_wait_for_the_grace(world: World) -> None:
    """A client whose reply was lost still looks for its entry, and would erase its cells."""
    world.put(b"a", 100)
    world.enter(100, 150)
    first = world.compact(NIGHTLY)
    assert (first.cells_healed, first.entries_pruned, first.horizon) == (1, 0, 0)
    assert list(first.laggards) == []
    world.clock.advance(3599)
    assert world.compact(NIGHTLY).entries_pruned == 0
    world.clock.advance(1)
    assert world.compact(NIGHTLY).entries_pruned == 1


def test_next_night_prunes_to_last_nights_minimum(world: World) -> None:
    """Without --wait a run never sleeps; it acts on what an earlier run proved."""
    world.put(b"a", 100)
    world.enter(100, 150)
    world.compact(NIGHTLY)
    world.clock.advance(86_400)
    world.put(b"a", 1050)
    world.enter(1050, 1100)
    world.set_low_watermark(2000)
    report = world.compact(NIGHTLY)
    assert (report.low_watermark, report.horizon) == (2000, 1000)
    assert world.entries() == {1050: 1100}


@pytest.mark.parametrize("step_s", [-7200, 7200])
def test_setting_the_clock_neither_shortens_nor_stretches_a_grace(
    world: World, step_s: int
) -> None:
    """Somebody sets it forward by an hour or two, and Java clients have nothing but the grace."""
    history(world)
    world.put(b"b", 100)
    world.enter(100, 150)
    world.compact(NIGHTLY)
    world.clock.step_wall(milliseconds=step_s * 1000)
    early = world.compact(NIGHTLY)
    assert (early.entries_pruned, early.cells_dropped, early.horizon) == (0, 0, 0)
    world.clock.advance(3600)
    late = world.compact(NIGHTLY)
    assert (late.entries_pruned, late.cells_dropped, late.horizon) == (1, 2, 1000)


def test_setting_the_clock_does_not_end_a_wait(world: World) -> None:
    """Nor the wait for the horizon of old versions before it."""
    history(world)
    world.put(b"b", 100)
    world.enter(100, 150)
    before_s = world.clock.monotonic_s()

    def set_forward(step: str) -> None:
        if step in ("horizon-published", "listed-again"):
            world.clock.step_wall(milliseconds=7_200_000)

    report = world.compact(replace(NIGHTLY, should_wait=True), on_step=set_forward)
    assert (report.entries_pruned, report.cells_dropped) == (1, 2)
    assert world.clock.monotonic_s() - before_s == pytest.approx(7200, abs=2)


@pytest.mark.parametrize("is_killed", [False, True])
def test_claims_of_another_machine_count_from_when_they_are_seen(
    world: World,
    is_killed: bool,  # noqa: FBT001 - a table
) -> None:
    """Its clock may say anything; and a run that died could not date its claims."""

    def die(step: str) -> None:
        if is_killed and step == "listed-again":
            raise KeyboardInterrupt

    def is_noted() -> bool:
        notes = RunLog(world.control, world.clock.wall_ms).runs()[-1].notes
        return any("the claims of 1 earlier runs" in note for note in notes)

    world.put(b"a", 100)
    world.enter(100, 150)
    with contextlib.suppress(KeyboardInterrupt):
        world.compact(NIGHTLY, on_step=die)
    world.clock = ManualClock(wall_ms=1_800_000_000_000, monotonic_s=10**9)
    assert world.compact(NIGHTLY).entries_pruned == 0
    assert is_noted()
    world.clock.advance(3599)
    assert world.compact(NIGHTLY).entries_pruned == 0
    world.clock.advance(1)
    assert world.compact(NIGHTLY).entries_pruned == 1
    assert not is_noted()


def test_the_oracles_samples_date_the_claims_of_another_machine(world: World) -> None:
    """The job runs on any machine of a cluster; the oracle's own clock goes on meanwhile."""
    world.put(b"a", 100)
    world.enter(100, 150)
    sample(world, 0)
    world.compact(NIGHTLY)
    for minute in range(61):
        sample(world, (minute + 1) * 60_000)
    world.clock = ManualClock()
    assert world.compact(NIGHTLY).entries_pruned == 0, "from the second minute to the 61st"
    sample(world, 62 * 60_000)
    world.clock = ManualClock()
    assert world.compact(NIGHTLY).entries_pruned == 1


def sample(world: World, elapsed_ms: int) -> None:
    """Record a sample of the oracle's, whose machine was started once."""
    found = Sample(elapsed_ms, 0, 1000, "oracle", 7_000_000 + elapsed_ms)
    world.control.write(SAMPLE_PREFIX + b"%020d" % elapsed_ms, encode_document(found))


def test_stamps_go_with_the_claims_that_they_date(world: World) -> None:
    """One a run, for ever, would be a leak of its own."""
    watermarks = Watermarks(world.control)
    for _ in range(20):
        world.set_low_watermark(world.compact(NIGHTLY).low_watermark + 50)
        world.clock.advance(86_400)
    runs = {claim.run for claim in watermarks.claims()}
    assert watermarks.stamps().keys() == runs
    assert len(runs) < 15


def test_wait_sleeps_until_this_runs_claims_count(world: World) -> None:
    """With --wait one run does everything, however long it takes."""
    world.put(b"a", 100)
    world.enter(100, 150)
    before_s = world.clock.monotonic_s()
    report = world.compact(replace(NIGHTLY, should_wait=True, invalidation_grace_s=3600.0))
    assert report.entries_pruned == 1
    # An hour for readers of old versions, another for clients without a reply.
    assert world.clock.monotonic_s() - before_s == pytest.approx(7200, abs=2)


def test_table_created_while_a_run_waits_blocks_until_it_is_scanned(world: World) -> None:
    """It may be a clone of an old table, full of cells whose entries are about to go."""

    def clone(step: str) -> None:
        if step == "listed-again":
            world.table("clone")
            world.put(b"a", 100, table="clone")

    world.enter(100, 150)
    options = replace(NIGHTLY, should_wait=True)
    report = world.compact(options, on_step=clone)
    assert [laggard.table for laggard in report.laggards] == ["clone"]
    assert world.entries() == {100: 150}
    assert world.compact(options).entries_pruned == 1
    assert world.shadows("clone") == {(b"a", 100): 150}


@on_every_store
def test_table_that_appears_during_the_scan_is_scanned_too(world: World) -> None:
    """With the same L, which was read before."""

    def create(step: str) -> None:
        if step == "ranges-passed":
            world.table("late", splits=[b"m"])
            world.put(b"a", 100, table="late")

    world.enter(100, 150)
    report = world.compact(on_step=create)
    assert world.shadows("late") == {(b"a", 100): 150}
    assert (report.entries_pruned, list(report.laggards)) == (1, [])


def test_table_that_appears_while_another_late_one_is_scanned_blocks(world: World) -> None:
    """A large copy takes hours, in which a second one may come."""
    appeared: list[str] = []

    def create(step: str) -> None:
        if (step, len(appeared)) in (("ranges-passed", 0), ("page-read", 1)):
            appeared.append(world.table(("late", "later")[len(appeared)]))
            world.put(b"a", 100, table=appeared[-1])

    world.enter(100, 150)
    report = world.compact(on_step=create)
    assert [laggard.table for laggard in report.laggards] == ["later"]
    assert world.entries() == {100: 150}
    assert world.compact().entries_pruned == 1
    assert world.shadows("later") == {(b"a", 100): 150}


@on_every_store
@pytest.mark.parametrize("step", ["list-tables", "page-read", "ranges-passed"])
def test_table_dropped_during_the_run_does_not_matter(world: World, step: str) -> None:
    """Its cells are gone, and so is what they needed."""
    world.table("a-first")
    world.put(b"a", 100, table="a-first")
    world.enter(100, 150)

    def drop(name: str) -> None:
        if name == step and any(one.name == "a-first" for one in world.store.tables()):
            world.store.drop_table("a-first")

    report = world.compact(on_step=drop)
    assert (report.entries_pruned, list(report.laggards)) == (1, [])
    assert all(claim.table != "a-first" for claim in Watermarks(world.control).claims())


def test_splits_and_merges_between_runs_change_nothing(world: World) -> None:
    """Claims speak of rows."""
    if not world.store.capabilities.region_admin:
        pytest.skip("needs HBase's administrator: tests/integration/cluster/test_hbase_regions.py")
    world.compact()
    world.split(b"c")
    world.store.merge_regions("t", b"m")
    world.put(b"b", 1050)
    world.enter(1050, 1100)
    assert world.compact().horizon == 1000
    world.set_low_watermark(2000)
    assert world.compact().horizon == 2000
    assert world.entries() == {}


@on_every_store
def test_regions_that_meet_at_the_longest_keys_are_compacted(store: Store) -> None:
    """A claim is named by both its ends, as digits: a name that no row can have ended every run."""
    world = World(store)
    world.table(splits=[b"a" * MAX_ROW_BYTES, b"b" * MAX_ROW_BYTES])
    world.put(b"a" * (MAX_ROW_BYTES - 1) + b"b", 100)
    world.enter(100, 150)
    assert world.compact().horizon == 1000
    assert world.entries() == {}
    world.set_low_watermark(2000)
    assert world.compact().horizon == 2000
    marks = Watermarks(world.control)
    assert {claim.watermark for claim in marks.claims()} == {1000, 2000}
    assert marks.malformed == {}


@on_every_store
def test_the_low_watermark_of_omids_oracle_counts_once_it_has_taken_over(world: World) -> None:
    """Ours stays frozen then, and nothing would be pruned any more, and nobody be told."""
    world.put(b"a", 1050)
    world.enter(1050, 1100)
    assert world.compact().low_watermark == 1000
    world.clock.advance(1)
    put = Put(*LOW_WATERMARK, 1, encode_long(2000))
    world.store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, (put,))]})
    report = world.compact()
    assert (report.low_watermark, report.horizon, report.entries_pruned) == (2000, 2000, 1)
    notes = [run.notes for run in RunLog(world.control).runs()]
    assert [any("Omid's oracle leads" in note for note in of_run) for of_run in notes] == [
        False,
        True,
    ]
    world.set_low_watermark(3000)
    assert world.compact().horizon == 3000


# -- a table that is made anew ---------------------------------------------------------------------


def test_claims_of_a_dropped_table_say_nothing_of_the_next_of_its_name(world: World) -> None:
    """It may be restored from a snapshot; its commits were forgotten by what its forerunner had."""
    world.enter(100, 150)
    world.compact(NIGHTLY)
    world.clock.advance(3600)
    world.store.drop_table("t")
    world.table("t", incarnation="2")
    world.put(b"a", 100)
    report = world.compact(replace(NIGHTLY, exclude=frozenset({"t"})))
    assert (report.horizon, world.entries()) == (0, {100: 150})
    assert world.compact(NIGHTLY).horizon == 0
    world.clock.advance(3600)
    assert world.compact(NIGHTLY).entries_pruned == 1
    assert world.shadows("t") == {(b"a", 100): 150}


def test_a_table_that_is_made_anew_under_a_run_is_passed_over_again(world: World) -> None:
    """The pass over its forerunner has seen none of its cells."""
    world.enter(100, 150)

    def renew(name: str) -> None:
        if name == "ranges-passed":
            world.store.drop_table("t")
            world.table("t", incarnation="2")
            world.put(b"a", 100)

    report = world.compact(on_step=renew)
    assert (report.cells_healed, report.entries_pruned) == (1, 1)
    assert world.shadows("t") == {(b"a", 100): 150}


# -- no table at all -------------------------------------------------------------------------------


@on_every_store
def test_store_without_tables_forgets_up_to_the_low_watermark(world: World) -> None:
    """The last table was dropped; its entries stayed for ever, and nobody was told."""
    world.enter(100, 150)
    world.invalidate(200)
    world.enter(1050, 1100)
    world.store.drop_table("t")
    first = world.compact(NIGHTLY)
    assert (first.entries_pruned, first.horizon, list(first.laggards)) == (0, 0, [])
    assert "no table here is transactional" in RunLog(world.control).runs()[-1].notes[0]
    world.clock.advance(3600)
    second = world.compact(replace(NIGHTLY, invalidation_grace_s=7200.0))
    assert (second.entries_pruned, second.invalidations_pruned, second.horizon) == (1, 0, 1000)
    assert world.entries() == {200: INVALID, 1050: 1100}
    world.clock.advance(3600)
    world.compact(replace(NIGHTLY, invalidation_grace_s=7200.0))
    assert world.entries() == {1050: 1100}


def test_wait_and_dry_run_do_without_tables_too(world: World) -> None:
    """As with tables: the one forgets in one run, the other says what that would be."""
    world.enter(100, 150)
    world.store.drop_table("t")
    waiting = replace(NIGHTLY, should_wait=True)
    before = world.image()
    dry = world.compact(replace(waiting, is_dry_run=True))
    assert (dry.entries_pruned, dry.horizon) == (1, 1000)
    assert world.image() == before
    report = world.compact(waiting)
    assert (report.entries_pruned, world.entries()) == (1, {})


@pytest.mark.parametrize("step", ["list-tables", "ranges-passed"])
def test_a_table_in_either_list_is_a_table(world: World, step: str) -> None:
    """What there was a moment ago may have been copied; the next run looks twice again."""
    world.enter(100, 150)

    def drop(name: str) -> None:
        if name == step:
            world.store.drop_table("t")

    report = world.compact(on_step=drop)
    assert (report.horizon, world.entries()) == (0, {100: 150})
    assert world.compact().entries_pruned == 1


def test_table_that_comes_after_a_run_without_one_is_scanned_first(world: World) -> None:
    """It may be restored from a snapshot, full of cells whose entries are about to go."""
    world.store.drop_table("t")
    world.enter(100, 150)
    world.compact(NIGHTLY)
    world.clock.advance(3600)
    world.table("restored")
    world.put(b"a", 100, table="restored")
    report = world.compact(replace(NIGHTLY, exclude=frozenset({"restored"})))
    assert (report.horizon, world.entries()) == (0, {100: 150})
    world.compact(NIGHTLY)
    world.clock.advance(3600)
    assert world.compact(NIGHTLY).entries_pruned == 1
    assert world.shadows("restored") == {(b"a", 100): 150}


def test_plain_table_is_asked_where_there_is_no_other(world: World) -> None:
    """A client of Omid's may have written there and died, as beside tables of ours."""
    world.store.drop_table("t")
    world.table("java", families=(), plain_families=(b"cf",), owner=None)
    world.put(b"a", 100, table="java")
    world.enter(100, 150)
    report = world.compact()
    assert [laggard.table for laggard in report.laggards] == ["java"]
    assert world.entries() == {100: 150}


# -- what must stop a run --------------------------------------------------------------------------


def test_low_watermark_below_a_record_stops_the_run(world: World) -> None:
    """The oracle lost its state: what was proven with the old watermark no longer holds."""
    world.put(b"a", 100)
    world.compact()
    world.control.write(LOW_WATERMARK_FACT, encode_long(950))
    world.put(b"a", 200)
    before = world.image()
    with pytest.raises(OracleError, match=r"950.*1000"):
        world.compact()
    assert world.image() == before


def test_low_watermark_equal_to_the_records_is_an_idle_oracle(world: World) -> None:
    """Equality is no regression."""
    world.compact()
    assert world.compact().low_watermark == 1000


@on_every_store
def test_store_without_a_commit_table_says_what_to_do(store: Store) -> None:
    """Most likely a wrong address."""
    world = World(store)
    world.store.drop_table(CONTROL_TABLE)
    with pytest.raises(ConfigError, match="omidpy init"):
        world.compact()


@on_every_store
def test_dry_run_counts_the_same_and_writes_nothing(world: World) -> None:
    """Operators look first."""
    world.put(b"a", 100)
    world.enter(100, 150)
    world.put(b"z", 200)
    false_alarm = world.put(b"b", 300)
    world.heal(false_alarm, 350)
    world.put(b"c", 300)
    world.invalidate(300)
    orphan = world.put(b"y", 400)
    world.heal(orphan, 450)
    world.remove(orphan)
    before = world.image()
    dry = world.compact(replace(ALL_AT_ONCE, is_dry_run=True))
    assert world.image() == before
    real = world.compact()
    assert dry.dry_run
    assert replace_counts(dry)[:4] == replace_counts(real)[:4]
    assert (dry.horizon, dry.low_watermark) == (real.horizon, real.low_watermark)
    assert (dry.rows_read, dry.cells_read) == (real.rows_read, real.cells_read)


# -- version collection ----------------------------------------------------------------------------


def history(world: World) -> None:
    """Write three healed versions of one cell."""
    world.healed(b"a", 100, 150, b"one")
    world.healed(b"a", 200, 250, b"two")
    world.healed(b"a", 300, 350, b"three")


def versions(world: World) -> list[int]:
    """Return the versions that are left."""
    return [cell[2] for cell in world.data()]


@on_every_store
def test_old_versions_go_a_grace_after_their_horizon_was_published(world: World) -> None:
    """A reader looks at the horizon after its data arrived; it must have had the time."""
    history(world)
    assert world.compact(NIGHTLY).cells_dropped == 0
    assert Watermarks(world.control).collection_horizon() == 1000
    world.clock.advance(3599)
    assert world.compact(NIGHTLY).cells_dropped == 0
    world.clock.advance(1)
    assert world.compact(NIGHTLY).cells_dropped == 2
    assert versions(world) == [300]
    assert world.visible(b"a", 1000) == {b"q": b"three"}


def test_collection_has_a_least_grace(world: World) -> None:
    """Even `--grace 0s` gives readers the two seconds that their short cut counts on."""
    history(world)
    world.compact()
    world.clock.advance(1.9)
    assert world.compact().cells_dropped == 0
    world.clock.advance(0.1)
    assert world.compact().cells_dropped == 2


def test_wait_collects_in_one_run(world: World) -> None:
    """The horizon is published, waited for, and acted upon."""
    history(world)
    world.compact(replace(ALL_AT_ONCE, should_wait=True))
    assert versions(world) == [300]


@on_every_store
def test_hold_keeps_what_its_snapshot_sees(world: World) -> None:
    """The snapshot at 250 sees the first version only: 250 is committed *at* it."""
    history(world)
    Watermarks(world.control).write_hold("h", Hold(250, world.clock.wall_ms() + 10_000))
    world.compact(replace(ALL_AT_ONCE, should_wait=True))
    assert Watermarks(world.control).collection_horizon() == 250
    assert versions(world) == [300, 200, 100]
    assert world.visible(b"a", 250) == {b"q": b"one"}
    world.clock.advance(10)
    world.compact(replace(ALL_AT_ONCE, should_wait=True))
    assert versions(world) == [300]


@on_every_store
def test_a_new_hold_counts_whatever_the_date_of_its_machine(world: World) -> None:
    """I10: no sample was taken since, so that nothing but dates tells, an hour apart."""
    history(world)
    behind = ManualClock(wall_ms=world.clock.wall_ms() - 3_600_000)
    hold(Watermarks(world.control), 250, behind, for_s=600.0)
    world.compact(replace(ALL_AT_ONCE, should_wait=True))
    assert versions(world) == [300, 200, 100]
    world.clock.advance(DATES_DIFFER_S + 600.0)
    world.compact(replace(ALL_AT_ONCE, should_wait=True))
    assert versions(world) == [300]


def test_records_of_holds_go_a_day_after_they_expired(world: World) -> None:
    """Whoever never releases one leaves nothing for ever; a clock that is behind does no harm."""
    watermarks = Watermarks(world.control)
    expires_ms = world.clock.wall_ms() + 10_000
    watermarks.write_hold("old", Hold(250, expires_ms))
    watermarks.write_hold("young", Hold(260, expires_ms + 1))
    world.clock.advance(10 + EXPIRED_HOLD_KEPT_S - 0.001)
    world.compact()
    assert len(list(world.control.scan(HOLD_PREFIX))) == 2
    world.clock.advance(0.001)
    world.compact(replace(ALL_AT_ONCE, is_dry_run=True))
    assert len(list(world.control.scan(HOLD_PREFIX))) == 2
    world.compact()
    assert [row for row, _ in world.control.scan(HOLD_PREFIX)] == [HOLD_PREFIX + b"young"]


def test_hold_written_after_publication_is_respected_too(world: World) -> None:
    """It was written before our second look, so its holder may have read the old horizon."""
    history(world)
    world.compact()
    world.clock.advance(10)
    Watermarks(world.control).write_hold("h", Hold(300, world.clock.wall_ms() + 10_000))
    world.compact()
    assert versions(world) == [300, 200]


@on_every_store
def test_retention_keeps_what_the_oracles_time_says(world: World) -> None:
    """A day back by the oracle's own samples, not by any wall clock."""
    history(world)
    for elapsed_ms, last_issued_ts in ((0, 250), (50_000_000, 300), (86_400_000, 1000)):
        sample = Sample(elapsed_ms, 0, last_issued_ts)
        world.control.write(
            b"sample/%020d" % elapsed_ms,
            b'{"elapsed_ms":%d,"wall_ms":0,"last_issued_ts":%d}'
            % (sample.elapsed_ms, sample.last_issued_ts),
        )
    world.compact(Options(grace_s=0.0, should_wait=True))
    assert Watermarks(world.control).collection_horizon() == 250
    assert versions(world) == [300, 200, 100]


def test_without_samples_retention_keeps_everything(world: World) -> None:
    """A Java oracle keeps none; nothing is known to be old."""
    history(world)
    world.compact(Options(grace_s=0.0, should_wait=True))
    assert versions(world) == [300, 200, 100]


@on_every_store
def test_deleted_row_vanishes_without_a_trace(world: World) -> None:
    """Hidden cells first, the tombstone after them; nothing of the row is left."""
    world.healed(b"a", 100, 150)
    world.healed(b"a", 200, 250, b"")
    seen: list[list[int]] = []

    def watch(step: str) -> None:
        if step == "page-superseded-dropped":
            seen.append(versions(world))

    world.compact(replace(ALL_AT_ONCE, should_wait=True), on_step=watch)
    assert seen == [[200]]
    assert world.cells() == []


# -- reports and records ---------------------------------------------------------------------------


def test_report_has_exactly_the_promised_keys(world: World) -> None:
    """Scripts read them."""
    world.table("java", owner=None)
    document = world.compact().document()
    assert set(document) == {
        "rows_read",
        "cells_read",
        "cells_healed",
        "transactions_invalidated",
        "cells_dropped",
        "entries_pruned",
        "invalidations_pruned",
        "low_watermark",
        "horizon",
        "bytes_dropped",
        "asked",
        "ranges",
        "ranges_whole",
        "quick",
        "tables",
        "low_watermark_age_s",
        "horizon_age_s",
        "holds",
        "entries_left",
        "entries_growth_a_day",
        "knows_snapshots",
        "laggards",
        "dry_run",
        "seconds",
    }
    (laggard,) = document["laggards"]
    assert set(laggard) == {"table", "start", "end", "watermark", "reason", "age_s"}


def test_runs_are_remembered_up_to_a_bound(world: World) -> None:
    """`omidpy compact history` shows them; the table does not grow for ever."""
    log = RunLog(world.control)
    for number in range(RUNS_KEPT + 5):
        log.write(new_run(now_ms=number))
    report = world.compact()
    runs = log.runs()
    assert len(runs) == RUNS_KEPT
    assert runs[-1].report == report
    assert (runs[-1].state(), runs[0].state()) == ("done", "unfinished")


def test_failed_run_is_remembered_with_its_error(world: World) -> None:
    """The next morning's first question."""

    def fail(step: str) -> None:
        if step == "page-read":
            raise RuntimeError("the disk caught fire")

    world.put(b"a", 100)
    with pytest.raises(RuntimeError):
        world.compact(on_step=fail)
    (record,) = RunLog(world.control).runs()
    assert (record.state(), record.error) == ("failed", "the disk caught fire")


# -- kills and company -----------------------------------------------------------------------------


class _Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@pytest.mark.parametrize("step", STEPS)
def test_run_killed_at_any_step_is_finished_by_the_next(store: Store, step: str) -> None:
    """A plain re-run is enough; and what readers see never changes meanwhile."""
    options = replace(ALL_AT_ONCE, should_wait=True)
    untouched = World(MemoryStore())
    untouched.table(splits=[b"m"])
    troubled(untouched)
    shown = outcome(untouched)[2]
    untouched.compact(options)
    expected = outcome(untouched)
    assert expected[2] == shown

    world = World(store)
    world.table(splits=[b"m"])
    troubled(world)
    reached: list[str] = []

    def kill(name: str) -> None:
        reached.append(name)
        if name == step:
            raise _Killed

    with pytest.raises(_Killed):
        world.compact(options, on_step=kill)
    assert reached[-1] == step
    assert outcome(world)[2] == shown
    world.compact(options)
    assert outcome(world) == expected


@pytest.mark.parametrize("step", STEPS)
def test_two_runs_that_meet_do_the_work_of_one(store: Store, step: str) -> None:
    """A second run takes the first for dead, which stands at a step, and goes through."""
    options = replace(ALL_AT_ONCE, should_wait=True)
    world = World(store)
    world.table(splits=[b"m"])
    troubled(world)
    shown = outcome(world)[2]
    others: list[Report] = []

    def interrupt(name: str) -> None:
        if name == step and not others:
            others.append(world.compact(options))

    with contextlib.suppress(ReservationLost):
        world.compact(options, on_step=interrupt)
    assert others
    assert outcome(world)[2] == shown
    assert world.entries() == {}
    assert {cell[2] for cell in world.data()} == {100, 101, 400}
