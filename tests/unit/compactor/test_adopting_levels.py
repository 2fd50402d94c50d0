"""By what does an adopted table detect conflicts, beside Phoenix and while clients write it?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import omidpy
from compactor.check.findings import Kind
from compactor.check.fsck import Check, CheckOptions
from compactor.run.reporting.notes import notes_on
from compactor.tables.adoption import adopt, plan_adoption
from compactor.tables.ownership import Standing, judge, survey
from omidpy.base.tables import (
    CHANGING,
    CONFLICT_LEVEL_ATTRIBUTE,
    LEVEL_CHANGE_ATTRIBUTE,
    OMID_ENABLED,
)
from omidpy.cli import main
from omidpy.errors import ConfigError, Fenced, StorageError, UsageError, WriteConflict
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.manager import TransactionManager
from omidpy.model import FamilySchema, TableId, TableSchema, Timestamp
from omidpy.opening import open_store
from omidpy.reports.health.checks import check_store
from omidpy.reports.health.findings import Health, MisadoptedFinding
from omidpy.storage.memory import MemoryStore
from tests.machines.clients import TABLE, Client

COPROCESSOR = "coprocessor$2"
OMIDS = "|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"
OTHER = "|org.apache.phoenix.coprocessor.ScanRegionObserver|805306366|"


def phoenixs(name: str, coprocessor: str, mark: dict[str, str] | None = None) -> TableSchema:
    """Return a table as Phoenix makes it."""
    return TableSchema(name, [FamilySchema(b"0", mark or {})], {COPROCESSOR: coprocessor})


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """Return a store with tables of Phoenix's, on which an oracle has started."""
    store = MemoryStore()
    Client(store)
    store.create_table(phoenixs("ORDERS", OMIDS, {OMID_ENABLED: "true"}))
    store.create_table(phoenixs("SYSTEM.CATALOG", OTHER))
    store.create_table(phoenixs("LOGS", OTHER))
    yield store
    store.close()


def adopt_wrongly(store: MemoryStore) -> None:
    """Do what earlier versions did."""
    adopt(store, plan_adoption(store, "ORDERS", COMMIT_TABLE), COMMIT_TABLE)
    store.set_table_attributes("ORDERS", {CONFLICT_LEVEL_ATTRIBUTE: "cell"})


def run(*words: str) -> None:
    """Run a verb of the command line, which must succeed."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code


def manager(store: MemoryStore, level: str) -> TransactionManager:
    """Return a manager of a level, and with an oracle, of its own."""
    return TransactionManager(store, Client(store, table=None).oracle, conflict_level=level)


# -- Phoenix ---------------------------------------------------------------------------------------


def test_a_table_of_phoenixs_is_adopted_by_row(store: MemoryStore) -> None:
    """By which Phoenix goes, whatever Omid's default is; nobody need say so."""
    plan = plan_adoption(store, "ORDERS", COMMIT_TABLE)
    assert (plan.conflict_level, plan.is_level_chosen, plan.changes_level) == ("row", True, False)
    adopt(store, plan, COMMIT_TABLE)
    assert store.schema("ORDERS").attributes[CONFLICT_LEVEL_ATTRIBUTE] == "row"
    assert store.schema("ORDERS").attributes[COPROCESSOR] == OMIDS


def test_it_is_not_adopted_by_cell(store: MemoryStore) -> None:
    """Phoenix would see none of our conflicts, nor we any of its."""
    with pytest.raises(UsageError, match="ORDERS is Phoenix's, which detects conflicts by row"):
        plan_adoption(store, "ORDERS", COMMIT_TABLE, conflict_level="cell")
    assert plan_adoption(store, "ORDERS", COMMIT_TABLE, conflict_level="row").is_level_chosen


@pytest.mark.parametrize(
    ("table", "why"),
    [("SYSTEM.CATALOG", "one of Phoenix's own"), ("LOGS", "writes it without transactions")],
)
def test_what_phoenix_writes_without_transactions_is_not_adopted(
    store: MemoryStore, table: str, why: str
) -> None:
    """Its cells would be converted, and everything written since be seen by nobody."""
    with pytest.raises(UsageError, match=why):
        plan_adoption(store, table, COMMIT_TABLE)
    (standing,) = [one for one in survey(store, COMMIT_TABLE) if one.name == table]
    assert standing.standing is Standing.PLAIN
    assert why in standing.note


