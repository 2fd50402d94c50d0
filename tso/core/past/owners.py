"""Who began the transactions that are too old for the engine to remember, and may still commit?

The engine remembers the latest begins of all clients together, and a client that begins very many
pushes out those of others.  A transaction whose owner is not known would be anybody's: a stranger
could commit it with no cells, and its owner's own commit, in conflict, would be answered with that
decision.  So what the engine forgets is kept here by client, until the low watermark passes it,
and who keeps most pays first when it becomes too much: of the shares the largest, of the clients in
it the largest, of its transactions the oldest.

What is forgotten here as well has no owner any more: its commit is refused, as below the low
watermark (I4).  That may refuse a transaction that was harmless; it never lets a lost update
through.

Pure counting; no clock, and the low watermark is an argument.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping
from typing import Final

from tso.core.shares.clients import share_of

CLIENT_WEIGHT: Final = 32
"""What a client takes besides its timestamps, in timestamps of eight bytes."""


class Owners:
    """The start timestamps of each client, of which memory is shared fairly."""

    def __init__(self, capacity: int) -> None:
        """Keep so many timestamps; a client takes as much as `CLIENT_WEIGHT` of them besides."""
        self._capacity = capacity
        self._begun: dict[int, array[int]] = {}
        self._weight = 0
        self.room = capacity
        """So much more may be told until it is time to `make_room`."""

    def keep(self, begun: Mapping[int, bytes | bytearray]) -> None:
        """Note who began what, all of it after what is known.

        Args:
            begun: What each client began: numbers of eight bytes, in ascending order.
        """
        for client, stamps in begun.items():
            known = self._begun.get(client)
            if known is None:
                known = self._begun[client] = array("q")
                self._weight += CLIENT_WEIGHT
            known.frombytes(stamps)
            self._weight += len(stamps) // known.itemsize
        self.room = self._capacity - self._weight

    def has(self, client: int, start_ts: int) -> bool:
        """Say whether a client is known to have begun a transaction."""
        begun = self._begun.get(client)
        if begun is None:
            return False
        place = bisect_left(begun, start_ts)
        return place < len(begun) and begun[place] == start_ts

    def make_room(self, low_watermark: int) -> None:
        """Forget what is at or below the low watermark, then what is too much of one client.

        Cost: O(clients), and seldom: a quarter of all is free afterwards.
        """
        self._forget_what_is_old_or_too_much(low_watermark)
        self.room = self._capacity - self._weight

    def _forget_what_is_old_or_too_much(self, low_watermark: int) -> None:
        for client in list(self._begun):
            self._forget(client, bisect_right(self._begun[client], low_watermark))
        room = 3 * self._capacity // 4
        if self._weight <= room:
            return
        clients: defaultdict[Hashable, list[int]] = defaultdict(list)
        weights: Counter[Hashable] = Counter()
        for client in self._begun:
            share = share_of(client)
            clients[share].append(client)
            weights[share] += self._weight_of(client)
        most = fair_limit(weights.values(), room)
        for share, weight in weights.items():
            if weight > most:
                self._cut(clients[share], most)

    def _cut(self, clients: list[int], room: int) -> None:
        """Let the clients of one share fit into a room."""
        most = fair_limit([self._weight_of(client) for client in clients], room)
        most = max(most, 2 * CLIENT_WEIGHT)
        left = 0
        for client in clients:
            self._forget(client, max(0, self._weight_of(client) - most))
            left += self._weight_of(client)
        # Very many that began little: the client that has begun nothing for longest goes.
        for client in sorted(clients, key=lambda client: self._begun[client][-1]):
            if left <= room:
                break
            left -= self._weight_of(client)
            self._forget(client, len(self._begun[client]))

    def _weight_of(self, client: int) -> int:
        return CLIENT_WEIGHT + len(self._begun[client])

    def _forget(self, client: int, count: int) -> None:
        """Forget so many of a client's oldest."""
        begun = self._begun[client]
        del begun[:count]
        self._weight -= count
        if not begun:
            del self._begun[client]
            self._weight -= CLIENT_WEIGHT


def fair_limit(amounts: Collection[int], room: int) -> int:
    """Return the most that each may keep of its amount, so that all of it fits into `room`."""
    left, count = room, len(amounts)
    for amount in sorted(amounts):
        if amount * count > left:
            return left // count
        left -= amount
        count -= 1
    return max(amounts, default=room)
