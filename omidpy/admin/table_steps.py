"""In which steps is a transactional table made, dropped or emptied?

    create      plan ---------------------> fence -> forget -> make
    drop        plan -> close -> remove --> fence -> forget
    truncate    plan -> close -> remove --> fence -> forget -> make

Removing is the pivot: from there on an operation only rolls forward.  Closing is undone before it.

A table is closed, and a fence set behind that, before it is removed (`facts/removal.py`).  A
transaction that wrote it, and would be told that it has committed what is gone, began before that
fence and aborts, and none begins to write it in between.  So an executor that stands still between
its fence and the making of a table, for however long, makes one in which no half-written
transaction can end (I8).  The fence behind the removal, while there is no table of the name, is for
those that somebody else has removed, and for clients that know of nothing that is closed.

What is removed is the incarnation that was asked for, and no other (`Store.drop_table`).  So who
was stopped before the removal, and goes on when all of it is long done and another table has the
name, removes nothing; and an operation that no executor went on with for days removes no table that
was made since.  For the same reason no failed creation is undone by removing the table: it is made
in one call, whole or not at all, and may have been written to.

Claims of the compactor name an incarnation, so that none speaks for the next table (I7).  That they
are forgotten here only spares the next compaction the reading.

An executor that was stopped within a step looks, right before it does anything, whether the
operation is still its own.  Stopped between that look and the call it can do harm no more: it
removes one incarnation or nothing; a late fence aborts some who could have gone on; and an
incarnation is made once (`facts/makers.py`).  One that comes too late makes none, or on HBase one
that no client may use; and an operation that ends without a table, or is deleted, sees to it first
that no executor makes it any more (`give_up_making`).  Where that was seen to, and the operation
goes on all the same, it makes another incarnation.

Each step takes the table's write lock, so that changes of one table follow one another.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from omidpy.base.cells import table_id
from omidpy.base.reach import reached
from omidpy.base.tables import (
    CHANGING,
    CONFLICT_LEVEL_ATTRIBUTE,
    INCARNATION_ATTRIBUTE,
    KEPT_ATTRIBUTE,
    incarnation,
    new_incarnation,
    undated_incarnation,
    was_before,
)
from omidpy.base.timing.clock import SystemClock
from omidpy.errors import (
    CorruptCell,
    FateError,
    NoSuchTable,
    OracleError,
    StorageUnavailable,
    TableExists,
    UsageError,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.catalog import check_ours
from omidpy.facts.tables.makers import Makers, ghost_text
from omidpy.facts.tables.removal import close, remove_closed, remove_table, reopen
from omidpy.facts.tables.sightings import sight_first
from omidpy.facts.watermarks import Watermarks
from omidpy.fate.locks import Locks
from omidpy.fate.operation import Operation
from omidpy.fate.step import (
    Answer,
    Defer,
    Done,
    Retry,
    Step,
    StepContext,
    UnknownStep,
    decode_step,
    step,
)
from omidpy.model import FamilySchema, TableSchema
from omidpy.oracle.base import Oracle
from omidpy.storage.base import Store

NAMESPACE: Final = "table"

PATIENT: Final = Retry(max=8, first_s=0.2, longest_s=10.0, on=(OracleError, StorageUnavailable))

NO_TOOLS_S: Final = 10.0
"""How long an operation waits for an executor that can run it."""


@dataclass(frozen=True, slots=True)
class TableTools:
    """What the steps need: the environment of an executor, or its attribute `tables`."""

    store: Store
    """Where the tables are."""
    oracle: Oracle
    locks: Locks
    """Those of the store of operations."""


class Renewal(NamedTuple):
    """The table that takes the place of one that is removed, or of none."""

    schema: TableSchema
    splits: tuple[bytes, ...] = ()
    is_first: bool = False
    """Whether nothing was removed for it: then one that another has made is in the way."""


class TableStep(Step):
    """A step of a change of one table."""

    table: str

    def ready(self, tx: StepContext, env: Any) -> Defer | None:
        """Wait for an executor with the tools, and for the changes of this table before it."""
        tools = tools_of(env)
        if tools is None:
            return Defer(
                NO_TOOLS_S,
                "an executor that has the tables and an oracle: omidpy fate run --store URL --tso "
                "ADDR",
            )
        return tools.locks.write(self.table, tx.id)

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Do the step with the tools, if it is still ours to do."""
        tx.confirm()
        tools = tools_of(env)
        assert tools is not None, "ready() lets nobody through without"
        return self.do(tools)

    @abstractmethod
    def do(self, tools: TableTools) -> Answer:
        """Do what the step is named for, with what reaches the store and the oracle."""


