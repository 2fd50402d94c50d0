"""Tables that HBase leaves out of its list, since the user may neither create nor administer them.

They are not forgotten by who must know of all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from compactor.check.findings import Kind
from compactor.check.fsck import Check, CheckOptions
from compactor.tables.ownership import Standing, survey
from omidpy.errors import NoSuchTable, StorageError, StorageUnavailable, UsageError
from omidpy.facts.commit_table import COMMIT_TABLE, create_system_tables
from omidpy.facts.inspection import inspect
from omidpy.facts.tables.listing import all_tables
from omidpy.model import Cell, TableSchema
from omidpy.reports.health import checks
from omidpy.reports.health.findings import Health
from omidpy.reports.opened import missing_tables
from omidpy.reports.transactions import as_document
from omidpy.storage.hbase import states
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World


class Hiding(MemoryStore):
    """A store with rights."""

    def __init__(self) -> None:
        """Hide nothing yet."""
        super().__init__()
        self.hidden: set[str] = set()

    def tables(self) -> list[TableSchema]:
        """Leave out what is hidden."""
        return [one for one in super().tables() if one.name not in self.hidden]

    def schema(self, table: str) -> TableSchema:
        """Refuse it."""
        if table in self.hidden:
            raise StorageError(f"no right to look at {table}")
        return super().schema(table)

    def find_cell(self, table: str, **asked: object) -> Cell | None:
        """Refuse it, too."""
        self.schema(table)
        return super().find_cell(table, **asked)  # type: ignore[arg-type] # as they are

    def hidden_tables(self, listed: Collection[str]) -> dict[str, str]:
        """Tell of what is left out."""
        return {name: f"no right to look at {name}" for name in self.hidden - set(listed)}


@pytest.fixture
def store() -> Hiding:
    """Return a store that hides nothing yet."""
    return Hiding()


def test_a_table_that_nobody_may_look_at_keeps_the_entries(store: Hiding) -> None:
    """A client of Omid's has died behind its commit there: its entry is all that tells of it."""
    world = World(store)
    world.table()
    world.table("java", families=(), plain_families=(b"cf",), owner=None)
    world.put(b"a", 100, table="java")
    world.enter(100, 150)
    store.hidden.add("java")
    for options in (replace(ALL_AT_ONCE, is_dry_run=True), ALL_AT_ONCE):
        report = world.compact(options)
        (laggard,) = report.laggards
        assert laggard.table == "java"
        assert "no right to look at java" in laggard.reason
        assert (report.entries_pruned, report.horizon) == (0, 0)
        assert world.entries() == {100: 150}
    store.hidden.clear()
    assert "row b'a' holds the cell" in world.compact().laggards[0].reason


def test_it_is_listed_with_what_to_do(store: Hiding) -> None:
    """Its families are not known."""
    World(store).table("java", owner=None)
    store.hidden.add("java")
    (found,) = [one for one in survey(store, COMMIT_TABLE) if one.name == "java"]
    assert (found.standing, found.is_hidden) == (Standing.BLOCKING, True)
    assert "grant him create or admin on java" in found.reason
    (told, _) = checks._check_ownership(store, {}, is_sound=True)
    assert told.detail.startswith("java is not known: this user may not look at it")


@pytest.mark.parametrize(
    ("tables", "count"), [(None, 1), (frozenset({"hidden"}), 1), (frozenset({"t"}), 0)]
)
def test_a_check_names_what_it_was_not_shown(
    store: Hiding, tables: frozenset[str] | None, count: int
) -> None:
    """It found nothing wrong with a store of which it had not seen a table of ours."""
    world = World(store)
    world.table()
    world.table("hidden")
    store.hidden.add("hidden")
    report = Check(store, CheckOptions(settle_s=0, tables=tables), sleep=lambda _: None).run()
    assert report.counts.get(Kind.UNREADABLE, 0) == report.left == count
    for finding in report.findings:
        assert finding.table == "hidden"
        assert "grant him create or admin on hidden" in finding.detail


