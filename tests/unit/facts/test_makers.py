"""An incarnation of a table is made once, however many executors of one operation try.

Where a table is made in one with the row that says so, nobody comes too late; on HBase who does
makes a ghost.  Its store is played by one that changes rows one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from compactor.tables.adoption import adopt, plan_adoption
from omidpy import admin
from omidpy.admin.table_steps import (
    Fence,
    Make,
    PlanCreation,
    PlanRemoval,
    Renewal,
    give_up_making,
)
from omidpy.base.tables import INCARNATION_ATTRIBUTE, incarnation, maker
from omidpy.errors import CorruptCell, FateError, NoSuchTable, StorageUnavailable, TableExists
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.tables.makers import MADE_PREFIX, Makers
from omidpy.fate import Fate
from omidpy.fate.admin import Admin, Outcome
from omidpy.fate.locks import Locks
from omidpy.fate.operation import Operation, Status
from omidpy.fate.step import Again, Done, encode_step
from omidpy.fate.table.store import TableFateStore
from omidpy.manager import TransactionManager
from omidpy.model import TableSchema
from omidpy.reports.health.checks import check_ghosts
from omidpy.storage.base import Capabilities, Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.basics import an_operation
from omidpy.testing.faults import FaultyStore, Point, on
from tests.machines.clients import Client
from tests.machines.like_thrift2 import LikeThrift2

TABLE: Final = "accounts"
STORES: Final = pytest.mark.parametrize("make_store", [MemoryStore, LikeThrift2])


class World:
    """A store, its clients, and an operation that is about to make a table."""

    def __init__(self, make_store: Callable[[], Store] = LikeThrift2) -> None:
        self.store = make_store()
        self.client = Client(self.store, table=None)
        self.tm = self.client.tm
        new = self.tm.session.catalog.plan(TABLE, ["cf"], [b"m"])
        self.schema = new.schema
        self.renewal = Renewal(new.schema, new.splits, is_first=True)

    def tools(self, store: Store | None = None) -> admin.TableTools:
        """Return what an executor's steps get, with a store of its own."""
        operations = TableFateStore(self.store)
        return admin.TableTools(store or self.store, self.client.oracle, Locks(operations))

    def make(self, renewal: Renewal | None = None, store: Store | None = None) -> Any:
        """Let an executor do the step that makes the table."""
        return Make(TABLE, renewal or self.renewal).do(self.tools(store))

    def make_late(self, meanwhile: Callable[[], object], renewal: Renewal | None = None) -> Any:
        """Let an executor do it that is stopped right before, while something happens."""
        has_stopped = False

        def stop(point: Point) -> None:
            nonlocal has_stopped
            if point.name == "create_table.before" and not has_stopped:
                has_stopped = True
                meanwhile()

        answer = self.make(renewal, FaultyStore(self.store, stop))
        assert has_stopped
        return answer

    def make_and_drop(self) -> None:
        """Let another executor make the table, and a client drop it."""
        assert self.make() == Done({"table": TABLE})
        self.tm.drop_table(TABLE)

    def leave_a_ghost(self) -> None:
        """Let somebody make the table too late."""
        assert self.make_late(self.make_and_drop) == GONE
        assert self.there() == [TABLE]

    def there(self) -> list[str]:
        """Return of the users' tables what is in the store, whoever it is there for."""
        return [one.name for one in self.store.tables() if one.name == TABLE]

    def put(self, row: bytes) -> None:
        """Commit a row."""
        with self.tm.begin() as tx:
            tx.table(TABLE).put(row, {b"cf:q": b"1"})

    def rows(self, tm: TransactionManager | None = None) -> list[bytes]:
        """Return the rows that a client sees."""
        with (tm or self.tm).begin(read_only=True) as tx:
            return [row for row, _ in tx.table(TABLE).scan()]

    def write_as_java(self) -> None:
        """Write to the table as a client does that knows no makers."""
        start_ts = self.client.oracle.begin().start_ts
        put = Put(b"cf", b"q", start_ts, b"java")
        self.store.write({TABLE: [RowMutation(b"java", (put,))]})


