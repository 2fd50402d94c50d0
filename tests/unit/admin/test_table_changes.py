"""Tables that are made, dropped and emptied, by processes that die at any moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from compactor.tables.adoption import adopt, plan_adoption
from omidpy import admin
from omidpy.admin import table_steps
from omidpy.admin.table_steps import (
    Close,
    Fence,
    Make,
    PlanRemoval,
    PlanRemovalByName,
    Remove,
    RemoveOpen,
    Renewal,
)
from omidpy.admin.tables import CREATE, DROP, TRUNCATE
from omidpy.base.tables import (
    CHANGING,
    CONFLICT_LEVEL_ATTRIBUTE,
    INCARNATION_ATTRIBUTE,
    KEPT_ATTRIBUTE,
    incarnation,
)
from omidpy.errors import Fenced, NoSuchTable, NotTransactional, TableExists, UsageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.control import ControlTable, encode_document
from omidpy.facts.tables import removal
from omidpy.facts.tables.removed import Removals, Removed, removed_row
from omidpy.facts.watermarks import Claim
from omidpy.fate import Fate, Locks, Status, TableFateStore
from omidpy.fate.locks import Queue, decode_queue
from omidpy.fate.operation import RUNNABLE, released
from omidpy.fate.running.runner import Caller
from omidpy.fate.step import Done, decode_step, encode_step
from omidpy.model import FamilySchema, TableSchema, Timestamp
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.flaky import Flaky
from omidpy.testing.faults import FaultyStore, Plan, Point
from omidpy.tx.transaction import Transaction
from tests.machines.clients import Client
from tests.machines.like_thrift2 import LikeThrift2

TABLE: Final = "accounts"
OTHER: Final = "orders"
FAMILIES: Final = {"cf": {"compression": "GZ"}, "note": {}}
SPLITS: Final = [b"g", b"p"]
CHANGES: Final = frozenset(
    {
        "write",
        "check_and_mutate",
        "write_guarded",
        "create_table",
        "drop_table",
        "set_table_attributes",
    }
)
KINDS: Final = (CREATE, DROP, TRUNCATE)


class KilledError(BaseException):
    """The process ends."""


class Killer:
    """Lets a process die before or after its n-th change of the store; then it does nothing."""

    def __init__(self, nth: int | None, when: str) -> None:
        """Kill nobody if `nth` is None."""
        self.nth = nth
        self.when = when
        self.count = 0
        self.is_dead = False

    def __call__(self, point: Point) -> None:
        """Die, if it is time."""
        name, _, when = point.name.partition(".")
        if not self.is_dead and name in CHANGES:
            self.count += when == "before"
            self.is_dead = self.count == self.nth and when == self.when
        if self.is_dead:
            raise KilledError


class Seen(NamedTuple):
    """All of a world that a user, or the compactor, can see."""

    families: list[FamilySchema] | None
    """None: there is no table."""
    splits: list[bytes]
    level: str | None
    is_new: bool
    rows: dict[bytes, Any]
    claimed: list[str]
    locks: Queue
    has_aborted: bool
    """Whether the transaction that had written the table was refused."""


class World:
    """A store with two tables, of which one is about to change, and a transaction that wrote it."""

    def __init__(self, kind: str, make_store: Callable[[], Store] = MemoryStore) -> None:
        self.store = make_store()
        self.client = Client(self.store, table=None)
        self.tm = self.client.tm
        self.kind = kind
        self.tm.create_table(OTHER, ["cf"])
        self.tm.create_table(TABLE, FAMILIES, SPLITS)
        with self.tm.begin() as tx:
            for name in (TABLE, OTHER):
                tx.table(name).put(b"a", {b"cf:q": b"1"})
        self.old = incarnation(self.store.schema(TABLE))
        for name in (TABLE, OTHER):
            which = incarnation(self.store.schema(name))
            claim = Claim(name, b"", b"", 50, 0, (b"cf",), "run", which)
            self.tm.session.watermarks.record_claim(claim)
        self.writer: Transaction = self.tm.begin()
        self.writer.table(TABLE).put(b"b", {b"cf:q": b"2"})
        self.writer.table(OTHER).put(b"b", {b"cf:q": b"2"})
        self.writer.flush()
        if kind == CREATE:
            self.store.drop_table(TABLE)

    def change(self) -> admin.TableChange:
        """Return what is to be done."""
        if self.kind == CREATE:
            return admin.creation(self.tm, TABLE, FAMILIES, SPLITS)
        return (admin.removal if self.kind == DROP else admin.truncation)(self.tm, TABLE)

    def fate(self, *plans: Plan, caller: Caller | None = None) -> Fate:
        """Return a process of its own that can run operations."""
        store = FaultyStore(self.store, *plans)
        operations = TableFateStore(store)
        tools = admin.TableTools(store, self.client.oracle, Locks(operations))
        pools = {",".join(admin.TABLE_KINDS): 1}
        return Fate(tools, operations, pools, clock=self.client.clock, caller=caller)

    def run(self, fate: Fate) -> None:
        """Run everything to its end."""
        for _ in range(200):
            wait_s = fate.run_pending()
            # What is NEW still was kept by somebody who died before he submitted it.
            live = [one for one in fate.store.in_order() if one.status in RUNNABLE]
            if not live:
                return
            self.client.clock.advance(wait_s or 1.0)  # type: ignore[attr-defined]  # a manual one
        raise AssertionError(f"never finished: {live}")

    def seen(self) -> Seen:
        """Look, and let the transaction that wrote the table try to commit."""
        with pytest.raises(Fenced):
            self.writer.commit()
        schema = next((one for one in self.store.tables() if one.name == TABLE), None)
        rows: dict[bytes, Any] = {}
        splits: list[bytes] = []
        if schema is not None:
            with self.tm.begin() as tx:
                tx.table(TABLE).put(b"new", {b"cf:q": b"3"})
            with self.tm.begin(read_only=True) as tx:
                rows = dict(tx.table(TABLE).scan())
            splits = [region.start for region in self.store.regions(TABLE)]
        queue = TableFateStore(self.store).read_lock_queue(TABLE)
        return Seen(
            None if schema is None else list(schema.families),
            splits,
            None if schema is None else schema.attributes.get("OMIDPY_CONFLICT_LEVEL"),
            schema is None or incarnation(schema) not in ("", self.old),
            rows,
            sorted(claim.table for claim in self.tm.session.watermarks.claims()),
            Queue(0, decode_queue(queue, TABLE).entries),
            has_aborted=True,
        )


def clean(kind: str) -> Seen:
    """Return the world after a run without a fault."""
    world = World(kind)
    fate = world.fate()
    handle = fate.submit(*world.change()[:2])
    world.run(fate)
    assert handle.status is Status.SUCCESSFUL
    return world.seen()


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_leaves_what_its_name_says(kind: str) -> None:
    """An empty table with the same families, options, regions and level; or none."""
    seen = clean(kind)
    assert seen.claimed == [OTHER]
    assert seen.locks == Queue()
    assert seen.is_new
    if kind == DROP:
        assert (seen.families, seen.rows) == (None, {})
    else:
        assert seen.rows == {b"new": {b"cf:q": b"3"}}
        assert seen.splits == [b"", *SPLITS]
        assert seen.level == "cell"
        assert [one.attributes.get("COMPRESSION") for one in seen.families or ()] == ["GZ", None]


@pytest.mark.parametrize("make_store", [MemoryStore, LikeThrift2])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_that_is_killed_anywhere_is_finished_by_the_same_call(
    kind: str, when: str, make_store: Callable[[], Store]
) -> None:
    """Before or after each of its changes of the store; the world is that of a clean run."""
    expected = clean(kind)
    nth, has_died = 0, True
    while has_died:
        nth += 1
        world = World(kind, make_store)
        killer = Killer(nth, when)
        try:
            mortal = world.fate(killer)
            mortal.submit(*world.change()[:2], key=world.change().key)
            world.run(mortal)
        except KilledError:
            pass
        has_died = killer.is_dead
        successor = world.fate()
        if not any(one.is_finished for one in successor.store.in_order()):
            change = world.change()
            handle = successor.submit(change.kind, change.step, key=change.key)
            world.run(successor)
            assert handle.status is Status.SUCCESSFUL
        Locks(successor.store).release_dangling()  # as executors do now and then
        assert world.seen() == expected, f"killed {when} change {nth}"
    assert nth > 10, "it has steps to be killed at"


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_can_be_called_twice(kind: str) -> None:
    """A successor calls a step again that has done its work."""
    expected = clean(kind)
    world = World(kind)
    fate = world.fate(caller=Flaky())
    handle = fate.submit(*world.change()[:2])
    world.run(fate)
    assert handle.status is Status.SUCCESSFUL
    assert world.seen() == expected


def tools_of(world: World) -> admin.TableTools:
    """Return what steps get."""
    return admin.TableTools(world.store, world.client.oracle, Locks(TableFateStore(world.store)))


def test_whoever_was_stopped_before_a_removal_removes_no_later_table() -> None:
    """Its lease is over, the table was dropped and made anew, and only now does its call arrive."""
    world = World(TRUNCATE)
    planned = PlanRemoval(TABLE, (world.old,), "successor").do(tools_of(world))
    world.tm.drop_table(TABLE)
    world.tm.create_table(TABLE, ["cf"])
    with world.tm.begin() as tx:
        tx.table(TABLE).put(b"c", {b"cf:q": b"4"})
    assert isinstance(planned, Close)
    removing = planned.do(tools_of(world))
    assert isinstance(removing, Remove)
    removing.do(tools_of(world))
    with world.tm.begin(read_only=True) as tx:
        assert tx.table(TABLE).row(b"c") == {b"cf:q": b"4"}


def test_a_table_without_an_incarnation_gets_one_first() -> None:
    """Tables of earlier versions, and of Java, have none."""
    world = World(DROP)
    world.store.set_table_attributes(TABLE, {INCARNATION_ATTRIBUTE: None})
    changes = [world.change() for _ in range(2)]
    assert changes[0] == changes[1]
    steps = [change.step for change in changes] + [PlanRemovalByName(TABLE)]
    first, *others = [step.do(tools_of(world)) for step in steps]  # type: ignore[attr-defined]  # it is one of these
    assert isinstance(first, Close)
    assert first.incarnation
    assert [replace(one, mark=first.mark) for one in others] == [first, first]
    removing = first.do(tools_of(world))
    assert isinstance(removing, Remove)
    removing.do(tools_of(world))
    with pytest.raises(NoSuchTable):
        world.store.schema(TABLE)


@pytest.mark.parametrize("make_store", [MemoryStore, LikeThrift2])
@pytest.mark.parametrize("kind", [DROP, TRUNCATE])
@pytest.mark.parametrize("step", [Remove, RemoveOpen])
def test_a_table_that_somebody_keeps_is_not_said_to_be_gone(
    kind: str, step: type[Remove | RemoveOpen], make_store: Callable[[], Store]
) -> None:
    """An operator reopens it while the executor stands before the removal; twice, even."""
    world = World(kind, make_store)
    tools = tools_of(world)

    class Late(Caller):
        def call(self, one: Any, tx: Any, env: Any) -> Any:
            if not isinstance(one, Remove):
                return super().call(one, tx, env)
            for _ in range(2):
                closed = Close(TABLE, incarnation(world.store.schema(TABLE)), None, "another")
                closed.do(tools)
                plan = plan_adoption(world.store, TABLE, COMMIT_TABLE)
                adopt(world.store, plan, COMMIT_TABLE, reopens=True)
            removing = step(one.table, one.incarnation, one.renewal)
            return removing.do(tools)

    fate = world.fate(caller=Late())
    handle = fate.submit(*world.change()[:2])
    world.run(fate)
    assert handle.result() == {"table": TABLE, "is_kept": True}
    assert world.seen().rows[b"a"] == {b"cf:q": b"1"}
    assert Removals(world.store).behind(TABLE, Timestamp(0)) is None


@pytest.mark.parametrize("call", [admin.drop_table, admin.truncate_table])
def test_who_asked_for_a_removal_is_told_that_somebody_kept_the_table(
    call: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To say "dropped" of a table with everything in it would be believed."""
    world = World(DROP)
    remove = removal.remove_closed

    def late(store: Store, schema: TableSchema, **asked: Any) -> bool:
        plan = plan_adoption(store, TABLE, COMMIT_TABLE)
        adopt(store, plan, COMMIT_TABLE, reopens=True)
        return remove(store, schema, **asked)

    monkeypatch.setattr(table_steps, "remove_closed", late)
    with pytest.raises(NoSuchTable, match="is there with everything in it"):
        call(world.tm, TABLE)
    assert world.seen().rows[b"a"] == {b"cf:q": b"1"}
    monkeypatch.setattr(table_steps, "remove_closed", remove)
    call(world.tm, TABLE)
    schema = world.store.schema(TABLE) if call is admin.truncate_table else None
    assert schema is None or KEPT_ATTRIBUTE not in schema.attributes


