"""The compiled reader of answers under AddressSanitizer: it reads no byte behind the frame."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Final

import pytest

from tests.machines.engines import ANSWERS, build_module, kept_module
from tests.machines.sanitizing import FLAGS, PATIENCE_S, attack, needed_sanitizer

PROGRAM: Final = "tests.machines.hostile_answers"
FRAMES_BY_DAY: Final = 5_000
FRAMES_FOR_GUARDS: Final = 20_000
FRAMES_BY_NIGHT: Final = 10_000_000


@pytest.mark.parametrize(
    "frame_count",
    [
        FRAMES_BY_DAY,
        pytest.param(FRAMES_BY_NIGHT, marks=[pytest.mark.nightly, pytest.mark.timeout(PATIENCE_S)]),
    ],
)
def test_no_answer_is_read_beyond_its_bytes(frame_count: int) -> None:
    """And the two forms agree on every one of them."""
    needed_sanitizer()
    built = kept_module(ANSWERS, flags=FLAGS)
    seed = random.SystemRandom().getrandbits(32)
    ended = attack(PROGRAM, built, seed=seed, payload_count=frame_count)
    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}{ended.stderr[-5000:]}"
    assert ended.stdout.startswith(f"{frame_count} payloads")
    assert int(ended.stdout.split()[2]) > frame_count / 20, "most of them were none at all"


GUARDS: Final = {
    "a field beyond the message": (
        "        while self._position < self._end:\n            key =",
        "        while True:\n            key =",
    ),
    "bytes beyond the message": ("        if length > left:\n", "        if False:\n"),
    "a number beyond the message": (
        "        while self._position < self._end:\n            byte =",
        "        while True:\n            byte =",
    ),
    "a number of too many bits": ("if shift == 63 and byte > 1:", "if shift == 70:"),
    "a block of another length": ("if cells_length != len(frame) - position:", "if False:"),
    "parts that are missing": ("if len(parts) != part_count:", "if False:"),
}
"""From the number of too many bits on they stay within the frame: that such a one is not found
would say that nothing is compared.
"""


def test_each_guard_stands_in_the_source_once() -> None:
    """By day, too: else a change of the source leaves the night with guards that are no more."""
    source = ANSWERS.read_text()
    assert {name: source.count(guard) for name, (guard, _) in GUARDS.items()} == dict.fromkeys(
        GUARDS, 1
    )


@pytest.mark.nightly
@pytest.mark.parametrize(("guard", "broken"), GUARDS.values(), ids=GUARDS)
def test_a_reader_without_a_guard_is_found(tmp_path: Path, guard: str, broken: str) -> None:
    """It reads on, and its process ends: by the sanitizer, or with another reading."""
    needed_sanitizer()
    built = build_module(tmp_path, ANSWERS, ANSWERS.read_text().replace(guard, broken), flags=FLAGS)
    ended = attack(PROGRAM, built, seed=1, payload_count=FRAMES_FOR_GUARDS)
    assert re.search(r"AddressSanitizer|(Assertion|System|Overflow)Error", ended.stderr), (
        ended.stderr
    )
