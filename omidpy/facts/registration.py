"""Which workers write in a transaction, and may they still?  One row of the control table.

The owner opens the row before it hands out a token.  A worker announces each flush there before it
sends a cell, and sends none unless the row is open.  The owner closes the row before it asks the
oracle, and then reads it.  So

    what a worker sends was announced before, in a row that was open, and
    a reader of the closed row knows of every cell that any worker sent or will send.

A gateway that cannot check what it changes gives the same: the worker writes its announcement and
then looks, the owner closes and then looks, and one of them sees the other.

Where the store changes many rows at once, announcement and cells are one change, so that after the
close nothing arrives any more.  Elsewhere a flush can be under way when the row is closed: it is
announced, then sent, and then its announcement is written again as acknowledged.  What was never
acknowledged may still arrive, and it is not known when.

The same must be so when the power has failed, and its cells and its commit have not gone with it.
So where these are in other logs than the row, it is closed durably, and a flush announced so.

The row is named after the transaction and goes once that has ended.  A worker that comes later
finds it absent, which is not open.

    v           `open`, then `closed`
    w/ID/N      the N-th flush of the worker ID

This module decides nothing: who may be left out of a commit is said in `tx/parts/status.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from omidpy.base.reach import reached
from omidpy.base.tables import CONTROL_FAMILY, CONTROL_TABLE, FIXED_VERSION, VALUE
from omidpy.errors import CorruptCell, TransactionClosed
from omidpy.facts.control import decode_document, encode_document
from omidpy.model import Cell, ColumnSpec, KeyRange, Timestamp, base
from omidpy.storage.base import (
    Condition,
    DeleteVersion,
    GuardedMutation,
    Put,
    RowMutation,
    Store,
)

PARTS_PREFIX: Final = b"parts/"
IS_OPEN: Final = b"open"
IS_CLOSED: Final = b"closed"
OPENED_AT, CLOSED_AT = FIXED_VERSION, FIXED_VERSION + 1
"""Versions: a put of `open` that a gateway repeats late must not undo `closed`."""
_OF_WORKER: Final = b"w/"


class Stretch(msgspec.Struct, frozen=True):
    """Where some cells lie: families of a table, from one row to another, both included."""

    table: str
    families: list[bytes]
    first: bytes
    last: bytes

    @property
    def key_range(self) -> KeyRange:
        """The rows of the control table in which they are registered."""
        return KeyRange(self.first, self.last + b"\x00")

    @property
    def columns(self) -> list[ColumnSpec]:
        """The families, as a scan takes them."""
        return [(family, None) for family in self.families]


class Flush(msgspec.Struct, frozen=True):
    """What a worker says of one flush, before it sends a cell of it."""

    version: int
    task: str | None
    stretches: list[Stretch]
    digest: str | None = None
    """Of all that the worker wrote; only with its last flush."""
    is_acknowledged: bool = False
    """Whether every cell of it is in the store, and nothing of it under way."""
    part: str | None = None
    """The digest of the part that the worker hands to the owner; only with its last flush."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker that has sent cells, or was about to."""

    worker_id: str
    flushes: Sequence[Flush]

    @property
    def task(self) -> str | None:
        """The task of which it is an attempt."""
        return self.flushes[0].task

    @property
    def version(self) -> int:
        """The version of its cells."""
        return self.flushes[0].version

    @property
    def digest(self) -> str | None:
        """The digest of all that it wrote, if it came so far."""
        return next((flush.digest for flush in self.flushes if flush.digest is not None), None)

    @property
    def part(self) -> str | None:
        """The digest of its part, if it came so far."""
        return next((flush.part for flush in self.flushes if flush.part is not None), None)

    @property
    def is_acknowledged(self) -> bool:
        """Whether nothing of it can still arrive, once the row is closed."""
        return all(flush.is_acknowledged for flush in self.flushes)

    def stretches(self) -> Iterator[Stretch]:
        """Yield where its cells lie."""
        for flush in self.flushes:
            yield from flush.stretches


def stretches_of(batch: Mapping[str, Sequence[RowMutation]]) -> list[Stretch]:
    """Return where the cells of a batch lie, whose rows are in order."""
    return [
        Stretch(
            table,
            sorted({put[0] for _, puts, _ in mutations for put in puts}),
            mutations[0].row,
            mutations[-1].row,
        )
        for table, mutations in batch.items()
    ]


def parts_row(start_ts: int) -> bytes:
    """Return the row of a transaction."""
    return PARTS_PREFIX + b"%020d" % start_ts


class PartsRow:
    """The row of one transaction, for its owner."""

    def __init__(self, store: Store, start_ts: Timestamp) -> None:
        self._store = store
        self._start_ts = start_ts
        self._row = parts_row(start_ts)
        self._found: list[Cell] = []

    def open(self) -> None:
        """Let workers begin.  Cost: 1 write."""
        self._put(IS_OPEN, OPENED_AT)

    def close(self) -> None:
        """Let no worker begin another flush; a second call changes nothing.

        Cost: 1 write; durable where the commit is in another log.
        """
        # Else the row may be open once more when the power is back, and the commit be there.
        self._put(IS_CLOSED, CLOSED_AT, durable=_is_by_itself(self._store))

    def _put(self, state: bytes, version: int, *, durable: bool = False) -> None:
        put = Put(*VALUE, version, state)
        self._store.write({CONTROL_TABLE: [RowMutation(self._row, puts=(put,))]}, durable=durable)

    def read(self) -> list[Registration]:
        """Return the workers that have announced a flush, by their ids.

        Raises:
            CorruptCell: one of them announced a version that is none of this transaction.

        Cost: 1 get.
        """
        (self._found,) = self._store.get(CONTROL_TABLE, (self._row,), max_versions=1)
        flushes: dict[str, list[Flush]] = {}
        for cell in self._found:
            if cell.qualifier.startswith(_OF_WORKER):
                name = cell.qualifier.removeprefix(_OF_WORKER).decode()
                flush = decode_document(cell.value, Flush, row=self._row)
                # The owner shows what lies at this version, or deletes it: were it another
                # transaction's, its cells would be shown, or gone (I8, I9).
                if base(flush.version) != self._start_ts:
                    raise CorruptCell(
                        f"worker {name.partition('/')[0]} announced cells at version "
                        f"{flush.version}, which is none of transaction {self._start_ts}"
                    )
                flushes.setdefault(name.partition("/")[0], []).append(flush)
        return [Registration(worker_id, of_worker) for worker_id, of_worker in flushes.items()]

    def removal(self) -> RowMutation:
        """Return what removes the row, as it was when it was read."""
        return _removal(self._row, self._found)


