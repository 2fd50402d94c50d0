"""What `omidpy fsck --repair` does about bytes that no release of this format writes.

They stop their range, or their transaction, until they are mended, so that there must be a way to.
What is written over or removed is copied first (`quarantine.py`), and changed only while it still
holds the bytes that were copied and its table is still the one that was looked at.

What a malformed shadow cell was to say decides whether the cell beside it is seen, so it never just
goes.  In this order:

    no cell beside it                             it goes: it speaks for nothing
    its transaction's commit is known             it is written over with that: from the entry, or
                                                  any other shadow cell, in whatever table
    else                                          it stays, unless an operator says what to assume

Only an operator may decide the last: shadow cells are written to what has committed, and the entry
goes once they are there, so that this may be a commit of which nothing else is left.

    assumed committed     written over with the last timestamp before the next transaction's: what
                          was committed over the cell later is later still
    assumed aborted       its commit is forbidden, durably; then it goes, and the cell with it

A shadow cell is never removed to be written anew: on HBase the delete would hide the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from compactor.check.acts import ANOTHER, Acts, left
from compactor.check.findings import Finding
from omidpy.base.cells import (
    INVALIDATION_VALUE,
    LONG_BYTES,
    SHADOW_SUFFIX,
    commit_row,
    data_qualifier,
    encode_commit,
    encode_long,
    is_shadow_qualifier,
    shadow_qualifier,
)
from omidpy.base.tables import CONTROL_TABLE, FIXED_VERSION, VALUE
from omidpy.errors import StorageError
from omidpy.facts.commit_table import COMMIT, INVALIDATION, CommitTable
from omidpy.facts.control import ControlTable
from omidpy.facts.inspection import FoundCell, inspect
from omidpy.facts.tables.plain_versions import PlainVersions
from omidpy.facts.tables.sameness import is_same
from omidpy.facts.watermarks import CLAIM_PREFIX, SAMPLE_PREFIX, STAMP_PREFIX
from omidpy.model import TIMESTAMP_STEP, Cell, Timestamp, base
from omidpy.reading.visibility import shadow_column
from omidpy.storage.base import DeleteVersion, Put, RowMutation, Store

PROVES_NOTHING: Final = (CLAIM_PREFIX, SAMPLE_PREFIX, STAMP_PREFIX)
"""Facts that count for nothing where they cannot be read, so that they may go."""

ASSUME: Final = (
    "nothing else tells what became of transaction {start_ts}, and `omidpy tx inspect {start_ts}` "
    "shows what there is: `--repair --assume committed` has it seen as if it had committed at "
    "once, `--repair --assume aborted` drops it; either does so with every such finding, and keeps "
    "copies"
)


class Assumption(StrEnum):
    """What an operator says of transactions of which nothing else tells."""

    COMMITTED = "committed"
    ABORTED = "aborted"


class Judged(NamedTuple):
    """What is known of a transaction."""

    commit_ts: Timestamp | None
    ground: str
    """What tells it; empty if nothing does."""
    complaint: str = ""
    """Why nothing may even be assumed of it: what tells it must be mended first."""
    unhealed: Sequence[FoundCell] = ()
    """Its other cells without a shadow cell, where no entry speaks for them."""


class Malformed:
    """Mends what is malformed, or says why not."""

    def __init__(
        self,
        store: Store,
        commit_table: CommitTable,
        *,
        newest: int,
        plain: PlainVersions,
        listed: Mapping[str, str],
        assume: Assumption | None,
        now_ms: Callable[[], int],
    ) -> None:
        """Mend nothing yet.

        Args:
            store: Where it is.
            commit_table: Its commit table.
            newest: No commit timestamp can be above it.
            plain: Versions of writers without transactions.
            listed: By name of the tables of ours, which one it was and since when; what another's
                say of a number is about another's.
            assume: What an operator says of transactions of which nothing else tells.
            now_ms: The date.
        """
        self._store = store
        self._commit_table = commit_table
        self._newest = newest
        self._plain = plain
        self._listed = listed
        self._assume = assume
        self._acts = Acts(store, now_ms=now_ms)

    # -- shadow cells --------------------------------------------------------------------------

    def mend_shadow(self, table: str, shadow: Cell, finding: Finding) -> Finding | None:
        """Mend a malformed shadow cell; None if it is not what it was any more.

        Cost: 5 gets, 1 durable write for each copy and 1 for the act; a scan of every table of ours
        over the versions of its transaction, where its entry does not tell.
        """
        which = self._acts.which(table)
        if not self._is_as_listed(table):
            return left(finding, ANOTHER)
        beside = self._beside(table, shadow)
        if beside.get(shadow[1:3]) != shadow.value:
            return None
        data = (shadow.family, data_qualifier(shadow.qualifier))
        try:
            if data not in beside:
                goes = RowMutation(shadow.row, deletes=(DeleteVersion(*shadow[1:4]),))
                intent = "removed: there is no cell that it speaks for"
                return self._acts.act(table, which, [shadow], goes, intent, finding)
            cell = Cell(shadow.row, *data, shadow.version, beside[data])
            judged = self._judge(shadow, beside)
            if judged.commit_ts is not None:
                self._heal(judged.unhealed, judged.commit_ts)
                intent = f"written over with {judged.commit_ts}, which {judged.ground}"
                return self._write_over(table, which, shadow, judged.commit_ts, intent, finding)
            start_ts = Timestamp(base(shadow.version))
            if judged.complaint or self._assume is None:
                return left(finding, judged.complaint or ASSUME.format(start_ts=start_ts))
            if self._assume is Assumption.COMMITTED:
                commit_ts = self._earliest(shadow.version)
                self._heal(judged.unhealed, commit_ts)
                intent = f"written over with {commit_ts}: assumed to be committed"
                return self._write_over(table, which, shadow, commit_ts, intent, finding)
            # Before anything goes: its commit may be under way.
            is_plain = self._plain.contains(shadow.version)
            if not is_plain and not self._commit_table.invalidate(start_ts):
                return left(finding, "its commit has arrived just now; run this again")
            goes = RowMutation(
                shadow.row,
                deletes=(DeleteVersion(*shadow[1:4]), DeleteVersion(*cell[1:4])),
            )
            intent = "removed, the cell and its shadow cell: assumed to be aborted"
            return self._acts.act(table, which, [shadow, cell], goes, intent, finding)
        except StorageError as error:
            return left(finding, str(error))

    def _beside(self, table: str, shadow: Cell) -> dict[tuple[bytes, bytes], bytes]:
        """Return what a row holds of the version of a shadow cell, by column."""
        qualifier = data_qualifier(shadow.qualifier)
        names = (qualifier, shadow_qualifier(qualifier), qualifier + SHADOW_SUFFIX)
        (cells,) = self._store.get(
            table,
            [shadow.row],
            columns=[(shadow.family, name) for name in names],
            min_version=shadow.version,
            max_version=shadow.version + 1,
        )
        return {(cell.family, cell.qualifier): cell.value for cell in cells}

    def _judge(self, shadow: Cell, beside: Mapping[tuple[bytes, bytes], bytes]) -> Judged:
        """Find out when the transaction of a shadow cell has committed."""
        for (_, qualifier), value in beside.items():
            if is_shadow_qualifier(qualifier) and self._is_commit(value, shadow.version):
                told = Timestamp(int.from_bytes(value))
                return Judged(told, "its shadow cell in the other form says")
        if self._plain.contains(shadow.version):
            return Judged(None, "")
        return self._commit_of(Timestamp(base(shadow.version)))

    def _commit_of(self, start_ts: Timestamp) -> Judged:
        """Find out when a transaction has committed."""
        # In this order: the entry goes once the last shadow cell is there, as for every reader.
        row = self._commit_table.look_up([start_ts])[start_ts]
        if isinstance(row.entry, int):
            return Judged(Timestamp(row.entry), "its commit entry says")
        seen = inspect(self._store, start_ts, tables=self._listed)
        if seen.cell_count > len(seen.cells):
            return Judged(None, "", f"transaction {start_ts} has {seen.cell_count} cells: too many")
        told = {found.commit_ts for found in seen.cells if self._speaks_for_all(found)}
        unhealed = [found for found in seen.cells if found.commit_ts is None]
        if len(told) > 1:
            complaint = f"shadow cells of transaction {start_ts} contradict each other"
            return Judged(None, "", complaint)
        if told:
            return Judged(told.pop(), "another of its shadow cells says", row.complaint, unhealed)
        return Judged(None, "", row.complaint, unhealed)

    def _heal(self, unhealed: Iterable[FoundCell], commit_ts: Timestamp) -> None:
        """Write the shadow cells of other cells of a transaction of which no entry is there.

        Else it would be committed in part: a compaction finds no reason to keep those.  One whose
        own shadow cell is malformed is a finding of its own.

        Raises:
            StorageError: a table is another one than was listed, so that it need not be ours.

        Cost: 2 gets and 1 durable write each.
        """
        for found in unhealed:
            table, cell = found.table, found.cell
            shadow = Cell(cell.row, *shadow_column(cell), cell.version, encode_long(commit_ts))
            if len(self._beside(table, shadow)) == 1:
                # Right before the write: to a table of the same name that was made meanwhile the
                # proof would be data (I9).
                if not self._is_as_listed(table):
                    raise StorageError(f"table {table}: {ANOTHER}")
                put = RowMutation(cell.row, puts=(Put(*shadow[1:]),))
                self._store.write({table: [put]}, durable=True)

    def _is_as_listed(self, table: str) -> bool:
        return is_same(self._store, table, self._listed[table])

    def _speaks_for_all(self, found: FoundCell) -> bool:
        """Say whether a cell's shadow cell tells when its whole transaction committed."""
        return (
            found.commit_ts is not None
            and found.commit_ts != found.cell.version
            and self._is_commit(encode_long(found.commit_ts), found.cell.version)
        )

    def _is_commit(self, value: bytes, version: int) -> bool:
        return len(value) == LONG_BYTES and version <= int.from_bytes(value) <= self._newest

    def _earliest(self, version: int) -> Timestamp:
        """Return what a cell of unknown commit is taken to have committed at."""
        if self._plain.contains(version):
            return Timestamp(version)
        # No other transaction has it, no version of this one is above it, and the one that wrote
        # the cell again has begun behind it: two that overlapped would have been in conflict.
        return Timestamp(base(version) + TIMESTAMP_STEP - 1)

    def _write_over(
        self,
        table: str,
        which: tuple[str, int],
        shadow: Cell,
        commit_ts: Timestamp,
        intent: str,
        finding: Finding,
    ) -> Finding | None:
        put = Put(*shadow[1:4], encode_long(commit_ts))
        return self._acts.act(
            table, which, [shadow], RowMutation(shadow.row, puts=(put,)), intent, finding
        )

    # -- entries -------------------------------------------------------------------------------

    def mend_entry(self, finding: Finding) -> Finding | None:
        """Mend a malformed commit entry; None if it is not what it was any more.

        Its transaction is as unknown as that of a malformed shadow cell, and is judged like it.
        What lies at a number that is no transaction's goes.
        """
        start_ts, table = Timestamp(finding.start_ts), self._commit_table.name
        row = commit_row(start_ts)
        try:
            which = self._acts.which(table)
            (cells,) = self._store.get(table, [row], columns=(COMMIT, INVALIDATION), max_versions=1)
            found = [cell for cell in cells if cell.qualifier == COMMIT.qualifier]
            if start_ts % TIMESTAMP_STEP:
                goes = RowMutation(row, deletes=[DeleteVersion(*cell[1:4]) for cell in cells])
                intent = "removed: it is no transaction's"
                return self._acts.act(table, which, cells, goes, intent, finding) if cells else None
            if not found or len(cells) > 1:
                return None
            (bad,) = found
            judged = self._commit_of(start_ts)
            commit_ts, ground = judged.commit_ts, judged.ground
            if commit_ts is None and self._assume is Assumption.COMMITTED:
                commit_ts, ground = self._earliest(start_ts), "is assumed"
            if commit_ts is not None:
                put = Put(*bad[1:4], encode_commit(start_ts, commit_ts))
                intent = f"written over with the commit {commit_ts}, which {ground}"
            elif self._assume is Assumption.ABORTED:
                put = Put(*INVALIDATION, start_ts, INVALIDATION_VALUE)
                intent = "invalidated, since it is assumed to be aborted"
            else:
                return left(finding, ASSUME.format(start_ts=start_ts))
            return self._acts.act(
                table, which, [bad], RowMutation(row, puts=(put,)), intent, finding
            )
        except StorageError as error:
            return left(finding, str(error))

    # -- facts ---------------------------------------------------------------------------------

    def mend_fact(self, finding: Finding) -> Finding | None:
        """Remove a malformed fact that counts for nothing; leave one that means something."""
        row = bytes.fromhex(finding.row)
        if not row.startswith(PROVES_NOTHING):
            return finding
        raw = ControlTable(self._store).read(row)
        if raw is None:
            return None
        fact = Cell(row, *VALUE, FIXED_VERSION, raw)
        goes = RowMutation(row, deletes=(DeleteVersion(*fact[1:4]),))
        try:
            which = self._acts.which(CONTROL_TABLE)
            return self._acts.act(CONTROL_TABLE, which, [fact], goes, "removed", finding)
        except StorageError as error:
            return left(finding, str(error))