def tools_of(env: Any) -> TableTools | None:
    """Return what an executor's environment has for these steps, if it has."""
    found = env if isinstance(env, TableTools) else getattr(env, "tables", None)
    return found if isinstance(found, TableTools) else None


# -- what is decided once --------------------------------------------------------------------------


@step(version=1, namespace=NAMESPACE, retry=PATIENT)
class PlanCreation(TableStep):
    """Refuses a name that is taken, before anybody is fenced for nothing."""

    table: str
    renewal: Renewal

    def do(self, tools: TableTools) -> Answer:
        """Look whether the name is free, or has the table of an earlier try."""
        found = _schema(tools.store, self.table)
        if not (found is None or _is(found, self.renewal) or Makers(tools.store).is_ghost(found)):
            raise _taken(tools, self.table)
        return Fence(self.table, self.renewal)


@step(version=2, namespace=NAMESPACE, retry=PATIENT)
class PlanRemoval(TableStep):
    """Looks whether the table is there that shall go, and plans what takes its place."""

    table: str
    wanted: tuple[str, ...]
    """Incarnations, any of which shall go: what was there when it was asked for, and what changes
    that were under way then make of it."""
    successor: str = ""
    """The incarnation of the table that takes its place; empty: none does."""

    def do(self, tools: TableTools) -> Answer:
        """Look which incarnation has the name; one that was not asked for stays."""
        schema = there(tools.store, self.table)
        check_ours(schema)
        which = incarnation(schema)
        if which not in self.wanted:
            reached("tables.another_has_the_name", "F8")
            raise NoSuchTable(
                f"the table {self.table!r} that was to go is gone, and another one has its name, "
                "which was left as it is; ask again if that one is to go, too"
            )
        renewal = _renewal(tools, schema, self.successor) if self.successor else None
        return Close(self.table, which, renewal, new_incarnation())


@step(version=1, name="PlanRemoval", namespace=NAMESPACE, retry=PATIENT)
class PlanRemovalByName(TableStep):
    """What earlier versions submitted: the table is the one that is there when it is run."""

    table: str
    is_truncation: bool = False

    def do(self, tools: TableTools) -> Answer:
        """Look, and give it an incarnation if it has none."""
        schema = named(tools.store, self.table)
        renewal = _renewal(tools, schema, new_incarnation()) if self.is_truncation else None
        return Close(self.table, incarnation(schema), renewal, new_incarnation())


def named(store: Store, table: str) -> TableSchema:
    """Return a table of ours, which has an incarnation from now on if it had none.

    Raises:
        NoSuchTable, NotTransactional: nothing was changed.
    """
    while True:
        schema = there(store, table)
        check_ours(schema)
        if incarnation(schema):
            return schema
        # Only to one that has none still: another may have its name by now, and a claim to it.
        which = {INCARNATION_ATTRIBUTE: new_incarnation()}
        store.set_table_attributes(table, which, only={INCARNATION_ATTRIBUTE: None})


def there(store: Store, table: str) -> TableSchema:
    """Return the schema of a table that clients may use.

    Raises:
        NoSuchTable: also where no client may use it (`facts/makers.py`).
    """
    schema = store.schema(table)
    if Makers(store).is_ghost(schema):
        raise NoSuchTable(ghost_text(table, is_written=False))
    return schema


def _renewal(tools: TableTools, schema: TableSchema, successor: str) -> Renewal:
    if schema.attributes.get(CONFLICT_LEVEL_ATTRIBUTE) == CHANGING:
        raise UsageError(
            f"the conflict level of table {schema.name!r} is being changed, so that nobody knows "
            "what the empty one shall have; if that was interrupted, run `omidpy table adopt "
            f"{schema.name} --conflict-level cell|row --apply` again, and then empty it"
        )
    attributes = {**schema.attributes, INCARNATION_ATTRIBUTE: successor}
    attributes.pop(KEPT_ATTRIBUTE, None)  # of what it was, the next one has nothing
    families = [FamilySchema(one.name, dict(one.attributes)) for one in schema.families]
    starts = tuple(region.start for region in tools.store.regions(schema.name) if region.start)
    return Renewal(TableSchema(schema.name, families, attributes), starts)


