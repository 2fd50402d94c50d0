"""Jobs that publish to a real S3 server: what readers see, and what it costs."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omidpy import committers
from omidpy.committers.heads import plan as plans
from omidpy.committers.objects.answers import Refused
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.objects.uploads import Sender
from omidpy.committers.places import Folder
from omidpy.committers.publishing import ending
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import TaskId
from omidpy.errors import CommitterError, ConfigError, UsageError
from tests.machines.s3.crashing import Death, Died
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server
from tests.machines.waiting import wait_for

pytestmark = pytest.mark.integration

TABLE = pa.table({"v": [1, 2, 3]})


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """Give a bucket of its own."""
    return Bucket(s3)


@pytest.fixture
def begin(s3: S3Server, bucket: Bucket) -> Any:
    """Give what begins a job in a folder of the bucket."""

    def begun(folder: str = "out", **options: Any) -> committers.Job:
        address = f"s3://{bucket.name}/{folder}"
        return committers.job(address, endpoint_url=s3.endpoint, **options)

    return begun


def store_of(job: committers.Job) -> ObjectStore:
    """Return the store that a job writes through."""
    assert isinstance(job.committer, S3Committer)
    return job.committer.store


def test_a_job_is_visible_whole_once_it_is_committed(begin: Any, bucket: Bucket) -> None:
    """Not a file of it before."""
    with begin() as job:
        job.task(TABLE)
        with job.task(partition_by=["p"]) as task:
            task.write(pa.table({"p": ["x", "y"], "v": [4, 5]}))
            with task.open("large.bin") as file:
                file.write(b"z" * 3_000_000)
        assert bucket.visible("out") == []
    paths = bucket.visible("out")
    assert [path.partition(job.id)[0] for path in paths] == [
        "large-",
        "p=x/part-00001-c000-",
        "p=y/part-00001-c001-",
        "part-00000-c000-",
    ]
    assert bucket.get(f"out/{paths[0]}") == b"z" * 3_000_000
    assert pq.read_table(io.BytesIO(bucket.get(f"out/{paths[3]}"))) == TABLE
    assert bucket.keys() == [*sorted(f"out/{path}" for path in paths), "out/_SUCCESS"][-1:] + [
        f"out/{path}" for path in paths
    ]
    assert bucket.uploads() == []
    said = bucket.success("out")
    assert said["filenames"] == [f"/out/{path}" for path in paths]
    assert said["jobId"] == job.id
    assert job.manifest is not None
    assert said["omidpy"]["bytes"] == job.manifest.bytes_written
    assert job.manifest.bytes_written == sum(len(bucket.get(f"out/{path}")) for path in paths)


@pytest.mark.parametrize("committer", ["omidpy", "directory"])
def test_files_of_a_task_are_sent_beside_each_other(
    begin: Any, bucket: Bucket, committer: str
) -> None:
    """A task of many files does not wait for each of them in turn."""
    meeting = threading.Barrier(2, timeout=20)
    with begin(committer=committer, inline_bytes=0) as job:

        def meet(operation: str) -> None:
            if operation == "UploadPart":
                meeting.wait()

        store_of(job).before_request = meet
        with job.task() as task:
            for name in ("a", "b"):
                task.open(name).close()
    assert len(bucket.visible("out")) == 2


def test_a_magic_file_that_is_given_up_says_nothing_any_more(begin: Any, bucket: Bucket) -> None:
    """Hadoop would complete whatever a `.pending` speaks of; an open file has none."""
    with begin(committer="magic") as job:
        for closes in (True, False):
            task = job.task()
            file = task.open("a")
            file.write(b"a")
            if closes:
                file.close()
                found = bucket.keys()
                assert any(key.endswith(".pending") for key in found)
            task.abort()
            found = bucket.keys()
            assert not any(key.endswith(".pending") for key in found)
        counts = store_of(job).counts()
        assert (counts["PutObject"], counts["DeleteObject"]) == (1, 1)


def test_a_file_is_given_up_once_nothing_of_it_is_on_its_way(begin: Any, bucket: Bucket) -> None:
    """An upload that begins after its abort would be left."""
    job = begin(inline_bytes=0).__enter__()
    late = threading.Event()

    def hold(operation: str) -> None:
        if operation == "CreateMultipartUpload":
            late.wait(0.2)

    store_of(job).before_request = hold
    task = job.task()
    task.open("f").write(b"x")
    task.abort()
    store_of(job).background.shutdown()
    assert bucket.uploads() == []
    assert store_of(job).requests == {"CreateMultipartUpload": 1, "AbortMultipartUpload": 1}


def test_requests_are_as_many_as_promised(begin: Any, bucket: Bucket) -> None:
    """1 for a small file, 3 for another, 5 for the job; no more for tasks that wrote nothing."""
    with begin(inline_bytes=100) as job:
        for at in range(4):
            with job.task() as task, task.open(f"small-{at}") as file:
                file.write(b"x" * 100)
        for at in range(5):
            with job.task() as task, task.open(f"large-{at}") as file:
                file.write(b"x" * 101)
        with job.task():
            pass
        in_tasks = dict(store_of(job).requests)
    assert in_tasks == {"CreateMultipartUpload": 5, "UploadPart": 5}
    assert store_of(job).requests == {
        "CreateMultipartUpload": 5,
        "UploadPart": 5,
        "CompleteMultipartUpload": 5,
        "GetObject": 1,
        "PutObject": 4 + 3,
        "DeleteObject": 1,
    }
    assert store_of(job).request_count == 5 * 3 + 4 * 1 + 5
    assert len(bucket.visible("out")) == 9


@pytest.mark.parametrize("conflict", ["fail", "replace"])
def test_conflict_modes_cost_one_listing_more(begin: Any, bucket: Bucket, conflict: str) -> None:
    """What replaces removes with the plan, in one request.

    It lists once more where a file is of a job that nobody remembers, and once more before it
    removes, on stores that are not known to look at tags.
    """
    if conflict == "replace":
        bucket.put("out/old")
    with begin(conflict=conflict) as job:
        job.task(TABLE)
    listings = {"fail": 1, "replace": 3}[conflict]
    assert store_of(job).request_count == 1 + 5 + listings
    assert store_of(job).requests["ListObjectsV2"] == listings
    assert len(bucket.visible("out")) == 1


def test_an_empty_job_says_that_it_succeeded(begin: Any, bucket: Bucket) -> None:
    """A frame without rows is a result, too."""
    with begin():
        pass
    assert bucket.keys() == ["out/_SUCCESS"]
    assert bucket.success("out")["filenames"] == []


def test_an_empty_file_is_a_file(begin: Any, bucket: Bucket) -> None:
    """As an upload it has one part, which is empty."""
    with begin(inline_bytes=0) as job, job.task() as task:
        task.open("empty").close()
        with task.open("one") as file:
            file.write(b"1")
    with begin() as job, job.task() as task:
        task.open("empty2").close()
    assert sorted(len(bucket.get(f"out/{path}")) for path in bucket.visible("out")) == [0, 0, 1]


def test_a_file_of_many_parts_is_whole(begin: Any, bucket: Bucket) -> None:
    """Parts are cut where they are full, not where the writer paused."""
    data = bytes(range(256)) * 50_000  # 12.8 MB
    with begin(part_bytes="5MiB") as job, job.task() as task, task.open("f") as file:
        for at in range(0, len(data), 999_999):
            file.write(data[at : at + 999_999])
    (path,) = bucket.visible("out")
    assert bucket.get(f"out/{path}") == data
    assert store_of(job).requests["UploadPart"] == 3


def test_local_files_and_lists_of_tables_are_tasks(
    begin: Any, bucket: Bucket, tmp_path: Path
) -> None:
    """`job.task(...)` takes what there is."""
    (tmp_path / "notes.csv").write_text("a,b\n")
    with begin() as job:
        job.task(TABLE, str(tmp_path / "notes.csv"))
        with job.task() as task:
            task.put(tmp_path / "notes.csv", "deep/er.csv")
    assert [path.partition(job.id)[0] for path in bucket.visible("out")] == [
        "deep/er-",
        "notes-",
        "part-00000-c000-",
    ]


def test_a_job_may_leave_no_success(begin: Any, bucket: Bucket) -> None:
    """Some readers take every file for data."""
    with begin(success=False) as job:
        job.task(TABLE)
    assert bucket.keys() == [f"out/{path}" for path in bucket.visible("out")]
    assert store_of(job).request_count == 1 + 4


# -- what is no part of the job --------------------------------------------------------------------


def test_a_failed_job_leaves_nothing(begin: Any, bucket: Bucket) -> None:
    """Its own exception wins."""

    def fail() -> None:
        with begin(inline_bytes=0) as job:
            job.task(TABLE)
            with job.task() as task:
                task.write(TABLE)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert bucket.keys() == []
    assert bucket.uploads() == []


def test_a_task_that_is_tried_again_is_there_once(begin: Any, bucket: Bucket) -> None:
    """Of the first try there is nothing, not even an upload."""

    def fail(job: committers.Job) -> None:
        with job.task(number=7) as task, task.open("f") as file:
            file.write(b"first")
            raise ZeroDivisionError

    with begin(inline_bytes=0) as job:
        with pytest.raises(ZeroDivisionError):
            fail(job)
        assert bucket.uploads() == []
        with job.task(number=7) as task, task.open("f") as file:
            file.write(b"second")
    (path,) = bucket.visible("out")
    assert bucket.get(f"out/{path}") == b"second"


def test_of_two_attempts_at_a_task_the_first_to_commit_stays(begin: Any, bucket: Bucket) -> None:
    """Speculation: the other one is told, and what it wrote goes."""
    with begin(inline_bytes=0) as job:
        slow, quick = job.task(number=0), job.task(number=0)
        with slow.open("f") as file:
            file.write(b"slow")
        with quick.open("f") as file:
            file.write(b"quick")
        quick.commit()
        with pytest.raises(CommitterError, match="another attempt at task 0"), slow:
            pass
        assert len(bucket.uploads()) == 1
    (path,) = bucket.visible("out")
    assert bucket.get(f"out/{path}") == b"quick"
    assert bucket.uploads() == []


def test_what_is_dead_stays_dead(begin: Any, bucket: Bucket) -> None:
    """After its end neither an attempt nor a job promotes anything."""
    with begin() as job:
        committed = job.task(TABLE)
        late = job.task()
        for action in (lambda: committed.open("x"), committed.commit, lambda: committed.write(1)):
            with pytest.raises(CommitterError, match="is committed"):
                action()
        aborted = job.task()
        aborted.abort()
        with pytest.raises(CommitterError, match="is aborted"):
            aborted.open("x")
        with pytest.raises(CommitterError, match="committed already"):
            job.task(number=0)
        with pytest.raises(UsageError, match="number=-1 is negative"):
            job.task(number=-1)
    for action in (lambda: late.open("late"), late.commit):
        with pytest.raises(CommitterError, match="is aborted, and cannot"):
            action()
    before = store_of(job).request_count
    job.abort()
    assert store_of(job).request_count == before
    for again in (job.commit, job.task, job.__enter__):
        with pytest.raises(CommitterError, match=r"is committed|was begun before"):
            again()
    assert len(bucket.visible("out")) == 1


def test_a_task_that_nobody_commits_is_named(
    begin: Any, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    """Its block was forgotten: the job went without it, and nothing said so."""
    with begin() as job:
        job.task(TABLE)
        forgotten = job.task()
        forgotten.write(TABLE)
        slow, given_up = job.task(number=7), job.task()
        slow.write(TABLE)
        given_up.abort()
        job.task(TABLE, number=7)
    (warning,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert warning.startswith(f"task {forgotten.number} of job {job.id} was begun and never")
    assert len(bucket.visible("out")) == 2


def test_a_task_that_ends_while_its_job_is_committed_is_refused(begin: Any, bucket: Bucket) -> None:
    """The plan is made, and what came to the messages now would be lost without a word."""
    job = begin().__enter__()
    job.task(TABLE)
    late = job.task()
    late.open("late").close()
    refused = []

    def commit_late(operation: str) -> None:
        store_of(job).before_request = None
        with pytest.raises(CommitterError, match="is aborted, and cannot be committed"):
            late.commit()
        refused.append(operation)

    store_of(job).before_request = commit_late
    job.commit()
    assert refused == ["PutObject"]
    assert len(bucket.visible("out")) == 1


def test_a_job_whose_names_do_not_tell_looks_for_no_uploads(begin: Any) -> None:
    """It could not tell its own from those of others."""
    with begin(unique_names=False, sweep="always") as job:
        job.task(TABLE)
    assert "ListMultipartUploads" not in store_of(job).requests


def test_a_file_that_was_not_closed_fails_its_task(begin: Any, bucket: Bucket) -> None:
    """It may lack its end."""
    with (
        pytest.raises(CommitterError, match="was not closed"),
        begin() as job,
        job.task() as task,
    ):
        task.open("f").write(b"half")
    assert bucket.keys() == []


def test_lost_attempts_are_swept_and_other_jobs_are_not(begin: Any, bucket: Bucket) -> None:
    """An executor that dies tells nobody; `out10` is no part of `out1`."""
    with begin("out10", inline_bytes=0) as neighbour:
        begun = neighbour.task()
        begun.open("f").close()
        with begin("out1", inline_bytes=0) as other:
            theirs = other.task()
            theirs.open("f").close()
            with begin("out1", inline_bytes=0) as job:
                lost = job.task(number=0)
                lost.open("f").close()  # and is never heard of again
                with job.task(number=0) as task:
                    task.open("f").close()
                # What only was closed is sent in the background.
                wait_for(lambda: len(bucket.uploads()) == 4, 10)
            assert len(bucket.uploads()) == 2
            assert store_of(job).requests["ListMultipartUploads"] == 1
            theirs.commit()
        begun.commit()
    assert len(bucket.visible("out1")) == 2
    assert len(bucket.visible("out10")) == 1


@pytest.mark.parametrize(("sweep", "left"), [("always", 0), ("auto", 1), ("never", 1)])
def test_an_attempt_that_nobody_knows_of_is_swept_by_those_who_always_look(
    begin: Any, bucket: Bucket, sweep: str, left: int
) -> None:
    """Speculation starts one without telling anybody."""
    with begin(sweep=sweep) as job:
        job.task(TABLE)
        bucket.client.create_multipart_upload(Bucket=bucket.name, Key=f"out/lost-{job.id}.parquet")
    assert len(bucket.uploads()) == left


@pytest.mark.parametrize("sweep", ["auto", "never"])
def test_a_job_ends_the_attempt_of_a_task_that_was_tried_twice(
    begin: Any, bucket: Bucket, sweep: str
) -> None:
    """It knows of it, so that nobody has to look."""
    with begin(sweep=sweep, inline_bytes=0) as job:
        job.task(number=0).open("lost").close()
        job.task(TABLE, number=0)
    assert bucket.uploads() == []


def test_a_batch_whose_plan_is_being_rolled_back_was_not_committed(
    s3: S3Server, bucket: Bucket
) -> None:
    """Whoever runs it again ends that first, and then begins anew."""
    made = committer_of(s3, bucket, job_id="job_00001")
    plan = plans.Plan("job_00001", "omidpy", made.folder, (), state="rolling back")
    ending.begin(made.store, plan)
    assert not made.was_committed()
    assert bucket.keys() == []


def test_jobs_to_one_destination_do_not_meet(begin: Any, bucket: Bucket) -> None:
    """Each is whole, whatever the other does."""
    go = threading.Barrier(4)

    def run(at: int) -> None:
        with begin(inline_bytes=at % 2 * 1000) as job:
            for _ in range(3):
                job.task(TABLE)
            go.wait(60)
            if at == 3:
                job.abort()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert len(bucket.visible("out")) == 9
    assert bucket.uploads() == []
    assert len(bucket.keys()) == 9 + 1


# -- conflicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", ["out/a", "out/p=1/a", "out/_SUCCESS"])
def test_mode_fail_refuses_before_any_upload(begin: Any, bucket: Bucket, old: str) -> None:
    """Whatever is there is somebody's."""
    bucket.put(old)
    job = begin(conflict="fail")
    with pytest.raises(CommitterError, match="is not empty"), job:
        job.task(TABLE)
    assert store_of(job).request_count == 2
    assert bucket.keys() == [old]


