"""One transaction, written by several processes.

The owner hands out a token.  A worker resumes it elsewhere, reads the owner's snapshot and what was
flushed in the transaction, and writes tentative cells at a version that the owner leaves alone.
What it wrote comes back as a part, which the owner merges, so that the one commit covers it.

A worker can neither commit nor roll back.  It announces what it is about to write
(`registration.py`), and the owner answers for it, merged or not (`standing.py`).

Tokens and parts are JSON.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from omidpy.buffer import FLUSH_LIMIT_BYTES, CellName, WriteBuffer
from omidpy.errors import TransactionClosed, UsageError
from omidpy.model import Cell, Timestamp
from omidpy.oracle.base import Begun
from omidpy.registration import Flush, WorkerRow, stretches_of
from omidpy.table import TransactionalTable

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager

TOKEN_FORMAT: Final = "omidpy-token-2"  # noqa: S105 - no secret
PART_FORMAT: Final = "omidpy-part-2"
"""Workers that only know the first format announce nothing, so that they must not read a token."""


class Witness(msgspec.Struct, frozen=True):
    """A cell that the owner has flushed: its shadow cell proves the commit."""

    table: str
    row: bytes
    family: bytes
    qualifier: bytes
    version: int

    def cell(self) -> tuple[str, Cell]:
        """Return it as the outcome finder takes it."""
        return self.table, Cell(self.row, self.family, self.qualifier, self.version, b"")


class Token(msgspec.Struct, frozen=True):
    """What a worker must know of a transaction."""

    store_id: str
    start_ts: int
    version: int
    """The version that workers write at."""
    epoch: int
    """No transaction that began below it could be decided a commit when this one began."""
    witness: Witness | None = None
    format: str = TOKEN_FORMAT


class Part(msgspec.Struct, frozen=True):
    """What one worker wrote."""

    store_id: str
    start_ts: int
    worker_id: str
    version: int
    task: str | None
    digest: str
    """Of the names and values of all cells."""
    cells: list[CellName]
    conflict_free: list[CellName] = []
    """Those of `cells` that the oracle is not to check."""
    format: str = PART_FORMAT

    def tables(self) -> set[str]:
        """Return the tables that were written."""
        return {cell.table for cell in self.cells}


def encode_token(
    *,
    store_id: str,
    start_ts: Timestamp,
    version: int,
    epoch: Timestamp,
    witness: tuple[str, Cell] | None,
) -> bytes:
    """Return the token of a transaction, for workers that write at `version`."""
    cell = None if witness is None else Witness(witness[0], *witness[1][:4])
    return msgspec.json.encode(Token(store_id, start_ts, version, epoch, cell))


def decode_token(token: object, *, store_id: str) -> Token:
    """Return a token of this store.

    Raises:
        UsageError: it is none, or one of another store.
    """
    decoded = _decoded(token, Token, what="token", source="tx.token()", version=TOKEN_FORMAT)
    if decoded.store_id != store_id:
        raise UsageError(
            f"the token belongs to the store {decoded.store_id}, this manager is connected to "
            f"{store_id}; connect to the store where the transaction began"
        )
    return decoded


def decode_part(part: object, *, store_id: str, start_ts: Timestamp) -> Part:
    """Return a part of this transaction.

    Raises:
        UsageError: it is none, or one of another transaction.
    """
    decoded = _decoded(part, Part, what="part", source="worker.finish()", version=PART_FORMAT)
    if decoded.start_ts != start_ts or decoded.store_id != store_id:
        raise UsageError(
            f"the part belongs to transaction {decoded.start_ts} of the store {decoded.store_id}, "
            f"not to transaction {start_ts} of the store {store_id}"
        )
    return decoded


D = TypeVar("D", Token, Part)


def _decoded(raw: object, type_: type[D], *, what: str, source: str, version: str) -> D:
    """Decode what `source` made, and refuse what it cannot have made."""
    if not isinstance(raw, bytes):
        raise TypeError(f"a {what} is bytes from {source}, not {type(raw).__name__}")
    try:
        decoded = msgspec.json.decode(raw, type=type_)
    except msgspec.DecodeError as error:
        raise UsageError(f"{raw[:40]!r} is no {what} of {source}: {error}") from error
    if decoded.format != version:
        raise UsageError(
            f"the {what} has the format {decoded.format!r}; this version reads {version}"
        )
    return decoded


class Worker:
    """A transaction of another process, resumed here: reads and writes, and `finish`.

    Belongs to one thread.  Writing a cell again after it was flushed (past 2 MiB of writes) is
    refused: there is one version for all workers.

    Attributes:
        start_ts: The owner's transaction.
        worker_id: Names this worker in errors, in `tx.parts()` and for `tx.discard`.
    """

    def __init__(self, manager: TransactionManager, token: Token, task: str | None) -> None:
        self.start_ts = Timestamp(token.start_ts)
        self.worker_id = uuid.uuid4().hex
        self._manager = manager
        self._token = token
        self._task = task
        begun = Begun(self.start_ts, epoch=Timestamp(token.epoch))
        self._snapshot = manager.reader.open(begun, asked_s=None)
        self._snapshot.has_sent_cells = True  # the owner's
        self._buffer = WriteBuffer(self.start_ts, fixed_version=token.version)
        self._row = WorkerRow(manager.store, self.start_ts, self.worker_id)
        self._generation = manager.generation
        self._is_finished = False

    def __repr__(self) -> str:
        return f"<Worker {self.worker_id} of transaction {self.start_ts}>"

    def table(self, name: str, *, conflict_free: bool = False) -> TransactionalTable:
        """Return a table to read and write in the owner's transaction.

        `conflict_free` is as in `Transaction.table`.
        """
        self.check_open()
        layout = self._manager.layout(self._manager.full_name(name))
        return TransactionalTable(
            self, self._snapshot, self._buffer, layout, conflict_free=conflict_free
        )

    def finish(self) -> bytes:
        """Flush, and return what was written for `tx.merge` in the owner.

        Raises:
            StorageError: some cells may have been written; call it again.
            TransactionClosed: the owner commits already, or has ended the transaction.
            UsageError: a batch was left half-way, so that nothing may be merged.
        """
        self.check_open()
        if self._buffer.flaw is not None:
            raise UsageError(
                f"this worker of transaction {self.start_ts} wrote half of something, which must "
                f"not be merged: {self._buffer.flaw}"
            )
        digest = self._flush(is_last=True)
        self._is_finished = True
        part = Part(
            store_id=self._token.store_id,
            start_ts=self.start_ts,
            worker_id=self.worker_id,
            version=self._token.version,
            task=self._task,
            digest=digest,
            cells=sorted(name for name, _ in self._buffer.written()),
            conflict_free=self._buffer.conflict_free_names(),
        )
        return msgspec.json.encode(part)

    @property
    def is_running(self) -> bool:
        """Whether it can still be used, in the process that resumed it."""
        return not self._is_finished and self._generation == self._manager.generation

    def check_open(self) -> None:
        """Raise `TransactionClosed` once the part was handed out, or in a forked child."""
        if self._is_finished:
            raise TransactionClosed(
                f"this worker of transaction {self.start_ts} has finished; resume the token again"
            )
        if self._generation != self._manager.generation:
            raise TransactionClosed(
                f"this worker of transaction {self.start_ts} was resumed before fork and belongs "
                "to the parent process"
            )

    def check_writable(self) -> None:
        """Raise unless the worker may write."""
        self.check_open()

    def wrote(self) -> None:
        """Note a buffered write: flushes past the limit."""
        if self._buffer.size_bytes > FLUSH_LIMIT_BYTES:
            self._flush()

    def _flush(self, *, is_last: bool = False) -> str:
        """Announce and send what is buffered; return the digest, of all of it if it is the last."""
        batch = self._buffer.take()
        digest = digest_of(self._buffer.written()) if is_last else ""
        # A worker that wrote nothing is never heard of.
        if batch or (is_last and self._row.has_announced):
            flush = Flush(self._token.version, self._task, stretches_of(batch), digest or None)
            self._row.send(flush, batch)
        self._buffer.acknowledge()
        return digest


def digest_of(written: Iterable[tuple[CellName, bytes]]) -> str:
    """Hash names and values, each with its length, so that no two write sets look alike."""
    digest = hashlib.sha256()
    for name, value in sorted(written):
        for field in (name.table.encode(), name.row, name.family, name.qualifier, value):
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
    return digest.hexdigest()
