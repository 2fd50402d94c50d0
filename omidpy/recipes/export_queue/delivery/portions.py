"""All buckets of a queue in the hands of one process, which has others read them for it.

A portion is what was committed in [start_ts, end_ts), of one bucket.  Commit timestamps are a
closed order: where `end_ts` is at most a snapshot's timestamp nothing more will ever be committed
below it, so that a portion holds the same entries whenever it is read, by whomever, until it is
acknowledged.

So one number says how far a reader has come.  A reader that keeps that number together with what he
made of the entries has each of them exactly once.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from omidpy.base.words.durations import check_seconds, check_waits
from omidpy.errors import ConfigError, ExportError
from omidpy.recipes.export_queue.delivery.crew import LEASE_S, BucketLease, Crew
from omidpy.recipes.export_queue.entries.acknowledgement import remove
from omidpy.recipes.export_queue.entries.ordering import FoundEntry, Position, Window
from omidpy.recipes.export_queue.entries.stored.layout import BY_TIME, Content, decode_content
from omidpy.recipes.export_queue.entries.stored.state import Places, table_name
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.upkeep.finishing import Finisher
from omidpy.recipes.export_queue.upkeep.making import check_going, check_store, find

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager

PAGE_ENTRIES: Final = 1000
PAGE_BYTES: Final = 1 << 20
HOLD_BYTES: Final = 8 * PAGE_BYTES
LOOK_EVERY_S: Final = 0.2
NOTED_ENTRIES: Final = 100_000
NO_LIMIT: Final = 2**62


class Portion(NamedTuple):
    """What of one bucket was committed in a span of time."""

    queue_id: str
    number: int
    """Of the queue's table."""
    bucket: int
    fence: int
    scan_from: int
    after: Position
    end_ts: int
    replay_to: int = 0


