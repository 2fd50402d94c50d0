"""Submits operations, waits for them, and runs them: the front of everything in this package.

    with Fate(env, TableFateStore(store), pools={"general": 4}) as fate:
        tx = fate.submit("PRUNE", PickWatermark("t1"), key=("prune", "t1"))
        tx.wait(timeout=60)
        tx.result()

As a context manager it runs operations in threads until the block ends; their own and those that
others have submitted or left behind.  Without that it only submits and asks.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.base.within import within
from omidpy.base.words.arguments import check_flag
from omidpy.base.words.durations import check_waits
from omidpy.errors import FateError, OperationFailed, ReservationLost, UsageError
from omidpy.fate.locks import Locks
from omidpy.fate.operation import (
    CANCELLABLE,
    Operation,
    Status,
    Unreadable,
    cancelled,
    key_text,
    new_id,
    parse_id,
)
from omidpy.fate.running.executor import DEFAULT_LEASE_S, DEFAULT_POLL_S, DEFAULT_POOLS, Executor
from omidpy.fate.running.runner import Caller
from omidpy.fate.running.sweep import Keep
from omidpy.fate.step import Step, encode_step
from omidpy.fate.store import FateStore
from omidpy.storage import forking

MAX_NAME: Final = 100
"""Characters of the name of a kind of operation: it is a column of every listing."""

_FIRST_LOOK_S: Final = 0.025
_LONGEST_LOOK_S: Final = 1.0
_LOOK_GROWTH: Final = 1.5


class _Waiter:
    """Waits for the end of an operation."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.operation: Operation | None = None
        """As it ended, once it has."""


