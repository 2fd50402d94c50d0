"""What have commits changed in the list of a destination's files?  Values, and how they add up.

A change first drops folders, and then adds files.  Two that follow each other are one change, so
that any number of commits are as long as what is left of them.

Pure.  Lacks where changes are kept (`head.py`, `listing.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

EVERYTHING: Final = ""
"""The folder that has all others: the destination itself."""


class ListedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that is part of a destination."""

    path: str
    """Below the destination."""
    length: int
    """Bytes."""
    rows: int | None = None
    """None where they were not counted."""
    etag: str = ""
    """The tag of its bytes on a store whose tags are hashes; empty if that is unknown."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What some commits have changed, one after the other."""

    drops: tuple[str, ...] = ()
    """Folders, with "/" at their ends, of which nothing of before is left."""
    files: tuple[ListedFile, ...] = ()
    """What is part of the destination afterwards, besides what of before is left."""


class ListName(msgspec.Struct, frozen=True, array_like=True):
    """A change that is kept in an object of its own."""

    name: str
    """No two lists have one name."""
    size: int
    """Bytes."""


def then(first: Change, second: Change) -> Change:
    """Return two changes as one."""
    if EVERYTHING in second.drops:
        return second
    again = {one.path for one in second.files}
    dropped = frozenset(second.drops)
    kept = [one for one in first.files if one.path not in again and not _is_in(one.path, dropped)]
    drops = tuple(dict.fromkeys((*first.drops, *second.drops)))
    return Change(drops, (*kept, *second.files))


def _is_in(path: str, folders: Collection[str]) -> bool:
    """Say whether a path is below one of some folders, at any depth."""
    if not folders:
        return False
    end = path.find("/")
    while end >= 0:
        if path[: end + 1] in folders:
            return True
        end = path.find("/", end + 1)
    return False
