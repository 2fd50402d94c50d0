"""Judge what an oracle did, from its `History` alone.

Each check is one of the numbered invariants, stated without any knowledge of how the oracle works.
The property tests call all of them; each negative test shows one of them catching a broken oracle.
"""

from __future__ import annotations

import itertools

from omidpy.base.commit_facts import INVALID
from omidpy.wire.messages import (
    CommitResponse,
    FenceResponse,
    InvalidateResponse,
    InvalidateVerdict,
    TimestampResponse,
)
from tests.machines.oracle_driver import History
from tso.core.events import Answer


def check_all(history: History) -> None:
    """Check every invariant."""
    check_timestamps_are_unique(history)
    check_commits_are_durable_first(history)
    check_watermark_is_kept(history)
    check_no_update_is_lost(history)
    check_verdicts_are_true(history)


def timestamp_of(answer: Answer) -> int | None:
    """Return the timestamp that an answer hands out for the first time or again."""
    match answer:
        case TimestampResponse():
            return answer.start_ts
        case FenceResponse():
            return answer.fence_ts
        case CommitResponse():
            return answer.commit_ts
        case InvalidateResponse():
            return None


def check_timestamps_are_unique(history: History) -> None:
    """I1: no timestamp means two things, and a new one is above all that anybody knew of."""
    meaning: dict[int, object] = {}
    for (_, answer), ceiling in zip(history.said, history.ceilings, strict=True):
        timestamp = timestamp_of(answer)
        if timestamp is None:
            continue
        assert timestamp <= ceiling, f"I1: {timestamp} was issued above the ceiling {ceiling}"
        key = ("commit", answer.start_ts) if isinstance(answer, CommitResponse) else id(answer)
        assert meaning.setdefault(timestamp, key) == key, f"I1: {timestamp} was issued twice"
    for (_, answer), asked in zip(history.said, history.asked, strict=True):
        if not isinstance(answer, TimestampResponse | FenceResponse):
            continue
        new = timestamp_of(answer) or 0
        for moment, earlier in history.said:
            known = timestamp_of(earlier) or 0
            assert moment > asked or known < new, f"I1: {new} was issued after {known} was known"


def check_commits_are_durable_first(history: History) -> None:
    """I2: when a timestamp is handed out, every smaller commit is in the table."""
    for moment, answer in history.said:
        timestamp = timestamp_of(answer)
        if timestamp is None:
            continue
        for written, start_ts, entry in history.durable:
            if isinstance(entry, int) and entry <= timestamp:
                assert written < moment, (
                    f"I2: {answer} was said before the commit of {start_ts} at {entry} was durable"
                )


def check_watermark_is_kept(history: History) -> None:
    """I4, and L1 of the pruner's proof: below a durable watermark nothing commits any more."""
    for raised, low_watermark in history.watermarks:
        for written, start_ts, entry in history.durable:
            is_late = written > raised and isinstance(entry, int)
            assert not (is_late and start_ts <= low_watermark), (
                f"I4: {start_ts} became durable after the watermark {low_watermark} was"
            )


def check_no_update_is_lost(history: History) -> None:
    """I3: of two committed transactions that wrote one cell, one saw the other's commit."""
    commits = {start: entry for _, start, entry in history.durable if isinstance(entry, int)}
    writers: dict[int, list[tuple[int, int]]] = {}
    for start_ts, commit_ts in commits.items():
        for cell in set(history.write_sets.get(start_ts, ())):
            writers.setdefault(cell, []).append((start_ts, commit_ts))
    for cell, intervals in writers.items():
        ordered = sorted(intervals, key=lambda interval: interval[1])
        for (_, earlier_ts), (start_ts, _) in itertools.pairwise(ordered):
            assert earlier_ts < start_ts, (
                f"I3: cell {cell} was committed at {earlier_ts} and overwritten from {start_ts}"
            )


def check_verdicts_are_true(history: History) -> None:
    """I8 and I9: what was called committed is, and what was called aborted never is."""
    committed = {start: entry for _, start, entry in history.durable if isinstance(entry, int)}
    forbidden = {start for _, start, entry in history.durable if entry is INVALID}
    for _, answer in history.said:
        match answer:
            case CommitResponse() if answer.commit_ts is not None:
                assert committed.get(answer.start_ts) == answer.commit_ts, f"I8: {answer}"
                assert answer.start_ts not in forbidden, f"I8: {answer} is also invalidated"
            case CommitResponse():
                assert answer.start_ts not in committed, f"I9: {answer}, but it is committed"
            case InvalidateResponse(verdict=InvalidateVerdict.INVALIDATED):
                assert answer.start_ts not in committed, f"I9: {answer}, but it is committed"
            case InvalidateResponse(verdict=InvalidateVerdict.COMMITTED):
                assert committed.get(answer.start_ts) == answer.commit_ts, f"I8: {answer}"
            case _:
                continue
