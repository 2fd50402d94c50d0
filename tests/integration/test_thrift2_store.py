"""A store on a real HBase: what the contract cannot know."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

import pytest

import omidpy
from omidpy.base.cells import shadow_qualifier
from omidpy.base.commit_facts import INVALID
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, CONTROL_TABLE, OMID_ENABLED
from omidpy.errors import (
    ConfigError,
    NoSuchFamily,
    NotTransactional,
    StorageUnavailable,
    UsageError,
)
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    COMMIT_TABLE_SPLITS,
    TIMESTAMP_TABLE,
    CommitTable,
    create_system_tables,
)
from omidpy.model import Cell, Column, FamilySchema, KeyRange, TableSchema, Timestamp
from omidpy.storage import rules
from omidpy.storage.base import Condition, DeleteVersion, Entries, GuardedMutation, Put, RowMutation
from omidpy.storage.hbase.thrift2 import Thrift2Store, reads, search
from omidpy.storage.hbase.thrift2 import store as thrift2
from omidpy.storage.hbase.thrift2.store import WRITE_BATCH_ROWS
from omidpy.storage.options import LongRow, Portion, Wanted
from omidpy.testing.contract import in_threads
from tests.machines.hbase import HBase
from tests.machines.hbase_store import drop_tables, empty_hbase

SYSTEM_TABLES: Final = (COMMIT_TABLE, TIMESTAMP_TABLE, CONTROL_TABLE)


@pytest.fixture(scope="module")
def url(hbase: HBase) -> Iterator[str]:
    """Return the address of an HBase that is set up for us alone."""
    with empty_hbase(hbase) as url:
        store = Thrift2Store(url)
        create_system_tables(store)
        store.close()
        yield url


@pytest.fixture
def store(url: str, hbase: HBase) -> Iterator[Thrift2Store]:
    """Return a store with the table `t`, family `cf`."""
    store = Thrift2Store(url)
    store.create_table(TableSchema("t", [FamilySchema(b"cf"), FamilySchema(b"other")]))
    yield store
    store.close()
    drop_tables(hbase, but=SYSTEM_TABLES)


def put(row: bytes, version: int = 1, qualifier: bytes = b"q") -> RowMutation:
    """Return a mutation that writes one cell."""
    return RowMutation(row, [Put(b"cf", qualifier, version, b"v")])


# -- calls ahead -----------------------------------------------------------------------------------


def test_changes_and_a_look_behind_them_are_done_in_order(store: Thrift2Store) -> None:
    """What the oracle relies on: the look sees the changes, and each has its own condition."""
    condition = Condition("t", b"a", Column(b"cf", b"forbidden"), None)
    changes = [
        GuardedMutation("t", put(b"a", version=1), condition),
        GuardedMutation("t", put(b"b", version=1), condition._replace(row=b"b")),
        GuardedMutation("t", put(b"a", version=2), condition._replace(expected=b"v")),
    ]
    store.write({"t": [put(b"b", qualifier=b"forbidden")]})
    seen = Condition("t", b"a", Column(b"cf", b"q"), b"v")
    for _ in range(20):
        assert store.write_then_check(changes, seen) == ([True, False, False], True)
        assert store.write_then_check(changes[1:], seen._replace(row=b"b")) == (
            [False, False],
            False,
        )
    absent = Condition("t", b"none", Column(b"cf", b"q"), None)
    assert store.write_then_check(changes[:1], absent) == ([True], True)
    (cells,) = store.get("t", [b"a"])
    assert [cell.version for cell in cells] == [1]


def test_a_look_behind_changes_sees_them_every_time(store: Thrift2Store) -> None:
    """A gateway does one call of a connection after another, however soon the next one comes."""
    column = Column(b"cf", b"q")
    for number in range(200):
        value = b"%d" % number
        row = b"row %d" % (number % 7)
        mutation = RowMutation(row, [Put(*column, number + 1, value)])
        change = GuardedMutation("t", mutation, Condition("t", row, Column(b"cf", b"x"), None))
        look = Condition("t", row, column, value)
        assert store.write_then_check([change], look) == ([True], True)


def test_looks_behind_many_puts_see_them_every_time(store: Thrift2Store) -> None:
    """Also where the puts are more than one call; each look says for itself whether it holds."""
    column, other = Column(b"cf", b"q"), Column(b"cf", b"x")
    count = WRITE_BATCH_ROWS + 1
    for number in range(1, 11):
        value = b"%d" % number
        cells = [(b"row %05d" % row, number, value) for row in range(count)]
        looks = [Condition("t", cells[place][0], column, value) for place in (0, -1)]
        absent = Condition("t", b"none", column, None)
        broken = looks[0]._replace(expected=b"another")
        held = store.put_then_check(Entries("t", column, other, cells), [*looks, absent, broken])
        assert held == [True, True, True, False]
    rows = store.get("t", [row for row, _, _ in cells])
    assert {tuple(cell.version for cell in row) for row in rows} == {tuple(range(10, 0, -1))}
    with pytest.raises(NoSuchFamily, match="'t' has no column family b'no'"):
        store.put_then_check(Entries("t", Column(b"no", b"q"), other, cells), looks)


def test_an_error_of_one_of_the_calls_ahead_is_that_of_the_whole(store: Thrift2Store) -> None:
    """What was done before it stays done, so that nothing certain can be said."""
    change = GuardedMutation("t", put(b"a"), Condition("t", b"a", Column(b"cf", b"x"), None))
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known"):
        store.write_then_check([change], Condition("none", b"a", Column(b"cf", b"q"), None))
    assert store.get("t", [b"a"])[0], "what was sent before was done"


# -- set up ----------------------------------------------------------------------------------------


def test_system_tables_are_those_that_omids_tool_makes(url: str) -> None:
    """Java's clients find the commit table's regions where they expect them."""
    store = Thrift2Store(url)
    starts = [region.start for region in store.regions(COMMIT_TABLE)]
    assert starts == [b"", *COMMIT_TABLE_SPLITS]
    assert store.regions(TIMESTAMP_TABLE) == [KeyRange()]
    for name in SYSTEM_TABLES:
        families = store.schema(name).families
        assert [family.attributes for family in families] == [{"VERSIONS": "1"}] * len(families)
    create_system_tables(store)
    store.close()


def test_one_id_whoever_asks_first(store: Thrift2Store, url: str) -> None:
    """Two clients that meet a new store at once must not part company."""
    stores = [Thrift2Store(url) for _ in range(4)]
    ids: list[str] = []
    in_threads([lambda one=one: ids.append(one.store_id) for one in stores])  # type: ignore[misc]  # a bound default
    assert set(ids) == {store.store_id}
    for one in stores:
        one.close()


def test_a_store_that_was_not_set_up_says_how(hbase: HBase, url: str) -> None:
    """Its id lives in the table that is missing."""
    drop_tables(hbase)
    store = Thrift2Store(url)
    try:
        with pytest.raises(ConfigError, match=re.escape(f"omidpy init --store {url}")):
            _ = store.store_id
    finally:
        create_system_tables(store)
        store.close()


def test_an_oracle_in_this_process_has_hbase_to_itself(url: str, hbase: HBase) -> None:
    """Good for a first look; the second process is told to share a server."""
    with omidpy.connect(url) as tm:
        tm.create_table("accounts", families=["cf"])
        with tm.begin() as tx:
            tx.table("accounts").put(b"alice", {b"cf:balance": b"100"})
        with pytest.raises(ConfigError, match="has an oracle already: process"):
            omidpy.connect(url)
        with tm.begin() as tx:
            assert tx.table("accounts").row(b"alice") == {b"cf:balance": b"100"}
    with omidpy.connect(url) as tm, tm.begin() as tx:
        assert tx.table("accounts").row(b"alice") == {b"cf:balance": b"100"}
    drop_tables(hbase, but=SYSTEM_TABLES)


# -- descriptors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("attributes", [{"VERSIONS": "1"}, {"TTL": "86400"}])
def test_a_table_that_forgets_shows_it_and_can_be_mended(
    store: Thrift2Store, attributes: dict[str, str]
) -> None:
    """Java's tools, or the shell, made it with HBase's defaults."""
    marked = {OMID_ENABLED: "true", "BLOOMFILTER": "ROWCOL", "BLOCKSIZE": "8192"}
    family = FamilySchema(b"cf", {**marked, **attributes})
    store.create_table(TableSchema("forgets", [family], {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE}))
    assert store.schema("forgets").families[0].attributes == {**marked, **attributes}
    with omidpy.connect(store.url) as tm:
        with pytest.raises(NotTransactional, match="alter 'forgets'"), tm.begin() as tx:
            tx.table("forgets").row(b"r")
        store.set_family_attributes("forgets", b"cf", dict.fromkeys(attributes))
        assert store.schema("forgets").families[0].attributes == marked
        with tm.begin() as tx:
            assert tx.table("forgets").row(b"r") == {}


def test_a_change_of_the_table_leaves_its_families_alone(store: Thrift2Store) -> None:
    """The descriptor is written back whole."""
    family = FamilySchema(b"cf", {"BLOCKSIZE": "8192", "VERSIONS": "7", "IN_MEMORY": "true"})
    store.create_table(TableSchema("tuned", [family], {"MAX_FILESIZE": "1000000000"}))
    store.set_table_attributes("tuned", {"OWNER": "me"})
    schema = store.schema("tuned")
    assert schema.families == (family,)
    assert schema.attributes == {"MAX_FILESIZE": "1000000000", "OWNER": "me"}


# -- reads and writes ------------------------------------------------------------------------------


def test_a_search_for_a_qualifier_comes_up_for_air(
    store: Thrift2Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without it end a call now and then, and are not taken for a find."""
    store.write({"t": [put(b"%03d" % number) for number in range(60)]})
    for chance in (2.0, 0.2, 0.0):
        monkeypatch.setattr(search, "WAYPOINT_CHANCE", chance)
        assert store.find_cell("t", prefix=b"zz") is None
    both = RowMutation(b"041", [Put(b"cf", b"a", 1, b"v"), Put(b"other", b"zzz", 1, b"found")])
    store.write({"t": [both]})
    for chance in (2.0, 0.2, 0.0):
        monkeypatch.setattr(search, "WAYPOINT_CHANCE", chance)
        assert store.find_cell("t", prefix=b"zz") == Cell(b"041", b"other", b"zzz", 1, b"found")
        assert store.find_cell("t", prefix=b"q") is not None


