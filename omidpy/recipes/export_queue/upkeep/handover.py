"""What a queue's old buckets hand over to the new ones, once they are empty.

Nothing here decides when: the steps of `rebucketing.py` do.  Each of these may be done again by the
next executor of the same step, and then finds less to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from omidpy.facts.control import encode_document
from omidpy.recipes.export_queue.entries.dead import graves_of
from omidpy.recipes.export_queue.entries.stored.layout import COLUMN, bucket_of, dead_row
from omidpy.recipes.export_queue.entries.stored.state import (
    GENERATION,
    BucketRows,
    BucketState,
    Definition,
    Places,
    Raw,
    Successor,
    table_name,
)
from omidpy.recipes.export_queue.entries.view import View

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.dead import Grave
    from omidpy.tx.table import TransactionalTable

MOVED_AT_ONCE: Final = 500


def waiting(tm: TransactionManager, queue_id: str, known: Definition) -> str:
    """Say what of the old buckets is still to be delivered; empty: nothing ever again.

    How much that is the exporters have counted: here the first of it is enough.
    """
    view = View(tm, table_name(queue_id, known.number), layout=known.layout)
    places = Places.of(tm.session.catalog, queue_id)
    states = BucketRows(tm.session.control, places, known).read()
    if problem := next((raw.problem for raw in states if raw.problem), ""):
        return problem
    if not any(_has_entries(view, raw) for raw in states) and not any(
        graves_of(view, raw.bucket).due() for raw in states
    ):
        return ""
    counted = [raw.state.waits for raw in states if raw.state.waits]
    stopped = next((raw.state.stopped for raw in states if raw.state.stopped), "")
    return (
        f"at least {sum(counted) or 1} entries wait in {len(counted) or 1} of the old buckets"
        + (f", where an exporter has stopped: {stopped}" if stopped else "")
        + (f"; the queue is paused: omidpy export resume {queue_id}" if known.is_paused else "")
    )


def _has_entries(view: View, raw: Raw) -> bool:
    state = raw.state
    found = view.entries(
        raw.bucket, from_ts=state.scan_from, after=state.cursor, replay_to=state.replay_to
    )
    return any(one.position > state.cursor for one in found)


def move_dead(tm: TransactionManager, queue_id: str, known: Definition, to: Successor) -> bool:
    """Move dead letters into the new table, each to the bucket that its key has there.

    Returns:
        Whether some are to be delivered first, by whoever has their old bucket: they stay there.
    """
    old, new = table_name(queue_id, known.number), table_name(queue_id, to.number)
    view = View(tm, old)
    filled = [bucket for bucket in range(known.buckets) if len(graves_of(view, bucket))]
    for bucket in filled:
        count = MOVED_AT_ONCE
        while count == MOVED_AT_ONCE:
            with tm.begin() as tx:
                # Seen behind the beginning of the transaction: whoever asks meanwhile for another
                # try of what is moved here, or gives it up, has a conflict with it.
                graves = graves_of(View(tm, old), bucket)
                if graves.due():
                    return True
                count = _move_last(list(graves), tx.table(old), tx.table(new), bucket, to.buckets)
    return False


def _move_last(
    graves: Sequence[Grave],
    source: TransactionalTable,
    target: TransactionalTable,
    bucket: int,
    buckets: int,
) -> int:
    """Move the last graves of a bucket, of which none is due; return how many that are.

    The last ones first: what is left of a key still waits behind the same poison.
    """
    some = graves[-MOVED_AT_ONCE:]
    before: dict[bytes, Grave] = {}
    for grave in graves:
        if grave.key is not None and grave.note.parks:
            before.setdefault(grave.key, grave)
    keys = {grave.key for grave in some if grave.key in before}
    stay = {before[key].found.row for key in keys if key is not None}.difference(
        grave.found.row for grave in some
    )
    rows = [*(grave.found.row for grave in some), *stay]
    cells = dict(source.rows(rows, columns=[COLUMN]))
    if len(cells) < len(rows):
        return MOVED_AT_ONCE  # set aside since the transaction began: the next one sees it
    for grave in some:
        target.put(_row_among(buckets, bucket, grave), cells[grave.found.row])
        source.delete(grave.found.row, [COLUMN])
    for row in stay:
        # It stays as it is.  But who asks for another try of it, or gives it up, lets go what is
        # moved here, which is a conflict, too.
        source.put(row, cells[row])
    return len(some)


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
