"""Marks of buckets (`marks.py`) in a folder of files, each with the file that its batch has become.

    .<share>.<number>.mark    {"fence", "mark", "hidden", "name"}

Of the files of a share the one with the largest number counts.  To take a bucket over, and to
deliver a batch, is to write the next one, which `link` makes only where it is not there: so an
owner that was replaced since it took over is refused.  One that slept for so long that its number
was used and tidied up finds a larger one beside it, and is refused as well.

The file of a batch is durable under a hidden name before its mark is, and gets its own name behind
it; the next owner does that first, where a death has come in between.  No lock is held that a
process that was stopped could keep.

A folder may have a million files by and by, and is listed only where a bucket is taken over.  Marks
go in the order of their numbers: while the one that an owner has written last is there, no number
behind it was ever used and tidied up.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import mmh3
import msgspec

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.errors import CorruptCell
from omidpy.recipes.export_queue.exporter import Deposed, Refused
from omidpy.recipes.export_queue.marks import Mark, decode_mark

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.marks import Share

SUFFIX: Final = ".mark"
KEPT: Final = 2
"""So many marks of a share are left, so that a reader of one finds it."""


class _Document(msgspec.Struct, frozen=True):
    fence: int
    mark: str
    hidden: str
    """The name under which the file of the batch is durable; empty: there is none."""
    name: str
    """The one that it gets."""


class _Newest(NamedTuple):
    """The newest mark of a share, as its owner in this process has written it."""

    fence: int
    number: int
    identity: tuple[int, int]
    """What no other file has that gets its name: its number, and when it was written."""


_NOTHING: Final = _Newest(0, 0, (0, 0))


class FolderMarks:
    """The marks of one folder.  Safe to share among threads, a share in the hands of one."""

    def __init__(self, folder: Path) -> None:
        """Read the folder when it is first asked for."""
        self._folder = folder
        self._newest: dict[str, _Newest] = {}
        """Of what this process has taken over."""

    def take_over(self, share: Share) -> Mark | None:
        """Raise the fence of a bucket, give the last file its name, and return the mark.

        Raises:
            Deposed: there is a later owner.
            Refused: a mark cannot be read.
        """
        while True:
            number = max(self._all(share), default=0)
            old = self._read(share, number) if number else None
            if old is not None and old.fence > share.fence:
                raise Deposed(f"{self._folder}: {share.name} has an owner of fence {old.fence}")
            # Before the fence is raised: the owner may have died between its mark and the name, and
            # the mark that follows speaks of that file no more.
            if old is not None and old.hidden:
                self.rename(old.hidden, old.name)
            mark = "" if old is None else old.mark
            written = self._write(share, number + 1, _Document(share.fence, mark, "", ""))
            # Looked at behind it: a number that was used and tidied up since the list is free, and
            # who writes that has deposed nobody (X10).
            if written is not None and max(self._all(share)) == number + 1:
                break  # else another took over at the same time, whose fence is met next
        # Behind it: who was interrupted there takes the bucket over once more, so that they go in
        # their order (X10).
        self._tidy(share, number + 1)
        self._newest[share.name] = _Newest(share.fence, number + 1, written)
        try:
            return decode_mark(mark, where=f"{self._folder}, {share.name}") if mark else None
        except CorruptCell as error:
            raise Refused(str(error)) from error

    def advance(self, share: Share, mark: Mark, *, hidden: str, name: str) -> None:
        """Keep a mark, and with it the file of its batch, which is durable under a hidden name.

        Raises:
            Deposed: there is a later owner; perhaps both are kept all the same.
        """
        last = self._newest.get(share.name, _NOTHING)
        number = last.number + 1
        document = _Document(share.fence, mark.encode(), hidden, name)
        written = self._write(share, number, document) if last.fence == share.fence else None
        # Looked at behind the write: a successor that has read our mark goes on behind it, and we
        # write no more (X10).
        if written is None or not self._is_newest(share, last):
            raise Deposed(f"{self._folder}: {share.name} was taken over")
        # A reader lists the marks and reads the newest: those before it are left for one that is
        # slow in between.  And in their order, as above.
        self._path(share, number - KEPT).unlink(missing_ok=True)
        self._newest[share.name] = _Newest(share.fence, number, written)

    def hidden_name(self, share: Share, name: str) -> str:
        """Return under what name to write a file that gets its own by `advance`."""
        # Its own name may be as long as names can be; it ends with a hash of what is in the file.
        ending = name.rpartition("-")[2]
        # No other thread or process has this name, so that none writes into our file.
        return f".{ending}.{_tag(share)}-{os.getpid()}-{threading.get_ident()}"

    def rename(self, hidden: str, name: str) -> None:
        """Give a file its name, durably, unless one has that name."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / hidden).rename(self._folder / name)
        self.sync()

    def sync(self) -> None:
        """Make the names of the folder durable."""
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _path(self, share: Share, number: int) -> Path:
        return self._folder / f".{share.name}.{number:012}{SUFFIX}"

    def _all(self, share: Share) -> list[int]:
        """Return the numbers of the marks of a share."""
        beginning = f".{share.name}."
        with os.scandir(self._folder) as found:
            names = [one.name for one in found if one.name.startswith(beginning)]
        numbers = [name[len(beginning) :].removesuffix(SUFFIX) for name in names]
        return [int(number) for number in numbers if number.isdecimal()]

    def _read(self, share: Share, number: int) -> _Document | None:
        """Return a mark; None: it was tidied up, since there are later ones."""
        path = self._path(share, number)
        try:
            return msgspec.json.decode(path.read_bytes(), type=prepared(_Document))
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            raise Refused(f"{path} is no mark: {error}; remove it if you know better") from error

    def _write(self, share: Share, number: int, document: _Document) -> tuple[int, int] | None:
        """Write the mark of a number, durably; return its identity, None if another owner has."""
        path = self._path(share, number)
        # No other thread or process has this name.
        draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            with draft.open("wb") as file:
                file.write(msgspec.json.encode(document))
                file.flush()
                os.fsync(file.fileno())
            identity = _identity(draft)
            path.hardlink_to(draft)
        except FileExistsError:
            return None
        finally:
            draft.unlink(missing_ok=True)
        self.sync()
        return identity

    def _is_newest(self, share: Share, last: _Newest) -> bool:
        """Say whether the mark behind our last one is the newest, now that it is written.

        Cost: 2 looks; a list of the folder where our last one is gone.
        """
        number = last.number + 1
        if _identity(self._path(share, number + 1)) is not None:
            return False
        is_there = _identity(self._path(share, last.number)) == last.identity
        return is_there or max(self._all(share)) == number

    def _tidy(self, share: Share, number: int) -> None:
        """Remove what earlier owners of a share have left, which are refused by now.

        That are marks, in their order, and what was being written when they died.
        """
        for old in sorted(self._all(share)):
            if old <= number - KEPT:
                self._path(share, old).unlink(missing_ok=True)
        written = re.compile(
            rf"\.{re.escape(share.name)}\.\d+{re.escape(SUFFIX)}\.\d+-\d+|\..*\.{_tag(share)}-\d+-\d+"
        )
        with os.scandir(self._folder) as found:
            left = [one.name for one in found if written.fullmatch(one.name)]
        for name in left:
            (self._folder / name).unlink(missing_ok=True)


def _tag(share: Share) -> str:
    """Return what stands for a share in the name of a file, which has no room for its own."""
    return f"{mmh3.hash64(share.name, 0, signed=False)[0]:016x}"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
