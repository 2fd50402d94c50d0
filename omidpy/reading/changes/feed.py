"""All changes between two offsets, in the order of commits: the state at the first, if asked for.

The feed is an iterator that knows how far it has come.  Its offset is one number, which is all that
its consumer must remember.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from omidpy.base.clock import Clock
from omidpy.base.pauses import Pauses
from omidpy.errors import UsageError
from omidpy.model import Timestamp, base
from omidpy.oracle.base import Begun, Oracle
from omidpy.reading.changes.change import Change, ChangeKind, order
from omidpy.reading.changes.ordering import SortedChanges
from omidpy.reading.changes.window import Window, WindowReader
from omidpy.reading.snapshot import SnapshotReader
from omidpy.reading.visibility import cells_of

MOST_COMMITS: Final = 1_000_000
"""Whose changes are counted at the same time."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0


class ChangeFeed(Iterator[Change]):
    """What `tm.changes` returns: iterate over it once, and keep its `offset`.

    Attributes:
        since: Where it begins.
        until: Where it ends.
    """

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
        self._changes = self._read(with_changes=with_changes, with_snapshot=with_snapshot)

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
        return next(self._changes)

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
        return not any(True for _ in self._windows().scan(self._window))

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
        for change in self._windows().scan(replace(self._window, with_old=False)):
            if change.commit_ts > end:
                continue
            counts[change.commit_ts] = counts.get(change.commit_ts, 0) + 1
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

    def close(self) -> None:
        """Free what the feed holds; one that is iterated to its end holds nothing."""
        self._changes.close()
        self._sorted.close()

    def _read(self, *, with_changes: bool, with_snapshot: bool) -> Generator[Change, None, None]:
        if with_snapshot:
            yield from self._state()
            self._offset = Timestamp(self._window.since)
        if with_changes:
            yield from self._ordered()
        self._offset = self.until

    def _state(self) -> Iterator[Change]:
        """Yield what a snapshot sees to which the offset belongs, in the order of rows."""
        window = self._window
        at = Timestamp(window.since + 1)
        snapshot = self._reader.open(self._begun, asked_s=None, at=at)
        for page in snapshot.scan(window.table, window.key_range, window.columns):
            for row, seen in page:
                for cell, commit_ts in cells_of(seen):
                    column = cell.family + b":" + cell.qualifier
                    start_ts = base(cell.version)
                    yield Change(row, column, cell.value, ChangeKind.SNAPSHOT, start_ts, commit_ts)

    def _ordered(self) -> Iterator[Change]:
        for change in self._windows().scan(self._window):
            self._sorted.add(change)
        last: Timestamp | None = None
        for change in self._sorted.drain():
            if change.commit_ts != last:
                self._offset = self._offset if last is None else last
                last = change.commit_ts
            yield change


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
        if self.timeout_s is not None and self.timeout_s < 0:
            raise UsageError(f"timeout_s must not be negative, but is {self.timeout_s}")
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
