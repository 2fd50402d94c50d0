"""Find the answers that had to wait for a look into the commit table, or for an earlier flush.

A transaction of which nothing is remembered is looked up, and what is not in the table either is
not answered: the oracle invents no abort for a transaction that may have committed, been completed
and been forgotten (I9).
"""

from __future__ import annotations

from typing import assert_never

from omidpy.base.commit_facts import INVALID
from omidpy.model import Timestamp
from omidpy.wire.messages import CommitResponse
from tso.core.answers import ABORT_INVALIDATED, ABORT_UNWRITABLE, outcome_of, refusal, verdict_on
from tso.core.engine import ABORT_LOW_WATERMARK, Decisions
from tso.core.events import Answer, Deferred, FlushResult, Recall
from tso.core.figures import Figures


class Recaller:
    """What is remembered, and what the commit table says, as answers."""

    def __init__(self, decisions: Decisions, invalidated: set[int], figures: Figures) -> None:
        """Look into what the machine remembers: its decisions, and what it invalidated."""
        self._decisions = decisions
        self._invalidated = invalidated
        self._figures = figures

    def recalled(self, waiting: Deferred, result: FlushResult) -> Answer | str:
        """Find an answer that was not known at once; a string is the reason to give none."""
        start_ts = waiting.start_ts
        remembered = self._decisions.get(start_ts)
        match waiting.how:
            case Recall.COMMIT_FROM_MEMORY:
                if not remembered:
                    return f"the decision about start_ts {start_ts} was forgotten meanwhile"
                return verdict_on(start_ts, remembered)
            case Recall.COMMIT_FROM_TABLE | Recall.COMMIT_UNLESS_IN_TABLE:
                return self.looked_up(start_ts, result)
            case Recall.REFUSED_UNLESS_IN_TABLE:
                if result.entries[start_ts] is None and start_ts > result.prune_horizon:
                    self._figures.refused(ABORT_LOW_WATERMARK)
                    return refusal(start_ts, ABORT_LOW_WATERMARK)
                return self.looked_up(start_ts, result)
            case Recall.INVALIDATION_FROM_MEMORY:
                if not remembered:
                    return outcome_of(start_ts, None)
                return outcome_of(start_ts, Timestamp(remembered) if remembered > 0 else INVALID)
            case Recall.INVALIDATION_FROM_TABLE:
                entry = result.entries[start_ts]
                if entry is INVALID and start_ts <= result.prune_horizon:
                    # Planted, perhaps, by who stood still while a commit came and was pruned (I9).
                    entry = None
                return outcome_of(start_ts, entry)
            case Recall.INVALIDATION_PLANTED:
                entry = result.entries[start_ts]
                if entry is not None and entry is not INVALID:
                    # Only an oracle that is not ours can have written it; believe the table.
                    self._invalidated.discard(start_ts)
                    self._decisions.note(start_ts, entry)
                return outcome_of(start_ts, entry)
            case _:
                assert_never(waiting.how)

    def looked_up(self, start_ts: int, result: FlushResult) -> CommitResponse | str:
        """Answer a commit request with what the table says; a string where that says nothing."""
        # The prune horizon was read together with the entry: at or below it an entry that is not
        # there may have been pruned, and its transaction have committed.
        if start_ts <= result.prune_horizon:
            return (
                f"start_ts {start_ts} is at or below the prune horizon {result.prune_horizon}: its "
                "commit entry may have been pruned"
            )
        entry = result.entries[start_ts]
        if entry is None:
            return f"nothing is known about start_ts {start_ts}: it may be complete, or never asked"
        self._figures.metrics.count("tso.retries.from-table")
        return verdict_on(start_ts, ABORT_INVALIDATED if entry is INVALID else entry)


def is_undecided(waiting: Deferred, result: FlushResult) -> bool:
    """Say whether a request was looked up and may be decided, for all that the table knows."""
    return (
        waiting.how is Recall.COMMIT_UNLESS_IN_TABLE
        and result.entries[waiting.start_ts] is None
        and waiting.start_ts > result.prune_horizon
    )


def unwritten(start_ts: int, result: FlushResult) -> int:
    """Return why a commit that was decided could not be written."""
    return ABORT_UNWRITABLE if start_ts in result.unwritable else ABORT_INVALIDATED
