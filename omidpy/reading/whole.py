"""Has all of a scan come?  One that has failed is never taken for one that has ended.

A generator that was left by an error, or by an interrupt, is over: whoever asks it for more is told
that nothing more is there.  So a loop over the rest, as of a program that waits for the store to
come back, would take a part of the rows for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, TypeVar

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


def whole(found: Iterator[R], what: str) -> Iterator[R]:
    """Return an iterator over the same that ends where they do, and not where they fail.

    Args:
        found: What comes.
        what: What it is, for the error that follows a failure.

    Raises:
        StorageError: from the iterator, whenever more is asked for behind a failure.
    """
    ending = _Ending(what)
    # In C, but for what is done once: scans hand out millions of rows.
    return chain(_noted(found, ending), ending)


def _noted(found: Iterator[R], ending: _Ending) -> Iterator[R]:
    yield from found
    ending.is_reached = True
