"""The life of one transaction, from begin to outcome.

    running -> committed      `commit` got a commit timestamp, or there was nothing to commit
            -> rolled_back    `rollback`, an abort by the oracle, or a failure before it was asked
            -> unknown        no answer, and no evidence either way: `tm.outcome` finds out later

The order of a commit is the protocol: every cell acknowledged, then the oracle's decision with its
durable entry, then shadow cells, then the entry goes (I5).  Until the oracle was asked the
transaction cannot have committed, so its cells may be taken back; once it was asked they may be
only after a certain abort (I8, I9).  Where the oracle can write the cells itself, and nothing was
sent before, decision, cells and shadow cells are one write, and there is no order to keep.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from math import inf
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from omidpy.base.callers.alone import Alone
from omidpy.base.callers.blocks import Block, exit_of_block
from omidpy.base.callers.runners import Runner
from omidpy.base.cells import transaction_id
from omidpy.base.reach import reached
from omidpy.base.tables import KEYS_TABLE, OWN_TABLE_PREFIX
from omidpy.base.within import within
from omidpy.base.words.arguments import check_flag, check_text
from omidpy.commit.decision import decide, forbid
from omidpy.commit.post_commit import Completion, WriteBatch
from omidpy.commit.refusals import refusal
from omidpy.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    OmidError,
    Rollback,
    StorageError,
    TransactionAborted,
    TransactionClosed,
    UsageError,
)
from omidpy.facts.tables.layout import TableLayout
from omidpy.model import (
    Aborted,
    Cell,
    CellId,
    CellName,
    Committed,
    Outcome,
    TableCells,
    TableId,
    Timestamp,
    TransactionStatus,
)
from omidpy.oracle.base import Begun, CommitGranted, CommitRefused
from omidpy.reading.snapshot import Snapshot
from omidpy.tx.callbacks import Callbacks
from omidpy.tx.keys import COLUMN, USED, check_key, find_use, key_row, open_keys, used_before
from omidpy.tx.publishing import Publication, Published
from omidpy.tx.session import Session
from omidpy.tx.table import TransactionalTable
from omidpy.tx.writes.buffer import FLUSH_LIMIT_BYTES, ContradictingPart, WriteBuffer
from omidpy.tx.writes.ordinals import Adding, Ordinals
from omidpy.tx.writes.savepoint import Savepoint
from omidpy.tx.writes.table_writes import are_indexes_minded
from omidpy.wire.frames import MAX_COMMIT_NUMBERS

if TYPE_CHECKING:
    from omidpy.tx.parts.owner import Parts
    from omidpy.tx.parts.status import RegisteredPart
    from omidpy.tx.parts.worker import Worker

log = logging.getLogger(__name__)


class Transaction(Alone):
    """Reads one snapshot and buffers writes until `commit`.  Belongs to one thread.

    Attributes:
        start_ts: The snapshot, and the transaction's identity.
        commit_ts: Set by a commit that wrote something.
        status: `running`, `committed`, `rolled_back` or `unknown`.
        ordinals: Numbers what it adds to export queues.
    """

    _instead = "give another process its token, tx.token(), and write there with tm.resume(token)"

    def __init__(
        self,
        session: Session,
        snapshot: Snapshot,
        *,
        read_only: bool,
        max_age_s: float | None = None,
        is_held: bool = False,
        fenced_ts: Timestamp | None = None,
    ) -> None:
        """Begin to run.

        Args:
            session: What it shares with others of its manager.
            snapshot: What it reads.
            read_only: Refuse writes.
            max_age_s: How old the oracle lets it become; half of it is worth a warning.
            is_held: Whether the oracle keeps the low watermark below it for longer than for others.
            fenced_ts: Its `Begun.fenced_ts`, which says what is still so of tables.
        """
        self.start_ts = snapshot.start_ts
        self.commit_ts: Timestamp | None = None
        self.status = TransactionStatus.RUNNING
        self.is_read_only = read_only
        self._session = session
        self._parts: Parts | None = None
        self._cells: TableCells | None = None
        """What the oracle is to write, or has written; None: it is or was flushed before."""
        self._generation = session.generation
        self.runner = Runner()
        """Who began it, or entered it since."""
        self._snapshot = snapshot
        self._max_age_s = max_age_s
        self._is_held = is_held
        self._fenced_ts = fenced_ts
        self._warn_at_s = inf if max_age_s is None else snapshot.asked_s + max_age_s / 2
        self._buffer = WriteBuffer(snapshot.start_ts)
        self._layouts: dict[str, TableLayout] = {}
        self._tables: dict[tuple[str, bool, bool], TransactionalTable] = {}
        """Let go with the end: each knows its transaction, and such a circle stays in memory until
        Python's collector finds it, for which all threads wait."""
        self._rollback_reason: str | None = None
        self._keys_under_way: set[bytes] = set()
        """Of calls that have not ended, see `UsedKey`."""
        self._is_entered = False
        self._leaving = threading.Lock()
        self._is_preparing = False
        self._is_cut_short = False
        """Whether a commit is, or was, between its first step and the oracle."""
        self.block: Block | None = None
        """Of the statement that is about to enter it."""
        self._block: Block | None = None
        self._commit_since_s: float | None = None
        self._callbacks = Callbacks()
        self.ordinals = Ordinals()
        self.has_key = False
        """Whether it began with an idempotency key, and may be run again whatever became of it."""
        self._counted = (0, 0)
        """How many ids the oracle would check, and behind how many puts that was so."""

    @classmethod
    def reopened(cls, session: Session, token: bytes) -> Self:
        """Return the owner of a token's transaction, in another process than the one that began it.

        For one that wrote nothing itself, took its token and went: the process that goes on merges
        the parts and ends it.  There must be one owner at a time, and none that may have asked the
        oracle: what is rolled back here is removed.

        Raises:
            UsageError: the token is none of this store, or its owner wrote cells of its own.
        """
        from omidpy.tx.parts.owner import Parts  # noqa: PLC0415 - few share one
        from omidpy.tx.parts.tokens import decode_token  # noqa: PLC0415 - few share one

        known = decode_token(token, store_id=session.store.store_id)
        begun = Begun(Timestamp(known.start_ts), epoch=Timestamp(known.epoch))
        fenced_ts = None if known.fenced is None else Timestamp(known.fenced)
        tx = cls(
            session,
            session.reader.open(begun, asked_s=None),
            read_only=False,
            fenced_ts=fenced_ts,
        )
        # Workers have this version, and what the owner writes itself must have another.
        if known.witness is not None or tx._buffer.reserve_version() != known.version:
            raise UsageError(
                f"transaction {tx.start_ts} has written cells itself, and only the process that "
                "began it can go on with it"
            )
        tx._snapshot.has_sent_cells = True
        tx._parts = Parts(session.store, tx.start_ts, tx._buffer, tx._layout, is_open=True)
        return tx

    def __repr__(self) -> str:
        return f"<Transaction {self.start_ts} {self.status}>"

    # -- tables --------------------------------------------------------------------------------

    def table(
        self, name: str, *, conflict_free: bool = False, phoenix_indexes: str | None = None
    ) -> TransactionalTable:
        """Return a table to read and write in this transaction.

        Args:
            name: The table.
            conflict_free: Writes through the returned object conflict with no other's: of two
                transactions that write one cell at the same time both commit, and later snapshots
                see the value of the one that began later.  For cells that only one writer has, and
                for values where either will do.  Fences still abort the transaction, and a cell
                that it also writes without this is checked.
            phoenix_indexes: `mine`: the program that writes through the returned object also writes
                what belongs into the indexes that Apache Phoenix keeps of the table, or writes an
                index.  Without it writes to either are refused.

        Raises:
            UsageError: `phoenix_indexes` is something else.
            NoSuchTable: there is none of this name.
            NotTransactional: there is one, but it is not marked for transactions.
        """
        self.check_open()
        minds_indexes = are_indexes_minded(phoenix_indexes)
        if type(name) is not str or type(conflict_free) is not bool:
            name = check_text("a table name", name)
            check_flag("conflict_free", conflict_free)
        table = self._tables.get((name, conflict_free, minds_indexes))
        if table is None:
            layout = self._layout(self._session.catalog.full_name(name))
            table = TransactionalTable(
                self,
                self._snapshot,
                self._buffer,
                layout,
                conflict_free=conflict_free,
                minds_indexes=minds_indexes,
            )
            self._tables[name, conflict_free, minds_indexes] = table
        return table

    @property
    def session(self) -> Session:
        """What it shares with others of its manager."""
        return self._session

    @property
    def snapshot(self) -> Snapshot:
        """What it reads, for those who must know the versions of cells.

        It knows nothing of what the transaction has buffered.
        """
        return self._snapshot

    def queue(self, queue_id: str) -> Adding:
        """Return an export queue, to add entries to it in this transaction.

        Raises:
            NoSuchQueue: there is none of this id.
        """
        self.check_open()
        return self._session.open_queue(queue_id).within(self)

    def use_key(self, key: bytes) -> None:
        """Make this the transaction that uses an idempotency key: at most one of them commits.

        `tm.begin(idempotency_key=...)` does this first of all.

        Args:
            key: 1 to 1024 bytes that name what is to be done once.

        Raises:
            AlreadyCommitted: the key is used up.  Nothing was changed; this transaction is as it
                was.
            StorageError: it could not be looked for, and nothing was changed; or past 2 MiB a flush
                failed, and this transaction can only be rolled back.
            UsageError: the key is empty or too long.

        Cost: 1 get; the commit writes 1 cell more.
        """
        self._check_key(key)
        self._note_key(key)

    def _check_key(self, key: bytes) -> None:
        """Raise `AlreadyCommitted` if a key is used up; nothing is changed."""
        self.check_writable()
        open_keys(self._session)
        row = self._key_row(key)
        if self._buffer.row(KEYS_TABLE, row):
            raise used_before(key, start_ts=self.start_ts, commit_ts=None)
        if (use := find_use(self._snapshot, row)) is not None:
            reached("keys.used_by_another", "I8")
            raise used_before(key, start_ts=use.start_ts, commit_ts=use.commit_ts)

    def _note_key(self, key: bytes) -> None:
        # Who is told of a failure, and asks again, is told that the key is used up: what it stands
        # for would never be done, if that were committed.
        self.table(KEYS_TABLE).writes.put_once(self._key_row(key), {COLUMN: USED})

    def _key_row(self, key: bytes) -> bytes:
        return key_row(check_key(key), table_prefix=self._session.catalog.table_prefix)

    # -- files of object stores ----------------------------------------------------------------

    def publish(
        self,
        /,
        what: object,
        destination: str,
        *,
        conflict: str = "append",
        partition_by: Iterable[str] = (),
        **options: Any,
    ) -> Publication:
        """Publish tables or files to an object store with this transaction, or not at all.

        They are uploaded now, to where no reader of folders looks, and are part of the destination
        for readers by `published` at a snapshot that sees this transaction's cells.

        Args:
            what: A frame of Spark, pandas, polars or pyarrow, the path of a local file, or a list
                of those but the first.
            destination: `s3://BUCKET/FOLDER`.
            conflict: `append` keeps what others publish at the same time; `replace` takes the place
                of what this transaction sees; `fail` refuses a destination that has files.  Of two
                transactions that replace, or fail, one is aborted.
            partition_by: Columns that become folders.
            options: How the store is reached and files are written, as the reference lists them.

        Raises:
            CommitterError: it failed, and nothing of it is in the transaction.
            UsageError: an argument is wrong; nothing was sent.

        Cost: what a job of `omidpy.committers` costs, and 1 request more; 2 more after the commit.
        """
        self.check_writable()
        return self._session.publishing().publish(
            self, what, destination, conflict=conflict, partition_by=partition_by, **options
        )

    def published(self, /, destination: str, **options: Any) -> Published:
        """Return the files that were published to a destination, as this snapshot sees them.

        Args:
            destination: `s3://BUCKET/FOLDER`.
            options: How the store is reached: `endpoint_url`, `region`, `profile`, `path_style`,
                `threads`.

        Cost: 1 scan, see `TransactionalTable.scan`; no request to the object store.
        """
        self.check_open()
        return self._session.publishing().published(self, destination, **options)

    def _layout(self, name: str) -> TableLayout:
        layout = self._layouts.get(name)
        if layout is None:
            catalog, begun = self._session.catalog, self._snapshot.begun
            # Who only reads sends no conflict ids, so that an old level does no harm.
            layout = (
                catalog.layout(name, start_ts=begun.start_ts, fenced_ts=begun.fenced_ts)
                if self.is_read_only
                else catalog.layout_for(name, start_ts=self.start_ts, fenced_ts=self._fenced_ts)
            )
            self._layouts[name] = layout
        return layout

    def check_unindexed(self, layout: TableLayout) -> None:
        """Raise if Phoenix keeps indexes of a table; see `Catalog.check_unindexed`."""
        self._session.catalog.check_unindexed(
            layout, start_ts=self.start_ts, fenced_ts=self._fenced_ts
        )

    def check_horizon(self) -> None:
        """Raise `SnapshotTooOld` if versions that this snapshot needs may be gone."""
        self._snapshot.check_horizon()

    def after_commit(self, callback: Callable[[Transaction], object]) -> None:
        """Call `callback(tx)` once, after the commit; its exception is logged.

        A savepoint that is undone takes it back.
        """
        self.check_open()
        self._callbacks.after_commit(callback, self._buffer.scope_depth())

    def before_commit(self, callback: Callable[[], object]) -> None:
        """Call `callback` as the commit begins: it may write, and what it raises rolls back.

        It may forbid the commit, too, by `set_rollback_only` or `rollback`; `commit` then raises
        `TransactionAborted`.  A savepoint that is undone takes it back.
        """
        self.check_writable()
        self._callbacks.before_commit(callback, self._buffer.savepoint_count)

    def before_commit_last(self, callback: Callable[[], object]) -> None:
        """Call `callback` behind all that `before_commit` registers, sooner or later.

        For what tells of all that the transaction has written: it writes nothing that another one
        of them tells of.
        """
        self.check_writable()
        self._callbacks.before_commit_last(callback, self._buffer.savepoint_count)

    def after_rollback(self, callback: Callable[[], object]) -> None:
        """Call `callback` once it is certain that this never commits; its exception is logged.

        A process that dies makes no call.
        """
        self.check_writable()
        self._callbacks.after_rollback(callback)

    def when_undone(self, callback: Callable[[], object]) -> None:
        """Call `callback` if the savepoint is undone that is open now, or one around it.

        For callers that remember what they have registered or written.  It must not fail.
        """
        self.check_writable()
        self._callbacks.when_undone(callback, self._buffer.savepoint_count)

    def changes(self) -> Iterator[tuple[CellName, bytes | None]]:
        """Yield the cells written so far with their values, or tombstones; None: by a worker."""
        return self._buffer.newest()

    def set_rollback_only(self) -> None:
        """Make `commit` roll back and raise `TransactionAborted`."""
        self.check_open()
        self.forbid_commit("set_rollback_only was called")
        self.check_open()  # once more: a commit of another thread may have gone past it

    def forbid_commit(self, reason: str) -> None:
        """Make `commit` roll back and raise `TransactionAborted` with a reason, the first given."""
        if self._rollback_reason is None:
            self._rollback_reason = reason

    @contextmanager
    def whole(self, reason: str) -> Iterator[None]:
        """Let no commit have a part of what a block does, also where an exception leaves it.

        That is so from its first line on: nobody has to do anything when an interrupt comes, or
        another one behind that.  A savepoint that is undone undoes it, too.

        Args:
            reason: Says why.
        """
        block = object()
        self._buffer.begin_half(block, reason)
        yield
        self._buffer.end_half(block)

    def savepoint(self) -> Savepoint:
        """Return a context manager whose block is undone alone if it raises; the exception goes on.

        Savepoints nest.  One transaction can take 49 of them, the checkpoints of Omid's format,
        less those that flushing and rewriting cells has used.

        Raises:
            UsageError: on entering the 50th.
        """
        self.check_open()
        return Savepoint(self, self._buffer, self._session.store, self._callbacks)

    def flush(self) -> None:
        """Write the buffered cells to the store, tentative: only this transaction sees them.

        Cells written in an open savepoint stay buffered.

        Raises:
            StorageError: some cells may have been written; nothing is committed, and flushing again
                or committing sends the same bytes again.
        """
        self.check_open()
        self._buffer.check_alone()
        self._flush()

    def wrote(self) -> None:
        """Note a buffered write: flushes past the limit, open savepoints only where they must."""
        buffer = self._buffer
        if buffer.is_closed or buffer.sending.locked():
            buffer.check_alone()
        if self._buffer.size_bytes > FLUSH_LIMIT_BYTES and self._buffer.can_rewrite():
            self._flush(with_savepoints=self._buffer.savepoint_bytes > FLUSH_LIMIT_BYTES)

    def _flush(self, *, with_savepoints: bool = False) -> None:
        self._check_size(with_savepoints=with_savepoints)
        within(self._buffer.sending, self._send, with_savepoints=with_savepoints)

    def _send(self, *, with_savepoints: bool) -> None:
        batch = self._buffer.take(with_savepoints=with_savepoints)
        if batch:
            self._snapshot.has_sent_cells = True
            self._session.on_step("before-flush")
            if (tracing := self._session.tracing) is None:
                self._session.store.write(batch)
            else:
                tables = sorted(batch)
                with tracing.span("flush", start_ts=self.start_ts, tables=tables):
                    self._session.store.write(batch)
            self._session.on_step("flushed")
        self._buffer.acknowledge()

    def _check_size(self, *, with_savepoints: bool) -> None:
        """Refuse a write set that the oracle would refuse, before more of it is written.

        Args:
            with_savepoints: Whether the cells of open savepoints are about to be written as well.

        Raises:
            TransactionAborted: not retryable; the transaction will be rolled back.

        Cost: O(cells), once for as many cells as the limit still allows.
        """
        most = self._session.oracle.max_commit_cells
        known_count, known_put_count = self._counted
        put_count = self._buffer.put_count(with_savepoints=with_savepoints)
        table_count = sum(len(layout.fence_ids()) for layout in self._layouts.values())
        if most is None or known_count + put_count - known_put_count + table_count <= most:
            return
        names = self._buffer.names_to_check(with_savepoints=with_savepoints)
        # Some were put twice or undone, and rows are fewer, where conflicts are told by rows.
        count = len({self._conflict_id(name) for name in names})
        self._counted = count, put_count
        if count + table_count <= most:
            return
        reason = (
            f"its write set of {count} cells in {table_count} tables is larger than the "
            f"{most} that the oracle takes in one commit (a quarter of its conflict map, at most "
            f"{MAX_COMMIT_NUMBERS}); split the work into smaller transactions, give "
            "the table conflict_level='row', or start tso-server with a larger --conflict-map-size"
        )
        self.forbid_commit(reason)
        raise TransactionAborted(
            f"transaction {self.start_ts} was aborted: {reason}", retryable=False
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
        self._buffer.check_alone()
        self._flush()
        if self._parts is None:
            from omidpy.tx.parts.owner import Parts  # noqa: PLC0415 - few share one

            self._parts = Parts(self._session.store, self.start_ts, self._buffer, self._layout)
        return self._parts.token(self._snapshot.epoch, fenced=self._fenced_ts)

    def merge(self, part: bytes) -> None:
        """Make what a worker wrote part of this transaction.

        Every worker that has written cells must be answered for before the commit: merged, or given
        up with `discard`.  Of several attempts of a task one is enough, and attempts with equal
        digests count once.  A savepoint that is undone undoes the merges in it: those workers are
        to be answered for again.

        Raises:
            UsageError: the part is of another transaction, was merged already, or is not the one
                that its worker registered; or it contradicts another one, and the transaction can
                only be rolled back now.
            SnapshotTooOld: the transaction cannot commit any more, and what its workers registered
                is gone.

        Cost: 1 get, unless the worker had finished when another part was merged.
        """
        from omidpy.tx.parts.tokens import decode_part, part_digest  # noqa: PLC0415 - few share one

        self.check_writable()
        store_id = self._session.store.store_id
        decoded = decode_part(part, store_id=store_id, start_ts=self.start_ts)
        self._snapshot.has_sent_cells = True
        try:
            self._opened_parts().merge(decoded, part_digest(part))
        except ContradictingPart as error:
            self.forbid_commit(str(error))
            raise
        except UsageError:
            self._snapshot.check_horizon()  # compactions forget the workers of the doomed
            raise

    def discard(self, worker: str | Worker) -> None:
        """Give up a worker whose part will not be merged; `commit` removes its cells.

        Until then reads of this transaction still show them.  On HBase `commit` aborts if the
        worker was in the middle of a write, which may still arrive, unless another attempt of its
        task was merged.  A savepoint that is undone undoes this, too.

        Args:
            worker: Its id, as `worker.worker_id`, `parts` and the error of a commit have it; or the
                worker itself, where it is at hand.

        Raises:
            UsageError: its part was merged already, or no token was taken.
        """
        from omidpy.tx.parts.worker import Worker  # noqa: PLC0415 - few share one

        self.check_writable()
        parts = self._opened_parts()
        worker_id = worker.worker_id if isinstance(worker, Worker) else worker
        if self._buffer.has_savepoint and not parts.is_discarded(worker_id):
            # Before it, so that an interrupt in between takes back what was not done.
            self.when_undone(partial(parts.reconsider, worker_id))
        parts.discard(worker_id)

    def parts(self) -> list[RegisteredPart]:
        """Return the workers that have written cells so far, and what becomes of each.

        Cost: 1 get, once a token was taken.
        """
        self.check_open()
        return [] if self._parts is None else self._parts.known()

    def _opened_parts(self) -> Parts:
        if self._parts is None:
            raise UsageError(f"transaction {self.start_ts} has no workers; call tx.token() first")
        return self._parts

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
        (`post_commit`).  Or 1 write in all, where the oracle writes the cells.  Once a token was
        taken, also 1 write and 1 get (`Parts.settle`).
        """
        self.check_open()
        if self._is_preparing:
            raise UsageError(
                f"transaction {self.start_ts} is committing already; a callback of before_commit "
                "writes, raises, or calls set_rollback_only()"
            )
        self._check_no_savepoint()
        if not self._is_cut_short:  # that is told as an abort
            self._buffer.check_alone()
        self._commit_since_s = self._session.tally.now_s()
        try:
            if (tracing := self._session.tracing) is None:
                self._commit()
            else:
                with tracing.span("commit", start_ts=self.start_ts):
                    self._commit()
        except (TransactionAborted, CommitOutcomeUnknown) as error:
            self._session.tally.not_committed(error)
            raise

    def _commit(self) -> None:
        self._check_allowed()
        if self._callbacks.has_preparations:
            # Who is interrupted from here on, and again while that is rolled back, can go on to no
            # other commit: it would call them twice, or leave out cells that this one has taken.
            self._is_cut_short = True
            self._run_preparations()
            self._is_cut_short = False
            # What others did there may be what forbids the commit: no oracle is asked for one that
            # was told to be rolled back (I9).
            self._check_allowed()
        self._is_cut_short = True
        # Behind this no write is taken any more; before it is seen that there is none.
        self._buffer.is_closed = True
        if self._parts is not None or not self._buffer.is_empty:
            self._prepare_or_abort()
        if self._buffer.is_empty:
            self._leave_alone(TransactionStatus.COMMITTED)
            if self._parts is not None:
                self._complete({})
            self._callbacks.committed(self, self.start_ts)
            self._tables.clear()
            return
        # From here on the outcome is open until the oracle answers: whatever interrupts this
        # thread must not leave a transaction that looks as if it could be rolled back.
        self._leave_alone(TransactionStatus.UNKNOWN)
        cell_ids = self._cell_ids()
        if (tracing := self._session.tracing) is None:
            verdict = self._decide(cell_ids)
        else:
            with tracing.span("decide", start_ts=self.start_ts, cells=len(cell_ids)):
                verdict = self._decide(cell_ids)
        if isinstance(verdict, CommitGranted):
            self._committed(verdict.commit_ts)
            return
        self._take_back()
        wanted = set(verdict.conflicts)
        raise refusal(
            verdict.reason,
            self.start_ts,
            tables=self._buffer.tables(),
            wait_s=verdict.wait_s,
            conflicts=[
                name for name in self._buffer.checked_names() if self._conflict_id(name) in wanted
            ],
        )

    def rollback(self) -> None:
        """End the transaction without committing; its flushed cells are removed."""
        self.check_open()
        self._roll_back()

    def _leave(self, status: TransactionStatus) -> bool:
        """Leave `running`; False: another thread has, or what a signal calls.

        Whoever does alone goes on to the oracle, or takes the cells back: of two that only looked
        before, one removed what the other one committed (I8).
        """
        running = TransactionStatus.RUNNING
        # One line, as in `within`; and without a call, behind which a signal's handler would wait
        # for the lock that its own thread holds.
        with self._leaving: self.status = status if (is_first := self.status is running) else self.status  # fmt: skip  # noqa: E501, E701 - see above
        return is_first

    def _leave_alone(self, status: TransactionStatus) -> None:
        """Leave `running` by the commit.

        Raises:
            TransactionAborted: it was rolled back meanwhile, or is to be.
            TransactionClosed: another thread commits it.
        """
        reason = "by another thread or what a signal calls"
        if self._leave(status):
            if self._rollback_reason is None:
                return
            reason = self._rollback_reason
            self._take_back()
        else:
            self._roll_back()  # what was sent behind that
        raise TransactionAborted(
            f"transaction {self.start_ts} was rolled back while its commit was under way: {reason}",
            retryable=False,
        )

    def _check_allowed(self) -> None:
        """Roll back and raise `TransactionAborted` if something was said that forbids a commit."""
        reason = self._rollback_reason or self._buffer.flaw
        if reason is None and self._is_cut_short:
            reason = "an earlier commit of it was interrupted"
        if reason is None and self._keys_under_way:
            key = min(self._keys_under_way)
            reason = f"a call with the idempotency key {key[:40]!r} has not ended, or was cut short"
        if reason is not None:
            self._roll_back()
            raise TransactionAborted(
                f"transaction {self.start_ts} was rolled back: {reason}", retryable=False
            )

    def _run_preparations(self) -> None:
        """Call what was registered by `before_commit`, up to one that ends the transaction."""
        self._is_preparing = True
        try:
            self._callbacks.prepare(self._check_still_running)
            self._check_no_savepoint()
        except BaseException:
            if self.is_running:
                self._roll_back()
            raise
        finally:
            self._is_preparing = False

    def _check_still_running(self) -> None:
        """Raise if a callback of `before_commit` has ended the transaction, or is in a child."""
        if self.status is TransactionStatus.ROLLED_BACK and not self.is_inherited:
            raise TransactionAborted(
                f"transaction {self.start_ts} was rolled back by a callback of before_commit",
                retryable=False,
            )
        self.check_open()

    def _prepare_or_abort(self) -> None:
        """Bring the store to where the oracle may be asked: all own cells, and no others."""
        try:
            if self._parts is not None:
                self._settle(self._parts)
            if self._may_write_at_once():
                self._cells = self._take_cells()
            else:
                self._flush()
        except OmidError as error:
            self._roll_back()
            if isinstance(error, (UsageError, TransactionAborted)):
                raise
            raise TransactionAborted(
                f"transaction {self.start_ts} was not committed: its cells could not be written: "
                f"{error}",
                retryable=getattr(error, "retryable", False),
            ) from error
        except BaseException:
            self._roll_back()
            raise

    def _may_write_at_once(self) -> bool:
        """Say whether the oracle is to write everything; it must not meet what is there already."""
        writer = self._session.writer
        if writer is None or self._parts is not None or not self._buffer.is_unsent:
            return False
        if any(name.startswith(OWN_TABLE_PREFIX) for name in self._buffer.waiting_tables()):
            # Others remove rows there, so that cells that are gone would tell nothing.
            return False
        size_bytes = self._buffer.size_bytes + sum(map(len, self._layouts))
        return size_bytes <= min(FLUSH_LIMIT_BYTES, writer.most_cells_bytes)

    def _take_cells(self) -> TableCells:
        """Return the buffered cells, which from here on only the oracle writes."""
        self._check_size(with_savepoints=False)
        return self._buffer.take_cells()

    def _settle(self, parts: Parts) -> None:
        try:
            parts.settle()
        except TransactionAborted:
            self._snapshot.check_horizon()  # compactions forget the workers of the doomed
            raise

    def _decide(self, cell_ids: set[CellId]) -> CommitGranted | CommitRefused:
        try:
            return decide(
                self._session.oracle,
                self._session.outcomes,
                self.start_ts,
                cell_ids=cell_ids,
                table_ids=self._fence_ids(),
                find_witnesses=self._buffer.witnesses,
                cells=self._cells,
                has_key=self.has_key,
            )
        except TransactionAborted:
            self._take_back()
            raise

    def _fence_ids(self) -> set[TableId]:
        layouts = self._layouts
        return {one for name in self._buffer.tables() for one in layouts[name].fence_ids()}

    def learn(self, outcome: Outcome) -> None:
        """Take note of an outcome that was unknown, and do what follows it."""
        if self.is_inherited:
            return  # What follows is the parent's to do.
        if isinstance(outcome, Aborted):
            self._take_back()
        elif isinstance(outcome, Committed) and outcome.commit_ts is not None:
            self._commit_since_s = None
            self._committed(outcome.commit_ts)

    def _committed(self, commit_ts: Timestamp) -> None:
        self.commit_ts = commit_ts
        self.status = TransactionStatus.COMMITTED
        self._session.reader.resolver.cache.update({self.start_ts: commit_ts})
        self._session.on_step("decided")
        if self._cells is None:
            self._complete(self._buffer.shadow_cells(commit_ts))
        self._session.tally.committed(self._commit_since_s)
        self._callbacks.committed(self, self.start_ts)
        self._tables.clear()

    def _complete(self, shadow_cells: WriteBatch) -> None:
        leftovers = {} if self._parts is None else self._parts.leftovers()
        tracing = self._session.tracing
        here = None if tracing is None else tracing.here()
        self._session.post_committer.submit(
            Completion(self.start_ts, shadow_cells, leftovers, here)
        )

    def _roll_back(self) -> None:
        """Leave `running` without a commit.

        Raises:
            TransactionClosed: another thread commits it, or has.
        """
        is_first = self._leave(TransactionStatus.ROLLED_BACK)
        if not is_first and self.status is not TransactionStatus.ROLLED_BACK:
            self.check_open()
        self._take_back()
        if is_first and self._is_held and self._parts is None:
            # The low watermark would wait for it until its time is over, or this client gone.
            forbid(self._session.oracle, self.start_ts)

    def _take_back(self) -> None:
        """Take the cells back.  A failure is logged: readers ignore tentative cells anyway."""
        self.status = TransactionStatus.ROLLED_BACK
        self._callbacks.will_not_commit()
        if self._parts is not None:
            self._parts.end(self._session.oracle)
        # What the oracle was to write it has written whole or not at all.
        removals = {} if self._cells is not None else self._buffer.removals()
        if not self._session.store.capabilities.exact_delete:
            removals = {}
        try:
            if removals:
                self._session.store.write(removals)
                self._session.on_step("rolled-back")
            if self._parts is not None:
                self._parts.take_back()
        except StorageError as error:
            reached("tx.not_all_rolled_back", "I9")
            log.warning(
                "cells of the aborted transaction %d were not all removed; the compactor will: %s",
                self.start_ts,
                error,
            )
        self._callbacks.rolled_back(self.start_ts)
        self._tables.clear()

    def _cell_ids(self) -> set[CellId]:
        """Return what the oracle checks; never nothing, which would mean that nothing was written.

        A transaction whose writes are all conflict-free sends an id that no other one can send.
        """
        # The layouts that the writes were checked by, which ask no store: between the last flush
        # and the oracle nothing may fail.
        layouts = self._layouts
        found: set[CellId] = set()
        for table, names in groupby(self._buffer.checked_names(), itemgetter(0)):
            found |= layouts[table].conflict_ids(names)
        return found or {transaction_id(self.start_ts)}

    def _conflict_id(self, name: CellName) -> CellId:
        return self._layouts[name.table].conflict_id(*name[1:])

    def witness(self) -> tuple[str, Cell] | None:
        """Return one written cell and its table: its shadow cell proves a commit."""
        return self._buffer.witness()

    def witnesses(self) -> list[tuple[str, Cell]]:
        """Return one written cell of each table: the shadow cell of any proves a commit."""
        return self._buffer.witnesses()

    # -- `with` and guards ---------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.check_open()
        if self._is_entered:
            raise TransactionClosed(
                f"transaction {self.start_ts} was entered twice; begin another with tm.begin()"
            )
        self._is_entered = True
        self.runner = Runner()
        if self.block is not None and self.block() is not None:
            self._block = self.block
        self._session.push_ambient(self)
        return self

    @exit_of_block
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        # Not `bool`, which would tell type checkers that a block may end by any exception.
        self._session.pop_ambient(self)
        if exc_type is None:
            if self.status is TransactionStatus.RUNNING or self.is_inherited:
                self._commit_block()
            return None
        if self.status is TransactionStatus.RUNNING and not self.is_inherited:
            try:
                self._roll_back()
            except Exception:
                # The block's own exception is the one to see.
                log.exception("rolling back transaction %d failed", self.start_ts)
        if not issubclass(exc_type, Rollback):
            return None
        if self.is_inherited or self.status is not TransactionStatus.ROLLED_BACK:
            raise TransactionClosed(
                f"transaction {self.start_ts} is {self.status} and cannot be rolled back: Rollback "
                "was raised after its end, or in a process that was forked from its own"
            ) from exc
        return True

    def _commit_block(self) -> None:
        """Commit at the end of a block, to which no caller can go back: what is refused is over."""
        try:
            self.commit()
        except UsageError:
            if self.is_running:
                self._roll_back()
            raise

    @property
    def is_in_block(self) -> bool:
        """Whether the block that entered it still runs, however that may have ended."""
        return self._block is None or self._block() is not None

    @property
    def is_running(self) -> bool:
        """Whether it can still be used, in the process that began it."""
        return (
            self.status is TransactionStatus.RUNNING
            and self._generation == self._session.generation
        )

    @property
    def is_inherited(self) -> bool:
        """Whether this is a copy that came into a child process by `fork`."""
        return self._generation != self._session.generation

    def check_open(self) -> None:
        """Raise `TransactionClosed` unless it is running, in the process that began it.

        Every use of the transaction comes through here, and so does the warning about its age.
        """
        session = self._session
        # `is_running`, without a call: each put and each get comes by here.
        if self.status is TransactionStatus.RUNNING and self._generation == session.generation:
            now_s = session.clock.monotonic_s()
            if now_s >= self._warn_at_s:
                self._warn_of_age(now_s)
            return
        if self.is_inherited:
            raise TransactionClosed(
                f"transaction {self.start_ts} was begun before fork and belongs to the parent "
                "process; begin another in this one"
            )
        raise TransactionClosed(
            f"transaction {self.start_ts} is {self.status}; begin another with tm.begin()"
        )

    def check_writable(self) -> None:
        """Raise unless the transaction is running and may write."""
        self.check_open()
        if self.is_read_only:
            raise UsageError(f"transaction {self.start_ts} is read-only; use tm.begin() to write")
        self._buffer.check_scope()

    def _warn_of_age(self, now_s: float) -> None:
        """Say once that the oracle will soon refuse to commit this transaction."""
        self._warn_at_s = inf
        if self.is_read_only:
            return
        log.warning(
            "transaction %d has been running for %.0f s, more than half of the %.0f s after which "
            "the oracle aborts it; make it shorter, begin it with hold_s=SECONDS, or give the "
            "oracle a longer --max-transaction-age (max_transaction_age_s where it is embedded)",
            self.start_ts,
            now_s - self._snapshot.asked_s,
            self._max_age_s,
        )


class UsedKey:
    """The block of a call that uses a key in a transaction: if it raises, the key stays free.

    The key is noted when the call has ended well, and until then nothing commits: an exception at
    whatever line leaves no key that is used up by what was not done, and nothing done without it.

    Attributes:
        before: Who has used it before; then nothing is to be done.
    """

    def __init__(self, transaction: Transaction, key: bytes) -> None:
        self._transaction = transaction
        self._key = key
        self.before: AlreadyCommitted | None = None

    def look(self) -> None:
        """Find out who has used it; nothing is changed."""
        try:
            self._transaction._check_key(self._key)  # noqa: SLF001 - this module's own class
        except AlreadyCommitted as found:
            self.before = found

    def begin(self) -> None:
        """Let nothing commit before the end.

        Raises:
            UsageError: another call with the key is under way in the transaction.
        """
        under_way = self._transaction._keys_under_way  # noqa: SLF001 - as above
        if self._key in under_way:
            raise UsageError(
                f"a call with the idempotency key {self._key[:40]!r} is under way in transaction "
                f"{self._transaction.start_ts} already, or was cut short there; wait for it, or "
                "begin another transaction"
            )
        under_way.add(self._key)

    def end(self) -> None:
        """Note the key: the call has ended well."""
        if self._transaction.is_running:
            self._transaction._note_key(self._key)  # noqa: SLF001 - as above
        self.give_up()

    def give_up(self) -> None:
        """Let the key be free, and the transaction go on: the call has failed."""
        self._transaction._keys_under_way.discard(self._key)  # noqa: SLF001 - as above

    def __enter__(self) -> Self:
        self.look()
        if self.before is None:
            self.begin()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.before is not None:
            return
        if exc_type is None:
            self.end()
        else:
            self.give_up()
