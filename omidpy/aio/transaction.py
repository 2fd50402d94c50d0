"""The twins of a transaction and of what it hands out.

Each has `blocking`, the object that it drives, and `lane`, in which that object's calls run; all
that belongs to one transaction shares its lane.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, Self

from omidpy.aio.lanes import STOPPED, Lane, Threads, awaited, iterated, written
from omidpy.base.callers.runners import Runner
from omidpy.base.reach import reached
from omidpy.base.remembered import remembered
from omidpy.errors import TransactionClosed
from omidpy.facts import holds
from omidpy.model import Timestamp, TransactionStatus
from omidpy.tx import batch, table, transaction
from omidpy.tx.callbacks import check_callback, run_callback
from omidpy.tx.parts import worker
from omidpy.tx.writes import layers, ordinals, savepoint
from omidpy.tx.writes.buffer import WriteBuffer

_inside: ContextVar[tuple[Savepoint, ...]] = ContextVar("inside", default=())
"""The savepoints in whose blocks the task runs."""


class Owner(Protocol):
    """The manager, as its transactions see it."""

    threads: Threads

    def push_ambient(self, tx: Transaction) -> None:
        """Let `transactional` functions called from here on join `tx`."""
        ...

    def pop_ambient(self, tx: Transaction) -> None:
        """End what `push_ambient` began."""
        ...


class Batch:
    """Twin of `omidpy.tx.batch.Batch`."""

    def __init__(
        self,
        owner: TransactionalTable,
        start: Callable[[table.TransactionalTable], batch.Batch],
    ) -> None:
        self.lane: Lane = owner.lane
        self._owner = owner
        self._start = start

    @remembered
    def blocking(self) -> batch.Batch:
        """The blocking batch."""
        return self._start(self._owner.blocking)

    put = written(batch.Batch.put)
    delete = written(batch.Batch.delete)
    send = written(batch.Batch.send)

    @property
    def buffer(self) -> WriteBuffer:
        """What it belongs to collects its writes here."""
        return self._owner.buffer

    async def __aenter__(self) -> Self:
        await self.lane.run(lambda: self.blocking.__enter__())  # noqa: PLW0108 - found in the lane
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave = functools.partial(self.blocking.__exit__, exc_type, exc, traceback)
        if exc_type is not None:
            await self.lane.finish(leave)
            return
        forget = functools.partial(self.blocking.__exit__, asyncio.CancelledError, None, None)
        try:
            # Where it was handed over all the same, and its owner believes that it was not, that is
            # noted before any other call has its turn, such as a commit by another task.
            await self.lane.write(leave, self.buffer, "batch", forget)
        except STOPPED:
            await self.lane.finish(forget)
            raise


class TransactionalTable:
    """Twin of `omidpy.tx.table.TransactionalTable`."""

    def __init__(
        self,
        owner: Transaction | Worker,
        name: str,
        *,
        conflict_free: bool = False,
        phoenix_indexes: str | None = None,
    ) -> None:
        self.lane: Lane = owner.lane
        self.name = name
        self.is_conflict_free = conflict_free
        self._phoenix_indexes = phoenix_indexes
        self._owner = owner

    def __repr__(self) -> str:
        return f"<aio.TransactionalTable {self.name!r} of {self._owner!r}>"

    @remembered
    def blocking(self) -> table.TransactionalTable:
        """The blocking table, for which the store is asked."""
        return self._owner.blocking.table(
            self.name,
            conflict_free=self.is_conflict_free,
            phoenix_indexes=self._phoenix_indexes,
        )

    row = awaited(table.TransactionalTable.row)
    rows = awaited(table.TransactionalTable.rows)
    cells = awaited(table.TransactionalTable.cells)
    families = awaited(table.TransactionalTable.families)
    regions = awaited(table.TransactionalTable.regions)
    put = written(table.TransactionalTable.put)
    delete = written(table.TransactionalTable.delete)
    counter_get = awaited(table.TransactionalTable.counter_get)
    counter_set = written(table.TransactionalTable.counter_set)
    counter_add = written(table.TransactionalTable.counter_add)
    counter_inc = written(table.TransactionalTable.counter_inc)
    counter_dec = written(table.TransactionalTable.counter_dec)

    scan = iterated(table.TransactionalTable.scan)
    scan_arrow = iterated(table.TransactionalTable.scan_arrow, most=1)
    read_arrow = iterated(table.TransactionalTable.read_arrow, most=1)
    write_arrow = written(table.TransactionalTable.write_arrow)

    @property
    def buffer(self) -> WriteBuffer:
        """What it belongs to collects its writes here."""
        return self._owner.buffer

    def batch(self, *args: Any, **kwargs: Any) -> Batch:
        """Collect puts and deletes; arguments as in the blocking `batch`."""
        return Batch(self, functools.partial(table.TransactionalTable.batch, *args, **kwargs))


class Queue:
    """Twin of what `Transaction.queue` returns."""

    def __init__(self, owner: Transaction | Worker, queue_id: str) -> None:
        self.lane: Lane = owner.lane
        self.queue_id = queue_id
        self._owner = owner

    @remembered
    def blocking(self) -> ordinals.Adding:
        """The blocking queue."""
        return self._owner.blocking.queue(self.queue_id)

    async def add(
        self, key: bytes, value: object, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Add an entry, which is in the queue if and only if the transaction commits."""
        await self._write("add", lambda: self.blocking.add(key, value, headers=headers))

    async def add_all(self, pairs: Iterable[tuple[bytes, object]]) -> None:
        """Add an entry for each (key, value), in this order."""
        await self._write("add_all", lambda: self.blocking.add_all(pairs))

    async def record(self, tables: Iterable[str]) -> None:
        """Add an entry for each row of some tables that the transaction will have changed."""
        await self._write("record", lambda: self.blocking.record(tables))

    async def _write(self, name: str, call: Callable[[], object]) -> None:
        await self.lane.write(call, self._owner.buffer, name)


