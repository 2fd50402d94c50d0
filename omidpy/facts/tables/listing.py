"""Which tables are there, where one that is overlooked does harm?

HBase leaves out of its list what the user may neither create nor administer.
"""

from __future__ import annotations

from collections.abc import Iterable

from omidpy.errors import NoSuchTable, StorageError
from omidpy.model import TableSchema
from omidpy.storage.base import Store
from omidpy.storage.options import ClosesTables, HidesTables


def hidden_among(store: Store, schemas: list[TableSchema]) -> dict[str, str]:
    """Return the tables that a list has left out, and why; see `HidesTables`."""
    if not isinstance(store, HidesTables):
        return {}
    return store.hidden_tables([schema.name for schema in schemas])


def closed_among(store: Store, schemas: Iterable[TableSchema]) -> dict[str, str]:
    """Return the tables that nobody reads or writes now; see `ClosesTables`."""
    if not isinstance(store, ClosesTables):
        return {}
    return store.closed_tables([schema.name for schema in schemas])


def missing_of(wanted: Iterable[str], store: Store, listed: Iterable[TableSchema]) -> list[str]:
    """Return the tables that are not there, of those that are not on a list of all tables.

    Raises:
        StorageError: one is there, and this user may not look at it.
    """
    existing = {schema.name for schema in listed}
    return [name for name in wanted if name not in existing and not _is_there(store, name)]


def _is_there(store: Store, name: str) -> bool:
    try:
        # HBase finds a table by `default:t`, too, and no list has it by that name.
        return store.schema(name).name == name
    except NoSuchTable:
        return False


def all_tables(store: Store) -> list[TableSchema]:
    """Return every table.

    Raises:
        StorageError: this user may not look at one of them.

    Cost: a list of tables, and `HidesTables.hidden_tables`.
    """
    schemas = store.tables()
    for name, why in hidden_among(store, schemas).items():
        raise StorageError(f"table {name!r} may hold what all tables are read for: {why}")
    return schemas
