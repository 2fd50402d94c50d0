"""Sorts changes by commit, however many there are: what is too much for memory goes through a file.

A scan finds changes in the order of rows.  Those that fit are sorted where they are.  Else they are
written to a temporary file, a sorted run at a time, and merged as they are read back.

    M1  at most `MOST_BYTES` of changes are in memory, while they are collected and while they are
        merged, and a change of every run
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from typing import IO, Final, NamedTuple

import msgspec

from omidpy.reading.changes.change import Change, order

MOST_BYTES: Final = 32 * 2**20
OVERHEAD_BYTES: Final = 300
"""What a change takes beside its row, column and values."""
MOST_CHUNK_BYTES: Final = 2**18
LEAST_CHUNK_BYTES: Final = 2**12

_LENGTH_BYTES: Final = 4


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

    def add(self, change: Change) -> None:
        """Take a change; where there are many, those so far go to a file."""
        self._changes.append(change)
        self._size_bytes += size_of(change)
        if self._size_bytes > self._most_bytes:
            self._spill()

    def close(self) -> None:
        """Forget all; a second call does nothing."""
        self._changes = []
        if self._file is not None:
            self._file.close()
            self._file = None

    def drain(self) -> Iterator[Change]:
        """Yield all, sorted; nothing may be added any more."""
        try:
            if self._file is None:
                self._changes.sort(key=order)
                yield from self._changes
                return
            self._spill()
            yield from heapq.merge(*map(self._read, self._runs), key=order)
        finally:
            self.close()

    def _spill(self) -> None:
        if self._file is None:
            import tempfile  # noqa: PLC0415 - few need it, and it imports much

            # Without a name: it is gone with this process, and no other can open it.
            self._file = tempfile.TemporaryFile(prefix="omidpy-changes-")  # noqa: SIM115 - see `close`
        self._changes.sort(key=order)
        start = self._file.tell()
        for change in self._changes:
            encoded = msgspec.msgpack.encode(change)
            self._file.write(len(encoded).to_bytes(_LENGTH_BYTES))
            self._file.write(encoded)
        self._file.flush()
        self._runs.append(_Run(start, self._file.tell()))
        self._changes = []
        self._size_bytes = 0

    def _read(self, run: _Run) -> Iterator[Change]:
        assert self._file is not None, "runs are in the file"
        descriptor = self._file.fileno()
        fair_share = self._most_bytes // len(self._runs)
        chunk_bytes = min(MOST_CHUNK_BYTES, max(LEAST_CHUNK_BYTES, fair_share))
        decode = msgspec.msgpack.Decoder(Change).decode
        at, rest = run.start, b""
        while at < run.end:
            wanted = min(chunk_bytes, run.end - at)
            if len(rest) >= _LENGTH_BYTES:  # of a change that is larger than a chunk, all at once
                missing = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES]) - len(rest)
                wanted = min(max(wanted, missing), run.end - at)
            chunk = os.pread(descriptor, wanted, at)
            at += len(chunk)
            data, position = rest + chunk, 0
            while len(data) - position >= _LENGTH_BYTES:
                end = position + _LENGTH_BYTES
                end += int.from_bytes(data[position:end])
                if end > len(data):
                    break
                yield decode(data[position + _LENGTH_BYTES : end])
                position = end
            rest = data[position:]


def size_of(change: Change) -> int:
    """Return how much memory a change takes, roughly."""
    return (
        OVERHEAD_BYTES
        + len(change.row)
        + len(change.column)
        + len(change.value or b"")
        + len(change.old or b"")
    )
