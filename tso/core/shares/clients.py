"""How much one client may have of what all share: places that count until they are old.

A client says who it is with a number that it drew at random and keeps to itself, so that it stays
the same client when it connects again.  Omid's clients in Java say nothing; each of their
connections counts by itself.

A number costs nothing, so that it gives no right to anything: what a client may have is the part of
a share, and the share belongs to the name in a certificate, or else to an address.  Both are in the
number that a client has here, whatever it said: the share in the upper bits, then who it is in it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable
from typing import Final, TypeGuard

ANYBODY: Final = 0
"""A client that does not say who it is."""

SHARE_BITS: Final = 22
"""So many bits say whose share it is that a client has a part of."""

NUMBER_BITS: Final = 40
"""So many say who it is among those that have that share; the last one, if it is a connection."""

SHARES_IN_ALL: Final = 4
"""No share has more than one of so many parts of what all have."""


def share_number(digest: int) -> int:
    """Return the number of a share, which is above 0, by a digest of whose it is."""
    return digest % ((1 << SHARE_BITS) - 1) + 1


def numbered(share: int, number: int, *, is_connection: bool) -> int:
    """Return a client's number, which is above 0.

    Args:
        share: Whose share, see `share_number`.
        number: Who it is in there; what does not fit is cut.
        is_connection: Whether it is no client but a connection, whose client says nothing of
            itself, and is another one when it connects again.
    """
    lower = number % (1 << NUMBER_BITS - 1)
    return (share << NUMBER_BITS) + (lower << 1) + is_connection


def share_of(client: Hashable) -> Hashable:
    """Return whose share it is that a client has a part of; its own if it was not `numbered`."""
    return client >> NUMBER_BITS if is_numbered(client) else client


def is_connection(client: int) -> bool:
    """Say whether a client is a connection of one that does not say who it is."""
    return is_numbered(client) and bool(client & 1)


def is_numbered(client: Hashable) -> TypeGuard[int]:
    """Say whether a client has a number that tells its share."""
    return isinstance(client, int) and client >> NUMBER_BITS > 0


class UntilOld:
    """Names with a timestamp each, remembered until the low watermark passes it."""

    def __init__(self, *, count: int, count_of_one: int) -> None:
        """Remember so many names in all, and so many of them for one client.

        Clients of one share have a `SHARES_IN_ALL`-th together, or as much as one client may: so
        others find room, whatever numbers its owner draws.
        """
        self._count = count
        self._count_of_one = count_of_one
        self._found: dict[int, tuple[int, Hashable]] = {}
        self._by_age: list[tuple[int, int]] = []
        self._count_of_share = max(count_of_one, count // SHARES_IN_ALL)
        self._counts: Counter[Hashable] = Counter()
        self._share_counts: Counter[Hashable] = Counter()

    def __contains__(self, name: int) -> bool:
        return name in self._found

    def __len__(self) -> int:
        return len(self._found)

    def has_room(self, name: int, client: Hashable) -> bool:
        """Say whether a client may add a name."""
        return name in self._found or (
            len(self._found) < self._count
            and self._counts[client] < self._count_of_one
            and self._share_counts[share_of(client)] < self._count_of_share
        )

    def add(self, name: int, timestamp: int, client: Hashable) -> None:
        """Remember a name; one that is known already takes no second place."""
        if name in self._found:
            self._found[name] = timestamp, self._found[name][1]
            return
        self._found[name] = timestamp, client
        self._counts[client] += 1
        self._share_counts[share_of(client)] += 1
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
            for counts, whose in (
                (self._counts, client),
                (self._share_counts, share_of(client)),
            ):
                counts[whose] -= 1
                if not counts[whose]:
                    del counts[whose]
        return forgotten
