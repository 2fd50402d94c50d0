"""The magic committer: uploads go where files will be, and files about them below a magic folder.

    requests: 4 for each file of up to one part, and 2 for each task that wrote
              6 for a job: the plan, the head read and written, `_SUCCESS`, 1 listing, and no
              magic folder nor plan

It leaves what Hadoop's leaves, so that Hadoop can commit a job that tasks of ours have written, and
either's tools find what is left of a dead one.  A commit of ours needs none of it: tasks tell the
driver, which decides by a plan.

Source: Hadoop's S3A committers.  Unlike there, no marker of no bytes stands for a file that is
pending, a task neither lists nor reads, and the folder of other jobs, `_temporary`, is left alone.
"""

from __future__ import annotations

import time
from contextlib import suppress

from omidpy.committers.objects import pendings
from omidpy.committers.objects.answers import NoBucket
from omidpy.committers.objects.uploads import UploadedFile
from omidpy.committers.protocol import Attempt, DelayedFile
from omidpy.committers.publishing import remains
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import PendingFile, TaskId, TaskMessage


class _MagicFile:
    """An upload that says in a `.pending` what would complete it."""

    def __init__(self, made: UploadedFile, committer: MagicCommitter, path: str) -> None:
        self.rows: int | None = None
        self._made = made
        self._committer = committer
        self._path = path
        self._is_told = False
        self._is_dead = False

    @property
    def key(self) -> str:
        """The key of its `.pending`."""
        return f"{self._path}{pendings.PENDING}"

    def write(self, data: bytes, /) -> int:
        return self._made.write(data)

    def close(self) -> None:
        self._made.close()
        folder, store = self._committer.folder, self._committer.store
        said = pendings.encode_pending(
            folder.bucket, self._path, self._made.pending(), now_ms=int(time.time() * 1000)
        )
        self._is_told = True
        store.put(folder.bucket, self.key, said)
        if self._is_dead:
            # Aborted by another thread meanwhile, which may have looked before this was there.
            store.delete(folder.bucket, self.key)

    def abort(self) -> None:
        self._is_dead = True
        self._made.abort()
        if self._is_told:
            self._committer.store.delete(self._committer.folder.bucket, self.key)
            self._is_told = False

    def pending(self) -> PendingFile:
        self._made.rows = self.rows
        return self._made.pending()

    def entry(self) -> tuple[str, PendingFile]:
        """Return its path below the magic folder, and itself."""
        return self._path, self.pending()


class MagicCommitter(S3Committer):
    """Publishes as Hadoop's magic committer does, and decides by a plan."""

    name = "magic"
    is_magic = True

    def setup_task(self, task: TaskId) -> Attempt:
        """Begin an attempt; no request."""
        below = self.folder.key(pendings.attempt_folder(self.job_id, task))
        sender = self._sender()

        def make(path: str) -> DelayedFile:
            self._check_free(path)
            key = self.key(path)
            return _MagicFile(self._upload(key, sender), self, below + self.folder.below(key))

        return self._attempt(task, make, sender)

    def commit_task(self, attempt: Attempt) -> TaskMessage:
        """Write the task's `.pendingset`, then remove its `.pending`s; 2 requests if it wrote."""
        attempt.check_running("be committed")
        files = [one for one in attempt.files.values() if isinstance(one, _MagicFile)]
        entries = [one.entry() for one in files]
        bucket = self.folder.bucket
        said = pendings.encode_set(
            bucket,
            entries,
            now_ms=int(time.time() * 1000),
            job_id=self.job_id,
            task=attempt.id,
        )
        if entries:
            self.store.put(
                bucket, self.folder.key(pendings.set_path(self.job_id, attempt.id)), said
            )
            # What is left of these afterwards is of attempts that are no part of the job.
            self.store.delete_many(bucket, [one.key for one in files])
        return super().commit_task(attempt)

    def abort_late(self) -> None:
        """Remove what tasks have left since: uploads, and files about them."""
        super().abort_late()
        self._clear()

    def _clear(self) -> None:
        with suppress(NoBucket):
            remains.clear(self.store, self.folder, self.job_id, keeps=())
