"""Hadoop's file output committer, versions 1 and 2: tasks write aside, and files are renamed.

    DEST/_temporary/<app attempt>/_temporary/attempt_<job>_0000_m_<task>_<attempt>/    written
    DEST/_temporary/<app attempt>/task_<job>_0000_m_<task>_<attempt>/                  committed (1)

    1   a task's commit renames its folder, the job's commit each file, to where it belongs
    2   a task's commit renames each file to where it belongs, the job's commit nothing

Version 1 shows nothing before the job is committed.  A driver that dies while it commits leaves
some files visible; a run of the same job with the next `app_attempt` finds the tasks that were
committed, and finishes.  Version 2 shows files of each task that was committed, of jobs that fail,
and of tasks whose commit was cut short: it is here to be compared with, and for those who know.

    F1 (chosen)    the files that version 1 makes visible are of the attempts that messages name:
                   a committed attempt has a folder of its own, which no other one touches
    F2 (looked)    before the first rename of a commit, every file that it moves was seen, with its
                   length, and whatever is in the way
    F3 (told)      no file of before is removed, nor a folder of a job, before something in the tree
                   says that the job is committed, whether it is to have a `_SUCCESS` or not

Source: Hadoop's FileOutputCommitter.  Unlike there, a committed folder is an attempt's and not its
task's, and holds a list of its files, so that a late attempt takes the place of nothing and a
recovery is exact; `_SUCCESS` says what was published; and folders of other jobs below `_temporary`
are left alone.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.committers.hadoop.filesystem import FileTree
from omidpy.committers.places import (
    SUCCESS,
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
    checked_messages,
    committed_already,
)
from omidpy.committers.publishing import success
from omidpy.committers.values import Manifest, PendingFile, TaskId, TaskMessage
from omidpy.errors import CommitterError, UsageError

TEMPORARY: Final = "_temporary"
LIST: Final = "_files.json"
"""In the folder of a committed attempt: what it has written."""

_log: Final = logging.getLogger(__name__)


class _Listed(msgspec.Struct):
    """A file of a committed attempt."""

    path: str
    length: int
    rows: int | None


class _WrittenFile:
    """A file in the folder of its attempt."""

    def __init__(self, tree: FileTree, folder: str, path: str) -> None:
        self.rows: int | None = None
        self._tree = tree
        self._path = path
        self._at = f"{folder}/{path}"
        self._length = 0
        self._is_closed = False
        self._is_dead = False
        if inner := folder_of(path):
            # Never the attempt's own, which goes with its job: a late one would make it anew (C6).
            tree.make_inner(folder, inner)
        self._stream = tree.create(self._at)

    def write(self, data: bytes, /) -> int:
        with self._tree.telling("writing", self._at):
            self._stream.write(data)
        self._length += len(data)
        return len(data)

    def close(self) -> None:
        if self._is_closed or self._is_dead:
            return
        with self._tree.telling("closing", self._at):
            self._stream.close()
        self._is_closed = True

    def abort(self) -> None:
        self._is_dead = True
        with self._tree.telling("closing", self._at):
            self._stream.close()
        self._tree.delete_file(self._at)

    def pending(self) -> PendingFile:
        if not self._is_closed or self._is_dead:
            raise CommitterError(
                f"the file {self._path} was not closed, so that it may lack its end; close every "
                "file before its task is committed"
            )
        return PendingFile(self._path, self._length, self.rows)


@dataclass(frozen=True, slots=True)
class _Committed:
    """An attempt that an earlier run of the job has committed."""

    folder: str
    task: TaskId
    files: tuple[PendingFile, ...]
    is_begun: bool
    """Whether some of its files were moved: no other attempt at its task may be chosen."""


class FileOutputCommitter(Committer):
    """Renames files to where they belong."""

    name = "file"

    def __init__(
        self,
        tree: FileTree,
        *,
        job_id: str | None = None,
        conflict: Conflict = "append",
        unique_names: bool = True,
        marks_success: bool = True,
        algorithm_version: int = 1,
        app_attempt: int = 0,
    ) -> None:
        """Make the committer of a job; nothing is written.

        Args:
            tree: The destination.
            job_id: Of the job; a new one by default.
            conflict: What becomes of files that are there: refuse, keep or replace them.
            unique_names: Put the job's id into the names of files.
            marks_success: Write `_SUCCESS`.
            algorithm_version: 1 or 2.
            app_attempt: Which run of the job this is: one after another finds what those before
                it have committed.

        Raises:
            UsageError: The version is none, or a later run has no id of an earlier one.
        """
        if algorithm_version not in {1, 2}:
            raise UsageError(f"algorithm_version={algorithm_version!r} must be 1 or 2")
        if app_attempt and job_id is None:
            raise UsageError(
                f"app_attempt={app_attempt} is another run of a job; give its job_id, too"
            )
        super().__init__(job_id=job_id, conflict=conflict)
        self.tree = tree
        self.unique_names = unique_names
        self.marks_success = marks_success
        self.algorithm_version = algorithm_version
        self.app_attempt = app_attempt
        is_first = algorithm_version == 1
        # A task of version 1 moves a folder of its own, to a name of its own (F1).  One of version
        # 2 looks what is at its files' places, and then moves them there: no other job may come
        # between.
        self.commits_tasks_at_once = is_first
        self.capabilities = Capabilities(
            abortable_jobs=is_first,
            hides_uncommitted=is_first,
            hides_committed_tasks=is_first,
            atomic_task_commit=is_first,
            recoverable_jobs=is_first,
            concurrent_jobs=False,
            partitioned_executors=is_first,
        )
        self._is_decided = False
        self._started_s = time.monotonic()

    # -- tasks -------------------------------------------------------------------------------------

    def setup_job(self) -> None:
        """Refuse a destination that is in the way, or a job that was committed before."""
        self._started_s = time.monotonic()
        if self.tree.is_file():
            raise CommitterError(f"{self.tree.url} is a file; write to a folder")
        if self.app_attempt and self._is_published():
            self.cleanup_job()
            raise CommitterError(
                f"job {self.job_id} is committed already, and its files are visible in "
                f"{self.tree.url}; a new job needs an id of its own"
            )
        if self.conflict == "fail":
            self._check_empty(self.tree.files())
        self.tree.make_folder(f"{self._job_folder()}/{self._own_folder}")

    def recover_job(self) -> list[TaskMessage]:
        """Return the messages of tasks that earlier runs of this job have committed.

        Version 2 has none: nothing but its driver knows which tasks were committed whole.
        """
        if not self.app_attempt or self.algorithm_version == 2:
            return []
        chosen: dict[int, _Committed] = {}
        for one in sorted(self._committed(), key=lambda one: (not one.is_begun, one.folder)):
            chosen.setdefault(one.task.task, one)
        messages = []
        for one in chosen.values():
            folder = self._task_folder(one.task)
            if one.folder != folder:
                self.tree.rename(one.folder, folder)
            messages.append(TaskMessage(self.job_id, one.task, one.files, self.tree.id))
        return messages

    def setup_task(self, task: TaskId) -> Attempt:
        """Begin an attempt at a task: make the folder that its files go to.

        Raises:
            CommitterError: The job has ended, and nobody would remove that folder.
        """
        folder = self._attempt_folder(task)
        self.tree.make_inner(self._job_folder(), folder.removeprefix(f"{self._job_folder()}/"))

        def make(path: str) -> _WrittenFile:
            return _WrittenFile(self.tree, folder, self._name(path))

        return Attempt(task, self.job_id, make)

    def commit_task(self, attempt: Attempt) -> TaskMessage:
        """Rename the attempt's folder, or in version 2 each of its files."""
        attempt.check_running("be committed")
        files = tuple(one.pending() for one in attempt.files.values())
        folder = self._attempt_folder(attempt.id)
        if self.algorithm_version == 1:
            self._write_list(folder, files)
            self.tree.rename(folder, self._task_folder(attempt.id))
        else:
            there = self.tree.files()
            self._check_movable(there, [(f"{folder}/{one.key}", one) for one in files])
            for one in files:
                self._move(f"{folder}/{one.key}", one.key, is_over=one.key in there)
        attempt.state = "committed"
        counts = dict(self.tree.operations)
        return TaskMessage(
            self.job_id, attempt.id, files, self.tree.id, sum(counts.values()), operations=counts
        )

    def abort_task(self, attempt: Attempt) -> None:
        """Remove the attempt's folder; what version 2 has moved out of it stays."""
        try:
            for one in attempt.kill():
                one.abort()
        finally:
            self.tree.delete_folder(self._attempt_folder(attempt.id))
            self.tree.delete_folder(self._task_folder(attempt.id))

    # -- the job -----------------------------------------------------------------------------------

    def commit_job(self, messages: Sequence[TaskMessage]) -> Manifest:
        """Rename every file of committed tasks, or in version 2 see that it is there."""
        files = checked_messages(self.job_id, messages)
        for one in files:
            check_path(one.key)
        there = self.tree.files()
        if self.conflict == "fail":
            self._check_empty(there, but={one.key for one in files})
        old = self._old(there, files)
        if self.algorithm_version == 1:
            sources = [
                (f"{self._task_folder(message.task)}/{one.key}", one)
                for message in messages
                for one in message.files
            ]
            # What is at its place, and not at its source, a run before this one has moved.
            left = [
                (at, one) for at, one in sources if at in there or there.get(one.key) != one.length
            ]
            self._check_movable(there, left)
            for at, one in left:
                self._move(at, one.key, is_over=one.key in there)
        manifest = self._verified(files, old, messages)
        self._write_success(manifest, files)
        self._is_decided = True
        try:
            for path in old:
                self.tree.delete_file(path)
        except CommitterError as error:
            raise CommitterError(
                f"job {self.job_id} is committed and visible, but what it replaces could not be "
                f"removed: {error}; remove files of {self.tree.url} that {SUCCESS} does not name"
            ) from error
        return manifest

    def abort_job(self, messages: Iterable[TaskMessage]) -> None:
        """Remove what the job has written; a job that was committed stays.

        Of version 2 that is what messages name, where names are unique.

        Raises:
            CommitterError: An earlier process has committed it.
        """
        messages = list(messages)
        is_committed = not self._is_decided and self._was_committed(messages)
        if not self._is_decided and not is_committed:
            there = self.tree.files()
            folders = set(self.tree.folders(self._job_folder()))
            for message in messages:
                folder = self._task_folder(message.task)
                for one in message.files:
                    # A file that is neither in its folder nor anywhere else was moved by us.
                    is_moved = folder in folders and f"{folder}/{one.key}" not in there
                    if one.key in there and (is_moved or self._is_own(one.key)):
                        self.tree.delete_file(one.key)
        self.cleanup_job()
        if is_committed:
            written = [one for message in messages for one in message.files]
            raise committed_already(
                self.job_id, self.tree.url, left=self._old(self.tree.files(), written)
            )

    def abort_late(self) -> None:
        """Remove folders that tasks have made since."""
        self.cleanup_job()

    def cleanup_job(self) -> None:
        """Remove the job's folders below `_temporary`, and that if nothing is left in it."""
        try:
            folders = self.tree.folders(TEMPORARY, is_deep=True)
            own = [one for one in folders if self._names_job(one)]
            for folder in own:
                self.tree.delete_folder(folder)
            for path in self.tree.files(TEMPORARY):
                if self._names_job(path):
                    self.tree.delete_file(path)
            # Another job's folders, and files that are not known, stay.
            folders = self.tree.folders(TEMPORARY, is_deep=True)
            if all(map(_is_frame, folders)) and not self.tree.files(TEMPORARY):
                self.tree.delete_folder(TEMPORARY)
        except CommitterError as error:
            _log.warning("folders of job %s may be left in %s: %s", self.job_id, TEMPORARY, error)

    # -- files -------------------------------------------------------------------------------------

    def _name(self, path: str) -> str:
        return unique_name(path, self.job_id) if self.unique_names else path

    def _is_own(self, path: str) -> bool:
        return self.unique_names and owner(path) == self.job_id

    def _check_empty(self, there: dict[str, int], but: Iterable[str] = ()) -> None:
        known = set(but)
        for path in sorted(there):
            is_aside = path.startswith(f"{TEMPORARY}/")
            if not (is_aside or path in known or self._is_own(path)):
                raise CommitterError(
                    f"{self.tree.url} is not empty: it has {path}; write elsewhere, or choose "
                    "conflict='append' or 'replace'"
                )

    def _check_movable(
        self, there: dict[str, int], sources: Sequence[tuple[str, PendingFile]]
    ) -> None:
        """Keep F2.

        Raises:
            CommitterError: A file is not there as its task has written it, or its place is taken.
        """
        for at, one in sources:
            if there.get(at) != one.length:
                found = "is gone" if at not in there else f"has {there[at]} bytes"
                raise CommitterError(
                    f"the file {self.tree.url}/{at} {found}, and its task has written "
                    f"{one.length} bytes: another job, or somebody, was in {TEMPORARY}"
                )
            may_replace = self.unique_names or self.conflict == "replace"
            if one.key in there and not may_replace:
                raise CommitterError(
                    f"{self.tree.url}/{one.key} exists; choose unique_names=True or "
                    "conflict='replace'"
                )

    def _move(self, source: str, target: str, *, is_over: bool) -> None:
        if inner := folder_of(target):
            self.tree.make_folder(inner)
        self.tree.rename(source, target, is_over=is_over)

    def _old(self, there: dict[str, int], files: Sequence[PendingFile]) -> list[str]:
        """Return what mode `replace` is to remove: what readers see now, and not afterwards."""
        if self.conflict != "replace":
            return []
        written = {one.key for one in files}
        return sorted(path for path in there if path not in written and not is_hidden(path))

    def _verified(
        self,
        files: Sequence[PendingFile],
        old: Sequence[str],
        messages: Sequence[TaskMessage],
    ) -> Manifest:
        """Compare what is there with what tasks told, and return what `_SUCCESS` is to say."""
        there = self.tree.files()
        for one in files:
            if there.get(one.key) != one.length:
                raise CommitterError(
                    f"{self.tree.url}/{one.key} is not there as its task has written it: "
                    f"{there.get(one.key)} bytes, not {one.length}"
                )
        rows = [one.rows for one in files]
        counts = success.summed(messages, self.tree.id, self.tree.operations)
        return Manifest(
            self.job_id,
            self.tree.url,
            self.name,
            tuple(self._full(one.key) for one in files),
            sum(one.length for one in files),
            None if None in rows else sum(row for row in rows if row is not None),
            time.monotonic() - self._started_s,
            sum(counts.values()),
            len(old),
            {"algorithm_version": self.algorithm_version},
            counts,
        )

    def _full(self, path: str) -> str:
        return f"{self.tree.root}/{path}".lstrip("/")

    # -- what is written about files ---------------------------------------------------------------

    def _write_list(self, folder: str, files: Sequence[PendingFile]) -> None:
        listed = [_Listed(one.key, one.length, one.rows) for one in files]
        with self.tree.telling("writing", LIST), self.tree.create(f"{folder}/{LIST}") as stream:
            stream.write(msgspec.json.encode(listed))

    def _write_success(self, manifest: Manifest, files: Sequence[PendingFile]) -> None:
        """Write what says that the job is committed; it goes with its folders if no one wants it.

        Before any file of before goes: else who aborts a driver that was killed would remove the
        new ones, too (F3).
        """
        now_ms = int(time.time() * 1000)
        named = tuple(PendingFile(self._full(one.key), one.length, one.rows) for one in files)
        aside = self._mark()
        with self.tree.telling("writing", SUCCESS), self.tree.create(aside) as stream:
            stream.write(success.encode(manifest, named, now_ms=now_ms))
        if self.marks_success:
            self.tree.rename(aside, SUCCESS, is_over=True)

    def _is_published(self) -> bool:
        """Say whether `_SUCCESS` is this job's."""
        data = self.tree.read(SUCCESS)
        try:
            said = success.decode(data or b"", f"{self.tree.url}/{SUCCESS}")
        except CommitterError:
            return False  # of its writer
        return bool(said.get("jobId") == self.job_id)

    def _was_committed(self, messages: Sequence[TaskMessage]) -> bool:
        """Say whether a process that was killed since has committed the job (F3).

        Its folders go before its mark does, and files before either where a job is taken back.
        """
        if self._is_published():
            return True
        there = self.tree.files()
        if not self.marks_success and self._mark() in there:
            return True
        files = [one for message in messages for one in message.files]
        asides = {self._aside(message.task) for message in messages}
        return (
            bool(files)
            and self.unique_names  # else a file of before may have its name and its length
            and asides.isdisjoint(self.tree.folders(TEMPORARY, is_deep=True))
            and all(there.get(one.key) == one.length for one in files)
        )

    def _committed(self) -> list[_Committed]:
        """Return the attempts that any run of this job has committed."""
        there = self.tree.files()
        shape = re.compile(
            rf"{TEMPORARY}/[0-9]+/task_{re.escape(self.job_id)}_0000_m_([0-9]+)_([0-9]+)"
        )
        found = []
        for folder in self.tree.folders(TEMPORARY, is_deep=True):
            if (match := shape.fullmatch(folder)) is None:
                continue
            address = f"{folder}/{LIST}"
            try:
                listed = msgspec.json.decode(
                    self.tree.read(address) or b"", type=prepared(list[_Listed])
                )
                files = tuple(
                    PendingFile(check_path(one.path), one.length, one.rows) for one in listed
                )
            except (ValueError, *UNREADABLE) as error:
                raise CommitterError(
                    f"{self.tree.url}/{address} cannot be read: {error}; remove {folder}, and its "
                    "task is run again"
                ) from error
            is_begun = any(f"{folder}/{one.key}" not in there for one in files)
            task = TaskId(int(match[1]), int(match[2]))
            found.append(_Committed(folder, task, files, is_begun))
        return found

    # -- folders -----------------------------------------------------------------------------------

    def _job_folder(self) -> str:
        return f"{TEMPORARY}/{self.app_attempt}"

    @property
    def _own_folder(self) -> str:
        """The name of a folder that is there while the job is: others leave what is around it."""
        return f"job_{self.job_id}"

    def _attempt_folder(self, task: TaskId) -> str:
        return f"{self._job_folder()}/{TEMPORARY}/attempt_{self._number(task)}"

    def _task_folder(self, task: TaskId) -> str:
        return f"{self._job_folder()}/task_{self._number(task)}"

    def _aside(self, task: TaskId) -> str:
        """Return the folder that a committed attempt has until its job ends."""
        is_first = self.algorithm_version == 1
        return self._task_folder(task) if is_first else self._attempt_folder(task)

    def _mark(self) -> str:
        """Return where the manifest is written before it takes its place."""
        return f"{self._job_folder()}/{SUCCESS}-{self.job_id}"

    def _number(self, task: TaskId) -> str:
        return f"{self.job_id}_0000_m_{task.task:06}_{task.attempt}"

    def _names_job(self, path: str) -> bool:
        """Say whether a path below `_temporary` is the job's own, and not below one that is."""
        name = path.rpartition("/")[2]
        owned = (f"attempt_{self.job_id}_0000_m_", f"task_{self.job_id}_0000_m_")
        return name.startswith(owned) or name in {f"{SUCCESS}-{self.job_id}", self._own_folder}


def _is_frame(folder: str) -> bool:
    """Say whether a folder is one that jobs share."""
    return re.fullmatch(rf"{TEMPORARY}/[0-9]+(/{TEMPORARY})?", folder) is not None