@pytest.mark.parametrize("level", ["cell", "row"])
def test_a_table_that_was_adopted_wrongly_is_written_by_nobody(
    store: MemoryStore, level: str
) -> None:
    """Before the first write, and the error says how it is mended."""
    adopt_wrongly(store)
    tx = manager(store, level).begin()
    with pytest.raises(ConfigError, match=r"adopt ORDERS --conflict-level row --apply"):
        tx.table("ORDERS")
    tx.rollback()


def test_a_compaction_reports_it_and_holds_nothing_back(store: MemoryStore) -> None:
    """What is pruned does not depend on the level."""
    adopt_wrongly(store)
    standing = judge(store.schema("ORDERS"), COMMIT_TABLE)
    assert (standing.standing, standing.reason) == (Standing.OWNED, "")
    notes = list(notes_on([standing], [], first_timestamp=50))
    assert len(notes) == 1
    assert notes[0].startswith("table ORDERS was adopted with level cell, but Phoenix")


def test_fsck_finds_it(store: MemoryStore) -> None:
    """As a danger, with the command that mends it."""
    adopt(store, plan_adoption(store, "ORDERS", COMMIT_TABLE), COMMIT_TABLE)
    assert not Check(store, CheckOptions(settle_s=0), sleep=lambda _: None).run().findings
    store.set_table_attributes("ORDERS", {CONFLICT_LEVEL_ATTRIBUTE: "cell"})
    (found,) = Check(store, CheckOptions(settle_s=0), sleep=lambda _: None).run().findings
    assert (found.kind, found.table) == (Kind.MISADOPTED, "ORDERS")
    assert found.text().startswith("danger misadopted: ORDERS: was adopted with level cell")
    assert "`omidpy table adopt ORDERS --conflict-level row --apply`" in found.text()


