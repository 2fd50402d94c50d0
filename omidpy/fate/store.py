"""What is asked of a store of operations, and how an answer that got lost is found again.

A backend does a few things, each atomic: it inserts a record, swaps one for the next if it is still
the one that was read, removes one, and swaps small documents.  `omidpy.testing.fate` holds
each backend to the same meaning.

Every such call may raise `StorageUnavailable`, and then it is not known whether it was done, or
will be: a request may be on its way.  Here that is settled.  A swap carries a `write_id`; a caller
that got no answer reads the record: with this id it was done; with the version that was expected it
was not, and is sent again, which is harmless even if the first one still arrives, because one of
the two finds another version.

Invariants:

* A write lands only on the version that its writer saw (F1).
* What raises `ReservationLost` has written nothing, or something that its successor has seen.
* An id, a `write_id` and a worker are never used twice.

Lacks threads and policy: when to try what is `running/executor.py`'s business.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from omidpy.base.reach import reached
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.base.timing.pauses import pause_after
from omidpy.errors import FateError, ReservationLost, StorageUnavailable, UsageError
from omidpy.fate.operation import (
    FINISHED,
    RUNNABLE,
    FateId,
    Operation,
    Reservation,
    Status,
    Unreadable,
    released,
    reserved,
    seeded,
)
from omidpy.life.base import Judge, Member

FORMAT: Final = 2
"""Of the records of both stores; a store with a higher one is refused.

Those of 1 have finished operations among the others, and queues for locks that never go; they are
read, and written as 2 from the first change on.
"""

INSERTS_S: Final = 60.0
"""For how long a record whose insertion had no answer is inserted again.

