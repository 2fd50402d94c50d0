"""HBase through its Thrift1 gateway: what it can do means what it means elsewhere."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

import omidpy
from omidpy.base.cells import commit_row, encode_commit
from omidpy.base.tables import (
    COMMIT_TABLE_ATTRIBUTE,
    CONFLICT_LEVEL_ATTRIBUTE,
    CONTROL_TABLE,
    OMID_ENABLED,
)
from omidpy.cli import main
from omidpy.errors import ConfigError, NotTransactional, TransactionAborted, UsageError
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    INVALIDATION,
    CommitTable,
    create_system_tables,
)
from omidpy.facts.control import ControlTable, put_value
from omidpy.manager import TransactionManager
from omidpy.model import FamilySchema, TableSchema, Timestamp
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.hbase import identity
from omidpy.storage.hbase.thrift1 import Thrift1Store
from omidpy.storage.hbase.thrift2 import Thrift2Store
from omidpy.testing.chapters.conditions import Conditions
from omidpy.testing.chapters.tables import Tables
from omidpy.testing.contract import StoreContract, in_threads
from tests.machines.client_suite import ClientSuite, closing
from tests.machines.hbase import HBase
from tests.machines.hbase_store import drop_tables, empty_hbase
from tests.machines.processes import tso_server

START = Timestamp(1_700_000_000_000_000_000)
"""A start timestamp of world time."""


@pytest.fixture
def admin(hbase: HBase) -> Iterator[Thrift2Store]:
    """Return the same HBase through Thrift2, set up, and without a table of a user's later on."""
    store = Thrift2Store(hbase.thrift2_url)
    create_system_tables(store)
    assert store.store_id
    kept = [schema.name for schema in store.tables()]
    yield store
    store.close()
    drop_tables(hbase, but=kept)


@pytest.fixture
def store(hbase: HBase, admin: Thrift2Store) -> Iterator[Thrift1Store]:
    """Return a store without a table of a user's."""
    assert admin.store_id
    store = Thrift1Store(hbase.thrift1_url)
    yield store
    store.close()


class TestThrift1StoreByDay(Tables, Conditions):
    """`hbase+thrift1://` where it lacks most; by night it is the whole contract."""

    def reopen(self, store: Store) -> Store:
        """Open the same HBase again."""
        return Thrift1Store(store.url)


@pytest.mark.nightly
class TestThrift1Store(TestThrift1StoreByDay, StoreContract):
    """`hbase+thrift1://` against the contract; what the gateway lacks is refused."""


@pytest.fixture(scope="module")
def served(hbase: HBase) -> Iterator[TransactionManager]:
    """Return a client of Thrift1, whose tables are made through Thrift2, beside the oracle."""
    with (
        empty_hbase(hbase) as url,
        tso_server(url) as server,
        omidpy.connect(url, tso=server.address) as administration,
    ):
        tm = omidpy.connect(hbase.thrift1_url, tso=server.address)
        tm.create_table = administration.create_table  # type: ignore[method-assign]  # the point
        tm.drop_table = administration.drop_table  # type: ignore[method-assign]  # the point
        yield from closing(tm)


@pytest.mark.nightly
class TestClientOfThrift1(ClientSuite):
    """A client that reaches the old gateway alone; oracle and tables are elsewhere."""

    @pytest.fixture
    def tm(self, served: TransactionManager) -> TransactionManager:
        """Return the one manager of the server."""
        return served


# -- the one checked change ------------------------------------------------------------------------


def test_an_invalidation_looks_as_if_thrift2_had_written_it(
    store: Thrift1Store, admin: Thrift2Store
) -> None:
    """One cell, at the transaction's own version: Thrift2 removes it by that."""
    assert CommitTable(store).invalidate(START)
    row = commit_row(START)
    ((cell,),) = admin.get(COMMIT_TABLE, [row])
    assert (cell.family, cell.qualifier, cell.version) == (*INVALIDATION, START)
    assert CommitTable(store).invalidate(START), "it stands already"
    assert CommitTable(admin).undo_invalidation(START)
    assert admin.get(COMMIT_TABLE, [row]) == [[]]


