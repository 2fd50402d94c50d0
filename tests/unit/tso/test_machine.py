"""The oracle's machine, event by event: order, retries, invalidations, fences, start and end."""

from __future__ import annotations

import pytest

from omidpy.base.commit_facts import INVALID
from omidpy.base.timing.clock import ManualClock
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.base import AbortReason
from omidpy.wire.messages import (
    CommitResponse,
    FenceRequest,
    FenceResponse,
    InvalidateRequest,
    InvalidateResponse,
    InvalidateVerdict,
    TimestampRequest,
    TimestampResponse,
)
from tests.machines.oracle_driver import INCREMENTAL, Disk, Driver, commit_request, small
from tso.core import machine as machine_module
from tso.core import settings as settings_module
from tso.core.past import promises as promises_module
from tso.core.settings import Settings

WORLD = Settings(timestamps="world", conflict_map_size=100)
FIRST = 1_700_000_000_000 * 1_000_000


def refused(start_ts: int, reason: AbortReason, conflicts: tuple[int, ...] = ()) -> CommitResponse:
    """Return the abort that a client would get."""
    cells = tuple(CellId(cell) for cell in conflicts)
    return CommitResponse(Timestamp(start_ts), None, cells, reason.value)


# -- order -----------------------------------------------------------------------------------------


def test_a_begin_on_an_idle_oracle_needs_no_flush() -> None:
    """The ceiling above it is durable already, so the answer is as fast as the machine."""
    driver = Driver(flushes_at_once=False)
    (name,) = driver.ask(TimestampRequest())
    assert driver.answer(name) == TimestampResponse(Timestamp(50), Timestamp(0))


def test_an_oracle_whose_lease_may_be_anothers_answers_nothing_without_a_flush() -> None:
    """Its successor may have committed by now, and a snapshot from here would not show it (I8)."""
    driver = Driver(flushes_at_once=False)
    driver.machine.vouched_until_s = driver.clock.monotonic_s()
    name, fence = driver.ask(TimestampRequest(), FenceRequest(TableId(3)))
    assert driver.answer(name) is driver.answer(fence) is None
    driver.land()
    assert driver.answer(name) == TimestampResponse(Timestamp(50), Timestamp(0))
    driver.machine.vouched_until_s += 0.1
    (name,) = driver.ask(TimestampRequest())
    begun = TimestampResponse(Timestamp(150), Timestamp(0), newest_fence=Timestamp(100))
    assert driver.answer(name) == begun


def test_a_commit_is_answered_when_it_is_durable() -> None:
    """I2: the entry first, the reply after."""
    driver = Driver(flushes_at_once=False)
    (begun,) = driver.ask(TimestampRequest())
    (name,) = driver.ask(commit_request(50, [1]))
    assert driver.answer(begun) is not None
    assert driver.answer(name) is None
    assert driver.disk.entries == {}
    driver.land()
    assert driver.disk.entries == {50: 100}
    assert driver.answer(name) == CommitResponse(Timestamp(50), Timestamp(100))


def test_a_begin_waits_for_the_commits_before_it() -> None:
    """A start timestamp promises that every smaller commit timestamp is in the commit table."""
    driver = Driver(flushes_at_once=False)
    driver.ask(TimestampRequest())
    driver.ask(commit_request(50, [1]))
    (name,) = driver.ask(TimestampRequest())
    assert driver.answer(name) is None
    driver.land()
    assert driver.answer(name) == TimestampResponse(Timestamp(150), Timestamp(0))


def test_arrivals_during_a_flush_form_the_next_batch() -> None:
    """Group commit without timers."""
    driver = Driver(flushes_at_once=False)
    driver.ask(*[TimestampRequest()] * 4)
    driver.ask(commit_request(50, [1]))
    late = driver.ask(commit_request(100, [2])) + driver.ask(commit_request(150, [3]))
    driver.land()
    assert [driver.answer(name) for name in late] == [None, None]
    assert driver.flush_count == 2
    driver.land()
    assert all(driver.answer(name) for name in late)
    assert driver.flush_count == 2


def test_a_begin_does_not_wait_for_the_commits_behind_it() -> None:
    """It waits for those before it, which is what its snapshot promises, and no longer."""
    driver = Driver(flushes_at_once=False)
    driver.ask(*[TimestampRequest()] * 2)
    driver.ask(commit_request(50, [1]))
    (early,) = driver.ask(TimestampRequest())
    (commit,) = driver.ask(commit_request(100, [2]))
    (late,) = driver.ask(TimestampRequest())
    assert driver.machine.queue_length == 4
    driver.land()
    assert driver.answer(early) == TimestampResponse(Timestamp(200), Timestamp(0))
    assert [driver.answer(commit), driver.answer(late)] == [None, None]
    driver.land()
    assert [answered for answered, _ in driver.sent[-3:]] == [early, commit, late]