@pytest.mark.parametrize("kind", [DROP, TRUNCATE])
def test_a_table_that_was_brought_back_is_not_removed_again(kind: str) -> None:
    """The executor died behind the removal, and a snapshot of HBase's has the incarnation, too."""
    world = World(kind, LikeThrift2)
    before = world.store.schema(TABLE)
    removing = Close(TABLE, world.old, None, "mark").do(tools_of(world))
    assert isinstance(removing, Remove)
    removing.do(tools_of(world))
    world.store.create_table(before)
    assert removing.do(tools_of(world)) == Done({"table": TABLE, "is_kept": True})
    assert world.store.schema(TABLE) == before
    world.store.drop_table(TABLE)
    assert isinstance(removing.do(tools_of(world)), Fence)


def test_a_note_that_came_behind_the_keeping_speaks_of_no_table_that_is_there() -> None:
    """Who was about to remove it stood still between its look and the note."""
    world = World(DROP)
    store = world.store
    Close(TABLE, world.old, None, "mark").do(tools_of(world))
    plan = plan_adoption(store, TABLE, COMMIT_TABLE)
    adopt(store, plan, COMMIT_TABLE, reopens=True)
    note = encode_document([Removed(world.old, Timestamp(1 << 60))])
    ControlTable(store).write(removed_row(TABLE), note)
    assert Removals(store).behind(TABLE, Timestamp(0)) is None


