"""The committer for file systems, in both versions: what readers see, after any death, too."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from omidpy import committers
from omidpy.committers.choice import committer as make
from omidpy.committers.hadoop.file_output import FileOutputCommitter
from omidpy.committers.places import is_hidden
from omidpy.committers.publishing import success
from omidpy.committers.values import TaskId, TaskMessage
from omidpy.errors import CommitterError, UsageError
from tests.machines.s3.crashing import Died

pytestmark = pytest.mark.integration

TABLE = pa.table({"p": [1, 1, 2], "v": [1, 2, 3]})
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Give a folder that is not there yet."""
    return tmp_path / "a b" / "out"


def begin(out: Path, version: int = 1, **options: Any) -> committers.Job:
    """Return a job that writes to a folder."""
    return committers.job(str(out), committer="file", algorithm_version=version, **options)


def of(job: committers.Job) -> FileOutputCommitter:
    """Return a job's committer."""
    assert isinstance(job.committer, FileOutputCommitter)
    return job.committer


def visible(out: Path) -> list[str]:
    """Return the paths that readers of datasets see."""
    paths = [str(one.relative_to(out)) for one in out.rglob("*") if one.is_file()]
    return sorted(path for path in paths if not is_hidden(path))


def hidden(out: Path) -> list[str]:
    """Return everything else, folders too."""
    paths = [str(one.relative_to(out)) for one in out.rglob("*")]
    return sorted(path for path in paths if is_hidden(path))


def names(out: Path) -> list[str]:
    """Return what files are called without their job."""
    return [path.partition("-")[0] for path in visible(out)]


def write(job: committers.Job, name: str, *, number: int | None = None, size: int = 3) -> None:
    """Let a task write one file."""
    with job.task(number=number) as task, task.open(name) as file:
        file.write(b"x" * size)


def write_twice(job: committers.Job) -> None:
    """Let a task write, and another one fail at its second file."""
    write(job, "g")
    with job.task() as task:
        for _ in range(2):
            task.open("f").close()


def run_two(job: committers.Job) -> None:
    """Let a task write `a` and `f`, and commit the job."""
    with job.task() as task:
        for name in ("a", "f"):
            task.open(name).close()
    job.commit()


# -- what is there ---------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_job_is_whole_once_it_is_committed(out: Path, version: int, scheme: str) -> None:
    """Version 1 shows nothing before; version 2 what its tasks have committed."""
    address = str(out) if not scheme else f"file://{str(out).replace(' ', '%20')}"
    job = committers.job(
        address, committer="file", algorithm_version=str(version), partition_by=["p"]
    )
    with job:
        job.task(TABLE)
        assert len(visible(out)) == (0 if version == 1 else 2)
        with job.task() as task, task.open("notes.txt") as file:
            file.write(b"hello")
    assert [path.partition("-")[0] for path in visible(out)] == ["notes", "p=1/part", "p=2/part"]
    assert pq.read_table(out / "p=1", partitioning=None).to_pydict() == {"v": [1, 2]}
    assert hidden(out) == ["_SUCCESS"]
    said = success.decode((out / "_SUCCESS").read_bytes(), "_SUCCESS")
    assert job.manifest is not None
    assert said["committer"] == "file"
    assert said["filenames"] == [f"{out}/{path}" for path in visible(out)]
    assert said["omidpy"]["algorithm_version"] == version
    assert [one["bytes"] for one in said["omidpy"]["files"]] == [
        (out / path).stat().st_size for path in visible(out)
    ]
    assert job.manifest.bytes_written == sum((out / path).stat().st_size for path in visible(out))
    renames = said["iostatistics"]["counters"]["op_rename"]
    # Version 1 renames each task's folder, too.
    assert renames == (3 + 2 if version == 1 else 3)
    assert said["omidpy"]["operations"]["op_rename"] == renames
    assert said["metrics"]["committer_requests"] == sum(said["omidpy"]["operations"].values())


def test_rows_are_counted_where_all_are_known(out: Path) -> None:
    """A table's are, those of other files are not."""
    with begin(out) as job:
        job.task(TABLE)
    assert job.manifest is not None
    assert job.manifest.rows == 3


