"""How does a table go, so that no transaction is told committed of which a part went with it?

Another table of the name may be made right behind the removal, by a creator that has set its fence
long ago and stood still since.  A transaction that has sent a part to the old table would send the
rest to that one, and no fence in between would abort it.  So the fence of a removal comes before
the removal, and no transaction begins to write the table behind it (I8):

    open -> closed -> fence -> noted -> removed

An incarnation is *closed* by a row of the control table, which each of those who remove it writes
for itself:

    closed/<incarnation>/<mark>     closed/=<table>/<mark> for a table without one

A client that may write looks for such rows whenever it reads what a table is, which it does behind
each fence (`Catalog.layout_for`), and right before that, since they go behind the removal.  So
whoever wrote the table before began before the fence, and aborts; and whoever begins behind the
fence finds it closed.  When the next one is made, and at which conflict level, does not matter
then.

Who gives up takes away its own row alone, and removes nothing any more; so an incarnation stays
closed for all of the others.  A row that was left by an interrupted removal stays: the next one
goes on; or `omidpy table adopt --reopen` gives the table another incarnation, which the one that
was interrupted, should it go on, does not remove.

What was committed to a table went with it, and readers by a timestamp find nothing that tells them;
so it is noted before, and behind the fence, up to where there may have been something
(`removed.py`).

Who finds it open again, by its incarnation, has removed it before, or another has: the rows go
behind the removal.  What is there then was brought back from a snapshot of HBase's, which has the
incarnation of its table, and stays.  There he looks once more when it is disabled: one that comes
back behind that is not, so that HBase does not remove it.

The row is not an attribute of the table: HBase can tie no condition to a change of those, so that a
client that stood still before it would make of the next table of the name what this one was.
"""

from __future__ import annotations

import contextlib
from functools import partial

from omidpy.base.cells import table_id
from omidpy.base.tables import INCARNATION_ATTRIBUTE, incarnation, new_incarnation
from omidpy.errors import NoSuchTable, OmidError
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.catalog import closed_prefix, is_closed
from omidpy.facts.tables.removed import note_removal
from omidpy.model import TableSchema, Timestamp
from omidpy.oracle.base import Oracle
from omidpy.storage.base import Store
from omidpy.storage.options import RestoresTables


def close(store: Store, schema: TableSchema, mark: str) -> None:
    """Let no transaction begin to write a table; the fence behind that is the caller's to set.

    Args:
        store: Where it is.
        schema: The table.
        mark: What no other removal has.

    Cost: 1 durable write.
    """
    ControlTable(store).write(closed_prefix(schema) + mark.encode(), b"{}")


def reopen(store: Store, schema: TableSchema, mark: str) -> None:
    """Take back what `close` did, for a removal that removes nothing any more."""
    ControlTable(store).forget([closed_prefix(schema) + mark.encode()])


def remove_closed(store: Store, schema: TableSchema, *, at_ts: Timestamp) -> bool:
    """Remove a table that is closed, behind the fence, and what says that it is.

    Args:
        store: Where it is.
        schema: The table.
        at_ts: Drawn behind the fence.

    Returns:
        False: it is gone, and another one has its name, or a copy of it that is not closed, which
        is left as it is.

    Raises:
        NoSuchTable: it is gone.
        StorageUnavailable: it may be gone, and is closed.

    Cost: 1 removal, 1 look at the table; 1 get, 2 scans and 2 writes of the control table.
    """
    if not is_closed(store, schema):
        store.schema(schema.name)
        return False
    # The one that was looked at: another of its name may be there by now, and ours to drop or not.
    # Tables of earlier versions have no incarnation.
    which = incarnation(schema)
    only = {INCARNATION_ATTRIBUTE: which} if which else None
    try:
        note_removal(store, schema.name, which, at_ts)
        if isinstance(store, RestoresTables):
            # Who stands still before that may find a copy, of the same incarnation.
            still = partial(is_closed, store, schema)
            is_gone = store.drop_table_if(schema.name, only=only, still=still)
        else:
            is_gone = store.drop_table(schema.name, only=only)
    except NoSuchTable:
        _forget(store, schema)
        raise
    _forget(store, schema)
    return is_gone


def remove_table(store: Store, oracle: Oracle, schema: TableSchema) -> bool:
    """Remove a table with everything in it, in the order that this module tells.

    Returns:
        As `remove_closed`.

    Raises:
        NoSuchTable: it is gone.
        OmidError: it is there, and open again if the store answers.  StorageUnavailable of the
            removal itself: it may be gone, and is closed.

    Cost: `close`, 1 oracle round trip, `remove_closed`.
    """
    mark = new_incarnation()
    try:
        close(store, schema, mark)
        fence_ts = oracle.fence(table_id(schema.name))
    except BaseException:
        with contextlib.suppress(OmidError):
            reopen(store, schema, mark)
        raise
    return remove_closed(store, schema, at_ts=fence_ts)


def _forget(store: Store, schema: TableSchema) -> None:
    """Forget who has closed an incarnation that is gone; what is left of it harms nobody."""
    control = ControlTable(store)
    with contextlib.suppress(OmidError):
        if rows := [row for row, _ in control.scan(closed_prefix(schema))]:
            control.forget(rows)