def test_a_begin_that_arrives_with_a_commit_leaves_at_once() -> None:
    """Threads of one client share a connection, and ask in one breath."""
    driver = Driver(flushes_at_once=False)
    driver.ask(TimestampRequest())
    begin, commit = driver.ask(TimestampRequest(), commit_request(50, [1]))
    assert driver.answer(begin) == TimestampResponse(Timestamp(100), Timestamp(0))
    assert driver.answer(commit) is None


def test_a_fence_reply_does_not_overtake_earlier_commits() -> None:
    """In Java it does, and the fence's reader then invalidates a commit that is under way."""
    driver = Driver(flushes_at_once=False)
    driver.ask(TimestampRequest())
    driver.ask(commit_request(50, [1]))
    (name,) = driver.ask(FenceRequest(TableId(7)))
    assert driver.answer(name) is None
    driver.land()
    assert driver.answer(name) == FenceResponse(TableId(7), Timestamp(150))


def test_a_retry_does_not_overtake_the_commit_that_it_repeats() -> None:
    """In Java the retry may read the commit table before the commit is in it, and abort."""
    driver = Driver(flushes_at_once=False)
    driver.ask(TimestampRequest())
    (first,) = driver.ask(commit_request(50, [1]))
    (again,) = driver.ask(commit_request(50, [1], is_retry=True))
    assert driver.answer(again) is None
    driver.land()
    assert driver.answer(first) == driver.answer(again)
    assert driver.answer(again) == CommitResponse(Timestamp(50), Timestamp(100))


def test_an_abort_waits_for_the_commit_that_caused_it() -> None:
    """Its client will begin again, and must then see what it lost against."""
    driver = Driver(flushes_at_once=False)
    driver.ask(TimestampRequest(), TimestampRequest())
    driver.ask(commit_request(50, [1]))
    (name,) = driver.ask(commit_request(100, [1]))
    assert driver.answer(name) is None
    driver.land()
    assert driver.answer(name) == refused(100, AbortReason.CONFLICT, (1,))


def test_a_flush_without_answers_holds_nobody_up() -> None:
    """Raising the ceiling is housekeeping; begins go on meanwhile."""
    driver = Driver(WORLD, flushes_at_once=False)
    driver.ask(TimestampRequest())
    driver.tick(seconds=0.6)
    assert driver.flight is not None
    assert not driver.flight.answers
    (name,) = driver.ask(TimestampRequest())
    assert driver.answer(name) is not None


# -- decisions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_ts", [0, -50, 51, 99, 150, 2**63 - 58])
def test_a_start_that_was_never_issued_ends_the_connection(start_ts: int) -> None:
    """Java's oracle accepts any, also from the future."""
    driver = Driver()
    assert [driver.begin(), driver.begin()] == [50, 100]
    assert driver.commit(start_ts, [1]) == f"start_ts {start_ts} was never issued"
    assert driver.invalidate(start_ts) == f"start_ts {start_ts} was never issued"
    assert driver.disk.entries == {}


def test_the_reason_of_an_abort_is_named() -> None:
    """The client turns it into an exception that says what would help."""
    driver = Driver(small(conflict_map_size=2))
    old, fenced, conflicting = driver.begin(), driver.begin(), driver.begin()
    driver.commit(driver.begin(), [1])
    driver.fence(9)
    assert driver.commit(fenced, [2], tables=[9]) == refused(fenced, AbortReason.FENCE)
    assert driver.commit(conflicting, [3, 1]) == refused(conflicting, AbortReason.CONFLICT, (1,))
    driver.commit(driver.begin(), [2, 3])
    assert driver.commit(old, [4]) == refused(old, AbortReason.LOW_WATERMARK)


def test_a_commit_without_cells_is_written_too() -> None:
    """Java sends them; the commit table must know such a transaction."""
    driver = Driver()
    start_ts = driver.begin()
    assert driver.commit(start_ts) == CommitResponse(start_ts, Timestamp(100))
    assert driver.disk.entries == {50: 100}


def test_an_invalidation_in_the_table_beats_the_commit() -> None:
    """A reader forbade it after a takeover; the client is told so, and again when it asks again."""
    driver = Driver()
    start_ts = driver.begin()
    driver.disk.entries[start_ts] = INVALID
    expected = refused(start_ts, AbortReason.INVALIDATED)
    assert driver.commit(start_ts, [1]) == expected
    assert driver.commit(start_ts, [1], is_retry=True) == expected
    assert driver.disk.entries == {start_ts: INVALID}


# -- retries and duplicates ------------------------------------------------------------------------