# -- what is done ----------------------------------------------------------------------------------


@step(version=1, namespace=NAMESPACE, retry=PATIENT)
class Close(TableStep):
    """Lets no transaction begin to write one incarnation of a table, and aborts those that did."""

    table: str
    incarnation: str
    renewal: Renewal | None
    mark: str
    """Of this operation, beside those of others who remove it (`facts/removal.py`)."""

    def do(self, tools: TableTools) -> Answer:
        """Close it, and set a fence behind that; one that is gone is closed for nobody."""
        close(tools.store, _named(self.table, self.incarnation), self.mark)
        tools.oracle.fence(table_id(self.table))
        return Remove(self.table, self.incarnation, self.renewal)

    def undo(self, tx: StepContext, env: Any) -> None:
        """Open it again, unless others remove it, too."""
        del tx
        if (tools := tools_of(env)) is None:
            raise FateError(f"no store is here in which {self.table!r} can be opened again")
        reopen(tools.store, _named(self.table, self.incarnation), self.mark)


@step(version=2, namespace=NAMESPACE, pivot=True, retry=PATIENT)
class Remove(TableStep):
    """Removes one incarnation of a table, which is closed."""

    table: str
    incarnation: str
    renewal: Renewal | None

    def do(self, tools: TableTools) -> Answer:
        """Remove it, unless it is gone."""
        with contextlib.suppress(NoSuchTable):
            _settle(tools, self.table, self.incarnation)
            # The fence is that of `Close`; whatever is drawn now is behind it.
            at_ts = tools.oracle.begin().start_ts
            named = _named(self.table, self.incarnation)
            if not remove_closed(tools.store, named, at_ts=at_ts):
                return _behind_another(tools, self.table, self.incarnation, self.renewal)
        return Fence(self.table, self.renewal)


@step(version=1, name="Remove", namespace=NAMESPACE, pivot=True, retry=PATIENT)
class RemoveOpen(TableStep):
    """What earlier versions planned: to remove a table that was not closed before."""

    table: str
    incarnation: str
    renewal: Renewal | None

    def do(self, tools: TableTools) -> Answer:
        """Close it first, and remove it, unless it is gone."""
        with contextlib.suppress(NoSuchTable):
            _settle(tools, self.table, self.incarnation)
            named = _named(self.table, self.incarnation)
            if not remove_table(tools.store, tools.oracle, named):
                return _behind_another(tools, self.table, self.incarnation, self.renewal)
        return Fence(self.table, self.renewal)


def _behind_another(
    tools: TableTools, table: str, which: str, renewal: Renewal | None
) -> Fence | Done:
    """Say how a removal goes on that has found another incarnation in the place of its own.

    That was removed, perhaps by an earlier try; or it is the one that is there, which somebody has
    kept (`omidpy table adopt --reopen`), or brought back from a snapshot of HBase's: then nothing
    is removed, and nothing is to be made.
    """
    found = tools.store.schema(table)
    if which in (incarnation(found), *was_before(found)):
        return Done({"table": table, "is_kept": True})
    return Fence(table, renewal)


def _named(table: str, which: str) -> TableSchema:
    """Return what tells an incarnation from any other table; nothing else is said of it."""
    return TableSchema(table, (), {INCARNATION_ATTRIBUTE: which})


def _settle(tools: TableTools, table: str, which: str) -> None:
    schema = tools.store.schema(table)
    if incarnation(schema) == which:
        # Else an operation that is about to say that it has made it would make it again.
        Makers(tools.store).settle(schema)


@step(version=1, namespace=NAMESPACE, retry=PATIENT)
class Fence(TableStep):
    """Fences off the transactions that wrote to an earlier table of the name."""

    table: str
    renewal: Renewal | None

    def do(self, tools: TableTools) -> Answer:
        """Set a fence; one more only aborts who could go on."""
        tools.oracle.fence(table_id(self.table))
        return ForgetClaims(self.table, self.renewal)


