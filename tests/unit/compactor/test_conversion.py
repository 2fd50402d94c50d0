"""A table of plain data becomes transactional without losing, hiding or inventing a cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from compactor.report import RunLog
from compactor.run.local import compact
from compactor.tables import census, conversion
from compactor.tables.adoption import adopt, plan_adoption
from compactor.tables.ownership import read_ignored
from omidpy.base.cells import (
    LEGACY_TOMBSTONE,
    LOW_WATERMARK_ROW,
    commit_row,
    encode_commit,
    encode_long,
    shadow_qualifier,
)
from omidpy.base.tables import (
    COMMIT_TABLE_ATTRIBUTE,
    INCARNATION_ATTRIBUTE,
    OMID_ENABLED,
    transactional_families,
)
from omidpy.errors import UsageError
from omidpy.facts.commit_table import (
    ADOPTED_CEILING_FACT,
    COMMIT,
    COMMIT_TABLE,
    LOW_WATERMARK,
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
    CommitTable,
    create_system_tables,
    read_timestamp_ceiling,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.plain_versions import PlainVersions, plain_versions
from omidpy.manager import TransactionManager
from omidpy.model import TIMESTAMP_STEP, Cell, FamilySchema, TableSchema, Timestamp
from omidpy.storage.base import DeleteVersion, Put, RowMutation
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.ignoring import set_ignored
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.naive_oracle import NaiveOracle
from tso.embedded import EmbeddedOracle

NOW_MS = 1_700_000_000_000
"""What HBase's clock gave the cells of a plain table."""


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """Return a store with the plain table `t`: two families, several versions of a column."""
    store = MemoryStore()
    store.create_table(TableSchema("t", [FamilySchema(b"a"), FamilySchema(b"b")]))
    put(store, b"r", b"a", b"q", NOW_MS, b"old")
    put(store, b"r", b"a", b"q", NOW_MS + 1, b"new")
    put(store, b"r", b"b", b"", NOW_MS, b"v")
    put(store, b"s", b"a", b"q", 7, b"explicit")
    yield store
    store.close()


def put(
    store: MemoryStore, row: bytes, family: bytes, qualifier: bytes, version: int, value: bytes
) -> None:
    """Write a cell without a transaction."""
    store.write({"t": [RowMutation(row, puts=[Put(family, qualifier, version, value)])]})


def cells(store: MemoryStore) -> set[Cell]:
    """Return every cell of the table."""
    return {cell for page in store.scan("t") for row in page for cell in row}


def test_every_cell_is_seen_by_every_transaction(store: MemoryStore) -> None:
    """At its own version, by those that began before the adoption too."""
    with TransactionManager(store, EmbeddedOracle(store)) as tm:
        before = tm.begin()
        plan = plan_adoption(store, "t", COMMIT_TABLE)
        assert plan.plain == frozenset({b"a", b"b"})
        assert (plan.plain_cells(), plan.undecided_cells()) == (4, 0)
        assert adopt(store, plan, COMMIT_TABLE) == {b"a": 3, b"b": 1}
        for tx in (before, tm.begin()):
            assert list(tx.table("t").scan(include_timestamp=True)) == [
                (b"r", {b"a:q": (b"new", NOW_MS + 1), b"b:": (b"v", NOW_MS)}),
                (b"s", {b"a:q": (b"explicit", 7)}),
            ]
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"a:q": b"newer"})
            tx.table("t").delete(b"s")
        assert tm.begin().table("t").row(b"r") == {b"a:q": b"newer", b"b:": b"v"}
        assert tm.begin().table("t").row(b"s") == {}
        assert before.table("t").row(b"s") == {b"a:q": b"explicit"}


def test_a_store_that_shows_too_little_is_refused() -> None:
    """Through Thrift1 old versions are not seen, and no table can be marked."""
    with pytest.raises(UsageError, match=r"open the store through hbase\+thrift2"):
        plan_adoption(LikeThrift1(), "people", COMMIT_TABLE)


