"""Runs one operation until it ends, waits, or is another executor's.  No threads, no queue.

    reserve                                     one write
    ready?  no:  give it back, and say why      one write, nothing else is kept
    before the first call, and a pivot's:       IN_PROGRESS, which forbids a cancel
    call  -> next step: push it                 one write (F2): the proof that the call is done
          -> Again:     put it in the place of the top
          -> Done:      SUCCESSFUL with the result, the stack emptied, given back: one write
          raises:       wait and try again, or turn round: FAILED_IN_PROGRESS with the reason
    undo from the top down, one write each, the last one with FAILED

Killed between two writes, the next one to run it begins at the same call.  Reserving and the first
IN_PROGRESS are one write where the step has no `ready` of its own.

What a step raises never ends an executor, and what ends a process (an interrupt, SystemExit) never
fails an operation: it is given back.  So is one whose step raises while its executor is told to
stop: ^C ends what a step has started, too, and the next executor calls it again.

Source: Accumulo's TransactionRunner, less the gaps between its writes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from omidpy.base.reach import reached
from omidpy.base.timing.clock import Clock
from omidpy.base.within import within
from omidpy.errors import (
    CorruptCell,
    FateError,
    OmidError,
    ReservationLost,
    StorageUnavailable,
    UsageError,
)
from omidpy.fate.locks import Locks
from omidpy.fate.operation import (
    MAX_STACK,
    RUNNABLE,
    Failure,
    Operation,
    Status,
    failed,
    failure_of,
    released,
    reserved,
    shortened,
    started,
    tried,
    undone,
)
from omidpy.fate.running.answers import change_for, check_undone, checked_wait
from omidpy.fate.running.pacing import rest_of
from omidpy.fate.step import (
    Answer,
    Defer,
    Step,
    StepContext,
    UnknownStep,
    decode_step,
)
from omidpy.fate.store import FateStore, Patience, brief, new_reservation
from omidpy.life.base import Member

T = TypeVar("T")

log = logging.getLogger(__name__)

MIN_UNDO_TRIES: Final = 3
"""How often a step is undone at least before its failure is listed and the next one's turn comes.
"""

UNKNOWN_STEP_S: Final = 10.0
"""How long an executor leaves an operation alone whose step it does not know."""

PROGRESS_S: Final = 1.0
"""A step's word on its progress is written at most so often; the last one goes with its end."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a run."""

    operation: Operation | None
    """As it was last written; None if it is another executor's."""
    wait_s: float | None = None
    """When to look at it again; None: it is finished, or another executor's."""


