"""Which operation may change which part of a table now?  Locks that outlive their holders.

Each table has a queue, and an operation that wants a lock stands in it once, with a mode and a
range of keys.  It holds the lock when none before it stands in its way: a READ waits for earlier
WRITEs, a WRITE for everything earlier, as far as the ranges overlap.  So the one that came first is
served first, and a reader behind a waiting writer waits too.

A lock belongs to an operation's id and to no process.  After a crash the next runner of the
operation asks again, finds it in the queue, and holds what it held.  Locks end when they are
released, and at the latest with their operation (F6): the executor releases what is left, and a
sweep what belonged to operations that are finished or gone.

    def ready(self, tx, env):
        return env.locks.write("accounts", tx.id)       # None, or how long to wait and for whom

A queue is one document that is swapped, and it counts its changes, so that a request that arrives
late finds another content than it expects.  It goes with the last one in it, so that neither the
name of a table nor the walk over all queues outlives those who lock; a new one counts from a
number of its own.

One that cannot be read is an obstacle of its own table: an operation that wants a lock there waits
and says for what, all other locks go on, and `omidpy fate repair` keeps what can be read of it.

Source: Accumulo's DistributedReadWriteLock with key ranges, in one node in place of one each.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from omidpy.base.documents import UNREADABLE, Natural, prepared
from omidpy.base.words.arguments import check_bytes
from omidpy.errors import CorruptCell, FateError, StorageUnavailable, UsageError
from omidpy.fate.operation import FateId, Unreadable, is_id
from omidpy.fate.step import Defer
from omidpy.fate.store import FateStore, brief
from omidpy.model import KeyRange

log = logging.getLogger(__name__)

WAIT_S: Final = 0.5
"""How long an operation waits before it asks for a lock again."""

EVERY_ROW: Final = KeyRange()

UNREADABLE_S: Final = 10.0
"""How long an operation waits before it asks again for a lock whose queue could not be read."""

MAX_QUEUE: Final = 5000
"""Operations in the queue of one table; one that does not fit is refused with an error."""


class Mode(StrEnum):
    """How a lock excludes others."""

    READ = "READ"
    WRITE = "WRITE"


class Entry(msgspec.Struct, frozen=True):
    """One operation's place in a queue."""

    operation: FateId
    mode: Mode
    start: bytes = b""
    end: bytes = b""

    @property
    def key_range(self) -> KeyRange:
        """The rows it speaks of."""
        return KeyRange(self.start, self.end)

    def blocks(self, later: Entry) -> bool:
        """Say whether it keeps one behind it in the queue from holding its lock."""
        return (
            self.operation != later.operation
            and Mode.WRITE in (self.mode, later.mode)
            and (not self.end or later.start < self.end)
            and (not later.end or self.start < later.end)
        )


class Queue(msgspec.Struct, frozen=True):
    """Who holds and wants locks on one table, first come first."""

    changes: Natural = 0
    """How often it has changed: no content comes twice."""
    entries: tuple[Entry, ...] = ()

    def blockers(self, entry: Entry) -> list[Entry]:
        """Return what stands in the way of an entry."""
        before = self.entries[: self.entries.index(entry)]
        return [one for one in before if one.blocks(entry)]

    def with_entry(self, entry: Entry) -> Queue:
        """Return it with an entry at the end; itself, if it is there already."""
        if entry in self.entries:
            return self
        return Queue(self.changes + 1, (*self.entries, entry))

    def without(self, operations: Collection[FateId]) -> Queue:
        """Return it without any entry of some operations; itself, if there is none."""
        left = tuple(one for one in self.entries if one.operation not in operations)
        return self if len(left) == len(self.entries) else Queue(self.changes + 1, left)


class LockState(NamedTuple):
    """One entry of a queue, for a listing."""

    table: str
    entry: Entry
    waits_for: tuple[Entry, ...]
    """Empty: it holds its lock."""


class UnreadableQueue(NamedTuple):
    """A queue that this omidpy cannot read; it is left alone."""

    table: str
    raw: bytes
    reason: str


