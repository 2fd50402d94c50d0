"""Calls of HBase's Thrift1 gateway about tables: what is remembered of them, and pages of scans.

What `Thrift1Store` stands on.  Families are remembered between calls, and asked for again before
anything is refused because of them.  A scanner is known to one gateway only, so a page opens its
own, on one connection, and is read again from its start if that breaks.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from omidpy.errors import NoSuchFamily, NoSuchTable, StorageUnavailable
from omidpy.storage.base import Row
from omidpy.storage.hbase import convert1
from omidpy.storage.hbase.address import HBaseAddress
from omidpy.storage.hbase.pool import GatewayPool

T = TypeVar("T")

PAGE_ATTEMPTS: Final = 3
"""How often a page of a scan is begun after its gateway failed, within `retry_s` of the address."""


class Thrift1Calls:
    """A pool of connections, and a memory of tables.  Safe to share among threads."""

    def __init__(self, address: HBaseAddress, pool: GatewayPool) -> None:
        """Call through `pool`, which is closed with this object."""
        self._address = address
        self._pool = pool
        self._families: dict[str, Mapping[bytes, int]] = {}
        """What is remembered of tables: their families, and how many versions each keeps."""
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

    def _descriptors(self, table: str) -> Any:
        descriptors = self._read(table, "getColumnDescriptors", table.encode())
        self._families[table] = convert1.family_limits(descriptors)
        return descriptors

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageUnavailable(f"the store {self.url} is closed; open it again")

    def _checked(self, table: str, check: Callable[[Mapping[bytes, int]], T]) -> T:
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
        self._descriptors(table)
        return check(self._families[table])

    def _read(self, table: str | None, method: str, *args: Any) -> Any:
        return self._call(table, method, *args, is_idempotent=True)

    def _repeatable(self, table: str, method: str, *args: Any) -> Any:
        """Write what may be written twice, because it names its versions."""
        return self._call(table, method, *args, is_idempotent=True)

    def _change(self, table: str, method: str, *args: Any) -> None:
        self._call(table, method, *args, is_idempotent=False)

    def _call(self, table: str | None, method: str, *args: Any, is_idempotent: bool) -> Any:
        self._check_open()
        with self._forgetting(table):
            return self._pool.call(method, *args, is_idempotent=is_idempotent, table=table)

    @contextmanager
    def _forgetting(self, table: str | None) -> Iterator[None]:
        """Remember nothing of a table that turns out to have changed."""
        try:
            yield
        except (NoSuchTable, NoSuchFamily):
            if table is not None:
                self._families.pop(table, None)
            raise

    def _page(
        self,
        table: str,
        scan: Any,
        min_version: int,
        count: int,
        *,
        patience_s: float | None = None,
        attributes: Mapping[bytes, bytes] | None = None,
    ) -> list[Row]:
        """Read the first rows of a scan that have cells from a version on.

        Raises:
            Unanswered: a call took longer than `patience_s`.

        Cost: 3 RPCs.
        """
        deadline_s = time.monotonic() + self._address.retry_s
        for attempt in itertools.count(1):
            try:
                return self._scanned(table, scan, min_version, count, patience_s, attributes or {})
            except StorageUnavailable as error:
                # The scanner died with its gateway; nothing of the page was given to anybody.
                is_last = attempt == PAGE_ATTEMPTS or time.monotonic() >= deadline_s
                if is_last or not error.retryable:
                    raise
        raise AssertionError("unreachable")

    def _scanned(
        self,
        table: str,
        scan: Any,
        min_version: int,
        count: int,
        patience_s: float | None,
        attributes: Mapping[bytes, bytes],
    ) -> list[Row]:
        self._check_open()
        page: list[Row] = []
        # A scanner is known to one gateway only, so its calls share a connection.
        owned = self._pool.owned(table=table, what="a scan", is_idempotent=True)
        with self._forgetting(table), owned as client:
            scanner = client.call("scannerOpenWithScan", table.encode(), scan, attributes)
            while len(page) < count:
                asked = count - len(page)
                results = client.call("scannerGetList", scanner, asked, patience_s=patience_s)
                rows = (convert1.row_of(result, min_version) for result in results)
                page.extend(filter(None, rows))
                if len(results) < asked:
                    break
            client.call("scannerClose", scanner)
        return page