def test_files_are_written_where_hadoop_writes_them(out: Path) -> None:
    """Below the run of the job, each attempt in a folder of its own."""
    with begin(out, job_id="job_00001") as job:
        task = job.task(number=7)
        task.open("f").close()
        base = out / "_temporary" / "0"
        assert (base / "_temporary/attempt_job_00001_0000_m_000007_0/f-job_00001").is_file()
        task.commit()
        assert not any((base / "_temporary").iterdir())
        assert (base / "task_job_00001_0000_m_000007_0/f-job_00001").is_file()
    assert visible(out) == ["f-job_00001"]


@VERSIONS
def test_a_failed_job_leaves_nothing(out: Path, version: int) -> None:
    """Also where version 2 had shown what its tasks have committed."""
    with pytest.raises(CommitterError, match="has a file 'f'"), begin(out, version) as job:
        write_twice(job)
    assert visible(out) == hidden(out) == []


@VERSIONS
def test_a_task_that_is_tried_again_is_there_once(out: Path, version: int) -> None:
    """Of its first attempt nothing is."""
    with begin(out, version) as job:
        lost = job.task(number=0)
        lost.open("lost").close()
        lost.abort()
        write(job, "f", number=0)
    assert names(out) == ["f"]
    assert hidden(out) == ["_SUCCESS"]


@VERSIONS
def test_what_is_dead_stays_dead(out: Path, version: int) -> None:
    """An attempt that ended, or whose job did, promotes nothing."""
    job = begin(out, version).__enter__()
    write(job, "f", number=0)
    late, aborted = job.task(number=1), job.task(number=2)
    late.open("late").close()
    aborted.open("aborted").close()
    aborted.abort()
    with pytest.raises(CommitterError, match="is aborted, and cannot be committed"):
        aborted.commit()
    job.commit()
    for end in (late.commit, lambda: of(job).commit_task(late._attempt)):
        with pytest.raises(CommitterError):
            end()
    assert names(out) == ["f"]


def test_a_late_attempt_takes_the_place_of_nothing(out: Path) -> None:
    """Another executor commits a second attempt at a task; the first is the one of the job (F1)."""
    made = make(str(out), "file")
    made.setup_job()
    messages = []
    for number in (0, 1):
        attempt = pickle.loads(pickle.dumps(made)).setup_task(TaskId(0, number))
        with attempt.open("f") as file:
            file.write(b"%d" % number)
        copy = pickle.loads(pickle.dumps(made))
        messages.append(copy.commit_task(attempt))
    made.commit_job(messages[:1])
    made.cleanup_job()
    assert [(out / path).read_bytes() for path in visible(out)] == [b"0"]
    assert hidden(out) == ["_SUCCESS"]


@VERSIONS
def test_an_attempt_that_goes_on_behind_its_job_makes_no_folder(out: Path, version: int) -> None:
    """A second attempt at a task, as of a speculation, comes to its next folder."""
    job = begin(out, version).__enter__()
    write(job, "p=1/q=1/f", number=0)
    late = of(job).setup_task(TaskId(0, 1))
    job.commit()
    with pytest.raises(CommitterError, match="op_mkdirs failed at file://"):
        late.open("p=1/q=2/f")
    of(job).abort_task(late)
    assert names(out) == ["p=1/q=1/f"]
    assert hidden(out) == ["_SUCCESS"]


@VERSIONS
def test_an_attempt_that_begins_behind_its_job_makes_no_folder(out: Path, version: int) -> None:
    """Its process had not begun when the other attempt, and so the job, ended."""
    job, other = begin(out, version).__enter__(), begin(out, version).__enter__()
    write(job, "f", number=0)
    job.commit()
    write(other, "g")
    other.commit()
    with pytest.raises(CommitterError, match="op_mkdirs failed at file://"):
        of(job).setup_task(TaskId(0, 1))
    assert names(out) == ["f", "g"]
    assert hidden(out) == ["_SUCCESS"]