def test_mode_fail_ignores_neighbours(begin: Any, bucket: Bucket) -> None:
    """`out-1`, `out.x` and `out10` come before and after `out/` in a listing."""
    for key in ("out-1/a", "out.x", "out10/a", "ou"):
        bucket.put(key)
    with begin(conflict="fail") as job:
        job.task(TABLE)
    assert len(bucket.visible("out")) == 1


def test_a_destination_that_is_a_file_is_refused(begin: Any, bucket: Bucket) -> None:
    """Nobody could list the folder of this name."""
    bucket.put("out")
    with pytest.raises(CommitterError, match="is not empty"), begin(conflict="fail"):
        pass
    for options in ({}, {"inline_bytes": 0}, {"conflict": "replace"}):
        with pytest.raises(CommitterError, match="s3://"), begin(**options) as job:
            job.task(TABLE)
    assert bucket.keys() == ["out"]
    assert bucket.uploads() == []


def test_of_two_jobs_in_mode_fail_one_succeeds(begin: Any, bucket: Bucket) -> None:
    """Both found the destination empty; the second to end takes its files back."""
    second = begin(conflict="fail").__enter__()
    second.task(TABLE)
    with begin(conflict="fail") as first:
        first.task(TABLE)
    with pytest.raises(CommitterError, match="another job was committed"):
        second.commit()
    (path,) = bucket.visible("out")
    assert first.id in path
    assert bucket.success("out")["jobId"] == first.id
    assert len(bucket.keys()) == 2


