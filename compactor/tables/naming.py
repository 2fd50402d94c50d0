"""Which table of its name is meant?  Changes to a table that a client may drop and make again.

What was read of a table says nothing of the next one of its name, so that a change names the
incarnation that was read.  A table that no client of ours has made has none until it is given one.

On HBase a gateway cannot compare and change at once: there the comparison is made right before, and
a table that is made in between is changed (`docs/guide/omid.md`).
"""

from __future__ import annotations

from collections.abc import Mapping

from omidpy.base.tables import (
    INCARNATION_ATTRIBUTE,
    dated_incarnation,
    incarnation,
    new_incarnation,
)
from omidpy.errors import StorageError
from omidpy.facts.tables.sightings import state_of
from omidpy.model import TableSchema
from omidpy.storage.base import Store
from omidpy.storage.rules import has


def told_name(schema: TableSchema, state: int | None) -> str:
    """Return what an operator is told of which table was looked at; empty where nothing tells.

    Args:
        schema: The table.
        state: What `state_of` says of it.
    """
    return incarnation(schema) if state is None else dated_incarnation(incarnation(schema), state)


def check_told(table: str, found: str, only: str | None) -> None:
    """Refuse a table that is not the one that an operator was told of.

    One in the same state is that table, also where it was adopted since, or ignored, and so has
    another incarnation, or its first one.

    Args:
        table: Its name.
        found: What he would be told now.
        only: What he was told; None: any will do.

    Raises:
        StorageError: it is another one.
    """
    if only is None:
        return
    part = 2 if "@" in only else 0
    if only.partition("@")[part] != found.partition("@")[part]:
        raise StorageError(
            f"table {table} is not {only}, which was looked at, but {found or 'one without name'}: "
            "it was dropped and made again, disabled and enabled, restored, or adopted since, and "
            "was left as it is; look at it again"
        )


def give_name(store: Store, table: str) -> str:
    """Give a table that has none an incarnation, and return that.

    Raises:
        StorageError: it has one by now.
    """
    which = new_incarnation()
    set_attributes(store, table, None, {INCARNATION_ATTRIBUTE: which})
    return which


def set_attributes(
    store: Store,
    table: str,
    which: str | None,
    attributes: Mapping[str, str | None],
    *,
    seen: Mapping[str, str | None] | None = None,
) -> None:
    """Set attributes of an incarnation of a table; None: of one that has none.

    Args:
        store: Where it is.
        table: Its name.
        which: Its incarnation.
        attributes: What changes.
        seen: Others that it must still have as they were seen; None is one that it lacked.

    Raises:
        StorageError: by now it is another one, or another has changed those.
    """
    only = {**(seen or {}), INCARNATION_ATTRIBUTE: which}
    if store.set_table_attributes(table, attributes, only=only):
        return
    # Unless it was our own first attempt, whose answer was lost.
    after = {INCARNATION_ATTRIBUTE: which, **attributes}
    if not has(store.schema(table).attributes, after):
        raise another(table)


def check_incarnation(store: Store, table: str, which: str, state: int | None) -> TableSchema:
    """Return a table, if it is that incarnation still, and was not restored since.

    Args:
        store: Where it is.
        table: Its name.
        which: Its incarnation.
        state: What `state_of` has said of it.

    Raises:
        StorageError: it is another one.
    """
    schema = store.schema(table)
    if incarnation(schema) != which or state_of(store, table) != state:
        raise another(table)
    return schema


def another(table: str) -> StorageError:
    """Return the error that says that a table is not the one that was read."""
    return StorageError(
        f"table {table} changed while it was looked at: it was dropped and made again, disabled "
        "and enabled, or restored, or somebody else has adopted it; what it holds now was not read,"
        " so that it is not adopted: do it again"
    )
