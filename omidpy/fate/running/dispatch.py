"""Which operation is run next, and by which pool?  No threads, no store; shared by both.

An operation is *busy* from the moment it is handed out until what became of it is reported, and
*deferred* until it may be looked at again.  Both are known to this executor alone: another one on
the same store finds out by the reservation, and how long a step that has failed rests by what is
stored with it (`pacing.py`).

What may be run: started operations first, then by age, each in the pool that names its kind.

Bounded: when too many operations are deferred all of them are forgotten, so that each is looked at
once more and says anew how long it waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from omidpy.base.words.arguments import check_at_once
from omidpy.errors import UsageError
from omidpy.fate.operation import RUNNABLE, FateId, Operation
from omidpy.fate.running.pacing import Rests
from omidpy.fate.running.runner import Ran

GENERAL: Final = "general"
"""The pool that runs every kind of operation that no other pool names."""

MAX_DEFERRED: Final = 100_000

MAX_QUEUED: Final = 10_000
"""Operations that wait for a thread of a pool; the others are found again in the store."""


class Pools:
    """Threads by kind of operation: `{"general": 4, "PRUNE,HEAL": 1}`."""

    def __init__(self, threads: Mapping[str, int]) -> None:
        """Read a mapping.

        Raises:
            UsageError: a kind has two pools, or a pool no thread.
        """
        self.threads: dict[str, int] = {}
        self._by_kind: dict[str, str] = {}
        for pool, count in threads.items():
            if type(count) is not int or count < 1:
                raise UsageError(f"pool {pool!r} has {count!r} threads; give it 1 or more")
            check_at_once(f"the threads of pool {pool!r}", count)
            self.threads[pool] = count
            for kind in (part.strip().casefold() for part in pool.split(",")):
                if not kind or kind in self._by_kind:
                    raise UsageError(f"operations of kind {kind!r} have two pools; give them one")
                self._by_kind[kind] = pool

    def pool_of(self, kind: str) -> str | None:
        """Return the pool of a kind of operation; None: this executor does not run it."""
        return self._by_kind.get(kind.casefold(), self._by_kind.get(GENERAL))


class Dispatcher:
    """Hands out operations.  One caller at a time: the executor locks it."""

    def __init__(self, pools: Pools, boot: str = "") -> None:
        """Hand out nothing yet.

        Args:
            pools: Who runs what.
            boot: Whose clock every `now_s` is (`Clock.boot`).
        """
        self._pools = pools
        self._rests = Rests(boot)
        self._queues: dict[str, deque[Operation]] = {pool: deque() for pool in pools.threads}
        self._busy: set[FateId] = set()
        self._deferred: dict[FateId, float] = {}

    def offer(self, operation: Operation, *, now_s: float) -> bool:
        """Queue one operation that may be run, unless it is busy, deferred or unknown here."""
        pool = self._pools.pool_of(operation.name)
        if pool is None or operation.id in self._busy or operation.id in self._deferred:
            return False
        if (due_s := self._rests.due_s(operation, now_s=now_s)) > now_s:
            self._defer(operation.id, due_s)
            return False
        queue = self._queues[pool]
        if len(queue) >= MAX_QUEUED:
            return False  # it stays in the store, where the next look finds it
        # From here on no other thread of this executor is handed it; other executors are kept out
        # by its reservation.
        self._busy.add(operation.id)
        queue.append(operation)
        return True

    def refresh(
        self,
        found: Iterable[Operation],
        *,
        but: Collection[FateId] = (),
        worker: str,
        now_s: float,
    ) -> int:
        """Queue what was found in the store; return how many that were.

        Args:
            found: All operations of the store, in the order in which to run them.
            but: Those that were not looked for, because they were busy.
            worker: Ours: what it has reserved and does not run was reserved by a call without an
                answer.
            now_s: Ends deferrals.
        """
        self._deferred = {one: due_s for one, due_s in self._deferred.items() if due_s > now_s}
        seen: set[FateId] = set(but)
        count = 0
        for operation in found:
            seen.add(operation.id)
            reservation = operation.reservation
            is_free = reservation is None or reservation.worker == worker
            if operation.status in RUNNABLE and is_free:
                count += self.offer(operation, now_s=now_s)
        self._rests.keep(seen)
        self._deferred = {one: due_s for one, due_s in self._deferred.items() if one in seen}
        return count

    def take(self, pool: str) -> Operation | None:
        """Hand out the next operation of a pool; None: there is none."""
        queue = self._queues[pool]
        return queue.popleft() if queue else None

    def report(self, operation_id: FateId, ran: Ran, *, now_s: float) -> None:
        """Note what became of an operation that was handed out."""
        self._busy.discard(operation_id)
        if ran.wait_s:
            self._defer(operation_id, now_s + ran.wait_s)

    def _defer(self, operation_id: FateId, due_s: float) -> None:
        if len(self._deferred) >= MAX_DEFERRED:
            self._deferred.clear()  # what is tried too early costs a look, and breaks nothing
        self._deferred[operation_id] = due_s

    def next_due_s(self) -> float | None:
        """Return when the first deferral ends; None: nothing is deferred."""
        return min(self._deferred.values(), default=None)

    @property
    def busy(self) -> frozenset[FateId]:
        """Operations that were handed out or queued."""
        return frozenset(self._busy)

    def is_busy(self, operation_id: FateId) -> bool:
        """Say whether an operation was handed out or queued."""
        return operation_id in self._busy
