"""Facts that a store has once: named where they cannot be read, and set where that is safe."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import omidpy
from compactor.check.facts import (
    ADOPTED,
    CEILING,
    COLLECTED,
    EPOCH,
    FACTS,
    FIRST,
    INTENT,
    LEASE,
    LOG,
    LOW,
    OMIDS,
    OPERATIONS,
    PRUNED,
    ROOT,
    Fact,
)
from compactor.check.findings import CheckReport, Kind, Severity
from compactor.check.fsck import Check, CheckOptions
from compactor.check.quarantine import Quarantine
from compactor.check.singletons import CEILING_LEAD_S, CLOCKS_DIFFER_S, NS_PER_S, Singletons
from compactor.options import Options
from compactor.run.local import compact
from omidpy.base.cells import commit_row, encode_long
from omidpy.base.tables import FIXED_VERSION
from omidpy.base.timing.ages import Sample
from omidpy.base.timing.clock import ManualClock, SystemClock
from omidpy.cli import main
from omidpy.cli.store.status import described
from omidpy.errors import CorruptCell, UsageError
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    CommitTable,
    EntryRow,
    create_system_tables,
)
from omidpy.facts.control import ControlTable, encode_document
from omidpy.facts.leadership import LOCK_NAME, LeaseRecord
from omidpy.facts.watermarks import Claim, Watermarks, sample_row
from omidpy.fate.table.rows import DONE_PREFIX
from omidpy.model import FIRST_WORLD_TIMESTAMP, TIMESTAMP_STEP, KeyRange
from omidpy.reports.store import collect
from omidpy.storage.base import Capabilities, ProcessLock, Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.faults import FaultyStore, Point
from tests.machines.cells import World

LOOK: Final = CheckOptions(settle_s=0.0)
REPAIR: Final = CheckOptions(settle_s=0.0, is_repair=True)
AT_ONCE: Final = Options(grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0)
GARBLED: Final = [b"", b"short", bytes(9), encode_long(-1)]
STOPS_A_START: Final = [EPOCH, CEILING, LOW, OMIDS]
MENDED: Final = [EPOCH, CEILING, LOW, PRUNED, INTENT, COLLECTED, OMIDS, LEASE, LOG, OPERATIONS]
MAX_WORLD_NS: Final = 2 * 120 * 10**9


def named(fact: Fact) -> str:
    """Return the name of a test's case."""
    return fact.name


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a store where an oracle has served, and a compaction passed."""
    folder = tmp_path_factory.mktemp("served")
    address = f"sqlite:///{folder}/s.db"
    tm = omidpy.connect(address, post_commit="none")
    tm.create_table("accounts", families=["cf"])
    for amount in (1, 2, 3):
        transfer(tm, amount)
    tm.close()
    tm = omidpy.connect(address, post_commit="none")
    compact(tm.store, AT_ONCE, sleep=lambda _: None)
    transfer(tm, 4)
    tm.close()
    return folder


@pytest.fixture
def url(served: Path, tmp_path: Path) -> str:
    """Return the address of a copy of that store."""
    shutil.copytree(served, tmp_path / "copy")
    return f"sqlite:///{tmp_path}/copy/s.db"


@pytest.fixture
def store(url: str) -> Iterator[SqliteStore]:
    """Return the same, opened."""
    with closing(SqliteStore(url.removeprefix("sqlite:///"))) as opened:
        yield opened


def write(store: Store, fact: Fact, value: bytes) -> None:
    """Write a fact as nobody would."""
    (cells,) = store.get(fact.table, (fact.row,), columns=(fact.column,), max_versions=1)
    version = cells[0].version if cells else FIXED_VERSION
    store.write({fact.table: [RowMutation(fact.row, (Put(*fact.column, version, value),))]})


def read(store: Store, fact: Fact) -> bytes | None:
    """Return the bytes of a fact."""
    (cells,) = store.get(fact.table, (fact.row,), columns=(fact.column,), max_versions=1)
    return cells[0].value if cells else None


def number(store: Store, fact: Fact) -> int:
    """Return a number, 0 if it was never set."""
    return int.from_bytes(read(store, fact) or b"")


def checked(store: Store, options: CheckOptions = LOOK) -> CheckReport:
    """Check a store."""
    return Check(store, options, sleep=lambda _: None, clock=SystemClock()).run()


def transfer(tm: omidpy.TransactionManager, amount: int) -> int:
    """Move money, and return when that was committed."""
    with tm.begin() as tx:
        accounts = tx.table("accounts")
        for name, change in ((b"alice", -amount), (b"bob", amount)):
            held = int(accounts.row(name).get(b"cf:balance", b"0"))
            accounts.put(name, {b"cf:balance": b"%d" % (held + change)})
    assert tx.commit_ts is not None
    return tx.commit_ts


def balances(tm: omidpy.TransactionManager) -> dict[bytes, bytes]:
    """Return what everybody has."""
    with tm.begin(read_only=True) as tx:
        return {row: data[b"cf:balance"] for row, data in tx.table("accounts").scan()}


SPENT: Final = {b"alice": b"-10", b"bob": b"10"}


# -- what is found, and what mends it --------------------------------------------------------------


def test_a_sound_store_has_no_findings(store: SqliteStore) -> None:
    """And its thirteen facts have different names, by which they are said."""
    assert checked(store).counts.get(Kind.MALFORMED_FACT) is None
    assert len({fact.name for fact in FACTS}) == len(FACTS) == 13


@pytest.mark.parametrize("fact", FACTS, ids=named)
def test_each_is_found_with_its_bytes_and_what_it_stops(store: SqliteStore, fact: Fact) -> None:
    """A check ended with the first of them, and never saw some."""
    write(store, fact, b"garb")
    before = [read(store, one) for one in FACTS]
    report = checked(store)
    (found,) = [one for one in report.findings if one.kind is Kind.MALFORMED_FACT]
    assert (found.table, bytes.fromhex(found.row)) == (fact.table, fact.row)
    assert f"the fact {fact.name}: " in found.detail
    assert "garb" in found.detail
    assert found.detail.endswith(f"with it, {fact.stops}")
    assert report.worst is Severity.SERIOUS
    assert bool(report.notes) is fact.is_needed
    assert [read(store, one) for one in FACTS] == before, "a look changes nothing"


@pytest.mark.parametrize("value", GARBLED)
@pytest.mark.parametrize("fact", STOPS_A_START, ids=named)
def test_an_oracle_that_does_not_start_says_what_mends_it(
    url: str, store: SqliteStore, fact: Fact, value: bytes
) -> None:
    """Its row, and the verb."""
    write(store, fact, value)
    with pytest.raises(CorruptCell, match="omidpy fsck --repair") as error:
        omidpy.connect(url)
    assert repr(fact.row) in str(error.value)


@pytest.mark.parametrize("value", GARBLED)
@pytest.mark.parametrize("fact", MENDED, ids=named)
def test_a_repair_mends_it_and_nothing_is_lost_or_comes_back(
    url: str, store: SqliteStore, fact: Fact, value: bytes
) -> None:
    """Commits from before are seen, later ones come after them; a compaction changes nothing."""
    newest = max(row.entry for row in entries(store) if isinstance(row.entry, int))
    write(store, fact, value)
    report = checked(store, REPAIR)
    assert report.left_of(Severity.SERIOUS) == 0, report.findings
    assert report.repaired[Kind.MALFORMED_FACT] == 1
    assert value in [Quarantine(store).value(name) for name, _ in Quarantine(store).cells()]
    assert checked(store).left_of(Severity.SERIOUS) == 0
    assert number(store, PRUNED) <= number(store, LOW) <= number(store, CEILING)
    assert number(store, COLLECTED) <= number(store, INTENT) <= number(store, LOW)
    tm = omidpy.connect(url, post_commit="none")
    try:
        assert balances(tm) == SPENT
        assert transfer(tm, 5) > newest
        compact(store, AT_ONCE, sleep=lambda _: None)
        assert balances(tm) == {b"alice": b"-15", b"bob": b"15"}
    finally:
        tm.close()
    assert checked(store).left_of(Severity.SERIOUS) == 0


def entries(store: Store) -> list[EntryRow]:
    """Return what the commit table holds."""
    return [row for page in CommitTable(store).scan() for row in page]


@pytest.mark.parametrize("fact", MENDED, ids=named)
def test_no_number_becomes_less_safe(store: SqliteStore, fact: Fact) -> None:
    """Whatever the true value was, it was on the right side of the new one."""
    if not fact.holds_number:
        return
    before = number(store, fact)
    write(store, fact, b"garb")
    checked(store, REPAIR)
    if fact is OMIDS:
        # Java's coprocessor drops versions by it, and too many.
        assert number(store, fact) == before == 0
    elif fact is LOW:
        # A lower one keeps its promise as well: less counts as decided for ever.
        assert 0 < number(store, fact) <= before
        assert number(store, LOW) >= max(number(store, one) for one in (EPOCH, PRUNED, INTENT))
    else:
        # Above all that was issued, forgotten or dropped; and no higher than L but for the ceiling.
        assert number(store, fact) >= before
    if fact is CEILING:
        assert number(store, fact) - before < MAX_WORLD_NS


# -- only while no oracle lives --------------------------------------------------------------------


@pytest.mark.parametrize("fact", [CEILING, LEASE], ids=named)
def test_beside_an_oracle_neither_is_mended(url: str, store: SqliteStore, fact: Fact) -> None:
    """It may have issued what left no trace, and goes on to."""
    tm = omidpy.connect(url)
    try:
        write(store, fact, b"garb")
        report = checked(store, REPAIR)
        (found,) = [one for one in report.findings if one.kind is Kind.MALFORMED_FACT]
        assert not found.repaired
        assert "stop the oracle, and run this again" in found.detail
        assert read(store, fact) == b"garb"
    finally:
        tm.close()
    assert checked(store, REPAIR).left_of(Severity.SERIOUS) == 0
    omidpy.connect(url).close()


@pytest.mark.parametrize(
    "fact", [EPOCH, LOW, PRUNED, INTENT, COLLECTED, LOG, OPERATIONS], ids=named
)
def test_beside_an_oracle_the_others_are(url: str, store: SqliteStore, fact: Fact) -> None:
    """And it goes on; what began before it still cannot commit."""
    tm = omidpy.connect(url, post_commit="none")
    try:
        with tm.begin() as tx:
            write(store, fact, b"garb")
            assert checked(store, REPAIR).left_of(Severity.SERIOUS) == 0
            tx.table("accounts").put(b"carol", {b"cf:balance": b"1"})
        assert balances(tm) == {**SPENT, b"carol": b"1"}
    finally:
        tm.close()


class LocklessStore(MemoryStore):
    """A store whose locks do not die with their process: it has none."""

    @property
    def capabilities(self) -> Capabilities:
        """Lack locks."""
        return replace(super().capabilities, process_locks=False)


def lockless(*, is_held: bool, ceiling: bytes = b"garb") -> LocklessStore:
    """Return a store without locks whose ceiling cannot be read."""
    store = LocklessStore()
    create_system_tables(store)
    control = ControlTable(store)
    now_ts = SystemClock().wall_ms() * 1_000_000 // 50 * 50
    for fact in (EPOCH, LOW, FIRST):
        control.raise_number(fact.row, now_ts)
    record = LeaseRecord("x" if is_held else "", "h:1", now_ts, 1, "h", 10_000, 7)
    control.write(LEASE.row, encode_document(record))
    write(store, CEILING, ceiling)
    return store


def test_without_locks_a_lease_that_was_given_up_says_that_none_lives() -> None:
    """An oracle that was killed leaves its record, like one that is stopped."""
    report = checked(lockless(is_held=True), REPAIR)
    assert "an oracle may live" in report.findings[0].detail
    assert report.left == 1
    assert checked(lockless(is_held=False), REPAIR).left == 0


def test_without_locks_an_operator_may_say_it() -> None:
    """With the number, which must be above every trace."""
    store = lockless(is_held=True)
    low = number(store, LOW)
    too_low = replace(REPAIR, stated={"ceiling": low})
    assert (
        f"{low} was said, which lies below {low + 1}" in checked(store, too_low).findings[0].detail
    )
    assert read(store, CEILING) == b"garb"
    assert checked(store, replace(REPAIR, stated={"ceiling": low + 1000})).left == 0
    assert number(store, CEILING) == low + 1000


# -- what only an operator knows -------------------------------------------------------------------


@pytest.mark.parametrize("fact", [FIRST, ADOPTED, ROOT], ids=named)
def test_what_nothing_tells_is_left(store: SqliteStore, fact: Fact) -> None:
    """A first timestamp too low drops plain data, one too high leaves commits unhealed."""
    write(store, fact, b"garb")
    report = checked(store, REPAIR)
    (found,) = [one for one in report.findings if one.kind is Kind.MALFORMED_FACT]
    assert not found.repaired
    assert read(store, fact) == b"garb"
    assert ("--hbase-root" if fact is ROOT else f"--set {fact.name}=NUMBER") in found.detail


def test_what_a_newer_version_may_have_written_keeps_its_format(store: SqliteStore) -> None:
    """One operation that this one cannot read says that there may be such a version."""
    write(store, OPERATIONS, b"garb")
    (page,) = store.scan(OPERATIONS.table, KeyRange.starting_with(DONE_PREFIX))
    status = next(cell for cell in page[0] if cell.qualifier == b"status")
    put = Put(*status[1:4], b'"ASLEEP"')
    store.write({OPERATIONS.table: [RowMutation(status.row, (put,))]})
    report = checked(store, REPAIR)
    (found,) = [one for one in report.findings if one.kind is Kind.MALFORMED_FACT]
    assert "a newer omidpy may have written" in found.detail
    assert (found.repaired, read(store, OPERATIONS)) == (False, b"garb")


def test_an_operators_word_is_taken(url: str, store: SqliteStore) -> None:
    """Unless an entry began below it."""
    first = number(store, FIRST)
    write(store, FIRST, b"garb")
    begun = min(row.start_ts for row in entries(store))
    report = checked(store, replace(REPAIR, stated={"first-timestamp": begun + 50}))
    assert "was said" in report.findings[0].detail
    assert checked(store, replace(REPAIR, stated={"first-timestamp": first})).left == 0
    with closing(omidpy.connect(url)) as tm:
        assert balances(tm) == SPENT


@pytest.mark.parametrize("name", ["ceiling", "prune-horizon", "nonsense"])
def test_what_can_be_read_or_told_is_not_said(store: SqliteStore, name: str) -> None:
    """A slip of the hand moves no ceiling."""
    before = read(store, CEILING)
    why = "it can be read" if name == "ceiling" else "what nobody has to say"
    with pytest.raises(UsageError, match=f"--set {name}=.*{why}"):
        checked(store, replace(REPAIR, stated={name: 2**60}))
    assert read(store, CEILING) == before


def test_where_omids_oracle_served_any_timestamp_may_be_the_first(store: SqliteStore) -> None:
    """As our oracle writes it when it comes after Omid's."""
    write(store, ADOPTED, encode_long(number(store, EPOCH)))
    write(store, FIRST, b"garb")
    assert checked(store, REPAIR).left_of(Severity.SERIOUS) == 0
    assert number(store, FIRST) == TIMESTAMP_STEP


