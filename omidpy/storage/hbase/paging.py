"""How is a scan cut into pages, each a read of its own that ends in time and fits in memory?

A page resumes after the last row of the one before it, so that nothing stays on the gateway between
two.

**Bytes.**  HBase's gateways know no limit in bytes, so a page asks for as many rows as should fit
`PAGE_BYTES`, judged by the rows of the page before it; a scan's first page is judged by the last
reads of its table.  Where nothing is known the first page is a row, and each later one at most
`PAGE_GROWTH` times the one before it.  Rows that suddenly become a thousand times longer make one
page too large.

**Time.**  A call returns when its page is full, or at the end of its range.  Between may lie a
million rows of which the scan shows nothing: deleted, too new, without the columns asked for.  So a
page is waited for with patience of a few seconds only.  After that the scan goes on by stretches: a
landmark is the key of a row that is there, seen or not, some way ahead; and a read that stops at a
landmark passes few rows, so that each call ends and each stretch is gone through once.  An answer
that still does not come makes stretches shorter, those that do come make them longer again.  What
was given up goes on in the gateway until it ends by itself; its answer is never read.

A scan that has met one such desert keeps to stretches, which cost it a second pass over the rows
within the region servers.

HBase's reverse scans start at their upper end inclusively and stop above their lower end, ours are
the other way round.  A page backwards therefore asks for one row more, and leaves the ends out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from omidpy.model import KeyRange
from omidpy.storage import rules
from omidpy.storage.hbase.rpc.gateway import Unanswered

FIRST_PAGE_ROWS: Final = 1
"""A table's first page: it is not known yet how long its rows are, and two of 200,000 cells each
are what a gateway of half a gigabyte can hold."""
FIRST_KNOWN_PAGE_ROWS: Final = 128
"""A scan's first page at most, of a table whose rows were read before."""
PAGE_GROWTH: Final = 4
"""How much longer, in rows, a page may be than the one before it."""
PAGE_BYTES: Final = 4 * 1024 * 1024
"""What a page should come to, judged by the rows of the page before it."""
WORST_PAGE_BYTES: Final = 64 * 1024 * 1024
"""What a page may come to if each of its rows is as long as the longest of the page before it."""
CELL_OVERHEAD_BYTES: Final = 40
"""What a cell costs in a message beyond its value, by rule of thumb."""
_SAMPLE_ROWS: Final = 64

LONGEST_STRETCH_ROWS: Final = 2000
"""Rows that a stretch passes, on average: milliseconds of a region server's time."""
SHORTEST_STRETCH_ROWS: Final = 125
"""A stretch as short as this is waited for as long as the address says."""

RowT = TypeVar("RowT", bound=Sequence[tuple[Any, ...]])
"""The cells of a row, never none; each begins as `Cell` does."""

_value: Final = itemgetter(4)


class Reader(Protocol[RowT]):
    """Reads a table in one direction, as HBase does: `start` inclusively, `stop` exclusively.

    An empty key is the end of the table on its side.  Backwards, `start` is the upper one.
    """

    def read(self, start: bytes, stop: bytes, count: int, *, is_patient: bool) -> list[RowT]:
        """Read the first rows, at most `count`; fewer only at the end of the range.

        Raises:
            Unanswered: no answer came soon; never if `is_patient`.
        """
        ...

    def landmark(self, start: bytes, stop: bytes, rows: int, *, is_patient: bool) -> bytes | None:
        """Return the key of a row about `rows` rows ahead, deleted rows included.

        None if there is none before `stop`, from which it follows that few rows are left.

        Raises:
            Unanswered: no answer came soon; never if `is_patient`.
        """
        ...


