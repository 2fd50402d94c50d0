"""How is a scan cut into pages, each a read of its own?

A page resumes after the last row of the one before it, so that nothing stays on the gateway between
two.  How many rows it asks for follows from how long the rows were: the first page is short, and a
later one at most `PAGE_GROWTH` times the one before it.  Rows that suddenly become a thousand times
longer make one page too large; HBase's gateways know no limit in bytes.

HBase's reverse scans start at their upper end inclusively and stop above their lower end, ours are
the other way round.  A page backwards therefore asks for one row more, and leaves the ends out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

from omidpy.model import KeyRange
from omidpy.storage import rules

FIRST_PAGE_ROWS: Final = 128
"""A scan's first page: nobody knows yet how long its rows are."""
PAGE_GROWTH: Final = 4
"""How much longer, in rows, a page may be than the one before it."""
PAGE_BYTES: Final = 4 * 1024 * 1024
"""What a page should come to, judged by the rows of the page before it."""
CELL_OVERHEAD_BYTES: Final = 40
"""What a cell costs in a message beyond its value, by rule of thumb."""
_SAMPLE_ROWS: Final = 64

RowT = TypeVar("RowT", bound=Sequence[tuple[Any, ...]])
"""The cells of a row, never none; each begins as `Cell` does."""

ReadPage: TypeAlias = Callable[[bytes, bytes, int], list[RowT]]
"""Read at most so many rows from a key, inclusively, to a key, exclusively; empty is the end."""

_value: Final = itemgetter(4)


def pages(read: ReadPage[RowT], key_range: KeyRange, page_rows: int) -> Iterator[list[RowT]]:
    """Yield the rows of a range in key order."""
    start, end = key_range
    count = min(page_rows, FIRST_PAGE_ROWS)
    # HBase takes equal ends for a read of that one row, so an empty rest is never asked for.
    while not KeyRange(start, end).is_empty():
        page = read(start, end, count)
        if page:
            yield page
        if len(page) < count:
            return
        start = row_after(page[-1][0][0])
        if not start:
            return
        count = min(page_rows, _next_count(page))


def pages_backwards(
    read: ReadPage[RowT], key_range: KeyRange, page_rows: int
) -> Iterator[list[RowT]]:
    """Yield the rows of a range in reverse; `read` goes backwards from its first key."""
    start, end = key_range
    stop = row_before(start) if start else b""
    count = min(page_rows, FIRST_PAGE_ROWS)
    while not KeyRange(start, end).is_empty():
        asked = count + bool(end)
        found = read(end, stop, asked)
        page = [row for row in found if row[0][0] >= start and row[0][0] != end][:count]
        if page:
            yield page
        if len(found) < asked or not page:
            return
        end = page[-1][0][0]
        count = min(page_rows, _next_count(page))


def row_after(row: bytes) -> bytes:
    """Return the least key above `row`; empty if there is none."""
    if len(row) < rules.MAX_ROW_BYTES:
        return row + b"\x00"
    stem = row.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""


def row_before(row: bytes) -> bytes:
    """Return a key below `row`, with few or no keys in between; `row` is not empty.

    It is where a reverse scan stops, exclusively; whoever scans skips what may lie in between.
    """
    if row[-1] == 0:
        return row[:-1]  # nothing lies between
    return row[:-1] + bytes((row[-1] - 1,)) + b"\xff" * min(8, rules.MAX_ROW_BYTES - len(row))


def _next_count(page: Sequence[Sequence[tuple[Any, ...]]]) -> int:
    """Return how many rows the page after `page` should have: as many as fit its bytes."""
    sample = page[:: max(1, len(page) // _SAMPLE_ROWS)]
    size_bytes = sum(
        sum(map(len, map(_value, row))) + CELL_OVERHEAD_BYTES * len(row) for row in sample
    )
    fitting = PAGE_BYTES * len(sample) // max(1, size_bytes)
    return max(1, min(fitting, len(page) * PAGE_GROWTH))