def test_mode_replace_removes_what_readers_saw(begin: Any, bucket: Bucket) -> None:
    """And nothing that belongs to a job which is still running, or to a neighbour."""
    kept = ["out/_temporary/0/x", "out/__magic_job-1/x", "out10/a", "out/_omidpy/j/plan.json"]
    for key in (*kept, "out/a", "out/p=1/b", "out/_metadata"):
        bucket.put(key)
    with begin(conflict="replace") as job:
        job.task(TABLE)
    assert sorted(bucket.keys()) == sorted(
        [*kept, "out/_SUCCESS", *(f"out/{path}" for path in bucket.visible("out"))]
    )
    assert len(bucket.visible("out")) == 1
    assert job.manifest is not None
    assert job.manifest.replaced == 3


def test_mode_replace_of_partitions_touches_those_that_are_written(
    begin: Any, bucket: Bucket
) -> None:
    """A file at the top is in no partition: it must not cost the whole table."""
    for key in ("out/a", "out/p=1/a", "out/p=1/q=1/a", "out/p=10/a", "out/p=2/a"):
        bucket.put(key)
    with begin(conflict="replace", scope="partitions") as job:
        job.task(pa.table({"p": [1], "v": [1]}), partition_by=["p"])
        job.task(TABLE)
    left = [path for path in bucket.visible("out") if job.id not in path]
    assert left == ["a", "p=10/a", "p=2/a"]
    assert len(bucket.visible("out")) == 5


