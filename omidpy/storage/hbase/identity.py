"""Which HBase is this?  A random id in a cell of ours, made once, by the first client that asks.

It lives in the control table with omidpy's other facts, so that a store has an id from the moment
it is set up.  HBase's own cluster id would not do: it is the same for two stores that share a
cluster in different namespaces, and changes when a store is restored elsewhere from a snapshot.
"""

from __future__ import annotations

import uuid
from typing import Final

from omidpy.base.tables import CONTROL_TABLE, FIXED_VERSION, VALUE
from omidpy.errors import ConfigError, NoSuchTable
from omidpy.storage.address import init_command
from omidpy.storage.base import Put, RowMutation, Store

STORE_ID_FACT: Final = b"store-id"


def store_id(store: Store) -> str:
    """Return the id of a store, made now if it has none.

    Raises:
        ConfigError: the store has not been set up.
    """
    try:
        return read_id(store) or _make(store)
    except NoSuchTable as error:
        raise ConfigError(
            f"the store {store.url} has not been set up; run {init_command(store.url)}"
        ) from error


def read_id(store: Store) -> str | None:
    """Return the id that a store has already."""
    (cells,) = store.get(CONTROL_TABLE, [STORE_ID_FACT], columns=[VALUE], max_versions=1)
    return cells[0].value.decode(errors="backslashreplace") if cells else None


def _make(store: Store) -> str:
    mutation = RowMutation(
        STORE_ID_FACT, puts=[Put(*VALUE, FIXED_VERSION, uuid.uuid4().hex.encode())]
    )
    store.check_and_mutate(CONTROL_TABLE, STORE_ID_FACT, VALUE, None, mutation, durable=True)
    made = read_id(store)  # ours, or that of a client that was faster
    assert made is not None, "the check for absence failed, so there is one"
    return made
