"""Calls of HBase's Thrift1 gateway about tables: what is remembered of them, and pages of scans.

What `Thrift1Store` stands on.  A scanner is known to one gateway only, so a page opens its own, on
one connection, and is read again from its start if that breaks.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any, Final

from omidpy.errors import StorageUnavailable
from omidpy.storage.base import Row
from omidpy.storage.hbase.rpc.calls import GatewayCalls
from omidpy.storage.hbase.thrift1 import convert

PAGE_ATTEMPTS: Final = 3
"""How often a page of a scan is begun after its gateway failed, within `retry_s` of the address."""


class Thrift1Calls(GatewayCalls[Mapping[bytes, int]]):
    """Remembers the families of a table, and how many versions each keeps."""

    def _describe(self, table: str) -> Any:
        return self._read(table, "getColumnDescriptors", table.encode())

    def _families_of(self, description: Any) -> Mapping[bytes, int]:
        return convert.family_limits(description)

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
                rows = (convert.row_of(result, min_version) for result in results)
                page.extend(filter(None, rows))
                if len(results) < asked:
                    break
            client.call("scannerClose", scanner)
        return page