@VERSIONS
def test_files_that_went_astray_fail_the_job(out: Path, version: int) -> None:
    """Nothing of it is visible, although its other task was in order (F2)."""
    job = begin(out, version).__enter__()
    write(job, "a")
    write(job, "b")
    (there,) = out.rglob("b-*")
    there.write_bytes(b"other")
    before = of(job).tree.operations["op_rename"]
    with pytest.raises(CommitterError, match=r"has 5 bytes|5 bytes, not 3"):
        job.commit()
    assert of(job).tree.operations["op_rename"] == before
    assert visible(out) == []
    assert hidden(out) == []


@VERSIONS
def test_files_that_shrink_as_they_are_moved_fail_the_job(out: Path, version: int) -> None:
    """What is there afterwards is compared with what tasks told."""
    job = begin(out, version).__enter__()
    write(job, "a")

    def truncate(operation: str) -> None:
        found = [one for one in out.rglob("a-*") if one.parent == out]
        if operation == "op_list_status" and found:
            found[0].write_bytes(b"")

    of(job).tree.before_operation = truncate
    with pytest.raises(CommitterError, match="is not there as its task has written it"):
        job.commit()
    assert visible(out) == []


def test_jobs_to_one_destination_leave_each_other_alone(out: Path) -> None:
    """A job that ends removes its own folders, and the common one if that is empty."""
    one, two = begin(out).__enter__(), begin(out).__enter__()
    write(one, "one")
    write(two, "two")
    one.commit()
    assert names(out) == ["one"]
    two.commit()
    assert names(out) == ["one", "two"]
    assert hidden(out) == ["_SUCCESS"]


# -- files that are there already ------------------------------------------------------------------


@VERSIONS
def test_conflicts_are_refused_kept_or_replaced(out: Path, version: int) -> None:
    """Hidden files stay in every mode."""
    out.mkdir(parents=True)
    for name in ("old", "_hidden"):
        (out / name).write_text("old")
    with pytest.raises(CommitterError, match="is not empty"), begin(out, version, conflict="fail"):
        pass
    assert visible(out) == ["old"]
    with begin(out, version, conflict="append") as job:
        write(job, "new")
    assert names(out) == ["new", "old"]
    with begin(out, version, conflict="replace") as job:
        write(job, "newer")
    assert names(out) == ["newer"]
    assert job.manifest is not None
    assert job.manifest.replaced == 2
    assert hidden(out) == ["_SUCCESS", "_hidden"]


@VERSIONS
def test_a_job_that_is_decided_is_never_taken_back(out: Path, version: int) -> None:
    """What it replaces could not be removed: its files stay, whoever aborts it, and he is told."""
    out.mkdir(parents=True)
    (out / "old").write_text("old")
    job = begin(out, version, conflict="replace").__enter__()
    write(job, "new")
    copy = pickle.loads(pickle.dumps(of(job)))
    messages = list(job._messages)

    def refuse(operation: str) -> None:
        if operation == "op_delete" and (out / "_SUCCESS").exists():
            raise CommitterError("no more")

    of(job).tree.before_operation = refuse
    with pytest.raises(CommitterError, match=r"is committed and visible.*no more"):
        job.commit()
    with pytest.raises(CommitterError, match=r"is committed, whatever failed .*; remove old, 1 f"):
        copy.abort_job(messages)
    assert names(out) == ["new", "old"]
    assert hidden(out) == ["_SUCCESS"]


@VERSIONS
def test_a_job_is_not_taken_for_committed_by_a_file_of_before(out: Path, version: int) -> None:
    """It had the same name and length, and who asked for the abort again was told not to run it."""
    out.mkdir(parents=True)
    (out / "a").write_text("x")
    job = begin(out, version, conflict="replace", unique_names=False).__enter__()
    with job.task() as task, task.open("a") as file:
        file.write(b"y")
    messages = list(job._messages)
    for _ in range(2):
        pickle.loads(pickle.dumps(of(job))).abort_job(messages)
    if version == 1:
        assert (out / "a").read_text() == "x"


