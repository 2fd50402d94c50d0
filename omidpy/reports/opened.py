"""A store as it will be once it is set up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Unpack, cast

from omidpy.base.tables import CONTROL_TABLE
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.format import check_format
from omidpy.facts.tables.listing import missing_of
from omidpy.model import KeyRange
from omidpy.storage.base import WHOLE_TABLE, Read, Row, Scan, Store


def missing_tables(store: Store) -> list[str]:
    """Return the system tables that a store has not, without which nothing can be written.

    Raises:
        StorageError: it has them, and this user may not look at them: HBase's list leaves out what
            he has no right to create or to administer.
    """
    return missing_of((COMMIT_TABLE, CONTROL_TABLE), store, store.tables())


def as_set_up(store: Store, missing: Collection[str]) -> Store:
    """Return a store in which the system tables that are missing read as empty.

    Raises:
        ConfigError: a newer omidpy has changed its form.

    Cost: 1 get.
    """
    check_format(store)
    return cast("Store", _NotSetUp(store, missing)) if missing else store


class _NotSetUp:
    """A store as it will be once it is set up: system tables that are missing read as empty."""

    def __init__(self, store: Store, missing: Collection[str]) -> None:
        self._store = store
        self._missing = missing

    def __getattr__(self, name: str) -> Any:
        """Return what the store has."""
        return getattr(self._store, name)

    @property
    def store_id(self) -> str:
        """On HBase it is made with the system tables."""
        return "none yet"

    def get(self, table: str, rows: Sequence[bytes], **read: Unpack[Read]) -> list[Row]:
        """Read rows; those of a table that is missing are empty."""
        if table in self._missing:
            return [[] for _ in rows]
        return self._store.get(table, rows, **read)

    def scan(
        self, table: str, key_range: KeyRange = WHOLE_TABLE, **read: Unpack[Scan]
    ) -> Iterator[list[Row]]:
        """Read pages; of a table that is missing there are none."""
        if table in self._missing:
            return iter(())
        return self._store.scan(table, key_range, **read)
