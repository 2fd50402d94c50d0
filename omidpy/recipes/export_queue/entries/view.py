"""What is in a bucket, as one snapshot sees it.

    X4 (watermark-first)  the low watermark is read before the snapshot is begun

A transaction that began at or below the watermark had committed before that was read, if it ever
did, and so below the snapshot, which sees it: what the snapshot does not see of such transactions
will never be there.  The other way round it might have committed in between, and been taken for
aborted.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from omidpy.errors import NoSuchQueue, NoSuchTable
from omidpy.reading.visibility import VisibleCell, cells_of
from omidpy.recipes.export_queue.entries.ordering import FoundEntry, Position
from omidpy.recipes.export_queue.entries.stored.layout import (
    BY_KEY,
    BY_TIME,
    COLUMN,
    FAMILY,
    MAX_BUCKETS,
    QUALIFIER,
    dead_range,
    kept_range,
    log_range,
    parse_dead_row,
    parse_keyed_row,
    parse_log_row,
)
from omidpy.recipes.export_queue.entries.stored.state import GENERATION

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.model import KeyRange
    from omidpy.tx.transaction import Transaction

PAGE_ROWS: Final = 1000


class DeadCell(NamedTuple):
    """A dead letter as a snapshot sees it."""

    position: Position
    start_ts: int
    row: bytes
    cell: bytes
    changed_ts: int
    """When it became what it is: the commit timestamp of its death, or of what was done to it."""


def _start_ts(found: FoundEntry) -> int:
    return found.start_ts


class View:
    """One snapshot of the table of a queue.  Belongs to one thread.

    Attributes:
        low_ts: No transaction that began at or below it, and that the snapshot does not see, will
            ever commit.
        start_ts: The snapshot.
    """

    def __init__(self, tm: TransactionManager, table: str, *, layout: str = BY_TIME) -> None:
        """Look now.

        Cost: 2 gets and 1 oracle round trip.
        """
        self.low_ts = tm.low_watermark()  # first (X4)
        self._tx: Transaction = tm.begin(read_only=True)
        self.start_ts = self._tx.start_ts
        self._table = table
        self._is_by_key = layout == BY_KEY
        self._in_store = tm.session.catalog.full_name(table)
        self._no_dead: range = range(0)
        """Buckets that have no dead letters, as a look has shown."""

    def log(
        self, bucket: int, *, from_ts: int = 0, to_ts: int | None = None
    ) -> Iterator[FoundEntry]:
        """Yield the entries of transactions that began in [from_ts, to_ts), in that order.

        In the layout `fluo` all of them, key by key, and those of each key in that order.
        """
        if self._is_by_key:
            from_ts, to_ts = 0, None
        parse = parse_keyed_row if self._is_by_key else parse_log_row
        key_range = (
            log_range(GENERATION, bucket, from_ts=from_ts)
            if to_ts is None
            else log_range(GENERATION, bucket, from_ts=from_ts, to_ts=to_ts)
        )
        for cell, commit_ts in self._scan(key_range):
            parsed = parse(cell.row)
            position = Position(commit_ts, parsed.ordinal)
            size_bytes = len(cell.row) + len(cell.value)
            yield FoundEntry(
                position, parsed.start_ts, cell.row, cell.value, size_bytes, cell.version
            )

    def dead(self, bucket: int) -> Iterator[DeadCell]:
        """Yield the dead letters of a bucket by position.

        Cost: 1 scan; where this bucket and those behind it have none, for all of them together.
        """
        if bucket in self._no_dead:
            return
        # Closed here: an interrupt that came where none waits for it would be lost.
        with closing(self._scan(dead_range(GENERATION, bucket), page_rows=1)) as found:
            first = next(found, None)
        next_bucket = MAX_BUCKETS if first is None else parse_dead_row(first.cell.row).bucket
        self._no_dead = range(bucket, next_bucket)
        if next_bucket != bucket:
            return
        for cell, commit_ts in self._scan(dead_range(GENERATION, bucket, to_bucket=bucket + 1)):
            parsed = parse_dead_row(cell.row)
            position = Position(parsed.commit_ts, parsed.ordinal)
            yield DeadCell(position, parsed.start_ts, cell.row, cell.value, commit_ts)

    def entries(
        self, bucket: int, *, from_ts: int, after: Position, replay_to: int
    ) -> Iterator[FoundEntry]:
        """Yield the entries of a bucket, and dead letters that are to be delivered again.

        Args:
            bucket: The number of the bucket.
            from_ts: Entries of transactions that began before are left out.
            after: Where the bucket stands; some that are not behind it are yielded as well.
            replay_to: The commit timestamp of the last such dead letter, at most.

        Returns:
            All in the order of `log`; dead letters without their content.
        """
        found = self.log(bucket, from_ts=from_ts)
        if replay_to <= after.commit_ts:
            return found
        again = [
            one._replace(content=None)
            for one in self.kept(bucket, from_ts=after.commit_ts, to_ts=replay_to + 1)
        ]
        again.sort(key=_start_ts)
        return heapq.merge(found, again, key=_start_ts)

    def kept(self, bucket: int, *, from_ts: int = 0, to_ts: int) -> Iterator[FoundEntry]:
        """Yield dead letters that were delivered and are kept, by position.

        Args:
            bucket: The number of the bucket.
            from_ts: What committed before is left out.
            to_ts: What committed then, or later, is left out.
        """
        key_range = kept_range(GENERATION, bucket, from_ts=from_ts, to_ts=to_ts)
        for cell, _ in self._scan(key_range):
            parsed = parse_dead_row(cell.row)
            position = Position(parsed.commit_ts, parsed.ordinal)
            size_bytes = len(cell.row) + len(cell.value)
            yield FoundEntry(
                position, parsed.start_ts, cell.row, cell.value, size_bytes, cell.version
            )

    def contents(self, rows: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cells of rows that are still there."""
        with table_of_queue():
            table = self._tx.table(self._table)
            return {row: data[COLUMN] for row, data in table.rows(rows, columns=[COLUMN])}

    def _scan(
        self, key_range: KeyRange, *, page_rows: int = PAGE_ROWS
    ) -> Generator[VisibleCell, None, None]:
        with table_of_queue():
            for page in self._tx.snapshot.scan(
                self._in_store, key_range, ((FAMILY, QUALIFIER),), page_rows=page_rows
            ):
                for _, seen in page:
                    yield from cells_of(seen)


@contextmanager
def table_of_queue() -> Iterator[None]:
    """Say of a queue's table that is gone what has become of the queue, and not how it is made.

    Raises:
        NoSuchQueue: it is gone.
    """
    try:
        yield
    except NoSuchTable as error:
        raise NoSuchQueue(
            f"the queue was dropped, or got other buckets just now; begin again: {error}"
        ) from error
