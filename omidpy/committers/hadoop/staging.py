"""Hadoop's staging committers: tasks write local files, and upload them when they are committed.

A task that fails has sent nothing, and its files may be written at random, as some formats ask.
What is staged needs local disk; it goes when its attempt ends.

    directory     `conflict` speaks of the whole destination
    partitioned   of each partition that the job writes; a file at the top is in none

Source: Hadoop's S3A committers.  Unlike those, tasks tell the driver of their uploads in messages,
so that no cluster file system is needed; mode `replace` removes old files last, not first; and a
file at the top does not make `partitioned` remove the whole table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from omidpy.committers.objects.uploads import Allowance, Sender, UploadedFile
from omidpy.committers.protocol import Attempt, Capabilities, DelayedFile
from omidpy.committers.s3 import S3Committer, Scope
from omidpy.committers.values import PendingFile, TaskMessage
from omidpy.errors import CommitterError

_COPY_BYTES: Final = 2**20


class _StagedFile:
    """A file without a name on the local disk, which the system removes when it is closed."""

    def __init__(self, upload: UploadedFile, key: str) -> None:
        self.rows: int | None = None
        self._upload = upload
        self._key = key
        self._is_ended = False
        self._is_dead = False
        self._is_torn = False
        """Whether a write has failed: a part of it may be there."""
        # Without a buffer: a child that is forked would write what is in its copy, too, as it ends.
        with self._staged():
            self._local = tempfile.TemporaryFile(  # noqa: SIM115 - closed with its attempt
                prefix="omidpy-staging-", buffering=0
            )

    def write(self, data: bytes, /) -> int:
        rest = memoryview(data)
        is_whole, self._is_torn = not self._is_torn, True
        with self._staged():
            while rest:
                rest = rest[self._local.write(rest) :]
        self._is_torn = not is_whole
        return len(data)

    def close(self) -> None:
        self._is_ended = True

    def abort(self) -> None:
        self._is_dead = True
        self._local.close()
        self._upload.abort()

    def send(self) -> None:
        """Upload it: here, and not before, a request is sent."""
        if not self._is_ended or self._is_dead or self._is_torn:
            raise CommitterError(
                f"the file {self._key} was not closed, or not written whole, so that it may lack "
                "its end; close every file before its task is committed"
            )
        with self._staged():
            self._local.seek(0)
        while data := self._read():
            self._upload.write(data)
        self._local.close()
        self._upload.rows = self.rows
        self._upload.close()

    def pending(self) -> PendingFile:
        """Return what the driver needs, once it was sent."""
        return self._upload.pending()

    def _read(self) -> bytes:
        with self._staged():
            return self._local.read(_COPY_BYTES)

    @contextmanager
    def _staged(self) -> Iterator[None]:
        """Say of an error of the local disk what the file is for.

        Raises:
            CommitterError: in its place.
        """
        try:
            yield
        except OSError as error:
            raise CommitterError(
                f"{self._key} could not be staged in the folder of temporary files: "
                f"{error.strerror}; make room there, allow more open files (ulimit -n) if too many "
                "are open, or name another folder by TMPDIR"
            ) from error


class DirectoryCommitter(S3Committer):
    """Stages files, and resolves conflicts by the whole destination."""

    name = "directory"
    capabilities = Capabilities()
    always_scope: Scope = "folder"

    def setup_job(self) -> None:
        """Refuse a destination that is in the way; 1 request in mode `fail`, else none."""
        self.scope = self.always_scope
        super().setup_job()

    def commit_task(self, attempt: Attempt) -> TaskMessage:
        """Upload what the attempt has staged, files beside each other."""
        attempt.check_running("be committed")
        for one in attempt.files.values():
            assert isinstance(one, _StagedFile), "this made it"
            one.send()
        return super().commit_task(attempt)

    def _file(self, key: str, sender: Sender, allowance: Allowance) -> DelayedFile:
        del allowance  # a staging committer uploads everything
        return _StagedFile(self._upload(key, sender), key)


class PartitionedCommitter(DirectoryCommitter):
    """Stages files, and resolves conflicts by each partition that is written."""

    name = "partitioned"
    always_scope: Scope = "partitions"
