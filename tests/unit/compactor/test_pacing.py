"""A run takes no more of a live cluster than it may, and stops when its window ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.options import Options, options_from_words
from compactor.pacing import ENTRY_BYTES, Pacer, Pacing, page_bytes
from compactor.report import Report
from omidpy.base.schema.table_settings import setting_attributes
from omidpy.base.timing.clock import ManualClock
from omidpy.base.words.windows import Window, parse_window
from omidpy.errors import UsageError
from omidpy.facts.watermarks import Watermarks
from omidpy.model import Cell
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World

ROWS_A_REGION: Final = 40
MINUTE_MS: Final = 60_000
MINUTE: Final = Window(length_ms=MINUTE_MS)


# -- the rate --------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 5000), st.floats(0, 20)),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 200),
    st.integers(1, 4000),
)
def test_neither_rate_is_passed(
    pages: list[tuple[int, int, float]], rows_per_s: int, bytes_per_s: int
) -> None:
    """Over no stretch of a run, but for a page and the second's worth that a pause may save."""
    clock = ManualClock(monotonic_s=0.0)
    pacer = Pacer(Pacing(rows_per_s, bytes_per_s), clock, clock.advance)
    read: list[tuple[float, int, int]] = []
    for rows, size, busy_s in pages:
        clock.advance(busy_s)
        pacer.pause(rows=rows, size_bytes=size)
        read.append((clock.monotonic_s(), rows, size))
    for first, (begun_s, *_) in enumerate([(0.0, 0, 0), *read]):
        for last in range(first, len(read)):
            passed_s = read[last][0] - begun_s + 1.001
            assert sum(page[1] for page in read[first : last + 1]) <= rows_per_s * passed_s
            assert sum(page[2] for page in read[first : last + 1]) <= bytes_per_s * passed_s


def test_a_rate_is_used_up() -> None:
    """A limit that halves what it allows would be a wrong number in the operator's plan."""
    clock = ManualClock()
    began_s = clock.monotonic_s()
    pacer = Pacer(Pacing(rows_per_s=100), clock, clock.advance)
    for _ in range(50):
        clock.advance(0.1)
        pacer.pause(rows=20, size_bytes=10**9)
    assert clock.monotonic_s() - began_s == pytest.approx(10.0)


def test_no_limit_is_no_wait() -> None:
    """Whatever was read."""
    clock = ManualClock()
    pacer = Pacer(Pacing(), clock, clock.advance)
    pacer.pause(rows=10**9, size_bytes=10**12)
    assert clock.monotonic_s() == ManualClock().monotonic_s()


def test_tasks_at_once_share_a_rate() -> None:
    """Two halves, and one page of theirs is a second's worth at most."""
    shared = Pacing(rows_per_s=100, bytes_per_s=1000, ends_ms=5).shared_by(4)
    assert shared == Pacing(rows_per_s=25, bytes_per_s=250, ends_ms=5)
    assert shared.page_rows(500) == 25
    assert shared.shared_by(100).page_rows(500) == 1
    assert Pacing(bytes_per_s=1).shared_by(0).page_rows(500) == 500


def test_a_wait_ends_with_the_window() -> None:
    """A slow rate must not carry a run far into the morning."""
    clock = ManualClock(wall_ms=0, monotonic_s=0.0)
    pacer = Pacer(Pacing(rows_per_s=1, ends_ms=10_000), clock, clock.advance)
    pacer.pause(rows=10_000, size_bytes=0)
    assert clock.monotonic_s() == 10.0
    assert pacer.is_over()


def test_bytes_of_a_page_are_keys_and_values() -> None:
    """As the bytes that are dropped are counted."""
    cells = [Cell(b"row", b"cf", b"q", 1, b"12345"), Cell(b"row", b"family", b"", 2, b"")]
    assert page_bytes([cells, cells[:1]]) == (3 + 2 + 1 + 8 + 5) * 2 + (3 + 6 + 8)


