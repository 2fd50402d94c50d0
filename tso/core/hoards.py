"""Who keeps how much of what all share, and who must give it back when it is too much.

Pure counting, for requests whose write sets wait in memory until the commit table was read.  While
the store stalls nothing of that goes, so it has a bound, and whoever keeps the most pays first: a
client that waits with a few cells loses nothing to one that sends millions.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic

from tso.core.events import Ticket


class Hoards(Generic[Ticket]):
    """What each client keeps, and all of them together."""

    def __init__(self, limit: int) -> None:
        """Allow `limit` for all together."""
        self._limit = limit
        self._total = 0
        self._kept: Counter[Ticket] = Counter()

    def add(self, ticket: Ticket, amount: int) -> None:
        """Note that a client keeps so much more."""
        self._kept[ticket] += amount
        self._total += amount

    def give_back(self, ticket: Ticket, amount: int) -> None:
        """Note that a client keeps so much less."""
        self._kept[ticket] -= amount
        self._total -= amount
        if not self._kept[ticket]:
            del self._kept[ticket]

    @property
    def total(self) -> int:
        """What all keep together."""
        return self._total

    def worst(self) -> Ticket | None:
        """Return who keeps the most, if all together keep too much."""
        if self._total <= self._limit:
            return None
        return max(self._kept, key=lambda ticket: self._kept[ticket])