# -- the next table of the name --------------------------------------------------------------------


def killed_behind(world: World, what: str) -> None:
    """Let an executor that carries out the world's change die right behind a call of the store."""

    def kill(point: Point) -> None:
        if point.name == f"{what}.after" and TABLE in point.tables:
            raise KilledError

    mortal = world.fate(kill)
    change = world.change()
    mortal.submit(change.kind, change.step, key=change.key)
    with pytest.raises(KilledError):
        world.run(mortal)


def carried_out(world: World, change: admin.TableChange) -> Status:
    """Let another executor finish a change, and what is left of others."""
    fate = world.fate()
    handle = fate.submit(change.kind, change.step, key=change.key)
    world.run(fate)
    return handle.status


def made_anew(world: World) -> str:
    """Let somebody make the table again and write it; return its incarnation."""
    world.tm.create_table(TABLE, ["his"])
    with world.tm.begin() as tx:
        tx.table(TABLE).put(b"his", {b"his:q": b"4"})
    return incarnation(world.store.schema(TABLE))


@pytest.mark.parametrize("make_store", [MemoryStore, LikeThrift2])
def test_a_table_made_anew_is_dropped_by_the_next_call(make_store: Callable[[], Store]) -> None:
    """The first call's operation is unfinished, and speaks of another table of the name."""
    world = World(DROP, make_store)
    killed_behind(world, "drop_table")
    made_anew(world)
    assert carried_out(world, world.change()) is Status.SUCCESSFUL
    with pytest.raises(NoSuchTable):
        world.store.schema(TABLE)


