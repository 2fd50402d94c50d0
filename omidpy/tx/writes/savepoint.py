"""A part of a transaction that is undone alone.

The buffer keeps the writes of an open savepoint in a layer of their own, at a checkpoint of Omid's
format; undoing it forgets the layer.  What the layer had flushed already, because the buffer grew
past its limit, must be deleted from the store, exactly and acknowledged, or the transaction can
only be rolled back: a commit would make what is left visible (docs/decisions/0007).
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from omidpy.base.callers.alone import Alone
from omidpy.errors import StorageError, TransactionClosed, UsageError
from omidpy.storage.base import Store
from omidpy.tx.callbacks import Callbacks
from omidpy.tx.writes.buffer import WriteBuffer
from omidpy.tx.writes.layers import Scope


class Owner(Protocol):
    """The transaction, as its savepoints see it."""

    @property
    def is_running(self) -> bool:
        """Whether it can still be used, in the process that began it."""
        ...

    def check_writable(self) -> None:
        """Raise unless it is running and may write."""
        ...

    def forbid_commit(self, reason: str) -> None:
        """Let every commit end in a rollback that names the reason."""
        ...


class Savepoint(Alone):
    """A block that is undone if it raises: `with tx.savepoint(): ...`."""

    _instead = "call tx.savepoint() again"

    def __init__(
        self,
        owner: Owner,
        buffer: WriteBuffer,
        store: Store,
        callbacks: Callbacks,
    ) -> None:
        """Prepare to enter.

        Args:
            owner: The transaction.
            buffer: Its writes.
            store: Where they were flushed to.
            callbacks: What it calls around its end, which is undone, too.
        """
        self._owner = owner
        self._buffer = buffer
        self._store = store
        self._callbacks = callbacks
        self.scope: Scope | None = None
        """Where its writes come from; None is anywhere."""
        self._depth = 0
        self._is_entered = False

    def __enter__(self) -> None:
        if self._is_entered:
            raise TransactionClosed("a savepoint was entered twice; call tx.savepoint() again")
        self._owner.check_writable()
        self._buffer.open_savepoint(self.scope)
        self._depth = self._buffer.savepoint_count
        self._is_entered = True

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._owner.is_running:
            return
        if self._buffer.savepoint_count != self._depth:
            # The top layer is another one's: undoing or keeping it would be done to the wrong one.
            reason = (
                "a savepoint was left before one that was entered inside of it; leave them in the "
                "reverse order, and let tasks that share a transaction not interleave them"
            )
            self._owner.forbid_commit(reason)
            if exc_type is None:
                raise UsageError(f"the transaction can only be rolled back now: {reason}")
            return
        if exc_type is None:
            # Before the layer: who is interrupted between the two leaves it open, and so no commit.
            self._callbacks.keep(self._depth)
            self._buffer.keep_savepoint()
        else:
            self._undo()

    def _undo(self) -> None:
        """Take the layer back; until all of that is done, the buffer forbids the commit."""
        self._callbacks.undo(self._depth)
        dropped = self._buffer.drop_savepoint()
        if not dropped.sent:
            return
        if not dropped.was_acknowledged:
            self._owner.forbid_commit(
                "a savepoint was undone whose cells had been sent without an acknowledgement, so "
                "that they may still arrive"
            )
        elif not self._store.capabilities.exact_delete:
            self._owner.forbid_commit(
                "a savepoint was undone after some of its cells had been flushed, and this store "
                "cannot delete single versions"
            )
        else:
            try:
                self._store.write(dropped.deletes)
            except StorageError as error:
                self._owner.forbid_commit(
                    f"the flushed cells of an undone savepoint could not be deleted: {error}"
                )
            else:
                self._buffer.forget(dropped)