class Locks:
    """The locks of the operations of one store.  Safe to share among threads."""

    def __init__(self, store: FateStore) -> None:
        self._store = store

    def read(self, table: str, operation_id: str, key_range: KeyRange = EVERY_ROW) -> Defer | None:
        """Take a lock that others may share; None: it is held, else ask again; for `ready`.

        Cost: 1 read; the first time a change too.
        """
        return self._acquire(table, _entry(operation_id, Mode.READ, key_range))

    def write(self, table: str, operation_id: str, key_range: KeyRange = EVERY_ROW) -> Defer | None:
        """Take a lock that is not shared; see `read`."""
        return self._acquire(table, _entry(operation_id, Mode.WRITE, key_range))

    def release(self, operation_id: str, table: str | None = None) -> None:
        """Give up what an operation holds or wants, on one table or on all that can be read.

        Cost: 1 read, and a change of each table; without `table` the queues of all tables are read.
        """
        operations = {FateId(operation_id)}
        if table is not None:
            self._remove(table, operations)
            return
        queues, unreadable = self.read_queues()
        for name, queue in queues:
            if queue.without(operations) is not queue:
                self._remove(name, operations)
        for one in unreadable:
            log.warning("locks of operation %s may stay: %s", operation_id, one.reason)
        self._store.lock_users.discard(operation_id)

    def is_used_by(self, operation_id: str) -> bool:
        """Say whether an operation has asked for a lock in this process; others may know more."""
        return operation_id in self._store.lock_users

    def states(self) -> list[LockState]:
        """Return every lock that is held or wanted, with what it waits for, by table."""
        return lock_states(self.read_queues()[0])

    def read_queues(self) -> tuple[list[tuple[str, Queue]], list[UnreadableQueue]]:
        """Return every queue that can be read, and every other, by table."""
        queues, unreadable = [], []
        for table, raw in sorted(self._store.lock_queues(), key=itemgetter(0)):
            try:
                queues.append((table, decode_queue(raw, table)))
            except CorruptCell as error:
                unreadable.append(UnreadableQueue(table, raw, str(error)))
        return queues, unreadable

    def repair(self, queue: UnreadableQueue) -> bool:
        """Keep the entries of a queue that can be read; False if it was changed meanwhile."""
        left = Queue(new_count(), salvaged(queue.raw))
        return self._store.swap_lock_queue(queue.table, queue.raw, _encoded(left))

    def release_dangling(self) -> None:
        """Release what belongs to operations that are finished or gone."""
        # Queues first: an operation is there before it asks for a lock.
        users = set(self._store.lock_users)
        queues, _ = self.read_queues()
        if not queues and not users:
            return
        live = {
            one.id
            for one in self._store.scan_live()
            if isinstance(one, Unreadable) or not one.is_finished
        }
        # Other executors have ended them, and nothing else of ours would ever forget them.
        self._store.lock_users.difference_update(users - live)
        for table, queue in queues:
            dangling = {entry.operation for entry in queue.entries} - live
            if dangling:
                self._remove(table, dangling)
            elif not queue.entries:  # as earlier versions left it
                self._store.swap_lock_queue(table, msgspec.json.encode(queue), None)

    def _remove(self, table: str, operations: Collection[FateId]) -> None:
        try:
            self._change(table, lambda queue: queue.without(operations))
        except CorruptCell as error:
            log.warning("locks of %s may stay: %s", ", ".join(sorted(operations)), error)

    def _acquire(self, table: str, entry: Entry) -> Defer | None:
        if not table or not isinstance(table, str):
            raise UsageError(f"{table!r} cannot be locked; give the name of a table")
        if entry.key_range.is_empty():
            raise UsageError(
                f"no row of {table!r} is in {entry.key_range}; start must be below end"
            )
        # Before the swap: one whose answer is lost may have taken the lock, which is given back
        # with the operation (F6).
        self._store.lock_users.add(entry.operation)
        try:
            queue = self._change(table, lambda queue: queue.with_entry(entry))
        except CorruptCell as error:
            return Defer(UNREADABLE_S, f"{error}; see `omidpy fate repair`")
        except StorageUnavailable as error:
            # Who waits for a lock has done nothing yet: an outage is no failure of his.
            return Defer(WAIT_S, f"{entry.mode} lock on {table}: not known yet, since {error}")
        blockers = queue.blockers(entry)
        if not blockers:
            return None
        first = blockers[0]
        more = f" and {len(blockers) - 1} more" if len(blockers) > 1 else ""
        return Defer(
            WAIT_S,
            f"{entry.mode} lock on {table}: waits for {first.mode} of {first.operation}{more}",
        )

    def _change(self, table: str, change: Callable[[Queue], Queue]) -> Queue:
        """Swap a queue until it is as `change` wants it.

        A swap without an answer is settled by looking: either it shows, or it is made again.
        """
        failures = 0
        while True:
            try:
                raw = self._store.read_lock_queue(table)
                # One that is made anew counts from elsewhere: no swap takes it for the old one.
                queue = Queue(new_count()) if raw is None else decode_queue(raw, table)
                changed = change(queue)
                if changed is queue:
                    return queue
                if len(changed.entries) > max(MAX_QUEUE, len(queue.entries)):
                    raise FateError(
                        f"{MAX_QUEUE} operations stand in the queue for locks on {table!r}; see "
                        "`omidpy fate list`, and delete those that nobody will run"
                    )
                if self._store.swap_lock_queue(table, raw, _encoded(changed)):
                    return changed
            except StorageUnavailable:
                # The swap may have been made: the next read shows that, and nothing is left to do.
                # If it comes late, it finds other content than it expects, and changes nothing.
                failures += 1
                if not brief(failures):
                    raise


