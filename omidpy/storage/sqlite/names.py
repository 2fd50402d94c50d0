"""Is what is open still what has the name?

A file that was removed, or another that was moved in its place, leaves who has it open with the old
one: it could be written to, and what was acknowledged would be gone with the last process that has
it open.  And a process opens a file again by its name, after a fork or an error, so that it might
read one file and write the other.

So a name stands for the file that was first opened by it.  The log beside it, and the memory
in which processes share what they know of that, go by the same rule for as long as a connection is
open that has used them: SQLite removes neither before that.

And a file has one name.  SQLite calls the log after it, as we do the lock: two who open one file by
two names write over each other, and neither is told.  A name in the same folder, or elsewhere, is a
hard link; one in a container is a file that is mounted by itself, whose log is the container's.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from omidpy.errors import ConfigError, StorageError, StorageUnavailable

PARTIAL: Final = ".partial"
"""How the name of a copy ends before it gets its own (`backup.py`)."""
_MOUNTS: Final = Path("/proc/self/mountinfo")


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
        self.is_noted = False
        """Whether each stands for a file."""
        self.looked_s = -math.inf
        """When a read has looked; see `Database.read`."""

    def note(self) -> None:
        """Let them stand for the files that have them, if they stand for none; those are open.

        One that was not there when it was looked at is looked at again.
        """
        if self._identities is None:
            self._identities = [None] * len(self._paths)
        if None in self._identities:
            self._identities = [
                known or Identity.of(path)
                for path, known in zip(self._paths, self._identities, strict=True)
            ]
        self.is_noted = None not in self._identities

    def forget(self) -> None:
        """Let them stand for none: nothing of ours is open by them."""
        self.is_noted = False
        self._identities = None

    def check(self) -> None:
        """Raise `StorageError` if another file has one of the names by now, or none.

        Raises:
            StorageUnavailable: the system does not tell.
        """
        for path, known in zip(self._paths, self._identities or (), strict=False):
            if known is not None and Identity.of(path) != known and _looked_up(path) != known:
                error = StorageError(
                    f"{path} was removed or replaced while this process has it open, so that "
                    "nothing is written, which would be lost: stop every process that has the "
                    "store open, and put the right file in its place, with its own -wal beside "
                    "it, or one that `omidpy backup` made, with none"
                )
                error.wrote_nothing = True
                raise error


def _looked_up(path: str) -> Identity | None:
    """Return what `Identity.of` does, and take no name for removed that cannot be looked up.

    Who was told so would put a backup in the place of a file that is there.

    Raises:
        StorageUnavailable: the system does not tell.
    """
    try:
        found = os.stat(path)  # noqa: PTH116  as above
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as why:
        error = StorageUnavailable(
            f"{path} cannot be looked at: {why.strerror}; nothing is written"
        )
        error.wrote_nothing = True
        raise error from why
    return Identity(found.st_dev, found.st_ino)


def unfinished_prefix(path: str) -> str:
    """Return how the names begin that a file has, in its folder, before it gets its own."""
    return f".{Path(path).name}-"


def check_only_name(path: str) -> None:
    """Refuse a file that others may open by another name.

    Args:
        path: Its name, without links in it; there may be no file yet.

    Raises:
        ConfigError: it has another one; or it is mounted by itself.

    Cost: 2 system calls; more where it has.
    """
    if _count_of(path) > 1 and (others := _other_names(path)) is not None:
        named = f", one of them {others[0]}" if others else ""
        raise ConfigError(
            f"{path} has other names (hard links){named}; SQLite calls the log of a file after its "
            "name, so that what is written by two of them is lost: remove those that it should not "
            "have, and make copies with `omidpy backup`"
        )
    if path in _mount_points():
        raise ConfigError(
            f"{path} is mounted by itself, and SQLite keeps the log of a file beside it, where no "
            "other process finds it, and which is gone with this container: mount its folder"
        )


def _count_of(path: str) -> int:
    try:
        return os.stat(path).st_nlink  # noqa: PTH116  as above
    except OSError:
        return 0


def _other_names(path: str) -> list[str] | None:
    """Return the other names of a file in its folder; None: it has none any more, anywhere.

    Whoever made it may have died before it had its name alone, or be about to: nobody opens it by
    the one before.
    """
    identity, unfinished = Identity.of(path), unfinished_prefix(path)
    partial = Path(path).name + PARTIAL
    others: list[str] = []
    found: list[Path] = []
    with suppress(OSError):  # a folder that may not be read
        found = list(Path(path).parent.iterdir())
    for one in found:
        if str(one) == path or one.is_symlink() or Identity.of(str(one)) != identity:
            continue
        if one.name.startswith(unfinished) or one.name == partial:
            with suppress(FileNotFoundError):  # who made it does the same
                one.unlink()
        else:
            others.append(str(one))
    return others if _count_of(path) > 1 else None


def _mount_points() -> set[str]:
    """Return where something is mounted, as far as the system tells."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return set()
    return {_unescaped(fields[4]) for line in lines if len(fields := line.split(" ")) > 4}


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
