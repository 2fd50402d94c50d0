"""The compiled engine under AddressSanitizer: no bytes make it touch what is not its own."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Final

import pytest

from tests.machines.engines import SOURCE, build_engine, kept_module
from tests.machines.sanitizing import FLAGS, PATIENCE_S, attack, needed_sanitizer

PAYLOADS_BY_DAY: Final = 8_000
PAYLOADS_BY_NIGHT: Final = 5_000_000
PAYLOADS_TO_FIND_A_GUARD: Final = 20_000
PROGRAM: Final = "tests.machines.hostile_frames"


@pytest.fixture(scope="module")
def built() -> Path:
    """Give the engine as it is."""
    needed_sanitizer()
    return kept_module(SOURCE, flags=FLAGS)


@pytest.mark.parametrize(
    "payload_count",
    [
        PAYLOADS_BY_DAY,
        pytest.param(
            PAYLOADS_BY_NIGHT, marks=[pytest.mark.nightly, pytest.mark.timeout(PATIENCE_S)]
        ),
    ],
)
def test_no_bytes_reach_beyond_their_own(built: Path, payload_count: int) -> None:
    """And the two forms agree on every one of them."""
    seed = random.SystemRandom().getrandbits(32)
    ended = attack(PROGRAM, built, seed=seed, payload_count=payload_count)
    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}{ended.stderr[-5000:]}"
    assert ended.stdout.startswith(f"{payload_count} payloads")


NUMBER: Final = (
    "        while self._position < end:\n            byte = self._data[self._position]\n"
    "            self._position += 1\n            if shift == 63 and byte > 1:\n                "
)
NUMBER_OF_A_RUN: Final = "        while position < end:\n            byte = self._data[position]\n"
CELL: Final = (
    "if self._cell_count + self._table_count >= self._max_numbers:\n"
    "            return False\n        self._cells["
)


GUARDS: Final = {
    "a length beyond the end": (
        "            if length > left:\n",
        "            if length > left + 1:\n",
    ),
    "a number beyond the end": (NUMBER, NUMBER.replace("self._position < end", "True")),
    "a number of a run beyond the end": (
        NUMBER_OF_A_RUN,
        NUMBER_OF_A_RUN.replace("position < end", "True"),
    ),
    "a frame of a run beyond the end": ("or length > size - first:", "or length > size + 99:"),
    "more answers than there is room for": (
        "< most\n            and",
        "< 2 * most\n            and",
    ),
    "more cells than there is room for": (
        CELL,
        CELL.replace("self._max_numbers", "2 * RUN_NUMBERS"),
    ),
}


def test_each_guard_stands_in_the_engine_once() -> None:
    """By day, too: else a change of the engine leaves the night with guards that are no more."""
    source = SOURCE.read_text()
    assert {name: source.count(guard) for name, (guard, _) in GUARDS.items()} == dict.fromkeys(
        GUARDS, 1
    )


@pytest.mark.nightly
@pytest.mark.parametrize(("guard", "broken"), GUARDS.values(), ids=GUARDS)
def test_a_reader_without_a_guard_is_found(tmp_path: Path, guard: str, broken: str) -> None:
    """It reads on, and its process ends: by the sanitizer, or with another reading."""
    needed_sanitizer()
    built = build_engine(tmp_path, SOURCE.read_text().replace(guard, broken), flags=FLAGS)
    ended = attack(PROGRAM, built, seed=1, payload_count=PAYLOADS_TO_FIND_A_GUARD)
    assert re.search("AddressSanitizer|AssertionError: (payload|stream)", ended.stderr), (
        ended.stderr
    )