# -- the window ------------------------------------------------------------------------------------


def test_a_duration_counts_from_the_start() -> None:
    """Whatever the date."""
    assert parse_window("4h", name="--until").ends_ms(1_000) == 4 * 3_600_000 + 1_000


@pytest.mark.parametrize(
    ("text", "now", "end"),
    [
        ("06:00Z", "2026-01-02T05:59", "2026-01-02T06:00"),
        ("06:00Z", "2026-01-02T06:00", "2026-01-03T06:00"),
        ("6:30Z", "2026-01-02T22:00", "2026-01-03T06:30"),
        ("06:00", "2026-01-02T22:00", "2026-01-03T05:00"),  # Berlin in winter
        ("06:00", "2026-07-02T22:00", "2026-07-03T04:00"),  # in summer
        ("06:00", "2026-03-28T22:00", "2026-03-29T04:00"),  # a night of seven hours
    ],
)
def test_a_time_of_day_is_the_next_one(
    text: str, now: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this machine's zone, or UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        assert parse_window(text, name="--until").ends_ms(ms(now)) == ms(end)
    time.tzset()


def ms(text: str) -> int:
    """Return the wall time of a moment in UTC."""
    return round(datetime.fromisoformat(text + "+00:00").timestamp() * 1000)


@pytest.mark.parametrize("text", ["", "0", "24:00", "6", "06:60", "-1h", "tomorrow", "06:00 Z"])
def test_what_is_no_window_is_named(text: str) -> None:
    """With both ways to write one."""
    with pytest.raises(UsageError, match=r"--until is .*4h.*06:00Z"):
        options_from_words(until=text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"max_rows_per_s": 0}, "--max-rows-per-s is 0; use 1 or more"),
        ({"max_bytes_per_s": "0MB"}, "--max-bytes-per-s is 0; use 1 or more"),
        ({"max_bytes_per_s": "fast"}, "--max-bytes-per-s is 'fast'; write the bytes"),
    ],
)
def test_bad_rates_are_named(words: dict[str, object], said: str) -> None:
    """None is taken for no limit."""
    with pytest.raises(UsageError, match=said):
        options_from_words(**words)


# -- runs ------------------------------------------------------------------------------------------


def world_of(*regions: bytes) -> World:
    """Return a store with a table that has unhealed rows in each of its regions."""
    world = World(MemoryStore(), low_watermark=10**6)
    world.table(splits=regions[1:])
    for index, start in enumerate(regions):
        for number in range(ROWS_A_REGION):
            start_ts = (index * ROWS_A_REGION + number + 1) * 100
            world.put(start + b"%03d" % number, start_ts)
            world.enter(start_ts, start_ts + 50)
    return world


def test_a_run_keeps_to_its_rows_a_second() -> None:
    """Its passes and its pruning, one after another."""
    world = world_of(b"a", b"m")
    began_s = world.clock.monotonic_s()
    report = world.compact(replace(ALL_AT_ONCE, max_rows_per_s=10))
    assert (report.rows_read, report.entries_pruned, report.laggards) == (80, 80, [])
    assert world.clock.monotonic_s() - began_s == pytest.approx((80 + 80) / 10, abs=2.5)


def test_a_run_keeps_to_its_bytes_a_second() -> None:
    """Rows of many bytes wait longer."""
    world = world_of(b"a")
    size = sum(page_bytes(page) for page in world.store.scan("t"))
    began_s = world.clock.monotonic_s()
    world.compact(replace(ALL_AT_ONCE, max_bytes_per_s=100))
    expected_s = (size + ROWS_A_REGION * ENTRY_BYTES) / 100
    assert world.clock.monotonic_s() - began_s == pytest.approx(expected_s, abs=1.5)


