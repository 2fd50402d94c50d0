"""Keeps the versions that a snapshot needs from being collected for a while.

The order is what makes a hold good: it is written, then the compactor's intent and horizon are
read; the compactor raises its intent, reads the holds, and only then publishes a horizon, above
none of them.  One of the two sees the other, so that granted means kept (I10).

A hold is its process's own: a child that inherits it by `fork` cannot end it.
"""

from __future__ import annotations

import os
import socket
import uuid
from types import TracebackType
from typing import Final, Self

from omidpy.base.callers.alone import Alone
from omidpy.base.reach import reached
from omidpy.base.timing.clock import Clock
from omidpy.base.words.arguments import check_number
from omidpy.errors import SnapshotTooOld, TransactionClosed, UsageError
from omidpy.facts.watermarks import Hold, Watermarks
from omidpy.model import MAX_VERSION, Timestamp

MAX_HOLD_S: Final = 30 * 24 * 3600.0
"""A longer hold is refused: a forgotten one would keep every version for ever."""


class HeldSnapshot(Alone):
    """A hold that ends by itself, or when released."""

    _instead = "hand on its start_ts, and hold that once more: tm.hold(start_ts, for_s=...)"

    def __init__(self, watermarks: Watermarks, start_ts: Timestamp) -> None:
        self.start_ts = start_ts
        self._watermarks = watermarks
        self._name = uuid.uuid4().hex
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<HeldSnapshot {self.start_ts}>"

    def write(self, clock: Clock, *, for_s: float) -> None:
        """Record the hold for so many seconds from now."""
        for_ms = round(for_s * 1000)
        stamp = self._watermarks.stamp(clock)
        owner = f"{socket.gethostname()} pid {self._pid}"
        hold = Hold(self.start_ts, clock.wall_ms() + for_ms, for_ms, stamp, owner)
        self._watermarks.write_hold(self._name, hold)

    def confirm(self) -> None:
        """Find out whether the hold, which has been written, was in time.

        Raises:
            SnapshotTooOld: it was not, and is released.
        """
        floor = self._watermarks.hold_floor()
        if self.start_ts < floor:
            reached("hold.came_too_late", "I10")
            self.release()
            raise SnapshotTooOld(
                f"the snapshot {self.start_ts} is below the collection horizon {floor}: versions "
                "it needs may be gone; hold a younger one, or compact with a longer --retention",
                retryable=False,
            )

    def release(self) -> None:
        """End the hold; a second call does nothing.

        Raises:
            TransactionClosed: it was made before fork, in the parent process.
        """
        if self._is_inherited:
            raise TransactionClosed(
                f"the hold of the snapshot {self.start_ts} was made before fork and belongs to the "
                "parent process"
            )
        self._watermarks.forget_hold(self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_inherited:
            self.release()

    @property
    def _is_inherited(self) -> bool:
        return self._pid != os.getpid()


def hold(watermarks: Watermarks, start_ts: int, clock: Clock, *, for_s: float) -> HeldSnapshot:
    """Hold the snapshot at `start_ts` for `for_s` seconds from now.

    Raises:
        TypeError: `start_ts` is no whole number, or `for_s` no number.
        UsageError: it is none of a snapshot, or `for_s` is not between 0 and `MAX_HOLD_S`.
        SnapshotTooOld: versions it needs may be gone already; nothing is held.
    """
    # Before anything is written: a hold that cannot be read keeps everything, and for ever.
    if isinstance(start_ts, bool) or not isinstance(start_ts, int):
        raise TypeError(f"a hold takes a transaction or its start_ts, not {start_ts!r:.80}")
    if not 0 <= start_ts < MAX_VERSION:
        raise UsageError(f"{start_ts} is no start_ts; give the one of a snapshot")
    if not 0 < check_number("for_s", for_s) <= MAX_HOLD_S:
        raise UsageError(f"for_s={for_s!r} must be above 0 and at most {MAX_HOLD_S:.0f} seconds")
    held = HeldSnapshot(watermarks, Timestamp(start_ts))
    held.write(clock, for_s=for_s)
    held.confirm()
    return held
