"""The product in the simulator: recorded seeds, new ones each day, and the same hash twice."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import pytest

from omidpy.base.timing import pauses
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from tests.machines.simulator import __main__ as simulator
from tests.machines.simulator import runs
from tests.machines.simulator.before import WITHOUT
from tests.machines.simulator.before import before as release_before
from tests.machines.simulator.marks import all_marks
from tests.machines.simulator.network import Weather
from tests.machines.simulator.plan import ALONE, CROWDED, FOCI, USUAL, Fault, Focus, drawn_plan
from tests.machines.simulator.rare import MOST_SEEDS, SEEKING
from tests.machines.simulator.runs import Ran, run_all
from tests.machines.simulator.simulation import simulate
from tests.machines.simulator.store import SharedStore, Stall
from tests.machines.simulator.watch import Watch
from tests.machines.simulator.world import SimClock, World

RECORDED: Final = (
    6,
    71,
    160,
    532,
    1_000_749,
    1_000_873,
    4_001_678,
    5_002_344,
    5_003_114,
    5_003_732,
)
"""Seeds that once found something, be it in the simulator itself."""


class News(NamedTuple):
    """How many seeds nobody has run before."""

    alone: int
    crowded: int
    usual: int
    is_much: bool
    """So many that what is rare happens in them, too."""


# By day one row of some thousands lacks what is asked for.
BY_DAY: Final = News(25, 12, 10, is_much=False)
BY_NIGHT: Final = News(60, 24, 60, is_much=True)

NIGHTLY_COUNTS: Final = {
    "alone": 20_000,
    "crowded": 20_000,
    "usual": 8_000,
    "lame": 8_000,
    "dark": 8_000,
    "rolling": 4_000,
}
"""By focus: together some 1,200 simulated hours, and some 15 of a processor."""
WINDOW: Final = 1_000
"""So many seeds are one test, which ends in time: each takes two seconds of a processor at most."""

REACHED_DAILY: Final = frozenset(
    {
        "commit.found_aborted",
        "lease.lost",
        "lease.stood_still",
        "oracle.commit_from_memory",
        "oracle.decided_after_look_up",
        "oracle.forgotten_looked_up",
        "oracle.invalidation_from_table",
        "oracle.map_evicted",
        "oracle.put_then_check",
        "oracle.retry_looked_up",
        "oracle.run_of_commits",
        "oracle.snapshot_too_old",
        "oracle_client.asks_again",
        "outcome.forbidden",
        "reader.healed",
        "reader.invalidated",
    }
)
"""What each day's seeds reach, whatever seeds mean: others take a night."""

DONE_BESIDE: Final = (
    *("compactions done", "cells healed", "entries pruned", "entries exported"),
    *("parts merged", "orders carried out", "changes followed", "strangers refused"),
    *("juggled committed", "tasks cancelled", "loops that end abandoned"),
    *("compactions ended by StorageUnavailable", "exports ended by StorageUnavailable"),
)
"""What others do, each in a fifth of all usual seeds or more."""
MOST_MISSING: Final = 4
"""In ten seeds: of 30,000 rows of them, drawn from 290, none lacked more, and eight lacked four."""

MOST_FOR_MARKS: Final = 3_000
"""In so many seeds of each focus every mark is reached."""

DAY_AND_NIGHT: Final = pytest.mark.parametrize(
    "news", [BY_DAY, pytest.param(BY_NIGHT, marks=pytest.mark.nightly)], ids=["some", "more"]
)