def test_a_table_made_anew_is_emptied_by_the_next_call() -> None:
    """Though the first call's operation still waits to make the table that it emptied."""
    world = World(TRUNCATE)
    killed_behind(world, "drop_table")
    made_anew(world)
    assert carried_out(world, world.change()) is Status.SUCCESSFUL
    with world.tm.begin(read_only=True) as tx:
        assert dict(tx.table(TABLE).scan()) == {}


@pytest.mark.parametrize("kind", [DROP, TRUNCATE])
def test_an_operation_that_nobody_began_removes_no_later_table(kind: str) -> None:
    """Its client died behind its submission; days later some executor finds it."""
    world = World(kind)
    change = world.change()
    fate = world.fate()
    handle = fate.submit(change.kind, change.step, key=change.key)
    world.store.drop_table(TABLE)
    which = made_anew(world)
    world.run(fate)
    assert handle.status is Status.FAILED
    assert "another one has its name" in str(handle.exception())
    assert incarnation(world.store.schema(TABLE)) == which


@pytest.mark.parametrize("calls", ["drop_table", "create_table"])
def test_a_drop_behind_an_unfinished_truncation_drops_what_that_makes(calls: str) -> None:
    """Whoever asks for it wants no table of the name, and the other one is finished first."""
    world = World(TRUNCATE)
    killed_behind(world, calls)
    assert carried_out(world, admin.removal(world.tm, TABLE)) is Status.SUCCESSFUL
    with pytest.raises(NoSuchTable):
        world.store.schema(TABLE)