# -- the ceiling -----------------------------------------------------------------------------------


def test_of_an_oracle_that_counts_nobody_knows_how_far_it_came(tmp_path: Path) -> None:
    """Timestamps that left no trace would be issued twice."""
    with closing(SqliteStore(str(tmp_path / "c.db"))) as store:
        world = World(store, low_watermark=1000)
        write(store, CEILING, b"garb")
        report = checked(store, REPAIR)
        assert "the oracle counts, and 1000 is the newest" in report.findings[0].detail
        world.table()
        world.healed(b"a", 2000, 2050)
        said = replace(REPAIR, stated={"ceiling": 2050})
        assert "lies below 2051" in checked(store, said).findings[0].detail
        assert checked(store, replace(REPAIR, stated={"ceiling": 5000})).left == 0


@pytest.mark.parametrize("where", ["cell", "shadow", "entry", "sample"])
def test_no_ceiling_is_set_below_a_trace(store: SqliteStore, where: str) -> None:
    """A timestamp far ahead of this clock shows that the oracle does not follow it."""
    ahead = (SystemClock().wall_ms() + 3_600_000) * 1_000_000 // 50 * 50
    world = World(store, low_watermark=1)
    match where:
        case "cell":
            world.put(b"z", ahead, table="accounts")
        case "shadow":
            world.heal(world.put(b"z", 2000, table="accounts"), ahead, table="accounts")
        case "entry":
            world.enter(number(store, LOW) // 50 * 50, ahead)
        case _:
            sample = encode_document(Sample(1, 1, ahead))
            ControlTable(store).write(sample_row(1), sample)
    write(store, CEILING, b"garb")
    (found,) = [one for one in checked(store, REPAIR).findings if "ceiling" in one.detail]
    assert f"{ahead} was issued, which is ahead of the clock" in found.detail
    assert read(store, CEILING) == b"garb"


# -- each number by itself -------------------------------------------------------------------------


class Numbers:
    """A store of which a test says each number, and a clock that stands still."""

    def __init__(self, make_store: type[MemoryStore] = MemoryStore, /, **numbers: int) -> None:
        """Set them, by their names with `_` for `-`."""
        self.store = make_store()
        self.world = World(self.store, low_watermark=1)
        self.now_ts = SystemClock().wall_ms() * 1_000_000 // TIMESTAMP_STEP * TIMESTAMP_STEP
        self.clock = ManualClock()
        self.clock.advance((self.now_ts // 1_000_000 - self.clock.wall_ms()) / 1000)
        for fact in FACTS:
            if fact.holds_number and fact is not LOW:
                self.set(fact, numbers.pop(fact.name.replace("-", "_"), 0))
        self.set(LOW, numbers.pop("low_watermark", 1))
        assert not numbers

    def set(self, fact: Fact, number: int) -> None:
        """Set one; 0 leaves it alone."""
        if number:
            write(self.store, fact, encode_long(number))

    def claim(self, watermark: int) -> None:
        """Let a compaction have come so far."""
        self.world.control.write(
            (claim := Claim("t", b"", b"", watermark, 0, (b"cf",), "run")).row(),
            encode_document(claim),
        )

    def mended(self, fact: Fact, **stated: int) -> int | str:
        """Garble one, and return what becomes of it: its number; or why it is left."""
        write(self.store, fact, b"garb")
        said = {name.replace("_", "-"): number for name, number in stated.items()}
        singletons = Singletons(self.store, clock=self.clock, stated=said)
        ((found, cell, finding),) = singletons.look()
        assert found is fact
        told = singletons.mend(fact, cell, finding)
        assert told is not None
        return number(self.store, fact) if told.repaired else told.detail


def test_an_epoch_is_taken_for_the_low_watermark_before_the_lease() -> None:
    """The lease may be one that was published before the oracle was ready."""
    numbers = Numbers(low_watermark=900, ceiling=2000)
    record = LeaseRecord("", "", 700, 1, "h", 10_000, 7)
    numbers.world.control.write(LEASE.row, encode_document(record))
    assert numbers.mended(EPOCH) == 900


@pytest.mark.parametrize(
    ("numbers", "claim", "becomes"),
    [
        ({"epoch": 500, "prune_horizon": 800, "ceiling": 2000}, 600, 800),
        ({"epoch": 500, "prune_horizon": 600, "ceiling": 2000}, 800, 800),
        ({"prune_horizon": 500, "ceiling": 2000}, 0, 2000),
        ({"epoch": 3000, "ceiling": 2000}, 0, 2000),
        ({"epoch": 500}, 0, 500),
    ],
)
def test_a_low_watermark_is_no_lower_than_what_was_relied_on(
    numbers: dict[str, int], claim: int, becomes: int
) -> None:
    """Where nobody knows that, it is where the next oracle begins."""
    scene = Numbers(**{"ceiling": 2000, **numbers})
    if claim:
        scene.claim(claim)
    assert scene.mended(LOW) == becomes


def test_a_low_watermark_without_any_ground_is_left() -> None:
    """No oracle has begun here, and none of ours has recorded how far it may go."""
    assert "no ceiling of timestamps is recorded" in str(Numbers().mended(LOW))


def test_a_low_watermark_at_the_ceiling_needs_no_oracle_to_stop() -> None:
    """What was relied on is enough."""
    scene = Numbers(epoch=2000, ceiling=2000)
    with closing_lock(scene.store.lock(LOCK_NAME, purpose="an oracle")):
        assert scene.mended(LOW) == 2000


def closing_lock(lock: ProcessLock) -> contextlib.ExitStack:
    """Return what releases a lock."""
    stack = contextlib.ExitStack()
    stack.callback(lock.release)
    return stack


def test_horizons_become_no_higher_than_they_must() -> None:
    """A collection horizon is no higher than what was intended, and Omid's drops nothing."""
    low = {"low_watermark": 900, "ceiling": 2000}
    assert Numbers(**low, collection_intent=700).mended(COLLECTED) == 700
    assert Numbers(**low).mended(COLLECTED) == 900
    assert Numbers(**low, collection_horizon=500).mended(OMIDS) == 0


def test_omids_low_watermark_is_left_where_ours_is_not_there() -> None:
    """Its own oracle is the one that serves."""
    scene = Numbers()
    control = scene.world.control
    control.forget([LOW.row])
    assert "no oracle of ours has served here" in str(scene.mended(OMIDS))


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        (499, "below 800"),
        (799, "below 800"),
        (800, ""),
        (2000, ""),
        (2001, "above 2000"),
    ],
)
def test_a_low_watermark_that_is_said_lies_between_what_is_known(stated: int, why: str) -> None:
    """A lower one would let commit what counts as dead, a higher one was issued to nobody."""
    for numbers, claim in (({"epoch": 800}, 500), ({"epoch": 500}, 800)):
        scene = Numbers(**{"ceiling": 2000, "prune_horizon": 300, **numbers})
        scene.claim(claim)
        told = scene.mended(LOW, low_watermark=stated)
        assert told == stated if not why else why in str(told)


def test_a_first_timestamp_that_is_said_is_below_every_entry() -> None:
    """Else what these entries committed would count as plain data."""
    for stated in (500, 501, 900):
        scene = Numbers(low_watermark=1000, ceiling=2000)
        scene.world.enter(700, 750)
        scene.world.enter(500, 550)
        told = scene.mended(FIRST, first_timestamp=stated)
        assert told == stated if stated == 500 else "above 500" in str(told)


@pytest.mark.parametrize("fact", [CEILING, LOW], ids=named)
def test_what_is_said_beside_an_oracle_is_not_taken(fact: Fact) -> None:
    """It issues timestamps, and raises the mark, by what it remembers."""
    scene = Numbers(epoch=500, ceiling=2000, low_watermark=600)
    said = {fact.name.replace("-", "_"): 1800}
    with closing_lock(scene.store.lock(LOCK_NAME, purpose="an oracle")):
        assert "stop the oracle" in str(scene.mended(fact, **said))
    assert Numbers(epoch=500, ceiling=2000, low_watermark=600).mended(fact, **said) == 1800


def test_a_lease_that_no_lock_speaks_for_is_the_next_oracles() -> None:
    """It waits until the record has stood still, which a check cannot."""
    told = Numbers(LocklessStore, ceiling=2000).mended(LEASE)
    assert "the next `tso-server` takes it over: start one" in str(told)


LEAD: Final = CEILING_LEAD_S * NS_PER_S


def test_a_ceiling_lies_above_the_clock_and_every_trace() -> None:
    """By as much as an oracle may have issued without one."""
    ahead = CLOCKS_DIFFER_S * NS_PER_S
    for trace in (-ahead, 0, ahead):
        scene = Numbers()
        scene.set(LOW, scene.now_ts + trace)
        assert scene.mended(CEILING) == scene.now_ts + max(trace, 0) + LEAD
    scene = Numbers()
    scene.set(LOW, scene.now_ts + ahead + 1)
    assert "ahead of the clock" in str(scene.mended(CEILING))
    assert isinstance(Numbers(low_watermark=FIRST_WORLD_TIMESTAMP).mended(CEILING), int)
    assert "counts" in str(Numbers(low_watermark=FIRST_WORLD_TIMESTAMP - 1).mended(CEILING))


def test_what_is_no_trace_of_an_oracle_raises_no_ceiling() -> None:
    """Plain data may have any version, and a value of eight bytes is no timestamp."""
    scene = Numbers()
    far = scene.now_ts + 3600 * NS_PER_S
    scene.set(LOW, scene.now_ts)
    scene.world.table("plain", families=(), plain_families=(b"cf",))
    scene.world.put(b"r", far, table="plain")
    scene.world.table("t")
    scene.world.put(b"r", scene.now_ts, encode_long(far))
    put = Put(*COMMIT, far, b"\xff")
    scene.store.write({COMMIT_TABLE: [RowMutation(commit_row(far), (put,))]})
    assert scene.mended(CEILING) == scene.now_ts + LEAD


def test_the_epoch_in_the_lease_is_a_trace() -> None:
    """Of an oracle that began, and issued nothing that left another one."""
    scene = Numbers()
    scene.set(LOW, scene.now_ts)
    epoch = scene.now_ts + 3600 * NS_PER_S
    record = LeaseRecord("", "", epoch, 1, "h", 10_000, 7)
    scene.world.control.write(LEASE.row, encode_document(record))
    assert "ahead of the clock" in str(scene.mended(CEILING))


# -- two at once -----------------------------------------------------------------------------------


def test_what_rests_on_another_comes_after_it(url: str, store: SqliteStore) -> None:
    """All that is mended in one go."""
    for fact in (EPOCH, LOW, PRUNED, INTENT, COLLECTED, OMIDS, LOG):
        write(store, fact, b"garb")
    report = checked(store, REPAIR)
    assert report.left_of(Severity.SERIOUS) == 0, report.findings
    ceiling = number(store, CEILING)
    # What was relied on cannot be read, so that L is where the next oracle begins.
    assert [number(store, fact) for fact in (LOW, PRUNED, INTENT, COLLECTED)] == [ceiling] * 4
    with closing(omidpy.connect(url)) as tm:
        assert balances(tm) == SPENT


def test_a_low_watermark_never_rises_beside_an_oracle(url: str, store: SqliteStore) -> None:
    """It would come to commit what counts as dead."""
    with closing(omidpy.connect(url)) as tm:
        for fact in (LOW, PRUNED):
            write(store, fact, b"garb")
        report = checked(store, REPAIR)
        assert report.left_of(Severity.SERIOUS) == 2
        assert [read(store, fact) for fact in (LOW, PRUNED)] == [b"garb"] * 2
        assert balances(tm) == SPENT


def test_a_fact_that_was_mended_meanwhile_is_left_alone(store: SqliteStore) -> None:
    """The copy is of other bytes."""
    write(store, PRUNED, b"garb")
    singletons = Singletons(store, clock=SystemClock(), stated={})
    ((fact, cell, finding),) = singletons.look()
    write(store, PRUNED, encode_long(7))
    assert singletons.mend(fact, cell, finding) is None
    assert number(store, PRUNED) == 7


# -- the command -----------------------------------------------------------------------------------


def fsck(url: str, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run `omidpy fsck`; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(["fsck", "check", "--store", url, "--settle", "0s", *arguments])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out + told.err


def test_the_command_goes_from_the_finding_to_the_mended_store(
    url: str, store: SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with an error of its own at the first of these."""
    first = number(store, FIRST)
    write(store, FIRST, b"garb")
    write(store, LOW, b"garb")
    code, told = fsck(url, capsys=capsys)
    assert code == 3
    assert "the fact low-watermark: " in told
    assert "note: cells, entries and claims were not judged" in told
    said = ("--set", f"first-timestamp={first}")
    assert fsck(url, *said, capsys=capsys)[0] == 2, "without --repair"
    assert fsck(url, "--repair", "--set", "first-timestamp=x", capsys=capsys)[0] == 2
    code, told = fsck(url, "--repair", "--fail-on", "serious", *said, capsys=capsys)
    assert code == 0, told
    assert number(store, FIRST) == first


@pytest.mark.parametrize("fact", FACTS, ids=named)
def test_the_status_shows_all_but_what_cannot_be_read(store: SqliteStore, fact: Fact) -> None:
    """It refused everything for one number."""
    write(store, fact, b"garb")
    found = collect(store)
    assert found["commit_table"]["entries"] >= 0
    assert described(found)["store"]
    assert all(repr(fact.row) in problem for problem in found["problems"])
    if fact in (LOW, PRUNED, COLLECTED, OMIDS, LEASE):
        assert found["problems"]


def test_an_empty_claim_is_written_over(store: SqliteStore) -> None:
    """No store compares an empty value, at which every compaction ended."""
    facts = Watermarks(ControlTable(store))
    (claim, *_) = facts.claims()
    ControlTable(store).write(claim.row(), b"")
    facts.record_claim(claim)
    assert claim in Watermarks(ControlTable(store)).claims()


def test_an_empty_fact_is_set_by_one_of_those_who_find_it(store: SqliteStore) -> None:
    """No store compares an empty value; who is slower is told so, and writes over nothing."""
    control = ControlTable(store)
    control.write(LEASE.row, b"")
    assert control.replace(LEASE.row, b"", b"x")
    assert control.read(LEASE.row) == b"x"
    assert not control.replace(LEASE.row, b"", b"y")
    assert control.read(LEASE.row) == b"x"


@pytest.mark.parametrize("call", ["write", "get", "check_and_mutate"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_of_two_who_find_a_fact_empty_one_sets_it(call: str, when: str) -> None:
    """Wherever the second one comes between."""
    store = MemoryStore()
    ControlTable(store).create()
    ControlTable(store).write(LEASE.row, b"")
    set_by: list[bytes] = []

    def another(point: Point) -> None:
        if point.name == f"{call}.{when}" and not set_by:
            set_by.append(b"?")
            set_by[:] = [b"y"] if ControlTable(store).replace(LEASE.row, b"", b"y") else [b""]

    if ControlTable(FaultyStore(store, another)).replace(LEASE.row, b"", b"x"):
        set_by.append(b"x")
    (winner,) = [one for one in set_by if one]
    assert ControlTable(store).read(LEASE.row) == winner