def test_a_duplicate_gets_the_same_commit_timestamp() -> None:
    """In Java it conflicts with itself, or with no cells commits a second time."""
    driver = Driver()
    start_ts = driver.begin()
    first = driver.commit(start_ts)
    assert driver.commit(start_ts) == first
    assert driver.commit(start_ts, is_retry=True) == first
    assert driver.disk.entries == {50: 100}


def test_a_retry_of_an_abort_is_an_abort() -> None:
    """The table says nothing about it; memory does."""
    driver = Driver()
    start_ts = driver.begin()
    driver.commit(driver.begin(), [1])
    driver.commit(start_ts, [1])
    assert driver.commit(start_ts, [1], is_retry=True) == refused(start_ts, AbortReason.CONFLICT)


def test_a_retry_after_a_restart_is_answered_from_the_table() -> None:
    """The first request was decided by the instance before: committed, or invalidated."""
    before = Driver()
    committed, forbidden = before.begin(), before.begin()
    before.commit(committed, [1])
    before.disk.entries[forbidden] = INVALID
    after = Driver(disk=before.disk)
    assert after.commit(committed, [1], is_retry=True) == CommitResponse(committed, Timestamp(150))
    assert after.commit(forbidden, [1], is_retry=True) == refused(
        forbidden, AbortReason.INVALIDATED
    )


def test_a_repetition_that_does_not_say_so_is_not_decided_twice() -> None:
    """Not even when the decision was forgotten: the table is asked before anything is decided."""
    driver = Driver(small(decision_memory=1))
    empty, conflicting, open_ts = driver.begin(), driver.begin(), driver.begin()
    first = driver.commit(empty)
    second = driver.commit(conflicting, [1])
    driver.commit(driver.begin(), [2])
    driver.commit(driver.begin(), [3])
    assert driver.commit(empty) == first
    assert driver.commit(conflicting, [1]) == second
    assert isinstance(driver.commit(open_ts, [4]), CommitResponse)
    assert isinstance(driver.disk.entries[open_ts], int)


def test_a_refusal_that_may_be_wrong_is_not_remembered() -> None:
    """A repetition that does not say so came late: the commit was completed and forgotten."""
    driver = Driver(small(decision_memory=1))
    start_ts = driver.begin()
    assert isinstance(driver.commit(start_ts, [1]), CommitResponse)
    for cell in (2, 3):
        driver.commit(driver.begin(), [cell])
    del driver.disk.entries[start_ts]
    assert driver.commit(start_ts, [1]) == refused(start_ts, AbortReason.CONFLICT, (1,))
    assert "nothing is known" in str(driver.commit(start_ts, [1], is_retry=True))


def test_what_is_barred_while_it_is_looked_up_is_not_decided() -> None:
    """The invalidation was answered 'unknown', which promises that nothing follows."""
    driver = Driver(small(decision_memory=1))
    start_ts = driver.begin()
    for cell in (1, 2, 3):
        driver.commit(driver.begin(), [cell])
    driver.flushes_at_once = False
    (asked,) = driver.ask(commit_request(start_ts, [9]))
    (barred,) = driver.ask(InvalidateRequest(start_ts))
    driver.land()
    driver.land()
    assert driver.answer(barred) == InvalidateResponse(start_ts, InvalidateVerdict.UNKNOWN)
    assert "invalidated meanwhile" in driver.closed[asked]
    assert start_ts not in driver.disk.entries


def test_a_retry_of_which_nothing_is_known_gets_no_answer() -> None:
    """It may have committed, been completed and left the table: an abort would be invented."""
    before = Driver()
    start_ts = before.begin()
    after = Driver(disk=before.disk)
    reason = after.commit(start_ts, [1], is_retry=True)
    assert isinstance(reason, str)
    assert "nothing is known" in reason
    assert after.disk.entries == {}


def test_a_retry_is_never_decided_afresh() -> None:
    """Even where memory is whole: its first request may still be on the way."""
    driver = Driver()
    start_ts = driver.begin()
    assert "nothing is known" in str(driver.commit(start_ts, [1], is_retry=True))
    assert driver.disk.entries == {}


def test_a_retry_at_the_prune_horizon_gets_no_answer() -> None:
    """Its entry may have been pruned, whatever else is found."""
    before = Driver()
    start_ts = before.begin()
    before.commit(start_ts, [1])
    before.disk.prune_horizon = start_ts
    after = Driver(disk=before.disk)
    assert "prune horizon" in str(after.commit(start_ts, [1], is_retry=True))
    after.disk.prune_horizon = start_ts - 50
    assert isinstance(after.commit(start_ts, [1], is_retry=True), CommitResponse)


