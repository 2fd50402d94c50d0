"""Bytes that nobody of this format writes: kept, mended, and never at the price of a commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from compactor.check import findings
from compactor.check.findings import SEVERITY, CheckReport, Finding, Kind, Severity
from compactor.check.fsck import Check, CheckOptions
from compactor.check.malformed import Assumption
from compactor.check.quarantine import Quarantine
from compactor.run.reporting.notes import notes_on_malformed
from omidpy.base.cells import commit_row, encode_long, shadow_qualifier
from omidpy.base.commit_facts import INVALID
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE
from omidpy.facts.watermarks import CLAIM_PREFIX, HOLD_PREFIX
from omidpy.model import Cell
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.interleaving import interleaved

REPAIR: Final = CheckOptions(settle_s=0.0, is_repair=True)
COMMITTED: Final = replace(REPAIR, assume=Assumption.COMMITTED)
ABORTED: Final = replace(REPAIR, assume=Assumption.ABORTED)
WRITES: Final = ("write", "write_guarded", "check_and_mutate")


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Return a store with one table of ours in two regions, and L = 1000."""
    sqlite = request.param == "sqlite"
    with closing(SqliteStore(str(tmp_path / "s.db")) if sqlite else MemoryStore()) as store:
        yield began(store)


def began(store: Store) -> World:
    """Return a store with one table of ours."""
    made = World(store)
    made.table(splits=[b"m"], incarnation="1")
    return made


def checked(
    world: World, options: CheckOptions = REPAIR, store: Store | None = None
) -> CheckReport:
    """Check a store."""
    return Check(store or world.store, options, sleep=world.clock.advance, clock=world.clock).run()


def spoilt(world: World, row: bytes, version: int, value: bytes = b"short") -> Cell:
    """Write a malformed shadow cell beside a cell."""
    cell = world.put(row, version)
    return world.put(row, version, value, qualifier=shadow_qualifier(cell.qualifier))


def spoilt_entry(world: World, start_ts: int, value: bytes = b"\xff") -> None:
    """Write a malformed entry."""
    put = Put(*COMMIT, start_ts, value)
    world.store.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), (put,))]})


def kept(world: World) -> list[tuple[bytes, bytes | None]]:
    """Return qualifier and value of every copy."""
    quarantine = Quarantine(world.store)
    found = [(one, quarantine.value(name)) for name, one in quarantine.cells()]
    return sorted((one.qualifier, value) for one, value in found if one is not None)


# -- shadow cells ----------------------------------------------------------------------------------


def test_one_malformed_shadow_cell_keeps_no_entry_once_it_is_repaired(world: World) -> None:
    """All 200 entries of the store were kept, every night, and nothing ended that."""
    world.set_low_watermark(20_000)
    for number in range(1, 201):
        world.put(b"%d" % number, 50 * number)
        world.enter(50 * number, 50 * number + 7)
    world.put(b"77", 50 * 77, b"\x01", qualifier=shadow_qualifier(b"q"))
    report = world.compact()
    assert (report.horizon, len(world.entries())) == (0, 200)
    assert all("omidpy fsck --repair" in one.reason for one in report.laggards)
    assert checked(world).left_of(Severity.SERIOUS) == 0
    assert kept(world) == [(shadow_qualifier(b"q"), b"\x01")]
    report = world.compact()
    assert (list(report.laggards), report.entries_pruned, world.entries()) == ([], 200, {})
    assert all(world.visible(b"%d" % number, 20_000) for number in range(1, 201))


@pytest.mark.parametrize("value", [b"", b"short", encode_long(-1), encode_long(99), bytes(9)])
@pytest.mark.parametrize("is_newest", [True, False])
def test_what_the_entry_says_is_written_over_it(
    world: World,
    value: bytes,
    is_newest: bool,  # noqa: FBT001 - a table
) -> None:
    """In its place: on HBase a delete would hide what is put at the same version."""
    bad = spoilt(world, b"a", 100, value)
    world.enter(100, 150)
    if not is_newest:
        world.healed(b"a", 400, 450, b"newer")
    (finding,) = [one for one in checked(world).findings if one.kind is Kind.MALFORMED_SHADOW]
    assert finding.repaired
    assert "150" in finding.detail
    assert world.shadows()[b"a", 100] == 150
    assert kept(world) == [(bad.qualifier, value)]
    assert world.visible(b"a", 300) == {b"q": b"v"}


