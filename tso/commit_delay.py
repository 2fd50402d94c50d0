"""How long does an oracle wait for more commits before it writes those that it has?

A batch costs a sync and much else that is there once, however many commits are in it.  Threads that
commit again and again were answered by the last batch, and ask again a moment later: too late for
the commits of the others, so that two halves take turns, and the threads of one compute while the
oracle writes for the other, and all want the interpreter's one lock.  Who waits for them a moment
has all commits in one batch.  PostgreSQL has `commit_delay` and `commit_siblings` for that.

A caller that is alone is waited for by none.  Callers that do something else in between do not come
in time, and after a few waits in vain the oracle stops waiting, but for a look now and then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

STEP_S: Final = 0.0005
"""So long the oracle waits for the next commit: a thread takes half of that from an answer to the
next question, where no other computes."""

LONGEST_S: Final = 0.005
"""And so long in all, whatever comes."""

_WORTHWHILE: Final = 0.5
"""Which part of those that were waited for must have come."""

_WEIGHT: Final = 0.2
"""Of the last wait among all before."""

_LOOK_EVERY: Final = 32
"""So many batches go at once where nobody comes, until one waits again."""


class CommitDelay:
    """Whom the last batch has answered, and whether such callers come back at once."""

    def __init__(self) -> None:
        self._answered: set[int] = set()
        self._came_back = 1.0
        self._left_out = 0

    def answered(self, caller: int) -> None:
        """Note that a caller, by a number of its own, has the answer to a commit."""
        self._answered.add(caller)

    def awaited(self, arrived: Iterable[int]) -> set[int]:
        """Return the callers that are worth a wait, where others have come to commit.

        There are none where none was answered of late, or where those who were do not come back.
        """
        awaited = self._answered.difference(arrived)
        self._answered = set()
        if awaited and self._came_back < _WORTHWHILE:
            self._left_out += 1
            if self._left_out < _LOOK_EVERY:
                return set()
            self._left_out = 0
        return awaited

    def waited(self, awaited_count: int, missing_count: int) -> None:
        """Note how many of those who were waited for did not come."""
        share = (awaited_count - missing_count) / awaited_count
        self._came_back += _WEIGHT * (share - self._came_back)
