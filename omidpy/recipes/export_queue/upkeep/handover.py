"""What a queue's old buckets hand over to the new ones, once they are empty.

Nothing here decides when: the steps of `rebucketing.py` do.  Each of these may be done again by the
next executor of the same step, and then finds less to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from omidpy.facts.control import encode_document
from omidpy.recipes.export_queue.entries.dead import graves_of
from omidpy.recipes.export_queue.entries.layout import COLUMN, bucket_of, dead_row
from omidpy.recipes.export_queue.entries.state import (
    GENERATION,
    BucketRows,
    BucketState,
    Definition,
    Places,
    Successor,
    table_name,
)
from omidpy.recipes.export_queue.entries.view import View

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.dead import Grave

MOVED_AT_ONCE: Final = 500


def waiting(tm: TransactionManager, queue_id: str, known: Definition) -> str:
    """Say what of the old buckets is still to be delivered; empty: nothing ever again."""
    view = View(tm, table_name(queue_id, known.number), layout=known.layout)
    places = Places.of(tm.session.catalog, queue_id)
    count, buckets, stopped = 0, 0, ""
    for raw in BucketRows(tm.session.control, places, known).read():
        if raw.problem:
            return raw.problem
        state = raw.state
        here = sum(
            found.position > state.cursor
            for found in view.entries(
                raw.bucket, from_ts=state.scan_from, after=state.cursor, replay_to=state.replay_to
            )
        )
        here += len(graves_of(view, raw.bucket).due())
        count += here
        buckets += bool(here)
        stopped = stopped or raw.state.stopped
    if not count:
        return ""
    return (
        f"{count} entries wait in {buckets} of the old buckets"
        + (f", where an exporter has stopped: {stopped}" if stopped else "")
        + (f"; the queue is paused: omidpy export resume {queue_id}" if known.is_paused else "")
    )


def move_dead(tm: TransactionManager, queue_id: str, known: Definition, to: Successor) -> None:
    """Move dead letters into the new table, each to the bucket that its key has there."""
    old, new = table_name(queue_id, known.number), table_name(queue_id, to.number)
    view = View(tm, old)
    graves = [
        (bucket, grave) for bucket in range(known.buckets) for grave in graves_of(view, bucket)
    ]
    for at in range(0, len(graves), MOVED_AT_ONCE):
        some = graves[at : at + MOVED_AT_ONCE]
        with tm.begin() as tx:
            source, target = tx.table(old), tx.table(new)
            cells = dict(source.rows([grave.found.row for _, grave in some], columns=[COLUMN]))
            for bucket, grave in some:
                if (data := cells.get(grave.found.row)) is not None:
                    target.put(_row_among(to.buckets, bucket, grave), data)
                    source.delete(grave.found.row, [COLUMN])


def _row_among(buckets: int, old_bucket: int, grave: Grave) -> bytes:
    bucket = old_bucket % buckets if grave.key is None else bucket_of(grave.key, buckets)
    commit_ts, ordinal = grave.found.position
    return dead_row(GENERATION, bucket, commit_ts, grave.found.start_ts, ordinal)


def begin_epochs(tm: TransactionManager, queue_id: str, known: Definition, to: Successor) -> None:
    """Begin above all fences that receivers have seen: a late owner of an old bucket is refused."""
    places, control = Places.of(tm.session.catalog, queue_id), tm.session.control
    states = [raw.state for raw in BucketRows(control, places, known).read_whole()]
    new = BucketState(epoch=max(state.epoch for state in states) + 1)
    delivered = sum(state.exported for state in states)
    for bucket in range(to.buckets):
        first = msgspec.structs.replace(new, exported=0 if bucket else delivered)
        control.replace(places.bucket(to.number, bucket), None, encode_document(first))
