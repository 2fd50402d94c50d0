"""Writes each batch into a file, for loaders of files: JSON lines, or Parquet (`parquet.py`).

    <queue>-<bucket>-<first seq>-<last seq>-<hash of every seq>.<suffix>

where a `seq` is `<commit_ts>.<ordinal, hexadecimal>`.  A file appears whole, under its name, once
it is durable.  A reader keeps, for each key, what has the largest `seq`.

A mark of the bucket is kept in the folder, with the name of the last file (`file_marks.py`): so an
entry is in one file, whichever owner dies or sleeps, also where files are taken away as they come.

Where no marks are kept (`export`, for Spark and queues of the layout `fluo`) the name says exactly
which entries are in a file, so that a batch that comes again replaces its own one. One that comes
again with more behind it makes the file of the first try superfluous, and a file is removed only
while another one, as durable, holds all of its entries: which two processes cannot break between
them, though one was paused for long. So an entry is in one file; in two for a moment, or where a
process has died between acknowledging the first entries of a batch and the last.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Final

import mmh3

from omidpy.errors import ConfigError
from omidpy.recipes.export_queue.exporter import Batch, Entry, ExactExporter
from omidpy.recipes.export_queue.sinks.documents import line
from omidpy.recipes.export_queue.sinks.file_marks import FolderMarks

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.marks import Mark, Share

Seqs = frozenset[tuple[int, int]]

_TS_DIGITS: Final = 19

NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""What a file system without hard links says."""

log = logging.getLogger(__name__)


class FileSink(ExactExporter):
    """A file for each batch."""

    suffix: ClassVar[str]

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Write into a folder, which is made if it is not there."""
        self._folder = Path(folder)
        self._marks = FolderMarks(self._folder)
        self._keeps_marks = True

    def open(self) -> None:
        """Make the folder, if it is not there.

        Raises:
            ConfigError: it cannot be made.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"no folder for files can be made: {error}") from error

    @property
    def needs_marks(self) -> bool:
        """Say no: readers know an entry that comes twice."""
        return False

    def take_over(self, share: Share) -> Mark | None:
        """Raise the fence of a bucket, and give its last file its name."""
        try:
            found = self._marks.take_over(share)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self._keeps_marks = False
            log.warning(
                "%s has no hard links, so that no marks can be kept there: after a death an entry "
                "may be in two files",
                self._folder,
            )
            return None
        self._keeps_marks = True
        return found

    def export_marked(self, share: Share, batch: Batch, mark: Mark) -> None:
        """Write the file of a batch, and its mark."""
        if not self._keeps_marks:
            self.export(batch)
            return
        name = self._name(batch)
        hidden = self._written(self._marks.hidden_name(share, name), batch)
        # From here on the next owner may need it, and no one removes it: neither where we are told
        # that we were replaced, nor where an interrupt comes.
        self._marks.advance(share, mark, hidden=hidden.name, name=name)
        self._marks.rename(hidden.name, name)

    def export(self, batch: Batch) -> None:
        """Write the file of a batch."""
        name = self._name(batch)
        # No other thread or process has this name, so that none writes into our file.
        hidden = f".{name}.{os.getpid()}-{threading.get_ident()}"
        self._written(hidden, batch).replace(self._folder / name)
        others = self._others(name, batch)
        self._marks.sync()  # of our name, and of those that were found
        self._tidy(name, batch, others)

    def _name(self, batch: Batch) -> str:
        return f"{_beginning(batch)}-{_seq(batch[-1])}-{_digest(batch)}.{self.suffix}"

    def _written(self, name: str, batch: Batch) -> Path:
        """Write a batch, durably, under a hidden name, and return where that is."""
        hidden = self._folder / name
        is_whole = False
        try:
            with hidden.open("wb") as file:
                self.write(file, batch)
                file.flush()
                os.fsync(file.fileno())
            is_whole = True
        finally:
            if not is_whole:
                hidden.unlink(missing_ok=True)
        return hidden

    @abstractmethod
    def write(self, file: BinaryIO, batch: Batch) -> None:
        """Write the entries of a batch."""

    @abstractmethod
    def seqs(self, path: Path) -> Seqs:
        """Return the `seq` of every entry of a file."""

    def _others(self, name: str, batch: Batch) -> list[Path]:
        """Return the files that begin at the same entry as ours."""
        beginning, suffix = f"{_beginning(batch)}-", f".{self.suffix}"
        with os.scandir(self._folder) as found:
            return [
                self._folder / one.name
                for one in found
                if one.name.startswith(beginning) and one.name.endswith(suffix) and one.name != name
            ]

    def _tidy(self, name: str, batch: Batch, others: list[Path]) -> None:
        """Remove whichever of these files, ours too, another of them holds wholly."""
        ours = frozenset(entry.seq for entry in batch)
        for other in others:
            try:
                theirs = self.seqs(other)
            except FileNotFoundError:
                continue  # a loader of files, or the owner of a larger one, was quicker
            except (ValueError, KeyError, TypeError):
                continue  # it is none of ours, whatever its name is
            if theirs < ours:
                other.unlink(missing_ok=True)
            elif ours < theirs:
                (self._folder / name).unlink(missing_ok=True)


class JsonLinesSink(FileSink):
    """A file of JSON lines for each batch."""

    suffix = "jsonl"

    def write(self, file: BinaryIO, batch: Batch) -> None:
        """Write a line for each entry."""
        file.writelines(line(batch, entry) for entry in batch)

    def seqs(self, path: Path) -> Seqs:
        """Return the `seq` of every line."""
        with path.open("rb") as file:
            found = (json.loads(text) for text in file)
            return frozenset((one["commit_ts"], one["ordinal"]) for one in found)


def _beginning(batch: Batch) -> str:
    return f"{batch.queue}-{batch.bucket:05}-{_seq(batch[0])}"


def _seq(entry: Entry) -> str:
    return f"{entry.commit_ts:0{_TS_DIGITS}}.{entry.ordinal:08x}"


def _digest(entries: Iterable[Entry]) -> str:
    text = " ".join(_seq(entry) for entry in entries)
    return f"{mmh3.hash64(text, 0, signed=False)[0]:016x}"