def ends_with(
    made: FileOutputCommitter, messages: list[TaskMessage], watch: Callable[[str], None]
) -> bool:
    """Commit a job under a watch; say whether it was the end of its process."""
    made.tree.before_operation = watch
    try:
        made.commit_job(messages)
        made.cleanup_job()
    except Died:
        return True
    return False


def aborted(made: FileOutputCommitter, messages: list[TaskMessage]) -> str:
    """Abort a job; return what is said of it."""
    try:
        made.abort_job(messages)
    except CommitterError as error:
        return str(error)
    return ""


@VERSIONS
@pytest.mark.parametrize("has_success", [True, False])
def test_who_aborts_a_driver_that_was_killed_leaves_one_of_two(
    tmp_path: Path, version: int, *, has_success: bool
) -> None:
    """Spark aborts where the process that commits was killed, at whatever operation (F3).

    Without `_SUCCESS` nothing said that it had committed, and the new files went behind the old.
    """
    told: list[bool] = []
    for index in range(100):
        out = tmp_path / str(index)
        out.mkdir()
        (out / "old").write_text("old")
        job = begin(out, version, conflict="replace", success=has_success).__enter__()
        write(job, "new")
        write(job, "p=1/new")
        made, messages = pickle.loads(pickle.dumps((of(job), list(job._messages))))
        has_died = ends_with(made, messages, die_at(index))
        what = aborted(pickle.loads(pickle.dumps(of(job))), messages)
        told.append("is committed, whatever failed behind that" in what)
        if told[-1]:
            assert [path for path in names(out) if path != "old"] == ["new", "p=1/new"]
            assert ("remove old, 1 files" in what) == ("old" in visible(out))
        else:
            assert (what, visible(out)) == ("", ["old"])
        assert hidden(out) == (["_SUCCESS"] if has_success and told[-1] else [])
        if not has_died:
            break
    assert told == sorted(told)
    assert (told[0], told[-1]) == (False, True)


@VERSIONS
def test_who_came_meanwhile_fails_a_sole_job(out: Path, version: int) -> None:
    """Mode `fail` asks again before anything is moved."""
    job = begin(out, version, conflict="fail").__enter__()
    write(job, "f")
    (out / "theirs").write_text("x")
    with pytest.raises(CommitterError, match="it has theirs"):
        job.commit()
    assert visible(out) == ["theirs"]


@VERSIONS
def test_names_that_are_not_unique_replace_only_where_told(out: Path, version: int) -> None:
    """Otherwise the file that is there stays, and nothing of the job comes."""
    out.mkdir(parents=True)
    (out / "f").write_text("old")
    job = begin(out, version, unique_names=False).__enter__()
    with pytest.raises(CommitterError, match="exists; choose unique_names"):
        run_two(job)
    job.abort()
    assert visible(out) == ["f"]
    assert (out / "f").read_text() == "old"
    with begin(out, version, unique_names=False, conflict="replace") as job:
        write(job, "f")
    assert (out / "f").read_text() == "xxx"


def test_a_file_system_that_renames_to_nothing_else_will_do(tmp_path: Path) -> None:
    """HDFS does not replace a file by a rename; and any file system of pyarrow may be given."""
    base = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for size in (3, 4):
        job = committers.job(
            "deep/out", committer="file", filesystem=base, unique_names=False, conflict="replace"
        )
        with job:
            write(job, "f", size=size)
    assert (tmp_path / "deep/out/f").read_bytes() == b"xxxx"
    assert job.manifest is not None
    assert job.manifest.files == ("deep/out/f",)
    assert job.manifest.operations["op_delete"] == 1


# -- death -----------------------------------------------------------------------------------------

TASKS = (("a", "p=1/b"), ("c",), ("d", "e"))


def run(out: Path, version: int, watch: Callable[[str], None] | None, **options: Any) -> None:
    """Run a job whose tasks write files, each once; tasks of runs before are not run again."""
    job = begin(out, version, job_id="job_00001", **options)
    of(job).tree.before_operation = watch
    with job:
        for number, paths in enumerate(TASKS):
            if number in job.done:
                continue
            with job.task(number=number) as task:
                for path in paths:
                    with task.open(path) as file:
                        file.write(path.encode())


