"""In which order do entries leave, and which may leave at all?  Pure.

Entries are read in the order in which their transactions began, at one snapshot S, and must leave
in the order in which they committed.  Every commit below S can be read at S, and later ones are
above S; so what was committed below S is complete, and a cursor on commit timestamps never skips.

Nor does it need all of them at once.  A transaction commits after it began: once an entry of start
timestamp P was read, all that come later committed above P, so that those below P are complete
among the ones read.  Hence a window, which holds no more than what was in flight at once.

    X1 (closed-window)  an entry is taken only when no entry that is still unread, now or in a later
                        snapshot, has a position below its own

Nothing here deletes, and nothing looks at what an entry holds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple


class Position(NamedTuple):
    """Where an entry stands in the order of delivery."""

    commit_ts: int
    ordinal: bytes


BEGINNING: Final = Position(0, b"")


class FoundEntry(NamedTuple):
    """An entry as a snapshot sees it."""

    position: Position
    start_ts: int
    row: bytes
    content: bytes | None
    """None: too much to be held while it waits for its turn; it is read once more."""
    size_bytes: int
    version: int = 0
    """Of its cell."""


class Window:
    """Entries of one snapshot, read by start timestamp and taken by position."""

    def __init__(
        self, found: Iterator[FoundEntry], *, after: Position = BEGINNING, hold_bytes: int = 2**62
    ) -> None:
        """Look at entries.

        Args:
            found: Those that one snapshot sees in a range, all of them, by start timestamp.
            after: The position of the last one that was delivered: the others are left out.
            hold_bytes: How much content may wait here; beyond it entries come without theirs.
        """
        self._found = found
        self._after = after
        self._hold_bytes = hold_bytes
        self._waiting: list[FoundEntry] = []
        self._held_bytes = 0
        self._next = next(found, None)

    def take(self, *, buffer_bytes: int, max_entries: int | None = None) -> list[FoundEntry]:
        """Return the next entries by position: so much at most, and one at least; [] at the end.

        A transaction may fall into several batches.
        """
        batch: list[FoundEntry] = []
        size_bytes = 0
        while self._has_first() and (max_entries is None or len(batch) < max_entries):
            size_bytes += self._waiting[0].size_bytes
            if batch and size_bytes > buffer_bytes:
                break
            first = heapq.heappop(self._waiting)
            self._held_bytes -= 0 if first.content is None else first.size_bytes
            batch.append(first)
        return batch

    def next_ts(self) -> int | None:
        """Return when the next entry was committed; None: all were taken."""
        return self._waiting[0].position.commit_ts if self._has_first() else None

    def low_ts(self) -> int | None:
        """Return the least start timestamp of what was not taken; None: all was."""
        read = [one.start_ts for one in self._waiting]
        return min([*read, self._next.start_ts] if self._next else read, default=None)

    def _has_first(self) -> bool:
        """Read until the first of those that wait is certainly the next one of all (X1)."""
        while self._next is not None and not (
            self._waiting and self._waiting[0].position.commit_ts < self._next.start_ts
        ):
            self._push(self._next)
            self._next = next(self._found, None)
        return bool(self._waiting)

    def _push(self, one: FoundEntry) -> None:
        if one.position <= self._after:
            return
        if self._waiting and self._held_bytes + one.size_bytes > self._hold_bytes:
            one = one._replace(content=None)
        else:
            self._held_bytes += one.size_bytes
        heapq.heappush(self._waiting, one)


class KeyWindow:
    """Entries of one snapshot that are read key by key, and taken so; those of a key by position.

    All that the snapshot sees of a key are there before the first of them is taken, and whatever is
    committed later is above the snapshot: so a key keeps its order without a cursor, as long as
    what was taken is removed.
    """

    def __init__(self, found: Iterator[FoundEntry], key_of: Callable[[bytes], bytes]) -> None:
        """Look at entries; `key_of` says what the rows of one key have in common."""
        self._found = found
        self._key_of = key_of
        self._next = next(found, None)
        self._waiting: deque[FoundEntry] = deque()

    def take(self, *, buffer_bytes: int, max_entries: int | None = None) -> list[FoundEntry]:
        """Return the next entries, as `Window.take`."""
        batch: list[FoundEntry] = []
        size_bytes = 0
        while self._has_first() and (max_entries is None or len(batch) < max_entries):
            size_bytes += self._waiting[0].size_bytes
            if batch and size_bytes > buffer_bytes:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _has_first(self) -> bool:
        if not self._waiting and self._next is not None:
            key, same = self._key_of(self._next.row), []
            while self._next is not None and self._key_of(self._next.row) == key:
                same.append(self._next)
                self._next = next(self._found, None)
            self._waiting.extend(sorted(same))
        return bool(self._waiting)
