"""Sorts changes by commit, however many there are: what is too much for memory goes through a file.

A scan finds changes in the order of rows.  Those that fit are sorted where they are.  Else they are
written to a temporary file, a sorted run at a time, block by block, and merged as they are read
back.

    M1  at most `MOST_BYTES` of changes and a page of the scan are in memory while they are
        collected, and a block of every run while they are merged
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import IO, Any, Final, NamedTuple

import msgspec

from omidpy.base.collector import paused_collector
from omidpy.base.documents import prepared
from omidpy.errors import StorageError
from omidpy.model import Change, ChangeKind
from omidpy.reading.changes.change import order

MOST_BYTES: Final = 32 * 2**20
OVERHEAD_BYTES: Final = 300
"""What a change takes beside its row, column and values."""
BLOCK_BYTES: Final = 2**16
"""Of changes, about, that are written together, and read."""

_LENGTH_BYTES: Final = 4

ROW: Final = itemgetter(0)
COLUMN: Final = itemgetter(1)
VALUE: Final = itemgetter(2)
KIND: Final = itemgetter(3)
COMMIT_TS: Final = itemgetter(5)
OLD: Final = itemgetter(6)
_WITHOUT_MARKERS: Final = itemgetter(5, 0, 1)
"""What `order` comes to where no family was deleted as a whole."""
_CELL: Final = itemgetter(0, 1)


class _Run(NamedTuple):
    """Where a sorted part lies in the file."""

    start: int
    end: int


class SortedChanges:
    """Takes changes in any order, and gives them back in that of their commits."""

    def __init__(self) -> None:
        """Begin without changes, and without a file."""
        self._most_bytes = MOST_BYTES
        self._changes: list[Change] = []
        self._size_bytes = 0
        self._file: IO[bytes] | None = None
        self._runs: list[_Run] = []
        self._key: Callable[[Change], Any] = _WITHOUT_MARKERS

    def add(self, changes: Sequence[Change]) -> None:
        """Take changes; where there are many, those so far go to a file.

        Raises:
            StorageError: the file could not be made, or written.
        """
        self._changes += changes
        self._size_bytes += size_of(changes)
        if self._key is not order and ChangeKind.DELETE_FAMILY in map(KIND, changes):
            # What is in the file already has none, and is in this order, too.
            self._key = order
        if self._size_bytes > self._most_bytes:
            self._spill()

    def close(self) -> None:
        """Forget all; a second call does nothing."""
        self._changes = []
        if self._file is not None:
            self._file.close()
            self._file = None

    def drain(self) -> Iterator[list[Change]]:
        """Yield all, sorted, many at a time; nothing may be added any more."""
        try:
            if self._file is None:
                self._sort(self._changes)
                if self._changes:
                    yield self._changes
                return
            self._spill()
            yield from self._merged()
        finally:
            self.close()

    def _spill(self) -> None:
        try:
            self._write_run()
        except OSError as error:
            raise StorageError(
                "changes that are too many for memory could not be kept in a temporary file: "
                f"{error.strerror}; free space in the folder of such files, name another one by "
                "TMPDIR, or ask for less at a time"
            ) from error

    def _write_run(self) -> None:
        if self._file is None:
            import tempfile  # noqa: PLC0415 - few need it, and it imports much

            # Without a name: it is gone with this process, and no other can open it.
            self._file = tempfile.TemporaryFile(prefix="omidpy-changes-")  # noqa: SIM115 - see `close`
        self._sort(self._changes)
        start = self._file.tell()
        count = max(1, len(self._changes) * BLOCK_BYTES // max(self._size_bytes, 1))
        for block in cut(self._changes, most_changes=count, most_bytes=BLOCK_BYTES):
            encoded = msgspec.msgpack.encode(block)
            self._file.write(len(encoded).to_bytes(_LENGTH_BYTES))
            self._file.write(encoded)
        self._file.flush()
        self._runs.append(_Run(start, self._file.tell()))
        self._changes = []
        self._size_bytes = 0

    def _merged(self) -> Iterator[list[Change]]:
        """Yield what all runs have, a block of each in memory."""
        key = self._key
        blocks = [self._read(run) for run in self._runs]
        heads = {at: head for at, run in enumerate(blocks) if (head := next(run, None)) is not None}
        while heads:
            # Of what is not in memory, all comes behind the first of these ends.
            least = min(key(head[-1]) for head in heads.values())
            ready: list[Change] = []
            for at, head in list(heads.items()):
                count = bisect_right(head, least, key=key)
                ready += head[:count]
                rest: list[Change] | None = head[count:] or next(blocks[at], None)
                if rest is None:
                    del heads[at]
                else:
                    heads[at] = rest
            self._sort(ready)
            yield ready

    def _sort(self, changes: list[Change]) -> None:
        """Bring changes into the order of `_key`."""
        with paused_collector():
            if self._key is order:
                changes.sort(key=order)
                return
            # A scan finds them nearly in this order, and numbers are quicker to compare than cells.
            changes.sort(key=_CELL)
            changes.sort(key=COMMIT_TS)

    def _read(self, run: _Run) -> Iterator[list[Change]]:
        assert self._file is not None, "runs are in the file"
        descriptor = self._file.fileno()
        decode = msgspec.msgpack.Decoder(prepared(list[Change])).decode
        at = run.start
        while at < run.end:
            length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, at))
            at += _LENGTH_BYTES
            block = os.pread(descriptor, length, at)
            at += length
            yield decode(block)


def size_of(changes: Sequence[Change]) -> int:
    """Return how much memory changes take, roughly."""
    return (
        OVERHEAD_BYTES * len(changes)
        + sum(map(len, map(ROW, changes)))
        + sum(map(len, map(COLUMN, changes)))
        + value_bytes(changes)
    )


def value_bytes(changes: Sequence[Change]) -> int:
    """Return how many bytes the values of changes have, old and new."""
    values, olds = map(VALUE, changes), map(OLD, changes)
    return sum(map(len, filter(None, values))) + sum(map(len, filter(None, olds)))


def cut(changes: list[Change], *, most_changes: int, most_bytes: int) -> Iterator[list[Change]]:
    """Cut changes into pieces of so many, and of values of so many bytes unless one has more."""
    for start in range(0, len(changes), most_changes):
        piece = changes[start : start + most_changes]
        if value_bytes(piece) <= most_bytes:
            yield piece
            continue
        first, size_bytes = 0, 0
        for at, change in enumerate(piece):
            size = len(change.value or b"") + len(change.old or b"")
            if at > first and size_bytes + size > most_bytes:
                yield piece[first:at]
                first, size_bytes = at, 0
            size_bytes += size
        yield piece[first:]
