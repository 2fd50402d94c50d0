"""Is what is open still what has the name?

A file that was removed, or another that was moved in its place, leaves who has it open with the old
one: it could be written to, and what was acknowledged would be gone with the last process that has
it open.  And a process opens a file again by its name, after a fork or an error, so that it might
read one file and write the other.

So a name stands for the file that was first opened by it.  The log beside it, and the memory
in which processes share what they know of that, go by the same rule for as long as a connection is
open that has used them: SQLite removes neither before that.
"""

from __future__ import annotations

import math
import os
import time
from typing import Final, NamedTuple

from omidpy.errors import StorageError

READS_LOOK_S: Final = 0.1
"""How often reads look: a look costs a tenth of a read."""


class Identity(NamedTuple):
    """What one file has, and no other at the same time."""

    device: int
    number: int

    @classmethod
    def of(cls, path: str) -> Identity | None:
        """Return that of the file of a name; None if there is none."""
        try:
            found = os.stat(path)  # noqa: PTH116  for every write
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino)


class Named:
    """Names, and which files they stand for."""

    def __init__(self, *paths: str) -> None:
        """Let them stand for none yet."""
        self._paths = paths
        self._identities: list[Identity | None] | None = None
        self._looked_s = -math.inf

    def note(self) -> None:
        """Let them stand for the files that have them, if they stand for none; those are open."""
        if self._identities is None:
            self._identities = [Identity.of(path) for path in self._paths]

    def forget(self) -> None:
        """Let them stand for none: nothing of ours is open by them."""
        self._identities = None

    def check(self) -> None:
        """Raise `StorageError` if another file has one of the names by now, or none."""
        for path, known in zip(self._paths, self._identities or (), strict=False):
            if known is not None and Identity.of(path) != known:
                error = StorageError(
                    f"{path} was removed or replaced while this process has it open, so that "
                    "nothing is written, which would be lost: stop every process that has the "
                    "store open, and put the right file in its place, with its own -wal beside "
                    "it, or one that `omidpy backup` made, with none"
                )
                error.wrote_nothing = True
                raise error

    def check_now_and_then(self) -> None:
        """Check, unless that was done a moment ago."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= READS_LOOK_S:
            self.check()
            self._looked_s = now_s
