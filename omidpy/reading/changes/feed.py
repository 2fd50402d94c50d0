"""All changes between two offsets, in the order of commits: the state at the first, if asked for.

The feed is an iterator that knows how far it has come.  Its offset is one number, which is all that
its consumer must remember.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, Self

from omidpy.base.callers.alone import Alone
from omidpy.base.timing.clock import Clock
from omidpy.base.timing.pauses import Pauses
from omidpy.base.words.arguments import check_number
from omidpy.errors import StorageError, UsageError
from omidpy.model import Change, ChangeKind, Timestamp, base
from omidpy.oracle.base import Begun, Oracle
from omidpy.reading.changes.change import order
from omidpy.reading.changes.ordering import COMMIT_TS, SortedChanges, cut, value_bytes
from omidpy.reading.changes.window import Window, WindowReader, refuse_removed
from omidpy.reading.snapshot import SnapshotReader
from omidpy.reading.visibility import cells_of

MOST_COMMITS: Final = 1_000_000
"""Whose changes are counted at the same time."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0


class ChangeFeed(Iterator[Change], Alone):
    """What `tm.changes` returns: iterate over it once, and keep its `offset`.

    One that has failed does not end: each further change that is asked for is a `StorageError`.

    Attributes:
        since: Where it begins.
        until: Where it ends.
    """

    _instead = "keep its offset, and go on from there with another one: tm.changes(since=offset)"

    def __init__(
        self,
        reader: SnapshotReader,
        begun: Begun,
        window: Window,
        *,
        with_changes: bool,
        with_snapshot: bool,
    ) -> None:
        """Prepare to read; nothing is, before the first change is asked for.

        Args:
            reader: Of the store.
            begun: What the oracle answered, for this feed.
            window: What to read; it ends at or below the start timestamp of `begun`.
            with_changes: Whether to yield them, behind the snapshot.
            with_snapshot: Whether to yield the state at `window.since` before.
        """
        self.since = Timestamp(window.since)
        self.until = Timestamp(window.until)
        self._reader = reader
        self._begun = begun
        self._window = window
        self._offset: Timestamp | None = None if with_snapshot else Timestamp(window.since)
        self._sorted = SortedChanges()
        self._with_changes = with_changes
        self._with_snapshot = with_snapshot
        self._changes = self._one_by_one()
        self._has_ended = False
        """Whether all was yielded, or the feed closed."""

    @property
    def offset(self) -> Timestamp | None:
        """Everything that was committed up to here has been yielded, and nothing of it is missing.

        Where to go on, as `since` of another feed.  None while the state at the beginning is not
        yielded whole; `until` at the end.  In the middle of a commit it is still the one before.
        """
        return self._offset

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        try:
            return next(self._changes)
        except StopIteration:
            if self._has_ended:
                raise
        # A loop over what is left of it would end as if that were all.
        raise StorageError(
            f"this feed of table {self._window.table!r} has failed before, or was interrupted, and "
            f"changes are missing behind {self._offset}; go on from its offset with another one"
        )

    def check_horizon(self) -> None:
        """Raise at once what the first change would, where some may have been collected.

        Raises:
            SnapshotTooOld: see `TransactionManager.changes`.

        Cost: 1 get.
        """
        self._windows().check_horizon(self._window)

    def is_empty(self) -> bool:
        """Say whether nothing has changed in between; the feed stays where it is.

        Raises:
            SnapshotTooOld: something that has may have been collected.

        Cost: a scan as the feed's own, up to the first page that has a change.
        """
        return not any(self._windows().scan(self._window))

    def cuts(self, most_changes: int) -> list[Timestamp]:
        """Return where to cut the window, so that no piece has more changes than that.

        A transaction is not cut: one that is larger is a piece by itself.  The last cut is `until`,
        or below it where there are too many commits to remember.  The feed stays where it is.

        Raises:
            SnapshotTooOld: something may have been collected.

        Cost: a scan as the feed's own, and the memory of `MOST_COMMITS` numbers.
        """
        counts: dict[Timestamp, int] = {}
        end = self.until
        for page in self._windows().scan(replace(self._window, with_old=False)):
            for at, count in Counter(map(COMMIT_TS, page)).items():
                if at <= end:
                    counts[at] = counts.get(at, 0) + count
            if len(counts) > MOST_COMMITS:
                kept = sorted(counts)[: MOST_COMMITS // 2]
                counts, end = {at: counts[at] for at in kept}, kept[-1]
        cuts: list[Timestamp] = []
        taken, last = 0, self.since
        for at in sorted(counts):
            if taken and taken + counts[at] > most_changes:
                cuts.append(last)
                taken = 0
            taken, last = taken + counts[at], at
        return [*cuts, end]

    def _windows(self) -> WindowReader:
        return WindowReader(self._reader, self._reader.open(self._begun, asked_s=None))

    def pages(self, *, most_changes: int, most_bytes: int) -> Generator[list[Change], None, None]:
        """Yield the changes many at a time, in place of one by one.

        The feed has no offset before the last page.

        Args:
            most_changes: In a page.
            most_bytes: Of its values, unless one change has more.
        """
        held: list[Change] = []
        size_bytes = 0
        with closing(self._read()) as pages:
            for page in pages:
                held += page
                size_bytes += value_bytes(page)
                if len(held) >= most_changes or size_bytes >= most_bytes:
                    yield from cut(held, most_changes=most_changes, most_bytes=most_bytes)
                    held, size_bytes = [], 0
        yield from cut(held, most_changes=most_changes, most_bytes=most_bytes)
        self._offset = self.until

    def close(self) -> None:
        """Free what the feed holds; one that is iterated to its end holds nothing."""
        self._has_ended = True
        self._changes.close()
        self._sorted.close()

    def _one_by_one(self) -> Generator[Change, None, None]:
        if self._with_snapshot:
            for page in self._state():
                yield from page
            self._offset = Timestamp(self._window.since)
        last: Timestamp | None = None
        for page in self._ordered() if self._with_changes else ():
            for change in page:
                if change.commit_ts != last:
                    self._offset = self._offset if last is None else last
                    last = change.commit_ts
                yield change
        self._offset = self.until
        self._has_ended = True

    def _read(self) -> Generator[list[Change], None, None]:
        if self._with_snapshot:
            yield from self._state()
        if self._with_changes:
            yield from self._ordered()

    def _state(self) -> Iterator[list[Change]]:
        """Yield what a snapshot sees to which the offset belongs, in the order of rows."""
        window = self._window
        at = Timestamp(window.since + 1)
        snapshot = self._reader.open(self._begun, asked_s=None, at=at)
        snapshot.spans_tables = window.spans_tables
        self._check_table()
        for page in snapshot.scan(
            window.table, window.key_range, window.columns, incarnation=window.incarnation
        ):
            found: list[Change] = []
            for row, seen in page:
                for cell, commit_ts in cells_of(seen):
                    column = cell.family + b":" + cell.qualifier
                    start_ts = base(cell.version)
                    found.append(
                        Change(row, column, cell.value, ChangeKind.SNAPSHOT, start_ts, commit_ts)
                    )
            yield found
        self._check_table()

    def _check_table(self) -> None:
        """Raise `SnapshotTooOld` if the state was that of an earlier table.  Cost: 1 get."""
        window = self._window
        if not window.spans_tables:
            at_ts = self._reader.removals.behind(window.table, Timestamp(window.since))
            refuse_removed(window, at_ts)

    def _ordered(self) -> Iterator[list[Change]]:
        for page in self._windows().scan(self._window):
            self._sorted.add(page)
        yield from self._sorted.drain()


@dataclass
class RowWatch:
    """Looks, time and again, whether a row has changed."""

    reader: SnapshotReader
    oracle: Oracle
    clock: Clock
    row: bytes
    window: Window
    """What has been seen up to now: its `until` means nothing."""
    timeout_s: float | None
    """None: for ever."""

    def __post_init__(self) -> None:
        """Begin to count the time, and refuse a wait of less than none."""
        timeout_s = self.timeout_s
        if timeout_s is not None and not check_number("timeout_s", timeout_s) >= 0:  # nor NaN
            raise UsageError(f"timeout_s must not be negative, but is {self.timeout_s!r}")
        self._begun_s = self.clock.monotonic_s()
        self._pauses = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S, at_least=0.5)

    def look(self) -> Sequence[Change]:
        """Return what has changed since the last look, in order.

        Raises:
            SnapshotTooOld: some changes may have been collected.

        Cost: 1 oracle round trip, 2 gets; see `WindowReader.row`.
        """
        begun = self.oracle.begin()
        snapshot = self.reader.open(begun, asked_s=None)
        window = replace(self.window, until=begun.start_ts)
        found = WindowReader(self.reader, snapshot).row(self.row, window)
        # What is decided from here on is committed above this, and began above the low watermark
        # that was the oracle's when it answered.
        self.window = replace(window, since=begun.start_ts, low_watermark=begun.low_watermark)
        return sorted(found, key=order)

    def pause_s(self) -> float | None:
        """Return the seconds until the next look; None: the time is over."""
        pause_s = self._pauses.next_s()
        if self.timeout_s is None:
            return pause_s
        remaining_s = self.timeout_s - (self.clock.monotonic_s() - self._begun_s)
        return min(pause_s, remaining_s) if remaining_s > 0 else None