def test_doctor_reports_it_and_adopting_once_more_mends_it(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the very words of the report."""
    url = f"sqlite:///{tmp_path_factory.mktemp('phoenix') / 'one.db'}"
    omidpy.connect(url).close()
    with contextlib.closing(open_store(url)) as file:
        file.create_table(phoenixs("ORDERS", OMIDS, {OMID_ENABLED: "true"}))
    run("table", "adopt", "ORDERS", "--apply", "--store", url)
    assert "conflicts are detected by row\n" in capsys.readouterr().out
    with contextlib.closing(open_store(url)) as file:
        file.set_table_attributes("ORDERS", {CONFLICT_LEVEL_ATTRIBUTE: "cell"})
    (found,) = [
        one
        for one in check_store(url, None, clock=Client().clock)
        if isinstance(one, MisadoptedFinding)
    ]
    assert found.health is Health.FAILED
    assert "`omidpy table adopt ORDERS --conflict-level row --apply`" in found.detail
    run("table", "adopt", "ORDERS", "--conflict-level", "row", "--apply", "--store", url)
    assert not any(
        isinstance(one, MisadoptedFinding) for one in check_store(url, None, clock=Client().clock)
    )
    with omidpy.connect(url, conflict_level="row") as tm, tm.begin() as tx:
        tx.table("ORDERS").put(b"r", {b"0:q": b"v"})


# -- another level, while clients write ------------------------------------------------------------


def test_who_began_by_the_earlier_level_does_not_commit() -> None:
    """A client by row may have begun since."""
    client = Client()
    tx = client.tm.begin()
    tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    plan = plan_adoption(client.store, TABLE, COMMIT_TABLE, conflict_level="row")
    assert plan.changes_level
    adopt(client.store, plan, COMMIT_TABLE, oracle=client.oracle)
    with pytest.raises(Fenced):
        tx.commit()
    after, other = client.tm.begin(), client.tm.begin()
    after.table(TABLE).put(b"r", {b"cf:q": b"v"})
    other.table(TABLE).put(b"r", {b"cf:other": b"v"})
    other.commit()
    with pytest.raises(WriteConflict):
        after.commit()


def test_nobody_is_let_in_between_the_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who came in before the fence by either level could commit beside one by the other."""
    client = Client()
    client.write()
    refused = []

    def look(table: TableId) -> Timestamp:
        for level in ("cell", "row"):
            tm = TransactionManager(client.store, client.naive, conflict_level=level)
            tx = tm.begin()
            with pytest.raises(ConfigError, match="is being changed; if that was interrupted"):
                tx.table(TABLE)
            tx.rollback()
            refused.append(level)
        return true_fence(table)

    true_fence = client.oracle.fence
    monkeypatch.setattr(client.oracle, "fence", look)
    plan = plan_adoption(client.store, TABLE, COMMIT_TABLE, conflict_level="row")
    adopt(client.store, plan, COMMIT_TABLE, oracle=client.oracle)
    assert refused == ["cell", "row"]
    assert client.store.schema(TABLE).attributes[CONFLICT_LEVEL_ATTRIBUTE] == "row"


def test_a_level_is_not_changed_without_the_oracle() -> None:
    """There would be no fence; nothing is changed."""
    client = Client()
    plan = plan_adoption(client.store, TABLE, COMMIT_TABLE, conflict_level="row")
    with pytest.raises(UsageError, match="name its oracle with --tso"):
        adopt(client.store, plan, COMMIT_TABLE)
    assert client.store.schema(TABLE).attributes[CONFLICT_LEVEL_ATTRIBUTE] == "cell"
    # Adopting once more by the level that it has asks nobody.
    adopt(client.store, plan_adoption(client.store, TABLE, COMMIT_TABLE), COMMIT_TABLE)


def test_a_change_that_was_interrupted_is_done_again_by_name() -> None:
    """What it was to become nobody has written down."""
    client = Client()
    client.store.set_table_attributes(TABLE, {CONFLICT_LEVEL_ATTRIBUTE: CHANGING})
    with pytest.raises(UsageError, match="was interrupted; say with --conflict-level"):
        plan_adoption(client.store, TABLE, COMMIT_TABLE)
    plan = plan_adoption(client.store, TABLE, COMMIT_TABLE, conflict_level="cell")
    assert plan.changes_level
    adopt(client.store, plan, COMMIT_TABLE, oracle=client.oracle)
    client.write()


def level(client: Client) -> str:
    """Return what the table says."""
    return client.store.schema(TABLE).attributes[CONFLICT_LEVEL_ATTRIBUTE]


def test_who_adopts_meanwhile_does_not_set_the_level_back() -> None:
    """There was no fence: clients by row and by cell wrote beside each other."""
    client = Client()
    slow = plan_adoption(client.store, TABLE, COMMIT_TABLE)
    by_row = plan_adoption(client.store, TABLE, COMMIT_TABLE, conflict_level="row")
    adopt(client.store, by_row, COMMIT_TABLE, oracle=client.oracle)
    with pytest.raises(StorageError, match="somebody else has adopted it"):
        adopt(client.store, slow, COMMIT_TABLE, oracle=client.oracle)
    assert level(client) == "row"


def test_two_who_change_the_level_at_the_same_time_do_not_end_each_others_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first was stopped behind its fence; the next but one has not set its own yet."""
    client = Client()

    def change(to: str) -> None:
        plan = plan_adoption(client.store, TABLE, COMMIT_TABLE, conflict_level=to)
        adopt(client.store, plan, COMMIT_TABLE, oracle=client.oracle)

    others = [lambda: change("cell"), lambda: change("row")]
    levels = []
    true_fence = client.oracle.fence

    def fence(table: TableId) -> Timestamp:
        if len(others) == 2:  # behind that of the first, who stands still
            fenced_ts = true_fence(table)
            others.pop(0)()
            with contextlib.suppress(ZeroDivisionError):
                others.pop(0)()
            return fenced_ts
        if not others:  # the third, who is interrupted before its own
            levels.append(level(client))
            raise ZeroDivisionError
        return true_fence(table)

    monkeypatch.setattr(client.oracle, "fence", fence)
    with pytest.raises(StorageError, match="somebody else has adopted it"):
        change("row")
    assert levels == [CHANGING]
    assert level(client) == CHANGING, "nobody has fenced off who writes by cell"
    monkeypatch.undo()
    change("cell")
    assert LEVEL_CHANGE_ATTRIBUTE not in client.store.schema(TABLE).attributes
    client.write()
