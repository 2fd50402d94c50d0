"""Files that are written now and visible later: multipart uploads, and small files kept in hand.

A file begins in memory.  One that ends there, small enough, travels with its task's message and
costs one request, when the job is committed.  One that grows becomes an upload, part by part.

    requests: 0 for a small file, else 1 and 1 for each part

Parts grow, since a store takes 10,000 of them and files may have terabytes.

Requests are sent in the background, while the task goes on writing; it waits for them where its
attempt is committed or aborted.

    M3  of one attempt at most PARTS_AT_ONCE parts wait to be sent, besides what its files buffer
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Final

from omidpy.base.callers.pools import begun
from omidpy.base.within import within
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.values import PendingFile
from omidpy.errors import CommitterError

MOST_PARTS: Final = 10_000
SMALLEST_PART_BYTES: Final = 5 * 2**20
"""Of every part but the last; the store refuses smaller ones when the upload is completed."""
LARGEST_PART_BYTES: Final = 5 * 2**30
PARTS_OF_A_SIZE: Final = 1000
PARTS_AT_ONCE: Final = 8


class Allowance:
    """How many bytes of small files a task may still keep in hand."""

    def __init__(self, total_bytes: int) -> None:
        """Begin with all of them."""
        self._left = total_bytes
        self._lock = threading.Lock()

    def take(self, count: int) -> bool:
        """Take `count` bytes; False, and none are taken, where that is too many."""
        return within(self._lock, self._is_taken, count)

    def _is_taken(self, count: int) -> bool:
        if count > self._left:
            return False
        self._left -= count
        return True


def part_bytes(number: int, first_bytes: int) -> int:
    """Return the size of part `number`, from 1: twice as much after every thousand.

    With 8 MiB at first 10,000 parts hold more than the 5 TiB of the largest object.
    """
    return int(min(first_bytes << ((number - 1) // PARTS_OF_A_SIZE), LARGEST_PART_BYTES))


def never() -> bool:
    """Say that nobody who sends is late."""
    return False


class Sender:
    """Sends parts of one attempt's files in the background (M3), until the attempt is given up."""

    def __init__(self, store: ObjectStore, is_late: Callable[[], bool] = never) -> None:
        """Send to a store.

        Args:
            store: The store.
            is_late: Whether the job has ended without the attempt; asked behind each upload that it
                begins, which no sweep of the job's may come behind.
        """
        self.store = store
        self.is_late = is_late
        self._sent: deque[Future[str]] = deque()
        self._is_ended = False
        self._lock = threading.Lock()

    def end(self) -> None:
        """Begin no upload any more: a thread that writes on would leave one that none ends (C6)."""
        within(self._lock, self._end)

    def begin(self, work: Callable[[], str]) -> Future[str]:
        """Begin an upload; what ends the attempt afterwards finds it.

        Raises:
            CommitterError: The attempt was ended before.
        """
        return within(self._lock, self._begun, work)

    def _end(self) -> None:
        self._is_ended = True

    def _begun(self, work: Callable[[], str]) -> Future[str]:
        if self._is_ended:
            raise CommitterError(
                "the attempt at this task was given up, by itself or with its job, and can write "
                "nothing more"
            )
        return begun(self.store.background.submit, work)

    def send(self, work: Callable[[], str]) -> Future[str]:
        """Begin a request that holds a part, once there is room for it."""
        while len(self._sent) >= PARTS_AT_ONCE:
            wait([self._sent.popleft()])
        made = begun(self.store.background.submit, work)
        self._sent.append(made)
        return made


