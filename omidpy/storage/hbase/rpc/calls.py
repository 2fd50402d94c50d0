"""What do both gateways' stores share?  Calls through a pool, and a memory of tables between them.

Which calls may be repeated is said here, and done by the pool.  What is known of a table's families
is remembered, and asked for again before anything is refused because of it (`known.py`).
"""

from __future__ import annotations

from typing import Any

from omidpy.storage.hbase.addresses.gateways import HBaseAddress
from omidpy.storage.hbase.known import Known, KnownTables
from omidpy.storage.hbase.rpc.pool import GatewayPool


class GatewayCalls(KnownTables[Known]):
    """A pool of connections, and a memory of tables.  Safe to share among threads."""

    def __init__(self, address: HBaseAddress, pool: GatewayPool) -> None:
        """Call through `pool`, which is closed with this object."""
        super().__init__()
        self._address = address
        self._pool = pool

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        return self._address.url

    def close(self) -> None:
        """Close every connection; a second call does nothing, unless the first was interrupted."""
        self._is_closed = True
        self._pool.close()

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
