"""What was delivered and is kept: until when, and how it is delivered again.

A queue that keeps its entries moves the cursor past them and removes nothing; of dead letters that
were delivered it keeps the entries in a place of their own (`entries/layout.py`).  They go once
they are older than `keep_s`, below every bucket's next scan, and below the low watermark, where
nothing commits any more.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from omidpy.base.timing.ages import issued_before
from omidpy.base.words.durations import MAX_DURATION_S
from omidpy.errors import ExportError, SnapshotTooOld, UsageError
from omidpy.model import Timestamp
from omidpy.recipes.export_queue.entries.acknowledgement import ROWS_AT_ONCE, remove
from omidpy.recipes.export_queue.entries.stored.state import BucketRows, BucketState, table_name
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.upkeep import making
from omidpy.tx.feeds import moment_timestamp

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.ordering import FoundEntry
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places

PURGE_S: Final = 60.0


class Purger:
    """Removes what was kept for long enough.  One thread at a time."""

    def __init__(self, tm: TransactionManager, places: Places) -> None:
        """Begin when first asked to."""
        self._tm = tm
        self._places = places
        self._due_s = 0.0

    def run_if_due(self, definition: Definition) -> None:
        """Purge, unless that was done a moment ago."""
        now_s = self._tm.session.clock.monotonic_s()
        if definition.keep_s is not None and now_s >= self._due_s:
            self._due_s = now_s + PURGE_S
            purge(self._tm, self._places, definition)


def purge(tm: TransactionManager, places: Places, definition: Definition) -> int:
    """Remove what was delivered more than `keep_s` ago; return how many entries that were."""
    assert definition.keep_s is not None, "only what keeps is purged"
    table = table_name(places.queue_id, definition.number)
    # First what says how old an entry must be, then the states: a replay that these do not show
    # yet begins later, and reaches back no further than to what is kept then.
    view = View(tm, table)
    kept_from = _kept_from(tm, view.start_ts, definition.keep_s)
    # Said before the states are read: an operator who stood still while he set a cursor back either
    # finds the number behind that, or the cursor is back in what is read here.
    tm.session.control.raise_number(places.purged(definition.number), kept_from)
    states = BucketRows(tm.session.control, places, definition).read()
    count = 0
    in_store = tm.session.catalog.full_name(table)
    for raw in states:
        # Below `scan_from` everything that ever commits was delivered; above it, it may be waiting.
        to_ts = min(kept_from, raw.state.scan_from, view.low_ts + 1)
        old: list[FoundEntry] = []
        for found in view.log(raw.bucket, to_ts=to_ts):
            if found.position.commit_ts < kept_from:
                old.append(found._replace(content=None))
            if len(old) == ROWS_AT_ONCE:
                remove(tm.store, in_store, old)
                count += len(old)
                old = []
        remove(tm.store, in_store, old)
        count += len(old)
        # And of dead letters what is not about to be delivered again.
        gone = list(view.kept(raw.bucket, to_ts=min(kept_from, raw.state.cursor_ts)))
        for at in range(0, len(gone), ROWS_AT_ONCE):
            remove(tm.store, in_store, gone[at : at + ROWS_AT_ONCE])
        count += len(gone)
    return count


def replay(
    tm: TransactionManager,
    places: Places,
    definition: Definition,
    since: int | datetime | timedelta,
) -> None:
    """Set the cursor of every bucket back; its owner loses it, and finds it so.

    An operation that gives the queue other buckets looks whether the old ones are empty, and then
    replaces the definition that he had read before.  It is replaced here, too, once the cursors are
    back: so either he looks again, or the buckets are the new ones by then, in which nothing is
    kept.

    Raises:
        ExportError: what was committed then may have been purged already, or was while this call
            stood still: what is left is delivered again then; or the queue got other buckets
            meanwhile.
        CorruptCell: the state of a bucket cannot be read.
        NoSuchQueue: it was dropped.
    """
    assert definition.keep_s is not None, "only what keeps can be replayed"
    begun = tm.begin(read_only=True).start_ts
    since_ts = moment_timestamp(tm.session, begun, since)
    if since_ts < _kept_from(tm, begun, definition.keep_s):
        raise ExportError(
            f"the queue {places.queue_id!r} keeps what was delivered for {definition.keep_s:g} s, "
            f"and {since!r} is longer ago"
        )
    _set_back(BucketRows(tm.session.control, places, definition), since_ts)
    while not making.note_replay(tm, places, definition):
        pass
    purged_ts = tm.session.control.read_number(places.purged(definition.number)) or 0
    if since_ts < purged_ts:
        raise ExportError(
            f"not all that the queue {places.queue_id!r} delivered since {since!r} is delivered "
            f"again: what was committed before {purged_ts} was purged while this call was under way"
        )


def _set_back(rows: BucketRows, since_ts: int) -> None:
    while True:
        changed = [
            rows.replace(raw, _set_back_to(since_ts, raw.state))
            for raw in rows.read_whole()
            # Also where it is back already: its owner may have handed over what stands there, and
            # be about to note that.  That was before this call, and comes again.
            if raw.state.cursor_ts >= since_ts or raw.state.owner is not None
        ]
        if all(changed):
            return


def _set_back_to(since_ts: int, state: BucketState) -> BucketState:
    lost = msgspec.structs.replace(
        state,
        owner=None,
        epoch=state.epoch + 1,
        turn=state.turn + 1,
        is_torn=state.is_torn or state.owner is not None,
    )
    if state.cursor_ts < since_ts:
        return lost
    return msgspec.structs.replace(
        lost,
        cursor_ts=max(0, since_ts - 1),
        cursor_ordinal="",
        scan_from=0,
        counted_ts=0,
        replay_to=max(state.replay_to, state.cursor_ts),
    )


def _kept_from(tm: TransactionManager, fresh_ts: Timestamp, keep_s: float) -> Timestamp:
    """Return below which commit timestamp nothing is kept any more; 0 if that is not known yet.

    World time is a date, which somebody may have set forward before the oracle was started.  So
    where the oracle records samples, it must have counted as long, too.
    """
    try:
        by_date = moment_timestamp(
            tm.session, fresh_ts, timedelta(seconds=min(keep_s, MAX_DURATION_S))
        )
    except (SnapshotTooOld, UsageError):
        # Timestamps are counted, and no sample is as old; or no timestamp is: it is longer than
        # from 1970 until now.
        return Timestamp(0)
    samples = tm.session.watermarks.samples()
    if not samples:
        return by_date  # Omid's oracle records none
    return min(by_date, Timestamp(issued_before(samples, age_ms=round(keep_s * 1000))))
