"""Did this transaction commit?  Omid's commit table, its schema and bytes untouched.

A transaction's row holds `C` (it committed, and when) or `IT` (invalidated: it never will), and
`IT` wins where both stand.  The row is the instant of commit: `C` is durable before the client
hears of it, and it goes once every cell of the transaction has its shadow cell.

What this module deliberately lacks: writing `C`.  Only the oracle does that, in
`tso/durable/persist.py`.

Source: Omid's HBaseCommitTable; unlike it, a row is never deleted whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from omidpy.base.cells import (
    INVALIDATION_VALUE,
    LOW_WATERMARK_ROW,
    commit_bucket_rows,
    commit_row,
    decode_commit,
    start_ts_of_commit_row,
)
from omidpy.base.commit_facts import INVALID, CommitEntry
from omidpy.base.tables import ONE_VERSION
from omidpy.errors import ConfigError, CorruptCell, NoSuchTable
from omidpy.facts.control import ControlTable, create_absent, decode_bound
from omidpy.model import (
    MAX_VERSION,
    TIMESTAMP_STEP,
    Cell,
    Column,
    FamilySchema,
    KeyRange,
    TableSchema,
    Timestamp,
    base,
)
from omidpy.storage.base import (
    Condition,
    DeleteVersion,
    GuardedMutation,
    Put,
    RowMutation,
    Store,
)

COMMIT_TABLE: Final = "OMID_COMMIT_TABLE"
TIMESTAMP_TABLE: Final = "OMID_TIMESTAMP_TABLE"
COMMIT: Final = Column(b"F", b"C")
INVALIDATION: Final = Column(b"F", b"IT")
LOW_WATERMARK: Final = Column(b"LWF", b"LWC")
TIMESTAMP_CEILING_ROW: Final = b"MAX_TIMESTAMP_R"
TIMESTAMP_CEILING: Final = Column(b"MAX_TIMESTAMP_CF", b"MAX_TIMESTAMP_Q")

COMMIT_TABLE_SPLITS: Final = tuple(
    (number * 0xF8).to_bytes(2) + bytes(7) for number in range(1, 16)
)
"""Where the 16 regions of the commit table meet in a store of many machines, as Omid's tool has it.
"""

LOW_WATERMARK_FACT: Final = b"low-watermark"
EPOCH_FACT: Final = b"epoch"
FIRST_TIMESTAMP_FACT: Final = b"first-timestamp"
ADOPTED_CEILING_FACT: Final = b"adopted-ceiling"
"""The ceiling that Omid's oracle had left when ours first started; absent on a store of ours."""


class EntryRow(NamedTuple):
    """A row of the commit table as `CommitTable.scan` yields it."""

    start_ts: Timestamp
    entry: CommitEntry
    complaint: str = ""
    """Why the row says nothing: then `entry` is None, which must not be taken for no entry."""


def create_system_tables(store: Store) -> None:
    """Create Omid's two tables and our own; those that exist are left alone.

    A caller that does so is about to decide transactions, or to let an oracle do so.

    Raises:
        ConfigError: an oracle could not work on this store.
    """
    if not store.capabilities.checked_changes:
        raise ConfigError(
            f"{store.url} can neither be set up nor have its oracle there: the gateway cannot "
            "check a change.  Run `omidpy init` and `tso-server` with --store hbase+thrift2://..., "
            "and give clients its address with tso="
        )
    ControlTable(store).create()
    commits, low_watermark, ceiling = (
        FamilySchema(column.family, ONE_VERSION)
        for column in (COMMIT, LOW_WATERMARK, TIMESTAMP_CEILING)
    )
    # In one file regions would only cut the scans of the commit table into pieces.
    splits = COMMIT_TABLE_SPLITS if store.capabilities.remote else ()
    for schema, regions_meet_at in (
        (TableSchema(COMMIT_TABLE, (commits, low_watermark)), splits),
        (TableSchema(TIMESTAMP_TABLE, (ceiling,)), ()),
    ):
        create_absent(store, schema, splits=regions_meet_at)


