"""A table goes: nobody is told committed of whom a part went with it, whatever is made behind it.

A creator sets its fence while there is no table of the name, and stands still.  Another client
makes the table, a transaction writes a part of what it has to write, the table is removed, and the
creator goes on: the rest must not be committed into its table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from compactor.tables.adoption import adopt, plan_adoption
from omidpy import admin
from omidpy.admin.tables import check_unchanged
from omidpy.base.cells import table_id
from omidpy.base.tables import CONTROL_TABLE, INCARNATION_ATTRIBUTE, incarnation
from omidpy.errors import (
    ConfigError,
    Fenced,
    NoSuchTable,
    OracleUnavailable,
    StorageUnavailable,
    UsageError,
    WriteConflict,
)
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.control import ControlTable
from omidpy.facts.tables import removal
from omidpy.facts.tables.catalog import CLOSED_PREFIX
from omidpy.facts.tables.removal import close, remove_closed
from omidpy.facts.tables.removed import note_removal
from omidpy.fate import Fate, Locks, TableFateStore
from omidpy.manager import TransactionManager
from omidpy.model import TableId, Timestamp
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite.store import SqliteStore
from omidpy.testing.faults import FaultyStore, Plan, Point, on
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.restoring import RestoringStore

Verb = Callable[[TransactionManager], object]


def make(tm: TransactionManager) -> None:
    """Make the table by a call of one's own."""
    tm.create_table(TABLE, ["cf"])


def drop(tm: TransactionManager) -> None:
    """Remove it by a call of one's own."""
    tm.drop_table(TABLE)


def empty_and_drop(tm: TransactionManager) -> None:
    """Empty it, and remove what is empty: the name is free again."""
    admin.truncate_table(tm, TABLE)
    drop(tm)


MAKERS: Final[dict[str, Verb]] = {
    "tm": make,
    "admin": lambda tm: admin.create_table(tm, TABLE, ["cf"]),
}
REMOVERS: Final[dict[str, Verb]] = {
    "tm": drop,
    "admin": lambda tm: admin.drop_table(tm, TABLE),
    "truncation": empty_and_drop,
}