class _Raised:
    """What a step has raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Disturbed(Exception):
    """What a step has raised while its executor was told to stop."""


class Caller:
    """Calls the methods of steps; `omidpy.testing.fate` has one that calls them twice."""

    def ready(self, step: Step, tx: StepContext, env: Any) -> float | Defer | None:
        """Ask whether it may be called."""
        return step.ready(tx, env)

    def call(self, step: Step, tx: StepContext, env: Any) -> Answer:
        """Call the step, and note that it is being called."""
        return step.call(tx, env)

    def undo(self, step: Step, tx: StepContext, env: Any) -> None:
        """Undo what the step has done.

        Raises:
            UsageError: it has undone nothing.
        """
        answer: object = step.undo(tx, env)  # type: ignore[func-returns-value]  # a user's may
        check_undone(answer, step)


class Runner:
    """Runs operations of a store, one at a time in each thread."""

    def __init__(
        self,
        store: FateStore,
        env: Any,
        *,
        clock: Clock,
        locks: Locks,
        caller: Caller | None = None,
        patience: Patience = brief,
        is_stopping: Callable[[], bool] = lambda: False,
        max_stack: int = MAX_STACK,
    ) -> None:
        """Run for no executor yet.

        Args:
            store: Where the operations are.
            env: What every step gets.
            clock: For times of ends and for pauses between words of progress.
            locks: To release what an operation leaves behind.
            caller: Calls the steps.
            patience: How long to try to write what has been done already.
            is_stopping: Asked between steps.
            max_stack: Steps on one stack.
        """
        self.store = store
        self.env = env
        self.clock = clock
        self.locks = locks
        self.caller = caller or Caller()
        self.patience = patience
        self.is_stopping = is_stopping
        self.max_stack = max_stack

    def run(self, operation: Operation, worker: Member) -> Ran:
        """Reserve an operation for `worker`, as it was read, and run it as far as it goes.

        Raises:
            StorageUnavailable: what was done last may not be written; the reservation may be ours.
        """
        try:
            return _Run(self, operation, worker).go()
        except ReservationLost as error:
            reached("fate.deposed", "F1")
            log.info("%s", error)
            return Ran(None)


class _Run:
    """One operation in the hands of one worker: what a step is told, and what it brings about."""

    def __init__(self, runner: Runner, operation: Operation, worker: Member) -> None:
        self._runner = runner
        self._worker = worker
        self._operation = operation
        self._pid = os.getpid()
        self._mutex = threading.Lock()  # a step may have threads of its own
        self._reservation = operation.reservation
        self._progress: str | None = None
        self._written_s = -PROGRESS_S
        self._was_started = operation.status is not Status.SUBMITTED

    # -- what a step is told -------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The operation's id; see `StepContext`."""
        return self._operation.id

    @property
    def attempt(self) -> int:
        """See `StepContext`."""
        return self._operation.failures + 1

    @property
    def is_stopping(self) -> bool:
        """See `StepContext`."""
        return self._runner.is_stopping()

    def confirm(self) -> None:
        """See `StepContext`."""
        self._check_process()
        found = self._runner.store.read(self._operation.id)
        if found is None or found.reservation is None or found.reservation != self._reservation:
            raise ReservationLost(f"operation {self.id} is somebody else's now; nothing was done")

    def progress(self, text: str) -> None:
        """See `StepContext`."""
        now_s = self._runner.clock.monotonic_s()
        within(self._mutex, setattr, self, "_progress", shortened(text))
        if now_s - self._written_s >= PROGRESS_S:
            self._written_s = now_s
            try:
                self._write(lambda operation: operation)
            except StorageUnavailable as error:
                log.info("progress of operation %s is not written: %s", self.id, error)

    # -- the run -------------------------------------------------------------------------------

    def go(self) -> Ran:
        """Reserve it and run it."""
        operation = self._operation
        held = operation.reservation
        is_others = held is not None and held.worker != self._worker.id
        if is_others or operation.status not in RUNNABLE:
            return Ran(None)
        top = self._top_or_reason()
        if isinstance(top, str):
            return self._wait_for_another(top)
        # Without a `ready` of its own a step is called next, whatever happens.
        starts = operation.status is Status.SUBMITTED and not top.needs_ready()
        self._write(lambda one: self._reserved(one, top, starts=starts))
        try:
            return self._go_on()
        except _Disturbed as error:
            return self._give_back(wait_s=0, waiting=str(error))
        except BaseException as error:
            if not isinstance(error, Exception):
                # The process ends, or is asked to: that is not the operation's failure.
                with contextlib.suppress(OmidError):
                    self._give_back(wait_s=0)
            raise

    def _reserved(self, operation: Operation, top: Step, *, starts: bool) -> Operation:
        # One that is ours already is reserved anew: it may have been read before a run ended.
        held = reserved(released(operation), new_reservation(self._worker))
        return started(held, is_pivot=top.spec.is_pivot) if starts else held

    def _go_on(self) -> Ran:
        """Call, or undo, one step after the other."""
        while not self._must_end():
            top = self._top_or_reason()
            if isinstance(top, str):
                return self._give_back(wait_s=UNKNOWN_STEP_S, waiting=top)
            if self._operation.status is Status.FAILED_IN_PROGRESS:
                ran = self._undo(top)
            else:
                ran = self._call(top)
            if ran is not None:
                return ran
        return self._give_back(wait_s=0)

    def _call(self, top: Step) -> Ran | None:
        """Call one step, if it may be; None: the operation goes on."""
        caller, env = self._runner.caller, self._runner.env
        wait = self._asked(lambda: checked_wait(caller.ready(top, self, env), top))
        if isinstance(wait, _Raised):
            return self._take_failure(top, "ready", wait.error)
        if wait.seconds > 0:
            reached("fate.waited", "F6")
            return self._give_back(wait_s=wait.seconds, waiting=wait.reason)
        self._start(top)
        answer = self._asked(lambda: caller.call(top, self, env))
        if isinstance(answer, _Raised):
            return self._take_failure(top, "call", answer.error)
        try:
            change = change_for(
                top,
                answer,
                check_size=self._runner.store.check_size,
                max_stack=self._runner.max_stack,
                now_ms=self._runner.clock.wall_ms(),
            )
            change(self._operation)
        except (FateError, UsageError) as error:
            return self._take_failure(top, "call", error, is_final=True)
        except OmidError:
            raise
        except Exception as error:  # noqa: BLE001 - what a step returns is foreign: its `repr`, too
            return self._take_failure(top, "call", error, is_final=True)
        self._write(change)
        return self._finished() if self._operation.is_finished else None

    def _start(self, top: Step) -> None:
        """Write, before a call, what it makes impossible (F3)."""
        operation = self._operation
        is_pivot = top.spec.is_pivot
        if operation.status is Status.SUBMITTED or (is_pivot and not operation.is_past_pivot):
            self._write(lambda one: started(one, is_pivot=is_pivot))

    def _take_failure(
        self, top: Step, phase: str, error: BaseException, *, is_final: bool = False
    ) -> Ran | None:
        """Write what follows from an exception; None: the operation has turned round."""
        operation, retry = self._operation, top.spec.retry
        failures = operation.failures + 1
        failure = failure_of(error, step=top.spec.name, phase=phase)
        is_worth_it = isinstance(error, retry.on) and not is_final
        if is_worth_it and (failures < retry.max or operation.is_past_pivot):
            limit = "past the pivot" if operation.is_past_pivot else f"of {retry.max}"
            return self._try_later(failure, retry.pause_s(failures), f"try {failures} {limit}")
        if operation.is_past_pivot:
            return self._try_later(failure, retry.longest_s, "past the pivot")
        reached("fate.turned_round", "F8")
        # Said behind the write: that of an executor which was deposed meanwhile is refused, and
        # whether the operation has failed is for its successor to say.
        self._write(lambda one: failed(one, failure))
        log.warning("operation %s (%s) failed: %s", operation.id, operation.name, failure)
        return None

    def _try_later(self, failure: Failure, pause_s: float, which: str) -> Ran:
        reached("fate.tried_later", "F7")
        text = f"{which} failed: {failure}; again in {pause_s:g} s"
        rest = rest_of(self._runner.clock, pause_s)
        self._write(lambda one: released(tried(one, waiting=text, rest=rest)))
        log.info("operation %s (%s): %s", self._operation.id, self._operation.name, text)
        return Ran(self._operation, pause_s)

    def _undo(self, top: Step) -> Ran | None:
        """Undo one step; None: there are more."""
        reached("fate.undone", "F8")
        caller, env = self._runner.caller, self._runner.env
        raised = self._asked(lambda: caller.undo(top, self, env))
        listed: Failure | None = None
        if isinstance(raised, _Raised):
            listed = failure_of(raised.error, step=top.spec.name, phase="undo")
            retry, failures = top.spec.retry, self._operation.failures + 1
            tries = max(retry.max, MIN_UNDO_TRIES)
            if failures < tries:
                which = f"undo {failures} of {tries}"
                return self._try_later(listed, retry.pause_s(failures), which)
        self._write(partial(undone, error=listed, now_ms=self._runner.clock.wall_ms()))
        if listed is not None:
            log.warning("operation %s cannot be undone in part: %s", self.id, listed)
        return self._finished() if self._operation.is_finished else None

    def _finished(self) -> Ran:
        """Release the locks that its steps have left."""
        locks, operation_id = self._runner.locks, self._operation.id
        if self._was_started or locks.is_used_by(operation_id):
            try:
                locks.release(operation_id)
            except StorageUnavailable as error:
                log.warning("locks of operation %s go with the next sweep: %s", self.id, error)
        return Ran(self._operation)

    # -- writing -------------------------------------------------------------------------------

    def _must_end(self) -> bool:
        """Say whether another step must not be called by this worker now."""
        return self._runner.is_stopping() or not self._worker.is_trusted()

    def _top_or_reason(self) -> Step | str:
        """Return the top step; or why this executor cannot run it."""
        operation = self._operation
        if not operation.stack:
            return f"operation {operation.id} is {operation.status} and has no step"
        try:
            return decode_step(operation.stack[-1], where=f"the top of operation {operation.id}")
        except (UnknownStep, CorruptCell) as error:
            return str(error)

    def _asked(self, ask: Callable[[], T]) -> T | _Raised:
        """Return what a step answers, or what it raised."""
        try:
            return ask()
        except ReservationLost:
            raise
        except BaseException as error:  # whatever it is, it fails the step alone
            if not _is_failure(error):
                raise
            if (interrupt := _interrupt_behind(error)) is not None:
                raise interrupt from error
            if self.is_stopping:
                raise _Disturbed(f"its executor was told to stop: {error!r}") from error
            return _Raised(error)

    def _write(self, change: Callable[[Operation], Operation]) -> None:
        within(self._mutex, self._write_alone, change)

    def _check_process(self) -> None:
        """See that this is the process that runs the operation.

        A child that a step has forked, and that ends by `sys.exit`, would give back what its parent
        is at.
        """
        if self._pid != os.getpid():
            raise ReservationLost(
                f"operation {self.id} is run by the process that this one was forked from"
            )

    def _write_alone(self, change: Callable[[Operation], Operation]) -> None:
        self._check_process()
        try:
            self._write_from(self._operation, change)
        except ReservationLost:
            # Unless the reservation still stands: then it was a word of progress of ours whose
            # answer was lost, since no other executor writes meanwhile.
            found = self._runner.store.read(self._operation.id)
            if found is None or not self._is_as_left(found):
                raise
            self._write_from(found, change)

    def _is_as_left(self, found: Operation) -> bool:
        """Say whether a record is as we have left it, but for a word of progress.

        One that was put back from a backup, under an executor that lives, has the reservation too,
        and lacks steps that were done since.
        """
        if found.reservation is None or found.reservation != self._reservation:
            return False
        mine = self._operation
        return found == replace(
            mine, version=found.version, write_id=found.write_id, progress=found.progress
        )

    def _write_from(self, old: Operation, change: Callable[[Operation], Operation]) -> None:
        new = change(old)
        if self._progress is not None:
            new, self._progress = replace(new, progress=self._progress), None
        self._operation = self._runner.store.write(old, new, self._runner.patience)
        self._reservation = self._operation.reservation

    def _give_back(self, *, wait_s: float, waiting: str | None = None) -> Ran:
        """Release the reservation, and say what the operation waits for."""
        self._write(lambda one: released(one, waiting=waiting))
        return Ran(self._operation, wait_s)

    def _wait_for_another(self, reason: str) -> Ran:
        """Say, once, why this executor cannot run it; it is not even reserved for that."""
        if self._operation.waiting != shortened(reason):
            log.warning("operation %s waits: %s", self.id, reason)
            self._write(lambda one: released(one, waiting=reason))
        return Ran(self._operation, UNKNOWN_STEP_S)


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the ^C that a step has made an error of its own of; None: there was none."""
    behind: BaseException | None = error
    seen: set[int] = set()
    while behind is not None and id(behind) not in seen:
        if isinstance(behind, KeyboardInterrupt):
            return behind
        seen.add(id(behind))  # `raise error from error` leads back to itself
        behind = behind.__cause__ or behind.__context__
    return None


def _is_failure(error: BaseException) -> bool:
    """Say whether what a step has raised is its own failure, and not the end of a process.

    So is the cancellation of a task, which nobody but an event loop of the step's own brings about.
    """
    if isinstance(error, Exception):
        return True
    from asyncio import CancelledError  # noqa: PLC0415 - few steps raise what is none

    return isinstance(error, CancelledError)