def has_another_name(answer: object, renewal: Renewal) -> bool:
    """Say whether an executor wants to make another incarnation, once that is written down."""
    assert isinstance(answer, Again)
    assert isinstance(answer.step, Make)
    assert answer.step.renewal.is_first == renewal.is_first
    return incarnation(answer.step.renewal.schema) != incarnation(renewal.schema)


GONE: Final = Done({"table": TABLE, "is_gone_since": True})


@STORES
def test_who_comes_too_late_makes_no_table_that_anybody_sees(
    make_store: Callable[[], Store],
) -> None:
    """His successor has made it, somebody has dropped it, and nobody asked for another one."""
    world = World(make_store)
    assert world.make_late(world.make_and_drop) == GONE
    assert world.tm.tables() == []
    with pytest.raises(NoSuchTable, match=TABLE), world.tm.begin() as tx:
        tx.table(TABLE)
    with pytest.raises(NoSuchTable):
        world.tm.drop_table(TABLE)
    with pytest.raises(NoSuchTable):
        admin.drop_table(world.tm, TABLE)
    with pytest.raises(NoSuchTable):
        PlanRemoval(TABLE, (incarnation(world.schema),)).do(world.tools())


@STORES
@pytest.mark.parametrize("calls", ["the client's", "an operation's"])
def test_the_next_table_of_the_name_takes_its_place(
    make_store: Callable[[], Store], calls: str
) -> None:
    """Whatever is in the store by that name is in nobody's way."""
    world = World(make_store)
    assert world.make_late(world.make_and_drop) == GONE
    if calls == "the client's":
        world.tm.create_table(TABLE, ["cf", "more"])
    else:
        admin.create_table(world.tm, TABLE, ["cf", "more"])
    world.put(b"r")
    assert world.rows() == [b"r"]
    assert world.store.schema(TABLE).family_names() == [b"cf", b"more"]
    assert world.tm.tables() == [TABLE]


@STORES
def test_who_comes_too_late_leaves_another_table_alone(make_store: Callable[[], Store]) -> None:
    """It is there, and written to, when he goes on."""
    world = World(make_store)

    def make_another() -> None:
        world.make_and_drop()
        world.tm.create_table(TABLE, ["cf"])
        world.put(b"r")

    assert world.make_late(make_another) == GONE
    assert world.rows() == [b"r"]


@STORES
@pytest.mark.parametrize("is_first", [True, False])
def test_what_an_operation_gave_up_is_made_by_nobody(
    make_store: Callable[[], Store], *, is_first: bool
) -> None:
    """It ended because another's table had the name, and that one was dropped by then."""
    world = World(make_store)
    renewal = world.renewal._replace(is_first=is_first)
    made = Done({"table": TABLE, "is_made_by_another": True})

    def give_up() -> None:
        world.tm.create_table(TABLE, ["his"])
        if is_first:
            with pytest.raises(TableExists, match=TABLE):
                world.make(renewal)
        else:
            assert world.make(renewal) == made
        world.tm.drop_table(TABLE)

    assert has_another_name(world.make_late(give_up, renewal), renewal)
    assert world.tm.tables() == []
    world.tm.create_table(TABLE, ["cf"])


@STORES
def test_what_an_operation_undid_is_made_by_nobody(make_store: Callable[[], Store]) -> None:
    """An operator let it fail while an executor was stopped right before the call."""
    world = World(make_store)

    def fail() -> None:
        with pytest.raises(FateError, match="no store"):
            Make(TABLE, world.renewal).undo(None, None)  # type: ignore[arg-type]  # it asks nobody
        Make(TABLE, world.renewal).undo(None, world.tools())  # type: ignore[arg-type]  # as above

    assert has_another_name(world.make_late(fail), world.renewal)
    assert world.tm.tables() == []


