"""The life of one transaction, from begin to outcome.

    running -> committed      `commit` got a commit timestamp, or there was nothing to commit
            -> rolled_back    `rollback`, an abort by the oracle, or a failure before it was asked
            -> unknown        no answer, and no evidence either way: `tm.outcome` finds out later

The order of a commit is the protocol: every cell acknowledged, then the oracle's decision with its
durable entry, then shadow cells, then the entry goes (I5).  Until the oracle was asked the
transaction cannot have committed, so its cells may be taken back; once it was asked they may be
only after a certain abort (I8, I9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from omidpy.buffer import ContradictingPart, WriteBuffer
from omidpy.cells import table_id
from omidpy.errors import (
    CommitOutcomeUnknown,
    ConfigError,
    Fenced,
    Invalidated,
    LocalProtocolError,
    OmidError,
    SnapshotTooOld,
    StorageError,
    TransactionAborted,
    TransactionClosed,
    UsageError,
    WriteConflict,
)
from omidpy.model import Aborted, Cell, CellId, Committed, Timestamp, TransactionStatus
from omidpy.oracle.base import AbortReason, Begun, CommitGranted, CommitRefused
from omidpy.post_commit import Completion
from omidpy.table import TransactionalTable
from omidpy.tokens import Token, Witness, decode_part

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager

log = logging.getLogger(__name__)

FLUSH_LIMIT_BYTES: Final = 2 * 1024 * 1024


class Savepoint:
    """A part of a transaction that is undone alone: `with tx.savepoint(): ...`."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._is_entered = False

    def __enter__(self) -> None:
        if self._is_entered:
            raise TransactionClosed("a savepoint was entered twice; call tx.savepoint() again")
        self._is_entered = True
        self._transaction.open_savepoint()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._transaction.is_running:
            self._transaction.close_savepoint(keep=exc_type is None)