def test_an_invalidation_that_comes_second_changes_nothing(
    store: Thrift1Store, admin: Thrift2Store
) -> None:
    """The commit was first, and nothing may make its readers doubt it."""
    start_ts = Timestamp(START + 50)
    row = commit_row(start_ts)
    entry = Put(*COMMIT, start_ts, encode_commit(start_ts, start_ts + 50))
    admin.write({COMMIT_TABLE: [RowMutation(row, puts=[entry])]})
    assert not CommitTable(store).invalidate(start_ts)
    assert [cell.qualifier for cell in admin.get(COMMIT_TABLE, [row])[0]] == [COMMIT.qualifier]


def test_of_a_commit_and_an_invalidation_at_once_one_wins(
    store: Thrift1Store, admin: Thrift2Store
) -> None:
    """The gateway's own check decides, before the cell gets its version."""
    for number in range(10):
        start_ts = Timestamp(START + 100 + 50 * number)
        row = commit_row(start_ts)
        won: list[str] = []

        def commit(start_ts: Timestamp = start_ts, row: bytes = row, won: list[str] = won) -> None:
            entry = Put(*COMMIT, start_ts, encode_commit(start_ts, start_ts + 50))
            if admin.check_and_mutate(
                COMMIT_TABLE, row, INVALIDATION, None, RowMutation(row, puts=[entry])
            ):
                won.append("commit")

        def invalidate(start_ts: Timestamp = start_ts, won: list[str] = won) -> None:
            if CommitTable(store).invalidate(start_ts):
                won.append("invalidation")

        in_threads([commit, invalidate])
        assert len(won) == 1
        (cells,) = admin.get(COMMIT_TABLE, [row])
        wanted = COMMIT if won == ["commit"] else INVALIDATION
        assert [(cell.qualifier, cell.version) for cell in cells] == [(wanted.qualifier, start_ts)]


def test_a_version_that_is_not_world_time_is_not_checked(
    store: Thrift1Store, admin: Thrift2Store
) -> None:
    """HBase's clock would be above it, and the cell could never be removed by its version."""
    with pytest.raises(UsageError, match="check"):
        CommitTable(store).invalidate(Timestamp(50))
    with pytest.raises(UsageError, match="check"):
        ControlTable(store).replace(b"fact", None, b"1")
    assert ControlTable(admin).read(b"fact") is None


def test_completing_a_transaction_removes_its_entry_alone(
    store: Thrift1Store, admin: Thrift2Store
) -> None:
    """Older versions would go along, but a row of the commit table has none."""
    first, second = Timestamp(START + 5000), Timestamp(START + 5050)
    for start_ts in (first, second):
        entry = Put(*COMMIT, start_ts, encode_commit(start_ts, start_ts + 100))
        admin.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), puts=[entry])]})
    CommitTable(store).complete([first])
    assert CommitTable(admin).read([first, second]) == {first: None, second: START + 5150}
    assert CommitTable(store).read([first, second]) == {first: None, second: START + 5150}


# -- reads -----------------------------------------------------------------------------------------


def test_both_gateways_read_the_same(store: Thrift1Store, admin: Thrift2Store) -> None:
    """Many versions, in any bounds: read in pieces there, at once here."""
    rng = random.Random(8)
    families = [b"a", b"a-b", b"z"]
    qualifiers = [b"", b":", b"q", b"q:r", b"\x00\xc2\x80q\xc2\x80", b"\xff"]
    admin.create_table(TableSchema("t", [FamilySchema(name) for name in families]))
    rows = [b"\x00", b"a", b"a\x00", b"\xff\xff"]
    for version in rng.sample(range(1, 100), 40):
        puts = [
            Put(rng.choice(families), rng.choice(qualifiers), version, b"%d" % version)
            for _ in range(4)
        ]
        admin.write({"t": [RowMutation(rng.choice(rows), puts)]})
    for _ in range(60):
        low = rng.choice([0, rng.randrange(100)])
        high = rng.choice([2**63 - 1, rng.randrange(1, 101)])
        columns = rng.choice(
            [None, [(rng.choice(families), None)], [(b"a", q) for q in rng.sample(qualifiers, 2)]]
        )
        bounds: dict[str, Any] = {"columns": columns, "min_version": low, "max_version": high}
        for count in (1, 2, None):
            found = store.get("t", rows, max_versions=count, **bounds)
            assert found == admin.get("t", rows, max_versions=count, **bounds)
        for reverse in (False, True):
            for page_rows in (1, 3, 1000):
                options: dict[str, Any] = {
                    "max_versions": 1,
                    "reverse": reverse,
                    "page_rows": page_rows,
                    **bounds,
                }
                pages = list(store.scan("t", **options))
                expected = [row for page in admin.scan("t", **options) for row in page]
                assert [row for page in pages for row in page] == expected
                assert all(0 < len(page) <= page_rows for page in pages)


