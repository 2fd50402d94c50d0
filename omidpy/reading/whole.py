"""Has all of a scan come?  One that has failed is never taken for one that has ended.

A generator that was left by an error, or by an interrupt, is over: whoever asks it for more is told
that nothing more is there.  So a loop over the rest, as of a program that waits for the store to
come back, would take a part of the rows for all of them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain
from typing import Any, Self, TypeVar

from omidpy.errors import StorageError

R = TypeVar("R")


class _Ending(Iterator[Any]):
    """What stands behind all that comes: the end, if it was come to."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.is_reached = False

    def __next__(self) -> Any:
        if self.is_reached:
            raise StopIteration
        raise StorageError(
            f"{self._what} has failed before, or was interrupted, and what is still to come of it "
            "is missing; begin another one behind the last row that came"
        )


class _Whole(chain[R]):
    """In C, but for what is done once: scans hand out millions of rows."""

    __slots__ = ("_ending", "_found")

    _found: Generator[R, None, None]
    _ending: _Ending

    def __new__(cls, found: Generator[R, None, None], ending: _Ending) -> Self:
        one = super().__new__(cls, found, ending)
        one._found, one._ending = found, ending
        return one

    def close(self) -> None:
        """Ask for no more, as of a generator; what it holds is free."""
        self._ending.is_reached = True
        self._found.close()


def whole(found: Iterator[R], what: str) -> Iterator[R]:
    """Return an iterator over the same that ends where they do, and not where they fail.

    It can be closed, as a generator can.

    Args:
        found: What comes.
        what: What it is, for the error that follows a failure.

    Raises:
        StorageError: from the iterator, whenever more is asked for behind a failure.
    """
    ending = _Ending(what)
    return _Whole(_noted(found, ending), ending)


def _noted(found: Iterator[R], ending: _Ending) -> Generator[R, None, None]:
    yield from found
    ending.is_reached = True
