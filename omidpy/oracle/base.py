"""What a client may ask of the timestamp oracle, wherever it runs.

Implemented by `oracle/tcp.py` (a `tso-server`, ours or Java's) and by `tso/embedded.py` (in this
process).  Both answer in one order: when a start timestamp is handed out, every smaller commit
timestamp is already durable in the commit table.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from omidpy.base.words.arguments import check_number
from omidpy.errors import UsageError
from omidpy.model import CellId, TableCells, TableId, Timestamp

MOST_ASKED_MS: Final = 1 << 53
"""No oracle grants as much, and every message can say it."""


class Begun(NamedTuple):
    """A fresh snapshot.

    `epoch` and `low_watermark` are the oracle's at that moment: no transaction that began at or
    below either can be decided a commit any more.  0 where that is not known: Java's oracle tells
    neither, but publishes its epoch or writes it into the store.
    `newest_fence` is the newest of any table that this instance of the oracle has set; 0: none, or
    one at or below the low watermark.  None where the oracle does not tell.
    """

    start_ts: Timestamp
    epoch: Timestamp = Timestamp(0)
    low_watermark: Timestamp = Timestamp(0)
    newest_fence: Timestamp | None = None

    @property
    def fenced_ts(self) -> Timestamp | None:
        """At or above every fence that this transaction does not run into; None: not known.

        A fence above `start_ts` aborts what it concerns.  Those of earlier instances of the oracle
        are at or below its epoch.
        """
        if self.newest_fence is None:
            return None
        return max(self.newest_fence, self.epoch, self.low_watermark)


class AbortReason(Enum):
    """Why the oracle refused a commit."""

    UNSTATED = 0
    CONFLICT = 1
    LOW_WATERMARK = 2
    FENCE = 3
    INVALIDATED = 4
    TOO_LARGE = 5
    RATE = 6
    UNWRITABLE = 7


@dataclass(frozen=True, slots=True)
class CommitGranted:
    """The commit entry is durable."""

    commit_ts: Timestamp


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The transaction will never commit.

    `conflicts` holds at most 64 cell ids of the request.  `wait_s` is how long it takes until the
    client may write as much again, where that is why; else 0.
    """

    reason: AbortReason = AbortReason.UNSTATED
    conflicts: Sequence[CellId] = ()
    wait_s: float = 0.0


CommitVerdict: TypeAlias = CommitGranted | CommitRefused


class InvalidationVerdict(Enum):
    """What an oracle says that was asked to forbid a commit."""

    INVALIDATED = 1
    """It will never commit: forbidden now, or refused before."""
    UNKNOWN = 2
    """Decided so long ago that the oracle has forgotten how, and no commit entry is left."""


@runtime_checkable
class WritesCells(Protocol):
    """An oracle that may write the cells of a commit together with its decision.

    An option: with every other one the cells are in the store before it is asked.
    """

    @property
    def most_cells_bytes(self) -> int:
        """How much it takes of one commit; 0: nothing, its store or its version do not let it."""
        ...

    def commit_cells(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        cells: TableCells,
    ) -> CommitVerdict:
        """Decide a transaction of which nothing is in the store, and write it.

        A commit is complete at once: all cells with their shadow cells, and no commit entry.  A
        refusal leaves nothing.

        Args:
            start_ts: The transaction.
            cell_ids: As `Oracle.commit`.
            table_ids: As `Oracle.commit`.
            cells: All that it wrote.

        Cost: 1 durable write by the oracle.
        """
        ...


class Oracle(Protocol):
    """The timestamp oracle, as a client sees it.  Safe to share among threads.

    Every method raises `OracleUnavailable` when no answer came.  For `commit` that leaves the
    outcome open unless its `was_sent` is False; the caller asks again with `is_retry`, or reads the
    commit table.
    """

    @property
    def store_id(self) -> str | None:
        """Id of the store the oracle serves.

        None before the first answer, or where the oracle does not tell.
        """
        ...

    @property
    def can_invalidate(self) -> bool:
        """Whether the oracle knows `invalidate`; Java's does not."""
        ...

    @property
    def max_transaction_age_s(self) -> float | None:
        """Age at which a transaction can no longer commit.

        None before the first answer, or where the oracle does not tell.
        """
        ...

    @property
    def max_commit_cells(self) -> int | None:
        """How many cells and tables one commit may name together; more are refused.

        None before the first answer, or where the oracle does not tell.
        """
        ...

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Return a fresh start timestamp.

        Args:
            hold_s: Ask that age alone does not raise the low watermark to this snapshot for so many
                seconds.

        Raises:
            UsageError: `hold_s` is not above 0, or not finite.

        Cost: 1 round trip.
        """
        ...

    def commit(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        *,
        is_retry: bool = False,
    ) -> CommitVerdict:
        """Decide a transaction whose cells are all in the store.

        Args:
            start_ts: The transaction.
            cell_ids: What it wrote, for conflict detection; never empty.
            table_ids: The tables it wrote, for fences.
            is_retry: An earlier request of the same transaction got no answer.

        Cost: 1 round trip, after one durable write by the oracle.
        """
        ...

    def fence(self, table_id: TableId) -> Timestamp:
        """Set a fence and return its timestamp.

        Every transaction that began earlier aborts if it wrote the table.
        """
        ...

    def invalidate(self, start_ts: Timestamp) -> CommitGranted | InvalidationVerdict:
        """Forbid a commit, or say that it has happened.

        Raises:
            LocalProtocolError: if the oracle lacks `can_invalidate`.
        """
        ...

    def close(self) -> None:
        """Free every resource; a second call does nothing."""
        ...


def hold_ms(hold_s: float) -> int:
    """Return how long a snapshot is to be held, in milliseconds, rounded up.

    Raises:
        TypeError: it is no number.
        UsageError: it is not above 0, or not finite.
    """
    if not 0 < check_number("hold_s", hold_s) < math.inf:
        raise UsageError(f"hold_s={hold_s} holds nothing; give seconds above 0, or None")
    return math.ceil(min(hold_s * 1000, MOST_ASKED_MS))