@STORES
def test_what_a_deleted_operation_would_make_is_made_by_nobody(
    make_store: Callable[[], Store],
) -> None:
    """An operator deleted it while its executor was stopped right before the call."""
    world = World(make_store)
    fates = TableFateStore(world.store)
    operation = at_make(world)
    assert fates.insert(operation)

    def delete() -> None:
        give_up = partial(give_up_making, world.store)
        assert Admin(fates, before_delete=give_up).delete(operation.id).outcome is Outcome.DONE

    assert has_another_name(world.make_late(delete), world.renewal)
    assert fates.read(operation.id) is None
    assert world.tm.tables() == []
    world.tm.create_table(TABLE, ["cf"])


@STORES
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_late", [False, True])
def test_an_operation_whose_deleter_died_makes_its_table_all_the_same(
    make_store: Callable[[], Store], *, is_first: bool, is_late: bool
) -> None:
    """The deleter had taken the right to make it; a truncation said that another had made it."""
    world = World(make_store)
    fates = TableFateStore(world.store)
    operation = at_make(world, world.renewal._replace(is_first=is_first))
    assert fates.insert(operation)

    def die(held: Operation) -> None:
        give_up_making(world.store, held)
        raise KeyboardInterrupt

    def delete() -> None:
        with pytest.raises(KeyboardInterrupt):
            Admin(fates, before_delete=die).delete(operation.id)

    if is_late:  # on HBase there is a ghost of it then
        assert has_another_name(world.make_late(delete), world.renewal)
    else:
        delete()
    fate = Fate(world.tools(), fates, {"general": 1})
    while not fates.existing(operation.id).is_finished:
        fate.run_pending()
    assert fates.existing(operation.id).result == {"table": TABLE}
    assert world.tm.tables() == [TABLE]
    world.put(b"r")
    assert world.rows() == [b"r"]


@STORES
def test_an_operation_whose_right_cannot_be_taken_is_not_deleted(
    make_store: Callable[[], Store],
) -> None:
    """Else nobody would know of it when the executor goes on."""
    world = World(make_store)
    fates = TableFateStore(world.store)
    operation = at_make(world)
    assert fates.insert(operation)
    dies = on("check_and_mutate.before", StorageUnavailable("gone"))
    give_up = partial(give_up_making, FaultyStore(world.store, dies))
    with pytest.raises(StorageUnavailable):
        Admin(fates, before_delete=give_up).delete(operation.id)
    assert fates.existing(operation.id).status is Status.IN_PROGRESS


def test_a_table_that_a_deleted_operation_has_made_stays() -> None:
    """Its executor died behind the call, before the table counted: it is no ghost."""
    world = World()
    dies = on("check_and_mutate.before", StorageUnavailable("dead"), nth=1)
    with pytest.raises(StorageUnavailable):
        world.make(store=FaultyStore(world.store, dies))
    operation = at_make(world)
    give_up_making(world.store, operation)
    assert world.tm.tables() == [TABLE]
    world.put(b"r")
    assert world.rows() == [b"r"]


@STORES
def test_who_gives_up_too_late_changes_nothing(make_store: Callable[[], Store]) -> None:
    """He found another's table; that is gone, his successor made this one, and it is written to."""
    world = World(make_store)
    tm = world.tm
    tm.create_table(TABLE, ["his"])
    has_looked = False

    def stop(point: Point) -> None:
        nonlocal has_looked
        if point.name == "schema.after" and not has_looked:
            has_looked = True
            tm.drop_table(TABLE)
            assert world.make() == Done({"table": TABLE})
            world.put(b"r")

    assert world.make(store=FaultyStore(world.store, stop)) == GONE
    assert has_looked
    assert world.rows() == [b"r"]


def test_a_table_whose_maker_died_is_there_for_whoever_opens_it() -> None:
    """From then on no other try counts, so that what he writes stays."""
    world = World()
    dies = on("check_and_mutate.before", StorageUnavailable("dead"), nth=1)
    with pytest.raises(StorageUnavailable):
        world.make(store=FaultyStore(world.store, dies))
    assert world.tm.tables() == [TABLE]
    world.put(b"r")
    assert world.make() == Done({"table": TABLE}), "his successor finds it"
    assert world.rows() == [b"r"]
    assert not Makers(world.store).give_up(incarnation(world.schema))