def test_a_retry_below_the_watermark_is_looked_up_before_any_abort() -> None:
    """The watermark forbids deciding; it says nothing about what was decided."""
    driver = Driver(small(conflict_map_size=1, decision_memory=1))
    start_ts = driver.begin()
    driver.commit(start_ts, [1])
    driver.commit(driver.begin(), [2])
    driver.commit(driver.begin(), [3])
    assert driver.machine.low_watermark > start_ts
    assert driver.commit(start_ts, [1], is_retry=True) == CommitResponse(start_ts, Timestamp(100))


# -- invalidations ---------------------------------------------------------------------------------


def test_an_undecided_transaction_is_invalidated_for_good() -> None:
    """The oracle alone may do it above the watermark, because it knows what it decided."""
    driver = Driver()
    start_ts = driver.begin()
    expected = InvalidateResponse(start_ts, InvalidateVerdict.INVALIDATED)
    assert driver.invalidate(start_ts) == expected
    assert driver.disk.entries == {start_ts: INVALID}
    assert driver.commit(start_ts, [1]) == refused(start_ts, AbortReason.INVALIDATED)
    assert driver.invalidate(start_ts) == expected


def test_an_invalidation_is_remembered_even_where_the_table_forgets_it() -> None:
    """On HBase an older delete marker can hide it, and a commit there checks nothing."""
    driver = Driver()
    start_ts = driver.begin()
    driver.invalidate(start_ts)
    del driver.disk.entries[start_ts]
    assert driver.commit(start_ts, [1]) == refused(start_ts, AbortReason.INVALIDATED)


def test_an_invalidation_is_answered_when_it_is_durable() -> None:
    """Whoever asked will act on it."""
    driver = Driver(flushes_at_once=False)
    driver.ask(TimestampRequest())
    (name,) = driver.ask(InvalidateRequest(Timestamp(50)))
    assert driver.answer(name) is None
    driver.land()
    assert driver.answer(name) is not None


def test_an_invalidation_after_the_commit_says_committed() -> None:
    """Also while the commit is still being written."""
    driver = Driver(flushes_at_once=False)
    driver.ask(TimestampRequest())
    driver.ask(commit_request(50, [1]))
    (name,) = driver.ask(InvalidateRequest(Timestamp(50)))
    driver.land()
    assert driver.answer(name) == InvalidateResponse(
        Timestamp(50), InvalidateVerdict.COMMITTED, Timestamp(100)
    )
    assert driver.disk.entries == {50: 100}


def test_an_invalidation_of_an_aborted_transaction_plants_nothing() -> None:
    """It will not commit anyway."""
    driver = Driver()
    start_ts = driver.begin()
    driver.commit(driver.begin(), [1])
    driver.commit(start_ts, [1])
    expected = InvalidateResponse(start_ts, InvalidateVerdict.INVALIDATED)
    assert driver.invalidate(start_ts) == expected
    assert start_ts not in driver.disk.entries


def test_an_invalidation_below_the_watermark_is_answered_from_the_table() -> None:
    """Nothing is planted: the transaction may be complete, its entry gone."""
    before = Driver()
    committed, forbidden, unknown = before.begin(), before.begin(), before.begin()
    before.commit(committed, [1])
    before.disk.entries[forbidden] = INVALID
    after = Driver(disk=before.disk)
    verdicts = [after.invalidate(start_ts) for start_ts in (committed, forbidden, unknown)]
    assert verdicts == [
        InvalidateResponse(committed, InvalidateVerdict.COMMITTED, Timestamp(200)),
        InvalidateResponse(forbidden, InvalidateVerdict.INVALIDATED),
        InvalidateResponse(unknown, InvalidateVerdict.UNKNOWN),
    ]
    assert unknown not in after.disk.entries


def test_an_invalidation_at_the_prune_horizon_tells_nothing() -> None:
    """Who planted it may have stood still while a commit came, was healed, and was pruned."""
    before = Driver()
    start_ts = before.begin()
    before.disk.entries[start_ts] = INVALID
    after = Driver(disk=before.disk)
    after.disk.prune_horizon = start_ts
    assert after.invalidate(start_ts) == InvalidateResponse(start_ts, InvalidateVerdict.UNKNOWN)
    after.disk.prune_horizon = start_ts - 50
    expected = InvalidateResponse(start_ts, InvalidateVerdict.INVALIDATED)
    assert after.invalidate(start_ts) == expected


@pytest.mark.parametrize("start_ts", [1, 49, 51, 99, 149])
def test_an_invalidation_of_what_no_oracle_issues_ends_the_connection(start_ts: int) -> None:
    """Below the watermark as well: no entry can be looked up of a number between two steps."""
    before = Driver()
    before.begin(), before.begin()
    after = Driver(disk=before.disk)
    assert start_ts <= after.machine.low_watermark
    assert after.invalidate(start_ts) == f"start_ts {start_ts} was never issued"