@pytest.mark.parametrize("has_invalidation", [True, False])
def test_another_shadow_cell_of_the_transaction_tells(
    world: World,
    has_invalidation: bool,  # noqa: FBT001 - a table
) -> None:
    """Its client came to its end and removed the entry; an invalidation is a reader's mistake."""
    world.healed(b"z", 100, 150)
    spoilt(world, b"a", 101)
    world.put(b"b", 102)
    if has_invalidation:
        world.invalidate(100)
    assert checked(world).left_of(Severity.SERIOUS) == 0
    assert world.shadows() == {(b"z", 100): 150, (b"a", 101): 150, (b"b", 102): 150}


def test_what_another_omids_table_says_is_about_another_transaction(world: World) -> None:
    """Its oracle issued the same number."""
    world.table("other", owner="ANOTHER_COMMIT_TABLE")
    cell = world.put(b"z", 100, table="other")
    world.heal(cell, 150, table="other")
    spoilt(world, b"a", 100)
    image = world.cells()
    assert checked(world).left == 1
    assert world.cells() == image


def test_one_that_speaks_for_nothing_goes(world: World) -> None:
    """There is no cell whose commit it could say."""
    world.put(b"a", 100, b"?", qualifier=shadow_qualifier(b"q"))
    assert checked(world).left == 0
    assert (world.cells(), kept(world)) == ([], [(shadow_qualifier(b"q"), b"?")])
    assert world.compact().laggards == []


@pytest.mark.parametrize("has_invalidation", [True, False])
def test_a_cell_that_may_be_committed_is_left_to_the_operator(
    world: World,
    has_invalidation: bool,  # noqa: FBT001 - a table
) -> None:
    """Whoever wrote a shadow cell knew of a commit; without it the cell would be dropped."""
    spoilt(world, b"a", 100)
    if has_invalidation:
        world.invalidate(100)
    image = world.image()
    (finding,) = [one for one in checked(world).findings if one.kind is Kind.MALFORMED_SHADOW]
    assert not finding.repaired
    for said in ("--assume committed", "--assume aborted", "omidpy tx inspect 100"):
        assert said in finding.detail
    assert world.image() == image
    world.compact()
    assert set(image["t"]) <= set(world.cells())


@pytest.mark.parametrize("has_invalidation", [True, False])
def test_assumed_committed_it_is_seen_and_stays(
    world: World,
    has_invalidation: bool,  # noqa: FBT001 - a table
) -> None:
    """With all of its transaction, at once, below what was written over it later."""
    bad = spoilt(world, b"a", 100)
    world.put(b"b", 149, b"of the same")
    world.healed(b"a", 400, 450, b"later")
    if has_invalidation:
        world.invalidate(100)
    assert checked(world, COMMITTED).left_of(Severity.SERIOUS) == 0
    assert kept(world) == [(bad.qualifier, b"short")]
    world.compact()
    assert world.visible(b"a", 150) == {b"q": b"v"}
    assert world.visible(b"b", 150) == {b"q": b"of the same"}
    assert world.visible(b"a", 2000) == {b"q": b"later"}
    assert world.compact().laggards == []


def test_assumed_aborted_it_goes_behind_an_invalidation(world: World) -> None:
    """Copies of both are kept, and no entry that is under way commits what is left."""
    bad = spoilt(world, b"a", 100)
    before: list[object] = []

    def look(method: str, table: str) -> None:
        if method in WRITES and table == "t":
            before.append((world.entries(), len(kept(world))))

    assert checked(world, ABORTED, interleaved(world.store, look)).left == 0
    assert before == [({100: INVALID}, 2)]
    assert (world.cells(), world.entries()) == ([], {100: INVALID})
    assert kept(world) == [(bad.qualifier, b"short"), (b"q", b"v")]


def test_a_commit_that_arrives_is_believed_before_what_is_assumed(world: World) -> None:
    """From an oracle that was deposed, when the invalidation is about to be made."""
    spoilt(world, b"a", 100)

    def arrive(method: str, table: str) -> None:
        if method == "check_and_mutate" and table == COMMIT_TABLE and not world.entries():
            world.enter(100, 150)

    assert checked(world, ABORTED, interleaved(world.store, arrive)).left == 1
    assert checked(world, ABORTED).left_of(Severity.SERIOUS) == 0
    assert world.shadows() == {(b"a", 100): 150}


# -- who else is at work ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_newest", [True, False])
def test_what_was_changed_since_it_was_copied_is_left(
    world: World,
    is_newest: bool,  # noqa: FBT001 - a table
) -> None:
    """Its client came late, and has written what it should say."""
    bad = spoilt(world, b"a", 100)
    if not is_newest:
        world.healed(b"a", 400, 450, b"newer")

    def come_late(method: str, table: str) -> None:
        if method in WRITES and table == "OMIDPY_COMPACTION":
            put = Put(*bad[1:4], encode_long(150))
            world.store.write({"t": [RowMutation(b"a", (put,))]})

    report = checked(world, ABORTED, interleaved(world.store, come_late))
    assert report.counts.get(Kind.MALFORMED_SHADOW, 0) == 0
    assert world.shadows()[b"a", 100] == 150
    assert world.visible(b"a", 300) == {b"q": b"v"}


