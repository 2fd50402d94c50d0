"""Say in messages what was decided: numbers in, answers out.

A decision is a commit timestamp, or one of the engine's negative `ABORT_...` numbers, or one of
those here, which the engine does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final, assert_never

from omidpy.base.commit_facts import CommitEntry, Invalid
from omidpy.model import CellId, Timestamp
from omidpy.oracle.base import AbortReason
from omidpy.wire.frames import MAX_RESPONSE_FRAME_BYTES, FrameReader, decode_response
from omidpy.wire.messages import (
    CommitResponse,
    InvalidateResponse,
    InvalidateVerdict,
    TimestampResponse,
)
from tso.core.engine import ABORT_CONFLICT, ABORT_FENCE, ABORT_LOW_WATERMARK
from tso.core.events import Answer

ABORT_INVALIDATED: Final = -4
ABORT_TOO_LARGE: Final = -5
ABORT_RATE: Final = -6
ABORT_UNWRITABLE: Final = -7

_REASONS: Final = {
    ABORT_CONFLICT: AbortReason.CONFLICT.value,
    ABORT_LOW_WATERMARK: AbortReason.LOW_WATERMARK.value,
    ABORT_FENCE: AbortReason.FENCE.value,
    ABORT_INVALIDATED: AbortReason.INVALIDATED.value,
    ABORT_TOO_LARGE: AbortReason.TOO_LARGE.value,
    ABORT_RATE: AbortReason.RATE.value,
    ABORT_UNWRITABLE: AbortReason.UNWRITABLE.value,
}


def verdict_on(start_ts: int, decision: int) -> CommitResponse:
    """Answer a commit request."""
    if decision > 0:
        return CommitResponse(Timestamp(start_ts), Timestamp(decision))
    return refusal(start_ts, decision)


def refusal(
    start_ts: int, decision: int, conflicts: tuple[CellId, ...] = (), *, wait_ms: int = 0
) -> CommitResponse:
    """Refuse a commit for the reason that `decision` stands for."""
    return CommitResponse(Timestamp(start_ts), None, conflicts, _REASONS[decision], wait_ms)


def unframed(frames: bytes, refused: AbstractSet[int]) -> Iterator[Answer]:
    """Yield the answers that a run has written, but a refusal of each commit in `refused`."""
    for payload in FrameReader(max_frame_bytes=MAX_RESPONSE_FRAME_BYTES).feed(frames):
        answer = decode_response(payload)
        assert isinstance(answer, TimestampResponse | CommitResponse), "a run answers nothing else"
        if isinstance(answer, CommitResponse) and answer.start_ts in refused:
            yield refusal(answer.start_ts, ABORT_INVALIDATED)
        else:
            yield answer


def outcome_of(start_ts: int, entry: CommitEntry) -> InvalidateResponse:
    """Answer an invalidation with what the commit table says."""
    start = Timestamp(start_ts)
    match entry:
        case None:
            return InvalidateResponse(start, InvalidateVerdict.UNKNOWN)
        case Invalid.INVALID:
            return InvalidateResponse(start, InvalidateVerdict.INVALIDATED)
        case int():
            return InvalidateResponse(start, InvalidateVerdict.COMMITTED, entry)
        case _:
            assert_never(entry)