@pytest.mark.parametrize(
    ("of_table", "of_run", "took_s"),
    [
        ({"max-rows-per-s": "5"}, None, 40 / 5),
        ({"max-rows-per-s": "5"}, 4, (40 + 40 + 40) / 4),
        ({"max-rows-per-s": "5"}, 20, 40 / 5 + (40 + 40) / 20),
        ({"max-bytes-per-s": "100"}, None, 40 * 15 / 100),
    ],
)
def test_a_table_s_limit_is_kept_beside_the_run_s(
    of_table: dict[str, str], of_run: int | None, took_s: float
) -> None:
    """The stricter one counts; other tables, and the commit table, have the run's alone."""
    world = world_of(b"a")
    world.table("other")
    for number in range(ROWS_A_REGION):
        world.heal(world.put(b"%03d" % number, 50, table="other"), 60, table="other")
    world.store.set_table_attributes("t", dict(setting_attributes("t", of_table)))
    began_s = world.clock.monotonic_s()
    report = world.compact(replace(ALL_AT_ONCE, max_rows_per_s=of_run))
    assert (report.rows_read, report.entries_pruned, report.laggards) == (80, 40, [])
    assert world.clock.monotonic_s() - began_s == pytest.approx(took_s, abs=2.5)


def test_the_limit_of_a_table_may_be_said_for_one_run() -> None:
    """In place of what the table says."""
    world = world_of(b"a")
    world.store.set_table_attributes("t", dict(setting_attributes("t", {"max-rows-per-s": 1})))
    began_s = world.clock.monotonic_s()
    options = options_from_words(grace="0", table_option=["t:max-rows-per-s=10"])
    world.compact(options)
    assert world.clock.monotonic_s() - began_s == pytest.approx(4, abs=1.5)


def turned(world: World, at: str, seconds: float = 61.0) -> Callable[[str], None]:
    """Return what lets time pass at the first step of a name."""
    names = [at]

    def turn(name: str) -> None:
        if names and name == names[0]:
            names.clear()
            world.clock.advance(seconds)

    return turn


def reasons(report: Report) -> Sequence[str]:
    """Return why rows are behind, without the moment."""
    return [laggard.reason.split(" UTC ")[1] for laggard in report.laggards]


def test_no_range_begins_after_the_window() -> None:
    """What is done is claimed; what is not holds the horizon, and says why."""
    world = world_of(b"a", b"m", b"s")
    options = replace(ALL_AT_ONCE, until=MINUTE)
    report = world.compact(options, on_step=turned(world, "claimed"))
    assert reasons(report) == ["before it began"]
    (laggard,) = report.laggards
    assert laggard.reason.startswith("the run's window ended at 2023-11-14 22:14:20 UTC ")
    assert (laggard.start, laggard.end) == (b"m".hex(), ""), "two ranges for one reason are one"
    assert (report.cells_healed, report.entries_pruned) == (ROWS_A_REGION, 0)
    assert [claim.end for claim in Watermarks(world.control).claims()] == [b"m"]
    assert world.compact(ALL_AT_ONCE).laggards == []
    assert world.entries() == {}


def test_a_range_ends_at_its_next_page_and_is_not_claimed() -> None:
    """What was healed stays healed."""
    world = world_of(b"a")
    options = replace(ALL_AT_ONCE, until=MINUTE, max_rows_per_s=20)
    report = world.compact(options, on_step=turned(world, "page-healed"))
    assert reasons(report) == ["before its own end"]
    assert report.cells_healed == 20
    assert not Watermarks(world.control).claims()


def test_a_range_whose_last_page_was_read_is_claimed() -> None:
    """Nothing of it is left to do."""
    world = world_of(b"a")
    options = replace(ALL_AT_ONCE, until=MINUTE)
    report = world.compact(options, on_step=turned(world, "page-healed"))
    assert len(Watermarks(world.control).claims()) == 1
    assert reasons(report) == ["before all entries were gone that may go"]
    assert (report.entries_pruned, report.horizon) == (0, 0), "other places are not asked any more"