def test_a_change_at_the_last_moment_is_compared_in_the_write(world: World) -> None:
    """Where the shadow cell is the newest of its column, as nearly all are."""
    bad = spoilt(world, b"a", 100)

    def come_late(method: str, table: str) -> None:
        if method in WRITES and table == "t":
            put = Put(*bad[1:4], encode_long(150))
            world.store.write({"t": [RowMutation(b"a", (put,))]})

    checked(world, ABORTED, interleaved(world.store, come_late))
    assert world.shadows() == {(b"a", 100): 150}
    assert world.data() == [(b"a", b"q", 100, b"v")]


def test_a_table_that_was_made_anew_since_is_left(world: World) -> None:
    """The same bytes, copied back; nobody has looked at what is beside them."""
    bad = spoilt(world, b"a", 100)

    def renew(method: str, table: str) -> None:
        if method in WRITES and table == "OMIDPY_COMPACTION":
            world.store.drop_table("t")
            world.table("t", incarnation="2")
            world.store.write({"t": [RowMutation(b"a", (Put(*bad[1:5]),))]})

    assert checked(world, ABORTED, interleaved(world.store, renew)).left == 1
    assert world.cells() == [bad]


@pytest.mark.parametrize("options", [REPAIR, COMMITTED, ABORTED], ids=["known", "yes", "no"])
def test_killed_at_any_write_the_next_repair_comes_to_the_same(options: CheckOptions) -> None:
    """Nothing is lost in between, and nothing is kept twice."""

    def image(kill_at: int) -> tuple[object, object, bool]:
        world = began(MemoryStore())
        spoilt(world, b"a", 100)
        world.put(b"b", 100)
        spoilt_entry(world, 300)
        world.put(b"z", 300)
        if options is REPAIR:
            world.enter(100, 150)
            world.healed(b"n", 300, 350)
        left = [kill_at]

        def die(method: str, _table: str) -> None:
            if method in WRITES:
                left[0] -= 1
                if left[0] == 0:
                    raise Killed

        is_whole = True
        try:
            checked(world, options, interleaved(world.store, die))
        except Killed:
            is_whole = False
        for _ in range(2):
            # The entry that was mended by the first speaks for cells that the second heals.
            checked(world, options)
        return world.cells(), (world.entries(), kept(world)), is_whole

    *whole, is_whole = image(0)
    assert is_whole
    for number in itertools.count(1):
        *found, is_whole = image(number)
        assert found == whole, f"killed at write {number}"
        if is_whole:
            break
    assert number > 3


# -- entries and facts -----------------------------------------------------------------------------


def test_a_malformed_entry_is_written_over_with_what_a_shadow_cell_says(world: World) -> None:
    """Then every cell of its transaction is healed as ever."""
    spoilt_entry(world, 100)
    world.healed(b"a", 100, 150)
    world.put(b"z", 101)
    assert checked(world).left_of(Severity.SERIOUS) == 0
    assert kept(world) == [(COMMIT.qualifier, b"\xff")]
    assert world.entries() == {100: 150}
    report = world.compact()
    assert (list(report.laggards), world.entries()) == ([], {})
    assert world.visible(b"z", 2000) == {b"q": b"v"}


def test_a_malformed_entry_of_which_nothing_tells_is_left_to_the_operator(world: World) -> None:
    """Seen whole, or dropped whole."""
    spoilt_entry(world, 100)
    world.put(b"a", 100)
    world.put(b"z", 149)
    image = world.image()
    report = checked(world)
    assert ("--assume" in report.findings[0].detail, world.image()) == (True, image)
    assert checked(world, COMMITTED).left_of(Severity.SERIOUS) == 0
    world.compact()
    assert world.visible(b"a", 150) == {b"q": b"v"}
    assert world.visible(b"z", 150) == {b"q": b"v"}
    assert world.entries() == {}


def test_a_malformed_entry_that_is_assumed_aborted_is_invalidated(world: World) -> None:
    """An invalidation wins over what stands beside it."""
    spoilt_entry(world, 100)
    world.put(b"a", 100)
    assert checked(world, ABORTED).left_of(Severity.SERIOUS) == 0
    assert world.entries() == {100: INVALID}
    report = world.compact()
    assert (list(report.laggards), world.cells(), world.entries()) == ([], [], {})


