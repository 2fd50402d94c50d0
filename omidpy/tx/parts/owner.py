"""The parts of one transaction, as its owner has them: merged, given up, and answered for.

Before the oracle is asked the row of the workers is closed, so that no flush begins any more;
`status.py` says of each worker what becomes of it; and what is not to be committed is removed.
That lies where the worker said, at its version, and belongs to no merged part: an attempt that
failed has usually written some of the cells of the one that was merged.  Where it may have, they
are read again and compared with the digest of their part.

    I8  no cell of a merged part is removed, and each has the value that its worker wrote
    I9  nothing of a worker that was not merged is in the store, or will be, but merged cells
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from omidpy.base.reach import reached
from omidpy.base.tables import CONTROL_TABLE
from omidpy.commit.decision import forbid
from omidpy.errors import NoSuchTable, StorageError, TransactionAborted, UsageError
from omidpy.facts.registration import PartsRow, Registration, Stretch
from omidpy.model import CellName, Timestamp
from omidpy.oracle.base import Oracle
from omidpy.storage.base import DeleteVersion, RowMutation, Store
from omidpy.tx.parts.status import (
    RULE,
    Objection,
    RegisteredPart,
    contradiction,
    status,
    to_remove,
)
from omidpy.tx.parts.tokens import Part, digest_of, encode_token
from omidpy.tx.writes.buffer import ContradictingPart, WriteBuffer

log = logging.getLogger(__name__)

COMPARED_ROWS: Final = 1000
"""Rows that are read again in one call."""


class Parts:
    """The parts of one transaction, from its first token to its end."""

    def __init__(
        self,
        store: Store,
        start_ts: Timestamp,
        buffer: WriteBuffer,
        open_table: Callable[[str], object],
        *,
        is_open: bool = False,
    ) -> None:
        """Begin without any.

        Args:
            store: Where the row and the cells are.
            start_ts: The transaction.
            buffer: Counts the cells of merged parts.
            open_table: Makes a table known to the transaction, or raises.
            is_open: Whether workers may have begun already, by a token of an earlier owner.
        """
        self._store = store
        self._start_ts = start_ts
        self._buffer = buffer
        self._open_table = open_table
        self._row = PartsRow(store, start_ts)
        self._is_open = is_open
        self._counted: set[str] = set()
        """Workers of whose cells some are among the transaction's; all, once they are merged."""
        self._merged: dict[str, Part] = {}
        self._part_digests: dict[str, str] = {}
        """Of the bytes of merged parts, by worker."""
        self._registered: dict[str, Registration] = {}
        """Workers as they were when the row was last read."""
        self._digests: dict[str | None, set[str]] = {}
        """Of merged parts, by task."""
        self._discarded: set[str] = set()
        buffer.on_unmerge = self._unmerge

    def token(self, epoch: Timestamp, *, fenced: Timestamp | None = None) -> bytes:
        """Let workers begin, and return what they must know.  Cost: 1 write, once.

        Args:
            epoch: No transaction that began below it could be decided when this one began.
            fenced: Its `Begun.fenced_ts`.
        """
        if not self._is_open:
            self._row.open()
            self._is_open = True
        return encode_token(
            store_id=self._store.store_id,
            start_ts=self._start_ts,
            version=self._buffer.reserve_version(),
            epoch=epoch,
            witness=self._buffer.witness(),
            fenced=fenced,
        )

    def merge(self, part: Part, digest: str) -> None:
        """Count the cells of a part as the transaction's.

        Attempts of a task with equal digests count once.

        Args:
            part: The part.
            digest: That of its bytes.

        Raises:
            UsageError: it was merged or discarded before, or is not what its worker registered.
            ContradictingPart: the transaction can only be rolled back now.

        Cost: 1 get, unless the worker had finished when another part was merged.
        """
        if part.worker_id in self._merged:
            raise UsageError(
                f"the part of worker {part.worker_id} was merged already; merge each once"
            )
        if part.worker_id in self._discarded:
            raise UsageError(f"worker {part.worker_id} was discarded; its part cannot be merged")
        self._check_registered(part, digest)
        digests = self._digests.setdefault(part.task, set())
        is_again = part.digest in digests
        if part.task is not None and digests and not is_again:
            raise ContradictingPart(
                f"another part of task {part.task!r} with a different digest was merged already: "
                f"{RULE}"
            )
        for table in part.tables():
            self._open_table(table)
        is_again |= part.worker_id in self._counted  # an interrupt came between
        self._counted.add(part.worker_id)
        self._buffer.merge(
            part.cells,
            part.version,
            conflict_free=set(part.conflict_free),
            is_again=is_again,
            worker_id=part.worker_id,
        )
        digests.add(part.digest)
        self._part_digests[part.worker_id] = digest
        self._merged[part.worker_id] = part

    def _check_registered(self, part: Part, digest: str) -> None:
        """Refuse a part that is not the one of which its worker wrote the digest."""
        one = self._registered.get(part.worker_id)
        if one is None or one.part is None:  # it may have finished since
            self._registered = {found.worker_id: found for found in self._row.read()}
            one = self._registered.get(part.worker_id)
        if (reason := contradiction(one, part, digest)) is not None:
            raise UsageError(
                f"the part is not what was written: {reason}; pass what finish() returned on "
                "unchanged, or discard the worker"
            )

    def _unmerge(self, worker_id: str) -> None:
        """Let a part be neither merged nor discarded, since the savepoint is undone it came in."""
        self._counted.discard(worker_id)
        part = self._merged.pop(worker_id, None)
        if part is None:
            return
        others = (one for one in self._merged.values() if one.task == part.task)
        if all(one.digest != part.digest for one in others):
            self._digests[part.task].discard(part.digest)

    def discard(self, worker_id: str) -> None:
        """Give a worker up; a second call changes nothing.

        Raises:
            UsageError: its part was merged.
        """
        if not isinstance(worker_id, str):
            raise TypeError(f"a worker's id is str, as worker.worker_id, not {worker_id!r}")
        if worker_id in self._counted:
            raise UsageError(
                f"the part of worker {worker_id} was merged already and cannot be discarded; undo "
                "the whole transaction with tx.rollback()"
            )
        self._discarded.add(worker_id)

    def is_discarded(self, worker_id: str) -> bool:
        """Say whether a worker was given up."""
        return worker_id in self._discarded

    def reconsider(self, worker_id: str) -> None:
        """Let a worker be neither merged nor discarded, as before `discard`."""
        self._discarded.discard(worker_id)

    def known(self) -> list[RegisteredPart]:
        """Return the workers that have announced a flush so far.  Cost: 1 get."""
        return [
            RegisteredPart(one.worker_id, one.task, status(one, self._merged, self._discarded))
            for one in self._row.read()
        ]

    def settle(self) -> None:
        """Close the row, and remove what is not to be committed.  May be done again.

        Raises:
            TransactionAborted: the transaction cannot commit.
            StorageError: it is not known whether it could.

        Cost: 1 write and 1 get; for workers that were not merged a scan of where they wrote, and a
        read of the merged parts that lie there too.
        """
        self._row.close()
        registered = self._row.read()
        others = to_remove(
            registered,
            self._merged,
            self._discarded,
            digests=self._part_digests,
            can_delete=self._store.capabilities.exact_delete,
        )
        if isinstance(others, Objection):
            reached("parts.commit_refused", "I9")
            raise TransactionAborted(
                f"transaction {self._start_ts} was rolled back: {others.reason}",
                retryable=others.retryable,
            )
        self._remove(others, is_kept=self._buffer.has_sent)
        self._compare(others)

    def end(self, oracle: Oracle) -> None:
        """Let no worker begin another flush, and make the end of the transaction durable.

        Failures are logged: no caller asks for the commit any more.

        Cost: 1 write, 1 oracle round trip.
        """
        try:
            self._row.close()
        except StorageError as error:
            log.warning("workers of transaction %d could not be stopped: %s", self._start_ts, error)
        forbid(oracle, self._start_ts)

    def take_back(self) -> None:
        """Remove what workers wrote whose parts were not merged, and the row.

        The transaction has ended without a commit, and the row is closed.
        """
        registered = self._row.read()
        if self._store.capabilities.exact_delete:
            unmerged = [one for one in registered if one.worker_id not in self._merged]
            self._remove(unmerged, is_kept=lambda *_: False)
        self._store.write(self.leftovers())

    def leftovers(self) -> dict[str, list[RowMutation]]:
        """Return what removes the row."""
        return {CONTROL_TABLE: [self._row.removal()]}

    # -- the cells of workers that were not merged -------------------------------------------------

    def _remove(
        self, registered: Iterable[Registration], *, is_kept: Callable[[CellName, int], bool]
    ) -> None:
        """Remove what these workers wrote, and wait until it is gone."""
        for one in registered:
            for stretch in one.stretches():
                try:
                    for deletes in self._strays(stretch, one.version, is_kept):
                        reached("parts.removed", "I9")
                        self._store.write({stretch.table: deletes}, durable=True)
                except NoSuchTable:
                    continue  # dropped meanwhile, and its cells with it

    def _strays(
        self, stretch: Stretch, version: int, is_kept: Callable[[CellName, int], bool]
    ) -> Iterator[list[RowMutation]]:
        for page in self._store.scan(
            stretch.table,
            stretch.key_range,
            columns=stretch.columns,
            min_version=version,
            max_version=version + 1,
        ):
            deletes = [
                RowMutation(
                    cells[0].row,
                    deletes=[
                        DeleteVersion(cell.family, cell.qualifier, version)
                        for cell in cells
                        if not is_kept(CellName(stretch.table, *cell[:3]), version)
                    ],
                )
                for cells in page
            ]
            if deletes := [mutation for mutation in deletes if mutation.deletes]:
                yield deletes

    def _compare(self, others: Iterable[Registration]) -> None:
        """Make sure that merged cells which these workers may have written too are as merged."""
        hulls: dict[tuple[str, int], tuple[bytes, bytes]] = {}
        for one in others:
            for stretch in one.stretches():
                key = (stretch.table, one.version)
                first, last = hulls.get(key, (stretch.first, stretch.last))
                hulls[key] = (min(first, stretch.first), max(last, stretch.last))
        for part in self._merged.values():
            is_shared = any(
                hull[0] <= name.row <= hull[1]
                for name in part.cells
                if (hull := hulls.get((name.table, part.version))) is not None
            )
            if is_shared and digest_of(self._written(part)) != part.digest:
                reached("parts.overwritten", "I8")
                raise TransactionAborted(
                    f"transaction {self._start_ts} was rolled back: cells of the part of worker "
                    f"{part.worker_id} have other values than it wrote, those of a worker that was "
                    f"not merged; give each cell to one task: {RULE}",
                    retryable=False,
                )

    def _written(self, part: Part) -> Iterator[tuple[CellName, bytes]]:
        """Yield the cells of a part as they are in the store."""
        names = frozenset(part.cells)
        rows: dict[str, dict[bytes, None]] = {}
        for name in part.cells:
            rows.setdefault(name.table, {})[name.row] = None
        for table, of_table in rows.items():
            keys = list(of_table)
            for start in range(0, len(keys), COMPARED_ROWS):
                for cells in self._store.get(
                    table,
                    keys[start : start + COMPARED_ROWS],
                    min_version=part.version,
                    max_version=part.version + 1,
                ):
                    for cell in cells:
                        if (name := CellName(table, *cell[:3])) in names:
                            yield name, cell.value
