"""Oracles that are broken on purpose: each must be caught, by the check that is named for it.

The same scenarios run on the true machine first and pass, so that a check which catches everything
is caught as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.model import TableId, Timestamp
from omidpy.oracle.base import AbortReason
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    FenceRequest,
    FenceResponse,
    InvalidateResponse,
    InvalidateVerdict,
    TimestampRequest,
)
from tests.machines import oracle_checks
from tests.machines.engines import interpreted_engine
from tests.machines.oracle_driver import Disk, Driver, commit_request, small
from tso.core.batches import Batches
from tso.core.events import Batch, Deferred, Effect, Event, Flush, FlushResult, Question, Send
from tso.core.machine import Machine
from tso.core.past.recalling import Recaller
from tso.core.settings import Settings

MachineType = Callable[..., Machine[str]]
Scenario = Callable[[MachineType], Driver]
WORLD = Settings(timestamps="world", conflict_map_size=100)


# -- broken machines -------------------------------------------------------------------------------


class AnswersFirst(Machine[str]):
    """Breaks I2: sends the answers of a batch, then flushes it."""

    def handle(self, event: Event[str]) -> list[Effect[str]]:
        """Put the answers before their flush."""
        effects: list[Effect[str]] = []
        for effect in super().handle(event):
            if isinstance(effect, Flush):
                early = [(t, a) for t, a in effect.batch.answers if not isinstance(a, Deferred)]
                effect.batch.answers = [
                    (t, a) for t, a in effect.batch.answers if isinstance(a, Deferred)
                ]
                effects.append(Send(early))
            effects.append(effect)
        return effects


class _OvertakingBatches(Batches[Any]):
    def _may_leave(self, batch: Batch[Any], is_vouched: bool) -> bool:  # noqa: FBT001 - as it is there
        del is_vouched
        return not batch.has_decisions() and batch.newest_ts <= self._durable_ceiling


class OvertakesTheFlush(Machine[str]):
    """Breaks I2: lets a begin go while earlier commits are on their way to the disk."""

    _batches_type = _OvertakingBatches


class _EarlyBatches(Batches[Any]):
    def open_decisions(self) -> Batch[Any]:
        """Let all that waits be early, what waits for an earlier decision included."""
        self._early.answers += self._pending.answers
        self._early.newest_ts = max(self._early.newest_ts, self._pending.newest_ts)
        self._pending.answers = []
        return self._pending


class LetsBeginsPastACommit(Machine[str]):
    """Breaks I2: whatever waits when a commit is decided leaves with the flush before it."""

    _batches_type = _EarlyBatches


class FenceOvertakes(Machine[str]):
    """Breaks I2 as Java does: the reply to a fence does not wait for the commits before it."""

    def _ask(self, ticket: str, request: Question, effects: list[Effect[str]]) -> None:
        if isinstance(request, FenceRequest):
            fence_ts = Timestamp(self._engine.fence(request.table_id))
            effects.append(Send([(ticket, FenceResponse(request.table_id, fence_ts))]))
        else:
            super()._ask(ticket, request, effects)


class _UncoveredBatches(Batches[Any]):
    def _may_leave(self, batch: Batch[Any], is_vouched: bool) -> bool:  # noqa: FBT001 - as it is there
        del is_vouched
        return not batch.has_decisions()

    def take_answers(self, batch: Batch[Any]) -> list[Any]:
        """Take whatever is asked for as covered."""
        self._durable_ceiling = max(self._durable_ceiling, batch.newest_ts)
        return super().take_answers(batch)


class IssuesAboveTheCeiling(Machine[str]):
    """Breaks I1: does not wait for the ceiling above a timestamp."""

    _batches_type = _UncoveredBatches


class ForgetsSilently(Machine[str]):
    """Breaks I3: evicts commits without raising the watermark."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Use an engine that forgets."""
        super().__init__(*arguments, **options)
        engine: Any = interpreted_engine().Engine(last_issued=self.epoch, conflict_map_size=1)
        engine._forget_up_to = lambda low_watermark: None
        self._engine = engine


class AcceptsTheWatermark(Machine[str]):
    """Breaks I4: lets a transaction commit whose start is the watermark itself."""

    def _decide(
        self, ticket: str, request: CommitRequest, client: int, *, is_certain: bool = True
    ) -> None:
        if request.start_ts == self._engine.low_watermark:
            self._engine.low_watermark -= 50
            super()._decide(ticket, request, client, is_certain=is_certain)
            self._engine.low_watermark += 50
        else:
            super()._decide(ticket, request, client, is_certain=is_certain)


class DecidesRetriesAfresh(Machine[str]):
    """Breaks I9: treats a retry of which it knows nothing as a first request."""

    def _commit(self, ticket: str, request: CommitRequest, effects: list[Effect[str]]) -> None:
        first = CommitRequest(request.start_ts, request.cell_ids, request.table_ids)
        super()._commit(ticket, first, effects)


