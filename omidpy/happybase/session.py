"""What a connection, its tables and their batches share: calls to one HBase, and one guard."""

from __future__ import annotations

from typing import Final

from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, OMID_ENABLED, is_system_table
from omidpy.base.timing.clock import SystemClock
from omidpy.errors import StorageUnavailable, UsageError
from omidpy.happybase.columns import table_text
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.client import NativeClient

PLAIN_AGE_S: Final = 5.0
"""How long a table that was plain is written without another look, as layouts are trusted by
transactions (`facts/tables/catalog.py`)."""


class PlainSession:
    """Calls to one HBase.  Safe to share among threads, and after a fork."""

    def __init__(self, url: str) -> None:
        """Call no server yet.

        Raises:
            ConfigError: the address does not fit.
        """
        self.url = url
        self._address = parse_native(url)
        self._opened: dict[None, NativeClient] = {}
        """The one that is open: of threads that open at once, all get it."""
        self._plain: dict[bytes, float] = {}
        """When it was asked, by the monotonic clock, of tables that were plain then."""

    def open(self) -> None:
        """Ask HBase for its id; does nothing where that was done.

        Raises:
            StorageUnavailable: it does not answer.
        """
        if self._opened:
            return
        client = NativeClient(self._address)
        try:
            client.calls.registry.cluster_id()
        except BaseException:
            client.close()
            raise
        if self._opened.setdefault(None, client) is not client:
            client.close()

    def close(self) -> None:
        """End the connections to HBase's servers; `open` opens again."""
        client = self._opened.pop(None, None)
        self._plain.clear()
        if client is not None:
            client.close()

    @property
    def native(self) -> NativeClient:
        """The client of HBase that it uses.

        Raises:
            StorageUnavailable: it is not open.
        """
        client = self._opened.get(None)
        if client is None:
            raise StorageUnavailable(f"the connection to {self.url} is not open; call open()")
        return client

    @property
    def admin(self) -> Admin:
        """What makes, changes and drops tables."""
        return Admin(self.native.calls)

    def check_plain(self, name: bytes) -> None:
        """Refuse a table that transactions write; what was found plain is so for a while.

        One that is adopted, or made anew for transactions, is so within `PLAIN_AGE_S`.

        Cost: 1 RPC to the master, once in `PLAIN_AGE_S` for each table.

        Raises:
            UsageError: transactions write it.
            NoSuchTable: it is not there.
        """
        now_s = SystemClock.monotonic_s()
        asked_s = self._plain.get(name)
        if asked_s is not None and now_s - asked_s < PLAIN_AGE_S:
            return
        table = table_text(name)
        found = self.admin.descriptor(table)
        enabled = OMID_ENABLED.encode()
        if (
            is_system_table(table)
            or COMMIT_TABLE_ATTRIBUTE.encode() in found.attributes
            or any(one.attributes.get(enabled, b"").lower() == b"true" for one in found.families)
        ):
            raise UsageError(
                f"table {table!r} is written by transactions, whose readers would not understand "
                "what is written past them: write it with `omidpy.connect`, which takes this "
                "connection"
            )
        self._plain[name] = now_s

    def forget(self, name: bytes) -> None:
        """Ask anew what a table is."""
        self._plain.pop(name, None)