def test_a_prefix_with_a_quote_is_found(store: Thrift1Store, admin: Thrift2Store) -> None:
    """The gateway's filters are written as quoted text."""
    admin.create_table(TableSchema("t", [FamilySchema(b"f")]))
    for qualifier in (b"it", b"it's", b'it")'):
        put = Put(b"f", qualifier, 1, qualifier)
        admin.write({"t": [RowMutation(b"r" + qualifier, puts=[put])]})
    for prefix in (b"it'", b'it")', b"it's"):
        found = store.find_cell("t", prefix=prefix)
        assert found is not None
        assert found.qualifier.startswith(prefix)
    assert store.find_cell("t", prefix=b"it''") is None


# -- what Thrift2 says of tables -------------------------------------------------------------------


def test_attributes_that_thrift2_sets_are_seen(store: Thrift1Store, admin: Thrift2Store) -> None:
    """A client must know which families are transactional, and how conflicts are detected."""
    family = FamilySchema(b"f", {OMID_ENABLED: "true", "BLOCKSIZE": "1024"})
    wanted = {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE, CONFLICT_LEVEL_ATTRIBUTE: "row"}
    admin.create_table(TableSchema("t", [family, FamilySchema(b"g")], wanted))
    schema = store.schema("t")
    assert schema.attributes == wanted
    assert [dict(one.attributes) for one in schema.families] == [{OMID_ENABLED: "true"}, {}]
    assert schema in store.tables()
    admin.set_family_attributes("t", b"g", {OMID_ENABLED: "true"})
    admin.set_table_attributes("t", {CONFLICT_LEVEL_ATTRIBUTE: "cell"})
    schema = store.schema("t")
    assert schema.attributes[CONFLICT_LEVEL_ATTRIBUTE] == "cell"
    assert schema.families[1].attributes == {OMID_ENABLED: "true"}


@pytest.mark.parametrize("dropped_by", ["thrift1", "thrift2"])
def test_a_plain_table_is_not_taken_for_its_predecessor(
    store: Thrift1Store, admin: Thrift2Store, dropped_by: str
) -> None:
    """What is remembered of a table goes with it."""
    families = [FamilySchema(b"f", {OMID_ENABLED: "true"})]
    admin.create_table(TableSchema("t", families, {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE}))
    (store if dropped_by == "thrift1" else admin).drop_table("t")
    store.create_table(TableSchema("t", [FamilySchema(b"f")]))
    assert store.schema("t") == TableSchema("t", (FamilySchema(b"f"),))


def test_limits_of_a_family_are_seen(store: Thrift1Store, admin: Thrift2Store) -> None:
    """A table that forgets versions is refused by its clients, whichever gateway they use."""
    limits = {"VERSIONS": "1", "TTL": "86400"}
    admin.create_table(TableSchema("t", [FamilySchema(b"f", limits), FamilySchema(b"g")]))
    assert [dict(one.attributes) for one in store.schema("t").families] == [limits, {}]


# -- refusals --------------------------------------------------------------------------------------


def test_opening_says_what_is_lacking(hbase: HBase, caplog: pytest.LogCaptureFixture) -> None:
    """Once, at the time when somebody can still choose."""
    with caplog.at_level(logging.WARNING):
        Thrift1Store(hbase.thrift1_url).close()
    (record,) = [one for one in caplog.records if one.name.startswith("omidpy")]
    for word in ("delete single versions", "rolled-back", "savepoint", "compaction", "thrift2"):
        assert word in record.getMessage()


