"""Carries out one run: alone, as an operation that the next one can finish.

    refuse what cannot be compacted      nothing is written yet
    take the lease                       behind a holder that lives
    deal with what the last run left     past its pivot: finish it; before: end it, or go on with
                                         it, if that is asked for
    keep an operation, carry it out      `operation.py`

The operation is in the store's table of operations, where `omidpy fate list` shows it, and is
reserved from its first moment on, so that no other executor touches it.  The lease names it before
it is there, so that one which was not ended is always found.

The lease holder takes the operation that it names from any other driver.  A driver that has lost
the lease finds that out by his next write to the operation, and at the latest where `lease.py`
says.

An interrupt leaves what a kill leaves, but gives the operation and the lease back.

What a run has left is never in the way of the next one: entries that it did not come to are below
a horizon that only rises, so that where it cannot be finished it is given up.

A dry run carries out the same operation over a store in memory, without a lease: it writes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from compactor.ranges.range_pass import OnStep, ignore_step
from compactor.report import RunLog, RunRecord
from compactor.run.heart import Heart
from compactor.run.lease import DEFAULT_LEASE_S, PruneLease, PruneLeaseRecord
from compactor.run.operation import KIND, CompactionStep, ListTables, Work
from omidpy.base.reach import reached
from omidpy.base.timing.clock import Clock
from omidpy.errors import (
    CorruptCell,
    FateError,
    OmidError,
    OracleError,
    ReservationLost,
    UsageError,
)
from omidpy.facts.control import ControlTable
from omidpy.fate.locks import Locks
from omidpy.fate.operation import (
    Failure,
    FateId,
    Operation,
    failure_of,
    given_up,
    new_id,
    released,
    reserved,
    seeded,
)
from omidpy.fate.running.runner import Runner
from omidpy.fate.step import decode_step, encode_step
from omidpy.fate.store import FateStore, new_reservation
from omidpy.fate.table.store import TableFateStore
from omidpy.life.base import Member
from omidpy.model import Timestamp
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore

LOOK_S: Final = 0.25
"""How often a driver that waits for the lease looks whether it is free."""

RESUMABLE_S: Final = 86_400.0
"""How old a run may be that is resumed: behind an older one a new run has as little to do."""

REHEARSAL_LEASE_S: Final = 10.0 * 365 * 86_400
"""No other driver sees the operation of a dry run, so that none takes its place, however long."""

DRIVER_STEPS: Final = ("lease-taken", "operation-kept", "operation-ended")
"""Where this part of a run can be stopped by a test, in order."""


def rehearse(work: Work, *, clock: Clock) -> None:
    """Carry a run out, and leave no trace of it."""
    low_watermark = work.begin()
    fates = TableFateStore(MemoryStore())
    worker = fates.new_worker(lease_s=REHEARSAL_LEASE_S, clock=clock)
    operation = _new_operation(new_id(), low_watermark, worker, clock)
    _carry_out(fates, worker, fates.create(operation), work, clock)


class Driver:
    """Carries out one run on a store."""

    def __init__(
        self,
        store: Store,
        work: Work,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        on_step: OnStep = ignore_step,
        lease_s: float = DEFAULT_LEASE_S,
    ) -> None:
        """Do nothing yet.

        Args:
            store: What is compacted.
            work: What the steps do.
            clock: Measures leases.
            sleep: Waits for another run.
            on_step: Called behind each step.
            lease_s: How long this run may show no life before another takes its place.
        """
        self._store = store
        self._work = work
        self._clock = clock
        self._sleep = sleep
        self._on_step = on_step
        self._runs = RunLog(ControlTable(store), clock.wall_ms)
        self._fates = TableFateStore(store)
        self._judge = self._fates.new_judge(clock)
        self._lease = PruneLease(store, clock, judge=self._judge)
        self._heart = Heart(self._fates, clock, lease_s, at_end=self._lease.release)
        self._operation_id = new_id()

    def run(self, *, should_resume: bool = False) -> None:
        """Carry the run out.

        Args:
            should_resume: Go on with the run that was killed, if there is one.

        Raises:
            ReservationLost: another run has taken this one for dead.
            UsageError: the run that was killed is too old to go on with.
            OmidError: the run has failed, or the store is refused.
        """
        low_watermark = self._work.begin()
        self._heart.beat_while(partial(self._run, low_watermark, should_resume=should_resume))

    def _run(self, low_watermark: Timestamp, *, should_resume: bool) -> None:
        left, has_waited = self._take_lease()
        if has_waited or left is not None:
            # What is left may be of a run that began behind us, while we stood still: by what was
            # known before, its low watermark would be one that the oracle has lost, and entries of
            # its time would be malformed.
            low_watermark = self._work.begin()
        if left is not None and should_resume:
            self._resume(left, low_watermark)
        else:
            if left is not None:
                self._clear_away(left)
            elif should_resume:
                self._work.journal.note("there is no run to resume: this is a new one")
            self._run_anew(low_watermark)
        self._thin()

    # -- the lease -----------------------------------------------------------------------------

    def _take_lease(self) -> tuple[Operation | None, bool]:
        """Take the lease; return what the last run has left, and whether that took time."""
        has_waited = False
        while True:
            found = self._lease.look()
            if self._lease.is_free(found):
                left = self._left_by(found)
                run, operation = self._work.journal.run_id, str(self._operation_id)
                if left is not None:
                    run, operation = found.run, found.operation
                if self._lease.try_take(found, worker=self._heart.id, run=run, operation=operation):
                    break
            else:
                if not has_waited:
                    began = datetime.fromtimestamp(found.since_ms / 1000, UTC)
                    self._work.journal.note(
                        f"waiting for {found.holder()}, which has been at work since "
                        f"{began:%Y-%m-%d %H:%M:%S} UTC"
                    )
                has_waited = True
                self._sleep(LOOK_S)
                self._heart.is_trusted()
        self._on_step("lease-taken")
        if found.is_held:
            # Its row would stay for ever, and a process that wakes up learns from it what it is.
            self._fates.sweep(self._judge)
        return left, has_waited

    def _left_by(self, found: PruneLeaseRecord) -> Operation | None:
        """Return the operation that the last run did not end; None: it did."""
        if not found.operation:
            return None
        try:
            left = self._fates.read(FateId(found.operation))
        except CorruptCell as error:
            self._work.journal.note(f"what run {found.run} has left is given up: {error}")
            return None
        return None if left is None or left.is_finished else left

    # -- what the last run has left ------------------------------------------------------------

    def _resume(self, left: Operation, low_watermark: Timestamp) -> None:
        """Go on with a run that was killed, with its own L."""
        run = self._lease.record.run
        age_s = (self._clock.wall_ms() - left.created_ms) / 1000
        if age_s > RESUMABLE_S:
            raise UsageError(
                f"run {run} was begun {age_s / 3600:.0f} hours ago, which is too long to go on "
                "with it; run again without --resume"
            )
        step = decode_step(left.stack[-1], where=f"the top of operation {left.id}")
        if isinstance(step, CompactionStep) and step.low_watermark > low_watermark:
            raise OracleError(
                f"the low watermark of {self._store.url} is {low_watermark}, and run {run} was "
                f"begun at {step.low_watermark}: the oracle has lost its state"
            )
        reached("compaction.resumed", "I7")
        self._work.continue_run(*self._take_over(run, left))
        self._work.journal.note(f"going on with run {run}, which was killed")
        self._carry_on(left, self._work)

    def _clear_away(self, left: Operation) -> None:
        """Finish what is past its pivot, end what is not, and name our own operation."""
        run, journal = self._lease.record.run, self._work.journal
        if left.is_past_pivot:
            reached("compaction.finished_anothers", "I7")
            journal.note(f"finishing run {run} first, which was killed while it pruned")
            try:
                self._carry_on(left, self._work.elder(*self._take_over(run, left)))
            except ReservationLost:
                raise
            except OmidError as error:
                journal.note(f"run {run} could not be finished ({error}), and is given up")
                found = self._fates.read(left.id)
                # In this order: the holder of the lease by now may be at work on what was read.
                if not self._lease.is_ours():
                    raise self._lease.lost() from error
                if found is not None and not found.is_finished:
                    self._fates.delete(found)
                    self._supersede(run)
        else:
            reached("compaction.superseded", "I7")
            journal.note(f"run {run} was killed; this one takes its place")
            failure = Failure(f"killed, and superseded by run {journal.run_id}")
            self._fates.write(left, given_up(left, failure, now_ms=self._clock.wall_ms()))
            self._supersede(run)
        self._lease.name(run=journal.run_id, operation=self._operation_id)

    def _take_over(self, run: str, left: Operation) -> tuple[RunRecord, bytes]:
        """Make the record of a run that left an operation ours; return it, also as it is written.

        Raises:
            ReservationLost: another run has the lease by now, and the record is its.
        """

        def continued(found: RunRecord | None) -> RunRecord:
            record = found or RunRecord(run, left.created_ms, "", 0, operation=left.id)
            return self._work.journal.continued(record)

        return self._replace_record(run, continued)

    def _supersede(self, run: str) -> None:
        """Record that this run has taken the place of one that was killed.

        Raises:
            ReservationLost: another run has the lease by now, and may have finished that one.
        """
        if self._runs.read_raw(run)[1] is None:
            return
        by, now_ms = self._work.journal.run_id, self._clock.wall_ms()

        def superseded(found: RunRecord | None) -> RunRecord:
            assert found is not None, "it was there, and goes only with those of long ago"
            return msgspec.structs.replace(found, ended_ms=now_ms, superseded_by=by)

        self._replace_record(run, superseded)

    def _replace_record(
        self, run: str, changed: Callable[[RunRecord | None], RunRecord]
    ) -> tuple[RunRecord, bytes]:
        """Change the record of a run that was killed; None is one that is not there."""
        while True:
            raw, found = self._runs.read_raw(run)
            # In this order: a driver that had taken the lease before may have finished the run, and
            # this would write over its report.  One that takes it from now on finds what we wrote,
            # or has changed what we compare with.
            if not self._lease.is_ours():
                raise self._lease.lost()
            record = changed(found)
            if (written := self._runs.replace(raw, record)) is not None:
                return record, written

    # -- a run ---------------------------------------------------------------------------------

    def _run_anew(self, low_watermark: Timestamp) -> None:
        self._work.journal.begin(operation=self._operation_id)
        worker = self._heart.worker
        new = _new_operation(self._operation_id, low_watermark, worker, self._clock)
        operation = self._fates.create(new)
        self._on_step("operation-kept")
        self._carry_on(operation, self._work)

    def _carry_on(self, operation: Operation, work: Work) -> None:
        """Carry an operation out, and record of the run how it ended if that is not well."""
        work.lease = self._lease
        try:
            _carry_out(self._fates, self._heart, operation, work, self._clock)
        except ReservationLost:
            reached("compaction.deposed", "I7")
            self._drop_if_unnamed(operation)
            lost = self._lease.lost()
            work.journal.end(error=str(lost))
            raise lost from work.error
        except Exception as error:
            work.journal.end(error=str(error) or type(error).__name__)
            raise
        self._on_step("operation-ended")

    def _drop_if_unnamed(self, operation: Operation) -> None:
        """Remove an operation that was kept when the lease was lost already: none will find it.

        Else the lease holder has dealt with it.
        """
        if self._lease.look().operation != operation.id:
            found = self._fates.read(operation.id)
            if found is not None and not found.is_finished:
                self._fates.delete(found)

    def _thin(self) -> None:
        """Forget old runs, and before them what is left of their operations."""
        old = self._runs.old()
        for operation_id in filter(None, old.values()):
            found = self._fates.read(FateId(operation_id))
            if found is not None:
                self._fates.delete(found)
        self._runs.forget(old)


def _new_operation(
    operation_id: FateId, low_watermark: Timestamp, worker: Member, clock: Clock
) -> Operation:
    """Return the operation of a run, which `worker` has reserved from the beginning."""
    first = ListTables(low_watermark)
    new = Operation(
        id=operation_id, name=KIND, created_ms=clock.wall_ms(), stack=(encode_step(first),)
    )
    return reserved(seeded(new), new_reservation(worker))


def _carry_out(
    fates: FateStore, worker: Member, operation: Operation, work: Work, clock: Clock
) -> None:
    """Carry an operation out, whichever driver had it.

    Raises:
        ReservationLost: another driver has it by now.
        Exception: what a step has raised.  Before the pivot the operation is ended with it; behind
            it, it is left for the next run.
    """
    reservation = operation.reservation
    if reservation is not None and reservation.worker != worker.id:
        operation = fates.write(operation, released(operation))
    runner = Runner(
        fates,
        work,
        clock=clock,
        locks=Locks(fates),
        # What a step has raised is for the caller to judge, so that the operation is given back.
        is_stopping=lambda: work.error is not None,
    )
    try:
        ended = runner.run(operation, worker).operation
    except OmidError:
        if work.error is None:
            raise
        ended = None
    if work.error is not None:
        if ended is not None and not ended.is_past_pivot:
            failure = failure_of(work.error, step=KIND)
            with contextlib.suppress(OmidError):
                fates.write(ended, given_up(ended, failure, now_ms=clock.wall_ms()))
        raise work.error
    # Where it has ended, that was written by us, while it was ours: late is not lost.
    if ended is None or not (ended.is_finished or worker.is_trusted()):
        raise ReservationLost(f"operation {operation.id} is carried out by somebody else by now")
    if not ended.is_finished:
        raise FateError(f"operation {ended.id} cannot be carried out: {ended.waiting}")
