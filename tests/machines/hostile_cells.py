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
BEFORE: Final = b"\x80" + bytes(7)
"""What is said at random is below it half of the time."""
FIRST: Final = b"\x40" + bytes(7)
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


def read(form: ModuleType, data: bytes, position: int, counts: list[int]) -> list[Any]:
    """Return cells, pairs, values and changes, or what is said of the block in place of each."""
    found: list[Any] = []
    affixes = PREFIX, SUFFIX
    for decode, more in (
        (form.decode, ()),
        (form.decode_pairs, affixes),
        (form.decode_values, (*affixes, BEFORE, b"erased")),
        (form.decode_changes, (*affixes, FIRST, BEFORE, b"erased")),
    ):
        try:
            found.append(decode(data, position, counts, *more))
        except Garbled as error:
            found.append(str(error))
    return found


def block(dice: random.Random, form: ModuleType) -> tuple[bytes, int, list[int]]:
    """Return a block, where it begins, and how many cells its rows have."""
    counts: list[int] = []
    parts = [dice.randbytes(dice.choice((0, 0, 5)))]
    for number in range(dice.randrange(4)):
        row = b"row%d" % number
        cells = [
            form.encode(
                row,
                dice.choice((b"f", b"g")),
                name(dice),
                dice.choice((5, 2**31, 2**63 - 1)),
                dice.randbytes(dice.choice((0, 3, 8))),
            )
            for _ in range(dice.choice((0, 1, 2, 5)))
        ]
        if dice.random() < 0.5:
            cells = plain(dice, form, row)
        counts.append(len(cells))
        parts += cells
    return b"".join(parts), len(parts[0]), counts


def plain(dice: random.Random, form: ModuleType, row: bytes) -> list[bytes]:
    """Return the cells of a row whose values are all that is wanted, or nearly one."""
    names = [
        (dice.choice((b"f", b"f", b"g")), b"q%d" % dice.choice((at, at, at, 0)))
        for at in range(dice.choice((1, 3)))
    ]
    said = [
        form.encode(row, family, PREFIX + name + SUFFIX, 50, dice.randbytes(dice.choice((8, 8, 3))))
        for family, name in names
    ]
    values = (b"", b"v", b"erased", b"value")
    data = [
        form.encode(row, *name, dice.choice((50, 50, 51, 6)), dice.choice(values)) for name in names
    ]
    return said + data


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