def die_at(index: int) -> Callable[[str], None]:
    """Return what ends a process at an operation, and at each one after it."""
    left = index

    def watch(operation: str) -> None:
        nonlocal left
        if left == 0:
            raise Died(operation)
        left -= 1

    return watch


WHOLE = ["a-job_00001", "c-job_00001", "d-job_00001", "e-job_00001", "p=1/b-job_00001"]


@VERSIONS
@pytest.mark.parametrize("conflict", ["append", "replace", "fail"])
def test_a_death_at_any_operation_shows_what_is_declared(
    tmp_path: Path, version: int, conflict: str
) -> None:
    """Version 1 shows parts of a job that dies while it commits; version 2 of one that never does.

    A later run of the same job ends in all of it and nothing else, for version 1 without tasks
    that were committed before.
    """
    seen: set[int] = set()
    early = parts = recovered = 0
    index = 0
    while True:
        out = tmp_path / str(index)
        out.mkdir()
        old = [] if conflict == "fail" else ["old"]
        for name in old:
            (out / name).write_text("old")
        operations: list[str] = []
        death = die_at(index)

        def watch(operation: str, seen: list[str] = operations, die: Any = death) -> None:
            die(operation)
            seen.append(operation)

        try:
            run(out, version, watch, conflict=conflict)
        except Died:
            pass
        else:
            break
        new = [path for path in visible(out) if path not in old]
        seen.add(len(new))
        is_published = (out / "_SUCCESS").exists()
        assert is_published <= (new == WHOLE)
        if conflict == "replace" and not is_published:
            assert "old" in visible(out), "old files go last"
        if new and not is_published:
            parts += 1
            committed = len(list(out.glob("_temporary/0/task_*")))
            early += committed < len(TASKS) if version == 1 else 1
        again: list[str] = []
        if is_published:
            with pytest.raises(CommitterError, match="is committed already"):
                run(out, version, again.append, conflict=conflict, app_attempt=1)
        else:
            run(out, version, again.append, conflict=conflict, app_attempt=1)
        recovered += again.count("op_create") == 1
        left = [] if conflict == "replace" and not is_published else old
        assert [path for path in visible(out) if path not in old] == WHOLE
        if not is_published:
            assert [path for path in visible(out) if path in old] == left
        assert [(out / path).read_text() for path in WHOLE] == ["a", "c", "d", "e", "p=1/b"]
        assert hidden(out) == ["_SUCCESS"]
        said = json.loads((out / "_SUCCESS").read_bytes())
        assert len(said["filenames"]) == len(WHOLE)
        index += 1
    made = make(str(tmp_path), "file", algorithm_version=version)
    # Either commits file by file; but version 1 shows nothing before all tasks are committed.
    assert seen == {0, 1, 2, 3, 4, 5}
    assert not made.capabilities.atomic_job_commit
    assert parts
    assert (early == 0) == made.capabilities.hides_committed_tasks
    # `_SUCCESS` alone was created: no task ran again.
    assert (recovered > 0) == made.capabilities.recoverable_jobs


def test_of_two_committed_attempts_that_one_is_recovered_whose_files_were_moved(out: Path) -> None:
    """The driver had chosen it, and the other's files are others."""
    made = make(str(out), "file", job_id="job_00001")
    assert isinstance(made, FileOutputCommitter)
    made.setup_job()
    messages = []
    for number, paths in enumerate((("a",), ("a", "b"))):
        attempt = made.setup_task(TaskId(0, number))
        for path in paths:
            with attempt.open(path) as file:
                file.write(b"%d" % number)
        messages.append(made.commit_task(attempt))

    def die(operation: str) -> None:
        if operation == "op_rename" and visible(out):
            raise Died

    made.tree.before_operation = die
    with pytest.raises(Died):
        made.commit_job(messages[1:])
    assert len(visible(out)) == 1
    with begin(out, job_id="job_00001", app_attempt=1) as job:
        assert job.done == {0}
    assert [(out / path).read_bytes() for path in visible(out)] == [b"1", b"1"]
    assert hidden(out) == ["_SUCCESS"]


