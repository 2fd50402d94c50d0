"""Runs without one of their guards: the games that hold them to single requests find each."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.machines.engines import SOURCE, interpreted_engine
from tests.machines.oracle_streams import compare, machine_with
from tso.core import batches as true_batches
from tso.core import machine as true_machine

GAMES: Final = 600
GAMES_BY_DAY: Final = 100

ENGINE_GUARDS: Final = {
    "a transaction never issued": (
        "if not owner or owner not in (_EVERYBODYS, self._client):",
        "if owner not in (0, _EVERYBODYS, self._client):",
    ),
    "a transaction of somebody else's": (
        "if not owner or owner not in (_EVERYBODYS, self._client):",
        "if not owner:",
    ),
    "a transaction of nobody knows whose": (
        "if not owner or owner not in (_EVERYBODYS, self._client):",
        "if not owner or owner not in (_EVERYBODYS, _FORGOTTEN, self._client):",
    ),
    "a decision that was forgotten": (
        "if start_ts <= self._decisions.forgotten_start or self._decisions.get(start_ts):",
        "if self._decisions.get(start_ts):",
    ),
    "a decision that is remembered": (
        "if start_ts <= self._decisions.forgotten_start or self._decisions.get(start_ts):",
        "if start_ts <= self._decisions.forgotten_start:",
    ),
    "an invalidation": (
        "return not (self._invalidated and start_ts in self._invalidated)",
        "return True",
    ),
    "a decision that is noted": ("        self._decisions.note(start_ts, decision)\n", ""),
    "too many cells": (
        "self._max_numbers:\n            return False\n        self._cells",
        "RUN_NUMBERS:\n            return False\n        self._cells",
    ),
    "too many tables": (
        "self._max_numbers:\n            return False\n        self._tables",
        "RUN_NUMBERS:\n            return False\n        self._tables",
    ),
    "a retry": (
        "            else:\n                return False\n        return self._is_fresh",
        "        return self._is_fresh",
    ),
    "a refusal": ("= decision < 0\n", "= 0\n"),
    "a refusal that is no commit": ("        if decision > 0:\n", "        if True:\n"),
    "a refusal that is explained": (
        "            if self._tells_why:\n                return False\n",
        "",
    ),
    "a request that is no commit": ("if self._data[first] != _COMMIT or position", "if position"),
    "a begin that is held": (
        "                length == _SHORTEST_FRAME - _FRAME_HEAD\n                and self",
        "                self",
    ),
    "a begin with a length": ("\n                and self._data[first + 1] == 0\n", "\n"),
    "a message that ends before its frame": ("if self._value != left or not left or", "if"),
    "a frame that is not there": ("or length > size - first:", "or length > size:"),
    "cells beyond their field": (
        "                if self._value > left:\n                    return False\n",
        "",
    ),
    "begins before the first commit": (
        "        elif not self.commit_count:\n            self._end_early()\n",
        "",
    ),
    "the low watermark": ("        if self._shows_watermark:\n", "        if True:\n"),
    "the newest fence": (
        "            if self._engine.newest_fence > self._engine.low_watermark:\n",
        "            if False:\n",
    ),
    "a fence that the watermark has passed": (
        "            if self._engine.newest_fence > self._engine.low_watermark:\n",
        "            if True:\n",
    ),
}

MACHINE_GUARDS: Final = {
    "an oracle that stops": ("        if self._is_stopping:\n            return 0, 0\n", ""),
    "begins leave before a commit": (
        "            batches.open_decisions().commits.add_bytes",
        "            batches._pending.commits.add_bytes",
    ),
    "the ceiling above begins": (
        "                batches.note(early_ts)\n",
        "                pass\n",
    ),
    "refusals need no ceiling": (
        "            if early_ts := run.early_ts:\n",
        "            if (early_ts := run.early_ts) or True:\n",
    ),
    "the ceiling above commits": ("            batches.note(self._engine.last_issued)\n", ""),
    "a commit that the table refused": (
        "                if result.refused:\n",
        "                if False:\n",
    ),
    "what the store makes durable": (
        "            batches.open_decisions().commits.add_bytes(run.entries())\n",
        "            batches.open_decisions()\n",
    ),
}

FOUND_LATE: Final = {"refusals need no ceiling"}
"""By night alone: its game is one of hundreds."""

BATCHES_GUARDS: Final = {
    "answers that wait": ("        pending.framed_count += count - 1\n", ""),
    "answers that wait for the ceiling": (
        "            batch.framed_count += self._early.framed_count\n",
        "",
    ),
}


def load(folder: Path, source: Path, guard: str, broken: str) -> ModuleType:
    """Load a module's source without a guard."""
    text = source.read_text()
    assert text.count(guard) == 1, f"{guard!r} is not there once"
    path = folder / f"broken_{source.name}"
    path.write_text(text.replace(guard, broken))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_found(
    engine: ModuleType,
    machine: ModuleType,
    batches: ModuleType = true_batches,
    game_count: int = GAMES,
) -> bool:
    """Say whether a machine with one of its parts broken is told from the true one."""
    for game in range(game_count):
        with machine_with(engine, machine, batches) as running:
            try:
                compare(game, running, true_machine.Machine)
            except (AssertionError, IndexError):
                return True
    return False


@pytest.mark.parametrize("guard", ENGINE_GUARDS)
def test_a_run_without_a_guard_is_found(tmp_path: Path, guard: str) -> None:
    """By another answer, another batch, or bytes that are not there."""
    assert is_found(load(tmp_path, SOURCE, *ENGINE_GUARDS[guard]), true_machine)


@pytest.mark.parametrize(
    "guard",
    [
        pytest.param(guard, marks=pytest.mark.nightly if guard in FOUND_LATE else ())
        for guard in MACHINE_GUARDS
    ],
)
def test_a_machine_without_a_guard_is_found(tmp_path: Path, guard: str) -> None:
    """The same, where runs become batches and answers."""
    source = Path(true_machine.__file__)
    assert is_found(interpreted_engine(), load(tmp_path, source, *MACHINE_GUARDS[guard]))


@pytest.mark.parametrize("guard", BATCHES_GUARDS)
def test_batches_without_a_guard_are_found(tmp_path: Path, guard: str) -> None:
    """The same, where answers wait."""
    broken = load(tmp_path, Path(true_batches.__file__), *BATCHES_GUARDS[guard])
    assert is_found(interpreted_engine(), true_machine, broken)


@pytest.mark.parametrize(
    "game_count", [GAMES_BY_DAY, pytest.param(GAMES, marks=pytest.mark.nightly)]
)
def test_with_all_guards_nothing_is_found(game_count: int) -> None:
    """Otherwise everything above would be found as well: by day in the first games."""
    assert not is_found(interpreted_engine(), true_machine, game_count=game_count)
