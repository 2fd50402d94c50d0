"""The product's own committer for S3: messages instead of files about files, and one plan.

A task sends what it writes as it writes it, or keeps it in hand if it is small, and tells the
driver what it has.  The driver writes a plan and carries it out.

    requests: 3 for each file, 1 for each small one, and 5 more: the plan, the destination's head
              read and written, `_SUCCESS`, no plan
              1 listing for each 1,000 keys in modes `fail` and `replace`
              1 of plans in mode `replace` where files are of jobs that the head does not know, and
              1 for each 1,000 keys before they are removed, on stores that do not look at tags
              1 listing of uploads for each 1,000 of them where attempts may have been lost

Tasks neither list nor look nor read.  But one that has run for a minute reads the head where it
begins an upload, and does so once a minute; where Spark gives executors up sooner, or runs tasks
twice at once, more often.

Names of files hold the job's id, so that no two jobs meet, and so that uploads of lost attempts can
be told from those of other jobs.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from omidpy.committers.heads import deciding, delta, looking
from omidpy.committers.heads.head import head_key
from omidpy.committers.heads.plan import Plan
from omidpy.committers.heads.standing import AWAITED_S, Awaited, Standing
from omidpy.committers.objects.answers import Gone, NoBucket
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.objects.uploads import Allowance, Sender, UploadedFile
from omidpy.committers.places import (
    LISTS,
    SUCCESS,
    Folder,
    check_path,
    folder_of,
    is_hidden,
    owner,
    unique_name,
)
from omidpy.committers.protocol import (
    Attempt,
    Capabilities,
    Committer,
    Conflict,
    DelayedFile,
    checked_messages,
    committed_already,
)
from omidpy.committers.publishing import ending, lateness, success
from omidpy.committers.values import Manifest, PendingFile, TaskId, TaskMessage
from omidpy.errors import CommitterError

if TYPE_CHECKING:
    from omidpy.committers.publishing.operation import Operations

Scope = Literal["folder", "partitions"]
Sweep = Literal["auto", "always", "never"]
TableFormat = Literal["", "delta"]

INLINE_BYTES: Final = 2**20
"""A file up to this size travels with its message."""
INLINE_TASK_BYTES: Final = 8 * 2**20
"""Of one task's files together."""
INLINE_JOB_BYTES: Final = 64 * 2**20
"""Of one job's: the driver holds them all, and writes them into the plan."""
PART_BYTES: Final = 8 * 2**20
"""Of an upload's first parts."""

_log: Final = logging.getLogger(__name__)