class Fate:
    """Operations of one store.  Safe to share among threads."""

    def __init__(
        self,
        env: Any,
        store: FateStore,
        pools: Mapping[str, int] | None = None,
        *,
        lease_s: float = DEFAULT_LEASE_S,
        poll_s: float = DEFAULT_POLL_S,
        keep: Keep | None = None,
        clock: Clock | None = None,
        caller: Caller | None = None,
    ) -> None:
        """Join a store and an environment; nothing runs before `start`, or a `with` block.

        Args:
            env: Whatever the steps need: every step gets it.
            store: Where the operations are; `close` leaves it open.
            pools: Threads by kind of operation: `{"general": 4, "PRUNE,HEAL": 1}`; `general` runs
                what no other pool names.
            lease_s: After how many seconds without a sign of life others take over what ran here.
            poll_s: How often to look for what others have submitted.
            keep: How long outcomes stay.
            clock: For ages, pauses and leases.
            caller: Calls the steps; tests give one that calls each twice.

        Raises:
            UsageError: a pool has no thread, or a kind of operation two pools.
        """
        self.store = store
        self.clock = clock or SystemClock()
        self.locks = Locks(store)
        forking.begin_anew(self, Fate._begin)
        self._executor = Executor(
            store,
            env,
            pools=DEFAULT_POOLS if pools is None else pools,
            lease_s=lease_s,
            poll_s=poll_s,
            keep=keep or Keep(),
            clock=self.clock,
            caller=caller,
            on_end=self._note_end,
        )

    def _begin(self) -> None:
        """Have nobody who waits, in this process."""
        self._waiters: dict[str, list[_Waiter]] = {}
        self._mutex = threading.Lock()

    # -- operations ----------------------------------------------------------------------------

    def submit(
        self, name: str, step: Step, *, key: object = None, auto_clean: bool = False
    ) -> OperationHandle:
        """Keep an operation, so that some executor runs it.

        Args:
            name: What kind of operation it is, such as `PRUNE`; chooses the pool.
            step: The first step.
            key: Text, a number or a tuple of those: while an operation that was submitted under
                the same key is not finished, it is returned, and nothing is submitted.
            auto_clean: Remove its outcome some minutes after its end, and not only on demand.

        Raises:
            UsageError: the step cannot be kept, or the key is none; nothing was submitted.
            StorageUnavailable: it may be submitted; with a key it is safe to submit it again.
        """
        operation = self.store.submit(self._new(name, step, key, auto_clean=auto_clean))
        self._executor.offer(operation)
        return OperationHandle(self, operation)

    def create(
        self, name: str, step: Step, *, key: object = None, auto_clean: bool = False
    ) -> OperationHandle:
        """Keep an operation that no executor runs before its `seed` is called; see `submit`.

        Its id can be noted down first, so that it is known after a crash.
        """
        new = self._new(name, step, key, auto_clean=auto_clean)
        return OperationHandle(self, self.store.create(new))

    def get(self, operation_id: str) -> OperationHandle:
        """Return a handle of an operation by its id, as it is printed anywhere.

        Raises:
            UsageError: it is no id.
            FateError: there is no such operation.
        """
        return OperationHandle(self, self.store.existing(parse_id(operation_id)))

    def operations(self) -> Iterator[Operation | Unreadable]:
        """Yield every operation of the store."""
        return self.store.scan()

    def _new(self, name: str, step: Step, key: object, *, auto_clean: bool) -> Operation:
        is_word = isinstance(name, str) and name.strip() and name.isprintable()
        if not is_word or len(name) > MAX_NAME:
            raise UsageError(
                f"{name!r:.80} names no kind of operation; use a word such as 'PRUNE', of at most "
                f"{MAX_NAME} characters"
            )
        # Another word could not be read again: the operation would be one that nobody can run.
        check_flag("auto_clean", auto_clean)
        return Operation(
            id=new_id(),
            name=name,
            created_ms=self.clock.wall_ms(),
            key=None if key is None else key_text(key),
            auto_clean=auto_clean,
            stack=(encode_step(step),),
        )

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> Self:
        """Run operations in threads from now on."""
        self._executor.start()
        return self

    def run_pending(self) -> float | None:
        """Run in this thread what can be run now, and return in how many seconds there may be more.

        For tests and for scripts without threads: a step that takes longer than the lease may be
        taken over by another executor.  None: nothing waits.
        """
        return self._executor.run_pending()

    def close(self, timeout: float | None = None) -> bool:
        """Let the running steps end, and give back what is not finished; nothing fails by it.

        Args:
            timeout: Seconds to wait for running steps.

        Returns:
            False if one still runs; it keeps its reservation as long as the process lives.
        """
        return self._executor.stop(timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- waiting -------------------------------------------------------------------------------

    def wait_for(self, operation_id: str, timeout: float | None) -> Operation | None:
        """Wait until an operation is finished or gone; return it as it was last read.

        Raises:
            TypeError, UsageError: nobody can wait so long.
        """
        check_waits(timeout=timeout)
        deadline_s = None if timeout is None else time.monotonic() + timeout
        fate_id = parse_id(operation_id)
        waiter = _Waiter()
        try:
            within(self._mutex, self._add_waiter, operation_id, waiter)
            look_s = _FIRST_LOOK_S
            while True:
                left_s = math.inf if deadline_s is None else deadline_s - time.monotonic()
                # The executor that has it in hand in this process wakes us.  Others are asked, ever
                # less often; so is he in the end, since it may have been taken from him.
                is_told = self._executor.has(fate_id) and look_s < _LONGEST_LOOK_S
                if left_s <= 0 or not is_told:
                    found = self.store.read(fate_id)
                    if left_s <= 0 or found is None or found.is_finished:
                        return found
                if waiter.ended.wait(min(look_s, max(left_s, 0.0))):
                    return waiter.operation
                look_s = min(look_s * _LOOK_GROWTH, _LONGEST_LOOK_S)
        finally:
            within(self._mutex, self._drop_waiter, operation_id, waiter)

    def _add_waiter(self, operation_id: str, waiter: _Waiter) -> None:
        self._waiters.setdefault(operation_id, []).append(waiter)

    def _drop_waiter(self, operation_id: str, waiter: _Waiter) -> None:
        left = [one for one in self._waiters.pop(operation_id, ()) if one is not waiter]
        if left:
            self._waiters[operation_id] = left

    def _note_end(self, operation: Operation) -> None:
        for waiter in within(self._mutex, list, self._waiters.get(operation.id, ())):
            waiter.operation = operation
            waiter.ended.set()

    def offer(self, operation: Operation) -> None:
        """Let an operation that was seeded just now be run here, if this runs operations."""
        self._executor.offer(operation)


class OperationHandle:
    """One operation, whichever executor runs it.  Safe to share among threads."""

    def __init__(self, fate: Fate, operation: Operation) -> None:
        self._fate = fate
        self.id = operation.id

    def __repr__(self) -> str:
        return f"<OperationHandle {self.id}>"

    @property
    def status(self) -> Status:
        """Its status now; UNKNOWN if it is gone."""
        found = self._fate.store.read(self.id)
        return Status.UNKNOWN if found is None else found.status

    def read(self) -> Operation | None:
        """Return everything that is known of it; None if it is gone."""
        return self._fate.store.read(self.id)

    def seed(self) -> None:
        """Let it be run, if it was created only.

        Raises:
            FateError: it is gone.
        """
        self._fate.offer(self._fate.store.seed(self.id))

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until it is finished, for `timeout` seconds at most; return its status then."""
        found = self._fate.wait_for(self.id, timeout)
        return Status.UNKNOWN if found is None else found.status

    def result(self, timeout: float | None = None) -> Any:
        """Wait for its end, and return its result.

        Raises:
            OperationFailed: it was rolled back.
            FateError: it has not ended within `timeout` seconds, or its outcome is gone.
        """
        found = self._fate.wait_for(self.id, timeout)
        if found is not None and found.status is Status.SUCCESSFUL:
            return found.result
        if (error := _failure(found)) is not None:
            raise error
        raise self._no_outcome(found, timeout)

    def exception(self, timeout: float | None = None) -> OperationFailed | None:
        """Wait for its end, and return why it failed; None if it succeeded.

        Raises:
            FateError: it has not ended within `timeout` seconds, or its outcome is gone.
        """
        found = self._fate.wait_for(self.id, timeout)
        if found is None or not found.is_finished:
            raise self._no_outcome(found, timeout)
        return _failure(found)

    def cancel(self) -> bool:
        """Turn it round if no step of it was called yet; say whether it is so."""
        while True:
            found = self._fate.store.read(self.id)
            if found is None or found.status not in CANCELLABLE:
                return False
            try:
                self._fate.offer(self._fate.store.write(found, cancelled(found)))
            except ReservationLost:
                continue
            return True

    def delete(self) -> bool:
        """Remove what is left of it, if it is finished or was never seeded; say whether it is."""
        found = self._fate.store.read(self.id)
        if found is None or not (found.is_finished or found.status is Status.NEW):
            return False
        return self._fate.store.delete(found)

    def _no_outcome(self, found: Operation | None, timeout: float | None) -> FateError:
        if found is None:
            return FateError(
                f"operation {self.id} is gone, and its outcome with it; outcomes are kept for some "
                "minutes with auto_clean, and for hours without"
            )
        waits = f", waiting: {found.waiting}" if found.waiting else ""
        return FateError(
            f"operation {self.id} is {found.status} after {timeout:g} s{waits}; it goes on"
        )


def _failure(found: Operation | None) -> OperationFailed | None:
    """Return what a failed operation raises."""
    if found is None or found.status is not Status.FAILED:
        return None
    left = [str(error) for error in found.undo_errors]
    more = f"; {len(left)} steps could not be undone: {'; '.join(left)}" if left else ""
    return OperationFailed(
        f"operation {found.id} ({found.name}) failed and was rolled back: {found.exception}{more}",
        operation_id=found.id,
        undo_errors=left,
    )
