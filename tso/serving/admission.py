"""Who may have a place at the server, of which there are as many as descriptors?

A connection that has not shaken hands yet has proved nothing, so that those have few places of
their own: who comes later takes that of the one that has been silent for longest, at the address
that has the most of them.  The other places are shared by name, or by address where no certificate
is shown: each share gets so many times as many as are left free, so that there is always room for
another one.  The last ones are kept for shares that were here before, and for operators.  Where
none is left, who has few takes that of a share that has far more.

Who shakes hands with TLS makes the server sign, which takes as long as hundreds of requests, before
anything is known of who that is.  So no turn of the loop does it for more than one, and addresses
take turns.

Pure counting; the connection that must go is returned.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, Self, TypeVar

from omidpy.base.reach import reached

C = TypeVar("C", bound=Hashable)

MAX_SILENT_COUNT: Final = 512
"""Connections without a handshake; no more than one of `SILENT_PART`."""

SILENT_PART: Final = 8

GREED: Final = 4
"""A share has at most so many times as many places as are free; where none is free, as another one
would have that is refused."""

RESERVED_PART: Final = 16
"""One of so many places is kept for shares that were here before, and for operators."""

MAX_RESERVED_OF_ONE: Final = 16
"""So many connections of such a share may have one of those."""

MAX_KNOWN_COUNT: Final = 4096
"""Shares of which it is remembered that they were here."""


class Places(Generic[C]):
    """Which connections there are, and whose."""

    def __init__(self, count: int, asked_s: Callable[[C], float] = lambda _: 0.0) -> None:
        """Have so many places in all; `asked_s` says when a connection has last been of use."""
        self.count = count
        self._asked_s = asked_s
        self._silent: dict[C, Hashable] = {}
        self._silent_counts: Counter[Hashable] = Counter()
        self._open: dict[C, Hashable] = {}
        self._open_counts: Counter[Hashable] = Counter()
        self._known: set[Hashable] = set()

    @classmethod
    def of_silent(cls, count: int) -> Self:
        """Have so many places for connections that never shake hands, as all are here."""
        return cls(SILENT_PART * count)

    @property
    def _silent_count(self) -> int:
        return min(MAX_SILENT_COUNT, self.count // SILENT_PART)

    def come(self, connection: C, address: Hashable) -> C | None:
        """Take in a connection that has not shaken hands; return the one that must go, if any.

        It may be the same one: where others that shook hands have all places.
        """
        self._silent[connection] = address
        self._silent_counts[address] += 1
        is_crowd = len(self._silent) > max(1, self._silent_count)
        if not is_crowd and len(self._silent) + len(self._open) <= self.count:
            return None
        crowded = max(self._silent_counts, key=lambda one: self._silent_counts[one])
        oldest = next(one for one, where in self._silent.items() if where == crowded)
        self.leave(oldest)
        return oldest

    def open(self, connection: C, share: Hashable, *, is_operator: bool) -> C | None:
        """Give a connection that shook hands a place for good; return the one that must go, if any.

        It may be the same one: where its share has all that it gets.
        """
        self.leave(connection)
        count = self._open_counts[share]
        left = self._left
        has_reserve = (is_operator or share in self._known) and count < MAX_RESERVED_OF_ONE
        gone: C | None = None
        if count >= GREED * self._free and not (has_reserve and left > 0):
            gone = self._spare(GREED * (count + 1))
            if gone is None:
                return connection
            reached("oracle.place_of_a_greedy_share", "I9")
            self.leave(gone)
        self._open[connection] = share
        self._open_counts[share] += 1
        if len(self._known) < MAX_KNOWN_COUNT:
            self._known.add(share)
        return gone

    def standing(self, share: Hashable) -> str:
        """Say what a share has, and what is left."""
        return (
            f"its name, or its address, has {self._open_counts[share]} connections, and "
            f"{self._free} places are free, but for some that are kept"
        )

    @property
    def _left(self) -> int:
        return self.count - self._silent_count - len(self._open)

    @property
    def _free(self) -> int:
        return max(self._left - self.count // RESERVED_PART, 0)

    def _spare(self, most: int) -> C | None:
        """Return the longest silent connection of the largest share; None if none is above most.

        It is looked for among all, which each share above it pays for: it gets smaller each time.
        """
        counts = self._open_counts
        largest = max(counts, key=lambda one: counts[one], default=None)
        if counts[largest] <= most:
            return None
        return min(
            (one for one, share in self._open.items() if share == largest), key=self._asked_s
        )

    def leave(self, connection: C) -> None:
        """Forget a connection, if it is known."""
        for found, counts in (
            (self._silent, self._silent_counts),
            (self._open, self._open_counts),
        ):
            if connection in found:
                share = found.pop(connection)
                counts[share] -= 1
                if not counts[share]:
                    del counts[share]


class FairTurns(Generic[C]):
    """Who waits, and who is next: shares take turns, each with its longest waiting."""

    def __init__(self) -> None:
        """Begin with no connection that waits."""
        self._waiting: OrderedDict[Hashable, dict[C, None]] = OrderedDict()

    def wait(self, one: C, share: Hashable) -> None:
        """Let one wait, who does not yet."""
        self._waiting.setdefault(share, {})[one] = None

    def next(self) -> C | None:
        """Return whose turn it is, who waits no longer; None if none waits."""
        if not self._waiting:
            return None
        share, waiting = self._waiting.popitem(last=False)
        one = next(iter(waiting))
        del waiting[one]
        if waiting:
            self._waiting[share] = waiting
        return one

    def forget(self, one: C, share: Hashable) -> None:
        """Let one wait no longer, if it does."""
        waiting = self._waiting.get(share, {})
        waiting.pop(one, None)
        if not waiting:
            self._waiting.pop(share, None)