class CommitTable:
    """Reads, invalidates and completes commit entries.  Safe to share among threads."""

    def __init__(
        self, store: Store, name: str = COMMIT_TABLE, *, newest: int = MAX_VERSION
    ) -> None:
        """Read entries of `store`.

        Args:
            store: Where the table is.
            name: Its name.
            newest: No commit timestamp can be above it, so that an entry which says so is
                malformed.
        """
        self.name = name
        self.is_remote = store.capabilities.remote
        self._store = store
        self._newest = newest

    def read(self, start_timestamps: Collection[Timestamp]) -> dict[Timestamp, CommitEntry]:
        """Return the entry of each transaction.

        Raises:
            CorruptCell: one of them is malformed; whatever it was meant to say, that is not known.

        Cost: 1 get for all of them.
        """
        wanted = [base(start_ts) for start_ts in start_timestamps]
        rows = self._store.get(
            self.name,
            [commit_row(start_ts) for start_ts in wanted],
            columns=(COMMIT, INVALIDATION),
            max_versions=1,
        )
        return {
            start_ts: _entry(start_ts, cells, self._newest).entry
            for start_ts, cells in zip(wanted, rows, strict=True)
        }

    def look_up(self, start_timestamps: Collection[Timestamp]) -> dict[Timestamp, EntryRow]:
        """Return the row of each transaction; a malformed one has a complaint.  Cost: 1 get."""
        wanted = list(dict.fromkeys(base(start_ts) for start_ts in start_timestamps))
        rows = self._store.get(
            self.name,
            [commit_row(start_ts) for start_ts in wanted],
            columns=(COMMIT, INVALIDATION),
            max_versions=1,
        )
        return {
            start_ts: self._entry_or_complaint(start_ts, cells)
            for start_ts, cells in zip(wanted, rows, strict=True)
        }

    def invalidate(self, start_ts: Timestamp) -> bool:
        """Forbid the commit of a transaction that has no commit entry; durable on return.

        Returns:
            True if the invalidation stands, also where it stood before; False if a commit was
            first.  On HBase a delete marker may hide it, so that the caller must read the shadow
            cell once more.
        """
        start_ts = base(start_ts)
        row = commit_row(start_ts)
        put = Put(INVALIDATION.family, INVALIDATION.qualifier, start_ts, INVALIDATION_VALUE)
        # On condition that no commit is there, as a commit is on that of no invalidation: the first
        # of the two has decided, and the other writes nothing (I8, I9).
        return self._store.check_and_mutate(
            self.name, row, COMMIT, None, RowMutation(row, puts=(put,)), durable=True
        )

    def invalidate_all(self, start_timestamps: Collection[Timestamp]) -> dict[Timestamp, bool]:
        """Forbid the commits of several transactions, as `invalidate` does with each.

        Cost: 1 durable write for all where the store has guarded batches, else 1 for each.
        """
        wanted = list(dict.fromkeys(base(start_ts) for start_ts in start_timestamps))
        if len(wanted) < 2 or not self._store.capabilities.guarded_batches:
            return {start_ts: self.invalidate(start_ts) for start_ts in wanted}
        mutations = []
        for start_ts in wanted:
            row = commit_row(start_ts)
            put = Put(INVALIDATION.family, INVALIDATION.qualifier, start_ts, INVALIDATION_VALUE)
            undecided = Condition(self.name, row, COMMIT, None)
            mutations.append(GuardedMutation(self.name, RowMutation(row, (put,)), undecided))
        applied = self._store.write_guarded(mutations, durable=True)
        assert applied is not None, "without a guard a batch is applied"
        return dict(zip(wanted, applied, strict=True))

    def undo_invalidation(self, start_ts: Timestamp) -> bool:
        """Remove an invalidation that a shadow cell proves false: the column `IT` alone."""
        start_ts = base(start_ts)
        row = commit_row(start_ts)
        delete = DeleteVersion(INVALIDATION.family, INVALIDATION.qualifier, start_ts)
        mutation = RowMutation(row, deletes=(delete,))
        if not self._store.capabilities.checked_changes:
            # It is false from any writer, now or later: nothing needs to be checked.
            self._store.write({self.name: [mutation]})
            return True
        return self._store.check_and_mutate(
            self.name, row, INVALIDATION, INVALIDATION_VALUE, mutation
        )

    def complete(self, start_timestamps: Collection[Timestamp]) -> None:
        """Remove the entries of transactions all of whose shadow cells are acknowledged."""
        self._store.write({self.name: [_completion(start_ts) for start_ts in start_timestamps]})

    def forget(self, rows: Iterable[EntryRow], *, only_if: Condition | None = None) -> bool:
        """Remove entries of transactions that no cell needs any more, unasked and in one batch.

        A commit is immutable once it was decided, and one that is gone by now is not missed, so
        that there is nothing to compare it with.  What goes is what was read: of a commit the
        column `C` alone, so that an invalidation which came meanwhile stays.  Of an invalidation
        both columns, in one row mutation: with `IT` gone, a commit that came meanwhile would stand
        alone, and commit what was forbidden.

        Args:
            rows: What was read.
            only_if: Who may do this, still.  It is looked at in the same transaction where the
                store has those; elsewhere right before, so that a caller who is stopped in between
                goes on when he wakes up.

        Returns:
            False if `only_if` does not hold, and nothing was removed.

        Raises:
            StorageError: any of them may be gone.

        Cost: 1 write; with `only_if`, where there are no guarded batches, 1 get before it.
        """
        removals = [_removal(row) for row in rows]
        if only_if is not None and self._store.capabilities.guarded_batches:
            guarded = [GuardedMutation(self.name, removal) for removal in removals]
            return self._store.write_guarded(guarded, guard=only_if) is not None
        if only_if is not None:
            table, row, column, expected = only_if
            (cells,) = self._store.get(table, (row,), columns=(column,), max_versions=1)
            if (cells[0].value if cells else None) != expected:
                return False
        self._store.write({self.name: removals})
        return True

    def scan(self, *, below: int = 2**63 - 1, page_rows: int = 1000) -> Iterator[list[EntryRow]]:
        """Yield pages of the entries with start_ts < `below`, bucket by bucket."""
        for bucket in buckets(below):
            yield from self.scan_bucket(bucket, page_rows=page_rows)

    def scan_bucket(
        self, bucket: KeyRange, *, reverse: bool = False, page_rows: int = 1000
    ) -> Iterator[list[EntryRow]]:
        """Yield pages of the entries of (a part of) one of `buckets`, by start_ts.

        A malformed one has a complaint.
        """
        for page in self._store.scan(
            self.name,
            bucket,
            # HBase looks for each column that is named; whole families it reads a tenth faster.
            columns=((COMMIT.family, None),),
            max_versions=1,
            reverse=reverse,
            page_rows=page_rows,
        ):
            entries = []
            for cells in page:
                start_ts = start_ts_of_commit_row(cells[0].row)
                if start_ts is not None:
                    entries.append(self._entry_or_complaint(start_ts, cells))
            # What has neither column of ours is no entry.
            entries = [one for one in entries if one.entry is not None or one.complaint]
            if entries:
                yield entries

    def newest_in(self, bucket: KeyRange) -> EntryRow | None:
        """Return the last entry of one of `buckets`; None if it has none.

        Cost: 1 short scan.
        """
        pages = self._store.scan(
            self.name,
            bucket,
            columns=(COMMIT, INVALIDATION),
            max_versions=1,
            reverse=True,
            page_rows=1,
        )
        for page in pages:
            start_ts = start_ts_of_commit_row(page[0][0].row)
            return None if start_ts is None else self._entry_or_complaint(start_ts, page[0])
        return None

    def has_rows(self) -> bool:
        """Say whether there is any row: Omid's oracle writes its low watermark when it starts."""
        return any(True for _ in self._store.scan(self.name, page_rows=1))

    def _entry_or_complaint(self, start_ts: Timestamp, cells: list[Cell]) -> EntryRow:
        if start_ts % TIMESTAMP_STEP:
            return EntryRow(start_ts, None, f"start_ts {start_ts} is no transaction's")
        try:
            return _entry(start_ts, cells, self._newest)
        except CorruptCell as error:
            return EntryRow(start_ts, None, str(error))


