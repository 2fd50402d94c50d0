"""How is a row read that is longer than memory?  Family by family, a portion at a time.

A gateway knows a limit in cells and none in bytes.  So a portion is two reads: one of the keys of
its cells with the lengths of their values, which the region servers put in the values' place, and
one of as many cells as fit.  The next portion begins behind them, first within the last column, by
versions, then with the columns behind it.  Only a read that finds nothing ends anything: a portion
may have become shorter between its two reads, and more may lie behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from omidpy.storage.base import Row
from omidpy.storage.hbase import filters
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.paging import row_after
from omidpy.storage.hbase.thrift2 import convert
from omidpy.storage.options import Portion


class Call(Protocol):
    """Makes a call about a table that may be repeated."""

    def __call__(self, table: str, method: str, *args: Any) -> Any:
        """Return what the gateway answers to `method`."""
        ...


def family_parts(
    call: Call, table: str, row: bytes, family: bytes, versions: tuple[int, int], most: Portion
) -> Iterator[Row]:
    """Yield the cells of a family of a row, those of some versions, a portion at a time.

    Args:
        call: Calls the gateway.
        table: Where the row is.
        row: Its key.
        family: Of which all columns are read.
        versions: The lowest, inclusive, and the highest, exclusive.
        most: A portion.
    """
    low, high = versions
    behind: bytes | None = None
    while True:
        filter_bytes = None if behind is None else filters.columns_behind(behind)
        part = _part(
            call,
            table,
            row,
            convert.selection([(family, None)], low, high, None),
            filter_bytes,
            most,
        )
        if not part:
            return
        while part:
            yield part
            behind, version = part[-1].qualifier, part[-1].version
            if version <= low:
                break
            column = convert.selection([(family, behind)], low, version, None)
            part = _part(call, table, row, column, None, most)


def _part(
    call: Call,
    table: str,
    row: bytes,
    wanted: convert.Selection,
    filter_bytes: bytes | None,
    most: Portion,
) -> Row:
    """Read the first portion of what is wanted of a row; empty if there is none."""
    lengths = filters.keys_only(with_lengths=True)
    if filter_bytes is not None:
        lengths = filters.all_of(filter_bytes, lengths)
    keys = _first(call, table, row, wanted, lengths, most.cells)
    if not keys:
        return []
    return _first(call, table, row, wanted, filter_bytes, _fitting(keys, most))


def _fitting(keys: Row, most: Portion) -> int:
    """Return how many of some cells make a portion, one at least; their values are lengths."""
    size_bytes = 0
    for count, cell in enumerate(keys):
        size_bytes += len(cell.qualifier) + int.from_bytes(cell.value)
        if count and size_bytes > most.size_bytes:
            return count
    return len(keys)


def _first(
    call: Call,
    table: str,
    row: bytes,
    wanted: convert.Selection,
    filter_bytes: bytes | None,
    count: int,
) -> Row:
    """Read the first cells of a row that pass a filter."""
    scan = idl.TScan(
        startRow=row,
        stopRow=row_after(row),
        columns=wanted.columns,
        timeRange=wanted.time_range,
        maxVersions=wanted.max_versions,
        batchSize=count,
        caching=1,
        limit=1,
        filterBytes=filter_bytes,
    )
    results = call(table, "getScannerResults", table.encode(), scan, 1)
    return convert.row_of(results[0]) if results else []
