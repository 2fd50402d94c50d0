"""A table of which Phoenix keeps indexes is read here, and written by Phoenix alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import omidpy
from compactor.tables.adoption import adopt, plan_adoption
from omidpy import aio
from omidpy.base.cells import table_id
from omidpy.base.tables import OMID_ENABLED
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ConfigError, Fenced, UsageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.manager import TransactionManager
from omidpy.model import FamilySchema, TableSchema
from omidpy.oracle.base import Begun
from omidpy.reports.health.checks import check_store
from omidpy.reports.health.findings import Health, IndexedFinding
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.naive_oracle import NaiveOracle
from tso.embedded import EmbeddedOracle

OMIDS: Final = {
    "coprocessor$2": "|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"
}


def make(store: Store, name: str, **attributes: str) -> None:
    """Make a table as Phoenix does, and adopt it."""
    family = FamilySchema(b"0", {OMID_ENABLED: "true"})
    store.create_table(TableSchema(name, [family], {**OMIDS, **attributes}))
    adopt(store, plan_adoption(store, name, COMMIT_TABLE), COMMIT_TABLE)


class Counting(MemoryStore):
    """Counts how often all tables are listed."""

    lists = 0

    def tables(self) -> list[TableSchema]:
        """List them."""
        self.lists += 1
        return super().tables()


@pytest.fixture
def store() -> Counting:
    """Return a store with the tables PEOPLE and OTHER, without an index."""
    store = Counting()
    EmbeddedOracle(store).close()
    make(store, "PEOPLE")
    make(store, "OTHER")
    return store


@pytest.fixture
def tm(store: Counting) -> Iterator[TransactionManager]:
    """Return a manager of it."""
    oracle = EmbeddedOracle(store)
    with TransactionManager(store, oracle, conflict_level="row", clock=ManualClock()) as tm:
        yield tm


def index(store: Store, name: str = "BY_TOWN") -> None:
    """Make an index of PEOPLE."""
    make(store, name, DATA_TABLE_NAME="PEOPLE")


WRITES: Final[dict[str, Callable[[Any], object]]] = {
    "put": lambda table: table.put(b"r", {b"0:q": b"v"}),
    "delete": lambda table: table.delete(b"r"),
    "delete a column": lambda table: table.delete(b"r", columns=[b"0:q"]),
    "batch": lambda table: table.batch().put(b"r", {b"0:q": b"v"}),
    "counter": lambda table: table.counter_inc(b"n", b"0:q"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_table_with_an_index_is_not_written(
    store: Counting, tm: TransactionManager, write: Callable[[Any], object]
) -> None:
    """Queries by index would not find it.  The transaction goes on, and reads."""
    with tm.begin() as tx:
        tx.table("PEOPLE").put(b"r", {b"0:q": b"1"})
    index(store)
    tm.fence("PEOPLE")
    with tm.begin() as tx:
        people = tx.table("PEOPLE")
        with pytest.raises(ConfigError, match=r"PEOPLE has indexes of Phoenix's \(BY_TOWN\)"):
            write(people)
        assert people.row(b"r") == {b"0:q": b"1"}
        assert [key for key, _ in people.scan()] == [b"r"]
        tx.table("OTHER").put(b"r", {b"0:q": b"v"})
    with tm.begin(read_only=True) as tx:
        assert tx.table("PEOPLE").row(b"r") == {b"0:q": b"1"}
        assert tx.table("OTHER").row(b"r") == {b"0:q": b"v"}


def test_an_index_is_not_written(store: Counting, tm: TransactionManager) -> None:
    """Its rows would point nowhere."""
    index(store)
    with (
        tm.begin() as tx,
        pytest.raises(ConfigError, match="BY_TOWN is Phoenix's index of PEOPLE"),
    ):
        tx.table("BY_TOWN").put(b"r", {b"0:q": b"v"})


def test_a_worker_writes_it_as_little(store: Counting, tm: TransactionManager) -> None:
    """In another process, or a task of Spark's."""
    index(store)
    with tm.begin() as tx:
        worker = tm.resume(tx.token())
        with pytest.raises(ConfigError, match="PEOPLE has indexes"):
            worker.table("PEOPLE").put(b"r", {b"0:q": b"v"})
        worker.table("OTHER").put(b"r", {b"0:q": b"v"})
        tx.merge(worker.finish())


def test_who_writes_the_indexes_too_writes_both(store: Counting, tm: TransactionManager) -> None:
    """And says so; who does not say so is refused in the same transaction."""
    index(store)
    store.lists = 0
    with tm.begin() as tx:
        for name in ("PEOPLE", "BY_TOWN"):
            tx.table(name, phoenix_indexes="mine").put(b"r", {b"0:q": b"v"})
        assert store.lists == 0
        with pytest.raises(ConfigError, match="BY_TOWN"):
            tx.table("PEOPLE").put(b"r", {b"0:q": b"w"})
        worker = tm.resume(tx.token())
        worker.table("PEOPLE", phoenix_indexes="mine").put(b"s", {b"0:q": b"v"})
        tx.merge(worker.finish())
    with tm.begin() as tx:
        assert [key for key, _ in tx.table("PEOPLE").scan()] == [b"r", b"s"]
        with pytest.raises(UsageError, match="phoenix_indexes='yours' is not 'mine'"):
            tx.table("PEOPLE", phoenix_indexes="yours")


