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

from omidpy.buffer import CellName, WriteBuffer
from omidpy.cells import table_id
from omidpy.errors import (
    CommitOutcomeUnknown,
    ConfigError,
    Fenced,
    Invalidated,
    LocalProtocolError,
    OmidError,
    OracleUnavailable,
    SnapshotTooOld,
    StorageError,
    TransactionAborted,
    TransactionClosed,
    UsageError,
    WriteConflict,
)
from omidpy.model import (
    Aborted,
    Cell,
    CellId,
    Committed,
    Outcome,
    TableId,
    Timestamp,
    TransactionStatus,
    Undecided,
)
from omidpy.oracle.base import AbortReason, CommitGranted, CommitRefused
from omidpy.post_commit import Completion
from omidpy.table import TransactionalTable

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.snapshot import Snapshot

log = logging.getLogger(__name__)

FLUSH_LIMIT_BYTES: Final = 2 * 1024 * 1024


class Transaction:
    """Reads one snapshot and buffers writes until `commit`.  Belongs to one thread.

    Attributes:
        start_ts: The snapshot, and the transaction's identity.
        commit_ts: Set by a commit that wrote something.
        status: `running`, `committed`, `rolled_back` or `unknown`.
    """

    def __init__(self, manager: TransactionManager, snapshot: Snapshot, *, read_only: bool) -> None:
        self.start_ts = snapshot.start_ts
        self.commit_ts: Timestamp | None = None
        self.status = TransactionStatus.RUNNING
        self.is_read_only = read_only
        self._manager = manager
        self._generation = manager.generation
        self._snapshot = snapshot
        self._buffer = WriteBuffer(snapshot.start_ts)
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

    def after_commit(self, callback: Callable[[Transaction], object]) -> None:
        """Call `callback(tx)` once, after the commit; its exception is logged."""
        self.check_open()
        self._callbacks.append(callback)

    def set_rollback_only(self) -> None:
        """Make `commit` roll back and raise `TransactionAborted`."""
        self.check_open()
        self._rollback_reason = "set_rollback_only was called"

    def flush(self) -> None:
        """Write the buffered cells to the store, tentative: only this transaction sees them.

        Raises:
            StorageError: some cells may have been written; nothing is committed, and flushing again
                or committing sends the same bytes again.
        """
        self.check_open()
        self._flush()

    def wrote(self) -> None:
        """Note a buffered write: flushes past the limit."""
        if self._buffer.size_bytes > FLUSH_LIMIT_BYTES and self._buffer.can_rewrite():
            self._flush()

    def _flush(self) -> None:
        batch = self._buffer.take()
        if batch:
            self._manager.on_step("before-flush")
            self._manager.store.write(batch)
            self._manager.on_step("flushed")
        self._buffer.acknowledge()

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
        except OmidError as error:
            if _was_not_sent(error):
                self._roll_back()
                raise TransactionAborted(
                    f"transaction {self.start_ts} was not committed: {error}",
                    retryable=error.retryable,
                ) from error
            log.warning("no answer to the commit of %d, finding out: %s", self.start_ts, error)
            outcome = self._settle(cell_ids, table_ids)
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

    def _settle(self, cell_ids: set[CellId], table_ids: set[TableId]) -> Outcome:
        try:
            return self._manager.outcomes.settle(
                self.start_ts, self._buffer.witness(), cell_ids, table_ids
            )
        except OmidError as error:
            log.warning("the outcome of %d could not be found out: %s", self.start_ts, error)
            return Undecided()

    def learn(self, outcome: Outcome) -> None:
        """Take note of an outcome that was unknown, and do what follows it."""
        if self.is_inherited:
            return  # What follows is the parent's to do.
        if isinstance(outcome, Aborted):
            self._roll_back()
        elif isinstance(outcome, Committed) and outcome.commit_ts is not None:
            self._committed(outcome.commit_ts)

    def _committed(self, commit_ts: Timestamp) -> None:
        self.commit_ts = commit_ts
        self.status = TransactionStatus.COMMITTED
        self._manager.reader.resolver.cache.update({self.start_ts: commit_ts})
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

    def _cell_ids(self) -> set[CellId]:
        return {self._conflict_id(name) for name in self._buffer.names()}

    def _conflict_id(self, name: CellName) -> CellId:
        # The layout that the write was checked by, which asks no store: between the last flush and
        # the oracle nothing may fail.
        return self._tables[name.table].layout.conflict_id(*name[1:])

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
            if self._conflict_id(name) in wanted
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
            raise UsageError(
                f"transaction {self.start_ts} was begun with read_only=True; use tm.begin() to "
                "write"
            )


def _was_not_sent(error: OmidError) -> bool:
    """Say whether a failed commit request certainly never left this process.

    Too many cells for one request, an oracle of another store, or nobody there to send it to.
    """
    if isinstance(error, OracleUnavailable):
        return not error.was_sent
    return isinstance(error, (UsageError, LocalProtocolError, ConfigError))