def test_large_batches_are_cut(store: Thrift2Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows, by bytes, and for gets; nothing is lost at the cuts."""
    monkeypatch.setattr(thrift2, "WRITE_BATCH_ROWS", 7)
    monkeypatch.setattr(thrift2, "WRITE_BATCH_BYTES", 400)
    monkeypatch.setattr(reads, "GET_BATCH_ROWS", 5)
    rows = [b"%03d" % number for number in range(40)]
    store.write({"t": [put(row, version) for row in rows for version in (1, 2)]}, durable=True)
    assert [len(cells) for cells in store.get("t", rows)] == [2] * 40
    drop = (DeleteVersion(b"cf", b"q", 2), DeleteVersion(b"other", b"q", 1))
    store.write({"t": [RowMutation(row, deletes=drop) for row in rows]})
    assert [[cell.version for cell in cells] for cells in store.get("t", rows)] == [[1]] * 40


def test_a_framed_gateway_gets_batches_that_fit_its_frames(
    store: Thrift2Store, hbase: HBase
) -> None:
    """As shipped it hangs up on more than 2 MiB, which a large transaction has."""
    framed = Thrift2Store(f"hbase+thrift2://{hbase.gateway('thrift2', '-f')}?transport=framed")
    rows = [b"%02d" % number for number in range(30)]
    puts = [RowMutation(row, [Put(b"cf", b"q", 1, row * 50_000)]) for row in rows]
    framed.write({"t": puts})
    assert [cells[0].value for cells in framed.get("t", rows)] == [row * 50_000 for row in rows]
    framed.close()


def test_pairs_are_the_newest_cells_with_their_shadow_cells(store: Thrift2Store) -> None:
    """By whole families and by columns, and never a row without any."""
    shadow = shadow_qualifier(b"q")
    store.write(
        {
            "t": [
                RowMutation(b"a", [Put(b"cf", b"q", 50, b"old"), Put(b"cf", shadow, 50, b"100")]),
                RowMutation(b"a", [Put(b"cf", b"q", 150, b"new"), Put(b"cf", shadow, 150, b"200")]),
                RowMutation(b"b", [Put(b"cf", b"q", 50, b"old"), Put(b"cf", shadow, 50, b"100")]),
                RowMutation(b"b", [Put(b"cf", b"q", 150, b"new")]),
                RowMutation(b"c", [Put(b"cf", shadow, 50, b"100")]),
            ]
        }
    )
    a = [(b"a", b"cf", b"q", 150, b"new", b"200")]
    b = [(b"b", b"cf", b"q", 150, b"new", None)]
    c = [(b"c", b"cf", shadow, 50, b"100", None)]
    for columns in (None, [(b"cf", None)], [(b"cf", b"q")]):
        pages = store.scan_pairs("t", KeyRange(), columns=columns, max_version=999, page_rows=2)
        assert [row for page in pages for row in page] == [a, b, c]
    pages = store.scan_pairs("t", KeyRange(b"a", b"b"), columns=None, max_version=60, page_rows=2)
    assert list(pages) == [[[(b"a", b"cf", b"q", 50, b"old", b"100")]]]
    pages = store.scan_pairs(
        "t", KeyRange(b"a", b"c"), columns=None, max_version=999, page_rows=1, reverse=True
    )
    assert [row for page in pages for row in page] == [b, a]


def test_a_lazy_scan_reads_what_a_scan_reads(store: Thrift2Store) -> None:
    """All versions within its bounds, page by page."""
    for row in (b"a", b"b", b"c"):
        puts = [Put(b"cf", b"q", version, b"%d" % version) for version in (1, 2, 3)]
        store.write({"t": [RowMutation(row, puts)]})
    rows, most = KeyRange(b"a", b"c"), Portion(1000, 1000)
    lazy = store.scan_portions("t", rows, Wanted((b"cf",), 2, 4), page_rows=1, most=most)
    plain = store.scan("t", rows, min_version=2, max_version=4, page_rows=1)
    pages = [page for page in lazy if not isinstance(page, LongRow)]
    assert [[list(row) for row in page] for page in pages] == list(plain)


def test_a_key_whose_region_could_not_be_found_is_refused(store: Thrift2Store) -> None:
    """The gateway would answer that something went wrong inside it."""
    row = b"r" * rules.MAX_ROW_BYTES
    for call in (
        lambda: store.get("t", [row]),
        lambda: list(store.scan("t", KeyRange(row, b""))),
        lambda: store.write({"t": [put(row)]}),
    ):
        with pytest.raises(UsageError, match="of at most 32750"):
            call()


def test_both_sides_of_a_fork_go_on(store: Thrift2Store) -> None:
    """Spark's workers and many servers fork; each side has connections of its own."""
    store.write({"t": [put(b"r")]})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.write({"t": [put(b"child")]})
            code = 0 if store.get("t", [b"r"]) == [[Cell(b"r", b"cf", b"q", 1, b"v")]] else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert [len(cells) for cells in store.get("t", [b"r", b"child"])] == [1, 1]


# -- delete markers: docs/explanation/delete-markers.md --------------------------------------------


def test_a_deleted_version_cannot_be_written_again(store: Thrift2Store) -> None:
    """The fact on which the page rests: HBase says yes and shows nothing."""
    store.write({"t": [put(b"r", 1), put(b"r", 2)]})
    store.write({"t": [RowMutation(b"r", deletes=[DeleteVersion(b"cf", b"q", 2)])]})
    store.write({"t": [put(b"r", 2)]})
    assert [cell.version for cell in store.get("t", [b"r"])[0]] == [1]
    store.write({"t": [put(b"r", 3)]})
    assert [cell.version for cell in store.get("t", [b"r"])[0]] == [3, 1]


def test_a_completed_entry_stays_gone_when_its_put_comes_late(store: Thrift2Store) -> None:
    """A gateway may repeat the oracle's put after the client has completed the transaction."""
    entries, start_ts = CommitTable(store), Timestamp(1000)
    key = b"\x08" + start_ts.to_bytes(8)
    late = RowMutation(key, [Put(*COMMIT, start_ts, b"\x32")])
    store.write({COMMIT_TABLE: [late]})
    assert entries.read((start_ts,)) == {start_ts: 1050}
    entries.complete((start_ts,))
    store.write({COMMIT_TABLE: [late]})
    assert entries.read((start_ts,)) == {start_ts: None}
    # A reader that missed the shadow cell may still invalidate, and the reader after it undo that.
    assert entries.invalidate(start_ts)
    assert entries.read((start_ts,)) == {start_ts: INVALID}
    assert entries.undo_invalidation(start_ts)
    assert entries.read((start_ts,)) == {start_ts: None}
    # The second invalidation is claimed and hidden: of use to nobody, and the shadow cell decides.
    assert entries.invalidate(start_ts)
    assert entries.read((start_ts,)) == {start_ts: None}