class _InventingRecaller(Recaller):
    def looked_up(self, start_ts: int, result: FlushResult) -> CommitResponse | str:
        """Refuse what the table does not know."""
        answer = super().looked_up(start_ts, result)
        if isinstance(answer, str):
            return CommitResponse(Timestamp(start_ts), None, (), AbortReason.UNSTATED.value)
        return answer


class InventsAborts(Machine[str]):
    """Breaks I9: takes a missing commit entry for an abort, as Java does."""

    _recaller_type = _InventingRecaller


class _InvalidatingRecaller(Recaller):
    def recalled(self, waiting: Deferred, result: FlushResult) -> Any:
        """Call invalidated what is not known."""
        answer = super().recalled(waiting, result)
        if isinstance(answer, InvalidateResponse) and answer.verdict is InvalidateVerdict.UNKNOWN:
            return InvalidateResponse(answer.start_ts, InvalidateVerdict.INVALIDATED)
        return answer


class PlantsFalseInvalidations(Machine[str]):
    """Breaks I9: invalidates a transaction that may be complete, its entry gone."""

    _recaller_type = _InvalidatingRecaller


class ForgetsInvalidations(Machine[str]):
    """Breaks I9 on a store that does not check: decides what it has promised never to decide."""

    def _invalidate(self, ticket: str, start_ts: int, effects: list[Effect[str]]) -> None:
        super()._invalidate(ticket, start_ts, effects)
        self._promises.invalidated.clear()


class AnswersRefusedCommits(Machine[str]):
    """Breaks I8: tells a client 'committed' although an invalidation stood in the way."""

    def _release(self, batch: Batch[str], result: FlushResult, effects: list[Effect[str]]) -> None:
        super()._release(
            batch, FlushResult(frozenset(), result.entries, result.prune_horizon), effects
        )


# -- scenarios -------------------------------------------------------------------------------------


def commit_then_begin(machine: MachineType) -> Driver:
    """Begin while a commit is being flushed."""
    driver = Driver(machine=machine, flushes_at_once=False)
    driver.ask(TimestampRequest())
    driver.ask(commit_request(50, [1]))
    driver.ask(TimestampRequest())
    return _landed(driver)


def commit_then_fence(machine: MachineType) -> Driver:
    """Fence while a commit is being flushed."""
    driver = Driver(machine=machine, flushes_at_once=False)
    driver.ask(TimestampRequest())
    driver.ask(commit_request(50, [1]))
    driver.ask(FenceRequest(TableId(1)))
    return _landed(driver)


def commits_behind_a_flush(machine: MachineType) -> Driver:
    """Commit twice, with a begin between, while a flush is under way."""
    driver = Driver(machine=machine, flushes_at_once=False)
    driver.ask(*[TimestampRequest()] * 3)
    driver.ask(commit_request(50, [1]))
    driver.ask(commit_request(100, [2]))
    driver.ask(TimestampRequest())
    driver.ask(commit_request(150, [3]))
    return _landed(driver)


def begin_after_a_long_rest(machine: MachineType) -> Driver:
    """Begin when the clock is far above the ceiling that was stored."""
    driver = Driver(WORLD, machine=machine, flushes_at_once=False)
    driver.clock.advance(3600)
    driver.ask(TimestampRequest())
    return _landed(driver)


def overwrite_a_forgotten_commit(machine: MachineType) -> Driver:
    """Two transactions write one cell, and the first commit is evicted before the second."""
    driver = Driver(small(conflict_map_size=1), machine=machine)
    late = driver.begin()
    driver.commit(driver.begin(), [1])
    driver.commit(driver.begin(), [2])
    driver.commit(late, [1])
    return driver


def commit_at_the_watermark(machine: MachineType) -> Driver:
    """Let a transaction try that has just become too old."""
    driver = Driver(small(max_transaction_age_ms=64_000), machine=machine)
    start_ts = driver.begin()
    driver.tick(seconds=1)
    driver.begin()
    driver.tick(seconds=64)
    assert driver.disk.low_watermark == start_ts
    driver.commit(start_ts, [1])
    return driver


def retry_after_completion(machine: MachineType) -> Driver:
    """Retry a commit whose entry is gone because all its shadow cells are there."""
    before = Driver(machine=machine)
    start_ts = before.begin()
    before.commit(start_ts, [1])
    del before.disk.entries[start_ts]
    after = Driver(machine=machine, disk=before.disk, history=before.history)
    after.commit(start_ts, [1], is_retry=True)
    after.invalidate(start_ts)
    return after