def test_planning_changes_nothing(store: MemoryStore) -> None:
    """The dry run comes first, and is one."""
    EmbeddedOracle(store).close()
    before, schema = cells(store), store.schema("t")
    plan_adoption(store, "t", COMMIT_TABLE)
    assert cells(store) == before
    assert store.schema("t") == schema


def test_no_cell_but_shadow_cells_is_written(store: MemoryStore) -> None:
    """Each names its cell's own version, and the cells themselves stay as they are."""
    EmbeddedOracle(store).close()
    before = cells(store)
    adopt(store, plan_adoption(store, "t", COMMIT_TABLE), COMMIT_TABLE)
    shadows = {
        cell._replace(qualifier=shadow_qualifier(cell.qualifier), value=encode_long(cell.version))
        for cell in before
    }
    assert cells(store) == before | shadows


def test_an_interrupted_adoption_goes_on(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some cells have shadow cells, no family a mark: it is still plain data."""
    EmbeddedOracle(store).close()
    plan = plan_adoption(store, "t", COMMIT_TABLE)
    monkeypatch.setattr(conversion, "PAGE_ROWS", 1)
    write = store.write
    with monkeypatch.context() as patched:

        def fail_at_the_second(*arguments: object, **options: object) -> None:
            patched.setattr(store, "write", None)
            write(*arguments, **options)  # type: ignore[arg-type]  # passed through

        patched.setattr(store, "write", fail_at_the_second)
        with pytest.raises(TypeError):
            adopt(store, plan, COMMIT_TABLE)
    again = plan_adoption(store, "t", COMMIT_TABLE)
    assert again.plain == frozenset({b"a"})
    assert again.plain_cells() == 1
    assert adopt(store, again, COMMIT_TABLE) == {b"a": 1}
    assert plan_adoption(store, "t", COMMIT_TABLE).plain == frozenset()


def test_a_compaction_leaves_converted_cells_in_sight(store: MemoryStore) -> None:
    """They are below the first timestamp, hence never dropped."""
    oracle = NaiveOracle(store)
    ControlTable(store).write(b"first-timestamp", encode_long(2 * 10**18))
    oracle._last = 2 * 10**18  # as if in world time
    with TransactionManager(store, oracle, post_commit="sync") as tm:
        adopt(store, plan_adoption(store, "t", COMMIT_TABLE), COMMIT_TABLE)
        before = cells(store)
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"b:": b"later"})
        oracle.raise_low_watermark()
        report = compact(store, ALL_AT_ONCE)
        assert not report.laggards
        assert before <= cells(store)
        assert tm.begin().table("t").row(b"r") == {b"a:q": b"new", b"b:": b"later"}


# -- which families --------------------------------------------------------------------------------


@pytest.fixture
def of_java(store: MemoryStore) -> tuple[MemoryStore, int]:
    """Return a table that a transaction wrote, beside plain data, and the one that was not healed.

    Family `a` holds a healed cell of it, `b` one whose client died, `c` nothing.
    """
    oracle = EmbeddedOracle(store)
    start_ts = oracle.begin().start_ts
    oracle.begin()
    oracle.close()
    store.drop_table("t")
    store.create_table(TableSchema("t", [FamilySchema(name) for name in (b"a", b"b", b"c")]))
    for family in (b"a", b"b"):
        put(store, b"r", family, b"q", start_ts, b"v")
    put(store, b"r", b"a", shadow_qualifier(b"q"), start_ts, encode_long(start_ts + 50))
    put(store, b"s", b"b", b"q", start_ts, b"died")
    put(store, b"s", b"b", b"p", NOW_MS, b"plain")
    entry = Put(*COMMIT, start_ts, encode_commit(start_ts, start_ts + 50))
    store.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), [entry])]})
    return store, start_ts


def test_every_family_becomes_ours(of_java: tuple[MemoryStore, int]) -> None:
    """Also one that is empty, or that only the dead wrote: Java writes there tomorrow."""
    store, _ = of_java
    plan = plan_adoption(store, "t", COMMIT_TABLE)
    assert plan.families == {b"a", b"b", b"c"}
    assert plan.plain == {b"b"}
    assert (plan.plain_cells(), plan.undecided_cells()) == (1, 0)
    assert plan.census[b"b"].committed_cells == 1, "the other one lies beside its own shadow cell"
    assert adopt(store, plan, COMMIT_TABLE) == {b"b": 1}
    assert transactional_families(store.schema("t")) == {b"a", b"b", b"c"}
    with TransactionManager(store, EmbeddedOracle(store)) as tm:
        rows = dict(tm.begin(read_only=True).table("t").scan())
        assert rows == {
            b"r": {b"a:q": b"v", b"b:q": b"v"},
            b"s": {b"b:q": b"died", b"b:p": b"plain"},
        }


def test_fewer_families_can_be_named(of_java: tuple[MemoryStore, int]) -> None:
    """Somebody goes on writing the others without transactions."""
    store, _ = of_java
    before = cells(store)
    plan = plan_adoption(store, "t", COMMIT_TABLE, families=[b"a"])
    assert plan.families == {b"a"}
    assert plan.plain == frozenset()
    assert adopt(store, plan, COMMIT_TABLE) == {}
    assert transactional_families(store.schema("t")) == {b"a"}
    assert cells(store) == before
    for families, message in (([b"b"], "family a of table t has OMID_ENABLED"), ([b"x"], "no fam")):
        with pytest.raises(UsageError, match=message):
            plan_adoption(store, "t", COMMIT_TABLE, families=families)


def test_a_family_that_came_later_is_adopted_like_the_first(
    of_java: tuple[MemoryStore, int],
) -> None:
    """Its undecided cells need the operator's word; those of families of ours do not."""
    store, start_ts = of_java
    adopt(store, plan_adoption(store, "t", COMMIT_TABLE, families=[b"a"]), COMMIT_TABLE)
    for family in (b"a", b"b"):
        put(store, b"open", family, b"q", start_ts + 50, b"undecided")
    set_ignored(ControlTable(store), "t", is_ignored=False, families=[b"b", b"c"])
    again = plan_adoption(store, "t", COMMIT_TABLE, families=[b"a", b"b"])
    assert again.owned == {b"a"}
    assert again.families == {b"a", b"b"}
    assert (again.plain_cells(), again.undecided_cells()) == (1, 1)
    assert again.census[b"a"].undecided_cells == 1
    adopt(store, again, COMMIT_TABLE)
    assert transactional_families(store.schema("t")) == {b"a", b"b"}
    assert read_ignored(ControlTable(store))["t"].families == (b"c",), "the word on b is taken back"


def test_a_transaction_that_begins_during_the_census_is_no_data_of_the_future(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle's ceiling moves on while a large table is read."""
    monkeypatch.setattr(census, "PAGE_ROWS", 1)
    oracle = EmbeddedOracle(store)
    later = oracle.begin().start_ts + 3600 * 10**9
    put(store, b"z", b"a", b"q", later, b"tentative")
    with pytest.raises(UsageError, match="above every timestamp"):
        plan_adoption(store, "t", COMMIT_TABLE)
    ceilings = iter([read_timestamp_ceiling(store), Timestamp(later)])
    monkeypatch.setattr(census, "read_timestamp_ceiling", lambda _: next(ceilings))
    assert plan_adoption(store, "t", COMMIT_TABLE).undecided_cells() == 1
    oracle.close()


def test_a_delete_that_comes_during_the_adoption_is_noticed(store: MemoryStore) -> None:
    """It would take away what lies below it; nothing is marked yet."""
    EmbeddedOracle(store).close()
    plan = plan_adoption(store, "t", COMMIT_TABLE)
    put(store, b"r", b"a", b"q", NOW_MS + 9, b"")
    with pytest.raises(UsageError, match="came during the adoption"):
        adopt(store, plan, COMMIT_TABLE)
    assert transactional_families(store.schema("t")) == frozenset()


def test_an_old_ceiling_proves_nothing_before_our_oracle_started(store: MemoryStore) -> None:
    """Omid may have come to keep its timestamps elsewhere, and have issued many since."""
    create_system_tables(store)
    ceiling = Put(*TIMESTAMP_CEILING, 1, encode_long(50))
    store.write({TIMESTAMP_TABLE: [RowMutation(TIMESTAMP_CEILING_ROW, [ceiling])]})
    for name in (b"a", b"b"):
        store.set_family_attributes("t", name, {OMID_ENABLED: "true"})
    assert plan_adoption(store, "t", COMMIT_TABLE).undecided_cells() == 4


# -- written without a transaction to a table that is ours -----------------------------------------


def test_what_is_written_past_transactions_is_seen_once_the_table_is_adopted_again(
    store: MemoryStore,
) -> None:
    """Somebody was not told, or not stopped; nothing of theirs is lost."""
    with TransactionManager(store, EmbeddedOracle(store)) as tm:
        adopt(store, plan_adoption(store, "t", COMMIT_TABLE), COMMIT_TABLE)
        with tm.begin() as tx:
            tx.table("t").put(b"ours", {b"a:q": b"committed"})
            tx.table("t").put(b"s", {b"a:q": b"committed later"})
        put(store, b"r", b"a", b"q", NOW_MS + 2, b"late")
        put(store, b"s", b"a", b"q", NOW_MS + 2, b"late, below a commit")
        put(store, b"new", b"b", b"q", NOW_MS + 2, b"late")
        tentative = tm.begin()
        tentative.table("t").put(b"tentative", {b"a:q": b"never"})
        tentative.flush()

        def seen() -> dict[bytes, dict[bytes, bytes]]:
            return dict(tm.begin(read_only=True).table("t").scan())

        first = seen()
        assert first[b"r"][b"a:q"] == b"new"
        assert b"new" not in first
        again = plan_adoption(store, "t", COMMIT_TABLE)
        assert again.owned == again.plain == frozenset({b"a", b"b"})
        assert (again.plain_cells(), again.undecided_cells()) == (3, 0)
        assert again.census[b"a"].undecided_cells == 1, "what a running transaction writes"
        assert adopt(store, again, COMMIT_TABLE) == {b"a": 2, b"b": 1}
        assert seen() == {
            **first,
            b"r": {b"a:q": b"late", b"b:": b"v"},
            b"s": {b"a:q": b"committed later"},
            b"new": {b"b:q": b"late"},
        }
        tentative.rollback()
        third = plan_adoption(store, "t", COMMIT_TABLE)
        assert (third.plain_cells(), third.undecided_cells()) == (0, 0)
        assert adopt(store, third, COMMIT_TABLE) == {}


def test_a_late_delete_is_refused_as_an_early_one_is(store: MemoryStore) -> None:
    """An empty value would take away what a transaction committed below it."""
    EmbeddedOracle(store).close()
    adopt(store, plan_adoption(store, "t", COMMIT_TABLE), COMMIT_TABLE)
    put(store, b"r", b"a", b"q", NOW_MS + 2, b"")
    with pytest.raises(UsageError, match="1 cells of t are plain data"):
        plan_adoption(store, "t", COMMIT_TABLE)


def test_a_table_of_ours_is_adopted_again_before_any_oracle_started(store: MemoryStore) -> None:
    """Nobody knows then which versions are plain, and nothing is converted."""
    create_system_tables(store)
    store.write({"t": [RowMutation(b"r", deletes=[DeleteVersion(b"b", b"", NOW_MS)])]})
    store.set_family_attributes("t", b"a", {OMID_ENABLED: "true"})
    store.set_table_attributes("t", {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE})
    plan = plan_adoption(store, "t", COMMIT_TABLE)
    assert plan.owned == {b"a"}
    assert adopt(store, plan, COMMIT_TABLE) == {}


@pytest.mark.parametrize("follows_omid", [False, True])
@pytest.mark.parametrize("is_forbidden", [False, True])
def test_a_compaction_keeps_late_cells_until_they_are_adopted(
    store: MemoryStore, *, follows_omid: bool, is_forbidden: bool
) -> None:
    """They are nobody's to drop, though a reader of Omid's may have forbidden their commit."""
    oracle = NaiveOracle(store)
    control = ControlTable(store)
    control.write(b"first-timestamp", encode_long(TIMESTAMP_STEP if follows_omid else 2 * 10**18))
    oracle._last = 2 * 10**18  # as if in world time
    if follows_omid:
        control.write(ADOPTED_CEILING_FACT, encode_long(10**18))
    control.write(b"low-watermark", encode_long(10**18))
    adopt(store, plan_adoption(store, "t", COMMIT_TABLE), COMMIT_TABLE)
    put(store, b"late", b"a", b"q", NOW_MS, b"late")
    if is_forbidden:
        CommitTable(store).invalidate(Timestamp(NOW_MS))
    oracle.raise_low_watermark()
    for options in (ALL_AT_ONCE, replace(ALL_AT_ONCE, should_collect=True)):
        report = compact(store, options)
        assert (report.cells_dropped, report.transactions_invalidated) == (0, 0)
        assert not report.laggards
    (note,) = [one for one in RunLog(control).runs()[-1].notes if "without a transaction" in one]
    assert note.startswith("1 cells of table t ")
    assert "`omidpy table adopt t --apply`" in note
    again = plan_adoption(store, "t", COMMIT_TABLE)
    assert adopt(store, again, COMMIT_TABLE) == {b"a": 1}
    assert TransactionManager(store, oracle).begin().table("t").row(b"late") == {b"a:q": b"late"}
    compact(store, ALL_AT_ONCE)
    assert not any("without a transaction" in one for one in RunLog(control).runs()[-1].notes)


def test_beside_omids_oracle_alone_a_small_version_is_dropped_by_nobody(
    store: MemoryStore,
) -> None:
    """It may have counted once: what has committed is healed, and the rest is left alone."""
    create_system_tables(store)
    store.set_family_attributes("t", b"a", {OMID_ENABLED: "true"})
    store.set_table_attributes("t", {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE})
    row = Put(*LOW_WATERMARK, 1, encode_long(2 * 10**18))
    entry = Put(*COMMIT, 5000, encode_commit(5000, 5050))
    ceiling = RowMutation(
        TIMESTAMP_CEILING_ROW, [Put(*TIMESTAMP_CEILING, 1, encode_long(3 * 10**18))]
    )
    store.write(
        {
            TIMESTAMP_TABLE: [ceiling],
            COMMIT_TABLE: [
                RowMutation(LOW_WATERMARK_ROW, [row]),
                RowMutation(commit_row(5000), [entry]),
            ],
        }
    )
    put(store, b"counted", b"a", b"q", 5000, b"v")
    before = cells(store)
    report = compact(store, ALL_AT_ONCE)
    healed = Cell(b"counted", b"a", shadow_qualifier(b"q"), 5000, encode_long(5050))
    assert cells(store) == before | {healed}
    assert (report.cells_healed, report.transactions_invalidated) == (1, 0)


def test_a_reader_forbids_nothing_of_a_cell_that_is_no_transactions(store: MemoryStore) -> None:
    """Its invalidation would lie below the first timestamp, where none is ever pruned."""
    EmbeddedOracle(store).close()
    adopt(store, plan_adoption(store, "t", COMMIT_TABLE), COMMIT_TABLE)
    put(store, b"late", b"a", b"q", NOW_MS, b"late")
    oracle = EmbeddedOracle(store)
    abandoned = TransactionManager(store, oracle).begin()
    abandoned.table("t").put(b"dead", {b"a:q": b"never"})
    abandoned.flush()
    oracle.begin()
    oracle.close()
    with TransactionManager(store, EmbeddedOracle(store)) as tm:
        assert b"late" not in dict(tm.begin().table("t").scan())
        forbidden = [row.start_ts for page in CommitTable(store).scan() for row in page]
        assert forbidden == [abandoned.start_ts], "it does forbid what began below its epoch"


@pytest.mark.parametrize(
    ("version", "value", "named"),
    [
        (NOW_MS, b"", "delete"),
        (NOW_MS, LEGACY_TOMBSTONE, "delete"),
        (2**62, b"v", str(2**62)),
    ],
    ids=["empty", "tombstone", "late"],
)
def test_cells_that_transactions_would_not_see_are_refused(
    store: MemoryStore, version: int, value: bytes, named: str
) -> None:
    """With their number and the first of them, in the dry run already."""
    EmbeddedOracle(store).close()
    put(store, b"bad", b"a", b"q", version, value)
    before = cells(store)
    with pytest.raises(UsageError, match=rf"1 cells of t are plain data.*b'bad'(.|\n)*{named}"):
        plan_adoption(store, "t", COMMIT_TABLE)
    assert cells(store) == before


def test_tentative_cells_are_not_taken_for_plain_data(store: MemoryStore) -> None:
    """The first transaction on Java's table died: its cells are the only ones, without any trace.

    Giving them shadow cells would commit what was never committed.
    """
    oracle = EmbeddedOracle(store)
    start_ts = oracle.begin().start_ts
    put(store, b"tentative", b"a", b"q", start_ts, b"never")
    plan = plan_adoption(store, "t", COMMIT_TABLE)
    assert (plan.plain_cells(), plan.undecided_cells()) == (4, 1)
    adopt(store, plan, COMMIT_TABLE)
    with TransactionManager(store, oracle) as tm:
        assert tm.begin(read_only=True).table("t").row(b"tentative") == {}


def test_without_an_oracle_nobody_knows_what_is_plain(store: MemoryStore) -> None:
    """Its first timestamp divides plain versions from those of transactions."""
    create_system_tables(store)
    with pytest.raises(UsageError, match="tso-server"):
        plan_adoption(store, "t", COMMIT_TABLE)


def test_counting_timestamps_leave_no_room_for_hbases_clock(store: MemoryStore) -> None:
    """Milliseconds are above them: such cells would be seen by nobody, and hide what is written."""
    EmbeddedOracle(store, timestamps="incremental").close()
    with pytest.raises(UsageError, match="plain data"):
        plan_adoption(store, "t", COMMIT_TABLE)


@pytest.mark.parametrize(
    ("first", "low_watermark", "ceiling", "expected"),
    [
        (10**18, 10**18, None, PlainVersions(0, 10**18)),
        (50, 10**18, 10**18, PlainVersions(0, 10**15)),
        (50, 10**18, 5_000, PlainVersions(5_050, 10**15)),
        (50, 10_000, 5_000, PlainVersions(0, 0)),
        (50, 10_000, None, PlainVersions(0, 50)),
    ],
    ids=["ours", "omids-world", "omids-counting-then-world", "omids-counting", "counting"],
)
def test_which_versions_are_plain(
    store: MemoryStore, first: int, low_watermark: int, ceiling: int | None, expected: PlainVersions
) -> None:
    """Whatever an oracle may have issued is not, Omid's before ours included."""
    create_system_tables(store)
    control = ControlTable(store)
    control.write(b"first-timestamp", encode_long(first))
    control.write(b"low-watermark", encode_long(low_watermark))
    if ceiling is not None:
        control.write(ADOPTED_CEILING_FACT, encode_long(ceiling))
    assert plain_versions(store) == expected


def test_somebody_who_goes_on_writing_is_noticed(store: MemoryStore) -> None:
    """What comes after the last look is seen by nobody, so there must be a last look."""
    EmbeddedOracle(store).close()
    plan = plan_adoption(store, "t", COMMIT_TABLE)
    write = store.write
    count = 0

    def write_and_put(*arguments: object, **options: object) -> None:
        nonlocal count
        write(*arguments, **options)  # type: ignore[arg-type]  # passed through
        count += 1
        mutation = RowMutation(b"busy", puts=[Put(b"a", b"q", NOW_MS + count, b"v")])
        write({"t": [mutation]})

    store.write = write_and_put  # type: ignore[method-assign]  # the point
    with pytest.raises(UsageError, match="still writes to t"):
        adopt(store, plan, COMMIT_TABLE)
    assert store.schema("t").attributes.keys() == {INCARNATION_ATTRIBUTE}


def test_limits_are_taken_away_where_that_is_allowed(store: MemoryStore) -> None:
    """Else the dry run refuses, and names the option."""
    EmbeddedOracle(store).close()
    store.set_family_attributes("t", b"a", {"VERSIONS": "1", "BLOCKSIZE": "1024"})
    store.set_family_attributes("t", b"b", {"TTL": "86400"})
    with pytest.raises(UsageError, match="--alter-families"):
        plan_adoption(store, "t", COMMIT_TABLE)
    plan = plan_adoption(store, "t", COMMIT_TABLE, may_alter=True)
    assert plan.altered == {b"a", b"b"}
    assert store.schema("t").families[0].attributes["VERSIONS"] == "1"
    adopt(store, plan, COMMIT_TABLE)
    assert [dict(family.attributes) for family in store.schema("t").families] == [
        {"BLOCKSIZE": "1024", "OMID_ENABLED": "true"},
        {"OMID_ENABLED": "true"},
    ]


@pytest.mark.parametrize("level", ["cell", "row"])
def test_an_adopted_table_says_how_conflicts_are_detected(store: MemoryStore, level: str) -> None:
    """Two clients that differ would lose each other's updates without a word."""
    other = {"cell": "row", "row": "cell"}[level]
    oracle = EmbeddedOracle(store)
    plan = plan_adoption(store, "t", COMMIT_TABLE, conflict_level=level)
    assert plan.is_level_chosen
    adopt(store, plan, COMMIT_TABLE)
    assert TransactionManager(store, oracle).begin().table("t").layout.conflict_level == level
    with TransactionManager(store, oracle, conflict_level=other) as tm:
        assert tm.begin().table("t").layout.conflict_level == level
        # A second adoption keeps what the table says, unless it is told otherwise.
        again = plan_adoption(store, "t", COMMIT_TABLE)
        assert (again.conflict_level, again.is_level_chosen) == (level, True)
        changed = plan_adoption(store, "t", COMMIT_TABLE, conflict_level=other)
        adopt(store, changed, COMMIT_TABLE, oracle=oracle)
        assert store.schema("t").attributes["OMIDPY_CONFLICT_LEVEL"] == other


def test_a_table_whose_conflict_level_nobody_named_has_that_of_omid(store: MemoryStore) -> None:
    """Java's tables do not say; `cell` is what its clients do unless they are told otherwise."""
    EmbeddedOracle(store).close()
    plan = plan_adoption(store, "t", COMMIT_TABLE)
    assert (plan.conflict_level, plan.is_level_chosen) == ("cell", False)
    adopt(store, plan, COMMIT_TABLE)
    assert store.schema("t").attributes["OMIDPY_CONFLICT_LEVEL"] == "cell"
    with pytest.raises(UsageError, match="'table' is none of cell, row"):
        plan_adoption(store, "t", COMMIT_TABLE, conflict_level="table")