def test_an_invalidation_where_memory_is_not_whole_plants_nothing() -> None:
    """The decision may be one of those forgotten, and its entry completed and gone."""
    driver = Driver(small(decision_memory=2))
    undecided, completed = driver.begin(), driver.begin()
    driver.commit(completed, [1])
    del driver.disk.entries[completed]
    for cell in (2, 3):
        driver.commit(driver.begin(), [cell])
    for start_ts in (undecided, completed):
        expected = InvalidateResponse(start_ts, InvalidateVerdict.UNKNOWN)
        assert driver.invalidate(start_ts) == expected
        assert start_ts not in driver.disk.entries


def test_what_was_called_unknown_is_never_decided_afterwards() -> None:
    """The client then judges by its cells; a commit still on the way must not prove it wrong."""
    driver = Driver(small(decision_memory=2))
    undecided = driver.begin()
    for cell in (1, 2, 3):
        driver.commit(driver.begin(), [cell])
    driver.invalidate(undecided)
    assert "nothing is known" in str(driver.commit(undecided, [9]))
    assert undecided not in driver.disk.entries


def test_invalidations_are_forgotten_below_the_watermark() -> None:
    """Their number is bounded by what can still be asked for."""
    driver = Driver(small(conflict_map_size=1))
    start_ts = driver.begin()
    driver.invalidate(start_ts)
    for cell in (1, 2):
        driver.commit(driver.begin(), [cell])
    assert driver.machine.low_watermark > start_ts
    del driver.disk.entries[start_ts]
    assert driver.commit(start_ts, [9]) == refused(start_ts, AbortReason.LOW_WATERMARK)


# -- the low watermark -----------------------------------------------------------------------------


def test_a_watermark_raised_by_eviction_is_written_with_its_batch() -> None:
    """Never before an earlier decision is durable: L1 of the proof that pruning is safe."""
    driver = Driver(small(conflict_map_size=1), flushes_at_once=False)
    driver.ask(*[TimestampRequest()] * 3)
    driver.ask(commit_request(50, [1]))
    driver.ask(commit_request(100, [2]))
    assert driver.flight is not None
    assert driver.flight.low_watermark is None
    assert driver.machine.low_watermark == 200
    driver.land()
    assert driver.flight is not None
    assert driver.flight.low_watermark == 200
    assert driver.disk.low_watermark == 0
    driver.land()
    assert driver.disk.low_watermark == 200
    assert driver.disk.entries == {50: 200, 100: 250}


def test_a_watermark_that_every_commit_raises_is_written_once_a_second() -> None:
    """On HBase each write of it is a round trip; a promise may lag, but must come in the end."""
    driver = Driver(small(conflict_map_size=1))
    for number in range(5):
        start_ts = driver.begin()
        driver.commit(start_ts, [number])
    assert len(driver.disk.entries) == 5
    written = driver.disk.low_watermark
    assert 0 < written < driver.machine.low_watermark
    driver.tick(seconds=0.99)
    assert driver.disk.low_watermark == written
    driver.tick(seconds=0.01)
    assert driver.disk.low_watermark == driver.machine.low_watermark


def test_an_idle_oracle_lets_its_watermark_age() -> None:
    """In Java it never moves on a quiet cluster, and nothing is ever collected."""
    driver = Driver(small(max_transaction_age_ms=64_000))
    first = driver.begin()
    driver.tick(seconds=1)
    second = driver.begin()
    driver.tick(seconds=1)
    for _ in range(63):
        driver.tick(seconds=1)
    assert driver.disk.low_watermark == first
    driver.tick(seconds=1)
    assert driver.disk.low_watermark == second
    driver.tick(seconds=1000)
    assert driver.disk.low_watermark == driver.machine.last_issued == second


def test_a_transaction_older_than_the_limit_cannot_commit() -> None:
    """That is the promise which lets old versions and entries go."""
    driver = Driver(small(max_transaction_age_ms=64_000))
    start_ts = driver.begin()
    driver.tick(seconds=1)
    young = driver.begin()
    driver.tick(seconds=64)
    assert driver.commit(start_ts, [1]) == refused(start_ts, AbortReason.LOW_WATERMARK)
    assert driver.commit(young, [1]) == CommitResponse(young, Timestamp(150))