def test_a_drop_beside_a_truncation_that_has_not_begun_drops_what_that_makes() -> None:
    """The truncation was first in the queue; the drop names both tables that it may find."""
    world = World(TRUNCATE)
    first = world.change()
    fate = world.fate()
    fate.submit(first.kind, first.step, key=first.key)
    second = admin.removal(world.tm, TABLE)
    fate.run_pending()
    handle = fate.submit(second.kind, second.step, key=second.key)
    world.run(fate)
    assert handle.status is Status.SUCCESSFUL
    with pytest.raises(NoSuchTable):
        world.store.schema(TABLE)


def test_a_drop_removes_only_the_table_that_it_looked_at() -> None:
    """Of the manager's direct call, too: between its look and its call another may be made."""
    world = World(DROP)
    store = MemoryStoreWithHook(world)
    world.tm.store = store
    with pytest.raises(NoSuchTable, match="what has its name now was left as it is"):
        world.tm.drop_table(TABLE)
    assert incarnation(world.store.schema(TABLE)) == store.which


class MemoryStoreWithHook:
    """Lets somebody replace the table before it is dropped."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.which = ""

    def drop_table(self, table: str, **asked: Any) -> bool:
        """Be too late."""
        self._world.store.drop_table(table)
        made = self._world.tm.session.catalog.plan(table, ["his"], ())
        self._world.store.create_table(made.schema)
        self.which = incarnation(made.schema)
        return self._world.store.drop_table(table, **asked)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.store, name)


def test_whoever_was_taken_for_dead_between_look_and_act_does_nothing() -> None:
    """Its lock was held when it looked; its operation is another's when it goes on."""
    world = World(DROP)
    seen: list[bool] = []

    class Stalls(Caller):
        def call(self, step: Any, tx: Any, env: Any) -> Any:
            is_stalled = isinstance(step, Remove) and not seen
            if is_stalled:
                found = fate.store.existing(tx.id)
                fate.store.write(found, released(found))  # as whoever breaks a reservation
            try:
                return super().call(step, tx, env)
            finally:
                if is_stalled:
                    seen.append(TABLE in {one.name for one in world.store.tables()})

    fate = world.fate(caller=Stalls())
    handle = fate.submit(*world.change()[:2])
    world.run(fate)
    assert handle.status is Status.SUCCESSFUL
    assert seen == [True], "it was there still behind the call of the one who was deposed"


