"""The product in the simulator: recorded seeds, new ones each day, and the same hash twice."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from functools import partial
from typing import Final

import pytest

from omidpy.base import pauses
from tests.machines.simulator.simulation import simulate
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

NEW_COUNT: Final = 80
NEW_WITH_OTHERS: Final = 25
NIGHTLY_COUNT: Final = 20_000


def _run(seeds: range, *, with_others: bool = False) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        report = simulate(seed, with_others=with_others)
        assert not report.findings, report
        counts += report.counts
    return counts


def _first_of_the_day(count: int) -> int:
    """Return a seed that no other day has; the same all day, so that a failure can be had again."""
    return int(time.time() // 86_400) * count


@pytest.mark.parametrize("seed", RECORDED)
def test_a_recorded_seed_finds_nothing(seed: int) -> None:
    """What was found once must not come back."""
    _run(range(seed, seed + 1))


def test_new_seeds_find_nothing() -> None:
    """And things must go wrong in them, else they prove nothing."""
    first = _first_of_the_day(NEW_COUNT)
    counts = _run(range(first, first + NEW_COUNT))
    assert counts["transactions committed"] > 30 * NEW_COUNT
    assert counts["unknown outcomes settled"] > 0
    for what in ("crash", "pause", "cut", "slow", "full", "clock", "stop", "hang up"):
        assert counts[f"fault {what}"] > 0, what
    for what in ("calls lost", "calls late", "answers lost", "writes torn", "writes twice"):
        assert counts[what] > 0, what
    assert counts["oracles ended by LeaseLost"] > 0


def test_new_seeds_with_others_find_nothing() -> None:
    """Who compacts and who exports, some of them in another one's place."""
    first = _first_of_the_day(NEW_WITH_OTHERS)
    counts = _run(range(first, first + NEW_WITH_OTHERS), with_others=True)
    for what in ("compactions done", "cells healed", "entries pruned", "entries exported"):
        assert counts[what] > NEW_WITH_OTHERS, what
    for what in ("compactions", "exports"):
        assert counts[f"{what} ended by StorageUnavailable"] > 0, what


@pytest.mark.nightly
@pytest.mark.parametrize("with_others", [False, True])
def test_many_new_seeds_find_nothing(*, with_others: bool) -> None:
    """For some hours."""
    first = _first_of_the_day(NIGHTLY_COUNT)
    _run(range(first, first + NIGHTLY_COUNT), with_others=with_others)


def test_a_paused_process_finds_everything_in_the_order_in_which_it_came() -> None:
    """A frame in two pieces is no frame if the second is read first."""
    world = World(seed=0)
    process = world.process("oracle-a", SimClock(world, "oracle-a", ahead_ms=0))
    process.paused_until_s = 29.1 + 1 / 3
    found: list[int] = []
    for number in range(100):
        world.at(number / 7, process, partial(found.append, number))
    world.run(lambda: False, until_s=30.0)
    assert found == list(range(100))
    assert world.now_s == process.paused_until_s


@pytest.mark.parametrize("with_others", [False, True])
@pytest.mark.parametrize("seed", [4, 5, 6])
def test_a_seed_gives_the_same_hash_in_another_process(seed: int, *, with_others: bool) -> None:
    """A failure can be had again, whatever the hashes of strings are there."""
    command = (
        "from tests.machines.simulator.simulation import simulate as s; "
        f"print(s({seed}, with_others={with_others}).digest)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", command],
        env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    digests = [simulate(one, with_others=with_others).digest for one in (seed, seed + 1)]
    assert digests[0] == elsewhere != digests[1]


def test_pauses_of_a_run_come_from_its_seed() -> None:
    """They were drawn from the system once, and few seeds are long enough to notice."""
    before = pauses.dice
    digests = {simulate(6).digest for _ in range(2)}  # a client's pause decides what it reads
    assert len(digests) == 1
    assert pauses.dice is before