def test_a_sample_says_what_began_too_early_for_any_later_commit() -> None:
    """Who reads changes since a sample's last timestamp need not look at older versions."""
    driver = Driver(small(max_transaction_age_ms=64_000))
    started = []
    for _ in range(300):
        started.append(driver.begin())
        driver.tick(seconds=1)
        sample = driver.disk.newest_sample
        if sample is not None:
            assert sample.low_watermark <= sample.last_issued_ts
    assert sample is not None
    assert started[0] < sample.low_watermark
    later = [driver.commit(start_ts, [start_ts]) for start_ts in started]
    commits = {one.start_ts: one.commit_ts for one in later if isinstance(one, CommitResponse)}
    decided = {
        start for start, commit in commits.items() if commit and commit > sample.last_issued_ts
    }
    assert min(decided) > sample.low_watermark


def test_a_hold_keeps_the_watermark_below_its_snapshot() -> None:
    """A long report reads on, until the time that it asked for is over."""
    driver = Driver(small(max_transaction_age_ms=64_000))
    held = driver.begin(hold_ms=200_000)
    for _ in range(199):
        driver.tick(seconds=1)
        driver.begin()
    assert driver.machine.low_watermark == held - 50
    assert isinstance(driver.commit(held, [1]), CommitResponse)
    driver.tick(seconds=1)
    assert driver.machine.low_watermark > held


@pytest.mark.parametrize("way", ["commit", "refused", "invalidate"])
def test_a_hold_ends_when_its_transaction_does(way: str) -> None:
    """A driver that saves frames all day kept the low watermark an hour behind."""
    driver = Driver(small(max_transaction_age_ms=1000))
    held, other = driver.begin(hold_ms=3_600_000), driver.begin()
    if way == "refused":
        driver.commit(other, [1])
    answer = driver.invalidate(held) if way == "invalidate" else driver.commit(held, [1])
    if isinstance(answer, CommitResponse):
        assert (answer.commit_ts is None) == (way == "refused")
    open_ts = driver.begin(hold_ms=3_600_000)
    for _ in range(3):
        driver.tick(seconds=1)
        driver.begin()
    assert driver.machine.low_watermark == open_ts - 50


def test_the_date_does_not_age_anything() -> None:
    """Somebody sets the clock a year ahead: no transaction is aborted for it."""
    driver = Driver(WORLD)
    start_ts = driver.begin()
    driver.clock.step_wall(milliseconds=365 * 24 * 3600 * 1000)
    driver.tick(seconds=1)
    answer = driver.commit(start_ts, [1])
    assert isinstance(answer, CommitResponse)
    assert answer.commit_ts is not None
    assert driver.machine.low_watermark < start_ts


# -- timestamps and their ceiling ------------------------------------------------------------------


def test_world_timestamps_are_the_time() -> None:
    """Nanoseconds since 1970 in steps of 50, so that a person can read one."""
    driver = Driver(WORLD)
    assert driver.begin() == FIRST
    assert driver.begin() == FIRST + 50
    driver.clock.advance(0.001)
    assert driver.begin() == FIRST + 1_000_000


def test_a_timestamp_above_the_ceiling_waits_for_a_higher_one() -> None:
    """I1: it could be issued again after a crash."""
    driver = Driver(WORLD, flushes_at_once=False)
    driver.clock.advance(3600)
    (name,) = driver.ask(TimestampRequest())
    assert driver.answer(name) is None
    driver.land()
    start_ts = FIRST + 3600 * 1_000_000_000
    assert driver.answer(name) == TimestampResponse(Timestamp(start_ts), Timestamp(0))
    assert driver.disk.ceiling == start_ts + 1_000_000_000


def test_a_begin_above_the_ceiling_waits_with_the_commit_behind_it() -> None:
    """One flush raises the ceiling and writes the commit, and the order stays."""
    driver = Driver(WORLD, flushes_at_once=False)
    driver.ask(*[TimestampRequest()] * 2)
    driver.ask(commit_request(FIRST, [1]))
    driver.clock.advance(3600)
    (begin,) = driver.ask(TimestampRequest())
    (commit,) = driver.ask(commit_request(FIRST + 50, [2]))
    driver.land()
    assert [driver.answer(begin), driver.answer(commit)] == [None, None]
    driver.land()
    assert [answered for answered, _ in driver.sent[-2:]] == [begin, commit]
    assert driver.flight is None


def test_the_ceiling_is_raised_before_it_is_reached() -> None:
    """So that nobody waits for it while requests keep coming."""
    driver = Driver(WORLD)
    for _ in range(100):
        driver.clock.advance(0.1)
        before = driver.flush_count
        driver.begin()
        assert driver.disk.ceiling - driver.machine.last_issued <= 1_000_000_000
        assert driver.flush_count - before <= 1


def test_an_idle_oracle_writes_no_ceilings() -> None:
    """Ten seconds after the last request the disk comes to rest, but for a sample a minute."""
    driver = Driver(WORLD)
    driver.begin()
    for _ in range(11):
        driver.tick(seconds=1)
    before = driver.flush_count
    for _ in range(49):
        driver.tick(seconds=1)
    assert driver.flush_count <= before + 1