def buckets(below: int, *, first: int = 0) -> list[KeyRange]:
    """Return the rows of every start_ts in [first, below), in the ranges in which they lie."""
    return [KeyRange(low, high) for low, high in commit_bucket_rows(below, from_ts=first)]


class LowWatermark(NamedTuple):
    """The low watermark of the oracle that leads."""

    value: Timestamp
    is_omids: bool
    """Whether that is Omid's: no oracle of ours has led, or one of Omid's has taken over since."""


def read_leading_low_watermark(store: Store) -> LowWatermark:
    """Return the greater of two: ours, a fact of the control table, and Omid's own row.

    An oracle that takes over begins with a low watermark above all that was issued before, so the
    greater is that of the oracle which took over last.  Our oracle keeps its own at or above Omid's
    row: it reads the row when it starts, and never writes it.

    Both stay true for ever: what cannot commit by the one does not come to commit by the other.

    Cost: 2 gets.
    """
    try:
        ours = ControlTable(store).read_number(LOW_WATERMARK_FACT)
    except NoSuchTable:
        ours = None
    omids = read_java_low_watermark(store)
    return LowWatermark(max(ours or Timestamp(0), omids), omids > (ours or 0))


def read_low_watermark(store: Store) -> Timestamp:
    """Return the oracle's low watermark: durably, no start_ts at or below it can commit.

    Cost: 2 gets.
    """
    return read_leading_low_watermark(store).value