def test_a_look_at_a_transaction_names_the_tables_that_it_was_not_shown(store: Hiding) -> None:
    """Nothing was left of it, as it said, while its cells were there."""
    world = World(store)
    world.table()
    world.put(b"a", 100)
    assert inspect(store, 100).unseen == ()
    store.hidden.add("t")
    found = inspect(store, 100)
    assert (found.cell_count, found.unseen) == (0, ("t",))
    assert as_document(found, now_ms=0)["unseen"] == ["t"]
    assert "unseen" not in as_document(inspect(store, 100, tables=[]), now_ms=0)


@pytest.mark.parametrize("table", [COMMIT_TABLE, "t"])
def test_a_run_does_not_call_a_table_absent_that_it_may_not_see(store: Hiding, table: str) -> None:
    """Its user was told to run `omidpy init`, or that there is no such table."""
    world = World(store)
    world.table()
    store.hidden.add(table)
    with pytest.raises(StorageError, match=f"no right to look at {table}"):
        world.compact(replace(ALL_AT_ONCE, tables=frozenset({"t"})))


@pytest.mark.parametrize("option", ["tables", "exclude"])
def test_a_second_name_of_a_table_is_no_table_to_a_run(option: str) -> None:
    """HBase finds `default:t`, and no list has it: such a run left `t` out, or in, unnoticed."""

    class TwoNames(Hiding):
        """A store that knows the default namespace."""

        def schema(self, table: str) -> TableSchema:
            return super().schema(table.removeprefix("default:"))

    world = World(TwoNames())
    world.table()
    options: dict[str, Any] = {option: frozenset({"default:t"})}
    with pytest.raises(UsageError, match="there is no table default:t"):
        world.compact(replace(ALL_AT_ONCE, **options))


class Closing(Hiding):
    """A store whose tables are closed."""

    def closed_tables(self, tables: Sequence[str]) -> dict[str, str]:
        """Say so of one of ours, and of another one."""
        return {name: "disabled" for name in tables if name in ("t", "java")}


def test_a_table_of_ours_that_is_closed_is_a_failure() -> None:
    """Every transaction that comes to it fails, and nothing was said of it."""
    store = Closing()
    world = World(store)
    world.table()
    world.table("java", owner=None)
    found = list(checks._check_tables(store, {one.name: one for one in store.tables()}))
    (closed,) = (one for one in found if one.health is Health.FAILED)
    assert closed.detail == (
        "t is disabled: who reads or writes it fails, and no compaction forgets what its cells may "
        "need; enable it in the HBase shell: enable 't'"
    )


def test_who_must_read_all_tables_is_refused(store: Hiding) -> None:
    """An oracle that makes sure of its first timestamp, and a repair of what an oracle has lost."""
    World(store).table("java", owner=None)
    assert "java" in [one.name for one in all_tables(store)]
    store.hidden.add("java")
    with pytest.raises(StorageError, match="'java' may hold what all tables are read for"):
        all_tables(store)


def test_a_store_whose_tables_are_hidden_is_not_said_to_lack_them(store: Hiding) -> None:
    """Who only reads was told to run `omidpy init`."""
    World(store)
    store.hidden.add(COMMIT_TABLE)
    with pytest.raises(StorageError, match="no right to look at OMID_COMMIT_TABLE"):
        missing_tables(store)


def test_only_a_refusal_hides_a_table() -> None:
    """One that is being made has a state before it is listed."""

    def look(name: str) -> None:
        if name == "made":
            raise NoSuchTable(name)
        if name == "hidden":
            raise StorageError("no right")

    names = [b"gone", b"hbase:acl", b"hidden", b"listed", b"made", b"ns:new"]
    pages = [[[Cell(name, *states.STATE, 1, b"")] for name in names]]
    assert states.hidden(pages, {"listed"}, look) == {"hidden": "no right"}

    def fails(name: str) -> None:
        raise StorageUnavailable(name)

    with pytest.raises(StorageUnavailable):
        states.hidden(pages, {"listed"}, fails)


def test_who_may_make_no_tables_sets_up_what_is_there(store: Hiding) -> None:
    """HBase looks at rights first; an oracle whose user may only use the tables did not start."""
    create_system_tables(store)
    refusal = StorageError("no right to make tables")
    with patch.object(Hiding, "create_table", side_effect=refusal):
        create_system_tables(store)
        store.drop_table(COMMIT_TABLE)
        with pytest.raises(StorageError, match="no right to make tables"):
            create_system_tables(store)
