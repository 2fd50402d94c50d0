"""Did it commit?  Finds the answer after a reply was lost.

Evidence, and nothing else, decides: a commit entry or a shadow cell proves a commit; an
invalidation, or an own cell without a shadow cell where no commit entry can appear any more, proves
an abort.  Absence alone proves nothing, because an entry goes once its transaction is complete.

The shadow cell is read before and after the commit table: it appears before the entry goes.  Its
cell is the transaction's *witness*: any that it wrote, with the name of its table.

Nor does an invalidation prove anything alone.  Who plants one looks before.  If he stands still in
between, a late entry of a dead oracle may come, be healed and be pruned, and what he plants stands
under a transaction that has committed.  Its cells tell, as long as they are there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from omidpy.base.commit_facts import INVALID
from omidpy.base.reach import reached
from omidpy.base.tables import OWN_TABLE_PREFIX
from omidpy.base.timing.clock import Clock
from omidpy.base.timing.pauses import Pauses
from omidpy.errors import OmidError, OracleUnavailable, StorageError
from omidpy.facts.commit_table import (
    FIRST_TIMESTAMP_FACT,
    CommitTable,
    read_low_watermark,
    read_timestamp_ceiling,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import COLLECTION_HORIZON, Watermarks
from omidpy.facts.witnesses import witness_state
from omidpy.model import (
    Aborted,
    CellId,
    Committed,
    Forgotten,
    Outcome,
    TableId,
    Timestamp,
    Undecided,
    base,
)
from omidpy.oracle.base import CommitGranted, InvalidationVerdict, Oracle
from omidpy.reading.resolution import TableCell
from omidpy.storage.base import Store

log = logging.getLogger(__name__)

SETTLE_BUDGET_S: Final = 10.0
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0


class OutcomeFinder:
    """Finds out what became of transactions.  Safe to share among threads."""

    def __init__(
        self,
        store: Store,
        commit_table: CommitTable,
        oracle: Oracle,
        clock: Clock,
        *,
        budget_s: float = SETTLE_BUDGET_S,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._store = store
        self._commit_table = commit_table
        self._oracle = oracle
        self._clock = clock
        self._budget_s = budget_s
        self._pause = pause

    def store_id(self) -> str | None:
        """Return the id of the store whose transactions these are; None: it cannot be read now."""
        try:
            return self._store.store_id
        except OmidError:
            return None

    def settle(
        self,
        start_ts: Timestamp,
        witness: TableCell | None,
        cell_ids: Collection[CellId] = (),
        table_ids: Collection[TableId] = (),
        *,
        others: Sequence[TableCell] | None = None,
    ) -> Outcome:
        """Find the outcome of a commit that got no answer, forbidding it if it has not happened.

        Our own oracle is asked to invalidate, which never ends in a closed connection.  Java's
        cannot; it is asked again for the commit, if the write set is given, and a refusal counts
        only with the evidence.

        Args:
            start_ts: The transaction.
            witness: A cell of it.
            cell_ids: What it asked the oracle to check.
            table_ids: And the tables.
            others: A cell of it in each other table; None: these are not known, nor whether
                `witness` was taken back since, so that its absence tells nothing.

        Returns:
            `Undecided` if the oracle did not answer within the budget and the tables hold no
            evidence.
        """
        deadline_s = self._clock.monotonic_s() + self._budget_s
        pauses = Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, at_least=0.5)
        while True:
            try:
                outcome = self._evidence(start_ts, witness)
                if not isinstance(outcome, Undecided):
                    return outcome
                return self._ask(start_ts, witness, cell_ids, table_ids, others)
            except (OracleUnavailable, StorageError) as error:
                remaining_s = deadline_s - self._clock.monotonic_s()
                if remaining_s <= 0:
                    log.warning("the outcome of %d stays unknown for now: %s", start_ts, error)
                    return Undecided()
                self._pause(min(remaining_s, pauses.next_s()))

    def of_running(self, start_ts: Timestamp, witness: TableCell | None) -> Outcome:
        """Find the outcome of a transaction that may be running, without ending it.

        Only below the low watermark, where it cannot commit any more, is a missing commit
        forbidden.
        """
        outcome = self._evidence(start_ts, witness)
        if isinstance(outcome, Undecided) and start_ts <= read_low_watermark(self._store):
            return self.settle(start_ts, witness)
        return outcome

    def of_number(self, start_ts: Timestamp) -> Outcome:
        """Say what the commit table alone knows of a transaction; see `recorded_outcome`."""
        return recorded_outcome(self._store, self._commit_table, start_ts)

    def _evidence(self, start_ts: Timestamp, witness: TableCell | None) -> Outcome:
        """Read the witness's shadow cell, the commit table, and the shadow cell again."""
        for _ in range(2):
            shadow, _ = self._witness_state(witness)
            if shadow is not None:
                return Committed(shadow)
            entry = self._commit_table.read((start_ts,))[start_ts]
            if isinstance(entry, int):
                return Committed(Timestamp(entry))
            if entry is INVALID:
                # A shadow cell outranks an invalidation; it is durable before the entry goes.
                reached("outcome.invalidation_found", "I9")
                shadow, is_present = self._witness_state(witness)
                if shadow is not None:
                    return Committed(shadow)
                return self._of_invalidation(start_ts, is_present=is_present)
        return Undecided()

    def _of_invalidation(self, start_ts: Timestamp, *, is_present: bool) -> Outcome:
        """Return what one says that no shadow cell belies: with its cell, that may be gone (I9)."""
        # Read behind the look at the cell, which may be gone since it was collected, or delivered.
        horizon = Watermarks(ControlTable(self._store)).gone_horizon()
        if is_present or start_ts > horizon:
            return Aborted()
        return Forgotten()

    def _ask(
        self,
        start_ts: Timestamp,
        witness: TableCell | None,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        others: Sequence[TableCell] | None,
    ) -> Outcome:
        if not self._oracle.can_invalidate:
            return self._ask_java(start_ts, witness, cell_ids, table_ids)
        answer = self._oracle.invalidate(start_ts)
        if isinstance(answer, CommitGranted):
            return Committed(answer.commit_ts)
        if answer is InvalidationVerdict.INVALIDATED:
            # Its own, which is final; or one that it has found, which is as one that we find.
            shadow, is_present = self._witness_state(witness)
            if shadow is not None:
                return Committed(shadow)
            return self._of_invalidation(start_ts, is_present=is_present)
        # Too old, or decided and forgotten: this oracle will not decide it from here on.  An entry
        # goes only after all shadow cells are there, so an own cell without one was not committed
        # until now; but on HBase an entry that a dead oracle wrote may still be under way.
        outcome = self._evidence(start_ts, witness)
        if not isinstance(outcome, Undecided):
            return outcome
        found = self._of_absent(start_ts, witness, others)
        return found or self._forbid(start_ts, witness, unless_present=Forgotten())

    def _of_absent(
        self, start_ts: Timestamp, witness: TableCell | None, others: Sequence[TableCell] | None
    ) -> Outcome | None:
        """Find the outcome of what no oracle decides any more, and whose cells may not be there.

        Where cells and decisions are written together, under the oracle's lease, nothing of one
        before is still under way.  So cells that are absent were never committed, unless they were
        collected, which nothing is that began above the collection horizon.  A table that was
        dropped tells nothing; one that was made anew has lost what the old one had, and only other
        tables tell whether that was committed.  Of who wrote a table of ours it tells nothing: its
        rows are removed by others, as an entry of an export queue is once it was delivered.

        Returns:
            None where that does not tell.
        """
        if witness is None or others is None:
            return None
        if not self._store.capabilities.guarded_batches:
            return None
        from omidpy.facts.tables.removed import Removals  # noqa: PLC0415 - few come to this

        tables = {schema.name for schema in self._store.tables()}
        removals = Removals(self._store)
        is_gone, is_told = True, False
        for one in (witness, *others):
            shadow, is_present = self._witness_state(one)
            if shadow is not None:
                return Committed(shadow)
            if one[0] in tables and removals.behind(one[0], start_ts) is not None:
                continue
            is_told = True
            is_lasting = one[0] in tables and not one[0].startswith(OWN_TABLE_PREFIX)
            is_gone &= is_lasting and not is_present
        # Behind the look at the cells, so that it counts for what was collected before.
        horizon = ControlTable(self._store).read_number(COLLECTION_HORIZON) or 0
        if not (is_told and is_gone) or start_ts <= horizon:
            return None
        reached("outcome.absent_is_aborted", "I9")
        return Aborted()

    def _ask_java(
        self,
        start_ts: Timestamp,
        witness: TableCell | None,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
    ) -> Outcome:
        """Repeat the commit, and believe a refusal only where evidence and an invalidation say so.

        Java's oracle refuses a retry whose entry it does not find, be it that the entry is not
        written yet, or complete and gone.  `TcpOracle.commit` waits until everything that this
        instance decided is durable; the invalidation forbids what one before it may still write.
        Only the client that asked for the commit does that, as Java's own client does: no other was
        told of it.
        """
        if not cell_ids:
            return Undecided()
        verdict = self._oracle.commit(start_ts, cell_ids, table_ids, is_retry=True)
        if isinstance(verdict, CommitGranted):
            return Committed(verdict.commit_ts)
        outcome = self._evidence(start_ts, witness)
        if not isinstance(outcome, Undecided):
            return outcome
        # Without an own cell it was rolled back, or collected after it was complete: nothing is
        # left that could tell.
        return self._forbid(start_ts, witness, unless_present=Undecided())

    def _forbid(
        self, start_ts: Timestamp, witness: TableCell | None, *, unless_present: Outcome
    ) -> Outcome:
        """Plant an invalidation under a commit that no oracle will decide, if an own cell is there.

        Args:
            start_ts: No oracle decides it any more, so that what is planted is final (I9).
            witness: An own cell.
            unless_present: What to say where it is gone.
        """
        shadow, is_present = self._witness_state(witness)
        if shadow is not None:
            return Committed(shadow)
        if not is_present:
            return unless_present
        if not self._commit_table.invalidate(start_ts):
            reached("outcome.commit_was_first", "I8")
            return self._evidence(start_ts, witness)
        shadow, is_present = self._witness_state(witness)
        if shadow is not None:
            # It was completed between our reads, so that what we planted is false.
            self._commit_table.undo_invalidation(start_ts)
            return Committed(shadow)
        if not is_present:
            # Between our reads, which may be hours apart, its cell went, as an entry of a queue
            # does once it was delivered; and with it perhaps the commit entry that it had by then,
            # which was no abort (I9).
            return unless_present
        reached("outcome.forbidden", "I9")
        return Aborted()

    def _witness_state(self, witness: TableCell | None) -> tuple[Timestamp | None, bool]:
        return (None, False) if witness is None else witness_state(self._store, *witness)


