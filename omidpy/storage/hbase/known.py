"""What is remembered of tables' families, by every road to HBase.

It is asked for again before anything is refused because of it, and forgotten when a table turns out
to have changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from omidpy.errors import NoSuchFamily, NoSuchTable, StorageUnavailable

Known = TypeVar("Known")
"""What is remembered of a table's families."""

T = TypeVar("T")


class KnownTables(ABC, Generic[Known]):
    """A memory of tables.  Safe to share among threads."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._families: dict[str, Known] = {}
        self._is_closed = False

    @property
    @abstractmethod
    def url(self) -> str:
        """The address the store was opened with."""

    @abstractmethod
    def _describe(self, table: str) -> Any:
        """Ask HBase what the table is now.  Cost: 1 RPC."""

    @abstractmethod
    def _families_of(self, description: Any) -> Known:
        """Return what is to be remembered of a description."""

    def _described(self, table: str) -> Any:
        """Ask what the table is now, and remember its families."""
        description = self._describe(table)
        self._families[table] = self._families_of(description)
        return description

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageUnavailable(f"the store {self.url} is closed; open it again")

    def _checked(self, table: str, check: Callable[[Known], T]) -> T:
        """Return what `check` makes of the families that a table has.

        What it refuses by what is remembered is checked again by what the table has now.
        """
        self._check_open()
        known = self._families.get(table)
        if known is not None:
            try:
                return check(known)
            except NoSuchFamily:
                self._families.pop(table, None)
        self._described(table)
        return check(self._families[table])

    @contextmanager
    def _forgetting(self, table: str | None) -> Iterator[None]:
        """Remember nothing of a table that turns out to have changed."""
        try:
            yield
        except (NoSuchTable, NoSuchFamily):
            if table is not None:
                self._families.pop(table, None)
            raise
