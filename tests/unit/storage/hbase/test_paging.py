"""Scans of HBase are cut into pages that lose no row, repeat none, and end in time."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.model import Cell, KeyRange
from omidpy.storage import rules
from omidpy.storage.base import WHOLE_TABLE, Row
from omidpy.storage.hbase import paging
from omidpy.storage.hbase.rpc.gateway import Unanswered

keys = st.binary(min_size=1, max_size=3).map(
    lambda key: bytes(b"\x00\x01\x61\xfe\xff"[byte % 5] for byte in key)
)


def row(key: bytes, value: bytes = b"v") -> Row:
    """Return a row of one cell."""
    return [Cell(key, b"cf", b"q", 1, value)]


class Table:
    """Answers reads as HBase does, as long as they pass few rows.

    A read passes hidden rows on its way to those that it shows.  Where it passes more than `pace`,
    there is no answer, unless it is waited for with patience.
    """

    def __init__(
        self,
        shown: Iterable[bytes],
        hidden: Iterable[bytes] = (),
        *,
        pace: int = 10**9,
        stalls: int = 0,
        is_reversed: bool = False,
        seed: int = 0,
    ) -> None:
        self.shown = set(shown)
        self.rows = sorted(self.shown | set(hidden))
        self.pace = pace
        self.stalls = stalls
        """So many calls are not answered, whatever they pass."""
        self.is_reversed = is_reversed
        self.rng = random.Random(seed)
        self.counts: list[int] = []
        self.unanswered = 0
        self.longest_answered = 0

    def between(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """Return the rows from `start`, inclusive, to `stop`, exclusive, in the direction."""
        if start and stop:
            assert start != stop, "HBase takes equal ends for one row"
            assert (start > stop) == self.is_reversed, "HBase refuses crossed ends"
        assert len(start) <= rules.MAX_ROW_BYTES
        if not self.is_reversed:
            end = bisect_left(self.rows, stop) if stop else len(self.rows)
            return map(self.rows.__getitem__, range(bisect_left(self.rows, start), end))
        last = bisect_right(self.rows, start) if start else len(self.rows)
        return map(self.rows.__getitem__, range(last - 1, bisect_right(self.rows, stop) - 1, -1))

    def read(self, start: bytes, stop: bytes, count: int, *, is_patient: bool) -> list[Row]:
        """Read the first rows that are shown."""
        self.counts.append(count)
        found: list[Row] = []
        passed = 0
        for key in self.between(start, stop):
            passed += 1
            if key in self.shown:
                found.append(row(key))
                if len(found) == count:
                    break
        self.take_time(passed, is_patient=is_patient)
        return found

    def landmark(self, start: bytes, stop: bytes, rows: int, *, is_patient: bool) -> bytes | None:
        """Draw a row."""
        passed, drawn = 0, None
        for key in self.between(start, stop):
            passed += 1
            # Twice the mean at most, where a test cannot do with more.
            if self.rng.random() < 1 / rows or (is_patient and passed == 2 * rows):
                drawn = key
                break
        self.take_time(passed, is_patient=is_patient)
        return drawn

    def take_time(self, passed: int, *, is_patient: bool) -> None:
        """Answer, or not."""
        if passed > self.pace or self.unanswered < self.stalls:
            self.unanswered += 1
            assert not is_patient, "a call passes rows without end, and waits for it"
            raise Unanswered
        self.longest_answered = max(self.longest_answered, passed)


def scanned(
    table: Table,
    key_range: KeyRange = WHOLE_TABLE,
    page_rows: int = 1000,
    *,
    is_sparse: bool = False,
) -> list[bytes]:
    """Return the rows that a scan gives, in its order."""
    in_order = paging.pages_backwards if table.is_reversed else paging.pages
    found = list(
        in_order(
            table,
            key_range,
            page_rows,
            table="t",
            sizes=paging.RowSizes(),
            is_sparse=is_sparse,
        )
    )
    assert all(1 <= len(page) <= page_rows for page in found)
    return [one[0].row for page in found for one in page]


@given(
    stored=st.sets(keys),
    start=keys | st.just(b""),
    end=keys | st.just(b""),
    page_rows=st.integers(1, 4),
    is_reversed=st.booleans(),
)
def test_pages_hold_the_rows_of_the_range(
    stored: set[bytes], start: bytes, end: bytes, page_rows: int, *, is_reversed: bool
) -> None:
    """In both directions, whatever the keys, the ends and the size of pages."""
    key_range = KeyRange(start, end)
    expected = sorted(filter(key_range.contains, stored), reverse=is_reversed)
    assert scanned(Table(stored, is_reversed=is_reversed), key_range, page_rows) == expected


def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make stretches as short as a test's tables."""
    monkeypatch.setattr(paging, "LONGEST_STRETCH_ROWS", 16)
    monkeypatch.setattr(paging, "SHORTEST_STRETCH_ROWS", 1)


