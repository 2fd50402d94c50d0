"""Which calls of the Thrift2 gateway read a page of a scan, and find a landmark ahead of it?

A landmark is a row drawn by lot, by a filter within the region servers, so that its key is all that
crosses the network.  The scan that draws it is raw: it sees deleted rows too, and cells of any
version.

Source: a raw scan is an attribute of HBase's `Scan`, which the gateway passes on; the protocol has
no field for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol

from omidpy.storage.hbase import filters
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.paging import RowT
from omidpy.storage.hbase.thrift2.convert import Selection
from omidpy.storage.pages import Reads

RAW: Final = {b"_raw_": b"\xff"}
"""The attribute of a scan that makes it raw."""


class Call(Protocol):
    """Makes an idempotent call about a table; `Unanswered` if it outlasts `patience_s`."""

    def __call__(self, table: str, method: str, *args: Any, patience_s: float | None) -> Any:
        """Return what the gateway answers to `method`."""
        ...


@dataclass(frozen=True, slots=True)
class Thrift2Reader(Generic[RowT]):
    """Reads one table in one direction: what `paging` needs."""

    call: Call
    patience_s: float
    """How long a call is waited for that need not be patient."""
    table: str
    wanted: Selection
    convert_row: Callable[[Any], RowT]
    is_reversed: bool = False
    filter_bytes: bytes | None = None
    reads: Reads = field(default_factory=Reads, compare=False)
    """Calls, those that failed among them; one that the gateway may have made anew counts twice."""

    def read(self, start: bytes, stop: bytes, count: int, *, is_patient: bool) -> list[RowT]:
        """Read the first rows.  Cost: 1 RPC."""
        return self._read(start, stop, count, None, is_patient=is_patient)

    def read_cut(
        self, start: bytes, stop: bytes, count: int, *, most_cells: int, is_patient: bool
    ) -> list[RowT]:
        """Read the first rows, each cut into so many cells at most; see `cutting.py`."""
        return self._read(start, stop, count, most_cells, is_patient=is_patient)

    def _read(
        self, start: bytes, stop: bytes, count: int, most_cells: int | None, *, is_patient: bool
    ) -> list[RowT]:
        scan = idl.TScan(
            startRow=start,
            stopRow=stop,
            columns=self.wanted.columns,
            timeRange=self.wanted.time_range,
            maxVersions=self.wanted.max_versions,
            caching=count,
            limit=count,  # else the region server reads ahead in vain
            batchSize=most_cells,
            reversed=self.is_reversed,
            filterBytes=self.filter_bytes,
        )
        return list(map(self.convert_row, self._results(scan, count, is_patient=is_patient)))

    def landmark(self, start: bytes, stop: bytes, rows: int, *, is_patient: bool) -> bytes | None:
        """Draw a row.  Cost: 1 RPC; the region servers pass about `rows` rows."""
        columns = self.wanted.columns
        if columns is not None:
            # What else is asked for hides nothing from a raw scan, but other families do not matter
            # to a read that does not open them.
            columns = [idl.TColumn(name) for name in sorted({one.family for one in columns})]
        drawn = filters.all_of(
            filters.random_rows(1 / rows), filters.first_cell(), filters.keys_only()
        )
        scan = idl.TScan(
            startRow=start,
            stopRow=stop,
            columns=columns,
            caching=1,
            limit=1,
            reversed=self.is_reversed,
            filterBytes=drawn,
            attributes=RAW,
        )
        results = self._results(scan, 1, is_patient=is_patient)
        return results[0].row if results else None

    def _results(self, scan: Any, count: int, *, is_patient: bool) -> Any:
        patience_s = None if is_patient else self.patience_s
        name = self.table.encode()
        with self.reads.through_a_gateway():
            return self.call(
                self.table, "getScannerResults", name, scan, count, patience_s=patience_s
            )