def test_mode_fail_of_partitions_refuses_in_the_task(begin: Any, bucket: Bucket) -> None:
    """No request is sent for what may not be written; other partitions are free."""
    bucket.put("out/p=1/a")
    with begin(conflict="fail", scope="partitions", inline_bytes=0) as job:
        with pytest.raises(CommitterError, match=r"the partition p=1 of .* has files"):
            job.task(pa.table({"p": [1], "v": [1]}), partition_by=["p"])
        assert store_of(job).requests == {"ListObjectsV2": 1}
        job.task(pa.table({"p": [2], "v": [1]}), partition_by=["p"])
    assert len(bucket.visible("out")) == 2


@pytest.mark.parametrize(
    ("theirs", "metadata"),
    [
        (b"theirs", {}),
        (b"same", {}),
        (b"ours", {}),
        (b"same", {"omidpy-job": "job_00002"}),
        (b"others", {"omidpy-job": "job_00001"}),
    ],
)
def test_names_that_are_not_unique_replace_nothing_in_mode_append(
    begin: Any, bucket: Bucket, theirs: bytes, metadata: dict[str, str]
) -> None:
    """The object of this name is another's; what was completed beside it is taken back.

    It may have as many bytes as ours, or be of an earlier run under our job's id.
    """
    bucket.client.put_object(Bucket=bucket.name, Key="out/b", Body=theirs, Metadata=metadata)
    job = begin(unique_names=False, job_id="job_00001").__enter__()
    with job.task() as task:
        for name in "abc":
            with task.open(name) as file:
                file.write(b"ours")
    with pytest.raises(CommitterError, match="exists and is not of job"):
        job.commit()
    assert bucket.keys() == ["out/b"]
    assert bucket.get("out/b") == theirs