def test_asyncio_hands_on_what_the_caller_says(store: Counting, tm: TransactionManager) -> None:
    """The twin writes by the same table."""
    index(store)

    async def write() -> None:
        twin = aio.TransactionManager(tm)
        try:
            async with await twin.begin() as tx:
                await tx.table("PEOPLE", phoenix_indexes="mine").put(b"r", {b"0:q": b"v"})
                with pytest.raises(ConfigError, match="BY_TOWN"):
                    await tx.table("PEOPLE").put(b"r", {b"0:q": b"w"})
        finally:
            twin.threads.close()

    asyncio.run(write())


def test_it_is_written_again_when_the_index_has_gone(
    store: Counting, tm: TransactionManager
) -> None:
    """At once: what was refused is not remembered."""
    index(store)
    with tm.begin() as tx, pytest.raises(ConfigError):
        tx.table("PEOPLE").put(b"r", {b"0:q": b"v"})
    store.drop_table("BY_TOWN")
    with tm.begin() as tx:
        tx.table("PEOPLE").put(b"r", {b"0:q": b"v"})


def test_whoever_looked_before_an_index_was_made_runs_into_its_fence(
    store: Counting, tm: TransactionManager
) -> None:
    """Phoenix sets one behind the new index, before it fills that with what is there."""
    before = tm.begin()
    before.table("PEOPLE").put(b"r", {b"0:q": b"v"})
    index(store)
    tm.fence("PEOPLE")
    with pytest.raises(Fenced):
        before.commit()
    with tm.begin() as after, pytest.raises(ConfigError):
        after.table("PEOPLE").put(b"r", {b"0:q": b"v"})


def test_a_fence_of_the_name_that_sql_has_counts(store: Counting, tm: TransactionManager) -> None:
    """With namespaces Phoenix fences S.T, and the store has S:T: the index would lack the row."""
    make(store, "S:PEOPLE")
    tm.create_table("S:ours", families=["cf"])
    before, other = tm.begin(), tm.begin()
    before.table("S:PEOPLE").put(b"r", {b"0:q": b"v"})
    other.table("S:ours").put(b"r", {b"cf:q": b"v"})
    make(store, "S:BY_TOWN", DATA_TABLE_NAME="S.PEOPLE")
    for name in ("S.PEOPLE", "S.ours"):
        tm.oracle.fence(table_id(name))
    with pytest.raises(Fenced):
        before.commit()
    other.commit()
    with tm.begin() as after, pytest.raises(ConfigError):
        after.table("S:PEOPLE").put(b"r", {b"0:q": b"v"})


def test_indexes_are_looked_for_seldom(store: Counting, tm: TransactionManager) -> None:
    """Once for a while, and never by whoever only reads, or writes tables of ours."""
    tm.create_table("ours", families=["cf"])
    tm.fence("OTHER")
    store.lists = 0
    with tm.begin() as tx:
        tx.table("PEOPLE").row(b"r")
        tx.table("ours").put(b"r", {b"cf:q": b"v"})
    assert store.lists == 0
    for number in range(3):
        with tm.begin() as tx:
            tx.table("PEOPLE").put(b"r", {b"0:q": b"%d" % number})
            tx.table("PEOPLE").put(b"s", {b"0:q": b"%d" % number})
    assert store.lists == 1
    clock = tm.session.clock
    assert isinstance(clock, ManualClock)
    clock.advance(5)
    with tm.begin() as tx:
        tx.table("PEOPLE").put(b"r", {b"0:q": b"v"})
    assert store.lists == 2


class Omids(NaiveOracle):
    """Tells of no fence."""

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Begin."""
        return super().begin(hold_s=hold_s)._replace(newest_fence=None)


def test_beside_omids_oracle_each_transaction_looks_once(store: Counting) -> None:
    """It tells of no fence, so that what another has found may be old."""
    tm = TransactionManager(store, Omids(store), conflict_level="row", clock=ManualClock())
    store.lists = 0
    for number in (1, 2):
        with tm.begin() as tx:
            people = tx.table("PEOPLE")
            people.put(b"r", {b"0:q": b"v"})
            people.delete(b"s")
        assert store.lists == number


def test_doctor_says_which_tables_are_phoenixs_to_write(tmp_path: Path) -> None:
    """To know, before a program finds out; what only Phoenix uses is none of its business."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    omidpy.connect(url).close()
    store = SqliteStore(str(tmp_path / "s.db"))
    make(store, "PEOPLE")
    make(store, "OTHER")
    family = FamilySchema(b"0", {OMID_ENABLED: "true"})
    strange = {**OMIDS, "DATA_TABLE_NAME": "FOREIGN"}
    store.create_table(TableSchema("BY_TOWN", [family], {**OMIDS, "DATA_TABLE_NAME": "PEOPLE"}))
    store.create_table(TableSchema("BY_NAME", [family], strange))
    store.close()
    (found,) = [
        one
        for one in check_store(url, None, clock=ManualClock())
        if isinstance(one, IndexedFinding)
    ]
    assert (found.table, found.health) == ("PEOPLE", Health.WARNING)
    assert "write it through Phoenix" in found.detail