def commit_after_invalidation(machine: MachineType) -> Driver:
    """On a store that writes commit entries without looking, as HBase does."""
    driver = Driver(machine=machine, disk=PlainDisk())
    start_ts = driver.begin()
    driver.invalidate(start_ts)
    driver.commit(start_ts, [1])
    return driver


def commit_against_an_invalidation(machine: MachineType) -> Driver:
    """Commit after a reader has planted an invalidation in the table."""
    driver = Driver(machine=machine)
    start_ts = driver.begin()
    CommitTableOf(driver).invalidate(start_ts)
    driver.commit(start_ts, [1])
    return driver


class PlainDisk(Disk):
    """Writes every commit entry over whatever is there."""

    def apply(self, batch: Batch[str]) -> FlushResult:
        """Make a batch durable without conditions."""
        for start_ts, _ in batch.commits:
            self.entries.pop(start_ts, None)
        return super().apply(batch)


class CommitTableOf:
    """The commit table as another process writes it."""

    def __init__(self, driver: Driver) -> None:
        """Write to the driver's disk."""
        self._disk = driver.disk

    def invalidate(self, start_ts: int) -> None:
        """Plant an invalidation."""
        batch: Batch[str] = Batch(invalidations=[start_ts])
        self._disk.apply(batch)


def _landed(driver: Driver) -> Driver:
    while driver.flight is not None:
        driver.land()
    return driver


CASES: list[tuple[type[Machine[str]], Scenario, str]] = [
    (AnswersFirst, commit_then_begin, "I2"),
    (OvertakesTheFlush, commit_then_begin, "I2"),
    (LetsBeginsPastACommit, commits_behind_a_flush, "I2"),
    (FenceOvertakes, commit_then_fence, "I2"),
    (IssuesAboveTheCeiling, begin_after_a_long_rest, "I1"),
    (ForgetsSilently, overwrite_a_forgotten_commit, "I3"),
    (AcceptsTheWatermark, commit_at_the_watermark, "I4"),
    (DecidesRetriesAfresh, retry_after_completion, "I9"),
    (InventsAborts, retry_after_completion, "I9"),
    (PlantsFalseInvalidations, retry_after_completion, "I9"),
    (ForgetsInvalidations, commit_after_invalidation, "I9"),
    (AnswersRefusedCommits, commit_against_an_invalidation, "I8"),
]


@pytest.mark.parametrize(("broken", "scenario", "invariant"), CASES)
def test_a_broken_oracle_is_caught_by_name(
    broken: type[Machine[str]], scenario: Scenario, invariant: str
) -> None:
    """And the true one passes the same scenario."""
    oracle_checks.check_all(scenario(Machine).history)
    with pytest.raises(AssertionError, match=f"^{invariant}"):
        oracle_checks.check_all(scenario(broken).history)


# -- broken shells ---------------------------------------------------------------------------------


class WritesTheWatermarkAtOnce(Driver):
    """Breaks L1: the watermark is durable before the commits that were decided before it."""

    def _deliver(self, event: Event[str]) -> None:
        super()._deliver(event)
        if self.machine.low_watermark > self.disk.low_watermark:
            self.history.moment += 1
            self.history.watermarks.append((self.history.moment, self.machine.low_watermark))


def evict_while_flushing(driver: Driver) -> Driver:
    """Raise the watermark by eviction while an earlier commit below it is not durable."""
    driver.ask(*[TimestampRequest()] * 3)
    driver.ask(commit_request(100, [1]))
    driver.ask(commit_request(50, [2]), commit_request(150, [3]))
    return _landed(driver)


def test_a_watermark_written_too_early_is_caught() -> None:
    """A pruner that read it would take a commit that is about to happen for one that cannot."""
    settings = small(conflict_map_size=1)
    oracle_checks.check_all(evict_while_flushing(Driver(settings, flushes_at_once=False)).history)
    broken = evict_while_flushing(WritesTheWatermarkAtOnce(settings, flushes_at_once=False))
    with pytest.raises(AssertionError, match=r"^I4"):
        oracle_checks.check_all(broken.history)


def restart_behind_the_clock(*, forgets: bool) -> Driver:
    """Set the clock back an hour while the oracle is down."""
    clock = ManualClock()
    before = Driver(WORLD, clock=clock)
    for _ in range(3):
        before.begin()
    clock.step_wall(milliseconds=-3_600_000)
    disk = Disk() if forgets else before.disk
    after = Driver(WORLD, clock=clock, disk=disk, history=before.history)
    clock.advance(3600)
    for _ in range(3):
        after.begin()
    return after


def test_timestamps_issued_again_after_a_restart_are_caught() -> None:
    """What Java does with the timestamp storage it is shipped with, in memory."""
    oracle_checks.check_all(restart_behind_the_clock(forgets=False).history)
    with pytest.raises(AssertionError, match=r"^I1"):
        oracle_checks.check_all(restart_behind_the_clock(forgets=True).history)
