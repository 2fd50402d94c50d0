"""Large regions are cut at sampled keys: each row is in one piece, and small ones pay nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.options import options_from_words
from compactor.ranges.cutting import (
    MOST_PIECES,
    ROWS_A_PIECE,
    Cutting,
    rows_read_lately,
)
from compactor.report import Report, RunRecord, TableReport
from omidpy.errors import StorageUnavailable, UsageError
from omidpy.facts.watermarks import Watermarks
from omidpy.model import KeyRange
from omidpy.storage.base import Row
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sampling import between, evenly, pieces
from tests.machines.cells import ALL_AT_ONCE, World

KEYS: Final = st.binary(max_size=4)
FOUR: Final = replace(ALL_AT_ONCE, ranges_per_region=4)
ROWS: Final = 200


# -- arithmetic ------------------------------------------------------------------------------------


@given(KEYS, KEYS, st.lists(KEYS, max_size=8), KEYS)
def test_pieces_cover_a_range_exactly(
    start: bytes, end: bytes, keys: list[bytes], row: bytes
) -> None:
    """Each row of it is in one piece, no other row is in any, and no piece is empty."""
    rows = KeyRange(start, end)
    if rows.is_empty():
        return
    found = pieces(rows, keys)
    assert sum(_holds(piece, row) for piece in found) == _holds(rows, row)
    assert (found[0].start, found[-1].end) == (start, end)
    assert not any(piece.is_empty() for piece in found)


def _holds(rows: KeyRange, row: bytes) -> bool:
    return rows.start <= row and (not rows.end or row < rows.end)


@given(st.binary(max_size=12), st.binary(max_size=12), st.integers(1, 20))
def test_keys_between_are_in_order_and_between(one: bytes, other: bytes, count: int) -> None:
    """Down to the eighth byte in which two keys differ."""
    first, last = min(one, other), max(one, other)
    found = between(first, last, count)
    assert len(found) == count
    assert found == sorted(found)
    assert all(key.rstrip(b"\x00") <= last for key in found)
    assert all(key >= first[: len(key)] for key in found)


@pytest.mark.parametrize("form", [b"%09d", b"user-%06d", b"%08x", b"row/%d"])
def test_usual_keys_are_cut_into_like_pieces(form: bytes) -> None:
    """None holds more than three times its share."""
    world = World(MemoryStore(), low_watermark=10**6)
    world.table()
    for number in range(ROWS):
        world.put(form % (number * 37), 100)
    world.enter(100, 150)
    world.compact(FOUR)
    ranges = [claim.key_range for claim in Watermarks(world.control).claims()]
    assert len(ranges) == 4
    shares = Counter(
        index
        for number in range(ROWS)
        for index, rows in enumerate(ranges)
        if _holds(rows, form % (number * 37))
    )
    assert sum(shares.values()) == ROWS
    assert max(shares.values()) <= 3 * ROWS // 4
    assert min(shares.values()) >= ROWS // 50


@given(st.sets(KEYS, max_size=30), st.integers(1, 10))
def test_chosen_keys_are_some_of_those_given(keys: set[bytes], count: int) -> None:
    """As many as asked for, or all."""
    found = evenly(keys, count)
    assert len(set(found)) == len(found) == min(count, len(keys))
    assert set(found) <= keys


# -- runs ------------------------------------------------------------------------------------------


class Counting(MemoryStore):
    """Counts scans of one row, by which keys are sampled."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = 0
        self.is_broken = False

    def scan(self, table: str, *args: Any, **words: Any) -> Iterator[list[Row]]:
        """Scan, and count."""
        if table == "t" and words.get("page_rows") == 1:
            self.samples += 1
            if self.is_broken:
                raise StorageUnavailable("the region moves")
        return super().scan(table, *args, **words)


