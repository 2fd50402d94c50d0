"""Batches of the oracle: which answers leave, in which order, and what a flush carries."""

from __future__ import annotations

import pytest

from omidpy.model import Timestamp
from omidpy.wire.messages import CommitResponse, TimestampResponse
from tso.core.batches import LOW_WATERMARK_PERIOD_MS, Batches
from tso.core.engine import Engine
from tso.core.events import Batch

CEILING = 1000
LOOKAHEAD = 400


@pytest.fixture(name="engine")
def _engine() -> Engine:
    return Engine(last_issued=0, conflict_map_size=100)


@pytest.fixture(name="batches")
def _batches() -> Batches[str]:
    return Batches(ceiling=CEILING, lookahead=LOOKAHEAD, low_watermark=0)


def begin(batches: Batches[str], start_ts: int) -> None:
    """Answer a begin."""
    batches.note(start_ts)
    batches.answer(f"begin {start_ts}", TimestampResponse(Timestamp(start_ts), Timestamp(0)))


def commit(batches: Batches[str], start_ts: int, commit_ts: int) -> None:
    """Answer a commit, and write its entry."""
    batches.open_decisions().commits.add(start_ts, commit_ts)
    batches.note(commit_ts)
    answer = CommitResponse(Timestamp(start_ts), Timestamp(commit_ts))
    batches.answer(f"commit {start_ts}", answer)


def names(*batches: Batch[str]) -> list[str]:
    """Return whose the answers of batches are."""
    return [ticket for batch in batches for ticket, _ in batch.answers]


def fly(batches: Batches[str], engine: Engine, elapsed_ms: int = 0) -> Batch[str]:
    """Begin the next flush."""
    batch = batches.gather(engine, elapsed_ms)
    assert batches.fly(batch)
    return batch


def test_what_needs_no_flush_is_ready_once(batches: Batches[str]) -> None:
    """A begin below the ceiling waits for nothing, and no batch is handed out twice."""
    begin(batches, 50)
    (ready,) = batches.ready(is_vouched=True)
    assert names(ready) == ["begin 50"]
    assert batches.queue_length == 1
    batches.take_answers(ready)
    assert batches.queue_length == 0
    assert batches.ready(is_vouched=True) == ()


def test_begins_ahead_of_a_decision_leave_and_those_behind_it_wait(
    batches: Batches[str], engine: Engine
) -> None:
    """I2, and no more than that: a begin waits for the commits before it alone."""
    begin(batches, 50)
    commit(batches, 10, 100)
    begin(batches, 150)
    (ready,) = batches.ready(is_vouched=True)
    assert names(ready) == ["begin 50"]
    assert names(fly(batches, engine)) == ["commit 10", "begin 150"]
    assert batches.ready(is_vouched=True) == ()
    assert names(batches.land()) == ["commit 10", "begin 150"]


def test_what_is_early_waits_for_the_flight(batches: Batches[str], engine: Engine) -> None:
    """Its snapshot shows the commits that are on their way to the store."""
    commit(batches, 10, 100)
    flying = fly(batches, engine)
    begin(batches, 150)
    commit(batches, 20, 200)
    begin(batches, 250)
    assert batches.ready(is_vouched=True) == ()
    assert batches.land() is flying
    (ready,) = batches.ready(is_vouched=True)
    assert names(ready) == ["begin 150"]


def test_both_leave_behind_one_another_where_nothing_is_decided(batches: Batches[str]) -> None:
    """A decision that was opened and never made changes no order."""
    begin(batches, 50)
    batches.open_decisions()
    begin(batches, 100)
    assert names(*batches.ready(is_vouched=True)) == ["begin 50", "begin 100"]


