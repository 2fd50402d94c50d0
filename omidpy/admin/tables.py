"""Make, drop and empty transactional tables, and be killed at any moment.

    admin.create_table(tm, "accounts", ["cf"], splits=[b"m"])
    admin.truncate_table(tm, "accounts")
    admin.drop_table(tm, "accounts")

Each submits an operation to the store's own table of operations, and runs it in this process until
it is finished.  Killed half-way, a later call finishes the operation that was begun, and so does
any other of these calls on the store, or `omidpy fate run --tso ADDR`.

What shall be dropped or emptied is the table that is there when it is asked for, by its
incarnation: a call that comes when another table has the name is another operation, however much of
the first one is left to do.  Where there is no table, one under way has removed it, and answers.
Who calls again because no answer came names the incarnation that the first call meant (`only=`):
then no later table of the name goes.

A program with an executor of its own submits what `creation`, `removal` and `truncation` return:

    fate.submit(*admin.truncation(tm, "accounts"))
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from omidpy import errors
from omidpy.admin.table_steps import PlanCreation, PlanRemoval, Renewal, TableTools, named, there
from omidpy.base.schema.table_settings import settings_by_name
from omidpy.base.tables import (
    INCARNATION_ATTRIBUTE,
    incarnation,
    new_incarnation,
    was_before,
)
from omidpy.base.words.arguments import check_table_name
from omidpy.errors import CorruptCell, NoSuchTable, NotTransactional, OperationFailed, UsageError
from omidpy.facts.tables.catalog import NewTable, check_ours
from omidpy.fate.client import Fate, OperationHandle
from omidpy.fate.locks import Locks
from omidpy.fate.operation import Operation
from omidpy.fate.step import Step, UnknownStep, decode_step
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import TableFateStore
from omidpy.manager import TransactionManager
from omidpy.storage.base import Store

CREATE: Final = "TABLE_CREATE"
DROP: Final = "TABLE_DROP"
TRUNCATE: Final = "TABLE_TRUNCATE"
TABLE_KINDS: Final = (CREATE, DROP, TRUNCATE)
"""The kinds of operations here, for pools of an executor."""

LOOK_S: Final = 5.0
"""How often who waits for a change is told how far it is."""

_TOLD_AS_THEY_ARE: Final = (
    errors.NoSuchTable,
    errors.NotTransactional,
    errors.TableExists,
    errors.UsageError,
)


class TableChange(NamedTuple):
    """What `Fate.submit` takes, and a key: the same change is under way once."""

    kind: str
    step: Step
    key: tuple[str, ...]

    @property
    def removes(self) -> str:
        """The incarnation that is to go; empty where none is."""
        return "" if self.kind == CREATE else self.key[2]


def creation(
    tm: TransactionManager,
    name: str,
    families: Iterable[str | bytes] | Mapping[str, object] | Mapping[bytes, object],
    splits: Sequence[bytes] = (),
    settings: Mapping[str, object] | None = None,
) -> TableChange:
    """Return the operation that makes a table; see `TransactionManager.create_table`.

    Args:
        tm: A manager of its store.
        name: The table's.
        families: Its column families.
        splits: Row keys at which its regions meet.
        settings: What it asks of compactions, by the names of `omidpy table set`.
    """
    new = tm.session.catalog.plan(name, families, splits, settings or {})
    table = new.schema.name
    step = PlanCreation(table, Renewal(new.schema, new.splits, is_first=True))
    return TableChange(CREATE, step, (CREATE, table, _digest(new)))


def removal(tm: TransactionManager, name: str, *, only: str | None = None) -> TableChange:
    """Return the operation that drops a table as it is now; see `drop_table`.

    Args:
        tm: A manager of its store.
        name: The table's.
        only: The incarnation that is meant, where another one is left as it is.

    Raises:
        ConfigError: the store cannot keep operations.
        NoSuchTable: it is not there, and no operation under way has removed it.
        NotTransactional: it is not ours to drop.
    """
    return _removal(tm, name, DROP, successor="", only=only)


def truncation(tm: TransactionManager, name: str, *, only: str | None = None) -> TableChange:
    """Return the operation that empties a table as it is now; see `removal`."""
    return _removal(tm, name, TRUNCATE, successor=new_incarnation(), only=only)


def _removal(
    tm: TransactionManager, name: str, kind: str, *, successor: str, only: str | None
) -> TableChange:
    table = check_table_name(tm.session.catalog.full_name(name))
    # Before the look at the table: what ends in between has left it as we then find it.
    live = _changes_of(TableFateStore(tm.store), table)
    if only is not None:
        asked = (kind, table, only)
        if all(key != asked for _, key in live):
            check_which(tm.store, table, only)
        # What has ended since is submitted anew, and finds that another has the name, or none.
        return TableChange(kind, PlanRemoval(table, (only,), successor), asked)
    try:
        which = incarnation(named(tm.store, table))
    except NoSuchTable:
        which = ""
    made = _made_by(live)
    if not which:
        if (key := next((key for one, key in live if one.name == kind), None)) is not None:
            return TableChange(kind, PlanRemoval(table, made, successor), key)
        which = made[-1] if made else ""
    wanted = tuple(sorted({*made, which} - {""}))
    return TableChange(kind, PlanRemoval(table, wanted, successor), (kind, table, which))


def check_which(store: Store, table: str, only: str | None) -> str:
    """Return which incarnation of ours has a name.

    Args:
        store: Where it is.
        table: The name.
        only: The incarnation that must have it; None: any.

    Raises:
        NoSuchTable: there is none, or another one has it.
        NotTransactional: what has it is not ours, and any would do.
    """
    try:
        schema = there(store, table)
        check_ours(schema)
    except (NoSuchTable, NotTransactional) as error:
        if only is None:
            raise
        raise NoSuchTable(f"the incarnation {only} of table {table!r} is gone: {error}") from error
    which = incarnation(schema)
    if only not in (None, which):
        if only in was_before(schema):
            raise NoSuchTable(
                f"the incarnation {only} of table {table!r} was to go, and somebody has kept it "
                f"with `omidpy table adopt --reopen`: it is {which} now, with everything in it"
            )
        raise NoSuchTable(
            f"the incarnation {only} of table {table!r} is gone; {which or 'another one'} has its "
            "name by now, and was left as it is"
        )
    return which


def _changes_of(operations: FateStore, table: str) -> list[tuple[Operation, tuple[str, ...]]]:
    """Return the changes of a table that are under way, with their keys."""
    found = []
    for one in operations.live_in_order():
        key = tuple(msgspec.json.decode(one.key)) if one.key else ()
        if not one.is_finished and one.name in TABLE_KINDS and key[1:2] == (table,):
            found.append((one, key))
    return found


def check_unchanged(store: Store, table: str) -> None:
    """Refuse to keep a table that an operation is about to drop or to empty.

    Raises:
        UsageError: one is under way, which ends first, or is cancelled.
    """
    if live := [one for one, _ in _changes_of(TableFateStore(store), table)]:
        raise UsageError(
            f"the operation {live[0].id} ({live[0].name}) changes table {table!r}: let it end, or "
            f"stop it with `omidpy fate cancel {live[0].id}`"
        )


def _made_by(live: Iterable[tuple[Operation, object]]) -> tuple[str, ...]:
    """Return the incarnations that changes under way make, or have made just now."""
    found = []
    for operation, _ in live:
        for raw in operation.stack:
            try:
                step = decode_step(raw)
            except (UnknownStep, CorruptCell):
                continue  # of another version, which says for itself what it waits for
            renewal = getattr(step, "renewal", None)
            if isinstance(renewal, Renewal):
                found.append(incarnation(renewal.schema))
            elif isinstance(step, PlanRemoval):
                found.append(step.successor)
    return tuple(dict.fromkeys(one for one in found if one))


def create_table(
    tm: TransactionManager,
    name: str,
    families: Iterable[str | bytes] | Mapping[str, object] | Mapping[bytes, object],
    splits: Sequence[bytes] = (),
    *,
    priority: int | None = None,
    retention: str | None = None,
    every: str | None = None,
    max_rows_per_s: int | None = None,
    max_bytes_per_s: int | str | None = None,
    until: str | None = None,
) -> None:
    """Make a transactional table; arguments and meaning are those of `tm.create_table`.

    Raises:
        TableExists: nothing was changed.
        OperationFailed: it was given up.
    """
    settings = settings_by_name(
        priority=priority,
        retention=retention,
        every=every,
        max_rows_per_s=max_rows_per_s,
        max_bytes_per_s=max_bytes_per_s,
        until=until,
    )
    carry_out(tm, creation(tm, name, families, splits, settings))


def drop_table(tm: TransactionManager, name: str, *, only: str | None = None) -> None:
    """Remove a transactional table with everything in it, old versions too.

    Running transactions that wrote it abort, unlike after `tm.drop_table`.

    Args:
        tm: A manager of its store.
        name: The table's.
        only: The incarnation that is meant, where another one is left as it is: for who calls
            again because no answer came.

    Raises:
        NoSuchTable: there is none; or somebody has kept it, by adopting it, before it was removed.
        NotTransactional: it is not ours to remove.
    """
    carry_out(tm, removal(tm, name, only=only))


def truncate_table(tm: TransactionManager, name: str, *, only: str | None = None) -> None:
    """Replace a transactional table by an empty one of the same families, options and regions.

    Running transactions that wrote it abort.  For a moment there is no such table.  What goes is
    history as well: a snapshot of a moment before is refused (`SnapshotTooOld`), or sees the table
    empty if it is less than a second old.

    Args:
        tm: A manager of its store.
        name: The table's.
        only: As for `drop_table`.

    Raises:
        NoSuchTable: there is none; or somebody has kept it, as for `drop_table`.
        NotTransactional: it is not ours to empty.
    """
    carry_out(tm, truncation(tm, name, only=only))


def carry_out(
    tm: TransactionManager,
    change: TableChange,
    *,
    on_submit: Callable[[OperationHandle], None] = lambda _: None,
    on_wait: Callable[[Operation], None] = lambda _: None,
) -> Any:
    """Submit a change, run it here until it is finished, and return its result.

    Other changes of tables that were begun and not finished are run, too.

    Args:
        tm: A manager of its store.
        change: What is to be done.
        on_submit: Called with it once it is submitted.
        on_wait: Called with it, as it is then, each `LOOK_S` that it takes: past its pivot it may
            wait for as long as HBase, or its oracle, cannot go on.

    Raises:
        ConfigError: the store cannot keep operations.
        NoSuchTable, NotTransactional, TableExists: nothing was changed.
        OperationFailed: it was given up.
    """
    operations = TableFateStore(tm.store)
    tools = TableTools(tm.store, tm.oracle, Locks(operations))
    kind, step, key = change
    with Fate(tools, operations, {",".join(TABLE_KINDS): 1}) as fate:
        handle = fate.submit(kind, step, key=key)
        on_submit(handle)
        try:
            while (found := fate.wait_for(handle.id, LOOK_S)) and not found.is_finished:
                on_wait(found)
            result = handle.result()
        except OperationFailed as error:
            raise _as_it_was(handle, error) from error
        finally:
            tm.session.catalog.forget(key[1])
    if isinstance(result, dict) and result.get("is_kept"):
        raise NoSuchTable(
            f"table {key[1]!r} is there with everything in it: before it was removed, somebody has "
            "kept it with `omidpy table adopt --reopen`, or behind that brought it back from a "
            "snapshot; ask again if it is to go all the same"
        )
    return result


def _digest(new: NewTable) -> str:
    """Return what tells one new table from another of its name; not its incarnation."""
    attributes = {**new.schema.attributes, INCARNATION_ATTRIBUTE: ""}
    content = [new.schema.families, attributes, new.splits]
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def _as_it_was(handle: OperationHandle, error: OperationFailed) -> Exception:
    """Return what a step raised, where that is what the caller should see."""
    found = handle.read()
    failure = None if found is None else found.exception
    for kind in _TOLD_AS_THEY_ARE:
        if failure is not None and failure.type == kind.__name__:
            return kind(failure.message)
    return error