class Possession:
    """All buckets of a queue, until it is closed.  One thread at a time.

    While it lasts no exporter has the queue.
    """

    def __init__(
        self,
        tm: TransactionManager,
        queue_id: str,
        *,
        lease_s: float = LEASE_S,
        wait_s: float | None = None,
    ) -> None:
        """Take the buckets.

        Args:
            tm: The manager.
            queue_id: The queue.
            lease_s: How long others wait before they take what a dead process had.
            wait_s: How long to wait for buckets that others have, since they may be dead.  None:
                until that is sure.

        Raises:
            NoSuchQueue: there is no such queue.
            ConfigError: its layout is another one.
            ExportError: another process exports it, or it is paused, or dead letters stand before
                what is to come.
        """
        check_seconds(lease_s=lease_s)
        check_waits(wait_s=wait_s)
        check_store(tm)
        self._tm = tm
        self._places = Places.of(tm.session.catalog, queue_id)
        self._definition = find(tm, self._places)
        check_going(self._places, self._definition)
        if self._definition.layout != BY_TIME:
            raise ConfigError(
                f"the queue {queue_id!r} has the layout {self._definition.layout!r}, whose entries "
                f"are not in the order of time; portions need {BY_TIME!r}"
            )
        self._table = table_name(queue_id, self._definition.number)
        self._crew = Crew(tm, self._places, self._definition, lease_s=lease_s)
        self._finisher = Finisher(tm, self._places)
        try:
            self._take(1.5 * lease_s if wait_s is None else wait_s)
            self._refuse_dead_letters()
        except BaseException:
            self.close()
            raise

    @property
    def beginning_ts(self) -> int:
        """The start of a reader who has read nothing: each bucket from where it stands."""
        return 0

    @property
    def codec(self) -> str:
        """The name of the queue's codec."""
        return self._definition.codec

    def snapshot_ts(self) -> int:
        """Return a timestamp below which nothing more will be committed."""
        self._check()
        return View(self._tm, self._table).start_ts

    def next_end(self, start_ts: int, *, max_entries: int | None = None) -> int | None:
        """Return where a portion that begins at `start_ts` ends; None: nothing is there.

        Args:
            start_ts: Where the last one ended.
            max_entries: So many it holds at most, unless one transaction has more.

        Raises:
            ExportError: another reader has delivered some of what is behind `start_ts`.
        """
        self._check()
        self._refuse_gap(start_ts)
        view = View(self._tm, self._table)
        count, first_ts = 0, None
        for commit_ts in heapq.merge(
            *(self._commits(view, lease, start_ts) for lease in self._leases())
        ):
            first_ts = commit_ts if first_ts is None else first_ts
            count += 1
            if max_entries is None:
                break
            if count > max_entries and commit_ts != first_ts:
                return commit_ts
        return view.start_ts if count else None

    def portions(self, start_ts: int, end_ts: int) -> list[Portion]:
        """Return what was committed in [start_ts, end_ts), by bucket.

        Raises:
            ExportError: another reader has delivered some of it meanwhile.
        """
        self._check()
        self._refuse_gap(start_ts)
        found = []
        for lease in self._leases():
            state = lease.state
            found.append(
                Portion(
                    self._places.queue_id,
                    self._definition.number,
                    lease.bucket,
                    lease.fence,
                    state.scan_from,
                    _after(lease, start_ts),
                    end_ts,
                    state.replay_to,
                )
            )
        return found

    def acknowledge(self, end_ts: int) -> None:
        """Remove what was committed below `end_ts`: it is durable elsewhere (X6).

        Raises:
            BucketLost: a bucket is in other hands; what is left of it stays.
        """
        self._check()
        view = View(self._tm, self._table)
        in_store = self._tm.session.catalog.full_name(self._table)
        for lease in self._leases():
            if lease.state.cursor_ts >= end_ts:
                continue
            from_ts, cursor = lease.state.scan_from, lease.state.cursor
            # What began at or above `end_ts` committed above it, and may be much.
            count, low_ts = 0, min(view.low_ts + 1, end_ts)
            gone: list[FoundEntry] | None = []
            for found in view.log(lease.bucket, from_ts=from_ts, to_ts=end_ts):
                if found.position.commit_ts >= end_ts:
                    low_ts = min(low_ts, found.start_ts)
                    continue
                count += found.position > cursor
                # What is below the cursor was left by a death, and goes as well.
                gone = _noted(gone, found)
            exported = lease.state.exported + count
            # First what says that it was delivered, and that it was ours to remove (X9).
            lease.update(cursor_ts=end_ts, cursor_ordinal="", exported=exported, counted_ts=0)
            self._remove(in_store, view, lease.bucket, gone, from_ts=from_ts, end_ts=end_ts)
            lease.update(scan_from=max(low_ts, lease.state.scan_from))

    def close(self) -> None:
        """Give the buckets back."""
        try:
            self._crew.leave()
        finally:
            self._finisher.close()

    def _take(self, wait_s: float) -> None:
        clock = self._tm.session.clock
        self._crew.join(takes_all=True)
        until_s = clock.monotonic_s() + wait_s
        pause = threading.Event()
        while True:
            if problems := self._crew.look().problems:
                raise ExportError(problems[0])
            if not (missing := self._definition.buckets - len(self._crew.leases)):
                return
            if clock.monotonic_s() >= until_s:
                raise ExportError(
                    f"{missing} buckets of the queue {self._places.queue_id!r} are exported by "
                    "another process; end it first"
                )
            pause.wait(LOOK_EVERY_S)

    def _refuse_dead_letters(self) -> None:
        view = View(self._tm, self._table)
        for bucket in range(self._definition.buckets):
            if next(iter(view.dead(bucket)), None) is not None:
                raise ExportError(
                    f"the queue {self._places.queue_id!r} has dead letters, behind which entries "
                    "of their keys wait; deliver them with `omidpy export once`, or give them up "
                    "with `omidpy export dlq drop`"
                )

    def _refuse_gap(self, start_ts: int) -> None:
        """Refuse a reader who has come less far than a bucket: he would miss what is between.

        Also where nothing waits any more, or he would be sent on past it.
        """
        for lease in self._leases():
            cursor_ts = lease.state.cursor_ts
            if 0 < start_ts < cursor_ts:
                raise ExportError(
                    f"bucket {lease.bucket} of the queue {self._places.queue_id!r} was delivered "
                    f"up to {cursor_ts} by somebody else, and this reader has come to {start_ts}: "
                    "what is between them would be missing; begin anew, with a checkpoint of its "
                    "own"
                )

    def _leases(self) -> list[BucketLease]:
        return [lease for _, lease in sorted(self._crew.leases.items())]

    def _check(self) -> None:
        """See that the queue is what it was, and ours."""
        now = find(self._tm, self._places)
        check_going(self._places, now)
        self._finisher.look(now)
        if now.number != self._definition.number:
            raise ExportError(
                f"the queue {self._places.queue_id!r} was given other buckets, or made anew; "
                "begin again from where you were"
            )
        for lease in self._leases():
            lease.check()

    def _commits(self, view: View, lease: BucketLease, start_ts: int) -> Iterator[int]:
        """Yield the commit timestamp of each entry of a bucket, in order."""
        after, state = _after(lease, start_ts), lease.state
        found = view.entries(
            lease.bucket, from_ts=state.scan_from, after=after, replay_to=state.replay_to
        )
        window = Window(found, after=after, hold_bytes=0)
        while taken := window.take(buffer_bytes=NO_LIMIT, max_entries=1):
            yield taken[0].position.commit_ts

    def _remove(
        self,
        in_store: str,
        view: View,
        bucket: int,
        gone: list[FoundEntry] | None,
        *,
        from_ts: int,
        end_ts: int,
    ) -> None:
        """Remove entries; where they were too many to be noted, those below `end_ts`."""
        if self._definition.keep_s is not None:
            return
        found = iter(gone) if gone is not None else view.log(bucket, from_ts=from_ts, to_ts=end_ts)
        below = (one for one in found if one.position.commit_ts < end_ts)
        while page := [one._replace(content=None) for one in itertools.islice(below, PAGE_ENTRIES)]:
            remove(self._tm.store, in_store, page)


def read(tm: TransactionManager, portion: Portion) -> Iterator[tuple[FoundEntry, Content]]:
    """Yield the entries of a portion by position.

    Raises:
        CorruptCell: one of them cannot be read.
    """
    view = View(tm, table_name(portion.queue_id, portion.number))
    found_here = view.entries(
        portion.bucket,
        from_ts=portion.scan_from,
        after=portion.after,
        replay_to=portion.replay_to,
    )
    window = Window(found_here, after=portion.after, hold_bytes=HOLD_BYTES)
    while page := window.take(buffer_bytes=PAGE_BYTES, max_entries=PAGE_ENTRIES):
        missing = [found.row for found in page if found.content is None]
        contents = view.contents(missing) if missing else {}
        for found in page:
            if found.position.commit_ts >= portion.end_ts:
                return
            yield found, decode_content(found.content or contents[found.row])


def _noted(gone: list[FoundEntry] | None, found: FoundEntry) -> list[FoundEntry] | None:
    """Return entries with one more, or None where they are too many: they are read once more."""
    if gone is None or len(gone) >= NOTED_ENTRIES:
        return None
    gone.append(found._replace(content=None))
    return gone


def _after(lease: BucketLease, start_ts: int) -> Position:
    """Return the position behind which a portion begins."""
    return max(lease.state.cursor, Position(start_ts, b""))
