"""A transaction of another process, resumed here from its token.

A worker reads the owner's snapshot and what was flushed in the transaction, and writes tentative
cells at a version that the owner leaves alone.  It can neither commit nor roll back.  It announces
what it is about to write (`facts/registration.py`), and what it wrote goes back as a part
(`tokens.py`).
"""

from __future__ import annotations

import uuid

from omidpy.base.callers.alone import Alone
from omidpy.base.within import within
from omidpy.base.words.arguments import check_flag, check_storable
from omidpy.commit.post_commit import WriteBatch
from omidpy.errors import TransactionClosed, UsageError
from omidpy.facts.registration import Flush, WorkerRow, stretches_of
from omidpy.facts.tables.layout import TableLayout
from omidpy.model import Timestamp
from omidpy.oracle.base import Begun
from omidpy.tx.parts.tokens import Part, Token, digest_of, encode_part, part_digest
from omidpy.tx.session import Session
from omidpy.tx.table import TransactionalTable
from omidpy.tx.writes.buffer import FLUSH_LIMIT_BYTES, WriteBuffer
from omidpy.tx.writes.ordinals import Adding, of_worker
from omidpy.tx.writes.table_writes import are_indexes_minded


class Worker(Alone):
    """A transaction of another process, resumed here: reads and writes, and `finish`.

    Belongs to one thread.  Writing a cell again after it was flushed (past 2 MiB of writes) is
    refused: there is one version for all workers.

    Attributes:
        start_ts: The owner's transaction.
        worker_id: Names this worker in errors, in `tx.parts()` and for `tx.discard`.
        ordinals: Numbers what it adds to export queues.
    """

    _instead = "resume the token once more, tm.resume(token), and merge both parts"

    def __init__(self, session: Session, token: Token, task: str | None) -> None:
        if task is not None and not isinstance(task, str):
            raise TypeError(f"the name of a task is str, not {task!r:.80}")
        check_storable("the name of a task", task or "")
        self.start_ts = Timestamp(token.start_ts)
        self.worker_id = uuid.uuid4().hex
        self._session = session
        self._catalog = session.catalog
        self._layouts: dict[str, TableLayout] = {}
        self._token = token
        self._fenced_ts = None if token.fenced is None else Timestamp(token.fenced)
        self._task = task
        begun = Begun(self.start_ts, epoch=Timestamp(token.epoch))
        self._snapshot = session.reader.open(begun, asked_s=None)
        self._snapshot.has_sent_cells = True  # the owner's
        self._buffer = WriteBuffer(self.start_ts, fixed_version=token.version)
        self._row = WorkerRow(session.store, self.start_ts, self.worker_id)
        self._generation = session.generation
        self._is_finished = False
        self.ordinals = of_worker(self.worker_id, task)

    def __repr__(self) -> str:
        return f"<Worker {self.worker_id} of transaction {self.start_ts}>"

    def table(
        self, name: str, *, conflict_free: bool = False, phoenix_indexes: str | None = None
    ) -> TransactionalTable:
        """Return a table to read and write in the owner's transaction.

        `conflict_free` and `phoenix_indexes` are as in `Transaction.table`.
        """
        self.check_open()
        minds_indexes = are_indexes_minded(phoenix_indexes)
        check_flag("conflict_free", conflict_free)
        in_store = self._catalog.full_name(name)
        layout = self._layouts.get(in_store)
        if layout is None:
            # Refused here, before anything is written; what the cells conflict on is the owner's to
            # say, by a layout of its own (`merge`).
            layout = self._layouts[in_store] = self._catalog.layout_for(
                in_store, start_ts=self.start_ts, fenced_ts=self._fenced_ts
            )
        return TransactionalTable(
            self,
            self._snapshot,
            self._buffer,
            layout,
            conflict_free=conflict_free,
            minds_indexes=minds_indexes,
        )

    @property
    def session(self) -> Session:
        """What it shares with others of its manager."""
        return self._session

    def queue(self, queue_id: str) -> Adding:
        """Return an export queue, to add entries to it in the owner's transaction."""
        self.check_open()
        return self._session.open_queue(queue_id).within(self)

    def finish(self) -> bytes:
        """Flush, and return what was written for `tx.merge` in the owner.

        Raises:
            StorageError: some cells may have been written; call it again.
            TransactionClosed: the owner commits already, or has ended the transaction.
            UsageError: a batch was left half-way, so that nothing may be merged.
        """
        self.check_open()
        self._buffer.check_alone()
        if self._buffer.flaw is not None:
            raise UsageError(
                f"this worker of transaction {self.start_ts} wrote half of something, which must "
                f"not be merged: {self._buffer.flaw}"
            )
        return within(self._buffer.sending, self._finish)

    def _finish(self) -> bytes:
        batch = self._buffer.take()
        written = self._buffer.written()
        digest = digest_of(written)
        part = encode_part(
            Part(
                store_id=self._token.store_id,
                start_ts=self.start_ts,
                worker_id=self.worker_id,
                version=self._token.version,
                task=self._task,
                digest=digest,
                cells=sorted(name for name, _ in written),
                conflict_free=self._buffer.conflict_free_names(),
            )
        )
        # A worker that wrote nothing is never heard of.
        if batch or self._row.has_announced:
            self._send(batch, digest=digest, part=part_digest(part))
        self._buffer.acknowledge()
        self._is_finished = True
        return part

    @property
    def is_running(self) -> bool:
        """Whether it can still be used, in the process that resumed it."""
        return not self._is_finished and self._generation == self._session.generation

    def check_open(self) -> None:
        """Raise `TransactionClosed` once the part was handed out, or in a forked child."""
        if self._is_finished:
            raise TransactionClosed(
                f"this worker of transaction {self.start_ts} has finished; resume the token again"
            )
        if self._generation != self._session.generation:
            raise TransactionClosed(
                f"this worker of transaction {self.start_ts} was resumed before fork and belongs "
                "to the parent process"
            )

    def check_writable(self) -> None:
        """Raise unless the worker may write."""
        self.check_open()

    def check_unindexed(self, layout: TableLayout) -> None:
        """Raise if Phoenix keeps indexes of a table; see `Catalog.check_unindexed`."""
        self._catalog.check_unindexed(layout, start_ts=self.start_ts, fenced_ts=self._fenced_ts)

    def wrote(self) -> None:
        """Note a buffered write: flushes past the limit."""
        self._buffer.check_alone()
        if self._buffer.size_bytes > FLUSH_LIMIT_BYTES:
            within(self._buffer.sending, self._flush)

    def _flush(self) -> None:
        batch = self._buffer.take()
        if batch:
            self._send(batch)
        self._buffer.acknowledge()

    def _send(
        self, batch: WriteBatch, *, digest: str | None = None, part: str | None = None
    ) -> None:
        """Announce a flush and send it; the digests come with the last one."""
        version, task = self._token.version, self._task
        self._row.send(Flush(version, task, stretches_of(batch), digest, part=part), batch)