def read_java_low_watermark(store: Store, table: str = COMMIT_TABLE) -> Timestamp:
    """Return the low watermark that Omid's clients and coprocessors read; 0 if it was never set."""
    cells = store.get(table, (LOW_WATERMARK_ROW,), columns=(LOW_WATERMARK,), max_versions=1)[0]
    if not cells:
        return Timestamp(0)
    return decode_bound(cells[0].value, what=f"{table} row {LOW_WATERMARK_ROW!r}")


def read_timestamp_ceiling(store: Store) -> Timestamp | None:
    """Return the durable bound that no oracle has issued a timestamp above; None if none is there.

    Omid keeps it elsewhere unless it is told otherwise.
    """
    try:
        row = (TIMESTAMP_CEILING_ROW,)
        cells = store.get(TIMESTAMP_TABLE, row, columns=(TIMESTAMP_CEILING,), max_versions=1)[0]
    except NoSuchTable:
        return None
    if not cells:
        return None
    return decode_ceiling(cells[0].value)


def decode_ceiling(value: bytes) -> Timestamp:
    """Decode the durable bound.

    Raises:
        CorruptCell: naming its row, and what mends it.
    """
    return decode_bound(value, what=f"{TIMESTAMP_TABLE} row {TIMESTAMP_CEILING_ROW!r}")


def _removal(row: EntryRow) -> RowMutation:
    start_ts = row.start_ts
    commit = DeleteVersion(*COMMIT, start_ts)
    if row.entry is not INVALID:
        return RowMutation(commit_row(start_ts), (), (commit,))
    return RowMutation(commit_row(start_ts), (), (commit, DeleteVersion(*INVALIDATION, start_ts)))


def _completion(start_ts: Timestamp) -> RowMutation:
    delete = DeleteVersion(COMMIT.family, COMMIT.qualifier, base(start_ts))
    return RowMutation(commit_row(base(start_ts)), deletes=(delete,))


def _entry(start_ts: Timestamp, cells: list[Cell], newest: int) -> EntryRow:
    raw_commit = None
    is_invalid = False
    for cell in cells:
        if cell.qualifier == COMMIT.qualifier:
            raw_commit = cell.value
        elif cell.qualifier == INVALIDATION.qualifier:
            is_invalid = True
    if is_invalid:
        return EntryRow(start_ts, INVALID)
    commit_ts = None if raw_commit is None else decode_commit(start_ts, raw_commit)
    if commit_ts is not None and commit_ts > newest:
        raise CorruptCell(
            f"the commit entry of start_ts {start_ts}, row {commit_row(start_ts).hex()}, holds "
            f"{(raw_commit or b'').hex()}, a commit at {commit_ts}: no timestamp above {newest} "
            "was ever issued"
        )
    return EntryRow(start_ts, commit_ts)