class S3Committer(Committer):
    """Publishes files below a folder of a bucket, all of a job's or none."""

    name = "omidpy"
    capabilities = Capabilities()
    is_magic = False
    """Whether a folder of files about files goes with the job."""

    def __init__(
        self,
        folder: Folder,
        store: ObjectStore,
        *,
        job_id: str | None = None,
        conflict: Conflict = "append",
        scope: Scope = "folder",
        unique_names: bool = True,
        inline_bytes: int = INLINE_BYTES,
        inline_task_bytes: int = INLINE_TASK_BYTES,
        inline_job_bytes: int = INLINE_JOB_BYTES,
        first_part_bytes: int = PART_BYTES,
        marks_success: bool = True,
        sweep: Sweep = "auto",
        operations: Operations | None = None,
        table_format: TableFormat = "",
    ) -> None:
        """Make the committer of a job; nothing is sent.

        Args:
            folder: The destination.
            store: How it is reached.
            job_id: Of the job; a new one by default.
            conflict: What becomes of files that are there: refuse, keep or replace them.
            scope: What `conflict` speaks of: the whole folder, or each partition that is written.
            unique_names: Put the job's id into the names of files.
            inline_bytes: The largest file that travels with its message; 0 for none.
            inline_task_bytes: How much of such a task may keep in hand.
            inline_job_bytes: How much of such the plan takes; what is more, the driver uploads.
            first_part_bytes: The size of an upload's first parts.
            marks_success: Write `_SUCCESS`.
            sweep: Look for uploads of lost attempts: always, never, or where there may be any.
            operations: Where the commit is kept as an operation, which outlives the driver.
            table_format: Of the table whose log the job's last step writes; empty for a folder.
        """
        super().__init__(job_id=job_id, conflict=conflict)
        self.folder = folder
        self.store = store
        self.scope: Scope = scope
        self.unique_names = unique_names
        self.inline_bytes = inline_bytes
        self.inline_task_bytes = inline_task_bytes
        self.inline_job_bytes = inline_job_bytes
        self.first_part_bytes = first_part_bytes
        self.marks_success = marks_success
        self.sweep: Sweep = sweep
        self.operations = operations
        self.table_format: TableFormat = table_format
        self.success_path = SUCCESS
        """Where the manifest is, below the destination."""
        self.facts: dict[str, Any] = {}
        """What the manifest says besides."""
        self._taken: frozenset[str] = frozenset()
        self._run = uuid.uuid4().hex
        self._epoch = 0
        self._has_begun = False
        self.may_have_run_before = job_id is not None
        """Whether a driver of this id may have died that had uploads: it told none of them."""
        self.awaited_s = AWAITED_S
        """For how long an attempt at a task begins uploads without a look at its job."""
        self._started_s = time.monotonic()

    # -- tasks -------------------------------------------------------------------------------------

    def setup_job(self) -> None:
        """Refuse a destination that is in the way; 1 request in mode `fail`, else none."""
        self._started_s = time.monotonic()
        if self.conflict != "fail":
            return
        if self.scope == "folder":
            if (key := self._occupied()) is not None:
                raise CommitterError(
                    f"{self.folder.url} is not empty: it has s3://{self.folder.bucket}/{key}; "
                    "write elsewhere, or choose conflict='append' or 'replace'"
                )
        else:
            paths = (self.folder.below(one.key) for one in self.store.objects(self.folder))
            self._taken = frozenset(folder_of(path) for path in paths if not is_hidden(path))

    def _occupied(self) -> str | None:
        """Return a key of the destination; None if there is none but its head."""
        head, found = head_key(self.folder), self.store.occupied(self.folder)
        if found != head:
            return found
        # Jobs ended here, and nothing of them is left.  The head is read before the last look:
        # what is committed behind it this job must not come after (C10).
        self._epoch = looking.read(self.store, self.folder).head.epoch
        lists = self.folder.key(LISTS)
        keys = (one.key for one in self.store.objects(self.folder))
        return next((key for key in keys if key != head and not key.startswith(lists)), None)

    def setup_task(self, task: TaskId) -> Attempt:
        """Begin an attempt; no request."""
        allowance, sender = Allowance(self.inline_task_bytes), self._sender()

        def make(path: str) -> DelayedFile:
            self._check_free(path)
            return self._file(self.key(path), sender, allowance)

        return self._attempt(task, make, sender)

    def _sender(self) -> Sender:
        """Return what an attempt sends by, which gives up what it begins behind its job's end."""
        every_s = self.awaited_s
        awaited = Awaited(self.store, self.folder, self.job_id, self._run, every_s=every_s)
        return Sender(self.store, awaited.is_late)

    def _attempt(self, task: TaskId, make: Callable[[str], DelayedFile], sender: Sender) -> Attempt:
        return Attempt(
            task,
            self.job_id,
            make,
            is_lone=task.attempt == 0,
            keeps_columns=bool(self.table_format),
            end=sender.end,
        )

    def key(self, path: str) -> str:
        """Return the key of a file by its path below the destination."""
        return self.folder.key(unique_name(path, self.job_id) if self.unique_names else path)

    def commit_task(self, attempt: Attempt) -> TaskMessage:
        """Collect what the attempt has written; no request."""
        attempt.check_running("be committed")
        files = tuple(one.pending() for one in attempt.files.values())
        attempt.state = "committed"
        counts = self.store.counts()
        return TaskMessage(
            self.job_id,
            attempt.id,
            files,
            self.store.id,
            sum(counts.values()),
            counts,
            is_lone=attempt.is_lone and not self.store.has_lost_upload,
            columns=attempt.columns,
        )

    def abort_task(self, attempt: Attempt) -> None:
        """Abort each upload of the attempt; 1 request each."""
        failures = []
        for one in attempt.kill():
            try:
                one.abort()
            except CommitterError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    # -- the job -----------------------------------------------------------------------------------

    def commit_job(self, messages: Sequence[TaskMessage]) -> Manifest:
        """Write the plan, then carry it out."""
        files = self._spilled(checked_messages(self.job_id, messages))
        for one in files:
            if not one.key.startswith(self.folder.prefix):
                raise CommitterError(
                    f"job {self.job_id} writes to {self.folder.url}, and not {one.key}"
                )
            check_path(self.folder.below(one.key))
        # The bytes of a small file are written by this run, whichever run's task made them.
        files = [one if one.data is None else replace(one, stamp=self._run) for one in files]
        plan = Plan(
            self.job_id,
            self.name,
            self.folder,
            tuple(files),
            is_new_only=self.unique_names or self.conflict != "replace",
            is_sole=self.conflict == "fail" and self.scope == "folder",
            created_ms=int(time.time() * 1000),
            success=dict(self.facts) if self.marks_success else None,
            success_path=self.success_path,
            run=self._run,
            is_magic=self.is_magic,
            replaces=self.scope if self.conflict == "replace" else "",
            epoch=self._epoch,
            is_sole_in_partitions=self.conflict == "fail" and self.scope == "partitions",
        )
        if self.table_format:
            # What the log cannot take is said before anything is visible.
            said = delta.described(self.store, self.folder, files, list(messages))
            plan = replace(plan, table=said)
        seen = None
        if plan.replaces:
            seen = looking.read(self.store, self.folder)
            old = tuple(deciding.old_files(self.store, plan, seen.head))
            plan = replace(plan, old=old, head=seen.etag)
        self._has_begun = True
        standing = Standing(self.store, plan)
        if self.operations is None:
            ending.begin(self.store, plan)
        effort = ending.Effort(self._started_s, success.summed(messages, self.store.id, {}))
        if self.operations is None:
            manifest = ending.publish(self.store, plan, effort, seen=seen, standing=standing)
        else:
            manifest = self.operations.carry_out(self.store, plan, effort)
        may_be_left = (
            self.may_have_run_before or self.store.has_lost_upload or _may_have_lost(messages)
        )
        if self.sweep == "always" or (self.sweep == "auto" and may_be_left):
            self.sweep_uploads()
        return manifest

    def abort_job(self, messages: Iterable[TaskMessage]) -> None:
        """Take back what a plan of ours began, if there is one; abort every upload of the job.

        Raises:
            CommitterError: It is committed, or an error that names its plan.
        """
        bucket, key = self.folder.bucket, self.folder.plan_key(self.job_id)
        is_gone = False
        try:
            plan, etag = ending.load(self.store, f"s3://{bucket}/{key}", bucket, key)
        except NoBucket:
            return  # of which the caller that failed was told
        except CommitterError as error:
            if not isinstance(error.__cause__, Gone):
                raise
            is_gone = True
            self.abort_tasks(messages)
        else:
            if plan.run != self._run:
                raise CommitterError(
                    f"another run of job {self.job_id} has begun to commit: {plan.address}; each "
                    "run of a job needs an id of its own",
                    plan=plan.address,
                )
            if self.operations is not None and (one := self.operations.under_way(plan.address)):
                raise CommitterError(
                    f"job {self.job_id} is in the hands of operation {one.id}, which finishes it: "
                    f"`omidpy fate status {one.id}` shows how far it is",
                    plan=plan.address,
                )
            lateness.refuse_if_late(self.store, plan, is_anothers=not self._has_begun)
            ending.take_back(self.store, plan, etag)
        self.abort_late()
        # A process that was killed behind the end of the plan has told nobody of the commit.  Asked
        # last: a head that cannot be read keeps no upload.
        if is_gone and deciding.is_committed(self.store, self.folder, self.job_id, self._run):
            raise committed_already(self.job_id, self.folder.url)

    def abort_tasks(self, messages: Iterable[TaskMessage]) -> None:
        """Abort the uploads of tasks that are no part of the job after all."""
        files = [one for message in messages for one in message.files]
        ending.abort_files(self.store, self.folder.bucket, files)

    def was_committed(self) -> bool:
        """Say whether an earlier driver of this job has committed it, and finish it if it began.

        For jobs that are run again under their id, as batches of streams are; 2 requests.
        """
        bucket, key = self.folder.bucket, self.folder.plan_key(self.job_id)
        try:
            plan, etag = ending.load(self.store, f"s3://{bucket}/{key}", bucket, key)
        except CommitterError as error:
            if not isinstance(error.__cause__, Gone):
                raise
            found = self.store.head(bucket, self.folder.key(self.success_path))
            return found is not None and found.job_id == self.job_id
        entry = deciding.outcome_of(self.store, plan)
        if plan.state == "rolling back" or (entry and entry.outcome == "rolled back"):
            ending.take_back(self.store, plan, etag)
            return False
        ending.resume(self.store, plan)
        return True

    def abort_late(self) -> None:
        """Look for uploads once more."""
        self.sweep_uploads()

    def sweep_uploads(self) -> None:
        """Abort what uploads of this job are left: of attempts that were not heard of again."""
        if not self.unique_names:
            return  # nothing tells them from those of others
        try:
            for upload in list(self.store.uploads(self.folder)):
                if owner(upload.key) == self.job_id:
                    self.store.abort_upload(self.folder.bucket, upload.key, upload.upload_id)
        except CommitterError as error:
            _log.warning(
                "uploads of job %s may be left, run `omidpy committers uploads abort --job %s %s`:"
                " %s",
                self.job_id,
                self.job_id,
                self.folder.url,
                error,
            )

    # -- files -------------------------------------------------------------------------------------

    def _file(self, key: str, sender: Sender, allowance: Allowance) -> DelayedFile:
        return self._upload(key, sender, self.inline_bytes, allowance)

    def _upload(
        self, key: str, sender: Sender, inline_bytes: int = 0, allowance: Allowance | None = None
    ) -> UploadedFile:
        return UploadedFile(
            sender,
            bucket=self.folder.bucket,
            key=key,
            job_id=self.job_id,
            first_part_bytes=self.first_part_bytes,
            inline_bytes=inline_bytes,
            allowance=allowance or Allowance(0),
            stamp=self._run,
        )

    def _check_free(self, path: str) -> None:
        if (partition := folder_of(path)) and partition in self._taken:
            raise CommitterError(
                f"the partition {partition} of {self.folder.url} has files; choose "
                "conflict='append' or 'replace', or write other partitions"
            )

    def _spilled(self, files: list[PendingFile]) -> list[PendingFile]:
        """Upload the bytes that are too many for the plan; they stay invisible."""
        left = self.inline_job_bytes
        sender = Sender(self.store)
        spilled: dict[str, UploadedFile] = {}
        try:
            for one in files:
                if one.data is not None and (left := left - one.length) < 0:
                    made = spilled[one.key] = self._upload(one.key, sender)
                    made.rows = one.rows
                    made.write(one.data)
                    made.close()
            return [spilled[one.key].pending() if one.key in spilled else one for one in files]
        except CommitterError:
            for made in spilled.values():
                with suppress(CommitterError):
                    made.abort()  # what is left is swept by the job's id
            raise


def _may_have_lost(messages: Sequence[TaskMessage]) -> bool:
    return any(not one.is_lone for one in messages)