@pytest.mark.parametrize("calls", ["the client's", "an operation's"])
def test_a_table_that_was_dropped_before_its_operation_ended_is_not_made_again(calls: str) -> None:
    """Its maker died behind the call, and somebody saw it and dropped it."""
    world = World()
    dies = on("check_and_mutate.before", StorageUnavailable("dead"), nth=1)
    with pytest.raises(StorageUnavailable):
        world.make(store=FaultyStore(world.store, dies))
    if calls == "the client's":
        world.tm.drop_table(TABLE)
    else:
        admin.drop_table(world.tm, TABLE)
    assert world.make() == GONE
    assert world.there() == []


def test_a_ghost_that_was_written_to_is_kept_until_somebody_adopts_it() -> None:
    """Clients of Omid's know of no makers, and what they committed must not go."""
    world = World()
    world.leave_a_ghost()
    (finding,) = check_ghosts(world.store, {TABLE: world.store.schema(TABLE)})
    assert str(finding.health) == "ok"
    world.write_as_java()
    with pytest.raises(TableExists, match="table adopt accounts --apply"):
        world.tm.create_table(TABLE, ["cf"])
    new = world.tm.session.catalog.plan(TABLE, ["cf"], [])
    with pytest.raises(TableExists, match="table adopt accounts --apply"):
        world.make(Renewal(new.schema, is_first=True))
    (finding,) = check_ghosts(world.store, {TABLE: world.store.schema(TABLE)})
    assert str(finding.health) == "warning"
    assert "table adopt accounts --apply" in finding.detail
    adopt(world.store, plan_adoption(world.store, TABLE, COMMIT_TABLE), COMMIT_TABLE)
    assert world.tm.tables() == [TABLE]
    assert maker(world.store.schema(TABLE)) == ""
    world.put(b"r")
    assert b"r" in world.rows()


def test_a_ghost_is_passed_over_where_a_creation_is_planned() -> None:
    """And nobody is told that the name is taken."""
    world = World()
    world.leave_a_ghost()
    new = world.tm.session.catalog.plan(TABLE, ["cf"], [])
    renewal = Renewal(new.schema, is_first=True)
    assert isinstance(PlanCreation(TABLE, renewal).do(world.tools()), Fence)


def test_a_table_that_was_restored_is_what_it_was() -> None:
    """A copy from a snapshot has the maker that made it, whenever it comes back."""
    world = World()
    world.make()
    was = world.store.schema(TABLE)
    world.tm.drop_table(TABLE)
    world.store.create_table(was)
    world.put(b"r")
    assert world.rows() == [b"r"]


def test_a_table_restored_in_the_place_of_a_ghost_is_left_alone() -> None:
    """It has the ghost's incarnation, and comes while somebody is about to remove that."""
    world = World()
    was: list[TableSchema] = []

    def make_and_drop() -> None:
        world.make()
        was.append(world.store.schema(TABLE))
        world.tm.drop_table(TABLE)

    world.make_late(make_and_drop)
    ghost = world.store.schema(TABLE)

    def restore(point: Point) -> None:
        if point.name == "find_cell.after":
            world.store.drop_table(TABLE)
            world.store.create_table(was[0])
            world.put(b"r")

    Makers(FaultyStore(world.store, restore)).remove_ghost(ghost)
    assert world.rows() == [b"r"]


def test_a_table_that_has_taken_a_ghosts_place_is_not_called_one() -> None:
    """Who stood still would tell an operator to drop what clients have written to."""
    world = World()
    world.leave_a_ghost()
    ghost = world.store.schema(TABLE)
    is_done = False

    def take_its_place(point: Point) -> None:
        nonlocal is_done
        if point.name == "find_cell.before" and not is_done:
            is_done = True
            world.tm.create_table(TABLE, ["cf"])
            world.put(b"r")

    slow = FaultyStore(world.store, take_its_place)
    Makers(slow).remove_ghost(ghost)
    assert is_done
    assert world.rows() == [b"r"]
    other = World()
    other.leave_a_ghost()
    ghost = other.store.schema(TABLE)
    world, is_done = other, False
    (finding,) = check_ghosts(FaultyStore(other.store, take_its_place), {TABLE: ghost})
    assert str(finding.health) == "ok"


