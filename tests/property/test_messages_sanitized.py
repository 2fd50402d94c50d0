"""The compiled encoding of messages under AddressSanitizer: it reads no byte behind a payload."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Final

import pytest

from tests.machines.engines import MESSAGES, build_module, kept_module
from tests.machines.sanitizing import FLAGS, PATIENCE_S, attack, needed_sanitizer

PROGRAM: Final = "tests.machines.hostile_messages"
PAYLOADS_BY_DAY: Final = 5_000
PAYLOADS_FOR_GUARDS: Final = 20_000
PAYLOADS_BY_NIGHT: Final = 10_000_000


@pytest.mark.parametrize(
    "payload_count",
    [
        PAYLOADS_BY_DAY,
        pytest.param(
            PAYLOADS_BY_NIGHT, marks=[pytest.mark.nightly, pytest.mark.timeout(PATIENCE_S)]
        ),
    ],
)
def test_no_message_is_read_beyond_its_bytes(payload_count: int) -> None:
    """And the two forms agree on every one of them, as the one call does with the many."""
    needed_sanitizer()
    built = kept_module(MESSAGES, flags=FLAGS)
    seed = random.SystemRandom().getrandbits(32)
    ended = attack(PROGRAM, built, seed=seed, payload_count=payload_count)
    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}{ended.stderr[-5000:]}"
    assert ended.stdout.startswith(f"{payload_count} payloads")
    assert int(ended.stdout.split()[2]) > payload_count / 20, "most of them were none at all"


GUARDS: Final = {
    "a number beyond the payload": (
        "            if position == size:\n",
        "            if False:\n",
    ),
    "a number of too many bits": (
        "            if shift == 63 and byte > 1:",
        "            if False:",
    ),
    "a body of another length": (
        "            elif value != size - position:\n",
        "            elif False:\n",
    ),
    "a field that is no number": (" or value & 7 != (_NUMBER if count else _MESSAGE):", ":"),
    "no field": ("if not _LEAST_KEY <= value <= _MAX_KEY or", "if"),
    "a message that ends inside a field": ("if count < 2 or count & 1 else", "if count < 2 else"),
    "a signed number of too many bits": (
        "        if not _MIN_INT64 <= value <= _MAX_INT64:\n",
        "        if False:\n",
    ),
}
"""From the number of too many bits on they stay within the payload: that such a one is not found
would say that nothing is compared.
"""


def test_each_guard_stands_in_the_source_once() -> None:
    """By day, too: else a change of the source leaves the night with guards that are no more."""
    source = MESSAGES.read_text()
    assert {name: source.count(guard) for name, (guard, _) in GUARDS.items()} == dict.fromkeys(
        GUARDS, 1
    )


@pytest.mark.nightly
@pytest.mark.parametrize(("guard", "broken"), GUARDS.values(), ids=GUARDS)
def test_a_form_without_a_guard_is_found(tmp_path: Path, guard: str, broken: str) -> None:
    """It reads on, and its process ends: by the sanitizer, or with another reading."""
    needed_sanitizer()
    source = MESSAGES.read_text().replace(guard, broken)
    built = build_module(tmp_path, MESSAGES, source, flags=FLAGS)
    ended = attack(PROGRAM, built, seed=1, payload_count=PAYLOADS_FOR_GUARDS)
    assert re.search(r"AddressSanitizer|(Assertion|System|Overflow)Error", ended.stderr), (
        ended.stderr
    )
