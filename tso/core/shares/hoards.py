"""Who keeps how much of what all share, and who must give it back when it is too much.

Pure counting, for requests whose write sets wait in memory until the commit table was read.  While
the store stalls nothing of that goes, so it has a bound, and the client that keeps the most pays
first: a client that waits with a few cells loses nothing to one that sends millions, over however
many connections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from tso.core.events import Ticket

T = TypeVar("T")


def worst_of(kept: Mapping[T, int], share_of: Callable[[T], Hashable]) -> T:
    """Return who keeps the most, of those whose share keeps the most."""
    shares: Counter[Hashable] = Counter()
    for one, amount in kept.items():
        shares[share_of(one)] += amount
    return max(kept, key=lambda one: (shares[share_of(one)], kept[one]))


class Hoards(Generic[Ticket]):
    """What each client keeps, and all of them together."""

    def __init__(self, limit: int) -> None:
        """Allow `limit` for all together."""
        self._limit = limit
        self._total = 0
        self._kept: Counter[Ticket] = Counter()
        self._shares: dict[Ticket, Hashable] = {}

    def add(self, ticket: Ticket, amount: int, *, share: Hashable) -> None:
        """Note that a client keeps so much more, as a part of a share."""
        self._kept[ticket] += amount
        self._shares[ticket] = share
        self._total += amount

    def give_back(self, ticket: Ticket, amount: int) -> None:
        """Note that a client keeps so much less."""
        self._kept[ticket] -= amount
        self._total -= amount
        if not self._kept[ticket]:
            del self._kept[ticket]
            self._shares.pop(ticket, None)  # one that kept nothing may give it back twice

    @property
    def total(self) -> int:
        """What all keep together."""
        return self._total

    def worst(self) -> Ticket | None:
        """Return who keeps the most, of the worst share, if all together keep too much."""
        if self._total <= self._limit:
            return None
        return worst_of(self._kept, lambda ticket: self._shares[ticket])