def test_incremental_timestamps_start_at_50() -> None:
    """As Omid's do on an empty store."""
    driver = Driver(INCREMENTAL)
    assert [driver.begin(), driver.begin()] == [50, 100]
    assert driver.disk.ceiling == 50_000_000


def test_a_new_instance_refuses_everything_begun_before() -> None:
    """Its conflict map is empty, so it cannot know what those would overwrite."""
    before = Driver()
    start_ts = before.begin()
    ceiling = before.disk.ceiling
    after = Driver(disk=before.disk)
    assert after.machine.epoch == after.machine.low_watermark == ceiling
    assert after.begin() == ceiling + 50
    assert after.commit(start_ts, [1]) == refused(start_ts, AbortReason.LOW_WATERMARK)


def test_the_clock_before_the_ceiling_does_not_stop_a_new_instance() -> None:
    """Java waits until the clock has caught up; we go on above the ceiling at once."""
    clock = ManualClock()
    before = Driver(WORLD, clock=clock)
    before.begin()
    ceiling = before.disk.ceiling
    clock.step_wall(milliseconds=-3_600_000)
    after = Driver(WORLD, disk=before.disk, clock=clock)
    assert after.begin() == ceiling + 50


# -- the end ---------------------------------------------------------------------------------------


def test_a_clean_stop_lowers_the_ceiling_to_the_last_timestamp() -> None:
    """The next instance need not leave a gap."""
    driver = Driver()
    driver.begin()
    start_ts = driver.begin()
    driver.stop()
    assert driver.is_stopped
    assert driver.disk.ceiling == start_ts
    assert Driver(disk=driver.disk).begin() == start_ts + 50


def test_a_stop_answers_what_is_under_way_first() -> None:
    """Drain: decide, flush, answer, and only then give the ceiling back."""
    driver = Driver(flushes_at_once=False)
    driver.ask(TimestampRequest(), TimestampRequest())
    (first,) = driver.ask(commit_request(50, [1]))
    (second,) = driver.ask(commit_request(100, [2]))
    driver.stop()
    (late,) = driver.ask(TimestampRequest())
    assert driver.closed[late] == "the oracle is stopping"
    for _ in range(3):
        assert not driver.is_stopped
        driver.land()
    assert driver.answer(first) is not None
    assert driver.answer(second) is not None
    assert driver.is_stopped
    assert driver.disk.ceiling == driver.machine.last_issued == 200


def test_a_ceiling_given_back_is_not_raised_again() -> None:
    """A tick during the last flush would leave a gap, or worse, once the lease is gone."""
    driver = Driver(WORLD)
    start_ts = driver.begin()
    driver.flushes_at_once = False
    driver.stop()
    driver.tick(seconds=0.9)
    while not driver.is_stopped:
        driver.land()
    driver.tick(seconds=0.9)
    assert driver.flight is None
    assert driver.disk.ceiling == start_ts


def test_a_first_instance_that_issued_nothing_leaves_the_ceiling() -> None:
    """A stored 0 would read as 'never written' to Java, which then fails to write."""
    driver = Driver()
    driver.stop()
    assert driver.is_stopped
    assert driver.disk == Disk(ceiling=driver.disk.ceiling)
    assert driver.disk.ceiling > 0


# -- one client among many -------------------------------------------------------------------------


def test_whoever_hoards_commits_that_wait_for_the_table_is_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the store stalls they stay in memory, at forty bytes a cell."""
    monkeypatch.setattr(machine_module, "MAX_WAITING_CELLS", 5)
    monkeypatch.setattr(settings_module, "MIN_COMMIT_CELLS", 10)  # a commit of 10 must get through
    driver = Driver(small(conflict_map_size=10, decision_memory=1), flushes_at_once=False)
    driver.ask(*[TimestampRequest()] * 9)
    for start_ts in (400, 450):  # one is forgotten, and every older transaction looked up
        driver.ask(commit_request(start_ts, [start_ts]))
        driver.land()
    driver.ask_as("modest", commit_request(50, [1, 2]))
    driver.ask_as("hoarder", commit_request(100, range(10, 15)), commit_request(150, [20, 21, 22]))
    assert driver.closed == {}
    driver.ask_as("modest", commit_request(200, [3, 4]))
    assert list(driver.closed) == ["hoarder"]
    driver.flushes_at_once = True
    driver.land()
    answers = [answer for ticket, answer in driver.sent if ticket == "modest"]
    assert [getattr(answer, "start_ts", None) for answer in answers] == [50, 200]
    assert set(driver.disk.entries) == {50, 200, 400, 450}
    assert isinstance(driver.commit(300, range(30, 40)), CommitResponse)


def test_a_commit_of_very_many_cells_is_refused_before_it_empties_the_map() -> None:
    """3.3 MB of one client aborted every transaction that ran."""
    driver = Driver(small(conflict_map_size=6000))
    running, large, whole = driver.begin(), driver.begin(), driver.begin()
    assert driver.commit(large, range(1501)) == refused(large, AbortReason.TOO_LARGE)
    assert driver.commit(large, range(1501)) == refused(large, AbortReason.TOO_LARGE)
    assert isinstance(driver.commit(whole, range(1500)), CommitResponse)
    assert driver.commit(running, [9000]) == CommitResponse(running, Timestamp(250))


def test_a_transaction_is_committed_by_whoever_began_it() -> None:
    """Somebody else's commit without cells would answer for this one, and hide its conflict."""
    driver = Driver()
    driver.ask_as("ours", TimestampRequest(), client=7)
    other = driver.begin()
    assert isinstance(driver.commit(other, [1]), CommitResponse)
    for ticket, client in (("stranger", 8), ("java", 0)):
        driver.ask_as(ticket, commit_request(50, []), client=client)
        assert driver.closed[ticket] == "another client began start_ts 50"
    driver.ask_as("ours, connected again", commit_request(50, [1]), client=7)
    _, answer = driver.sent[-1]
    assert answer == refused(50, AbortReason.CONFLICT, (1,))