def test_nothing_overtakes_what_waits_for_the_ceiling(
    batches: Batches[str], engine: Engine
) -> None:
    """I1: what is early and above the ceiling waits, and so does all that is behind it."""
    begin(batches, CEILING + 50)
    batches.open_decisions()
    begin(batches, 100)
    assert batches.ready(is_vouched=True) == ()
    engine.clock_ts = CEILING + 50
    flying = fly(batches, engine)
    assert names(flying) == ["begin 1050", "begin 100"]
    assert flying.newest_ts == CEILING + 50
    assert flying.ceiling == CEILING + 50 + LOOKAHEAD
    batches.take_answers(batches.land())
    begin(batches, CEILING + 100)
    assert names(*batches.ready(is_vouched=True)) == ["begin 1100"]


def test_no_answer_is_taken_above_the_durable_ceiling(batches: Batches[str]) -> None:
    """I1 a second time, whoever made it ready."""
    begin(batches, CEILING + 50)
    with pytest.raises(AssertionError, match="I1"):
        batches.take_answers(batches._pending)


def test_without_the_lease_every_answer_waits_for_a_flush(
    batches: Batches[str], engine: Engine
) -> None:
    """I8: another oracle may have committed by now, and the flush looks at the lease."""
    begin(batches, 50)
    assert batches.ready(is_vouched=False) == ()
    assert names(fly(batches, engine)) == ["begin 50"]


def test_a_batch_that_carries_nothing_is_not_flushed(batches: Batches[str], engine: Engine) -> None:
    """It stays the pending one, so that what comes next is not lost."""
    batch = batches.gather(engine, 0)
    assert not batches.fly(batch)
    assert batches.flight is None
    begin(batches, 50)
    assert names(batch) == ["begin 50"]


def test_the_ceiling_rises_when_half_of_the_lookahead_is_left(
    batches: Batches[str], engine: Engine
) -> None:
    """Long before any answer has to wait for it."""
    batches.cover(CEILING - LOOKAHEAD // 2)
    assert batches.gather(engine, 0).ceiling is None
    engine.clock_ts = CEILING - LOOKAHEAD // 2 + 1
    batches.cover(engine.clock_ts)
    assert fly(batches, engine).ceiling == engine.clock_ts + LOOKAHEAD


def test_the_low_watermark_is_written_once_a_period(batches: Batches[str], engine: Engine) -> None:
    """And only where it is above the durable one."""
    for _ in range(4):
        engine.issue()
    engine.raise_low_watermark(100)
    assert fly(batches, engine, 10).low_watermark == 100
    batches.land()
    engine.raise_low_watermark(150)
    assert batches.gather(engine, 9 + LOW_WATERMARK_PERIOD_MS).low_watermark is None
    assert fly(batches, engine, 10 + LOW_WATERMARK_PERIOD_MS).low_watermark == 150
    batches.land()
    assert batches.gather(engine, 10 + 9 * LOW_WATERMARK_PERIOD_MS).low_watermark is None


def test_the_ceiling_is_given_back_once_and_rises_no_more(
    batches: Batches[str], engine: Engine
) -> None:
    """I1: the next instance begins at it."""
    flying = batches.give_ceiling_back(700)
    assert flying is batches.flight
    assert flying is not None
    assert flying.ceiling == 700
    batches.land()
    assert batches.give_ceiling_back(700) is None
    batches.cover(CEILING)
    assert batches.gather(engine, 0).ceiling is None


def test_no_flush_ends_that_was_not_begun(batches: Batches[str]) -> None:
    """I2: its answers would be those of another."""
    with pytest.raises(AssertionError, match="I2"):
        batches.land()


def test_frames_and_cells_that_wait_are_counted(batches: Batches[str], engine: Engine) -> None:
    """Back-pressure looks at both."""
    batches.open_decisions().groups.append((10, 100, {}))
    batches.add_group_bytes(30)
    batches.answer_framed("run", b"...", 3)
    assert (batches.queue_length, batches.group_bytes) == (3, 30)
    assert [len(answers) for answers in batches.waiting()] == [0, 1]
    fly(batches, engine)
    assert [len(answers) for answers in batches.waiting()] == [0, 0, 1]
    batches.take_answers(batches.land())
    assert (batches.queue_length, batches.group_bytes) == (0, 0)