def test_a_table_has_a_window_of_its_own() -> None:
    """Reports are read from it at six; the rest of the night is for the others."""
    world = world_of(b"a")
    world.table("z")
    world.heal(world.put(b"a", 50, table="z"), 60, table="z")
    asked = setting_attributes("t", {"until": "1m", "priority": -1})
    world.store.set_table_attributes("t", dict(asked))
    report = world.compact(on_step=turned(world, "claimed"))
    assert reasons(report) == ["before it began"]
    assert report.laggards[0].reason.startswith("table t's window ended at 2023-11-14 22:14:20 UTC")
    assert [claim.table for claim in Watermarks(world.control).claims()] == ["z"]
    later = options_from_words(grace="0", table_option=["t:until=1h"])
    assert world.compact(later, on_step=turned(world, "claimed")).laggards == []


@pytest.mark.parametrize(("of_run", "whose"), [(2 * MINUTE_MS, "table t"), (MINUTE_MS, "the run")])
def test_the_window_that_ends_first_counts(of_run: int, whose: str) -> None:
    """Of the run, and of the table; of two that end together the run's."""
    pacing = Pacing(ends_ms=of_run).until(MINUTE_MS, whose="table t")
    assert (pacing.ends_ms, pacing.whose) == (MINUTE_MS, whose)
    assert pacing.until(None, whose="table u") == pacing
    assert Pacing().until(None, whose="table u") == Pacing()


def test_pruning_stops_between_pages() -> None:
    """The next run goes on where it was."""
    world = world_of(b"a")
    options = replace(ALL_AT_ONCE, until=MINUTE)
    report = world.compact(options, on_step=turned(world, "page-pruned"))
    assert reasons(report) == ["before all entries were gone that may go"]
    assert 0 < report.entries_pruned < ROWS_A_REGION
    left = ROWS_A_REGION - report.entries_pruned
    assert world.compact(ALL_AT_ONCE).entries_pruned == left


def test_a_run_without_work_ends_well_after_its_window() -> None:
    """Exit code 0: nothing is behind."""
    world = world_of(b"a", b"m")
    world.compact(ALL_AT_ONCE)
    options = replace(ALL_AT_ONCE, until=MINUTE)
    report = world.compact(options, on_step=turned(world, "list-tables"))
    assert (report.rows_read, report.laggards) == (0, [])


def test_a_wait_for_a_grace_ends_with_the_window() -> None:
    """A run that may sleep for an hour was told to be gone by six."""
    world = world_of(b"a")
    options = Options(grace_s=3600.0, should_wait=True, until=MINUTE)
    began_s = world.clock.monotonic_s()
    report = world.compact(options)
    assert world.clock.monotonic_s() - began_s == pytest.approx(60.0, abs=1.0)
    assert report.entries_pruned == 0


def test_the_commit_table_is_not_counted_after_the_window() -> None:
    """`--metrics` asks for it, which is a read of all of it."""
    world = world_of(b"a")
    options = replace(ALL_AT_ONCE, until=MINUTE, metrics="unused")
    assert world.compact(options).entries_left == 0
    for number in range(5):
        world.enter(2 * 10**6 + number * 50, 3 * 10**6)
    report = world.compact(options, on_step=turned(world, "pruned"))
    assert report.entries_left is None


def test_pages_are_a_second_long_at_most() -> None:
    """Else a slow rate would be a rush every minute."""
    world = world_of(b"a")
    page_starts: list[float] = []

    def note(name: str) -> None:
        if name == "page-read":
            page_starts.append(world.clock.monotonic_s())

    world.compact(replace(ALL_AT_ONCE, max_rows_per_s=8), on_step=note)
    assert len(page_starts) == ROWS_A_REGION // 8
    assert all(later - earlier == pytest.approx(1.0) for earlier, later in pairwise(page_starts))