class RowSizes:
    """How long the rows of tables were lately.  Safe to share among threads."""

    def __init__(self) -> None:
        self._row_bytes: dict[str, int] = {}

    def first_count(self, table: str, most: int) -> int:
        """Return how many rows the first read of a table should ask for."""
        row_bytes = self._row_bytes.get(table)
        if row_bytes is None:
            return min(most, FIRST_PAGE_ROWS)
        return max(1, min(most, PAGE_BYTES // row_bytes))

    def next_count(
        self, table: str, rows: Sequence[Sequence[tuple[Any, ...]]], asked: int, most: int
    ) -> int:
        """Return how many rows to ask for after `rows`, and remember how long those are.

        Args:
            table: Whose rows they are.
            rows: What came; those without cells say nothing.
            asked: How many were asked for.
            most: How many may be asked for at most.
        """
        sample = rows[:: max(1, len(rows) // _SAMPLE_ROWS)]
        sizes = [
            sum(map(len, map(_value, row))) + CELL_OVERHEAD_BYTES * len(row)
            for row in sample
            if row
        ]
        if not sizes:
            return asked
        row_bytes = sum(sizes) // len(sizes)
        # Reads of a few columns do not make the rows short: what was long is forgotten slowly.
        self._row_bytes[table] = max(row_bytes, self._row_bytes.get(table, 0) // 2)
        fitting = min(PAGE_BYTES // row_bytes, WORST_PAGE_BYTES // max(sizes))
        grown = asked * PAGE_GROWTH if len(rows) >= asked else asked
        return max(1, min(most, fitting, grown))


class _Course:
    """How far the next read may go: to the end, or once that took too long, to a landmark."""

    def __init__(self, *, is_sparse: bool) -> None:
        self._rows = LONGEST_STRETCH_ROWS if is_sparse else 0

    @property
    def rows(self) -> int:
        """How many rows a stretch passes; 0 before any is needed."""
        return self._rows

    @property
    def is_patient(self) -> bool:
        """Whether a stretch is so short that its answer must come."""
        return self._rows == SHORTEST_STRETCH_ROWS

    def shorten(self) -> None:
        """Take shorter stretches: no answer came."""
        if self._rows:
            self._rows = max(SHORTEST_STRETCH_ROWS, self._rows // 16)
        else:
            self._rows = LONGEST_STRETCH_ROWS

    def lengthen(self) -> None:
        """Take longer stretches: one was gone through."""
        self._rows = min(LONGEST_STRETCH_ROWS, 2 * self._rows)


class Found(NamedTuple, Generic[RowT]):
    """What a read of a stretch came to."""

    rows: list[RowT]
    long_row: bytes | None = None
    """The key of a row behind them that is too long to come with them."""
    behind: bytes | None = None
    """Where the next read begins, empty at the end of the table; None: where the stretch ends."""


class Read(Protocol[RowT]):
    """Reads as `Reader.read` does, and says how far it came."""

    def __call__(self, start: bytes, stop: bytes, count: int, *, is_patient: bool) -> Found[RowT]:
        """Return the first rows."""
        ...


def pages(
    reader: Reader[RowT],
    key_range: KeyRange,
    page_rows: int,
    *,
    table: str,
    sizes: RowSizes,
    is_sparse: bool = False,
) -> Iterator[list[RowT]]:
    """Yield the rows of a range in key order.

    Args:
        reader: Reads forwards.
        key_range: What to read.
        page_rows: How many rows a page has at most.
        table: What `sizes` knows the rows by.
        sizes: How long rows are.
        is_sparse: Few rows are expected to match, so begin with stretches.
    """

    def read(start: bytes, stop: bytes, count: int, *, is_patient: bool) -> Found[RowT]:
        rows = reader.read(start, stop, count, is_patient=is_patient)
        return Found(rows, behind=row_after(rows[-1][0][0]) if len(rows) == count else None)

    found = reads(read, reader, key_range, page_rows, table=table, sizes=sizes, is_sparse=is_sparse)
    return (one.rows for one in found if one.rows)


def reads(
    read: Read[RowT],
    reader: Reader[RowT],
    key_range: KeyRange,
    page_rows: int,
    *,
    table: str,
    sizes: RowSizes,
    is_sparse: bool,
) -> Iterator[Found[RowT]]:
    """Yield what reads forwards come to, one after the other; `reader` finds the landmarks."""
    start, end = key_range
    count = sizes.first_count(table, min(page_rows, FIRST_KNOWN_PAGE_ROWS))
    course, stretch_end = _Course(is_sparse=is_sparse), b""
    # HBase takes equal ends for a read of that one row, so an empty rest is never asked for.
    while not KeyRange(start, end).is_empty():
        try:
            if course.rows and not stretch_end:
                stretch_end = _landmark_above(reader, start, end, course) or end
            stop = stretch_end or end
            found = read(start, stop, count, is_patient=course.is_patient)
        except Unanswered:
            course.shorten()
            stretch_end = b""
            continue
        count = sizes.next_count(table, found.rows, count, page_rows)
        yield found
        if found.behind is not None:
            start = found.behind
            if not start:
                return
        elif stop == end:
            return
        else:
            start = stop
        if start == stretch_end:
            stretch_end = b""
            course.lengthen()


def pages_backwards(
    reader: Reader[RowT],
    key_range: KeyRange,
    page_rows: int,
    *,
    table: str,
    sizes: RowSizes,
    is_sparse: bool = False,
) -> Iterator[list[RowT]]:
    """Yield the rows of a range in reverse; `reader` goes backwards.  As `pages` otherwise."""
    start, end = key_range
    count = sizes.first_count(table, min(page_rows, FIRST_KNOWN_PAGE_ROWS))
    course, stretch_start = _Course(is_sparse=is_sparse), b""
    while not KeyRange(start, end).is_empty():
        try:
            if course.rows and not stretch_start:
                stretch_start = _landmark_below(reader, start, end, course) or start
            low = stretch_start or start
            stop = row_before(low) if low else b""
            asked = count + bool(end)
            found = reader.read(end, stop, asked, is_patient=course.is_patient)
        except Unanswered:
            course.shorten()
            stretch_start = b""
            continue
        page = [row for row in found if row[0][0] >= low and row[0][0] != end][:count]
        count = sizes.next_count(table, page, count, page_rows)
        if page:
            yield page
        if len(found) == asked and page:
            end = page[-1][0][0]
        elif low == start:
            return
        else:
            end = low
        if end == stretch_start:
            stretch_start = b""
            course.lengthen()


def _landmark_above(
    reader: Reader[RowT], start: bytes, end: bytes, course: _Course
) -> bytes | None:
    """Return a key in the range above its start; None if the rest is short."""
    first = row_after(start)
    if not first or KeyRange(first, end).is_empty():
        return None
    return reader.landmark(first, end, course.rows, is_patient=course.is_patient)


def _landmark_below(
    reader: Reader[RowT], start: bytes, end: bytes, course: _Course
) -> bytes | None:
    """Return a key in the range, its start included; None if the rest is short."""
    first = row_before(end) if end else b""
    stop = row_before(start) if start else b""
    if end and first <= stop:
        return None
    found = reader.landmark(first, stop, course.rows, is_patient=course.is_patient)
    return found if found is not None and found >= start else None


def row_after(row: bytes) -> bytes:
    """Return the least key above `row`; empty if there is none."""
    if len(row) < rules.MAX_ROW_BYTES:
        return row + b"\x00"
    stem = row.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""


def row_before(row: bytes) -> bytes:
    """Return a key below `row`, with few or no keys in between; `row` is not empty.

    It is where a reverse scan stops, exclusively; the caller skips what may lie in between.
    """
    if row[-1] == 0:
        return row[:-1]  # nothing lies between
    return row[:-1] + bytes((row[-1] - 1,)) + b"\xff" * min(8, rules.MAX_ROW_BYTES - len(row))