class Savepoint:
    """Twin of `omidpy.tx.writes.savepoint.Savepoint`."""

    def __init__(self, owner: Transaction) -> None:
        self._owner = owner
        self._blocking: savepoint.Savepoint | None = None
        # Tasks that share the transaction would write into the savepoint unawares, and lose what
        # they wrote with it.  Those that are started inside are handed its context.
        self._scope = layers.Scope(lambda: self in _inside.get())

    async def __aenter__(self) -> None:
        if self._blocking is not None:
            raise TransactionClosed("a savepoint was entered twice; call tx.savepoint() again")
        self._blocking = self._owner.blocking.savepoint()
        self._blocking.scope = self._scope
        await self._owner.lane.enter(self._blocking)
        _inside.set((*_inside.get(), self))

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._blocking is not None, "entered before"
        _inside.set(tuple(one for one in _inside.get() if one is not self))
        lane, leave = self._owner.lane, self._blocking.__exit__
        if exc_type is not None:
            await lane.finish(leave, exc_type, exc, traceback)
            return
        try:
            # Not in a thread: what is kept there could not be undone any more, if this is cancelled
            # meanwhile, by a timeout around the block for example.
            await lane.at_once(leave, None, None, None)
        except asyncio.CancelledError as error:
            reached("aio.undone_as_it_was_left", "I9")
            await lane.finish(leave, type(error), error, None)
            raise


