"""`with omidpy.committers.job(...) as job`: the protocol without Spark, for one process.

    with omidpy.committers.job("s3://bucket/folder") as job:
        job.task(table)                       # a task that writes one table, committed on return
        with job.task() as task:              # a task that writes what it likes
            task.write(table)
            task.put("notes.csv")

The job is committed where its block ends, and aborted if the block, or a task, fails.  Tasks may
run in threads of this process.  A child that inherits a job by `fork` can do nothing with it: two
that end one job would publish, or take back, the half of it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from omidpy.base.within import within
from omidpy.committers.protocol import Attempt, Committer, TaskFile
from omidpy.committers.tables import PartitionedWriter
from omidpy.committers.values import Manifest, TaskId, TaskMessage
from omidpy.errors import CommitterError, UsageError

_COPY_BYTES: Final = 2**20
_log: Final = logging.getLogger(__name__)


class Job:
    """A job that writes to one destination."""

    def __init__(self, committer: Committer, *, partition_by: tuple[str, ...] = ()) -> None:
        """Keep the committer; `with` begins the job."""
        self.committer = committer
        self.manifest: Manifest | None = None
        """What was published; None until then."""
        self._partition_by = partition_by
        self._messages: list[TaskMessage] = []
        self._attempts: dict[int, int] = {}
        self._open: dict[TaskId, Attempt] = {}
        self._turns: dict[int, threading.Lock] = {}
        """Of each task, held while an attempt at it is committed."""
        self._lock = threading.Lock()
        self._state: Literal["new", "running", "committed", "aborted"] = "new"
        self._pid = os.getpid()

    @property
    def id(self) -> str:
        """The job's id, which the names of its files hold."""
        return self.committer.job_id

    @property
    def done(self) -> frozenset[int]:
        """The numbers of the tasks that are committed: by earlier runs of this job, too."""
        return frozenset(one.task.task for one in within(self._lock, self._messages.copy))

    def task(
        self, *outputs: object, number: int | None = None, partition_by: Iterable[str] | None = None
    ) -> Task:
        """Begin a task; with `outputs`, write them and commit it.

        Args:
            outputs: Tables and record batches of pyarrow, and paths of local files.
            number: Which task: a number that was tried before is tried again, and nothing of
                before is part of the job.  By default the next that is free.
            partition_by: Columns that become folders; by default those of the job.

        Raises:
            CommitterError: The job is not running, or the task is committed already.
        """
        self._check_own()
        columns = self._partition_by if partition_by is None else tuple(partition_by)
        made = self.committer.setup_task(within(self._lock, self._next_attempt, number))
        if not within(self._lock, self._is_opened, made):
            self._end_attempts()
        task = Task(self, made, columns)
        if outputs:
            with task:
                for one in outputs:
                    task.add(one)
        return task

    def commit(self) -> Manifest:
        """Publish what the committed tasks have written.

        A task that was begun and is not committed by now is no part of the job; the log names it.
        """
        self._check_own()
        for turn in within(self._lock, self._turns_to_await):
            within(turn, bool)  # what is on its way is part of the job
        within(self._lock, self._take_no_more)
        for number in within(self._lock, self._left_out):
            _log.warning(
                "task %s of job %s was begun and never committed: nothing of it is part of the "
                "job; let its block end, or call its commit(), before the job is committed",
                number,
                self.id,
            )
        self._end_attempts()
        try:
            self.manifest = self.committer.commit_job(self._messages)
        except BaseException as error:
            self._abort_after(error)
            raise
        self._state = "committed"
        self.committer.cleanup_job()
        return self.manifest

    def abort(self) -> None:
        """End the job; nothing of it is left."""
        self._check_own()
        if not within(self._lock, self._is_ended_by_us):
            return
        self._end_attempts()
        self.committer.abort_job(self._messages)
        self.committer.cleanup_job()

    def __enter__(self) -> Self:
        """Begin the job, so that tasks may write."""
        self._check_own()
        if self._state != "new":
            raise CommitterError(f"job {self.id} was begun before; make another")
        self.committer.setup_job()
        for one in self.committer.recover_job():
            self._messages.append(one)
            self._attempts[one.task.task] = one.task.attempt
        self._state = "running"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit the job, or abort it after an exception, whose own error wins."""
        if error is None:
            self._check_own()
            if self._state == "running":
                self.commit()
        elif not self._is_inherited:
            self._abort_after(error)

    @property
    def _is_inherited(self) -> bool:
        """Whether this is a copy that came into a child process by `fork`."""
        return os.getpid() != self._pid

    def _check_own(self) -> None:
        # Before any lock, which a thread may have held that is not here.
        if self._is_inherited:
            raise CommitterError(
                f"job {self.id} was made before fork and belongs to the parent process; make one "
                "in each process"
            )

    def _next_attempt(self, number: int | None) -> TaskId:
        self._check_running("begin a task")
        chosen = max(self._attempts, default=-1) + 1 if number is None else number
        if any(one.task.task == chosen for one in self._messages):
            raise CommitterError(f"task {chosen} of job {self.id} is committed already")
        if chosen < 0:
            raise UsageError(f"number={chosen} is negative; tasks count from 0")
        attempt = self._attempts.get(chosen, -1) + 1
        self._attempts[chosen] = attempt
        return TaskId(chosen, attempt)

    def _is_opened(self, attempt: Attempt) -> bool:
        """Know an attempt; False: the job has ended meanwhile."""
        self._open[attempt.id] = attempt
        return self._state == "running"

    def _turns_to_await(self) -> list[threading.Lock]:
        self._check_running("be committed")
        return list(self._turns.values())

    def _take_no_more(self) -> None:
        """Whatever comes now, no task of this job promotes anything any more."""
        self._check_running("be committed")
        self._state = "aborted"

    def _left_out(self) -> list[int]:
        """Return the tasks that nobody has committed, and nobody has given up."""
        begun = {one.id.task for one in self._open.values() if one.state == "running"}
        return sorted(begun - {one.task.task for one in self._messages})

    def _is_ended_by_us(self) -> bool:
        if self._state in {"committed", "aborted"}:
            return False
        self._state = "aborted"
        return True

    def _abort_after(self, error: BaseException) -> None:
        within(self._lock, setattr, self, "_state", "aborted")
        self._end_attempts()
        if isinstance(error, CommitterError) and self.id in error.plan:
            return  # its reader ends the plan, which must be there then
        try:
            self.committer.abort_job(self._messages)
            self.committer.cleanup_job()
        except CommitterError as failure:
            why = _named(error)
            _log.warning("job %s failed (%s), and so did its abort: %s", self.id, why, failure)

    def _end_attempts(self) -> None:
        """End each attempt that is not committed: a thread that writes on leaves nothing (C6)."""
        for one in within(self._lock, self._take_open):
            if one.state != "running":
                continue
            try:
                self.committer.abort_task(one)
            except CommitterError as failure:
                _log.warning(
                    "task %s of job %s was not committed, and is not wholly removed: %s",
                    one.id.task,
                    self.id,
                    failure,
                )

    def _take_open(self) -> list[Attempt]:
        left = list(self._open.values())
        self._open.clear()
        return left

    def _check_running(self, action: str) -> None:
        if self._state != "running":
            raise CommitterError(f"job {self.id} is {self._state}, and cannot {action}")

    def _committed(self, attempt: Attempt) -> None:
        """Take what an attempt has written, unless another was quicker."""
        attempt.check_running("be committed")
        # Another attempt at the task that is on its way may yet fail, and then this one counts.
        within(self._turn(attempt.id.task), self._commit_attempt, attempt)

    def _turn(self, number: int) -> threading.Lock:
        """Return what an attempt at a task holds while it is committed."""
        key = number if self.committer.commits_tasks_at_once else -1
        return within(self._lock, self._turns.setdefault, key, threading.Lock())

    def _commit_attempt(self, attempt: Attempt) -> None:
        within(self._lock, self._check_first, attempt.id.task)
        message = self.committer.commit_task(attempt)
        if not within(self._lock, self._is_taken, attempt, message):
            self.committer.abort_task(attempt)  # the job has ended meanwhile, without this one
            self._check_running("take what its task has written")

    def _check_first(self, number: int) -> None:
        self._check_running("take what its task has written")
        if any(one.task.task == number for one in self._messages):
            raise CommitterError(
                f"another attempt at task {number} of job {self.id} was committed before this one"
            )

    def _is_taken(self, attempt: Attempt, message: TaskMessage) -> bool:
        """Take what an attempt has written; False: the job has ended meanwhile."""
        if self._state != "running":
            return False
        self._messages.append(message)
        self._open.pop(attempt.id, None)
        return True


class Task:
    """An attempt at a task; its block commits it, or aborts it after an exception."""

    def __init__(self, job: Job, attempt: Attempt, partition_by: tuple[str, ...]) -> None:
        """Belong to a job."""
        self._job = job
        self._attempt = attempt
        self._partition_by = partition_by
        self._writer: PartitionedWriter | None = None

    @property
    def number(self) -> int:
        """Which task it is."""
        return self._attempt.id.task

    @property
    def _is_inherited(self) -> bool:
        return self._job._is_inherited  # noqa: SLF001 - two halves of one thing

    def _check_own(self) -> None:
        self._job._check_own()  # noqa: SLF001 - two halves of one thing

    def open(self, path: str) -> TaskFile:
        """Begin a file, by its path below the destination; write bytes to it and close it."""
        self._check_own()
        return self._attempt.open(path)

    def write(self, table: Any) -> None:
        """Write a table or a record batch of pyarrow, as Parquet."""
        self._check_own()
        self._attempt.check_running("write")
        if self._writer is None:
            self._writer = PartitionedWriter(self._attempt, partition_by=self._partition_by)
        self._writer.write(table)

    def put(self, file: str | os.PathLike[str], path: str | None = None) -> None:
        """Write a local file, under its own name or the path below the destination."""
        source = Path(file)
        with _read(source):
            content = source.open("rb")
        with content, self.open(path or source.name) as target:
            while True:
                with _read(source):
                    piece = content.read(_COPY_BYTES)
                if not piece:
                    break
                target.write(piece)

    def add(self, output: Any) -> None:
        """Write a table, a record batch, or a local file by its path."""
        if isinstance(output, str | os.PathLike):
            self.put(output)
        else:
            self.write(output)

    def commit(self) -> None:
        """Make its files part of the job; no reader sees them before the job is committed."""
        self._check_own()
        if self._writer is not None:
            self._writer.close()
        self._job._committed(self._attempt)  # noqa: SLF001 - two halves of one thing

    def abort(self) -> None:
        """End it and remove what it has written."""
        self._check_own()
        if self._attempt.state == "running":
            self._job.committer.abort_task(self._attempt)

    def __enter__(self) -> Self:
        """Return the task, whose files the block writes."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit it, or abort it after an exception, whose own error wins."""
        if error is None:
            self._check_own()
            try:
                if self._attempt.state == "running":
                    self.commit()
            except BaseException as failure:
                self._abort_after(failure)
                raise
        elif not self._is_inherited:
            self._abort_after(error)

    def _abort_after(self, error: BaseException) -> None:
        try:
            self._job.committer.abort_task(self._attempt)
        except CommitterError as failure:
            why = _named(error)
            _log.warning("a task failed (%s), and so did its abort: %s", why, failure)


@contextmanager
def _read(source: Path) -> Iterator[None]:
    """Name the local file that cannot be read."""
    try:
        yield
    except OSError as error:
        raise CommitterError(f"the file {str(source)!r} cannot be read: {error}") from error


def _named(error: BaseException) -> str:
    """Say what an error says of itself; an interrupt says nothing."""
    return str(error) or type(error).__name__
