"""Scans of HBase are cut into pages that lose no row and repeat none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omidpy.model import Cell, KeyRange
from omidpy.storage import rules
from omidpy.storage.base import Row
from omidpy.storage.hbase import paging

keys = st.binary(min_size=1, max_size=3).map(
    lambda key: bytes(b"\x00\x01\x61\xfe\xff"[byte % 5] for byte in key)
)


def row(key: bytes, value: bytes = b"v") -> Row:
    """Return a row of one cell."""
    return [Cell(key, b"cf", b"q", 1, value)]


def forward(stored: list[bytes], calls: list[int]) -> paging.ReadPage[Row]:
    """Return a read of `stored` as HBase answers it, which notes how many rows were asked for."""

    def read(start: bytes, stop: bytes, count: int) -> list[Row]:
        assert start != stop or not start, "HBase takes equal ends for one row"
        assert len(start) <= rules.MAX_ROW_BYTES
        calls.append(count)
        return [row(key) for key in sorted(stored) if KeyRange(start, stop).contains(key)][:count]

    return read


def backward(stored: list[bytes]) -> paging.ReadPage[Row]:
    """Return a reverse read: the first key is the upper end, inclusive; the second is exclusive."""

    def read(start: bytes, stop: bytes, count: int) -> list[Row]:
        assert start != stop or not start, "HBase takes equal ends for one row"
        found = [key for key in stored if key > stop and (not start or key <= start)]
        return [row(key) for key in sorted(found, reverse=True)][:count]

    return read


@given(st.sets(keys), keys | st.just(b""), keys | st.just(b""), st.integers(1, 4))
def test_pages_hold_the_rows_of_the_range(
    stored: set[bytes], start: bytes, end: bytes, page_rows: int
) -> None:
    """In both directions, whatever the keys, the ends and the size of pages."""
    key_range = KeyRange(start, end)
    expected = sorted(filter(key_range.contains, stored))
    got = list(paging.pages(forward(list(stored), []), key_range, page_rows))
    assert [one[0].row for page in got for one in page] == expected
    assert all(1 <= len(page) <= page_rows for page in got)
    got = list(paging.pages_backwards(backward(list(stored)), key_range, page_rows))
    assert [one[0].row for page in got for one in page] == expected[::-1]
    assert all(1 <= len(page) <= page_rows for page in got)


def test_a_range_backwards_is_empty_though_its_neighbours_are_not() -> None:
    """HBase is asked for a little more at both ends, none of which may show."""
    read = backward([b"a\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"b", b"c"])
    assert list(paging.pages_backwards(read, KeyRange(b"b", b"c"), 1000)) == [[row(b"b")]]
    assert list(paging.pages_backwards(read, KeyRange(b"b\x00", b"c"), 1000)) == []


def test_the_key_after_the_longest_is_no_longer() -> None:
    """HBase refuses a start key of 32768 bytes."""
    longest = rules.MAX_ROW_BYTES
    assert paging.row_after(b"a" * longest) == b"a" * (longest - 1) + b"b"
    assert paging.row_after(b"a" + b"\xff" * (longest - 1)) == b"b"
    assert paging.row_after(b"\xff" * longest) == b""
    calls: list[int] = []
    last = b"\xff" * longest
    assert list(paging.pages(forward([last], calls), KeyRange(), 1)) == [[row(last)]]


def test_pages_grow_slowly_and_shrink_at_once() -> None:
    """Ten thousand rows of a megabyte in one answer would be the end of the gateway."""
    calls: list[int] = []
    values = [b"v"] * 4700 + [bytes(100_000)] * 3000
    stored = [row(b"%06d" % number, value) for number, value in enumerate(values)]

    def read(start: bytes, stop: bytes, count: int) -> list[Row]:
        del stop
        calls.append(count)
        return [one for one in stored if one[0].row >= start][:count]

    got = list(paging.pages(read, KeyRange(), 2000))
    assert [one for page in got for one in page] == stored
    assert calls[:5] == [128, 512, 2000, 2000, 2000]
    assert 41 <= calls[5] <= 43
    assert set(calls[6:]) == {paging.PAGE_BYTES // (100_000 + paging.CELL_OVERHEAD_BYTES)}
