"""Where a run ends although what follows is ordinary."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from omidpy.model import CellId, Timestamp
from omidpy.wire.frames import frame, frame_request
from omidpy.wire.messages import CommitRequest, TimestampRequest
from omidpy.wire.protobuf import BYTES, key, put_bytes
from tests.machines.engines import compiled_engine, interpreted_engine
from tso.core.engine import MAX_RUN_BYTES, MAX_RUN_REQUESTS, RUN_NUMBERS

BEGIN = frame_request(TimestampRequest())


@pytest.fixture(params=["interpreted", "compiled"])
def run(request: pytest.FixtureRequest) -> Any:
    """Return a run over an empty oracle, in one of the engine's forms."""
    engine: ModuleType | None = interpreted_engine()
    if request.param == "compiled":
        engine = compiled_engine()
    if engine is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    return engine.Run(
        engine.Engine(last_issued=0, conflict_map_size=10**6),
        engine.Decisions(10**6, forgotten_start=0, seed=0),
        max_commit_cells=10**6,
        invalidated=set(),
    )


def take(run: Any, data: bytes, *, at_most: int = 10**6) -> int:
    """Decide what is ordinary; return how many bytes that was."""
    taken: int = run.take(data, 1, True, True, at_most)
    return taken


def commit(start_ts: int, cell_count: int) -> bytes:
    """Return the frame of a commit."""
    first = 2**62 + start_ts * 10**6  # no two transactions write the same
    cells = tuple(CellId(first + number) for number in range(cell_count))
    return frame_request(CommitRequest(Timestamp(start_ts), cells))


def test_no_more_requests_are_taken_than_may_be(run: Any) -> None:
    """A turn is bounded, and so is the room for answers."""
    assert take(run, BEGIN * 5, at_most=3) == 3 * len(BEGIN)
    assert run.request_count == run.early_count == 3
    assert take(run, BEGIN * 2000) == MAX_RUN_REQUESTS * len(BEGIN)
    assert take(run, b"", at_most=3) == 0
    assert run.request_count == 0
    assert run.early_answers() == run.late_answers() == b""


def test_a_run_ends_behind_so_many_bytes(run: Any) -> None:
    """Commits may be a thousand times as long as begins."""
    take(run, BEGIN * 1000)
    frames = [commit(50 * number, 1000) for number in range(1, 30)]
    taken = take(run, b"".join(frames))
    assert MAX_RUN_BYTES <= taken < MAX_RUN_BYTES + len(frames[0])
    assert run.commit_count == run.request_count == -(-MAX_RUN_BYTES // len(frames[0]))


def test_a_commit_of_too_many_cells_is_left(run: Any) -> None:
    """There is room for so many."""
    take(run, BEGIN * 2)
    assert take(run, commit(50, RUN_NUMBERS + 1)) == 0
    assert take(run, commit(50, RUN_NUMBERS)) > 0


def test_bytes_may_be_cut_when_a_run_is_over(run: Any) -> None:
    """A buffer that is looked at cannot change its size."""
    buffer = bytearray(BEGIN * 3)
    del buffer[: take(run, buffer)]  # type: ignore[arg-type]  # a bytearray is fine
    assert not buffer


def test_a_frame_longer_than_ordinary_ones_is_left(run: Any) -> None:
    """Fields of nothing are no numbers, and would be read by the million in one go."""
    take(run, BEGIN * 2)
    whole = b"\x08\x32"
    assert take(run, _padded(whole, MAX_RUN_BYTES // 2 - 10)) > 0
    whole = b"\x08\x64"
    assert take(run, _padded(whole, MAX_RUN_BYTES // 2 + 10)) == 0


def _padded(start: bytes, count: int) -> bytes:
    """Return the frame of a commit that has so many packed fields without a cell."""
    body = bytearray()
    put_bytes(body, key(2, BYTES), start + b"\x1a\x00" * count)
    return frame(bytes(body))