class WorkerRow:
    """The same row, for one worker."""

    def __init__(self, store: Store, start_ts: Timestamp, worker_id: str) -> None:
        self._store = store
        self._start_ts = start_ts
        self._row = parts_row(start_ts)
        self._worker_id = worker_id
        self._flush_count = 0

    @property
    def has_announced(self) -> bool:
        """Whether the owner may know of this worker."""
        return self._flush_count > 0

    def send(self, flush: Flush, batch: Mapping[str, Sequence[RowMutation]]) -> None:
        """Announce a flush, and send its cells.

        Raises:
            TransactionClosed: the row is not open; what the message says was or was not written.
            StorageError: some cells may have been written.

        Cost: 1 guarded batch where the store has them; else 2 checked changes and 1 write.
        """
        name = b"%s%s/%06d" % (_OF_WORKER, self._worker_id.encode(), self._flush_count)
        acknowledged = msgspec.structs.replace(flush, is_acknowledged=True)
        if self._store.capabilities.guarded_batches:
            self._flush_count += 1
            self._send_at_once(name, acknowledged, batch)
            return
        # No cell may outlive what it was announced by: the owner would not know of it.
        if not self._announce(name, flush if batch else acknowledged, durable=bool(batch)):
            raise self._too_late("nothing of its last flush was written")
        # An announcement that failed may be made again under its name, since nothing was sent.
        # From here on a flush that fails stays open for ever, and the next one has another name.
        self._flush_count += 1
        if not batch:
            return
        self._store.write(batch)
        if not self._announce(name, acknowledged):
            reached("parts.closed_under_way", "I9")
            raise self._too_late("its last flush was under way")

    def _send_at_once(
        self, name: bytes, flush: Flush, batch: Mapping[str, Sequence[RowMutation]]
    ) -> None:
        changes = [GuardedMutation(CONTROL_TABLE, self._announcement(name, flush))]
        changes += [
            GuardedMutation(table, mutation)
            for table, mutations in batch.items()
            for mutation in mutations
        ]
        # Cells, what announces them and the look at the row in one: once the owner has closed the
        # row, nothing of this worker comes any more (I9).
        is_open = Condition(CONTROL_TABLE, self._row, VALUE, IS_OPEN)
        if self._store.write_guarded(changes, guard=is_open) is None:
            raise self._too_late("nothing of its last flush was written")

    def _announce(self, name: bytes, flush: Flush, *, durable: bool = False) -> bool:
        """Write an announcement, and say whether the row is open."""
        mutation = self._announcement(name, flush)
        if self._store.capabilities.checked_changes:
            return self._store.check_and_mutate(
                CONTROL_TABLE, self._row, VALUE, IS_OPEN, mutation, durable=durable
            )
        self._store.write({CONTROL_TABLE: [mutation]}, durable=durable)
        (cells,) = self._store.get(CONTROL_TABLE, (self._row,), columns=(VALUE,), max_versions=1)
        return [cell.value for cell in cells] == [IS_OPEN]

    def _announcement(self, name: bytes, flush: Flush) -> RowMutation:
        put = Put(CONTROL_FAMILY, name, FIXED_VERSION, encode_document(flush))
        return RowMutation(self._row, puts=(put,))

    def _too_late(self, what: str) -> TransactionClosed:
        reached("parts.came_too_late", "I9")
        return TransactionClosed(
            f"worker {self._worker_id} comes too late: the owner of transaction {self._start_ts} "
            f"has begun to commit it, or ended it; {what}, and its part cannot be merged any more. "
            "Let every worker finish before the owner commits"
        )


def _is_by_itself(store: Store) -> bool:
    """Say whether a change of the row may be lost with the power, and a later one elsewhere not."""
    return not store.capabilities.guarded_batches


def forget_parts(store: Store, low_watermark: int) -> None:
    """Remove the rows of transactions that can no longer commit (I4), of living owners too.

    No worker of theirs can begin a flush from then on: a row that is gone is not open.

    Cost: 1 RPC a page of rows, 1 write where there are any.
    """
    doomed = KeyRange(PARTS_PREFIX, parts_row(low_watermark) + b"\x00")
    for page in store.scan(CONTROL_TABLE, doomed, max_versions=1):
        store.write({CONTROL_TABLE: [_removal(cells[0].row, cells) for cells in page]})


def _removal(row: bytes, cells: Iterable[Cell]) -> RowMutation:
    """Remove the cells of a row, and what the state covers: the row would be open again."""
    found = {cell[1:4] for cell in cells} | {(*VALUE, OPENED_AT), (*VALUE, CLOSED_AT)}
    return RowMutation(row, deletes=[DeleteVersion(*cell) for cell in sorted(found)])