def test_a_version_2_task_that_dies_as_it_commits_leaves_files(out: Path) -> None:
    """Of a task that was never committed: what its capabilities say, and version 1 never does."""
    for version in (1, 2):
        job = begin(out, version).__enter__()
        renames: list[str] = []

        def die(operation: str, renames: list[str] = renames) -> None:
            renames += [operation] * (operation == "op_rename")
            if len(renames) > 1:
                raise Died

        task = job.task()
        for name in ("a", "b"):
            task.open(name).close()
        of(job).tree.before_operation = die
        if version == 1:
            task.commit()
            assert visible(out) == []
        else:
            with pytest.raises(Died):
                task.commit()
            assert names(out) == ["a"]
        assert of(job).capabilities.atomic_task_commit == (version == 1)
        assert of(job).capabilities.hides_uncommitted == (version == 1)


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "options", "message"),
    [
        ("s3://b/out", {}, "'file' renames, and s3://b/out is a store of objects.*'omidpy'"),
        ("s3a://b/out", {}, "choose committer='omidpy'"),
        ("gs://b/out", {}, "is none of file://, hdfs://"),
        ("file://", {}, "names no folder"),
        ("file:///", {}, "names no folder"),
        ("", {}, "'' is no folder"),
        ("/out", {"algorithm_version": 3}, "algorithm_version=3 must be 1 or 2"),
        ("/out", {"app_attempt": -1}, "app_attempt=-1 must be a whole number from 0"),
        ("/out", {"app_attempt": 1}, "give its job_id"),
        ("/out", {"threads": 4}, "committer='file' has no option 'threads'"),
        ("/out", {"inline_bytes": 0}, "committer='file' has no option 'inline_bytes'"),
        ("/out", {"conflict": "merge"}, "conflict='merge' must be one of"),
        ("/out", {"filesystem": "local"}, "filesystem='local' is no pyarrow.fs.FileSystem"),
        ("file:///out", {"filesystem": fs.LocalFileSystem()}, "has a scheme beside filesystem"),
    ],
)
def test_what_is_wrong_is_said(address: str, options: dict[str, Any], message: str) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match=message):
        make(address, "file", **options)


def test_a_store_of_objects_is_refused_as_a_file_system_too() -> None:
    """It copies where one renames, also through pyarrow."""
    store = fs.S3FileSystem(anonymous=True, region="us-east-1")
    for one in (store, fs.SubTreeFileSystem("b", store)):
        with pytest.raises(UsageError, match="type 's3' is a store of objects"):
            make("out", "file", filesystem=one)


def test_other_committers_name_the_one_for_files() -> None:
    """Whoever writes to a folder is told which committer does."""
    with pytest.raises(UsageError, match="choose committer='file'"):
        make("/out", "omidpy")
    with pytest.raises(UsageError, match="committer='omidpy' has no option 'algorithm_version'"):
        make("s3://b/out", "omidpy", algorithm_version=2)


def test_a_destination_that_is_a_file_is_refused(out: Path) -> None:
    """Nothing of it is touched."""
    out.parent.mkdir()
    out.write_text("x")
    with pytest.raises(CommitterError, match="is a file; write to a folder"), begin(out):
        pass
    assert out.read_text() == "x"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The system's reason is in the error."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(CommitterError, match="op_mkdirs failed at file://"):
        begin(tmp_path / "file" / "out").__enter__()


def test_a_list_that_cannot_be_read_is_named(out: Path) -> None:
    """A recovery does not go on as if its task had written nothing."""
    job = begin(out, job_id="job_00001").__enter__()
    write(job, "f")
    (listed,) = out.rglob("_files.json")
    listed.write_bytes(b'[{"path": "../f", "length": 3}]')
    with pytest.raises((CommitterError, UsageError), match="f"):
        begin(out, job_id="job_00001", app_attempt=1).__enter__()
    listed.write_bytes(b"")
    with pytest.raises(CommitterError, match=r"_files.json cannot be read.*is run again"):
        begin(out, job_id="job_00001", app_attempt=1).__enter__()
