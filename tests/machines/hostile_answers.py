"""Hold the compiled reader of HBase's answers to the interpreted one, over hostile frames.

    python -m tests.machines.hostile_answers ANSWERS.so SEED COUNT

As `hostile_cells.py`, under AddressSanitizer.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from omidpy.storage.hbase.native.cellblock import encode
from omidpy.storage.hbase.native.faults import Fault, Garbled
from tests.machines.engines import interpreted_answers, load_answers
from tests.machines.fake_hbase import Reply, frame_of
from tests.machines.hbase_messages import message

CELLS: Final = encode(b"row", b"f", b"q", 5, b"value") * 2
RESULT: Final = {"associated_cell_count": 2}
INSIDE: Final = {
    "cell": [{"row": b"r", "family": b"f", "qualifier": b"q", "timestamp": 2**63, "value": b"v"}],
    "exists": True,
}
BUSY: Final = {"name": "x.RegionTooBusyException", "value": b"busy"}
PARTS: Final = [
    {"resultOrException": [{"index": 300, "result": RESULT}, {"index": 1, "exception": BUSY}]},
    {"exception": BUSY, "processed": False},
    {"resultOrException": [{"index": 0, "result": INSIDE}], "processed": True},
]
SOUND: Final = tuple(
    frame_of(2**31 - 1, reply)[4:]
    for reply in (
        Reply(message("GetResponse", result=RESULT).SerializeToString(), CELLS),
        Reply(message("GetResponse", result=INSIDE).SerializeToString()),
        Reply(message("MultiResponse", regionActionResult=PARTS).SerializeToString(), CELLS),
        Reply(b"\x10\x01"),
        Reply(fault=("x.RegionMovedException", "hostname=h port=7 startCode=9. As of")),
    )
)
NUMBERS: Final = (
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x02",
    b"\x80" * 10 + b"\x01",
)
"""The greatest of 7, of 32 and of 64 bits, one that ends too early, and two that are too long."""


def main(built: Path, seed: int, count: int) -> None:
    """Read `count` frames with both; fail where the two do not agree."""
    compiled, interpreted = load_answers(built), interpreted_answers()
    assert compiled.is_compiled(), "otherwise nothing is looked at"
    assert not interpreted.is_compiled(), "otherwise nothing is compared"
    dice = random.Random(seed)
    read_count = 0
    for number in range(count):
        frame = dice.choice(SOUND)
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            frame = damaged(dice, frame)
        found, expected = (read(form, frame) for form in (compiled, interpreted))
        assert found == expected, f"payload {number} of seed {seed}: {frame.hex()}"
        read_count += not isinstance(found[0], str)
    print(f"{count} payloads, {read_count} of them answers")


def read(form: ModuleType, frame: bytes) -> list[Any]:
    """Return all that can be read of a frame, or what is said of it in place of that."""
    try:
        answer = form.answer(frame)
    except Garbled as error:
        return [str(error)]
    call_id, fault, *rest = answer
    found: list[Any] = [(call_id, told(fault), *rest)]
    readers: tuple[Callable[[], object], ...] = (
        lambda: form.read_get(answer),
        lambda: form.read_mutate(answer),
        *(
            lambda parts=parts, actions=actions: [
                (told(one.fault), one.processed, {at: told(of) for at, of in one.results.items()})
                for one in form.read_multi(answer, parts, actions)
            ]
            for parts in range(4)
            for actions in range(3)
        ),
    )
    for reader in readers:
        try:
            found.append(reader())
        except Garbled as error:
            found.append(str(error))
    return found


def told(found: object) -> object:
    """Return what can be compared: an exception is equal to no other."""
    if not isinstance(found, Fault):
        return found
    return found.class_name, str(found), found.moved_to, found.kind


def damaged(dice: random.Random, data: bytes) -> bytes:
    """Return the bytes with one change."""
    at = dice.randrange(len(data) + 1)
    before, after = data[:at], data[at:]
    match dice.randrange(6):
        case 0:
            return before
        case 1:
            return before + dice.choice(NUMBERS) + after[1:]
        case 2:
            return before + dice.randbytes(1) + after[1:]
        case 3:
            return before + dice.choice(NUMBERS) + after
        case 4:
            return before + dice.randbytes(dice.randrange(1, 4)) + after
        case _:
            return data + after


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