@pytest.fixture(params=["memory", "sqlite", "hbase"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """One of each kind."""
    kinds: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(str(tmp_path / "s.db")),
        "hbase": LikeThrift2,
    }
    made = kinds[request.param]()
    yield made
    if isinstance(made, SqliteStore):
        made.close()


def manager(client: Client, *plans: Plan, level: str = "cell") -> TransactionManager:
    """Return a client of its own, to whose calls of the store something happens."""
    return TransactionManager(
        FaultyStore(client.store, *plans),
        client.oracle,
        conflict_level=level,
        post_commit="sync",
        clock=client.clock,
    )


def once(name: str, act: Callable[[], object]) -> Plan:
    """Return what happens before the first call of that name that is about the table."""
    done: list[str] = []

    def plan(point: Point) -> None:
        if point.name == name and TABLE in point.tables and not done:
            done.append(name)
            act()

    return plan


def closings(client: Client) -> list[bytes]:
    """Return the rows of those who remove a table."""
    return [row for row, _ in ControlTable(client.store).scan(CLOSED_PREFIX)]


@pytest.mark.parametrize(
    ("maker", "remover"),
    # Operations on one table wait for one another.
    [("tm", "tm"), ("tm", "admin"), ("tm", "truncation"), ("admin", "tm")],
)
def test_who_wrote_the_old_table_does_not_commit_into_the_next(
    store: Store, maker: str, remover: str
) -> None:
    """Its creator has set its fence before the transaction began."""
    client = Client(store, table=None)
    begun = []

    def meanwhile() -> None:
        make(client.tm)
        tx = client.tm.begin()
        tx.table(TABLE).put(b"sent", {b"cf:q": b"1"})
        tx.flush()
        tx.table(TABLE).put(b"kept", {b"cf:q": b"2"})
        REMOVERS[remover](client.tm)
        begun.append(tx)

    MAKERS[maker](manager(client, once("create_table.before", meanwhile)))
    with pytest.raises(Fenced):
        begun[0].commit()
    with client.tm.begin(read_only=True) as after:
        assert dict(after.table(TABLE).scan()) == {}
    assert closings(client) == []


def check_by_row(tx: Transaction, by_row: TransactionManager) -> None:
    """Check that another cell of a row conflicts, as the table has it that is there."""
    tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
    with by_row.begin() as other:
        other.table(TABLE).put(b"r", {b"cf:other": b"2"})
    with pytest.raises(WriteConflict):
        tx.commit()


def test_the_next_table_is_not_written_by_the_level_of_the_old_one(store: Store) -> None:
    """One that begins behind the fence of the removal would go by what it reads before the end."""
    client = Client(store, table=None)
    by_row = manager(client, level="row")
    begun = []

    def write() -> None:
        tx = client.tm.begin()
        with pytest.raises(
            ConfigError, match=f"being dropped.*table adopt {TABLE} --reopen --apply"
        ):
            tx.table(TABLE)
        begun.append(tx)

    def meanwhile() -> None:
        make(client.tm)
        drop(manager(client, once("drop_table.before", write)))

    stalled = manager(client, once("create_table.before", meanwhile), level="row")
    make(stalled)
    check_by_row(begun[0], by_row)


def test_the_next_table_is_not_written_by_what_was_read_of_the_old_one(store: Store) -> None:
    """Who writes stood still behind his look at it; what had closed it was gone when he went on."""
    client = Client(store, table=None)
    by_row = manager(client, level="row")
    begun = []

    def meanwhile() -> None:
        make(client.tm)
        schema = store.schema(TABLE)
        close(store, schema, "mark")
        fence_ts = client.oracle.fence(table_id(TABLE))

        def remove() -> None:
            remove_closed(store, schema, at_ts=fence_ts)

        slow = manager(client, on("scan.before", remove, nth=1, table=CONTROL_TABLE))
        tx = slow.begin()
        with contextlib.suppress(NoSuchTable):
            tx.table(TABLE)
        begun.append(tx)

    make(manager(client, once("create_table.before", meanwhile), level="row"))
    check_by_row(begun[0], by_row)


def test_a_copy_that_came_back_while_who_removes_stood_still_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the incarnation of its table; behind the look whether that is closed it was lost."""
    store = RestoringStore()
    client = Client(store, table=None)
    make(client.tm)
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
    copy, schema = store.snapshot(TABLE), store.schema(TABLE)
    close(store, schema, "mark")
    fence_ts = client.oracle.fence(table_id(TABLE))
    note = note_removal

    def stand_still(*noted: Any) -> None:
        note(*noted)
        monkeypatch.setattr(removal, "note_removal", note)
        assert remove_closed(store, schema, at_ts=fence_ts)
        store.restore(TABLE, copy)

    monkeypatch.setattr(removal, "note_removal", stand_still)
    assert not remove_closed(store, schema, at_ts=fence_ts)
    with manager(client).begin(read_only=True) as tx:
        assert tx.table(TABLE).row(b"r") == {b"cf:q": b"1"}


def left_closed(client: Client) -> None:
    """Let a client die right before it removes the table."""

    def die() -> None:
        raise StorageUnavailable("the client is gone")

    with pytest.raises(StorageUnavailable):
        drop(manager(client, once("drop_table.before", die)))


def test_a_table_that_an_interrupted_drop_has_closed_can_be_dropped(store: Store) -> None:
    """It is read until then, and not written."""
    client = Client(store)
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
    left_closed(client)
    with client.tm.begin(read_only=True) as tx:
        assert tx.table(TABLE).row(b"r") == {b"cf:q": b"1"}
    with client.tm.begin() as tx, pytest.raises(ConfigError, match="being dropped"):
        tx.table(TABLE)
    drop(client.tm)
    make(client.tm)
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
    assert closings(client) == []


def test_a_table_that_is_adopted_again_is_open_and_stays(store: Store) -> None:
    """Who was about to remove it, and goes on, finds another incarnation."""
    client = Client(store)

    def keep() -> None:
        with client.tm.begin() as tx, pytest.raises(ConfigError, match="being dropped"):
            tx.table(TABLE)
        adopt(store, plan_adoption(store, TABLE, COMMIT_TABLE), COMMIT_TABLE)
        with client.tm.begin() as tx, pytest.raises(ConfigError, match="being dropped"):
            tx.table(TABLE)
        adopt(store, plan_adoption(store, TABLE, COMMIT_TABLE), COMMIT_TABLE, reopens=True)
        with client.tm.begin() as tx:
            tx.table(TABLE).put(b"r", {b"cf:q": b"1"})

    with pytest.raises(NoSuchTable, match="removed or adopted by somebody else"):
        drop(manager(client, once("drop_table.before", keep)))
    with client.tm.begin(read_only=True) as tx:
        assert tx.table(TABLE).row(b"r") == {b"cf:q": b"1"}


def test_a_table_that_an_operation_drops_is_not_kept(store: Store) -> None:
    """It would say that it has dropped what is there."""
    client = Client(store)

    operations = TableFateStore(store)
    tools = admin.TableTools(store, client.oracle, Locks(operations))
    fate = Fate(tools, operations, {"TABLE_DROP": 1}, clock=client.clock)
    kind, step, key = admin.removal(client.tm, TABLE)
    fate.submit(kind, step, key=key)
    with pytest.raises(UsageError, match=r"\(TABLE_DROP\) changes table 't'.*fate cancel"):
        check_unchanged(store, TABLE)
    check_unchanged(store, "another")


def test_who_gives_up_opens_the_table_for_himself_alone(store: Store) -> None:
    """Another one removes it, too, and has set a fence behind what it has closed."""
    client = Client(store)

    class Deaf:
        """An oracle that answers no fence."""

        def __getattr__(self, name: str) -> object:
            return getattr(client.oracle, name)

        def fence(self, table_id: TableId) -> Timestamp:
            del table_id
            raise OracleUnavailable("deaf", retryable=False)

    deaf: TransactionManager = TransactionManager(client.store, Deaf(), clock=client.clock)  # type: ignore[arg-type]  # it passes on what it lacks

    def give_up() -> None:
        with pytest.raises(OracleUnavailable):
            drop(deaf)
        with client.tm.begin() as tx, pytest.raises(ConfigError, match="being dropped"):
            tx.table(TABLE)

    drop(manager(client, once("drop_table.before", give_up)))
    make(client.tm)
    with pytest.raises(OracleUnavailable):
        drop(deaf)
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
    assert closings(client) == []


def test_an_interrupted_drop_takes_back_what_it_can(store: Store) -> None:
    """Ctrl-C while the oracle is asked: the table is not removed, and so stays open."""
    client = Client(store)

    def interrupt(name: str) -> None:
        if name == "fence":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.oracle, "_ask", interrupt)
        with pytest.raises(KeyboardInterrupt):
            drop(client.tm)
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"r", {b"cf:q": b"1"})


def test_a_table_without_an_incarnation_is_closed_by_its_name(store: Store) -> None:
    """Tables of earlier versions have none; the next of the name, which has one, is not closed."""
    client = Client(store)
    store.set_table_attributes(TABLE, {INCARNATION_ATTRIBUTE: None})
    left_closed(client)
    with client.tm.begin() as tx, pytest.raises(ConfigError, match="being dropped"):
        tx.table(TABLE)
    with contextlib.suppress(NoSuchTable):
        drop(client.tm)
    make(client.tm)
    assert incarnation(store.schema(TABLE))
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
    assert closings(client) == []