def test_durability_on_disk_is_refused(hbase: HBase) -> None:
    """The gateway has no such setting; a promise that is not kept is worse than none."""
    with pytest.raises(ConfigError, match="durability"):
        Thrift1Store(hbase.thrift1_url + "?durability=fsync")


def test_a_store_that_was_not_set_up_says_how(
    store: Thrift1Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thrift1 cannot make the tables, so the remedy names the other gateway."""
    monkeypatch.setattr(identity, "CONTROL_TABLE", "OMIDPY_OF_A_STORE_NOT_SET_UP")
    with pytest.raises(ConfigError, match=r"omidpy init(.|\n)*thrift2"):
        _ = store.store_id


@pytest.mark.parametrize("command", [["init"], ["compact", "--dry-run"]], ids=["init", "compact"])
def test_commands_that_need_thrift2_say_so(
    hbase: HBase, admin: Thrift2Store, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code of a wrong configuration."""
    assert admin.store_id
    with pytest.raises(SystemExit) as ended:
        main([*command, "--store", hbase.thrift1_url])
    assert ended.value.code == 2
    assert "thrift2" in capsys.readouterr().err.lower()


def test_an_oracle_does_not_start_on_thrift1(hbase: HBase, admin: Thrift2Store) -> None:
    """Neither a server nor one inside the client."""
    assert admin.store_id
    with pytest.raises(ConfigError, match="tso="):
        omidpy.connect(hbase.thrift1_url)


# -- beside clients of Thrift2 ---------------------------------------------------------------------


def test_what_a_rollback_leaves_is_seen_by_nobody(served: TransactionManager, hbase: HBase) -> None:
    """Also not below: what was committed before it is read behind it, by gets and by scans."""
    served.create_table("left", ["f"])
    row = {b"f:q": b"committed"}
    with served.begin() as tx:
        for key in (b"a", b"b"):
            tx.table("left").put(key, row)
    tx = served.begin()
    tx.table("left").put(b"a", {b"f:q": b"never", b"f:r": b"never"})
    tx.table("left").put(b"c", {b"f:q": b"never"})
    tx.flush()
    tx.rollback()
    served.session.post_committer.drain()
    pages = served.store.scan("left", max_versions=1)
    assert b"never" in {row[-1].value for page in pages for row in page}
    with omidpy.connect(hbase.thrift2_url, tso="store:") as other:
        for tm in (served, other):
            with tm.begin() as tx:
                assert list(tx.table("left").scan()) == [(b"a", row), (b"b", row)]
                assert tx.table("left").row(b"a") == row
                assert tx.table("left").row(b"c") == {}


def test_a_flushed_savepoint_that_is_undone_dooms_its_transaction(
    served: TransactionManager,
) -> None:
    """Its cells cannot be taken back alone, and a commit would show them."""
    served.create_table("doomed", ["f"])
    tx = served.begin()
    tx.table("doomed").put(b"a", {b"f:q": b"outside"})

    def undone() -> None:
        with tx.savepoint():
            tx.table("doomed").put(b"b", {b"f:q": bytes(3 * 2**20)})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        undone()
    with pytest.raises(TransactionAborted, match="single versions"):
        tx.commit()
    assert list(served.begin().table("doomed").scan()) == []


def test_a_table_without_a_copy_of_its_attributes_is_not_transactional(
    served: TransactionManager, hbase: HBase
) -> None:
    """One that Java made, say: adopting it through Thrift2 leaves the copy."""
    served.create_table("java", ["f"])
    copy = put_value(b"described/java", b"{}")
    served.store.write({CONTROL_TABLE: [copy]})
    tx = served.begin()
    with pytest.raises(NotTransactional, match="omidpy table adopt java"):
        tx.table("java").row(b"r")
    with pytest.raises(SystemExit) as ended:
        main(["table", "adopt", "java", "--apply", "--store", hbase.thrift2_url])
    assert ended.value.code == 0
    assert tx.table("java").row(b"r") == {}
