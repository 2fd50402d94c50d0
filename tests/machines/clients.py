"""Managers over memory, and an oracle whose requests and answers get lost where a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from enum import Enum
from typing import Final

from omidpy.base.timing.clock import Clock, ManualClock
from omidpy.connect import find_queue, make_publisher
from omidpy.errors import OracleUnavailable
from omidpy.facts.commit_table import CommitTable
from omidpy.manager import TransactionManager
from omidpy.model import Cell, CellId, TableId, Timestamp
from omidpy.oracle.base import (
    Begun,
    CommitGranted,
    CommitVerdict,
    InvalidationVerdict,
    Oracle,
)
from omidpy.reading.visibility import sort_row
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from tests.machines.naive_oracle import NaiveOracle

TABLE: Final = "t"
FAMILIES: Final = ("cf", "other")


class Loss(Enum):
    """What goes wrong with one commit request."""

    NOT_SENT = "nobody was there to send it to"
    REQUEST = "it never arrived"
    REPLY = "it was decided, and the answer was lost"


class LossyOracle:
    """An oracle on a bad line: passes everything on but what a test told it to lose."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.losses: deque[Loss] = deque()
        """What happens to the next commits, in order; those behind it go through."""
        self.is_dead = False
        """Whether it answers nothing at all any more."""
        self.can_invalidate = True
        self.invalidation: Callable[[Timestamp], CommitGranted | InvalidationVerdict] | None = None
        """Answers `invalidate` in the oracle's place."""
        self.asked: list[str] = []
        """The names of the requests, in order."""

    @property
    def store_id(self) -> str | None:
        """The id of the store behind."""
        return self.oracle.store_id

    @property
    def max_transaction_age_s(self) -> float | None:
        """The age limit of the oracle behind."""
        return self.oracle.max_transaction_age_s

    @property
    def max_commit_cells(self) -> int | None:
        """What the oracle behind takes at once."""
        return self.oracle.max_commit_cells

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Pass on."""
        self._ask("begin")
        return self.oracle.begin(hold_s=hold_s)

    def commit(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        *,
        is_retry: bool = False,
    ) -> CommitVerdict:
        """Pass on, or lose."""
        self._ask("retry" if is_retry else "commit")
        loss = self.losses.popleft() if self.losses else None
        if loss in (Loss.NOT_SENT, Loss.REQUEST):
            error = OracleUnavailable(loss.value, retryable=loss is Loss.NOT_SENT)
            error.was_sent = loss is not Loss.NOT_SENT
            raise error
        verdict = self.oracle.commit(start_ts, cell_ids, table_ids, is_retry=is_retry)
        if loss is Loss.REPLY:
            raise OracleUnavailable(loss.value, retryable=False)
        return verdict

    def fence(self, table_id: TableId) -> Timestamp:
        """Pass on."""
        self._ask("fence")
        return self.oracle.fence(table_id)

    def invalidate(self, start_ts: Timestamp) -> CommitGranted | InvalidationVerdict:
        """Pass on."""
        self._ask("invalidate")
        return (self.invalidation or self.oracle.invalidate)(start_ts)

    def close(self) -> None:
        """Pass on."""
        self.oracle.close()

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if self.is_dead:
            raise OracleUnavailable("the oracle is dead", retryable=False)


class Client:
    """A manager with a table of two families, and the machines under it."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        post_commit: str = "sync",
        conflict_level: str = "cell",
        clock: Clock | None = None,
        on_step: Callable[[str], None] | None = None,
        table: str | None = TABLE,
    ) -> None:
        """Make a manager; without a store, over memory."""
        self.store = store or MemoryStore()
        self.naive = NaiveOracle(self.store)
        self.oracle = LossyOracle(self.naive)
        self.steps: list[str] = []
        self.clock = clock or ManualClock()
        self.tm = TransactionManager(
            self.store,
            self.oracle,
            post_commit=post_commit,
            conflict_level=conflict_level,
            clock=self.clock,
            on_step=on_step or self.steps.append,
            find_queue=find_queue,
            make_publisher=make_publisher,
        )
        self.commit_table = CommitTable(self.store)
        if isinstance(self.clock, ManualClock):
            self.tm.session.outcomes._pause = self.clock.advance
        if table is not None:
            self.tm.create_table(table, FAMILIES)

    def write(self, row: bytes = b"r", value: bytes = b"v", column: bytes = b"cf:q") -> int:
        """Commit one cell and return its transaction's start_ts."""
        with self.tm.begin() as tx:
            tx.table(TABLE).put(row, {column: value})
        return tx.start_ts

    def read(self, row: bytes = b"r") -> dict[bytes, bytes]:
        """Return a row as a fresh transaction sees it."""
        with self.tm.begin() as tx:
            return tx.table(TABLE).row(row)

    def raw(self, table: str = TABLE) -> list[Cell]:
        """Return every cell of a table, as the store has them."""
        return [cell for page in self.store.scan(table) for row in page for cell in row]

    def raw_data(self) -> list[tuple[bytes, bytes, int, bytes]]:
        """Return the data cells as (row, qualifier, version, value)."""
        return [
            (cell.row, cell.qualifier, cell.version, cell.value)
            for cell in sort_row(self.raw()).data
        ]

    def raw_shadows(self) -> dict[tuple[bytes, int], int]:
        """Return (row, version) -> commit_ts of the shadow cells; for rows of one column."""
        found: dict[tuple[bytes, int], int] = {}
        for page in self.store.scan(TABLE):
            for cells in page:
                for (_, _, version), commit_ts in sort_row(cells).shadows.items():
                    found[cells[0].row, version] = commit_ts
        return found

    def entries(self) -> dict[int, object]:
        """Return the commit table: start_ts -> commit timestamp or `INVALID`."""
        return {row.start_ts: row.entry for page in self.commit_table.scan() for row in page}