def test_an_entry_of_no_transaction_goes(world: World) -> None:
    """And nothing of its neighbour's."""
    spoilt_entry(world, 120)
    world.enter(100, 150)
    assert checked(world).left_of(Severity.SERIOUS) == 0
    assert world.entries() == {100: 150}
    assert kept(world) == [(COMMIT.qualifier, b"\xff")]


def test_facts_that_count_for_nothing_go_and_a_hold_stays(world: World) -> None:
    """Somebody was granted a hold; `omidpy watermarks --revoke-hold` ends it."""
    world.control.write(CLAIM_PREFIX + b"t///%020d" % 900, b"{")
    world.control.write(HOLD_PREFIX + b"h", b"{")
    report = checked(world)
    assert (report.counts, report.repaired) == ({Kind.MALFORMED_FACT: 2}, {Kind.MALFORMED_FACT: 1})
    (hold,) = (one for one in report.findings if not one.repaired)
    assert hold.row == (HOLD_PREFIX + b"h").hex()
    assert "no version is dropped until `omidpy watermarks --revoke-hold h` ends it" in hold.detail
    assert world.control.read(HOLD_PREFIX + b"h") == b"{"
    assert kept(world) == [(b"v", b"{")]


def test_a_run_names_what_ends_a_malformed_fact() -> None:
    """No shell deletes a row of a file."""
    found = {CLAIM_PREFIX + b"t": "a bad claim", HOLD_PREFIX + b"h": "a bad hold"}
    assert list(notes_on_malformed(found)) == [
        "a bad claim; it counts for nothing, and `omidpy fsck --repair` removes it",
        (
            "a bad hold; taken for a hold of every snapshot, so that no version is dropped until "
            "`omidpy watermarks --revoke-hold h` ends it"
        ),
    ]


# -- severity --------------------------------------------------------------------------------------


def test_every_kind_has_a_severity_and_a_meaning() -> None:
    """A new one is given both."""
    assert SEVERITY.keys() == findings.MEANING.keys() == set(Kind)
    assert [one.rank for one in Severity] == [0, 1, 2, 3]
    assert Severity.DANGER.is_at_least(Severity.ROUTINE)
    assert not Severity.WAITING.is_at_least(Severity.ROUTINE)


def test_findings_come_in_the_order_of_their_severity(world: World) -> None:
    """What may be a lost commit is not looked for below a thousand cells of dead clients."""
    world.compact()
    world.put(b"dead", 1100)
    world.set_low_watermark(2000)
    world.put(b"b", 200)
    world.enter(200, 250)
    spoilt(world, b"c", 1300)
    report = checked(world, CheckOptions(settle_s=0.0))
    assert [one.kind for one in report.findings] == [
        Kind.BROKEN_CLAIM,
        Kind.MALFORMED_SHADOW,
        Kind.UNCOMMITTED,
    ]
    assert list(report.counts) == [one.kind for one in report.findings]
    document = report.document()
    assert document["severity"] == "danger"
    assert [one["severity"] for one in document["findings"]] == ["danger", "serious", "routine"]


def test_an_entry_within_its_grace_has_not_leaked(world: World) -> None:
    """It goes with the first run after the grace; a check in between exits with 0."""
    hourly = replace(ALL_AT_ONCE, grace_s=3600.0)
    world.put(b"a", 100)
    world.enter(100, 150)
    world.compact(hourly)
    looking = CheckOptions(settle_s=0.0)
    report = checked(world, looking)
    assert (report.counts, report.left, report.worst) == (
        {Kind.WAITING_ENTRY: 1},
        0,
        Severity.WAITING,
    )
    assert report.document()["clean"] is True
    world.clock.advance(3600)
    report = checked(world, looking)
    assert (report.counts, report.left) == ({Kind.LEAKED_ENTRY: 1}, 1)
    assert checked(world, replace(looking, grace_s=7200.0)).left == 0
    world.compact(hourly)
    assert checked(world, looking).counts == {}


def test_an_entry_that_is_younger_than_the_grace_has_not_leaked() -> None:
    """World time tells its age, also where no compaction has ever run."""
    world = World(MemoryStore(), low_watermark=2**62)
    world.table()
    now = world.clock.wall_ms() * 1_000_000
    young, old = now - now % 50 - 50, now - now % 50 - 2 * 3600 * 1_000_000_000
    for start_ts in (old, young):
        world.healed(b"%d" % start_ts, start_ts, start_ts + 7)
        world.enter(start_ts, start_ts + 7)
    report = checked(world, CheckOptions(settle_s=0.0))
    assert {one.start_ts: one.kind for one in report.findings} == {
        old: Kind.LEAKED_ENTRY,
        young: Kind.WAITING_ENTRY,
    }
    assert isinstance(report.findings[0], Finding)