class UploadedFile:
    """A file on its way to a key."""

    def __init__(
        self,
        sender: Sender,
        *,
        bucket: str,
        key: str,
        job_id: str,
        first_part_bytes: int,
        inline_bytes: int,
        allowance: Allowance,
        stamp: str = "",
    ) -> None:
        """Begin it; nothing is sent."""
        self.rows: int | None = None
        self._sender = sender
        self._bucket = bucket
        self._key = key
        self._job_id = job_id
        self._stamp = stamp
        self._first_part_bytes = first_part_bytes
        self._inline_bytes = inline_bytes
        self._allowance = allowance
        self._buffer = bytearray()
        self._upload: Future[str] | None = None
        self._parts: list[Future[str]] = []
        self._length = 0
        self._is_inline = False
        self._is_closed = False
        self._is_dead = False
        self._is_aborted = False
        self._lock = threading.Lock()

    def write(self, data: bytes, /) -> int:
        """Add bytes; sends each part that is full."""
        self._buffer += data
        self._length += len(data)
        if self._length > self._inline_bytes:
            self._begin()  # it cannot end as a small file any more
        while len(self._buffer) >= (size := self._next_part_bytes):
            self._send(bytes(self._buffer[:size]))
            del self._buffer[:size]
        return len(data)

    def close(self) -> None:
        """End it; an empty file, too, has one part."""
        if self._is_closed or self._is_dead:
            return
        small = self._upload is None and 0 < self._inline_bytes >= self._length
        if small and self._allowance.take(self._length):
            self._is_inline = True
        elif self._buffer or not self._parts:
            self._send(bytes(self._buffer))
            self._buffer.clear()
        self._is_closed = True

    def abort(self) -> None:
        """Give it up, once nothing of it is on its way; a thread that writes it goes on in vain."""
        within(self._lock, self._die)
        self._buffer.clear()
        if self._upload is None:
            return
        for part in self._parts:
            part.cancel()
        wait([self._upload, *self._parts])
        if self._upload.exception() is None:
            self._is_aborted = True
            self._sender.store.abort_upload(self._bucket, self._key, self._upload.result())

    def _die(self) -> None:
        self._is_dead = True

    def pending(self) -> PendingFile:
        """Return what the driver needs to complete it, once it was sent.

        Raises:
            CommitterError: It was not closed, or the store has refused it.
        """
        if not self._is_closed or self._is_dead:
            raise CommitterError(
                f"the file s3://{self._bucket}/{self._key} was not closed, so that it may lack "
                "its end; close every file before its task is committed"
            )
        return PendingFile(
            self._key,
            self._length,
            self.rows,
            self._upload.result() if self._upload is not None else "",
            tuple(part.result() for part in self._parts),
            bytes(self._buffer) if self._is_inline else None,
            stamp=self._stamp,
        )

    @property
    def _next_part_bytes(self) -> int:
        return part_bytes(len(self._parts) + 1, self._first_part_bytes)

    def _begin(self) -> Future[str]:
        return self._upload or within(self._lock, self._begun)

    def _begun(self) -> Future[str]:
        if self._is_dead:
            raise CommitterError(f"the file s3://{self._bucket}/{self._key} was given up")
        self._upload = self._sender.begin(self._create)
        return self._upload

    def _create(self) -> str:
        """Begin the upload; return its id.

        Raises:
            CommitterError: The store failed, or the job has ended, and nothing is left.
        """
        store = self._sender.store
        upload_id = store.create_upload(self._bucket, self._key, self._job_id, self._stamp)
        if self._sender.is_late():
            store.abort_upload(self._bucket, self._key, upload_id)
            raise CommitterError(
                f"the attempt that writes s3://{self._bucket}/{self._key} comes too late: job "
                f"{self._job_id} was committed without it, and it leaves nothing"
            )
        return upload_id

    def _send(self, data: bytes) -> None:
        number = len(self._parts) + 1
        if number > MOST_PARTS:
            raise CommitterError(
                f"the file s3://{self._bucket}/{self._key} has more than {MOST_PARTS} parts; "
                "raise part_bytes"
            )
        upload, store = self._begin(), self._sender.store

        def work() -> str:
            # It was begun before this was: with one thread, too, it does not wait for itself.
            upload_id = upload.result()
            try:
                return store.upload_part(self._bucket, self._key, upload_id, number, data)
            finally:
                if self._is_aborted:
                    # A part that was on its way when its upload was aborted may be kept for ever.
                    store.abort_upload(self._bucket, self._key, upload_id)

        self._parts.append(self._sender.send(work))
