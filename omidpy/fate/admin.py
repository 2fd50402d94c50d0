"""What an administrator does to an operation that does not end by itself.

    cancel   turns round what no executor has called a step of yet; needs no reservation
    fail     turns round what is under way, if it can be reserved: no step of it runs meanwhile
    delete   removes the record and the locks, whatever its steps have left in the world; of what is
             past its pivot only for those who say so
    repair   removes what cannot be read: operations with their keys and locks, and of queues for
             locks what cannot be read

The texts are those of Accumulo's `admin fate`, because scripts read them.  Who reserves waits at
most so long, and breaks the reservations of dead workers on its way, so that neither needs an
executor that runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.base.timing.pauses import Pauses
from omidpy.base.words.durations import check_waits
from omidpy.errors import ReservationLost
from omidpy.fate.locks import Locks, UnreadableQueue, salvaged
from omidpy.fate.operation import (
    CANCELLABLE,
    CANCELLED,
    Failure,
    FateId,
    Operation,
    Reservation,
    Status,
    Unreadable,
    cancelled,
    failed,
    released,
)
from omidpy.fate.store import FateStore

FAILED_BY_ADMIN: Final = "failed by an administrator"

DEFAULT_WAIT_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.025
_LONGEST_PAUSE_S: Final = 1.0
_LEASE_S: Final = 10.0


class Outcome(Enum):
    """What became of a wish."""

    DONE = "done"
    REFUSED = "refused"
    RESERVED = "reserved"
    """An executor has it, and had it all the time."""


@dataclass(frozen=True, slots=True)
class Told:
    """The answer to one wish."""

    outcome: Outcome
    text: str


class Admin:
    """Changes operations against the will of their executors.  One thread at a time."""

    def __init__(
        self,
        store: FateStore,
        *,
        wait_s: float = DEFAULT_WAIT_S,
        clock: Clock | None = None,
        sleep: Callable[[float], object] = time.sleep,
        before_delete: Callable[[Operation], object] | None = None,
    ) -> None:
        """Change the operations of a store.

        Args:
            store: Where they are.
            wait_s: How long to wait for each that is reserved.
            clock: Measures that, and the leases of workers.
            sleep: Waits.
            before_delete: Takes from an operation, which is reserved and will be deleted, what a
                call that was stopped could still do.  If it raises, the operation stays.
        """
        self._store = store
        check_waits(wait_s=wait_s)
        self._wait_s = wait_s
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._before_delete = before_delete
        self._judge = store.new_judge(self._clock)

    def cancel(self, operation_id: FateId) -> Told:
        """Turn an operation round that is NEW or SUBMITTED."""
        done = f"FaTE transaction {operation_id} was cancelled or already completed."
        while True:
            found = self._store.read(operation_id)
            if found is None:
                return Told(Outcome.REFUSED, f"Invalid transaction ID: {operation_id}")
            is_cancelled = found.exception is not None and found.exception.message == CANCELLED
            if found.is_finished or is_cancelled:
                return Told(Outcome.DONE, done)
            if found.status not in CANCELLABLE:
                return Told(
                    Outcome.REFUSED,
                    f"FaTE transaction {operation_id} was not cancelled, status may have changed. "
                    f"It is {found.status}.",
                )
            try:
                self._store.write(found, cancelled(found))
            except ReservationLost:
                continue  # an executor was faster: what it made of the operation is looked at first
            return Told(Outcome.DONE, done)

    def fail(self, operation_id: FateId) -> Told:
        """Turn an operation round that is under way."""

        def refusal(found: Operation) -> str | None:
            if found.status is Status.SUCCESSFUL:
                return f"Transaction already completed: {operation_id} ({found.status})"
            if found.status in (Status.FAILED, Status.FAILED_IN_PROGRESS):
                return f"Transaction already failed: {operation_id} ({found.status})"
            if found.is_past_pivot:
                return f"Transaction is past its pivot and only rolls forward: {operation_id}"
            return None

        def act(held: Operation) -> bool:
            self._store.write(held, released(failed(held, Failure(FAILED_BY_ADMIN))))
            return True

        return self._with_reservation(operation_id, "fail", "Failing", refusal, act)

    def delete(self, operation_id: FateId, *, is_past_pivot_too: bool = False) -> Told:
        """Remove an operation, and its locks; what its steps have done stays as it is.

        Args:
            operation_id: Which.
            is_past_pivot_too: Also one that is past its pivot and not finished.  No executor
                finishes what it has begun, nor takes it back, and it may be half-done for ever.
        """
        locks = Locks(self._store)

        def refusal(found: Operation) -> str | None:
            if found.is_past_pivot and not found.is_finished and not is_past_pivot_too:
                return (
                    f"Transaction is past its pivot and only rolls forward: {operation_id} "
                    f"({found.status}). Deleted, it would stay half-done; --past-pivot deletes it."
                )
            return None

        def act(held: Operation) -> bool:
            if self._before_delete is not None:
                self._before_delete(held)
            # The record before the locks: a death in between leaves locks, which the sweep frees;
            # the other way round the operation could go on without them.
            if not self._store.delete(held):
                return False
            locks.release(operation_id)
            return True

        return self._with_reservation(operation_id, "delete", "Deleting", refusal, act)

    def repair(self, what: Unreadable | UnreadableQueue) -> Told:
        """Remove what cannot be read; what can be read by now is left as it is."""
        if isinstance(what, UnreadableQueue):
            text = repair_text(what)
            is_done = Locks(self._store).repair(what)
        else:
            text = repair_text(what)
            is_done = self._store.remove_unreadable(what.id)
            if is_done:
                Locks(self._store).release(what.id)
        if is_done:
            return Told(Outcome.DONE, text)
        return Told(Outcome.REFUSED, f"changed meanwhile, and left as it is: {text}")

    def _with_reservation(
        self,
        operation_id: FateId,
        verb: str,
        doing: str,
        refusal: Callable[[Operation], str | None],
        act: Callable[[Operation], bool],
    ) -> Told:
        """Act on an operation while no step of it runs."""
        worker = self._store.new_worker(lease_s=max(_LEASE_S, self._wait_s), clock=self._clock)
        deadline_s = self._clock.monotonic_s() + self._wait_s
        pauses = Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, at_least=0.5)
        try:
            while True:
                found = self._store.read(operation_id)
                if found is None:
                    return Told(Outcome.REFUSED, f"Invalid transaction ID: {operation_id}")
                if (text := refusal(found)) is not None:
                    return Told(Outcome.REFUSED, text)
                # An executor may have come since that look: then the version is another one, and
                # all is looked at again.
                held = self._store.try_reserve(found, worker)
                if held is not None:
                    try:
                        is_done = act(held)
                    except ReservationLost:
                        is_done = False
                    if is_done:
                        text = f"{doing} transaction: {operation_id} ({found.status})"
                        return Told(Outcome.DONE, text)
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    return Told(Outcome.RESERVED, _reserved_text(verb, found, self._store))
                self._sleep(min(left_s, pauses.next_s()))
                # A dead executor gives nothing back: it keeps its reservation until it is judged.
                self._store.break_dead(self._judge)
        finally:
            worker.retire()


def repair_text(what: Unreadable | UnreadableQueue) -> str:
    """Say what becomes of something that cannot be read."""
    if isinstance(what, Unreadable):
        return (
            f"operation {what.id} is removed with its key and its locks; what its steps have done "
            f"stays: {what.reason}"
        )
    kept = salvaged(what.raw)
    who = ", ".join(f"{one.mode} of {one.operation}" for one in kept) or "nobody"
    return (
        f"the queue for locks on {what.table} keeps {who}; whoever else held a lock there asks for "
        f"it anew with its next step: {what.reason}"
    )


def _reserved_text(verb: str, found: Operation, store: FateStore) -> str:
    who = "an executor"
    if isinstance(found.reservation, Reservation):
        who = store.worker_names().get(found.reservation.worker, who)
    return (
        f"Could not {verb} {found.id} in a reasonable time. This indicates that {who} is currently "
        "working on it. Stop it first, or try again later."
    )