def test_a_truncated_table_has_a_maker_of_its_own() -> None:
    """Not that of the table whose attributes it takes over."""
    world = World()
    admin.create_table(world.tm, TABLE, ["cf"])
    before = world.store.schema(TABLE)
    admin.truncate_table(world.tm, TABLE)
    after = world.store.schema(TABLE)
    assert maker(before) != maker(after) != ""
    world.put(b"r")
    assert world.rows() == [b"r"]


@STORES
def test_whose_table_it_is_is_read_once(make_store: Callable[[], Store]) -> None:
    """A row that is set never changes; on one file nobody asks at all."""
    world = World(make_store)
    world.make()
    store = FaultyStore(world.store)
    makers = Makers(store)
    schema = world.store.schema(TABLE)
    for _ in range(3):
        assert makers.settle(schema)
        assert makers.ghosts([schema]) == frozenset()
    assert store.calls["get"] == (make_store is LikeThrift2)
    assert store.calls["check_and_mutate"] == 0


def at_make(world: World, renewal: Renewal | None = None) -> Operation:
    """Return the world's operation, at the step that makes its table."""
    stack = (encode_step(Make(TABLE, renewal or world.renewal)),)
    return an_operation(status=Status.IN_PROGRESS, stack=stack)


@pytest.mark.parametrize("garbled", [b"", b"x", b"-" * 32, bytes(32)])
def test_a_table_whose_maker_cannot_be_read_is_no_ghost(garbled: bytes) -> None:
    """It went from the lists, and the next creation of its name removed it where it was empty."""
    world = World()
    world.make()
    world.put(b"r")
    row = MADE_PREFIX + incarnation(world.schema).encode()
    world.tm.session.control.write(row, garbled)
    tm = TransactionManager(world.store, world.client.oracle, clock=world.client.clock)
    with pytest.raises(CorruptCell, match=r"made/.*table adopt accounts --apply"):
        world.rows(tm)
    assert tm.tables() == [TABLE]
    with pytest.raises(TableExists):
        tm.create_table(TABLE, ["cf"])
    adopt(world.store, plan_adoption(world.store, TABLE, COMMIT_TABLE), COMMIT_TABLE)
    assert world.rows(tm) == [b"r"]


class LikeThrift1(LikeThrift2):
    """Checks no change."""

    @property
    def capabilities(self) -> Capabilities:
        """What is left."""
        return replace(super().capabilities, checked_changes=False)


def test_a_gateway_that_checks_no_change_waits_for_those_that_do() -> None:
    """What it wrote before somebody else's table counts would be gone."""
    world = World()
    dies = on("check_and_mutate.before", StorageUnavailable("dead"), nth=1)
    with pytest.raises(StorageUnavailable):
        world.make(store=FaultyStore(world.store, dies))
    weak = LikeThrift1()
    weak._tables = world.store._tables  # type: ignore[attr-defined]  # two gateways of one HBase
    weak_tm = TransactionManager(weak, world.client.oracle, clock=world.client.clock)
    with pytest.raises(NoSuchTable, match="is being made"), weak_tm.begin() as tx:
        tx.table(TABLE)
    world.put(b"r")
    assert world.rows(weak_tm) == [b"r"]


def test_a_table_without_a_maker_is_there_for_everybody() -> None:
    """It is Java's, or of an earlier version, or a client made it by a call of its own."""
    world = World()
    world.make()
    world.store.set_table_attributes(TABLE, {INCARNATION_ATTRIBUTE: "other", "OMIDPY_MAKER": None})
    assert world.rows() == []
    assert Makers(world.store).ghosts([*world.store.tables(), TableSchema("x", [])]) == frozenset()
