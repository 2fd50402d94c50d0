"""Tables by priority, with a schedule and a retention of their own; what is left goes first."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from compactor.options import Options, options_from_words
from compactor.report import Report, RunLog
from omidpy import admin
from omidpy.base.schema.table_settings import ATTRIBUTES, TABLE, setting_attributes, settings_of
from omidpy.base.timing.ages import Sample
from omidpy.base.words.windows import Window
from omidpy.errors import UsageError
from omidpy.facts.control import encode_document
from omidpy.facts.watermarks import Watermarks, sample_row
from omidpy.manager import TransactionManager
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World
from tso.embedded import EmbeddedOracle

DAWN: Final = Window(hour=6, minute=30, is_utc=True)
DAY_S: Final = 86_400.0
DAYS: Final = 10


@pytest.fixture
def world() -> World:
    """Return a store of three tables, in each of which a cell must be healed."""
    world = World(MemoryStore(), low_watermark=1000)
    for index, name in enumerate(("a", "b", "c")):
        world.table(name, splits=[b"m"])
        world.put(b"a", 100 + 50 * index, table=name)
        world.enter(100 + 50 * index, 400)
    return world


def passed(world: World, options: Options = ALL_AT_ONCE) -> list[tuple[str, bytes]]:
    """Run a compaction; return the ranges that it claimed, in their order."""
    order: list[tuple[str, bytes]] = []
    known = Watermarks(world.control).claims()

    def note(name: str) -> None:
        if name == "claimed":
            claims = Watermarks(world.control).claims()
            (new,) = [claim for claim in claims if claim not in known]
            known.append(new)
            order.append((new.table, new.start))

    world.compact(options, on_step=note)
    return order


def ask(world: World, table: str, **words: object) -> None:
    """Give a table settings, as the command line does."""
    world.store.set_table_attributes(table, dict(setting_attributes(table, words)))


# -- order -----------------------------------------------------------------------------------------


def test_tables_of_higher_priority_come_first(world: World) -> None:
    """A window that ends early has then done what matters most."""
    ask(world, "c", priority=5)
    ask(world, "a", priority=-1)
    assert [table for table, _ in passed(world)] == ["c", "c", "b", "b", "a", "a"]


def test_what_the_last_window_left_comes_first(world: World) -> None:
    """Else the end of a large store would never be reached."""

    def turn(name: str) -> None:
        if name == "claimed":
            world.clock.advance(25)

    options = replace(ALL_AT_ONCE, until=Window(length_ms=60_000))
    assert world.compact(options, on_step=turn).laggards
    world.set_low_watermark(2000)
    order = passed(world)
    assert order == [("b", b"m"), ("c", b""), ("c", b"m"), ("a", b""), ("a", b"m"), ("b", b"")]
    ask(world, "b", priority=1)
    world.set_low_watermark(3000)
    assert passed(world)[:2] == [("b", b""), ("b", b"m")], "within a priority alone"


# -- schedule --------------------------------------------------------------------------------------


def test_table_that_is_not_due_is_left_out_and_says_so(world: World) -> None:
    """It holds the horizon where it is, and the report names the setting."""
    world.compact()
    ask(world, "b", every="7d")
    for day in range(1, 7):
        world.clock.advance(DAY_S)
        world.set_low_watermark(1000 + 1000 * day)
        report = world.compact()
        (laggard,) = report.laggards
        assert (laggard.table, laggard.watermark, report.horizon) == ("b", 1000, 1000)
        assert f"every=7d, since a run passed over it {24 * day}.0 h ago" in laggard.reason
    world.clock.advance(DAY_S)
    world.set_low_watermark(8000)
    assert world.compact().laggards == []


def test_nightly_runs_find_a_daily_table_due(world: World) -> None:
    """A run starts a second early one night: that table would otherwise wait a night longer."""
    ask(world, "b", every="1d")
    world.compact()
    world.clock.advance(DAY_S - 60)
    world.set_low_watermark(2000)
    assert {table for table, _ in passed(world)} == {"a", "b", "c"}


def test_schedule_counts_from_the_start_of_a_run(world: World) -> None:
    """One that took five hours passes over the table again a day later all the same."""
    ask(world, "b", every="1d")

    def turn(name: str) -> None:
        if name == "before-claim":
            world.clock.advance(3600)

    world.compact(on_step=turn)
    world.clock.advance(DAY_S - 6 * 3600)
    world.set_low_watermark(2000)
    assert "b" in {table for table, _ in passed(world)}


def test_table_is_due_until_all_of_it_was_passed_over(world: World) -> None:
    """A window may have left a part of it."""
    ask(world, "a", every="7d")

    def turn(name: str) -> None:
        if name == "claimed":
            world.clock.advance(61)

    world.compact(replace(ALL_AT_ONCE, until=Window(length_ms=60_000)), on_step=turn)
    world.set_low_watermark(2000)
    assert {("a", b""), ("a", b"m")} <= set(passed(world))


def test_table_that_is_named_is_due(world: World) -> None:
    """An operator's word goes before the table's."""
    world.compact()
    ask(world, "b", every="7d")
    world.set_low_watermark(2000)
    options = replace(ALL_AT_ONCE, tables=frozenset({"b"}))
    assert {table for table, _ in passed(world, options)} == {"b"}


def test_an_option_goes_before_an_attribute(world: World) -> None:
    """For one run, and for one table."""
    world.compact()
    ask(world, "b", every="7d", priority=1)
    world.set_low_watermark(2000)
    words = ["b:every=0", "a:priority=2", "c:priority=3"]
    told = options_from_words(table_option=words, grace="0")
    assert [table for table, _ in passed(world, told)] == ["c", "c", "a", "a", "b", "b"]


# -- retention -------------------------------------------------------------------------------------


def counted_days(world: World) -> None:
    """Let the oracle have issued ten timestamps a day, and drop nothing younger than that."""
    for day in range(DAYS + 1):
        sample = Sample(round(day * DAY_S * 1000), world.clock.wall_ms(), 90 * day)
        world.control.write(sample_row(sample.elapsed_ms), encode_document(sample))


@pytest.mark.parametrize(
    ("of_run_d", "of_tables", "horizon"),
    [(2, {}, 720), (2, {"b": "1d"}, 720), (2, {"b": "5d"}, 450), (2, {"a": "3d", "b": "5d"}, 450)],
)
def test_the_longest_retention_holds_for_all(
    world: World, of_run_d: int, of_tables: dict[str, str], horizon: int
) -> None:
    """A snapshot that may read one table may read all of them (I10)."""
    counted_days(world)
    for table, retention in of_tables.items():
        ask(world, table, retention=retention)
    world.compact(Options(retention_s=of_run_d * DAY_S))
    assert Watermarks(world.control).collection_horizon() == horizon


def test_retention_that_says_nothing_keeps_everything(world: World) -> None:
    """It may have meant a year; a note says so, and the run does all the rest."""
    counted_days(world)
    for version in (500, 600, 700):
        world.heal(world.put(b"a", version, table="b"), version + 20, table="b")
    world.compact(Options(retention_s=DAY_S))
    world.clock.advance(7200)
    world.store.set_table_attributes("b", {ATTRIBUTES["retention"]: "long"})
    report, notes = noted(world, Options(retention_s=DAY_S))
    assert report.cells_dropped == 0
    assert notes == [
        (
            "table b has OMIDPY_RETENTION='long', which says nothing: no version of any table is "
            "dropped; run `omidpy table set b retention=... --apply`, or `omidpy table unset b "
            "retention --apply`"
        )
    ]
    world.store.set_table_attributes("b", {ATTRIBUTES["retention"]: None})
    assert world.compact(Options(retention_s=DAY_S)).cells_dropped > 0


def noted(world: World, options: Options) -> tuple[Report, list[str]]:
    """Run a compaction; return its report and its notes."""
    report = world.compact(options)
    return report, list(RunLog(world.control).runs()[-1].notes)


# -- what somebody wrote ---------------------------------------------------------------------------


def test_other_settings_that_say_nothing_are_left_aside(world: World) -> None:
    """The table is passed over by every run, in its turn."""
    bad = {
        ATTRIBUTES["priority"]: "high",
        ATTRIBUTES["every"]: "daily",
        ATTRIBUTES["max-rows-per-s"]: "0",
        ATTRIBUTES["max-bytes-per-s"]: "much",
        ATTRIBUTES["until"]: "dawn",
    }
    world.store.set_table_attributes("b", bad)
    report, notes = noted(world, ALL_AT_ONCE)
    assert (report.laggards, report.cells_healed, len(notes)) == ([], 3, 5)
    assert all("left aside" in note for note in notes)


def test_settings_come_back_as_they_were_set() -> None:
    """Durations in seconds, sizes in bytes."""
    words = {
        "priority": -3,
        "retention": "30d",
        "every": "90m",
        "max-rows-per-s": 20_000,
        "max-bytes-per-s": "1.5MB",
        "until": "6:30Z",
    }
    found, complaints = settings_of("t", setting_attributes("t", words))
    assert (found, complaints) == ((-3, 30 * DAY_S, 5400.0, 20_000, 1.5e6, DAWN), ())
    assert settings_of("t", {}) == ((0, 0.0, 0.0, None, None, None), ())


@pytest.mark.parametrize("make", [TransactionManager.create_table, admin.create_table])
def test_a_new_table_has_what_it_was_given(make: Callable[..., None]) -> None:
    """Every setting may be given where the table is made."""
    store = MemoryStore()
    with TransactionManager(store, EmbeddedOracle(store)) as tm:
        make(
            tm,
            "new",
            ["cf"],
            priority=2,
            retention="1d",
            every="2d",
            max_rows_per_s=3,
            max_bytes_per_s="4kB",
            until="06:30Z",
        )
        found, complaints = settings_of("new", store.schema("new").attributes)
    assert (found, complaints) == ((2, DAY_S, 2 * DAY_S, 3, 4000, DAWN), ())


@pytest.mark.parametrize("make", [TransactionManager.create_table, admin.create_table])
def test_whoever_makes_a_table_can_give_every_setting(make: Callable[..., None]) -> None:
    """Type checkers read the signature; a setting that it lacks could be given later alone."""
    arguments = inspect.signature(make).parameters.values()
    given = [one.name for one in arguments if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert given == [one.key for one in TABLE]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"priority": "high"}, "priority='high' of table 't': write an integer"),
        ({"priority": True}, "priority=True of table 't'"),
        ({"priority": 1.5}, "priority=1.5 of table 't'"),
        ({"retention": "30"}, "retention='30' of table 't': write a number and a unit"),
        ({"every": "daily"}, "every='daily' of table 't'"),
        ({"max-rows-per-s": 0}, "max-rows-per-s=0 of table 't': write how many"),
        ({"max-rows-per-s": "1e3"}, "max-rows-per-s='1e3' of table 't'"),
        ({"max-bytes-per-s": "0.5"}, "max-bytes-per-s='0.5' of table 't': write a size"),
        ({"max-bytes-per-s": "fast"}, "max-bytes-per-s='fast' of table 't'"),
        ({"until": "25:00"}, "until='25:00' of table 't': write how long"),
        ({"until": "0"}, "until='0' of table 't': write how long"),
        ({"color": "red"}, "has no setting 'color'; there are priority, retention, every"),
    ],
)
def test_bad_settings_are_named_when_they_are_set(words: dict[str, object], said: str) -> None:
    """With the table, and what to write."""
    with pytest.raises(UsageError, match=said):
        setting_attributes("t", words)


@pytest.mark.parametrize("word", ["accounts", "accounts:", ":every=1d", "a:every", "a:every="])
def test_table_options_that_say_nothing_are_named(word: str) -> None:
    """With how to write one."""
    with pytest.raises(UsageError, match="accounts:retention=30d,priority=5"):
        options_from_words(table_option=[word])


def test_table_options_name_tables_with_namespaces(world: World) -> None:
    """And unknown ones are a typo."""
    options = options_from_words(table_option=["ns:t:every=1d,priority=2", "ns:t:priority=3"])
    assert options.table_options == {"ns:t": {"every": "1d", "priority": "3"}}
    with pytest.raises(UsageError, match="ns:t"):
        world.compact(options)