def _entry(operation_id: str, mode: Mode, key_range: KeyRange) -> Entry:
    """Return what an operation wants, if a queue with it can be read again.

    Raises:
        TypeError: a bound is no bytes.
        UsageError: it is no operation's id, and the next sweep would free its lock.
    """
    if not isinstance(operation_id, str) or not is_id(operation_id):
        raise UsageError(f"{operation_id!r:.80} is no id of an operation; give tx.id of the step")
    start, end = key_range
    check_bytes("the start of a range", start)
    check_bytes("the end of a range", end)
    return Entry(FateId(operation_id), mode, start, end)


def _encoded(queue: Queue) -> bytes | None:
    """Return what is kept of a queue; None: nothing, since none is in it."""
    return msgspec.json.encode(queue) if queue.entries else None


def lock_states(queues: Iterable[tuple[str, Queue]]) -> list[LockState]:
    """Return every entry of some queues, with what it waits for."""
    return [
        LockState(table, entry, tuple(queue.blockers(entry)))
        for table, queue in queues
        for entry in queue.entries
    ]


def new_count() -> int:
    """Return what a new queue counts its changes from: no other one of its table did."""
    return secrets.randbits(48)


def salvaged(raw: bytes) -> tuple[Entry, ...]:
    """Return the entries that can be read of a queue that cannot."""
    try:
        found = msgspec.json.decode(raw)
    except UNREADABLE:
        return ()
    entries = found.get("entries") if isinstance(found, dict) else None
    kept = []
    for entry in entries if isinstance(entries, list) else ():
        with contextlib.suppress(msgspec.ValidationError):
            kept.append(msgspec.convert(entry, prepared(Entry)))
    return tuple(kept)


def decode_queue(raw: bytes | None, table: str) -> Queue:
    """Read a queue.

    Raises:
        CorruptCell: naming the table.
    """
    if raw is None:
        return Queue()
    try:
        return msgspec.json.decode(raw, type=prepared(Queue))
    except UNREADABLE as error:
        raise CorruptCell(
            f"the queue for locks on table {table!r} holds {raw[:80]!r}: {error}"
        ) from error