@given(
    shown=st.sets(keys),
    hidden=st.sets(keys),
    start=keys | st.just(b""),
    end=keys | st.just(b""),
    page_rows=st.integers(1, 4),
    pace=st.integers(2, 40),
    is_sparse=st.booleans(),
    is_reversed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_stretches_hold_the_rows_of_the_range(
    shown: set[bytes],
    hidden: set[bytes],
    start: bytes,
    end: bytes,
    page_rows: int,
    pace: int,
    seed: int,
    *,
    is_sparse: bool,
    is_reversed: bool,
) -> None:
    """Wherever calls are given up, and wherever the landmarks are."""
    key_range = KeyRange(start, end)
    expected = sorted(filter(key_range.contains, shown), reverse=is_reversed)
    # Landmarks of one row in one, and a row more for the ends: what is waited for must be found.
    pace += page_rows + 2
    table = Table(shown, hidden, pace=pace, is_reversed=is_reversed, seed=seed)
    with pytest.MonkeyPatch.context() as patched:
        short_stretches(patched)
        assert scanned(table, key_range, page_rows, is_sparse=is_sparse) == expected


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_desert_is_crossed_in_calls_that_end(*, is_sparse: bool, is_reversed: bool) -> None:
    """A scan of a hundred million rows that shows three would time out again at each attempt."""
    desert = [b"%06d" % number for number in range(100_000)]
    oases = [desert[0], desert[50_000], desert[99_999]]
    table = Table(oases, desert, pace=40_000, is_reversed=is_reversed)
    assert scanned(table, is_sparse=is_sparse) == sorted(oases, reverse=is_reversed)
    assert table.unanswered == (0 if is_sparse else 1)
    assert table.longest_answered < 40_000


def test_stretches_become_shorter_where_no_answer_comes() -> None:
    """Rows of a thousand cells take a thousand times longer to pass."""
    desert = [b"%06d" % number for number in range(20_000)]
    table = Table([desert[-1]], desert, pace=300)
    assert scanned(table) == [desert[-1]]
    assert 2 <= table.unanswered < 200


def test_stretches_become_longer_again_once_answers_come() -> None:
    """A region that moved kept two calls waiting, and nothing has been slow since."""
    desert = [b"%06d" % number for number in range(20_000)]
    table = Table([desert[-1]], desert, stalls=2)
    assert scanned(table) == [desert[-1]]
    assert table.unanswered == 2
    assert len(table.counts) < 40


def test_a_range_backwards_is_empty_though_its_neighbours_are_not() -> None:
    """HBase is asked for a little more at both ends, none of which may show."""
    table = Table([b"a\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"b", b"c"], is_reversed=True)
    assert scanned(table, KeyRange(b"b", b"c")) == [b"b"]
    assert scanned(table, KeyRange(b"b\x00", b"c")) == []


def test_a_landmark_outside_the_range_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """HBase is asked for a little more than the range, and must not be asked for all."""
    monkeypatch.setattr(paging, "LONGEST_STRETCH_ROWS", 1)
    table = Table([b"a" + b"\xff" * 9, b"c"], is_reversed=True)
    assert scanned(table, KeyRange(b"b", b"c"), is_sparse=True) == []
    table = Table([b"b", b"c"], is_reversed=True)
    assert scanned(table, KeyRange(b"", b"\x00"), is_sparse=True) == []
    last = b"\xff" * rules.MAX_ROW_BYTES
    assert scanned(Table([b"a", last]), KeyRange(last, b""), is_sparse=True) == [last]


def test_the_key_after_the_longest_is_no_longer() -> None:
    """HBase refuses a start key of 32768 bytes."""
    longest = rules.MAX_ROW_BYTES
    assert paging.row_after(b"a" * longest) == b"a" * (longest - 1) + b"b"
    assert paging.row_after(b"a" + b"\xff" * (longest - 1)) == b"b"
    assert paging.row_after(b"\xff" * longest) == b""
    last = b"\xff" * longest
    assert scanned(Table([last]), page_rows=1) == [last]
    assert scanned(Table([last]), KeyRange(last, b""), is_sparse=True) == [last]


# -- bytes -----------------------------------------------------------------------------------------


class Values(Table):
    """Rows in order with values of their own, and a note of how large each page was."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = {b"%06d" % number: value for number, value in enumerate(values)}
        super().__init__(self.values)
        self.ordered = sorted(self.values)
        self.page_bytes: list[int] = []

    def read(self, start: bytes, stop: bytes, count: int, *, is_patient: bool) -> list[Row]:
        """Read the first rows."""
        del stop, is_patient
        self.counts.append(count)
        first = next((at for at, key in enumerate(self.ordered) if key >= start), len(self.ordered))
        page = [row(key, self.values[key]) for key in self.ordered[first : first + count]]
        self.page_bytes.append(sum(len(one[0].value) for one in page))
        return page


def page_counts(values: list[bytes], sizes: paging.RowSizes, page_rows: int = 2000) -> list[int]:
    """Return how many rows each page of a scan asks for."""
    table = Values(values)
    found = paging.pages(table, KeyRange(), page_rows, table="t", sizes=sizes)
    assert [one[0].value for page in found for one in page] == values
    return table.counts


def test_pages_grow_slowly_and_shrink_at_once() -> None:
    """Ten thousand rows of a megabyte in one answer would be the end of the gateway."""
    counts = page_counts([b"v"] * 4352 + [bytes(100_000)] * 3000, paging.RowSizes())
    assert counts[:10] == [1, 4, 16, 64, 256, 1024, 2000, 2000, 82, 41]
    assert set(counts[10:]) == {paging.PAGE_BYTES // (100_000 + paging.CELL_OVERHEAD_BYTES)}


def test_no_page_of_long_rows_is_large_from_the_first_on() -> None:
    """Nobody knows how long they are before one was read."""
    table = Values([bytes(100_000)] * 300)
    list(paging.pages(table, KeyRange(), 1000, table="t", sizes=paging.RowSizes()))
    assert max(table.page_bytes) <= paging.PAGE_BYTES


def test_a_few_long_rows_among_short_ones_are_taken_for_a_warning() -> None:
    """Each row of the next page may be as long as the longest of this one."""
    values = [b"v"] * 15 + [bytes(8_000_000)] + [b"v"] * 300
    counts = page_counts(values, paging.RowSizes())
    assert counts[:4] == [1, 4, 16, paging.PAGE_BYTES // 500_000]
    sizes = paging.RowSizes()
    rows = [row(b"%03d" % number) for number in range(63)] + [row(b"last", bytes(200_000))]
    assert sizes.next_count("t", rows, 64, 10_000) == 64 * paging.PAGE_GROWTH
    rows = [*rows[:-1], row(b"last", bytes(2_000_000))]
    assert sizes.next_count("t", rows, 64, 10_000) == paging.WORST_PAGE_BYTES // 2_000_040


def test_the_next_scan_of_a_table_begins_with_what_the_last_one_learnt() -> None:
    """Short rows save it the short pages, long ones are not met anew each time."""
    sizes = paging.RowSizes()
    page_counts([b"v"] * 20, sizes)
    assert page_counts([b"v"] * 400, sizes) == [128, 512]
    page_counts([bytes(1_000_000)] * 20, sizes)
    assert page_counts([b"v"] * 20, sizes)[0] == 4
    assert sizes.first_count("another", 1000) == paging.FIRST_PAGE_ROWS


def test_a_read_of_one_column_does_not_hide_how_long_rows_are() -> None:
    """Scans of keys and scans of everything take turns on a table."""
    sizes = paging.RowSizes()
    page_counts([bytes(1_000_000)] * 20, sizes)
    sizes.next_count("t", [row(b"r")], 1, 500)
    assert sizes.first_count("t", 500) <= 8


def test_rows_that_are_not_there_teach_nothing_dangerous() -> None:
    """A read of rows of which none exists does not make the next one large at once."""
    sizes = paging.RowSizes()
    page_counts([bytes(1_000_000)] * 20, sizes)
    assert sizes.next_count("t", [[], [], []], 3, 500) == 3
    assert sizes.first_count("t", 500) < 10
