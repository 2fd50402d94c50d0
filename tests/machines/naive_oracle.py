"""An oracle in thirty lines: unbounded memory, one lock, no batching.

The model that clients are tested against where the real oracle is not the point; it persists
commits the way the real one does, so that readers and the compactor find them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from omidpy.base.cells import commit_row, encode_commit
from omidpy.base.commit_facts import INVALID
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    FIRST_TIMESTAMP_FACT,
    LOW_WATERMARK_FACT,
    CommitTable,
    create_system_tables,
)
from omidpy.facts.control import ControlTable
from omidpy.model import TIMESTAMP_STEP, CellId, TableId, Timestamp
from omidpy.oracle.base import (
    AbortReason,
    Begun,
    CommitGranted,
    CommitRefused,
    CommitVerdict,
    InvalidationVerdict,
)
from omidpy.storage.base import Put, RowMutation, Store


class NaiveOracle:
    """Implements `omidpy.oracle.base.Oracle`."""

    can_invalidate = True
    max_transaction_age_s: float | None = None
    max_commit_cells: int | None = None

    def __init__(self, store: Store) -> None:
        """Initialise the store's system tables and start at timestamp 50."""
        create_system_tables(store)
        self.store = store
        self.store_id: str | None = store.store_id
        self.low_watermark = Timestamp(0)
        self.decisions: dict[Timestamp, CommitVerdict] = {}
        self._last = 0
        self._commits: dict[CellId, Timestamp] = {}
        self._fences: dict[TableId, Timestamp] = {}
        self._lock = threading.Lock()
        self._control = ControlTable(store)
        self._control.raise_number(FIRST_TIMESTAMP_FACT, TIMESTAMP_STEP)

    def _next(self) -> Timestamp:
        self._last += TIMESTAMP_STEP
        return Timestamp(self._last)

    def raise_low_watermark(self, to: int | None = None) -> Timestamp:
        """Raise the low watermark, durably; None: to the last timestamp issued."""
        with self._lock:
            self.low_watermark = Timestamp(self._last if to is None else to)
            self._control.raise_number(LOW_WATERMARK_FACT, self.low_watermark)
            return self.low_watermark

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Return a fresh start timestamp."""
        with self._lock:
            newest_fence = max(self._fences.values(), default=Timestamp(0))
            return Begun(self._next(), Timestamp(0), self.low_watermark, newest_fence)

    def commit(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        *,
        is_retry: bool = False,
    ) -> CommitVerdict:
        """Decide a transaction."""
        with self._lock:
            if start_ts not in self.decisions:
                self.decisions[start_ts] = self._decide(start_ts, cell_ids, table_ids)
            return self.decisions[start_ts]

    def _decide(
        self, start_ts: Timestamp, cell_ids: Collection[CellId], table_ids: Collection[TableId]
    ) -> CommitVerdict:
        if start_ts <= self.low_watermark:
            return CommitRefused(AbortReason.LOW_WATERMARK)
        if any(self._fences.get(table, 0) > start_ts for table in table_ids):
            return CommitRefused(AbortReason.FENCE)
        conflicts = [cell for cell in cell_ids if self._commits.get(cell, 0) >= start_ts]
        if conflicts:
            return CommitRefused(AbortReason.CONFLICT, conflicts)
        commit_ts = self._next()
        self._commits.update(dict.fromkeys(cell_ids, commit_ts))
        put = Put(*COMMIT, start_ts, encode_commit(start_ts, commit_ts))
        row = RowMutation(commit_row(start_ts), puts=(put,))
        self.store.write({COMMIT_TABLE: (row,)}, durable=True)
        return CommitGranted(commit_ts)

    def fence(self, table_id: TableId) -> Timestamp:
        """Set a fence on a table."""
        with self._lock:
            self._fences[table_id] = self._next()
            return self._fences[table_id]

    def invalidate(self, start_ts: Timestamp) -> CommitGranted | InvalidationVerdict:
        """Forbid a commit that has not happened."""
        with self._lock:
            known = self.decisions.get(start_ts)
            if isinstance(known, CommitGranted):
                return known
            if known is None:
                assert CommitTable(self.store).invalidate(start_ts)
                assert CommitTable(self.store).read((start_ts,))[start_ts] is INVALID
                self.decisions[start_ts] = CommitRefused(AbortReason.INVALIDATED)
            return InvalidationVerdict.INVALIDATED

    def close(self) -> None:
        """Do nothing."""