Far shorter than an outcome stays: one that has gone would be made anew, and its operation run a
second time."""

Patience = Callable[[int], bool]
"""Called with the number of failures so far; waits, and says whether to try again."""

_FIRST_PAUSE_S: Final = 0.15
_LONGEST_PAUSE_S: Final = 2.0
_MOST_FAILURES: Final = 5


def brief(failures: int) -> bool:
    """Wait a little longer each time, and give up after some seconds."""
    if failures > _MOST_FAILURES:
        return False
    time.sleep(pause_after(failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, at_least=0.5))
    return True


def inserting() -> Patience:
    """Return the patience of an insertion that begins now; see `INSERTS_S`."""
    began_s = SystemClock.monotonic_s()

    def patience(failures: int) -> bool:
        # Asked behind the pause, in which a process may have stood still.
        return brief(failures) and SystemClock.monotonic_s() - began_s < INSERTS_S

    return patience


class FateStore(ABC):
    """Keeps operations.  Safe to share among threads."""

    max_step_bytes: int
    """The longest stored step, and the longest result."""

    def __init__(self) -> None:
        self.lock_users: Final[set[str]] = set()
        """Operations that asked for locks through this object."""

    # -- what a backend does -------------------------------------------------------------------

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, for messages."""

    @abstractmethod
    def insert(self, operation: Operation) -> bool:
        """Write a new record; False if its id is taken.  The key is no business of this call."""

    @abstractmethod
    def swap(self, old: Operation, new: Operation) -> bool:
        """Write what differs between `old` and `new` if `old` is still the record, by version."""

    @abstractmethod
    def remove(self, operation: Operation) -> bool:
        """Remove the record, and its key's mark, if it is still this one, by version."""

    @abstractmethod
    def remove_unreadable(self, operation_id: FateId) -> bool:
        """Remove a record that cannot be read, and its key's mark; False if it can be.

        What changes meanwhile is not removed.
        """

    @abstractmethod
    def read(self, operation_id: FateId) -> Operation | None:
        """Return an operation; None if there is none.

        Raises:
            CorruptCell: it cannot be read; the message names the place.
        """

    @abstractmethod
    def scan_live(self, *, but: Collection[FateId] = ()) -> Iterator[Operation | Unreadable]:
        """Yield every operation that is not finished, each as of one moment.

        Some that are finished may be among them: they have not been moved yet.

        Args:
            but: Operations to leave out.

        Cost: by what it yields, whatever was finished before.
        """

    @abstractmethod
    def scan_finished(self) -> Iterator[Operation | Unreadable]:
        """Yield every operation that was moved since it is finished."""

    @abstractmethod
    def archive(self, operation: Operation) -> bool:
        """Move a finished operation, as it was read, to where the search for work does not read.

        A store does so as an operation ends; this is for what was left by an executor that died in
        between, and by earlier versions.  False: it has changed, or is moved.
        """

    @abstractmethod
    def claim_key(self, operation: Operation) -> Operation:
        """Insert a record with a key; return it, or the live one that has the key already."""

    @abstractmethod
    def read_lock_queue(self, table: str) -> bytes | None:
        """Return who holds and wants locks on a table, as `locks.py` has written it."""

    @abstractmethod
    def swap_lock_queue(self, table: str, old: bytes | None, new: bytes | None) -> bool:
        """Replace a table's queue if it still is `old`; None: absent.  No content comes twice."""

    @abstractmethod
    def lock_queues(self) -> Iterator[tuple[str, bytes]]:
        """Yield the queue of every table that has one, by table."""

    @abstractmethod
    def new_worker(self, *, lease_s: float, clock: Clock) -> Member:
        """Register a worker that others take for dead after `lease_s` without a sign of life."""

    @abstractmethod
    def new_judge(self, clock: Clock) -> Judge:
        """Return a judge of the workers of this store."""

    @abstractmethod
    def worker_names(self) -> dict[str, str]:
        """Say, for people, where each registered worker runs; a dead one may be among them."""

    @abstractmethod
    def sweep(self, judge: Judge) -> None:
        """Remove marks that nothing refers to any more: of keys and of dead workers."""

    def on_news(self, callback: Callable[[], None]) -> None:
        """Call `callback` when there may be new operations, where the store can tell."""
        del callback

    def off_news(self, callback: Callable[[], None]) -> None:
        """Call `callback` no more."""
        del callback

    @abstractmethod
    def close(self) -> None:
        """Free what the store itself has opened."""

    # -- operations ----------------------------------------------------------------------------

    def create(self, operation: Operation) -> Operation:
        """Keep a NEW operation with its first step; it runs once it is seeded.

        Returns:
            It; with a key, the live operation that was submitted under it before, if there is one.

        Raises:
            UsageError: the step is larger than this store takes; nothing was kept.
            StorageUnavailable: it may have been kept, as NEW.
        """
        self.check_size(operation.stack[-1], what="the first step")
        new = _stamped(operation)
        if new.key is not None:
            return self.claim_key(new)
        self.insert_settled(new)
        return new

    def submit(self, operation: Operation) -> Operation:
        """Keep an operation and let it be run; see `create`."""
        if operation.key is not None:
            created = self.create(operation)
            return self.seed(created.id) if created.status is Status.NEW else created
        return self.create(seeded(operation))

    def seed(self, operation_id: FateId) -> Operation:
        """Let a NEW operation be run; one that runs already, or has run, is left alone.

        Raises:
            FateError: there is no such operation.
        """
        while True:
            found = self.existing(operation_id)
            if found.status is not Status.NEW:
                return found
            try:
                return self.write(found, seeded(found))
            except ReservationLost:
                continue

    def existing(self, operation_id: FateId) -> Operation:
        """Return an operation.

        Raises:
            FateError: there is none.
        """
        found = self.read(operation_id)
        if found is None:
            raise FateError(
                f"there is no operation {operation_id} in {self.url}; `omidpy fate list` shows "
                "what there is"
            )
        return found

    def scan(self, *, but: Collection[FateId] = ()) -> Iterator[Operation | Unreadable]:
        """Yield every operation, each as of one moment; those that vanish meanwhile may lack.

        Args:
            but: Operations to leave out.
        """
        seen = set(but)
        left: list[Operation] = []
        for one in self.scan_live(but=but):
            # What says that it is new may be the echo of one that is finished: of a write that was
            # held up until its row was moved.
            if isinstance(one, Operation) and (one.is_finished or one.status is Status.NEW):
                left.append(one)
                continue
            seen.add(one.id)
            yield one
        # These last: what ends meanwhile is there by now, and was seen before it ended.
        for one in self.scan_finished():
            if one.id not in seen:
                seen.add(one.id)
                yield one
        rest = [one for one in left if one.id not in seen]
        yield from sorted(rest, key=lambda one: one.is_finished)

    def in_order(self, *, but: Collection[FateId] = ()) -> list[Operation]:
        """Return every operation that can be read: started ones first, then by age."""
        return _ordered(self.scan(but=but))

    def live_in_order(self, *, but: Collection[FateId] = ()) -> list[Operation]:
        """Return the same without what is finished and moved; the search for work reads this."""
        return _ordered(self.scan_live(but=but))

    def runnable(self) -> list[Operation]:
        """Return what an executor may take, in the order in which it should."""
        return [
            one
            for one in self.live_in_order()
            if one.status in RUNNABLE and one.reservation is None
        ]

    def try_reserve(self, operation: Operation, worker: Member) -> Operation | None:
        """Reserve an operation as it was read; None if it has changed since, or is reserved.

        Raises:
            StorageUnavailable: it may be reserved.
        """
        if operation.reservation is not None:
            return None
        try:
            return self.write(operation, reserved(operation, new_reservation(worker)))
        except ReservationLost:
            return None

    def break_dead(
        self, judge: Judge, held: Collection[Operation] | None = None
    ) -> list[Operation]:
        """Break the reservations of dead workers; their next write fails, if they live after all.

        Args:
            judge: Says who is dead.
            held: Reserved operations as they were read; None reads them now.

        Returns:
            The operations that can be reserved again.
        """
        if held is None:
            held = [one for one in self.live_in_order() if one.reservation]
        workers = {one.reservation.worker for one in held if one.reservation}
        dead = judge.dead(workers)
        broken = []
        for one in held:
            if one.reservation is not None and one.reservation.worker in dead:
                try:
                    broken.append(self.write(one, released(one)))
                    reached("fate.reservation_broken", "F4")
                except ReservationLost:
                    continue  # it goes on, or another was faster
        return broken

    def delete(self, operation: Operation) -> bool:
        """Remove an operation as it was read; False if it has changed since."""
        return self._settled(
            lambda: self.remove(operation),
            lambda: self.read(operation.id) is None,
            brief,
        )

    # -- settling ------------------------------------------------------------------------------

    def write(self, old: Operation, new: Operation, patience: Patience = brief) -> Operation:
        """Write what follows from `old`.

        Returns:
            The record as it is now, to go on from.

        Raises:
            ReservationLost: `old` is not the record any more.
            StorageUnavailable: it may have been written, and may still be.
        """
        stamped = replace(_stamped(new), version=old.version + 1)
        if self._settled(
            lambda: self.swap(old, stamped),
            lambda: self._write_id(old.id) == stamped.write_id,
            patience,
        ):
            return stamped
        raise ReservationLost(
            f"operation {old.id} was changed by somebody else since it was read; nothing was "
            "written"
        )

    def insert_settled(self, operation: Operation) -> None:
        """Insert a record whose id no other one can have.

        Raises:
            StorageUnavailable: it may have been inserted, and may still be; also where that could
                be known, but only after so long that it may have been run, and have gone since.
        """
        is_there = self._settled(
            lambda: self.insert(operation),
            lambda: self.read(operation.id) is not None,
            inserting(),
        )
        if not is_there:
            raise FateError(f"the id {operation.id} is taken; submit the operation again")

    def check_size(self, raw: bytes, *, what: str) -> None:
        """Refuse what the store cannot keep in one piece.

        Raises:
            UsageError: naming both sizes.
        """
        if len(raw) > self.max_step_bytes:
            raise UsageError(
                f"{what} has {len(raw)} bytes as JSON, and {self.url} takes {self.max_step_bytes}; "
                "keep the data elsewhere and its name in the step"
            )

    def _settled(
        self, send: Callable[[], bool], is_done: Callable[[], bool], patience: Patience
    ) -> bool:
        """Send until it is known whether it was done.

        A refusal is looked at too: to an attempt whose answer was lost it may mean that it was
        done, and it comes too where a lower layer repeated the call.  A true refusal is final,
        because versions do not come back (F1).
        """
        failures = 0
        while True:
            try:
                return send() or is_done()
            except StorageUnavailable:
                reached("fate.written_again", "F2")
                failures += 1
                if not patience(failures):
                    raise

    def _write_id(self, operation_id: FateId) -> str | None:
        found = self.read(operation_id)
        return None if found is None else found.write_id


def new_reservation(worker: Member) -> Reservation:
    """Return a reservation that no executor had before."""
    return Reservation(worker.id, uuid.uuid4().hex)


def _ordered(found: Iterable[Operation | Unreadable]) -> list[Operation]:
    readable = [one for one in found if isinstance(one, Operation)]
    return sorted(readable, key=lambda one: (one.status != Status.IN_PROGRESS, one.created_ms))


def is_live(operation: Operation | None) -> bool:
    """Say whether an operation keeps its key from others."""
    return operation is not None and operation.status not in FINISHED


def _stamped(operation: Operation) -> Operation:
    return replace(operation, write_id=uuid.uuid4().hex)
