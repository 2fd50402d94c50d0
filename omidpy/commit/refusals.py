"""What a caller hears when the oracle refuses a commit.

Pure: the oracle's verdict in, the error of the tree out, with the cells, the timestamps and the
knob that would help.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from omidpy.errors import (
    Fenced,
    Invalidated,
    SnapshotTooOld,
    TransactionAborted,
    WriteConflict,
)
from omidpy.oracle.base import AbortReason

if TYPE_CHECKING:
    from omidpy.model import CellName, Timestamp

NAMED_CELLS = 3
"""How many cells in conflict a message names; `WriteConflict.cells` has all that are known."""


def refusal(
    reason: AbortReason,
    start_ts: Timestamp,
    *,
    tables: Collection[str],
    conflicts: Sequence[CellName],
    wait_s: float = 0.0,
) -> TransactionAborted:
    """Return the error for a refused commit.

    Args:
        reason: What the oracle said.
        start_ts: The transaction.
        tables: The tables that it wrote.
        conflicts: Those of its cells that another transaction committed; empty if not told.
        wait_s: How long until the oracle grants as much again; 0 if not told.
    """
    match reason:
        case AbortReason.LOW_WATERMARK:
            return SnapshotTooOld(
                f"transaction {start_ts} was aborted: it began at or below the oracle's low "
                "watermark; make it shorter, or start tso-server with a longer "
                "--max-transaction-age or a larger --conflict-map-size"
            )
        case AbortReason.FENCE:
            return Fenced(
                f"transaction {start_ts} was aborted: a fence was set on one of the tables it "
                f"wrote ({', '.join(sorted(tables))}) after it began",
                advice="run it again",
            )
        case AbortReason.INVALIDATED:
            return Invalidated(
                f"transaction {start_ts} was aborted: its commit was forbidden by an "
                "invalidation, after the oracle could not be reached or was replaced",
                advice="run it again",
            )
        case AbortReason.TOO_LARGE:
            return TransactionAborted(
                f"transaction {start_ts} was aborted: it wrote more cells than the oracle takes in "
                "one commit, a quarter of its conflict map; split the work into smaller "
                "transactions, or start tso-server with a larger --conflict-map-size",
                retryable=False,
            )
        case AbortReason.UNWRITABLE:
            return TransactionAborted(
                f"transaction {start_ts} was aborted: one of the tables it wrote "
                f"({', '.join(sorted(tables))}), or a family of it, was dropped meanwhile",
                retryable=False,
            )
        case AbortReason.RATE:
            error = TransactionAborted(
                f"transaction {start_ts} was aborted: this client's name, or its address, writes "
                "more than its share of the oracle's conflict map, which others need for longer "
                "transactions; write less at a time, or start tso-server with a larger "
                "--cells-per-s or --conflict-map-size",
                advice=f"run it again in {wait_s:.1f} s",
            )
            error.wait_s = wait_s
            return error
        case AbortReason.CONFLICT | AbortReason.UNSTATED:
            return _conflict(start_ts, conflicts)


def _conflict(start_ts: Timestamp, cells: Sequence[CellName]) -> WriteConflict:
    named = ", ".join(f"{t}:{r!r} {f!r}:{q!r}" for t, r, f, q in cells[:NAMED_CELLS])
    more = f" and {len(cells) - NAMED_CELLS} more" if len(cells) > NAMED_CELLS else ""
    return WriteConflict(
        f"transaction {start_ts} was aborted: another transaction committed "
        f"{named or 'a cell that the oracle does not name'}{more} after it began",
        cells=cells,
        advice="run it again, for example with @tm.transactional",
    )
