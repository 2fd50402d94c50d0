"""Is a table still the one that was looked at?  For whoever goes on by its name for a while.

A table that is dropped and made again, or truncated, is another one of the same name; and one that
was restored from a snapshot is not what it was.  Neither comes back: a table that is the one which
was looked at before has been that all the time.  So one look behind a read, however many calls that
took, says that all of it was of one table.
"""

from __future__ import annotations

from omidpy.base.tables import dated_incarnation, incarnation, undated_incarnation
from omidpy.errors import NoSuchTable, StorageError
from omidpy.facts.tables.sightings import state_of
from omidpy.storage.base import Store
from omidpy.storage.options import RestoresTables


def which_table(store: Store, table: str) -> str:
    """Return what stands for a table as it is now, for `is_same` and `check_same`.

    Raises:
        NoSuchTable: it is not there.

    Cost: 1 get, or 1 look at the catalogue where no single table is restored.
    """
    state = state_of(store, table)
    if state is None:
        return incarnation(store.schema(table))
    return dated_incarnation("", state)


def is_same(store: Store, table: str, dated: str) -> bool:
    """Say whether a table is the one that was looked at, and was not restored since.

    Args:
        store: Where it is.
        table: Its name.
        dated: Which of its name that was, and since when, if single tables are restored: what
            `which_table` has returned, or a compaction's list of tables.

    Raises:
        NoSuchTable: there is none; where single tables are restored, that is False.

    Cost: as `which_table`.
    """
    which = undated_incarnation(dated)
    if isinstance(store, RestoresTables):
        state = store.table_states([table]).get(table)
        return state is not None and dated_incarnation(which, state) == dated
    return incarnation(store.schema(table)) == which


def check_same(store: Store, table: str, dated: str) -> None:
    """Refuse what was read of a table that is another one by now.

    Raises:
        StorageError: a part of it may be of either.

    Cost: as `which_table`.
    """
    try:
        is_still = is_same(store, table, dated)
    except NoSuchTable:
        is_still = False
    if not is_still:
        raise StorageError(
            f"table {table!r} was dropped, truncated, or disabled and enabled, and so perhaps "
            "restored, while it was read: what was read may be a part of it; read it anew"
        )
