"""Calls of HBase's Thrift2 gateway, and what is remembered of tables between them.

What `Thrift2Store` stands on.  Which calls may be repeated is said here, and done by the pool.
Families are remembered, and asked for again before anything is refused because of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from omidpy.errors import NoSuchFamily, NoSuchTable, StorageUnavailable
from omidpy.storage.hbase import schema as schemas
from omidpy.storage.hbase.address import HBaseAddress
from omidpy.storage.hbase.pool import GatewayPool

T = TypeVar("T")


class Thrift2Calls:
    """A pool of connections, and a memory of tables.  Safe to share among threads."""

    def __init__(self, address: HBaseAddress, pool: GatewayPool) -> None:
        """Call through `pool`, which is closed with this object."""
        self._address = address
        self._pool = pool
        self._families: dict[str, frozenset[bytes]] = {}
        """What is remembered of tables: asked afresh before anything is refused because of it."""
        self._is_closed = False

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        return self._address.url

    def close(self) -> None:
        """Close every connection; a second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._pool.close()

    # -- calls ------------------------------------------------------------------------------------

    def _descriptor(self, table: str) -> Any:
        descriptor = self._read(table, "getTableDescriptor", schemas.table_name(table))
        self._families[table] = frozenset(bytes(one.name) for one in descriptor.columns or ())
        return descriptor

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageUnavailable(f"the store {self.url} is closed; open it again")

    def _checked(self, table: str, check: Callable[[frozenset[bytes]], T]) -> T:
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
        self._descriptor(table)
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
        try:
            return self._pool.call(
                method, *args, is_idempotent=is_idempotent, table=table, patience_s=patience_s
            )
        except (NoSuchTable, NoSuchFamily):
            if table is not None:
                self._families.pop(table, None)
            raise
