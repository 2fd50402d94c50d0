"""Hold the compiled encoding of messages to the interpreted one, over hostile payloads.

    python -m tests.machines.hostile_messages PROTOBUF.so SEED COUNT

As `hostile_cells.py`, under AddressSanitizer.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from omidpy.errors import LocalProtocolError, RemoteProtocolError
from tests.machines.engines import interpreted_messages, load_messages
from tests.machines.hostile_answers import NUMBERS, damaged

SOUND: Final = tuple(
    map(
        bytes.fromhex,
        (
            "0a0a 0880c0caf3849eb40d",
            "0a16 0880c0caf3849eb40d c83e80bfcaf3849eb40d d03e64",
            "1208 0800 10e807 189a08",
            "1216 0801 10e807 ca3e0b01ffffffffffffffffff01 d03e01",
            "ca3e08 08e807 1003 189a08",
            "1a16 0801 1210 c83e07 d23e026964 d83e32 e03ea0f736 1800",
            "0a02 0832 0a02 0864",
            "0a1b 089a08 f83e05 fa3e026869 f93e0102030405060708 fd3e01020304",
        ),
    )
)
"""What oracles say, and forms of it that few do."""

GREATEST: Final = (0, 1, 127, 128, 2**31, 2**56 - 1, 2**56, 2**63 - 1, 2**63, 2**64 - 1, 2**64)


def main(built: Path, seed: int, count: int) -> None:
    """Read and write `count` times with both; fail where the two do not agree."""
    compiled, interpreted = load_messages(built), interpreted_messages()
    assert compiled.is_compiled(), "otherwise nothing is looked at"
    assert not interpreted.is_compiled(), "otherwise nothing is compared"
    dice = random.Random(seed)
    read_count = 0
    for number in range(count):
        payload = dice.choice(SOUND)
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            payload = damaged(dice, payload)
        found, expected = (read(form, payload) for form in (compiled, interpreted))
        assert found == expected, f"payload {number} of seed {seed}: {payload.hex()}"
        read_count += found[0] is not None
        state = dice.getstate()
        written = write(compiled, dice)
        dice.setstate(state)
        assert written == write(interpreted, dice), f"payload {number} of seed {seed}"
    print(f"{count} payloads, {read_count} of them answers")


def read(form: ModuleType, payload: bytes) -> list[Any]:
    """Return what can be read of a payload, or what is said of it in place of that."""
    numbers = form.numbers(payload)
    slow = slowly(form, payload)
    # What is read in one call is what goes the long way otherwise, or is left to that.
    assert numbers in (None, slow), f"{payload.hex()} is {numbers}, and {slow}"
    return [numbers, slow, *(said(form, reader, payload) for reader in (form.fields, form.varints))]


def slowly(form: ModuleType, payload: bytes) -> object:
    """Return the key and the body of the one message in a payload, field by field."""
    try:
        ((kind, body),) = form.fields(payload)
        return kind, form.last_of_each(body)
    except (RemoteProtocolError, ValueError, TypeError) as error:
        return str(error)


def said(form: ModuleType, reader: Callable[[bytes], Any], payload: bytes) -> object:
    """Return all that a reader yields, or what it says."""
    del form
    try:
        return list(reader(payload))
    except RemoteProtocolError as error:
        return str(error)


def write(form: ModuleType, dice: random.Random) -> list[object]:
    """Return the bytes of some fields, or what is said of values that are none."""
    out = bytearray()
    told: list[object] = []
    values = [dice.choice(GREATEST) * dice.choice((1, 1, -1)) for _ in range(dice.randrange(4))]
    number = dice.choice((1, 3, 15, 16, 1001))
    writers: tuple[Callable[[], object], ...] = (
        lambda: form.put_int64s(out, number, values, packed=dice.random() < 0.5),
        lambda: form.put_int64(out, form.key(number, 0), dice.choice(GREATEST)),
        lambda: form.put_uint64(out, form.key(number, 0), dice.choice(GREATEST)),
        lambda: form.put_bytes(out, form.key(number, 2), bytes(dice.choice((0, 1, 127, 128, 300)))),
        lambda: form.put_bytes(out, form.key(number, 2), bytearray(NUMBERS[0])),
        lambda: form.put_bool(out, form.key(number, 0), value=True),
    )
    for writer in writers:
        before = len(out)
        try:
            writer()
        except LocalProtocolError as error:
            del out[before:]
            told.append(str(error))
    return [bytes(out), *told]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
