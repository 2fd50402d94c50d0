"""How many entries wait in a bucket?  Kept beside its cursor, so that no caller scans to be told.

    waits       of what was committed up to `counted_ts`, so much has not left yet
    oldest_ts   when the first of that was committed

An owner that has emptied the bucket knows that nothing waits, and one that has not takes from the
count what it delivers, in the change that moves the cursor.  What was committed since `counted_ts`
was not counted: adders do not, since a count that all of them change would let none commit beside
another.  So while entries gather the count is too small by what came since it was made; and it is
too large by what an operator has acknowledged.  An owner that does not come to the end of its
bucket, or whose receiver takes nothing, counts anew now and then, and spends little time on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from omidpy.model import FIRST_WORLD_TIMESTAMP

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.entries.ordering import FoundEntry
    from omidpy.recipes.export_queue.entries.stored.state import BucketState
    from omidpy.recipes.export_queue.entries.view import View

COUNT_EVERY_S: Final = 10.0
SHARE_OF_TIME: Final = 20
"""So much longer an owner delivers than it counts."""
BELIEVED_S: Final = 600
BELIEVED_TS: Final = BELIEVED_S * 1_000_000_000
"""For how long a count is good enough for a caller that asks for one."""


def after_batch(
    state: BucketState, taken: Sequence[FoundEntry], *, next_ts: int | None, seen_ts: int
) -> dict[str, Any]:
    """Return what changes in the counts of a bucket when a batch has left.

    Args:
        state: The bucket before.
        taken: What has left it, wherever to.
        next_ts: When the next entry of the same snapshot was committed; None: there is none.
        seen_ts: The timestamp of that snapshot.
    """
    if next_ts is None:
        return {"waits": 0, "oldest_ts": 0, "counted_ts": seen_ts}
    gone = sum(one.position.commit_ts <= state.counted_ts for one in taken)
    return {"waits": max(1, state.waits - gone), "oldest_ts": next_ts}


def count(view: View, bucket: int, state: BucketState) -> dict[str, Any]:
    """Count what a snapshot sees of a bucket; return what changes.  Cost: a scan of what waits."""
    waits, oldest_ts = 0, 0
    for found in view.entries(
        bucket, from_ts=state.scan_from, after=state.cursor, replay_to=state.replay_to
    ):
        if found.position > state.cursor:
            commit_ts = found.position.commit_ts
            waits += 1
            oldest_ts = min(oldest_ts or commit_ts, commit_ts)
    return {"waits": waits, "oldest_ts": oldest_ts, "counted_ts": view.start_ts}


def rest_s(took_s: float) -> float:
    """Return in how many seconds to count again; a count is believed until then."""
    return min(max(COUNT_EVERY_S, SHARE_OF_TIME * took_s), BELIEVED_S / 2)


def is_believed(state: BucketState, now_ts: int) -> bool:
    """Say whether a worker counts, and has done so not long ago."""
    return (
        state.owner is not None
        and state.counted_ts >= FIRST_WORLD_TIMESTAMP
        and now_ts - state.counted_ts <= BELIEVED_TS
    )
