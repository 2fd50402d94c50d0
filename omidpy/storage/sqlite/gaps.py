"""What is in the log, once a sync of it has failed?  Nothing is sure, until it is written again.

A system that could not write a page says so once, at the next sync, and takes the page for written
from then on: the sync behind that succeeds, and the page is on no disk.  When the power goes SQLite
reads the log up to that gap, so that everything behind it is lost, whatever was synced since; and
of a file into which the log was moved meanwhile some pages are newer than others.

So the log is marked when a sync of it has failed, before another writer comes.  A writer that finds
the mark first writes the log over itself, from what the system still has of it, and syncs that.  In
most cases that is the writer itself, at once.

A writer that asks for no sync moves the log itself, once it is long: where SQLite does that by
itself behind a commit, it says nothing of a sync that failed there, which nobody would hear of.
For the same reason the log is synced before such a writer closes, which may be what moves it.

The mark lies behind the note of the lock file, where the next process finds it, too.  It need not
be durable: with the power goes what it speaks of.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import Final

from omidpy.errors import StorageUnavailable
from omidpy.storage.sqlite.lock import NOTE_BYTES

_PIECE_BYTES: Final = 1 << 20
_MARK: Final = b"!"
_LOG_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24


def may_have_torn(error: BaseException) -> bool:
    """Say whether an error means that the system could not write what it had taken."""
    return (
        isinstance(error, sqlite3.Error)
        and getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_FSYNC"
    )


class Gaps:
    """Whether the log of a file may have gaps on the disk.  Used by who has the right to write."""

    def __init__(self, path: str) -> None:
        """Look for none yet.

        Args:
            path: Of the file, without links in it.
        """
        self._log = f"{path}-wal"
        self._lock = f"{path}-lock"
        self._is_marked_here = False
        """Whether a mark is needed that perhaps could not be set."""

    def check(self) -> None:
        """Close the gaps, if there may be some.

        Raises:
            StorageUnavailable: the system still refuses to write the log.

        Cost: 1 system call; as much as the log is long where there may be some.
        """
        # Before anything new is synced: behind a gap it would be acknowledged, and lost with the
        # power (I2).
        if self._is_marked_here or self._is_marked():
            self.close()

    def is_long(self, page_count: int) -> bool:
        """Say whether the log has as many pages that count, which it has not once it began anew.

        Cost: 4 system calls.
        """
        try:
            descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return _has_page(descriptor, page_count - 1)
        finally:
            os.close(descriptor)

    def length_bytes(self) -> int:
        """Return how long the file of the log is, of which not all need count.

        Cost: 1 system call.
        """
        try:
            return os.stat(self._log).st_size  # noqa: PTH116  for every write
        except OSError:
            return 0

    def sync(self) -> None:
        """Sync the log, if there is one.

        Raises:
            OSError: that failed, and the log must be marked.
        """
        try:
            descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def note(self) -> None:
        """Mark the log: there may be some."""
        self._is_marked_here = True
        with suppress(OSError):  # this process knows, at least
            self._write_mark()

    def close(self) -> None:
        """Write the log over itself, durably, and take the mark away.

        Raises:
            StorageUnavailable: that was refused, and the mark stands.
        """
        try:
            _write_over(self._log)
        except OSError as error:
            raise StorageUnavailable(
                f"a sync of {self._log} has failed, and it cannot be written again: "
                f"{error.strerror}; nothing is written to the store before that.  Look for a "
                "failing device, or one that is full"
            ) from error
        self._take_mark_away()
        self._is_marked_here = False

    def _is_marked(self) -> bool:
        try:
            return os.stat(self._lock).st_size > NOTE_BYTES  # noqa: PTH116  for every write
        except OSError:
            return False

    def _write_mark(self) -> None:
        # A lock by `flock` is of the open file: to close another one of its name frees nothing.
        descriptor = os.open(self._lock, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, _MARK, NOTE_BYTES)
        finally:
            os.close(descriptor)

    def _take_mark_away(self) -> None:
        with suppress(OSError):  # the next writer does the same again
            if self._is_marked():
                os.truncate(self._lock, NOTE_BYTES)


def _has_page(log: int, number: int) -> bool:
    """Say whether a log has a page of this number, and not from before it began anew.

    Each frame repeats the two salts of the log's header, which are others each time it begins.
    """
    header = os.pread(log, _LOG_HEADER_BYTES, 0)
    page_bytes = int.from_bytes(header[8:12])
    place = _LOG_HEADER_BYTES + number * (_FRAME_HEADER_BYTES + page_bytes)
    return len(header) == _LOG_HEADER_BYTES and os.pread(log, 8, place + 8) == header[16:24]


def _write_over(log: str) -> None:
    """Let the system write a log again that it has, durably.

    SQLite locks the file and the shared memory and no log, so that to close it here frees nothing.
    No other writes it meanwhile: that needs the right to write.
    """
    try:
        descriptor = os.open(log, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # it was moved into the file, and removed by who closed that
    try:
        place = 0
        while piece := os.pread(descriptor, _PIECE_BYTES, place):
            place += os.pwrite(descriptor, piece, place)  # perhaps not all of it
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
