"""Hold the compiled codec of cells to the interpreted one, over hostile blocks.

    python -m tests.machines.hostile_cells CELLBLOCK.so SEED COUNT

Run under AddressSanitizer, with every object of Python in memory of its own, so that one byte read
behind the end of a block ends the process.  The same seed brings the same bytes.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from omidpy.storage.hbase.native.faults import Garbled
from tests.machines.engines import interpreted_cells, load_cells

PREFIX, SUFFIX = b"\x00\xc2\x80", b"\xc2\x80"
NAMES: Final = (b"", b"q", b"\x00", b"\xc2", PREFIX, SUFFIX, b"\x80" * 3, b"name" * 40)
DAMAGES: Final = 20
"""For so many payloads there is one sound block."""
LENGTHS: Final = (0, 1, 12, 24, 0x7F, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1)


def main(built: Path, seed: int, count: int) -> None:
    """Read `count` blocks with both; fail where the two do not agree."""
    compiled, interpreted = load_cells(built), interpreted_cells()
    assert compiled.is_compiled(), "otherwise nothing is looked at"
    assert not interpreted.is_compiled(), "otherwise nothing is compared"
    dice = random.Random(seed)
    read_count = 0
    for number in range(count):
        if number % DAMAGES == 0:
            sound = block(dice, interpreted)
        data, position, counts = hostile(dice, *sound)
        found, expected = (read(form, data, position, counts) for form in (compiled, interpreted))
        assert found == expected, f"payload {number} of seed {seed}: {data.hex()}"
        read_count += isinstance(found[0], list)
    print(f"{count} payloads, {read_count} of them cells")


def read(form: ModuleType, data: bytes, position: int, counts: list[int]) -> tuple[Any, Any]:
    """Return the cells, and the pairs, or what is said of the block in place of each."""
    found: list[Any] = []
    for affixes in ((), (PREFIX, SUFFIX)):
        decode = form.decode_pairs if affixes else form.decode
        try:
            found.append(decode(data, position, counts, *affixes))
        except Garbled as error:
            found.append(str(error))
    return found[0], found[1]


def block(dice: random.Random, form: ModuleType) -> tuple[bytes, int, list[int]]:
    """Return a block, where it begins, and how many cells its rows have."""
    counts: list[int] = []
    parts = [dice.randbytes(dice.choice((0, 0, 5)))]
    for number in range(dice.randrange(4)):
        cells = [
            form.encode(
                b"row%d" % number,
                dice.choice((b"f", b"g")),
                name(dice),
                dice.choice((5, 2**31, 2**63 - 1)),
                dice.randbytes(dice.choice((0, 3, 8))),
            )
            for _ in range(dice.choice((0, 1, 2, 5)))
        ]
        counts.append(len(cells))
        parts += cells
    return b"".join(parts), len(parts[0]), counts


def hostile(
    dice: random.Random, data: bytes, position: int, counts: list[int]
) -> tuple[bytes, int, list[int]]:
    """Return a block with some damage, mostly to its bytes."""
    for _ in range(dice.choice((0, 1, 1, 2))):
        data = damaged(dice, data)
    if dice.random() < 0.1:
        position = dice.choice((0, position + 1, len(data), len(data) + 1, 2**40))
    if counts and dice.random() < 0.1:
        counts = [*counts]
        counts[dice.randrange(len(counts))] = dice.choice((0, 1, 7, 2**31, 2**64))
    return data, position, counts


def name(dice: random.Random) -> bytes:
    """Return a qualifier, perhaps that of what is said of another cell."""
    plain = dice.choice(NAMES)
    return dice.choice((plain, plain, PREFIX + plain + SUFFIX, plain + SUFFIX))


def damaged(dice: random.Random, data: bytes) -> bytes:
    """Return the bytes with one change."""
    at = dice.randrange(len(data) + 1)
    before, after = data[:at], data[at:]
    match dice.randrange(5):
        case 0:
            return before
        case 1:
            return before + dice.choice(LENGTHS).to_bytes(4) + after[4:]
        case 2:
            return before + dice.randbytes(1) + after[1:]
        case 3:
            return before + dice.randbytes(dice.randrange(4)) + after
        case _:
            return data + after


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
