"""Writes each batch into a file, for whoever loads files: JSON lines, or Parquet (`parquet.py`).

    <queue>-<bucket>-<first seq>-<last seq>-<hash of every seq>.<suffix>

where a `seq` is `<commit_ts>.<ordinal, hexadecimal>`.  A file appears whole, under its name, once
it is durable.  Whoever reads keeps, for each key, what has the largest `seq`.

The name says exactly which entries are in a file, so that a batch that comes again replaces its own
one.  One that comes again with more behind it makes the file of the first try superfluous, and a
file is removed only while another one, as durable, holds all of its entries: which two processes
cannot break between them, though one was paused for long.  So an entry is in one file; in two for a
moment, or where a process has died between acknowledging the first entries of a batch and the last.
"""

from __future__ import annotations

import json
import os
import threading
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, ClassVar, Final

import mmh3

from omidpy.recipes.export_queue.exporter import Batch, Entry, Exporter
from omidpy.recipes.export_queue.sinks.documents import line

Seqs = frozenset[tuple[int, int]]

_TS_DIGITS: Final = 19


class FileSink(Exporter):
    """A file for each batch."""

    suffix: ClassVar[str]

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Write into a folder, which is made if it is not there."""
        self._folder = Path(folder)

    def open(self) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)

    def export(self, batch: Batch) -> None:
        """Write the file of a batch."""
        name = f"{_beginning(batch)}-{_seq(batch[-1])}-{_digest(batch)}.{self.suffix}"
        # No other thread or process has this name, so that none writes into our file.
        hidden = self._folder / f".{name}.{os.getpid()}-{threading.get_ident()}"
        try:
            with hidden.open("wb") as file:
                self.write(file, batch)
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(self._folder / name)
        finally:
            hidden.unlink(missing_ok=True)
        others = self._others(name, batch)
        self._sync()  # of our name, and of those that were found
        self._tidy(name, batch, others)

    @abstractmethod
    def write(self, file: BinaryIO, batch: Batch) -> None:
        """Write the entries of a batch."""

    @abstractmethod
    def seqs(self, path: Path) -> Seqs:
        """Return the `seq` of every entry of a file."""

    def _sync(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

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
                continue  # whoever loads files, or the owner of a larger one, was quicker
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
