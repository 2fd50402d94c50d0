"""The commit protocol: what a committer is asked, in which order, and what it may then do.

    setup_job -> for each attempt: setup_task, files, needs_task_commit, commit_task | abort_task
              -> commit_job | abort_job -> cleanup_job

One object is one job.  It can be pickled, so that tasks run elsewhere; what tasks tell comes back
as messages.  These hold of every committer whose capabilities say so, and are what tests ask:

    C4 (whole)      after `commit_job` the destination has every file of every message, and none of
                    any other attempt
    C5 (abortable)  after `abort_job`, nothing of the job is visible, ever
    C6 (dead)       an attempt that was committed or aborted, or whose job was, promotes nothing

Source: the Hadoop commit protocol, as "A Zero-Rename Committer" (2017) describes it.  Unlike there,
tasks send the driver what they wrote, so that it needs no listing.
"""

from __future__ import annotations

import io
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from omidpy.committers.places import check_job_id, check_path
from omidpy.committers.values import Manifest, PendingFile, TaskId, TaskMessage
from omidpy.errors import CommitterError, UsageError

Conflict = Literal["fail", "append", "replace"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a committer promises; the questions are those of the paper's table."""

    speculative_tasks: bool = True
    """Two attempts at one task may run at the same time."""
    abortable_tasks: bool = True
    abortable_jobs: bool = True
    hides_uncommitted: bool = True
    """No reader sees files of a task that is not committed."""
    hides_committed_tasks: bool = True
    """No reader sees files of a committed task before the job is."""
    atomic_task_commit: bool = True
    recoverable_jobs: bool = True
    """A job whose driver dies while it commits can be finished or taken back."""
    atomic_job_commit: bool = False
    """Readers see all files of a job at one instant, and not one after the other."""
    partitioned_executors: bool = True
    """A task that runs on, unheard of, promotes nothing once its job has ended."""
    concurrent_jobs: bool = True
    """Jobs may commit to one destination at the same time."""


class DelayedFile(Protocol):
    """A file that is being written.  `close` ends it, `abort` gives it up."""

    rows: int | None

    def write(self, data: bytes, /) -> int:
        """Add bytes, all of them; return their number."""

    def close(self) -> None:
        """End it; what it says then is in the attempt's message."""

    def abort(self) -> None:
        """Give it up; nothing of it is left."""

    def pending(self) -> PendingFile:
        """Return what the driver needs to complete it; it is closed."""


@dataclass(slots=True)
class Attempt:
    """An attempt at a task, where it runs."""

    id: TaskId
    job_id: str
    make: Callable[[str], DelayedFile]
    """Makes the file of a path below the destination."""
    files: dict[str, DelayedFile] = field(default_factory=dict)
    state: Literal["running", "committed", "aborted"] = "running"
    is_lone: bool = True
    """Whether it is the first one at its task, and no other may run beside it."""
    keeps_columns: bool = False
    """Whether the job's table needs to know which columns were written."""
    columns: bytes = b""
    """Those, as Arrow serializes them."""
    end: Callable[[], None] | None = None
    """Lets nothing be sent any more, by any thread; None where nothing is sent before a commit."""

    def kill(self) -> list[DelayedFile]:
        """End it as one that was aborted; return its files, none of which is sent any more.

        Also where another thread is about to begin one: that thread is refused when it writes.
        """
        self.state = "aborted"
        if self.end is not None:
            self.end()
        return list(self.files.values())

    def open(self, path: str) -> TaskFile:
        """Begin a file; `path` is below the destination.

        Raises:
            CommitterError: The attempt has ended, or has a file of this path.
            UsageError: The path is none, or would be hidden from readers.
        """
        self.check_running("open a file")
        check_path(path)
        if path in self.files:
            raise CommitterError(f"task {self.id.task} has a file {path!r} already")
        made = self.files[path] = self.make(path)
        return TaskFile(made)

    def check_running(self, action: str) -> None:
        """Refuse what a dead attempt does."""
        if self.state != "running":
            raise CommitterError(
                f"attempt {self.id.attempt} at task {self.id.task} of job {self.job_id} is "
                f"{self.state}, and cannot {action}"
            )


class TaskFile(io.RawIOBase):
    """The file object that a task writes to; an exception in its `with` block gives it up."""

    def __init__(self, delayed: DelayedFile) -> None:
        """Write to a delayed file."""
        super().__init__()
        self._delayed = delayed
        self._position = 0

    @property
    def rows(self) -> int | None:
        """How many rows it has; None if they were not counted."""
        return self._delayed.rows

    @rows.setter
    def rows(self, count: int | None) -> None:
        self._delayed.rows = count

    def writable(self) -> bool:
        """Say that it can be written."""
        return True

    def write(self, data: object, /) -> int:
        """Add bytes, all of them; return their number."""
        if self.closed:
            raise ValueError("write to a closed file")
        content = bytes(data)  # type: ignore[call-overload]  # whatever has a buffer
        self._delayed.write(content)
        self._position += len(content)
        return len(content)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._position

    def close(self) -> None:
        """End the file: it is whole, and its task may be committed."""
        if not self.closed:
            super().close()
            self._delayed.close()

    def abort(self) -> None:
        """Give the file up."""
        if not self.closed:
            super().close()
        self._delayed.abort()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """End the file, or give it up after an exception."""
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        """Do nothing: a file that was not closed is not finished by being forgotten."""


class Committer(ABC):
    """One job's committer, as its driver uses it."""

    name: str
    capabilities: Capabilities
    commits_tasks_at_once: bool = True
    """Whether tasks that threads of one process commit need not wait for each other."""

    def __init__(self, *, job_id: str | None, conflict: Conflict) -> None:
        """Make a committer of a new job, or of the job of an id.

        Raises:
            UsageError: The conflict mode is unknown, or the id is none.
        """
        if conflict not in {"fail", "append", "replace"}:
            raise UsageError(f"conflict={conflict!r} is none of fail, append and replace")
        self.job_id = str(uuid.uuid4()) if job_id is None else check_job_id(job_id)
        self.conflict = conflict

    @abstractmethod
    def setup_job(self) -> None:
        """Begin the job: on the driver, once, before any task.

        Raises:
            CommitterError: The destination is in the way; nothing was written.
        """

    def recover_job(self) -> list[TaskMessage]:
        """Return the messages of tasks that earlier runs of this job have committed, if any.

        On the driver, once, after `setup_job`.
        """
        return []

    @abstractmethod
    def setup_task(self, task: TaskId) -> Attempt:
        """Begin an attempt at a task, where it runs."""

    def needs_task_commit(self, attempt: Attempt) -> bool:
        """Say whether an attempt has written anything; one that has not may be committed as well.

        No request.
        """
        return bool(attempt.files)

    @abstractmethod
    def commit_task(self, attempt: Attempt) -> TaskMessage:
        """End an attempt whose files are to be part of the job; none becomes visible.

        Raises:
            CommitterError: The attempt has ended before, or a file is not closed.
        """

    @abstractmethod
    def abort_task(self, attempt: Attempt) -> None:
        """End an attempt and remove what it has written.  Doing so twice is harmless."""

    @abstractmethod
    def commit_job(self, messages: Sequence[TaskMessage]) -> Manifest:
        """Make the files of all messages visible, and those of no other attempt.

        Raises:
            CommitterError: Nothing of the job is visible; or it names the plan that finishes it.
        """

    @abstractmethod
    def abort_job(self, messages: Iterable[TaskMessage]) -> None:
        """End the job and remove everything of it, of whatever attempts there are messages.

        Raises:
            CommitterError: An earlier process has committed it, and all of it stays.
        """

    def abort_late(self) -> None:  # noqa: B027 - as below
        """Remove what tasks have left that went on for a while after their job was aborted."""

    def cleanup_job(self) -> None:  # noqa: B027 - most have nothing left
        """Remove what a committed or aborted job has left.  Doing so twice is harmless."""


def committed_already(job_id: str, url: str, *, left: Sequence[str] = ()) -> CommitterError:
    """Return what is raised where a job is aborted that is committed, all of it.

    Whoever ran it is told otherwise: by Spark, where the process that committed it was killed.

    Args:
        job_id: The job.
        url: Its destination.
        left: Files of before that it was to replace, and that are there.
    """
    rest = f"; remove {', '.join(left[:3])}, {len(left)} files of before in all" if left else ""
    return CommitterError(
        f"job {job_id} is committed, whatever failed behind that: all of it is visible in {url}; "
        f"do not run it again{rest}"
    )


def checked_messages(job_id: str, messages: Sequence[TaskMessage]) -> list[PendingFile]:
    """Return the files of a job's messages.

    Raises:
        CommitterError: Two attempts at one task, a message of another job, or two files of one
            key: to publish them would publish what is no part of the job, or lose what is.
    """
    tasks: dict[int, TaskMessage] = {}
    files: dict[str, PendingFile] = {}
    for message in messages:
        if message.job_id != job_id:
            raise CommitterError(
                f"a message of job {message.job_id} was given to job {job_id}; a job commits its "
                "own tasks alone"
            )
        number = message.task.task
        if number in tasks:
            raise CommitterError(
                f"task {number} of job {job_id} was committed by attempts "
                f"{tasks[number].task.attempt} and {message.task.attempt}; one of them only may be "
                "part of the job"
            )
        tasks[number] = message
        for one in message.files:
            if one.key in files:
                raise CommitterError(
                    f"two tasks of job {job_id} have written {one.key}; give their files "
                    "different names"
                )
            files[one.key] = one
    return [files[key] for key in sorted(files)]
