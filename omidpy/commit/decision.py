"""Did it commit?  Asks the oracle once, and finds out where no answer came.

A commit request that certainly never left is an abort.  One that may have arrived is settled from
evidence (`outcome.py`); what cannot be settled is raised as unknown, never taken for an abort.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, cast

from omidpy.base.reach import reached
from omidpy.commit.outcome import OutcomeFinder
from omidpy.errors import (
    CommitOutcomeUnknown,
    ConfigError,
    LocalProtocolError,
    OmidError,
    OracleError,
    TransactionAborted,
    UsageError,
)
from omidpy.model import (
    Aborted,
    CellId,
    Committed,
    Outcome,
    TableCells,
    TableId,
    Timestamp,
    Undecided,
)
from omidpy.oracle.base import (
    AbortReason,
    CommitGranted,
    CommitRefused,
    CommitVerdict,
    Oracle,
    WritesCells,
)
from omidpy.reading.resolution import TableCell

log = logging.getLogger(__name__)

_WITHOUT: Final = "ask tm.outcome(error) later, and do not run it again before"
_WITH_A_KEY: Final = "run it again with the same idempotency key, which finds out"


def decide(
    oracle: Oracle,
    outcomes: OutcomeFinder,
    start_ts: Timestamp,
    *,
    cell_ids: Collection[CellId],
    table_ids: Collection[TableId],
    find_witnesses: Callable[[], Sequence[TableCell]],
    cells: TableCells | None = None,
    has_key: bool = False,
) -> CommitVerdict:
    """Return what became of a transaction.

    Args:
        oracle: Who decides.
        outcomes: Who finds out where no answer came.
        start_ts: The transaction.
        cell_ids: What the oracle checks.
        table_ids: What fences are checked against.
        find_witnesses: Returns a cell that it wrote of each table; called where no answer came.
        cells: All that it wrote, for an oracle that writes them; None: they are in the store.
        has_key: It has an idempotency key, so that it may be run again whatever became of it.

    Raises:
        TransactionAborted: the oracle was certainly not asked.
        CommitOutcomeUnknown: no answer, and no evidence.

    Cost: 1 oracle round trip.
    """
    try:
        if cells is None:
            return oracle.commit(start_ts, cell_ids, table_ids)
        # Looked at when the manager was made: a client that hands cells over knows that the oracle
        # writes them.
        return cast("WritesCells", oracle).commit_cells(start_ts, cell_ids, table_ids, cells)
    except OmidError as error:
        # Of a request that never left, and of no other, its failure says that it did not commit.
        if _was_not_sent(error):
            reached("commit.never_sent", "I9")
            raise TransactionAborted(
                f"transaction {start_ts} was not committed: {error}", retryable=error.retryable
            ) from error
        log.warning("no answer to the commit of %d, finding out: %s", start_ts, error)
        witnesses = find_witnesses()
        outcome = _settle(outcomes, start_ts, cell_ids, table_ids, witnesses)
        if isinstance(outcome, Committed) and outcome.commit_ts is not None:
            reached("commit.found_committed", "I8")
            return CommitGranted(outcome.commit_ts)
        if isinstance(outcome, Aborted):
            # It is settled, not guessed: a request that still arrives is refused from now on.
            reached("commit.found_aborted", "I9")
            return CommitRefused(AbortReason.INVALIDATED)
        # No abort: the request may be under way, and be granted after this.
        reached("commit.stays_unknown", "I9")
        raise CommitOutcomeUnknown(
            f"transaction {start_ts} may or may not have committed: the oracle gave no "
            f"answer ({error})",
            start_ts=start_ts,
            witness=next(iter(witnesses), None),
            others=tuple(witnesses[1:]),
            store_id=outcomes.store_id(),
            retryable=has_key,
            advice=_WITH_A_KEY if has_key else _WITHOUT,
        ) from error


def _settle(
    outcomes: OutcomeFinder,
    start_ts: Timestamp,
    cell_ids: Collection[CellId],
    table_ids: Collection[TableId],
    witnesses: Sequence[TableCell],
) -> Outcome:
    try:
        first = next(iter(witnesses), None)
        return outcomes.settle(start_ts, first, cell_ids, table_ids, others=witnesses[1:])
    except OmidError as error:
        log.warning("the outcome of %d could not be found out: %s", start_ts, error)
        return Undecided()


def _was_not_sent(error: OmidError) -> bool:
    """Say whether a failed commit request certainly never left this process.

    Too many cells for one request, an oracle of another store, or none there to send it to.
    """
    if isinstance(error, (UsageError, LocalProtocolError, ConfigError)):
        return True
    return isinstance(error, OracleError) and not error.was_sent


def forbid(oracle: Oracle, start_ts: Timestamp) -> None:
    """Make the end of a transaction durable that was rolled back, which also ends its hold.

    A failure is logged: no caller asks for the commit any more.

    Cost: 1 oracle round trip; nothing beside Java's oracle, which can do neither.
    """
    if not oracle.can_invalidate:
        return
    try:
        oracle.invalidate(start_ts)
    except OmidError as error:
        log.warning("transaction %d was rolled back without an invalidation: %s", start_ts, error)