class Transaction:
    """Reads one snapshot and buffers writes until `commit`.  Belongs to one thread.

    Attributes:
        start_ts: The snapshot, and the transaction's identity.
        commit_ts: Set by a commit that wrote something.
        status: `running`, `committed`, `rolled_back` or `unknown`.
    """

    def __init__(
        self,
        manager: TransactionManager,
        begun: Begun,
        *,
        read_only: bool = False,
        at: Timestamp | None = None,
    ) -> None:
        self._snapshot = manager.reader.open(begun, at=at)
        self.start_ts = self._snapshot.start_ts
        self.commit_ts: Timestamp | None = None
        self.status = TransactionStatus.RUNNING
        self.is_read_only = read_only or at is not None
        self._manager = manager
        self._begun = begun
        self._has_token = False
        self._generation = manager.generation
        self._buffer = WriteBuffer(self.start_ts)
        self._tables: dict[str, TransactionalTable] = {}
        self._rollback_reason: str | None = None
        self._is_entered = False
        self._callbacks: list[Callable[[Transaction], object]] = []

    def __repr__(self) -> str:
        return f"<Transaction {self.start_ts} {self.status}>"

    # -- tables --------------------------------------------------------------------------------

    def table(self, name: str) -> TransactionalTable:
        """Return a table to read and write in this transaction.

        Raises:
            NoSuchTable: there is none of this name.
            NotTransactional: there is one, but it is not marked for transactions.
        """
        self.check_open()
        table = self._tables.get(name)
        if table is None:
            layout = self._manager.layout(name)
            table = TransactionalTable(self, self._snapshot, self._buffer, layout)
            self._tables[name] = table
        return table

    def check_horizon(self) -> None:
        """Raise `SnapshotTooOld` if versions that this snapshot needs may be gone."""
        self._snapshot.check_horizon()

    def after_commit(self, callback: Callable[[Transaction], object]) -> None:
        """Call `callback(tx)` once, after the commit; its exception is logged."""
        self.check_open()
        self._callbacks.append(callback)

    def set_rollback_only(self) -> None:
        """Make `commit` roll back and raise `TransactionAborted`."""
        self.check_open()
        self._rollback_reason = "set_rollback_only was called"

    def savepoint(self) -> Savepoint:
        """Return a context manager whose block is undone alone if it raises; the exception goes on.

        Savepoints nest.  One transaction can take 49 of them, the checkpoints of Omid's format, less those that
        flushing and rewriting cells has used.

        Raises:
            UsageError: on entering the 50th.
        """
        self.check_open()
        return Savepoint(self)

    def flush(self) -> None:
        """Write the buffered cells to the store, tentative: only this transaction sees them.

        Cells written in an open savepoint stay buffered.

        Raises:
            StorageError: some cells may have been written; nothing is committed, and flushing again
                or committing sends the same bytes again.
        """
        self.check_open()
        self._flush()

    def wrote(self) -> None:
        """Note a buffered write: flushes past the limit."""
        if self._buffer.size_bytes > FLUSH_LIMIT_BYTES and self._buffer.can_rewrite():
            self._flush(with_savepoints=True)

    def _flush(self, *, with_savepoints: bool = False) -> None:
        batch = self._buffer.take(with_savepoints=with_savepoints)
        if batch:
            self._manager.on_step("before-flush")
            self._manager.store.write(batch)
            self._manager.on_step("flushed")
        self._buffer.acknowledge()

    # -- savepoints ----------------------------------------------------------------------------

    def open_savepoint(self) -> None:
        """Begin a savepoint; `Savepoint` calls it."""
        self.check_writable()
        self._buffer.open_savepoint()

    def close_savepoint(self, *, keep: bool) -> None:
        """End the innermost savepoint; what an undone one had flushed is deleted, or nothing
        commits.

        A delete that is not acknowledged may leave a cell that a commit would make visible, so the
        transaction can only be rolled back then (D12).
        """
        if keep:
            self._buffer.keep_savepoint()
            return
        deletes = self._buffer.drop_savepoint()
        if not deletes:
            return
        if not self._manager.store.capabilities.exact_delete:
            self._buffer.restore_savepoint(deletes)
            self._rollback_reason = (
                "a savepoint was undone after some of its cells had been flushed, and this store "
                "cannot delete single versions"
            )
            return
        try:
            self._manager.store.write(deletes)
        except StorageError as error:
            self._buffer.restore_savepoint(deletes)
            self._rollback_reason = (
                f"the flushed cells of an undone savepoint could not be deleted: {error}"
            )

    # -- parts of other processes --------------------------------------------------------------

    def token(self) -> bytes:
        """Flush, and return what another process needs to write in this transaction (`tm.resume`).

        Raises:
            StorageError: as `flush`.
            UsageError: a savepoint is open, or no checkpoint is left.
        """
        self.check_writable()
        self._check_no_savepoint()
        self._flush()
        witness = self._buffer.witness()
        token = Token(
            store_id=self._manager.store.store_id,
            start_ts=self.start_ts,
            version=self._buffer.reserve_version(),
            epoch=self._begun.epoch,
            low_watermark=self._begun.low_watermark,
            witness=None if witness is None else Witness(witness[0], *witness[1][:4]),
        )
        self._has_token = True
        return msgspec.json.encode(token)

    def merge(self, part: bytes) -> None:
        """Make what a worker wrote part of this transaction, one part a task.

        Raises:
            UsageError: the part is of another transaction, or was merged already; or it contradicts
                another one, and the transaction can only be rolled back now.
        """
        self.check_writable()
        decoded = decode_part(part)
        if decoded.start_ts != self.start_ts or decoded.store_id != self._manager.store.store_id:
            raise UsageError(
                f"the part belongs to transaction {decoded.start_ts} of the store {decoded.store_id}, "
                f"not to transaction {self.start_ts}"
            )
        try:
            self._buffer.merge(
                decoded.names(), decoded.version, digest=decoded.digest, task=decoded.task
            )
        except ContradictingPart as error:
            self._rollback_reason = str(error)
            raise

    def _check_no_savepoint(self) -> None:
        if self._buffer.has_savepoint:
            raise UsageError(
                f"transaction {self.start_ts} has an open savepoint; leave its `with` block first"
            )

    # -- ending --------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make the writes visible to every later snapshot, all at once.

        Raises:
            TransactionAborted: certainly not committed; its subclass says why.  Also when the cells
                could not be written, or after `set_rollback_only`.
            CommitOutcomeUnknown: no answer, and no evidence; the cells stay until the outcome is
                known.

        Cost: 1 write a table for the cells, 1 oracle round trip; shadow cells follow
        (`post_commit`).
        """
        self.check_open()
        self._check_no_savepoint()
        if self._rollback_reason is not None:
            reason = self._rollback_reason
            self._roll_back()
            raise TransactionAborted(
                f"transaction {self.start_ts} was rolled back: {reason}", retryable=False
            )
        if self._buffer.is_empty:
            self.status = TransactionStatus.COMMITTED
            self._run_callbacks()
            return
        self._flush_or_abort()
        # From here on the outcome is open until the oracle answers: whatever interrupts this
        # thread must not leave a transaction that looks as if it could be rolled back.
        self.status = TransactionStatus.UNKNOWN
        verdict = self._decide(self._cell_ids())
        if isinstance(verdict, CommitGranted):
            self._committed(verdict.commit_ts)
            return
        self._roll_back()
        raise self._refusal(verdict)

    def rollback(self) -> None:
        """End the transaction without committing; its flushed cells are removed."""
        self.check_open()
        self._roll_back()

    def _flush_or_abort(self) -> None:
        try:
            self._flush()
        except OmidError as error:
            self._roll_back()
            if isinstance(error, UsageError):
                raise
            raise TransactionAborted(
                f"transaction {self.start_ts} was not committed: its cells could not be written: "
                f"{error}",
                retryable=getattr(error, "retryable", False),
            ) from error
        except BaseException:
            self._roll_back()
            raise

    def _decide(self, cell_ids: set[CellId]) -> CommitGranted | CommitRefused:
        manager = self._manager
        table_ids = {table_id(name) for name in self._buffer.tables()}
        try:
            return manager.oracle.commit(self.start_ts, cell_ids, table_ids)
        except (UsageError, LocalProtocolError, ConfigError) as error:
            # Nothing was sent: too many cells for one request, or an oracle of another store.
            self._roll_back()
            raise TransactionAborted(
                f"transaction {self.start_ts} was not committed: {error}", retryable=False
            ) from error
        except OmidError as error:
            log.warning("no answer to the commit of %d, finding out: %s", self.start_ts, error)
            outcome = manager.outcomes.settle(
                self.start_ts, self._buffer.witness(), cell_ids, table_ids
            )
            if isinstance(outcome, Committed) and outcome.commit_ts is not None:
                return CommitGranted(outcome.commit_ts)
            if isinstance(outcome, Aborted):
                return CommitRefused(AbortReason.INVALIDATED)
            raise CommitOutcomeUnknown(
                f"transaction {self.start_ts} may or may not have committed: the oracle gave no "
                f"answer ({error}); ask tm.outcome(error) later, and do not run it again before",
                start_ts=self.start_ts,
                witness=self._buffer.witness(),
            ) from error

    def _committed(self, commit_ts: Timestamp) -> None:
        self.commit_ts = commit_ts
        self.status = TransactionStatus.COMMITTED
        self._manager.on_step("decided")
        self._manager.post_committer.submit(
            Completion(self.start_ts, self._buffer.shadow_cells(commit_ts))
        )
        self._run_callbacks()

    def _run_callbacks(self) -> None:
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:
                log.exception("after_commit of transaction %d failed", self.start_ts)
        self._callbacks = []

    def _roll_back(self) -> None:
        """Take the cells back.  A failure is logged: readers ignore tentative cells anyway."""
        self.status = TransactionStatus.ROLLED_BACK
        self._callbacks = []
        if self._has_token:
            self._invalidate_for_workers()
        removals = self._buffer.removals()
        if not removals or not self._manager.store.capabilities.exact_delete:
            return
        try:
            self._manager.store.write(removals)
            self._manager.on_step("rolled-back")
        except StorageError as error:
            log.warning(
                "cells of the aborted transaction %d were not all removed; the compactor will: %s",
                self.start_ts,
                error,
            )

    def _invalidate_for_workers(self) -> None:
        """Make the end durable first: workers may still be writing cells of this transaction."""
        if not self._manager.oracle.can_invalidate:
            return
        try:
            self._manager.oracle.invalidate(self.start_ts)
        except OmidError as error:
            log.warning(
                "transaction %d was rolled back without an invalidation: %s", self.start_ts, error
            )

    def _cell_ids(self) -> set[CellId]:
        return {
            self._manager.layout(name.table).conflict_id(*name[1:]) for name in self._buffer.names()
        }

    def _refusal(self, verdict: CommitRefused) -> TransactionAborted:
        start_ts = self.start_ts
        match verdict.reason:
            case AbortReason.LOW_WATERMARK:
                return SnapshotTooOld(
                    f"transaction {start_ts} was aborted: it began at or below the oracle's low "
                    "watermark; make it shorter, or start tso-server with a longer "
                    "--max-transaction-age or a larger --conflict-map-size"
                )
            case AbortReason.FENCE:
                tables = ", ".join(sorted(self._buffer.tables()))
                return Fenced(
                    f"transaction {start_ts} was aborted: a fence was set on one of the tables it "
                    f"wrote ({tables}) after it began; run it again"
                )
            case AbortReason.INVALIDATED:
                return Invalidated(
                    f"transaction {start_ts} was aborted: its commit was forbidden by an "
                    "invalidation, after the oracle could not be reached or was replaced; run it "
                    "again"
                )
            case AbortReason.CONFLICT | AbortReason.UNSTATED:
                return self._conflict(verdict)

    def _conflict(self, verdict: CommitRefused) -> WriteConflict:
        wanted = set(verdict.conflicts)
        cells = [
            (name.table, name.row, name.family, name.qualifier)
            for name in self._buffer.names()
            if self._manager.layout(name.table).conflict_id(*name[1:]) in wanted
        ]
        where = ", ".join(f"{t}:{r!r} {f!r}:{q!r}" for t, r, f, q in cells[:3]) or (
            "a cell that the oracle does not name"
        )
        more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
        return WriteConflict(
            f"transaction {self.start_ts} was aborted: another transaction committed {where}{more} "
            "after it began; run it again, for example with @tm.transactional",
            cells=cells,
        )

    def witness(self) -> tuple[str, Cell] | None:
        """Return one written cell and its table: its shadow cell proves a commit."""
        return self._buffer.witness()

    # -- `with` and guards ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.check_open()
        if self._is_entered:
            raise TransactionClosed(
                f"transaction {self.start_ts} was entered twice; begin another with tm.begin()"
            )
        self._is_entered = True
        self._manager.push_ambient(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._manager.pop_ambient(self)
        if exc_type is None:
            if self.status is TransactionStatus.RUNNING or self.is_inherited:
                self.commit()
            return
        if self.status is TransactionStatus.RUNNING and not self.is_inherited:
            try:
                self._roll_back()
            except Exception:
                # The block's own exception is the one to see.
                log.exception("rolling back transaction %d failed", self.start_ts)

    @property
    def is_running(self) -> bool:
        """Whether the transaction can still be used here."""
        return self.status is TransactionStatus.RUNNING and not self.is_inherited

    @property
    def is_inherited(self) -> bool:
        """Whether this is a copy that came into a child process by `fork`."""
        return self._generation != self._manager.generation

    def check_open(self) -> None:
        """Raise `TransactionClosed` unless it is running, in the process that began it."""
        if self.is_inherited:
            raise TransactionClosed(
                f"transaction {self.start_ts} was begun before fork and belongs to the parent "
                "process; begin another in this one"
            )
        if self.status is not TransactionStatus.RUNNING:
            raise TransactionClosed(
                f"transaction {self.start_ts} is {self.status}; begin another with tm.begin()"
            )

    def check_writable(self) -> None:
        """Raise unless the transaction is running and may write."""
        self.check_open()
        if self.is_read_only:
            raise UsageError(f"transaction {self.start_ts} is read-only; use tm.begin() to write")