class Transaction:
    """Twin of `omidpy.Transaction`; belongs to one event loop, whose tasks may share it."""

    def __init__(self, owner: Owner, blocking: transaction.Transaction) -> None:
        self.blocking = blocking
        self.lane = Lane(owner.threads)
        self.runner = Runner()
        self._owner = owner

    def __repr__(self) -> str:
        return f"<aio.Transaction {self.start_ts} {self.status}>"

    @property
    def start_ts(self) -> Timestamp:
        """The snapshot, and the transaction's identity."""
        return self.blocking.start_ts

    @property
    def commit_ts(self) -> Timestamp | None:
        """Set by a commit that wrote something."""
        return self.blocking.commit_ts

    @property
    def status(self) -> TransactionStatus:
        """`running`, `committed`, `rolled_back` or `unknown`."""
        return self.blocking.status

    commit = awaited(transaction.Transaction.commit)
    rollback = awaited(transaction.Transaction.rollback)
    flush = awaited(transaction.Transaction.flush)
    use_key = written(transaction.Transaction.use_key)
    set_rollback_only = awaited(transaction.Transaction.set_rollback_only)
    token = awaited(transaction.Transaction.token)
    merge = written(transaction.Transaction.merge)
    publish = written(transaction.Transaction.publish)
    published = awaited(transaction.Transaction.published)
    parts = awaited(transaction.Transaction.parts)

    async def discard(self, worker: str | Worker) -> None:
        """Give up a worker whose part will not be merged; see the blocking `discard`."""
        given = worker.blocking if isinstance(worker, Worker) else worker
        await self._discard(given)

    _discard = written(transaction.Transaction.discard)

    def table(
        self, name: str, *, conflict_free: bool = False, phoenix_indexes: str | None = None
    ) -> TransactionalTable:
        """Return a table to read and write; whether it exists is said when it is used."""
        return TransactionalTable(
            self, name, conflict_free=conflict_free, phoenix_indexes=phoenix_indexes
        )

    def queue(self, queue_id: str) -> Queue:
        """Return an export queue to add entries to; whether it exists is said when it is used."""
        return Queue(self, queue_id)

    def savepoint(self) -> Savepoint:
        """Return a context manager for `async with`, whose block is undone alone if it raises."""
        return Savepoint(self)

    def after_commit(self, callback: Callable[[Transaction], object]) -> None:
        """Call `callback(tx)` once in the event loop, after the commit; it must not be async."""
        check_callback("after_commit", callback)
        loop = asyncio.get_running_loop()
        self.blocking.after_commit(
            lambda _: loop.call_soon_threadsafe(run_callback, callback, self)
        )

    @property
    def buffer(self) -> WriteBuffer:
        """What it has written, for its tables and batches."""
        return self.blocking._buffer  # noqa: SLF001 - of what it is the twin

    def leave(self) -> None:
        """Let no `transactional` function join this transaction any more."""
        self._owner.pop_ambient(self)

    async def __aenter__(self) -> Self:
        await self.lane.enter(self.blocking)
        self._owner.push_ambient(self)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self.leave()
        return await self.lane.finish(self.blocking.__exit__, exc_type, exc, traceback)


class Worker:
    """Twin of `omidpy.tx.parts.worker.Worker`."""

    def __init__(self, owner: Owner, blocking: worker.Worker) -> None:
        self.blocking = blocking
        self.lane = Lane(owner.threads)

    @property
    def start_ts(self) -> Timestamp:
        """The start timestamp of the owner's transaction."""
        return self.blocking.start_ts

    @property
    def worker_id(self) -> str:
        """Names this worker in errors, in `tx.parts()` and for `tx.discard`."""
        return self.blocking.worker_id

    finish = awaited(worker.Worker.finish)

    @property
    def buffer(self) -> WriteBuffer:
        """What it has written, for its tables and batches."""
        return self.blocking._buffer  # noqa: SLF001 - of what it is the twin

    def table(
        self, name: str, *, conflict_free: bool = False, phoenix_indexes: str | None = None
    ) -> TransactionalTable:
        """Return a table to read and write in the owner's transaction."""
        return TransactionalTable(
            self, name, conflict_free=conflict_free, phoenix_indexes=phoenix_indexes
        )

    def queue(self, queue_id: str) -> Queue:
        """Return an export queue to add entries to in the owner's transaction."""
        return Queue(self, queue_id)


class HeldSnapshot:
    """Twin of `omidpy.facts.holds.HeldSnapshot`."""

    def __init__(self, owner: Owner, blocking: holds.HeldSnapshot) -> None:
        self.blocking = blocking
        self.lane = Lane(owner.threads)

    release = awaited(holds.HeldSnapshot.release)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.release()
