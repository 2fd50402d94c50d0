"""Long commits without one of their guards: the games that hold slices to the whole find each."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.machines.engines import with_few_at_hand
from tests.machines.long_commits import play, play_known

GAMES: Final = 1000
FEW: Final = 5

GUARDS: Final = {
    "what is committed between the look and the decision": (
        "            left = min(commits.set_count - commit.set_count, commits.count)\n",
        "            left = 0\n",
    ),
    "what is committed while the looks go on": (
        "            commit.examined_count = end\n",
        "            commit.examined_count, commit.set_count = end, commits.set_count\n",
    ),
    "the part that a slice leaves of it": (
        "            commit.set_count = commits.set_count - (left - count)\n",
        "            commit.set_count = commits.set_count\n",
    ),
    "the looks that are left when it is decided": (
        "        while not self.examine(commit, _MAX_CAPACITY):\n            pass\n",
        "",
    ),
    "the numbers that are left to tell apart": (
        "        while not commit.sort(_MAX_CAPACITY):\n            pass\n",
        "",
    ),
    "the low watermark at the decision": (
        "            return ABORT_LOW_WATERMARK\n        if self._fences and self._is_fenced",
        "            pass\n        if self._fences and self._is_fenced",
    ),
    "a fence at the decision": (
        "        if self._fences and self._is_fenced(start_ts, commit.tables):\n",
        "        if False:\n",
    ),
    "an earlier one that is not in its place": (
        "        if commits.unfilled:\n            commits.fill(most)\n            return False\n",
        "",
    ),
    "what is not in its place, for small commits": (
        "        if place >= self._gap_filled:\n            found",
        "        if False:\n            found",
    ),
    "what was in its place and is forgotten": (
        "        if place >= self._gap_filled:\n            found",
        "        if place >= 0:\n            found",
    ),
    "stale slots behind what was set since": (
        "age_here >= latest or self._is_unfilled(slot):",
        "age_here >= latest:",
    ),
    "stale slots before a place": (
        "age_here >= own_age or self._is_unfilled(first):",
        "age_here >= own_age:",
    ),
    "what was set since, in a chain": (
        "            newer = self._newer_than(slot, first) if first else 0\n",
        "            newer = 0\n",
    ),
    "stale values": (
        "        if self.unfilled and self._is_unfilled(slot):\n",
        "        if False:\n",
    ),
    "a place that goes before it is filled": (
        "        if is_filling and cell_count > commits.room_beside():\n",
        "        if False:\n",
    ),
    "the table in which another stood": (
        "                self._places[place] = 0\n",
        "                pass\n",
    ),
    "memory that is still another's": (
        "        self._memory.give_back(self, typecode, room)\n",
        "        self._memory._keep(typecode, room)\n",
    ),
    "memory that grows before all is in its place": (
        "            room = min(room, self._slot_count - 1 - self.count)\n",
        "            pass\n",
    ),
    "memory that grows for a long one": (
        "        while self._slot_count <= self.capacity and self.count + count >=",
        "        while False and self.count + count >=",
    ),
    "what a long one pushes out": (
        "            if forgotten_ts > self.low_watermark:\n",
        "            if False:\n",
    ),
    "what it pushes out that is known to be old": (
        "            if not self._is_old[slot]:\n                forgotten",
        "            if True:\n                forgotten",
    ),
    "what it writes again": (
        "            self._commits.mark(cells.number(place), _AT_HAND - place)\n",
        "            pass\n",
    ),
    "how long that is at hand": (
        "            self._commits.mark(cells.number(place), _AT_HAND - place)\n",
        "            self._commits.mark(cells.number(place), _AT_HAND)\n",
    ),
    "what is written again before it is in its place": (
        "            self._is_old[before] = _MARKED\n            before = 0\n",
        "            before = 0\n",
    ),
    "the mark of what was pushed out": (
        "            self._is_old[slot] = self._is_old[slot] == _MARKED\n",
        "            pass\n",
    ),
    "repeated cells": (
        "            if not self._places[bucket]:\n",
        "            if True:\n",
    ),
}


def is_found(engine: ModuleType) -> bool:
    """Say whether a broken engine is told from one that decides each commit as one."""
    try:
        play_known(engine)
        for game in range(GAMES):
            play(game, engine, engine, at_hand=FEW)
    except (AssertionError, IndexError):
        return True
    return False


@pytest.mark.parametrize("guard", GUARDS)
def test_a_long_commit_without_a_guard_is_found(tmp_path: Path, guard: str) -> None:
    """By another verdict, another watermark, or a cell that is not found."""
    assert is_found(with_few_at_hand(tmp_path, FEW, GUARDS[guard]))


def test_with_all_guards_nothing_is_found(tmp_path: Path) -> None:
    """Otherwise everything above would be found as well."""
    engine = with_few_at_hand(tmp_path, FEW)
    play_known(engine)
    for game in range(GAMES // 10):
        play(game, engine, engine, at_hand=FEW)