@step(version=1, namespace=NAMESPACE, retry=PATIENT)
class ForgetClaims(TableStep):
    """Forgets what the compactor has claimed of earlier tables of the name."""

    table: str
    renewal: Renewal | None

    def do(self, tools: TableTools) -> Answer:
        """Forget all but what speaks of the table that is there, if there is one."""
        watermarks = Watermarks(ControlTable(tools.store))
        schema = _schema(tools.store, self.table)
        which = None if schema is None else incarnation(schema)
        watermarks.forget_claims(
            claim
            for claim in watermarks.claims()
            if claim.table == self.table and undated_incarnation(claim.incarnation) != which
        )
        if self.renewal is None:
            return Done({"table": self.table})
        return Make(self.table, self.renewal)


@step(version=1, namespace=NAMESPACE, retry=PATIENT)
class Make(TableStep):
    """Makes the table, as the plan has it, unless it was made by an earlier try."""

    table: str
    renewal: Renewal

    def do(self, tools: TableTools) -> Answer:
        """Make it, unless that was done, or another's is there."""
        makers, which = Makers(tools.store), incarnation(self.renewal.schema)
        taken: TableExists | None = None
        begun_s = SystemClock().monotonic_s()
        try:
            if makers.make_table(self.renewal.schema, self.renewal.splits):
                return self._made(tools, begun_s=begun_s)
        except TableExists as error:
            taken = error
        found = _schema(tools.store, self.table)
        if found is None and taken is not None:
            return self.again()  # gone since
        if found is not None and incarnation(found) == which and makers.settle(found):
            # Made by a call whose answer was lost; on HBase what follows it may be missing.
            reached("tables.own_table_found", "F2")
            tools.store.set_table_attributes(self.table, {})
            return self._made(tools, begun_s=None)
        if found is not None and incarnation(found) != which and makers.is_ghost(found):
            try:
                reached("tables.ghost", "F4")
                makers.remove_ghost(found)
            except TableExists as error:
                taken = error
            else:
                return self.again()
        # Who was deposed may make it yet.
        if not makers.give_up(which):
            reached("tables.made_and_gone", "F4")
            return Done({"table": self.table, "is_gone_since": True})
        if taken is None and (found is None or incarnation(found) == which):
            # Given up by a deleter who died before the record was gone, or by an executor before
            # its answer was: no table is in the way, and this operation lives.  Of two who come
            # here one alone has its new incarnation written down, which is before it is made.
            attributes = {**self.renewal.schema.attributes}
            attributes[INCARNATION_ATTRIBUTE] = new_incarnation()
            schema = replace(self.renewal.schema, attributes=attributes)
            return self.again(renewal=self.renewal._replace(schema=schema))
        if self.renewal.is_first:
            raise taken or _taken(tools, self.table)
        # One that was made since the removal is wanted; it began empty, too.
        reached("tables.made_by_another", "F4")
        return Done({"table": self.table, "is_made_by_another": True})

    def _made(self, tools: TableTools, *, begun_s: float | None) -> Done:
        sight_first(tools.store, self.renewal.schema, SystemClock(), begun_s=begun_s)
        return Done({"table": self.table})

    def undo(self, tx: StepContext, env: Any) -> None:
        """Let no executor make it any more; what was made stays, and may have been written to."""
        del tx
        if (tools := tools_of(env)) is None:
            raise FateError(f"no store is here in which nobody shall make {self.table!r} any more")
        Makers(tools.store).give_up(incarnation(self.renewal.schema))


def give_up_making(store: Store, operation: Operation) -> None:
    """Let no executor make the table of an operation that is about to be deleted.

    An executor may be stopped right before the call, and would make it whenever it goes on, for an
    operation of which no record is left.  What was made stays.

    Args:
        store: Where the tables are.
        operation: Reserved by its deleter, so that no step of it begins.

    Cost: nothing, unless it was at the step that makes a table; then 2 gets and 1 checked change.
    """
    for raw in operation.stack:
        try:
            found = decode_step(raw)
        except (UnknownStep, CorruptCell):
            continue  # none of these steps, or of another version
        if isinstance(found, Make):
            schema = _schema(store, found.table)
            if schema is None or not _is(schema, found.renewal):
                Makers(store).give_up(incarnation(found.renewal.schema))


def _schema(store: Store, table: str) -> TableSchema | None:
    try:
        return store.schema(table)
    except NoSuchTable:
        return None


def _is(schema: TableSchema, renewal: Renewal) -> bool:
    return incarnation(schema) == incarnation(renewal.schema)


def _taken(tools: TableTools, table: str) -> TableExists:
    return TableExists(f"table {table!r} exists already in {tools.store.url}")
