"""What do both gateways' stores share?  Calls through a pool, and a memory of tables between them.

Which calls may be repeated is said here, and done by the pool.  What is known of a table's families
is remembered, and asked for again before anything is refused because of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from omidpy.errors import NoSuchFamily, NoSuchTable, StorageUnavailable
from omidpy.storage.hbase.address import HBaseAddress
from omidpy.storage.hbase.rpc.pool import GatewayPool

Known = TypeVar("Known")
"""What is remembered of a table's families."""

T = TypeVar("T")


class GatewayCalls(ABC, Generic[Known]):
    """A pool of connections, and a memory of tables.  Safe to share among threads."""

    def __init__(self, address: HBaseAddress, pool: GatewayPool) -> None:
        """Call through `pool`, which is closed with this object."""
        self._address = address
        self._pool = pool
        self._families: dict[str, Known] = {}
        self._is_closed = False

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        return self._address.url

    def close(self) -> None:
        """Close every connection; a second call does nothing, unless the first was interrupted."""
        self._is_closed = True
        self._pool.close()

    @abstractmethod
    def _describe(self, table: str) -> Any:
        """Ask the gateway what the table is now.  Cost: 1 RPC."""

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

    def _read(
        self, table: str | None, method: str, *args: Any, patience_s: float | None = None
    ) -> Any:
        return self._call(table, method, *args, is_idempotent=True, patience_s=patience_s)

    def _repeatable(self, table: str, method: str, *args: Any) -> Any:
        """Write what may be written twice, because it names its versions."""
        return self._call(table, method, *args, is_idempotent=True)

    def _change(self, table: str, method: str, *args: Any) -> None:
        self._call(table, method, *args, is_idempotent=False)

    def _call(
        self,
        table: str | None,
        method: str,
        *args: Any,
        is_idempotent: bool,
        patience_s: float | None = None,
    ) -> Any:
        self._check_open()
        with self._forgetting(table):
            return self._pool.call(
                method, *args, is_idempotent=is_idempotent, table=table, patience_s=patience_s
            )

    @contextmanager
    def _forgetting(self, table: str | None) -> Iterator[None]:
        """Remember nothing of a table that turns out to have changed."""
        try:
            yield
        except (NoSuchTable, NoSuchFamily):
            if table is not None:
                self._families.pop(table, None)
            raise
