"""Which calls of the Thrift1 gateway read a page of a scan, and find a landmark ahead of it?

The gateway takes filters as text only, and so cannot draw a row by lot.  A landmark is found by
counting: a scan of keys alone, which is raw, so that it counts deleted rows and sees cells of any
version.

Source: a raw scan is an attribute of HBase's `Scan`, which the gateway passes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from omidpy.storage.base import Row
from omidpy.storage.hbase.idl import thrift1 as idl
from omidpy.storage.pages import Reads

RAW: Final = {b"_raw_": b"\xff"}
"""The attribute of a scan that makes it raw."""
_KEYS_ALONE: Final = b"FirstKeyOnlyFilter() AND KeyOnlyFilter()"


class ReadPage(Protocol):
    """Reads the first rows of a scan that have cells from a version on."""

    def __call__(
        self,
        table: str,
        scan: Any,
        min_version: int,
        count: int,
        *,
        patience_s: float | None,
        attributes: dict[bytes, bytes] | None = None,
    ) -> list[Row]:
        """Return them; `Unanswered` if a call outlasts `patience_s`."""
        ...


@dataclass(frozen=True, slots=True)
class Thrift1Reader:
    """Reads one table in one direction: what `paging` needs."""

    read_page: ReadPage
    patience_s: float
    """How long a call is waited for that need not be patient."""
    table: str
    specs: list[bytes] | None
    min_version: int
    max_version: int
    is_reversed: bool = False
    filter_text: bytes | None = None
    reads: Reads = field(default_factory=Reads, compare=False)
    """As `Thrift2Reader.reads`."""

    def read(self, start: bytes, stop: bytes, count: int, *, is_patient: bool) -> list[Row]:
        """Read the first rows.  Cost: 3 RPCs."""
        scan = self._scan(start, stop, count)
        scan.columns = self.specs
        scan.timestamp = self.max_version
        scan.filterString = self.filter_text
        patience_s = None if is_patient else self.patience_s
        with self.reads.through_a_gateway():
            return self.read_page(self.table, scan, self.min_version, count, patience_s=patience_s)

    def landmark(self, start: bytes, stop: bytes, rows: int, *, is_patient: bool) -> bytes | None:
        """Count rows.  Cost: 3 RPCs."""
        scan = self._scan(start, stop, rows)
        if self.specs is not None:
            # What else is asked for hides nothing from a raw scan, but other families do not matter
            # to a read that does not open them.
            scan.columns = sorted({spec.partition(b":")[0] for spec in self.specs})
        scan.filterString = _KEYS_ALONE
        patience_s = None if is_patient else self.patience_s
        keys = self.read_page(self.table, scan, 0, rows, patience_s=patience_s, attributes=RAW)
        return keys[-1][0].row if len(keys) == rows else None

    def _scan(self, start: bytes, stop: bytes, count: int) -> Any:
        return idl.TScan(
            startRow=start, stopRow=stop, caching=count, reversed=self.is_reversed or None
        )
