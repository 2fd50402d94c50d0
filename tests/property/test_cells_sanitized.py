"""The compiled codec of cells under AddressSanitizer: it reads no byte that is not the block's."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Final

import pytest

from tests.machines.engines import CELLS, build_module, kept_module
from tests.machines.sanitizing import FLAGS, PATIENCE_S, attack, needed_sanitizer

PROGRAM: Final = "tests.machines.hostile_cells"
BLOCKS_BY_DAY: Final = 3_000
BLOCKS_FOR_GUARDS: Final = 10_000
BLOCKS_BY_NIGHT: Final = 10_000_000


@pytest.mark.parametrize(
    "block_count",
    [
        BLOCKS_BY_DAY,
        pytest.param(BLOCKS_BY_NIGHT, marks=[pytest.mark.nightly, pytest.mark.timeout(PATIENCE_S)]),
    ],
)
def test_no_block_is_read_beyond_its_bytes(block_count: int) -> None:
    """And the two forms agree on every one of them."""
    needed_sanitizer()
    built = kept_module(CELLS, flags=FLAGS)
    seed = random.SystemRandom().getrandbits(32)
    ended = attack(PROGRAM, built, seed=seed, payload_count=block_count)
    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}{ended.stderr[-5000:]}"
    assert ended.stdout.startswith(f"{block_count} payloads")


GUARDS: Final = {
    "a block that begins beyond its end": (
        "if not 0 <= position <= len(data):",
        "if position < 0:",
    ),
    "a cell that begins beyond the end": (
        "if position + _LEAST > self._end:",
        "if position + 1 > self._end:",
    ),
    "a cell that ends beyond the end": (
        "position <= self._end and family_at <= stamp_at",
        "family_at <= stamp_at",
    ),
    "a family beyond its key": (" and family_at <= stamp_at", ""),
    "a qualifier beyond its key": ("if qualifier_at > stamp_at:", "if False:"),
    "a cell of which nothing is said": (
        "if said_at == run_end or not self._is_said(said_at, ahead, behind):",
        "if not self._is_said(said_at, ahead, behind):",
    ),
    "a search beyond what is said": (
        "while said_at < run_end and not self._is_said",
        "while not self._is_said",
    ),
    "what is said in fewer bytes": ("            and size == _STAMP_BYTES\n", ""),
    "what is said of another version": (
        "            and is_same(octets, stamp_at, octets, self._stamp_at, _STAMP_BYTES)\n",
        "",
    ),
    "what is said later": (
        "if not is_below(octets, self._said_at",
        "if is_below(octets, self._said_at",
    ),
    "a change before those asked for": ("if is_below(octets, stamp_at, first) or not", "if not"),
    "a change behind those asked for": (" or not is_below(octets, stamp_at, before):", ":"),
    "a column that a transaction wrote twice": (
        "if place and start_ts == last_start_ts",
        "if place > 99 and start_ts == last_start_ts",
    ),
    "a column that comes twice": ("            if name in values:\n", "            if False:\n"),
    "a number that takes its sign from C": (
        "    return value << 8 | octets[at + 3]\n",
        "    return octets[at] << 24 | (value & 0xFFFF) << 8 | octets[at + 3]\n",
    ),
}
"""From the one of fewer bytes on they stay within the block: that such a one is not found would say
that nothing is compared.
"""


def test_each_guard_stands_in_the_codec_once() -> None:
    """By day, too: else a change of the codec leaves the night with guards that are no more."""
    source = CELLS.read_text()
    assert {name: source.count(guard) for name, (guard, _) in GUARDS.items()} == dict.fromkeys(
        GUARDS, 1
    )


@pytest.mark.nightly
@pytest.mark.parametrize(("guard", "broken"), GUARDS.values(), ids=GUARDS)
def test_a_codec_without_a_guard_is_found(tmp_path: Path, guard: str, broken: str) -> None:
    """It reads on, and its process ends: by the sanitizer, or with another reading."""
    needed_sanitizer()
    built = build_module(tmp_path, CELLS, CELLS.read_text().replace(guard, broken), flags=FLAGS)
    ended = attack(PROGRAM, built, seed=1, payload_count=BLOCKS_FOR_GUARDS)
    assert re.search(r"AddressSanitizer|(Assertion|System|Overflow)Error", ended.stderr), (
        ended.stderr
    )
