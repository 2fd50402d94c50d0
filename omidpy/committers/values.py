"""What tasks tell the driver: files that wait to be completed, and what became of a job.

A message is small, since the driver holds one for every task: an upload's id and its parts' tags,
or, for a small file, its bytes.  All of it can be pickled, which is how Spark carries it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

_MD5: Final = re.compile(r"[0-9a-f]{32}")


def md5(data: bytes) -> str:
    """Return the tag that bytes have on a store that hashes."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class TaskId:
    """One try at one part of a job."""

    task: int
    """Which part: 0 and up."""
    attempt: int = 0
    """Which try at it.  No two tries at one part have the same number."""


@dataclass(frozen=True)  # without slots, so that it can keep its tag
class PendingFile:
    """A file that is written, and that no reader sees before it is completed."""

    key: str
    """Where it will be in its bucket, or its path in a file system."""
    length: int
    """Bytes."""
    rows: int | None = None
    """None where they were not counted."""
    upload_id: str = ""
    """Of its multipart upload; empty for a file whose bytes are `data`."""
    etags: tuple[str, ...] = ()
    """Of the upload's parts 1, 2, ..., without quotes."""
    data: bytes | None = None
    """The whole file, if it is small enough to travel with the message."""
    is_stamped: bool = True
    """Whether the object's metadata will name the job: Hadoop's uploads have none of ours."""
    stamp: str = ""
    """What the object's metadata will have besides, and no object of another run has: equal names
    and lengths are not equal bytes.  Empty in plans of before."""

    @cached_property
    def etag(self) -> str:
        """The tag that the object will have on a store that hashes; empty if that is unknown.

        A job asks for it several times, and it takes as long as some tenths of a request.
        """
        if self.data is not None:
            return md5(self.data)
        if not self.etags or not all(map(_MD5.fullmatch, self.etags)):
            return ""
        parts = b"".join(bytes.fromhex(etag) for etag in self.etags)
        return f"{md5(parts)}-{len(self.etags)}"


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """What a committed task attempt tells the driver."""

    job_id: str
    task: TaskId
    files: tuple[PendingFile, ...] = ()
    sender: str = ""
    """The store object that the attempt wrote through; tasks of one process may share one."""
    requests: int = 0
    """How many requests the sender had sent by then."""
    operations: dict[str, int] = field(default_factory=dict)
    """The same by operation, as the sender names them."""
    is_lone: bool = True
    """Whether no other attempt of this job can have been lost, as far as this one knows."""
    columns: bytes = b""
    """The columns that it wrote, as Arrow serializes them, where a table needs to know them."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a committed job has published; the `_SUCCESS` object says the same in JSON."""

    job_id: str
    destination: str
    committer: str
    files: tuple[str, ...]
    """Keys, in order."""
    bytes_written: int
    rows: int | None
    """None if a file's rows were not counted."""
    seconds: float
    requests: int
    """Of driver and tasks, as far as the driver knows them: without those that come after."""
    replaced: int = 0
    """How many files of before were removed."""
    extra: dict[str, Any] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    """The requests by operation."""