def test_a_truncated_table_that_somebody_else_made_meanwhile_stays_his() -> None:
    """There is no way back, and nothing to be gained by waiting."""
    world = World(TRUNCATE)

    def make(point: Point) -> None:
        if point.name == "create_table.before" and TABLE in point.tables:
            world.tm.create_table(TABLE, ["his"])

    fate = world.fate(make)
    handle = fate.submit(*world.change()[:2])
    world.run(fate)
    assert handle.result() == {"table": TABLE, "is_made_by_another": True}
    assert world.store.schema(TABLE).family_names() == [b"his"]


def test_a_creation_whose_table_somebody_else_made_fails() -> None:
    """Whoever asked would take it for one of his families."""
    world = World(CREATE)

    def make(point: Point) -> None:
        if point.name == "create_table.before" and TABLE in point.tables:
            world.tm.create_table(TABLE, ["his"])

    fate = world.fate(make)
    handle = fate.submit(*world.change()[:2])
    world.run(fate)
    assert handle.status is Status.FAILED
    assert world.store.schema(TABLE).family_names() == [b"his"], "and is not undone"


def test_a_created_table_whose_answer_was_lost_is_taken_for_ours() -> None:
    """HBase may have made it though the gateway did not say so."""
    world = World(CREATE)
    new = world.tm.session.catalog.plan(TABLE, FAMILIES, SPLITS)
    step = Make(TABLE, Renewal(new.schema, new.splits, is_first=True))
    assert step.do(tools_of(world)) == step.do(tools_of(world))


def test_past_the_removal_a_dead_oracle_is_waited_for() -> None:
    """Without the fence behind it a client that knows of no other would commit what is gone."""
    world = World(TRUNCATE)

    def die(point: Point) -> None:
        if point.name == "drop_table.after":
            world.client.oracle.is_dead = True

    fate = world.fate(die)
    handle = fate.submit(*world.change()[:2])
    for _ in range(30):
        world.client.clock.advance(fate.run_pending() or 1.0)  # type: ignore[attr-defined]  # a manual one
    found = handle.read()
    assert found is not None
    assert (found.status, found.is_past_pivot) == (Status.IN_PROGRESS, True)
    assert "the oracle is dead" in found.waiting
    with pytest.raises(NoSuchTable):
        world.store.schema(TABLE)
    world.client.oracle.is_dead = False
    world.run(fate)
    assert world.seen() == clean(TRUNCATE)


@pytest.mark.parametrize("kind", [DROP, TRUNCATE])
def test_before_the_removal_a_dead_oracle_fails_the_change(kind: str) -> None:
    """The table is there, and open, as it was."""
    world = World(kind)
    world.client.oracle.is_dead = True
    fate = world.fate()
    handle = fate.submit(*world.change()[:2])
    world.run(fate)
    assert handle.status is Status.FAILED
    world.client.oracle.is_dead = False
    with world.tm.begin() as tx:
        tx.table(TABLE).put(b"c", {b"cf:q": b"4"})
    assert incarnation(world.store.schema(TABLE)) == world.old