def test_what_omids_clients_begin_is_everybodys() -> None:
    """They do not say who they are; a fence of theirs is a start timestamp as well."""
    driver = Driver()
    begun, fenced = driver.begin(), driver.fence(3)
    driver.ask_as("another", commit_request(begun, [1]), commit_request(fenced, [2]), client=7)
    assert [getattr(answer, "commit_ts", None) for _, answer in driver.sent[-2:]] == [150, 200]


def test_what_was_never_issued_neither_commits_nor_takes_memory() -> None:
    """Most multiples of 50 are no transaction where timestamps are times."""
    driver = Driver(WORLD)
    start_ts = driver.begin()
    never = f"start_ts {start_ts - 50} was never issued"
    assert driver.commit(start_ts - 50, [1]) == never
    assert driver.invalidate(start_ts - 50) == never
    assert isinstance(driver.commit(start_ts, [1]), CommitResponse)
    after = driver.begin()
    driver.machine._engine.raise_low_watermark(start_ts)
    assert isinstance(driver.invalidate(start_ts - 50), InvalidateResponse)
    committed_at = driver.disk.entries[start_ts]
    assert isinstance(committed_at, int)
    assert driver.commit(committed_at, [2]) == f"start_ts {committed_at} was never issued"
    assert isinstance(driver.commit(after, [2]), CommitResponse)


def test_one_client_cannot_take_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalidations and fences are remembered until the low watermark has passed them."""
    monkeypatch.setattr(promises_module, "MAX_INVALIDATIONS_OF_ONE", 2)
    monkeypatch.setattr(promises_module, "MAX_FENCES_OF_ONE", 2)
    driver = Driver()
    driver.ask(*[TimestampRequest()] * 5)
    for number in (50, 100, 100):
        driver.ask_as("ours", InvalidateRequest(Timestamp(number)), client=7)
        driver.ask_as("ours", FenceRequest(TableId(number)), client=7)
    assert driver.closed == {}
    driver.ask_as("reconnected", InvalidateRequest(Timestamp(150)), client=7)
    assert driver.closed.pop("reconnected") == "2 invalidations are remembered"
    driver.ask_as("reconnected", FenceRequest(TableId(150)), client=7)
    assert driver.closed.pop("reconnected") == "2 tables have a fence"
    assert isinstance(driver.invalidate(150), InvalidateResponse)
    assert driver.fence(150)
    driver.machine._engine.raise_low_watermark(100)
    driver.tick()
    for number in (200, 150):
        driver.ask_as("ours", InvalidateRequest(Timestamp(number)), client=7)
    assert driver.closed == {}


def test_holds_of_a_client_that_left_do_not_outlive_its_grace() -> None:
    """10,000 of them kept the low watermark down for a day."""
    driver = Driver(small(max_transaction_age_ms=1000))
    driver.ask_as("ours", TimestampRequest(hold_ms=3_600_000), client=7)
    driver.ask_as("theirs", TimestampRequest(hold_ms=3_600_000))
    driver.leave("ours", client=7)
    driver.leave("theirs")
    driver.ask_as("ours, connected again", TimestampRequest(), client=7)
    for _ in range(3):
        driver.tick(seconds=1)
    assert driver.machine.low_watermark == 0
    driver.leave("ours, connected again", client=7)
    for _ in range(3):
        driver.tick(seconds=1)
    assert driver.machine.low_watermark >= 100
