"""Gives buckets whose state cannot be read a new one, so that they are exported again.

Nothing says any more how far such a bucket had come, so that what is still in it is delivered: once
more, where its last batch was under way, or where the queue keeps what was delivered.  Its fence
must be above all that receivers have seen of it, and that one is not known either: buckets of a
queue change hands about as often as each other, and far less often than `EPOCHS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omidpy.recipes.export_queue.entries.stored.state import BucketRows, BucketState, Raw

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places

EPOCHS: Final = 1 << 20
"""So many changes of hands a bucket may be ahead of all others of its queue."""


def unreadable(tm: TransactionManager, places: Places, definition: Definition) -> list[Raw]:
    """Return the buckets whose state cannot be read.  Cost: 1 get."""
    return [raw for raw in BucketRows(tm.session.control, places, definition).read() if raw.problem]


def repair(tm: TransactionManager, places: Places, definition: Definition) -> list[int]:
    """Give such buckets a new state; return their numbers.

    One that was repaired meanwhile is left alone.
    """
    rows = BucketRows(tm.session.control, places, definition)
    found = rows.read()
    good = [raw.state for raw in found if not raw.problem]
    new = BucketState(
        epoch=max((state.epoch for state in good), default=0) + EPOCHS,
        turn=max((state.turn for state in good), default=0),
        # Its owner may live, and be in the midst of something.
        is_unsure=True,
        is_torn=True,
    )
    return [raw.bucket for raw in found if raw.problem and rows.replace(raw, new) is not None]
