"""How do threads share one durable write?  Group commit for checked changes.

A thread that has a change puts it into a queue and waits for the right to write; who gets it writes
whatever is in the queue in one guarded batch, each change on its own condition.  Who comes to the
right afterwards finds its change done, and goes.

A batch that fails says nothing of its members, so each is then sent alone by its own thread.  Doing
it twice is harmless: a change that was made finds its condition gone, and its writer looks.

Lacks a thread of its own and timers: a lone writer waits for no other.  Where the store has no
guarded batches each change is a call of its own.  Calls of puts are joined otherwise
(`storage/hbase/thrift2/joined.py`): of a gateway several are under way, and a thread that has
waited for too long makes its own beside them.  A store of guarded batches has one writer at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from typing import Final

from omidpy.base.within import within
from omidpy.errors import OmidError
from omidpy.storage import forking
from omidpy.storage.base import Condition, GuardedMutation, RowMutation, Store

MAX_BATCH: Final = 64
"""Changes in one batch."""


class _Member:
    """A change that waits, and whether it was applied once that is known."""

    __slots__ = ("changes", "is_applied")

    def __init__(self, changes: tuple[GuardedMutation, ...]) -> None:
        self.changes = changes
        self.is_applied: bool | None = None


class JoinedChanges:
    """Makes checked changes durably.  Safe to share among threads, and after a fork."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._joins = store.capabilities.guarded_batches
        self._queue: deque[_Member] = deque()
        self._right = threading.Lock()
        forking.register(self)

    @property
    def joins(self) -> bool:
        """Whether several changes can be made in one."""
        return self._joins

    def change(
        self, condition: Condition, mutation: RowMutation, *, before: RowMutation | None = None
    ) -> bool:
        """Apply `mutation` to the row of `condition` if that holds; durable on return.

        Args:
            condition: When.
            mutation: What.
            before: Of another row, which is changed with it or not at all; where changes can be
                joined.

        Raises:
            StorageUnavailable: it may have been applied, and may still be.
        """
        if not self._joins:
            assert before is None, "a row at a time"
            table, row, column, expected = condition
            return self._store.check_and_mutate(
                table, row, column, expected, mutation, durable=True
            )
        # What stands before leaves the condition as it is, so that it holds for both or neither.
        rows = [mutation] if before is None else [before, mutation]
        member = _Member(tuple(GuardedMutation(condition.table, one, condition) for one in rows))
        self._queue.append(member)
        try:
            within(self._right, self._write_with, member)
        finally:
            if member.is_applied is None:
                self._leave(member)
        assert member.is_applied is not None, "else the write raised"
        return member.is_applied

    def _write_with(self, member: _Member) -> None:
        """Write for everyone in the queue; for `member` unless another has done it."""
        if member.is_applied is not None:
            return
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCH))]
        if member not in batch:  # an earlier batch with it has failed, or it is further behind
            self._leave(member)
            batch.append(member)
        try:
            self._write(batch)
        except OmidError:
            if len(batch) == 1:
                raise
            self._write([member])

    def _write(self, batch: list[_Member]) -> None:
        changes = [change for member in batch for change in member.changes]
        applied = self._store.write_guarded(changes, durable=True)
        assert applied is not None, "without a guard a batch is applied"
        answers = iter(applied)
        for member in batch:
            member.is_applied = all(list(islice(answers, len(member.changes))))

    def _leave(self, member: _Member) -> None:
        try:
            self._queue.remove(member)
        except ValueError:
            return

    # -- fork ----------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Do nothing: a writer may be waiting for the store, which has let no other in since."""

    def after_fork_in_parent(self) -> None:
        """Do nothing: nothing was stopped."""

    def after_fork_in_child(self) -> None:
        """Begin with none in the queue: they are threads of the parent."""
        self._right = threading.Lock()
        self._queue = deque()