def recorded_outcome(store: Store, commit_table: CommitTable, start_ts: Timestamp) -> Outcome:
    """Say what the commit table alone knows of a transaction; writes nothing.

    `Undecided` says no more than that there is no entry and none is excluded: a transaction that is
    complete has none either.

    Cost: 1 commit table get, 1 more for an invalidation and 2 where there is no entry.
    """
    start_ts = base(start_ts)
    entry = commit_table.read((start_ts,))[start_ts]
    if entry is INVALID:
        # Below the prune horizon it may have been planted under a commit whose entry was pruned.
        is_told = start_ts > Watermarks(ControlTable(store)).prune_horizon()
        return Aborted() if is_told else Forgotten()
    if isinstance(entry, int):
        return Committed(Timestamp(entry))
    return Forgotten() if start_ts <= read_low_watermark(store) else Undecided()


def why_never_issued(store: Store, start_ts: Timestamp) -> str | None:
    """Say why no transaction can have begun at `start_ts`; None if one may have.

    Cost: 2 gets.
    """
    start_ts = base(start_ts)
    first = ControlTable(store).read_number(FIRST_TIMESTAMP_FACT)
    if first is None:  # no oracle of ours served here, so that it is not known
        return None
    if start_ts < first:
        return f"the first timestamp of this store is {first}"
    ceiling = read_timestamp_ceiling(store)
    if ceiling is not None and start_ts > ceiling:
        return f"no timestamp above {ceiling} was issued yet"
    return None
