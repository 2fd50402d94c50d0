"""Hold the compiled engine to the interpreted one, over hostile bytes.

    python -m tests.machines.hostile_frames ENGINE.so SEED COUNT

Run under AddressSanitizer, with every object of Python in memory of its own, so that one byte read
behind the end of a request ends the process.  The same seed brings the same bytes.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from omidpy.errors import RemoteProtocolError
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.frames import encode_request, frame, frame_request
from omidpy.wire.messages import (
    CommitRequest,
    FenceRequest,
    HandshakeRequest,
    InvalidateRequest,
    Request,
    TimestampRequest,
)
from tests.machines.engines import interpreted_engine, load_engine
from tso.core.engine import STEP

CELL_COUNT: Final = 12
MOST: Final = 8
"""Cells that are read at most, which some payloads exceed."""

STREAM_LENGTH: Final = 1000
"""For so many payloads there is one stream of commits."""

LIMITS: Final = {
    "last_issued": 0,
    "conflict_map_size": 200,
    "max_fence_count": 20,
    "begin_memory": 50,
}
"""Small, so that everything overflows."""


def main(built: Path, seed: int, count: int) -> None:
    """Read `count` payloads with both and decide them; fail where the two do not agree."""
    compiled, interpreted = load_engine(built), interpreted_engine()
    assert compiled.is_compiled(), "otherwise nothing is looked at"
    assert not interpreted.is_compiled(), "otherwise nothing is compared"
    deciders = [engine.Engine(**LIMITS) for engine in (compiled, interpreted)]
    dice = random.Random(seed)
    read_count = 0
    for number in range(count):
        payload = damaged(dice, encode_request(request(dice), packed=dice.random() < 0.5))
        found, expected = read(compiled, payload), read(interpreted, payload)
        assert found == expected, f"payload {number} of seed {seed}: {payload.hex()}"
        if isinstance(found, tuple):
            read_count += 1
            age = STEP * dice.randrange(20)
            decided, wanted = (decide(decider, age, found) for decider in deciders)
            assert decided == wanted, f"payload {number} of seed {seed}: {payload.hex()}"
    for number in range(count // STREAM_LENGTH):
        compare_runs(dice, compiled, interpreted, f"stream {number} of seed {seed}")
    print(f"{count} payloads, {read_count} of them commits")


def compare_runs(
    dice: random.Random, compiled: ModuleType, interpreted: ModuleType, name: str
) -> None:
    """Let both decide runs of frames, sound and damaged ones, the last perhaps cut."""
    runs = [new_run(engine) for engine in (compiled, interpreted)]
    begin = frame_request(TimestampRequest())
    last_issued = 0
    for _ in range(20):
        begin_count = dice.choice((2, 10, 1200))
        last_issued += STEP * begin_count
        parts = [begin * begin_count]
        for _ in range(10):
            commit = ordinary(dice, last_issued)
            part = frame_request(commit, packed=dice.random() < 0.5)
            parts.append(part if dice.random() < 0.9 else frame(damaged(dice, part[4:])))
        data = b"".join(parts)
        data = data[: len(data) - dice.choice((0, 0, 1, 5, 40))]
        at_most = dice.choice((1, 10, 10_000))
        last = frame_request(ordinary(dice, last_issued))
        # One alone: with a last number that does not end, cut, and whole.
        alone = (last[:-1] + bytes((last[-1] | 0x80,)), last[: -dice.randrange(1, 9)], last)
        for asked in (data, *alone):
            found, expected = (decide_run(run, asked, at_most) for run in runs)
            assert found == expected, f"{name}: {asked.hex()}"


def new_run(engine: ModuleType) -> Any:
    """Return a run of an engine that has its limits."""
    decider = engine.Engine(**LIMITS)
    decisions = engine.Decisions(30, forgotten_start=0, seed=0)
    return engine.Run(decider, decisions, max_commit_cells=100, invalidated=set())


def decide_run(run: Any, data: bytes, at_most: int) -> list[object]:
    """Let a run decide what is ordinary in `data`, and what is left behind each hindrance."""
    found: list[object] = []
    for place in range(0, len(data), max(1, len(data) // 6)):
        taken = run.take(data[place:], 7, at_most == 1, place % 2 == 0, at_most)
        found += [taken, run.request_count, run.commit_count, run.refused_count]
        found += [run.early_count, run.early_ts]
        found += [run.entries(), run.early_answers(), run.late_answers()]
    return found


def ordinary(dice: random.Random, last_issued: int) -> CommitRequest:
    """Return a commit as most are."""
    return CommitRequest(
        Timestamp(max(STEP, last_issued - STEP * dice.randrange(12))),
        tuple(CellId(dice.getrandbits(63)) for _ in range(dice.choice((1, 3, 10, 110)))),
        tuple(TableId(dice.getrandbits(7)) for _ in range(dice.randrange(2))),
    )


def request(dice: random.Random) -> Request:
    """Return any request; most are commits."""

    def number() -> int:
        return dice.choice((dice.getrandbits(63), -dice.getrandbits(62), dice.getrandbits(7)))

    if dice.random() < 0.8:
        return CommitRequest(
            Timestamp(dice.getrandbits(62)),
            tuple(CellId(number()) for _ in range(dice.randrange(CELL_COUNT))),
            tuple(TableId(number()) for _ in range(dice.randrange(3))),
            is_retry=dice.random() < 0.3,
        )
    others = (
        TimestampRequest(dice.getrandbits(20)),
        HandshakeRequest(),
        FenceRequest(TableId(number())),
        InvalidateRequest(Timestamp(dice.getrandbits(62))),
    )
    return dice.choice(others)


def damaged(dice: random.Random, payload: bytes) -> bytes:
    """Return the payload with up to four changes: cut, flipped, filled with noise, or doubled."""
    for _ in range(dice.randrange(5)):
        at = dice.randrange(len(payload) + 1)
        before, after = payload[:at], payload[at:]
        payload = dice.choice(
            (
                before,
                before + dice.randbytes(1) + after[1:],
                before + dice.randbytes(dice.randrange(6)) + after,
                before + b"\xff" * dice.randrange(12) + after,
                payload + after,
            )
        )
    return payload


def read(engine: ModuleType, payload: bytes) -> object:
    """Return what a reader makes of a payload: a commit, None, or the error's words."""
    try:
        return engine.read_commit(payload, MOST)
    except RemoteProtocolError as error:
        return str(error)


def decide(decider: Any, age: int, commit: tuple[Any, ...]) -> tuple[int, list[int], int]:
    """Let an engine decide what was read as if it had begun `age` ago; return what it says."""
    start_ts = decider.begin(commit[0] & 0xFF) - age
    _, _, cell_ids, table_ids = commit
    verdict = decider.commit(start_ts, cell_ids, table_ids)
    if table_ids:
        decider.fence(table_ids[0])
    return verdict, decider.conflicts(start_ts, cell_ids), decider.low_watermark


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
