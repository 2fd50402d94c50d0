"""Marks of buckets (`marks.py`) in a folder of files, each with the file that its batch has become.

    .<share>.<number>.mark    {"fence", "mark", "hidden", "name"}

Of the files of a share the one with the largest number counts.  To take a bucket over, and to
deliver a batch, is to write the next one, which `link` makes only where it is not there: so an
owner that was replaced since it took over is refused.  One that slept for so long that its number
was used and tidied up finds a larger one beside it, and is refused as well.

The file of a batch is durable under a hidden name before its mark is, and gets its own name behind
it; the next owner does that first, where a death has come in between.  No lock is held that a
process that was stopped could keep.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from omidpy.base.documents import prepared
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


class FolderMarks:
    """The marks of one folder.  Safe to share among threads, a share in the hands of one."""

    def __init__(self, folder: Path) -> None:
        """Read the folder when it is first asked for."""
        self._folder = folder
        self._numbers: dict[str, tuple[int, int]] = {}
        """(fence, number of its newest mark) of what this process has taken over."""

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
            if self._write(share, number + 1, _Document(share.fence, mark, "", "")):
                break  # else another took over at the same time, whose fence is met next
        self._numbers[share.name] = share.fence, number + 1
        try:
            return decode_mark(mark, where=f"{self._folder}, {share.name}") if mark else None
        except CorruptCell as error:
            raise Refused(str(error)) from error

    def advance(self, share: Share, mark: Mark, *, hidden: str, name: str) -> None:
        """Keep a mark, and with it the file of its batch, which is durable under a hidden name.

        Raises:
            Deposed: there is a later owner; perhaps both are kept all the same.
        """
        fence, number = self._numbers.get(share.name, (0, 0))
        document = _Document(share.fence, mark.encode(), hidden, name)
        is_ours = fence == share.fence and self._write(share, number + 1, document)
        # Looked at behind the write: a successor that has read our mark goes on behind it, and we
        # write no more (X10).
        if not is_ours or max(self._all(share)) != number + 1:
            raise Deposed(f"{self._folder}: {share.name} was taken over")
        self._numbers[share.name] = fence, number + 1

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
        except msgspec.DecodeError as error:
            raise Refused(f"{path} is no mark: {error}; remove it if you know better") from error

    def _write(self, share: Share, number: int, document: _Document) -> bool:
        """Write the mark of a number, durably; say whether no other owner has."""
        path = self._path(share, number)
        # No other thread or process has this name.
        draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            with draft.open("wb") as file:
                file.write(msgspec.json.encode(document))
                file.flush()
                os.fsync(file.fileno())
            path.hardlink_to(draft)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        self.sync()
        # A reader lists the marks and reads the newest: those before it are left for one that is
        # slow in between.
        for old in self._all(share):
            if old <= number - KEPT:
                self._path(share, old).unlink(missing_ok=True)
        return True