def test_a_removal_that_an_earlier_version_planned_is_closed_first() -> None:
    """Its step is stored without a fence before it."""
    world = World(DROP)
    with world.tm.begin() as tx:
        tx.table(TABLE).put(b"c", {b"cf:q": b"4"})
        tx.flush()
        step = RemoveOpen(TABLE, world.old, None)
        assert decode_step(encode_step(step)) == step
        step.do(tools_of(world))
        world.store.create_table(world.tm.session.catalog.plan(TABLE, ["cf"], ()).schema)
        tx.table(TABLE).put(b"d", {b"cf:q": b"5"})
        with pytest.raises(Fenced):
            tx.commit()


def test_a_table_whose_level_is_being_changed_is_not_emptied() -> None:
    """The empty one would have none, and nobody could write it."""
    world = World(TRUNCATE)
    world.store.set_table_attributes(TABLE, {CONFLICT_LEVEL_ATTRIBUTE: CHANGING})
    with pytest.raises(UsageError, match=f"table adopt {TABLE} --conflict-level"):
        admin.truncate_table(world.tm, TABLE)
    assert incarnation(world.store.schema(TABLE)) == world.old
    admin.drop_table(world.tm, TABLE)
    assert TABLE not in world.tm.tables()


def test_a_change_waits_for_the_locks_on_its_table() -> None:
    """Two changes of one table at once would each find half of the other."""
    world = World(DROP)
    locks = Locks(TableFateStore(world.store))
    locks.read(TABLE, "0123456789abcdef")
    fate = world.fate()
    handle = fate.submit(*world.change()[:2])
    assert (fate.run_pending() or 0) > 0
    found = handle.read()
    assert found is not None
    assert "waits for READ of 0123456789abcdef" in found.waiting
    locks.release("0123456789abcdef")
    world.client.clock.advance(1.0)  # type: ignore[attr-defined]  # a manual one
    world.run(fate)
    assert handle.status is Status.SUCCESSFUL


def test_an_executor_without_tables_leaves_a_change_to_others() -> None:
    """A daemon for other operations must not fail it."""
    world = World(DROP)
    operations = TableFateStore(world.store)
    stranger = Fate(object(), operations, clock=world.client.clock)
    handle = stranger.submit(*world.change()[:2])
    assert (stranger.run_pending() or 0) > 1
    found = handle.read()
    assert found is not None
    assert "omidpy fate run --store URL --tso ADDR" in found.waiting
    world.client.clock.advance(10.0)  # type: ignore[attr-defined]  # a manual one
    world.run(world.fate())
    assert handle.status is Status.SUCCESSFUL


# -- the calls -------------------------------------------------------------------------------------


def test_the_calls_change_a_table_and_return() -> None:
    """In this process, in threads that end with the call."""
    client = Client(table=None)
    admin.create_table(client.tm, "t", ["cf"], splits=[b"m"])
    with client.tm.begin() as tx:
        tx.table("t").put(b"r", {b"cf:q": b"v"})
    admin.truncate_table(client.tm, "t")
    with client.tm.begin(read_only=True) as tx:
        assert tx.table("t").row(b"r") == {}
    assert len(client.store.regions("t")) == 2
    admin.drop_table(client.tm, "t")
    assert client.tm.tables() == []


def test_the_calls_raise_what_is_wrong_with_the_table() -> None:
    """As the calls of a manager do; nothing was changed."""
    client = Client(table="t")
    client.store.create_table(TableSchema("plain", [FamilySchema(b"cf")]))
    with pytest.raises(TableExists, match="'t' exists already"):
        admin.create_table(client.tm, "t", ["cf"])
    for call in (admin.drop_table, admin.truncate_table):
        with pytest.raises(NoSuchTable, match="absent"):
            call(client.tm, "absent")
        with pytest.raises(NotTransactional, match="plain"):
            call(client.tm, "plain")
    assert [one.name for one in client.store.tables() if not one.name.startswith("OM")] == [
        "plain",
        "t",
    ]