def test_names_that_are_not_unique_replace_in_mode_replace(begin: Any, bucket: Bucket) -> None:
    """The new object is not removed as the old one of its name."""
    bucket.put("out/b", b"theirs")
    bucket.put("out/c", b"theirs")
    with (
        begin(unique_names=False, conflict="replace") as job,
        job.task() as task,
        task.open("b") as file,
    ):
        file.write(b"ours")
    assert bucket.visible("out") == ["b"]
    assert bucket.get("out/b") == b"ours"


# -- messages --------------------------------------------------------------------------------------


def committer_of(s3: S3Server, bucket: Bucket, **options: Any) -> S3Committer:
    """Return a committer of a new job that was set up."""
    made = committers.committer(f"s3://{bucket.name}/out", endpoint_url=s3.endpoint, **options)
    assert isinstance(made, S3Committer)
    made.setup_job()
    return made


def test_messages_that_are_no_job_are_refused(s3: S3Server, bucket: Bucket) -> None:
    """Two attempts at a task, another job's task, or one name twice: nothing is published."""
    one, other = (committer_of(s3, bucket, unique_names=False) for _ in range(2))
    messages = []
    for committer, task, path in (
        (one, TaskId(0, 0), "a"),
        (one, TaskId(0, 1), "b"),
        (one, TaskId(1, 0), "a"),
        (other, TaskId(2, 0), "c"),
    ):
        attempt = committer.setup_task(task)
        attempt.open(path).close()
        messages.append(committer.commit_task(attempt))
    first, again, same, foreign = messages
    for wrong, message in (
        ([first, again], "committed by attempts 0 and 1"),
        ([first, same], "two tasks .* have written"),
        ([first, foreign], "a job commits its own tasks alone"),
    ):
        with pytest.raises(CommitterError, match=message):
            one.commit_job(wrong)
    assert bucket.keys() == []


