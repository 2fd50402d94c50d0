"""Remember what was promised: fences, and transactions that will never commit.

A promise is remembered until the low watermark passes the transaction or the fence, which refuses
what the promise refused (I4).  Memory is bounded, for all clients and for each: what finds no room
is not promised.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from tso.core.shares.clients import UntilOld

MAX_INVALIDATION_COUNT: Final = 2**16
"""Invalidations above the low watermark that are remembered; more are not granted."""

MAX_INVALIDATIONS_OF_ONE: Final = 2**13
"""The same of one client."""

MAX_FENCE_COUNT: Final = 2**16
"""Tables with a fence above the low watermark; more are not granted."""

MAX_FENCES_OF_ONE: Final = 2**12
"""The same of one client."""


class Promises:
    """The fences and the invalidations above the low watermark."""

    def __init__(self) -> None:
        """Begin with none: what an earlier instance promised is below this one's watermark."""
        self.fences: Final = UntilOld(count=MAX_FENCE_COUNT, count_of_one=MAX_FENCES_OF_ONE)
        """The newest one of each table."""
        self.invalidated: Final[set[int]] = set()
        """Transactions that were not decided, and never will be."""
        self.barred: Final[set[int]] = set()
        """Transactions that may have been decided and forgotten, and will not be from here on."""
        self._forbidden = UntilOld(
            count=MAX_INVALIDATION_COUNT, count_of_one=MAX_INVALIDATIONS_OF_ONE
        )

    @property
    def forbidden_count(self) -> int:
        """How many transactions are invalidated or barred."""
        return len(self._forbidden)

    def forbid(self, start_ts: int, client: Hashable, *, is_undecided: bool) -> bool:
        """Promise that a transaction will not be decided from here on; False if there is no room.

        Args:
            start_ts: Above the low watermark.
            client: Who asks for it.
            is_undecided: Whether it surely was not decided: then it is invalidated, else barred.
        """
        if not self._forbidden.has_room(start_ts, client):
            return False
        (self.invalidated if is_undecided else self.barred).add(start_ts)
        self._forbidden.add(start_ts, start_ts, client)
        return True

    def forget(self, low_watermark: int) -> None:
        """Forget what the low watermark refuses by itself."""
        self.fences.forget(low_watermark)
        for start_ts in self._forbidden.forget(low_watermark):
            self.invalidated.discard(start_ts)
            self.barred.discard(start_ts)
