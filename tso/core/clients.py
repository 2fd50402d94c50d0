"""How much one client may have of what all share: places that count until they are old.

A client says who it is with a number that it drew at random and keeps to itself, so that it stays
the same client when it connects again.  Omid's clients in Java say nothing; each of their
connections counts by itself.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable
from typing import Final

ANYBODY: Final = 0
"""A client that does not say who it is."""


class UntilOld:
    """Names with a timestamp each, remembered until the low watermark passes it."""

    def __init__(self, *, count: int, count_of_one: int) -> None:
        """Remember so many names in all, and so many of them for one client."""
        self._count = count
        self._count_of_one = count_of_one
        self._found: dict[int, tuple[int, Hashable]] = {}
        self._by_age: list[tuple[int, int]] = []
        self._counts: Counter[Hashable] = Counter()

    def __contains__(self, name: int) -> bool:
        return name in self._found

    def __len__(self) -> int:
        return len(self._found)

    def has_room(self, name: int, client: Hashable) -> bool:
        """Say whether a client may add a name."""
        return name in self._found or (
            len(self._found) < self._count and self._counts[client] < self._count_of_one
        )

    def add(self, name: int, timestamp: int, client: Hashable) -> None:
        """Remember a name; one that is known already takes no second place."""
        if name in self._found:
            self._found[name] = timestamp, self._found[name][1]
            return
        self._found[name] = timestamp, client
        self._counts[client] += 1
        heapq.heappush(self._by_age, (timestamp, name))

    def forget(self, low_watermark: int) -> list[int]:
        """Forget and return the names whose timestamp is at or below the low watermark."""
        forgotten = []
        while self._by_age and self._by_age[0][0] <= low_watermark:
            noted, name = heapq.heappop(self._by_age)
            timestamp, client = self._found[name]
            if timestamp > noted:  # it was added again meanwhile
                heapq.heappush(self._by_age, (timestamp, name))
                continue
            del self._found[name]
            forgotten.append(name)
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]
        return forgotten