@pytest.fixture
def world() -> World:
    """Return a store of a table of two regions, one of them empty."""
    world = World(Counting(), low_watermark=10**6)
    world.table(splits=[b"5"])
    for number in range(ROWS):
        world.put(b"%09d" % number, 100 + 50 * number)
        world.enter(100 + 50 * number, 10**5 + number)
    return world


def samples(world: World) -> int:
    """Return how many rows were sampled since the last call."""
    assert isinstance(world.store, Counting)
    count, world.store.samples = world.store.samples, 0
    return count


def ranges(world: World) -> set[KeyRange]:
    """Return the ranges that were claimed."""
    return {claim.key_range for claim in Watermarks(world.control).claims()}


def test_pieces_are_passed_over_like_regions(world: World) -> None:
    """And all that was to be done is done."""
    report = world.compact(FOUR)
    assert (report.cells_healed, report.entries_pruned, report.laggards) == (ROWS, ROWS, [])
    assert len(ranges(world)) == 5, "four of a region, and an empty one"
    assert 4 < samples(world) <= 3 + 2 * 4 * 4


def test_cuts_of_the_last_run_are_taken_again(world: World) -> None:
    """Without a sample, also where rows came meanwhile: claims of one range follow each other."""
    world.compact(FOUR)
    before = ranges(world)
    samples(world)
    world.put(b"0000000001", 10**6 + 50)
    world.enter(10**6 + 50, 10**6 + 100)
    world.set_low_watermark(2 * 10**6)
    assert world.compact(FOUR).cells_healed == 1
    assert ranges(world) == before
    assert samples(world) <= 1, "of the region that was empty"


def test_far_more_pieces_are_sampled_anew(world: World) -> None:
    """A region that has grown."""
    world.compact(replace(FOUR, ranges_per_region=2))
    world.set_low_watermark(2 * 10**6)
    world.compact(replace(FOUR, ranges_per_region=20))
    assert len(ranges(world)) >= 20


def test_small_regions_pay_nothing(world: World) -> None:
    """By default, on the first run and on later ones."""
    for low_watermark in (10**6, 2 * 10**6):
        world.set_low_watermark(low_watermark)
        world.compact()
    assert samples(world) == 0
    assert len(ranges(world)) == 2


def test_region_that_does_not_answer_stays_whole(world: World) -> None:
    """The pass finds out what is wrong."""
    assert isinstance(world.store, Counting)
    world.store.is_broken = True
    assert world.compact(FOUR).laggards == []
    assert len(ranges(world)) == 2


def test_rows_of_the_last_runs_tell_what_is_large() -> None:
    """The most of them: a later one may have read what was new alone."""

    def run(rows: int) -> RunRecord:
        tables = [TableReport("t", rows_read=rows)]
        return RunRecord(str(rows), 0, "", 0, report=Report(tables=tables))

    unfinished = RunRecord("u", 0, "", 0)
    assert rows_read_lately([run(9), run(5), unfinished, run(3)]) == {"t": 9}
    assert rows_read_lately([run(99), *[run(5)] * 10]) == {"t": 5}
    auto = Cutting(rows_read={"t": 10 * ROWS_A_PIECE, "huge": 10**12})
    assert [auto.pieces_of(*one) for one in (("t", 1), ("t", 5), ("t", 20), ("new", 1))] == [
        *(11, 3, 1, 1)
    ]
    assert auto.pieces_of("huge", 1) == MOST_PIECES
    assert Cutting(wanted=7).pieces_of("t", 3) == 7


@pytest.mark.parametrize("text", ["0", "-1", "some", "", "1001", "1.5"])
def test_bad_numbers_of_ranges_are_named(text: str) -> None:
    """With what may be written."""
    with pytest.raises(UsageError, match=r"--ranges-per-region is .*auto"):
        options_from_words(ranges_per_region=text)
    assert options_from_words(ranges_per_region="auto").ranges_per_region is None
    assert options_from_words(ranges_per_region="8").ranges_per_region == 8