def test_bytes_that_changed_on_their_way_fail_the_job(s3: S3Server, bucket: Bucket) -> None:
    """The tag that the store answers with is that of the bytes that the task had."""
    import dataclasses

    committer = committer_of(s3, bucket)
    attempt = committer.setup_task(TaskId(0))
    with attempt.open("f") as file:
        file.write(b"x" * 10)
    message = committer.commit_task(attempt)
    made = committer._upload(message.files[0].key, Sender(committer.store))
    made.write(b"y" * 10)
    made.close()
    upload = made.pending()
    wrong = dataclasses.replace(upload, etags=("0" * 32,))
    with pytest.raises(CommitterError):
        committer.commit_job([dataclasses.replace(message, files=(wrong,))])
    assert bucket.visible("out") == []


@pytest.mark.parametrize("inline_bytes", [0, 100])
def test_an_object_with_another_tag_than_its_tasks_bytes_fails_the_job(
    begin: Any, bucket: Bucket, inline_bytes: int
) -> None:
    """The store took them, and says that it has others: nothing is committed, and loudly."""
    job = begin(inline_bytes=inline_bytes).__enter__()
    with job.task() as task, task.open("f") as file:
        file.write(b"x" * 10)

    plans_first = [True]  # whose tag says that those of this store are hashes

    def change(parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name == "PutObject" and plans_first:
            plans_first.clear()
        elif model.name in {"PutObject", "CompleteMultipartUpload"}:
            parsed["ETag"] = f'"{"0" * 32}"'

    store_of(job).client.meta.events.register("after-call.s3", change)
    with pytest.raises(CommitterError, match=r"nothing of it is visible.*not what its task has"):
        job.commit()
    assert bucket.keys() == []
    assert bucket.uploads() == []


def test_an_encrypted_object_may_have_another_tag(begin: Any, bucket: Bucket) -> None:
    """A service's keys make tags that are no hash of the bytes."""
    job = begin().__enter__()
    with job.task() as task, task.open("f") as file:
        file.write(b"x" * 10)

    def encrypt(parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name == "PutObject":
            parsed["ETag"] = f'"{"0" * 32}"'
            parsed["ServerSideEncryption"] = "aws:kms"

    store_of(job).client.meta.events.register("after-call.s3", encrypt)
    job.commit()
    assert len(bucket.visible("out")) == 1


def test_files_of_elsewhere_and_hidden_ones_are_no_part_of_a_job(
    s3: S3Server, bucket: Bucket
) -> None:
    """A message that names them was not written by a task of this job."""
    import dataclasses

    committer = committer_of(s3, bucket)
    attempt = committer.setup_task(TaskId(0))
    attempt.open("f").close()
    message = committer.commit_task(attempt)
    for key, said in (("out10/f", "and not out10/f"), ("out/_hidden", "begins with '_'")):
        wrong = dataclasses.replace(message.files[0], key=key)
        with pytest.raises((CommitterError, UsageError), match=said):
            committer.commit_job([dataclasses.replace(message, files=(wrong,))])
    assert bucket.keys() == []


def test_small_files_that_are_too_many_for_the_plan_are_uploaded(
    begin: Any, bucket: Bucket
) -> None:
    """The driver holds them all, and writes them twice."""
    with begin(inline_job_bytes=150) as job:
        for at in range(3):
            with job.task() as task, task.open(f"f{at}") as file:
                file.write(b"x" * 100)
    assert store_of(job).requests["CompleteMultipartUpload"] == 2
    assert len(bucket.visible("out")) == 3


@pytest.mark.parametrize("committer", ["omidpy", "directory", "partitioned", "magic"])
def test_an_upload_that_is_gone_fails_the_job_and_leaves_nothing(
    begin: Any, bucket: Bucket, committer: str
) -> None:
    """A rule of the bucket, or an operator, aborted it."""
    job = begin(committer=committer, inline_bytes=5).__enter__()
    for name, size in (("a", 1), ("b", 10), ("c", 20)):
        with job.task() as task, task.open(name) as file:
            file.write(b"x" * size)
    (upload, *_) = bucket.client.list_multipart_uploads(Bucket=bucket.name)["Uploads"]
    bucket.client.abort_multipart_upload(
        Bucket=bucket.name, Key=upload["Key"], UploadId=upload["UploadId"]
    )
    with pytest.raises(CommitterError, match=r"nothing of it is visible.*is gone"):
        job.commit()
    assert bucket.keys() == []
    assert bucket.uploads() == []


def test_an_old_file_that_the_store_would_not_delete_is_told(begin: Any, bucket: Bucket) -> None:
    """A bulk delete succeeds, and says in its body what it did not do."""
    bucket.put("out/old")
    job = begin(conflict="replace").__enter__()
    job.task(TABLE)

    def refuse(parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name == "DeleteObjects":
            parsed["Errors"] = [{"Key": "out/old", "Message": "it is locked"}]

    store_of(job).client.meta.events.register("after-call.s3", refuse)
    with pytest.raises(CommitterError, match=r"is committed and visible.*it is locked") as raised:
        job.commit()
    assert raised.value.plan


def test_uploads_that_a_store_lists_of_elsewhere_are_not_looked_at(
    s3: S3Server, bucket: Bucket
) -> None:
    """One that reads a prefix otherwise must not cost another job its uploads."""
    store = ObjectStore(StoreOptions(endpoint_url=s3.endpoint))
    bucket.client.create_multipart_upload(Bucket=bucket.name, Key="out/ours")

    def widen(parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name == "ListMultipartUploads":
            parsed["Uploads"] += [{**parsed["Uploads"][0], "Key": "out10/theirs"}]

    store.client.meta.events.register("after-call.s3", widen)
    found = store.uploads(Folder(bucket.name, "out/"))
    assert [one.key for one in found] == ["out/ours"]


def test_a_listing_that_the_store_refuses_from_the_first_is_an_error(
    s3: S3Server, bucket: Bucket
) -> None:
    """Only a page behind another can be asked for otherwise."""
    store = ObjectStore(StoreOptions(endpoint_url=s3.endpoint))

    def spoil(params: dict[str, Any], **_: Any) -> None:
        params["MaxUploads"] = -1

    store.client.meta.events.register("provide-client-params.s3.ListMultipartUploads", spoil)
    with pytest.raises(Refused):
        list(store.uploads(Folder(bucket.name, "out/")))


# -- the store ------------------------------------------------------------------------------------


def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    """A slip in its name is the usual reason."""
    job = committers.job("s3://no-such-bucket/out", endpoint_url=s3.endpoint)
    with pytest.raises(CommitterError, match=r"no-such-bucket.*make the bucket"), job:
        job.task(TABLE)


def test_without_credentials_the_variables_are_named(
    begin: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is sent."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"), begin(conflict="fail"):
        pass


def test_a_profile_that_is_not_there_is_named(begin: Any) -> None:
    """It is a setting that does not fit."""
    with pytest.raises(ConfigError, match="nobody"), begin(conflict="fail", profile="nobody"):
        pass


def test_a_second_driver_of_a_job_is_refused(s3: S3Server, bucket: Bucket) -> None:
    """Two that commit the same job would undo each other."""
    one, two = (committer_of(s3, bucket, job_id="job_00001") for _ in range(2))
    messages = []
    for committer in (one, two):
        attempt = committer.setup_task(TaskId(0))
        with attempt.open("f") as file:
            file.write(committer.store.id.encode())
        messages.append(committer.commit_task(attempt))
    store = ObjectStore(StoreOptions(endpoint_url=s3.endpoint))
    plan = plans.Plan("job_00001", "omidpy", one.folder, messages[0].files)
    ending.begin(store, plan)
    with pytest.raises(CommitterError, match="another driver has begun") as raised:
        two.commit_job(messages[1:])
    assert raised.value.plan == plan.address
    assert bucket.visible("out") == []


# -- staging ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("committer", ["directory", "partitioned"])
def test_staged_files_are_uploaded_when_their_task_is_committed(
    begin: Any, bucket: Bucket, committer: str
) -> None:
    """A task that fails has sent nothing; 3 requests for a file and 3 for the job."""
    data = bytes(range(256)) * 25_000  # 6.4 MB
    with begin(committer=committer, part_bytes="5MiB") as job:
        failed = job.task()
        with failed.open("f") as file:
            file.write(data)
        failed.abort()
        assert store_of(job).request_count == 0
        with job.task() as task, task.open("f") as file:
            file.write(data)
        job.task(TABLE)
    assert store_of(job).request_count == (3 + 1) + 3 + 5
    assert len(bucket.visible("out")) == 2
    assert bucket.get(f"out/{bucket.visible('out')[0]}") == data
    assert bucket.success("out")["committer"] == committer
    assert bucket.uploads() == []


def test_a_staged_file_that_was_not_closed_fails_its_task(begin: Any, bucket: Bucket) -> None:
    """What was uploaded beside it is aborted."""
    job = begin(committer="directory").__enter__()
    task = job.task()
    task.open("a").close()
    task.open("b").write(b"half")
    with pytest.raises(CommitterError, match="was not closed"), task:
        pass
    assert bucket.uploads() == []
    job.abort()
    assert bucket.keys() == []


def test_directory_replaces_everything_and_partitioned_what_it_writes(
    begin: Any, bucket: Bucket
) -> None:
    """A file at the top is in no partition, and does not cost the table."""
    table = pa.table({"p": [1], "v": [1]})
    for committer, left in (("partitioned", ["a", "p=2/a"]), ("directory", [])):
        for key in ("a", "p=1/a", "p=2/a"):
            bucket.put(f"{committer}/{key}")
        with begin(committer, committer=committer, conflict="replace") as job:
            job.task(table, partition_by=["p"])
            job.task(TABLE)
        assert [path for path in bucket.visible(committer) if job.id not in path] == left


def test_a_run_that_is_aborted_leaves_the_plan_of_another_run_alone(
    begin: Any, bucket: Bucket
) -> None:
    """Two drivers were given one job id: what one has decided, the other must not undo."""
    options = {"job_id": "job_00001", "inline_bytes": 0, "threads": 1}
    first, second = (begin(**options).__enter__() for _ in range(2))
    first.task(TABLE)
    Death(0, is_answered=True).watch(store_of(first))
    with pytest.raises(Died):
        first.commit()
    with pytest.raises(CommitterError, match="another run of job job_00001") as raised:
        second.abort()
    assert raised.value.plan
    assert len(bucket.uploads()) == 1
    assert len(bucket.keys()) == 1