def _run(seeds: range, focus: Focus = ALONE, marks: set[str] | None = None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        report = simulate(seed, focus=focus)
        assert not report.findings, report
        counts += report.counts
        if marks is not None:
            marks |= report.reached
    return counts


def _first_of_the_day(count: int) -> int:
    """Return a seed that no other day has; the same all day, so that a failure can be had again."""
    return int(time.time() // 86_400) * count


@pytest.mark.parametrize("seed", RECORDED)
def test_a_recorded_seed_finds_nothing(seed: int) -> None:
    """What was found once must not come back."""
    _run(range(seed, seed + 1))


@DAY_AND_NIGHT
def test_new_seeds_find_nothing(news: News) -> None:
    """And things must go wrong in them, else they prove nothing."""
    first = _first_of_the_day(news.alone)
    marks: set[str] = set()
    counts = _run(range(first, first + news.alone), marks=marks)
    first = _first_of_the_day(news.crowded)
    crowded = _run(range(first, first + news.crowded), CROWDED, marks)
    assert not REACHED_DAILY - marks
    assert crowded["rounds of crowds"] > news.crowded
    assert counts["transactions committed"] > 30 * news.alone
    counts += crowded
    assert counts["unknown outcomes settled"] > 0
    for what in ("crash", "pause", "cut", "slow", "full", "clock", "stop", "hang up"):
        assert counts[f"fault {what}"] > 0, what
    for what in ("calls lost", "calls late", "answers lost"):
        assert counts[what] > 0, what
    rare = ("writes torn", "writes twice")
    assert (all if news.is_much else any)(counts[what] > 0 for what in rare)
    assert counts["oracles ended by LeaseLost"] > 0


@DAY_AND_NIGHT
def test_new_seeds_with_others_find_nothing(news: News) -> None:
    """Who compacts and who exports, some of them in another one's place."""
    first = _first_of_the_day(news.usual)
    counts = _run(range(first, first + news.usual), USUAL)
    missing = [what for what in DONE_BESIDE if not counts[what]]
    if news.is_much:
        assert not missing
        for what in DONE_BESIDE[:4]:
            assert counts[what] > news.usual, what
    assert len(missing) <= MOST_MISSING


def _windows() -> Iterator[tuple[str, int]]:
    """Yield which focus, and how many seeds of the night come before."""
    for focus, count in NIGHTLY_COUNTS.items():
        yield from ((focus, before) for before in range(0, count, WINDOW))


def test_a_night_has_seeds_of_every_focus() -> None:
    """Each of them once."""
    assert NIGHTLY_COUNTS.keys() == FOCI.keys()
    assert len(set(_windows())) * WINDOW == sum(NIGHTLY_COUNTS.values())


@pytest.mark.nightly
@pytest.mark.parametrize(("focus", "before"), list(_windows()))
def test_many_new_seeds_find_nothing(focus: str, before: int) -> None:
    """All of them together for some hours, on all cores."""
    if any(FOCI[focus].before_shares) and release_before() is None:
        pytest.skip(WITHOUT)
    first = _first_of_the_day(NIGHTLY_COUNTS[focus]) + before
    for ran in run_all(first, WINDOW, focus=focus):
        assert not ran.failures, "\n".join(ran.texts)


@pytest.mark.nightly
def test_every_mark_is_reached() -> None:
    """A branch that no seed takes is tested by none of them."""
    missing = {mark.name for mark in all_marks()} - set(SEEKING)
    first = _first_of_the_day(MOST_FOR_MARKS)
    for seed in range(first, first + MOST_FOR_MARKS):
        for focus in (one for one in FOCI.values() if not any(one.before_shares)):
            report = simulate(seed, focus=focus)
            assert not report.findings, report
            missing -= report.reached
        if not missing:
            break
    assert not missing


@pytest.mark.nightly
@pytest.mark.parametrize("mark", SEEKING)
def test_a_rare_mark_is_reached_where_it_is_sought(mark: str) -> None:
    """Few seeds of the other foci come to it."""
    assert mark in {one.name for one in all_marks()}
    first = _first_of_the_day(MOST_SEEDS)
    for seed in range(first, first + MOST_SEEDS):
        report = simulate(seed, focus=SEEKING[mark])
        assert not report.findings, report
        if mark in report.reached:
            return
    pytest.fail(f"no seed from {first} on has reached it")


def test_seeds_that_find_something_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where whoever looks at them comes long after the run, or it is interrupted."""
    path = tmp_path / "build" / "simulated.txt"
    path.parent.mkdir()
    path.write_text("3 usual I2: of another day\n", "utf-8")

    def run(seeds: range, *, focus: str, is_told: bool) -> Ran:
        del focus, is_told
        if seeds[0] > 50:
            raise KeyboardInterrupt
        failures = [(seed, "I1: of two\nlines") for seed in seeds if seed in {7, 8}]
        return Ran(Counter(seeds=len(seeds)), Counter(), failures, [])

    monkeypatch.setattr(runs, "run", run)
    arguments = ["--seeds", "0", "--first", "1", "--jobs", "1", "--focus", "alone"]
    monkeypatch.setattr(sys, "argv", ["simulator", *arguments, "--keep", str(path)])
    assert simulator.main() == 1
    assert path.read_text("utf-8").splitlines() == [
        "3 usual I2: of another day",
        "7 alone I1: of two lines",
        "8 alone I1: of two lines",
    ]
    assert str(path) in capsys.readouterr().out


@pytest.mark.parametrize(("first_s", "second_s"), [(29.1 + 1 / 3, 0.5), (3.0, 26.6 + 1 / 3)])
def test_a_paused_process_finds_everything_in_the_order_in_which_it_came(
    first_s: float, second_s: float
) -> None:
    """A frame in two pieces is no frame if the second is read first.

    Also where it is paused again before it goes on, for longer or for a moment.
    """
    world = World(seed=0)
    process = world.process("oracle-a", SimClock(world, "oracle-a", ahead_ms=0))
    process.pause(first_s)
    world.at(2.5, None, partial(process.pause, second_s))
    found: list[int] = []
    for number in range(100):
        world.at(number / 7, process, partial(found.append, number))
    world.run(lambda: False, until_s=30.0)
    assert found == list(range(100))
    assert world.now_s == process.paused_until_s


@pytest.mark.parametrize(
    ("seed", "name"),
    [
        (5, "USUAL"),
        *(
            pytest.param(seed, name, marks=pytest.mark.nightly)
            for seed, name in [*((seed, "ALONE") for seed in (4, 5, 6)), (4, "USUAL"), (6, "USUAL")]
        ),
    ],
)
def test_a_seed_gives_the_same_hash_in_another_process(seed: int, name: str) -> None:
    """A failure can be had again, whatever the hashes of strings are there."""
    command = (
        "from tests.machines.simulator import plan, simulation; "
        f"print(simulation.simulate({seed}, focus=plan.{name}).digest)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", command],
        env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    focus = {"ALONE": ALONE, "USUAL": USUAL}[name]
    digests = [simulate(one, focus=focus).digest for one in (seed, seed + 1)]
    assert digests[0] == elsewhere != digests[1]


@pytest.mark.parametrize("seed", range(20))
def test_who_else_is_there_shifts_nothing_in_a_plan(seed: int) -> None:
    """Else every actor that is added would give all seeds another meaning."""
    plan = drawn_plan(seed, ALONE)
    crowded = drawn_plan(seed, ALONE._replace(exporters=(2,), operators=(3,)))
    added = set(crowded.others.names())
    assert added
    assert crowded.settings == plan.settings
    assert crowded.habits == plan.habits
    known = [one for one in crowded.faults if added.isdisjoint((one.target, one.other))]
    assert known == list(plan.faults)
    assert {name: one for name, one in crowded.stalls.items() if name not in added} == plan.stalls


def test_who_is_struck_while_it_is_down_is_started_once() -> None:
    """Of two with one name the judge would wait for one, and judge what the other still does."""
    plan = drawn_plan(6, ALONE)
    twice = tuple(Fault(at_s, "crash", "client-0", seconds=5.0) for at_s in (1.0, 2.0))
    habits = plan.habits._replace(death_share=0.0)
    report = simulate(
        6, focus=ALONE, plan=plan._replace(faults=twice, habits=habits), keeps_story=True
    )
    ends = [line for line in report.story if line.endswith(" client-0 ends")]
    assert len(ends) == 2, "it was killed, and went with its world"


def test_a_page_has_no_more_rows_than_a_seed_allows() -> None:
    """Who believes that a short page is the last one must be found out."""
    world = World(seed=0)
    weather = Weather(world)
    shared = SharedStore(world, weather, Watch(world), "cluster")
    shared.page_rows = 2
    shared.memory.create_table(TableSchema("t", (FamilySchema(b"cf"),)))
    rows = [RowMutation(b"%d" % row, (Put(b"cf", b"q", 1, b"v"),)) for row in range(5)]
    shared.memory.write({"t": rows})
    process = world.process("one", SimClock(world, "here", ahead_ms=0))
    pages: list[int] = []
    process.start(lambda: pages.extend(len(page) for page in shared.of(process).scan("t")))
    world.run(lambda: False, until_s=10.0)
    assert pages == [2, 2, 1]


def test_a_stall_is_before_any_of_several_calls() -> None:
    """One before all calls alike would be met by chance alone."""
    stall = Stall(0.1, 1.0, "write v_|check_and_mutate")
    assert stall.is_before("write v_bank")
    assert stall.is_before("check_and_mutate OMID_COMMIT_TABLE")
    assert not stall.is_before("get v_bank")
    assert Stall(0.1).is_before("get v_bank")


def test_dice_of_one_process_leave_those_of_others_alone() -> None:
    """However often it throws them, and how many of its name there are."""
    draws: set[tuple[float, ...]] = set()
    for count in range(3):
        world = World(seed=1)
        clock = SimClock(world, "here", ahead_ms=0)
        for _ in range(count):
            process = world.process("one", clock)
            process.dice("pauses").random()
            process.dice("deaths").random()
        other = world.process("other", clock)
        draws.add(tuple(other.dice("pauses").random() for _ in range(3)))
    assert len(draws) == 1
    world = World(seed=1)
    first, second = (world.process("one", clock) for _ in range(2))
    assert first.dice("pauses").random() != second.dice("pauses").random()


def test_pauses_of_a_run_come_from_its_seed() -> None:
    """They were drawn from the system once, and few seeds are long enough to notice."""
    before = pauses.dice
    digests = {
        simulate(6, focus=ALONE).digest for _ in range(2)
    }  # a client's pause decides what it reads
    assert len(digests) == 1
    assert pauses.dice is before


def test_what_a_program_sleeps_passes_in_the_time_of_its_world() -> None:
    """Wherever the product sleeps; a seed whose operators met lost answers took over a minute."""
    world, really_slept = World(seed=1), time.sleep
    woke_s = []

    def nap() -> None:
        time.sleep(3600)
        woke_s.append(world.now_s)

    with mock.patch.object(time, "sleep", pytest.fail), world.nothing_waits():
        world.process("one", SimClock(world, "here", ahead_ms=0)).start(nap)
        world.run(lambda: bool(woke_s), until_s=7200)
    assert woke_s == [3600]
    assert time.sleep is really_slept


def test_a_program_that_waits_by_the_clock_on_the_wall_is_an_error() -> None:
    """Also where who calls takes any exception for an answer."""
    world = World(seed=1)
    over = []

    def wait() -> None:
        with contextlib.suppress(Exception):
            threading.Event().wait(0.01)
        over.append(True)

    world.process("one", SimClock(world, "here", ahead_ms=0)).start(wait)
    with world.nothing_waits(), pytest.raises(AssertionError, match="one waits up to"):
        world.run(lambda: False, until_s=10)
    assert over
