"""What is left of a job's uploads, where something went on behind its end: nothing."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pyspark.sql.types import StructType

from omidpy import committers
from omidpy.committers.hadoop import leftovers
from omidpy.committers.heads import standing
from omidpy.committers.heads.head import head_key
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.objects.uploads import Allowance, Sender, UploadedFile
from omidpy.committers.places import is_hidden
from omidpy.committers.publishing import ending as publishing
from omidpy.committers.s3 import S3Committer
from omidpy.committers.spark import settling
from omidpy.committers.spark.source import _BatchWriter, _Message, _settings, _StreamWriter
from omidpy.committers.values import PendingFile, TaskId, TaskMessage
from omidpy.errors import CommitterError
from tests.machines.s3.jobs import OUT, before_put, begun, store_of, visible
from tests.machines.s3.pairs import World

QUERY: Final = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def store(moto_bucket: str) -> ObjectStore:
    """Give what somebody outside sees."""
    del moto_bucket
    return ObjectStore()


def left(store: ObjectStore) -> list[str]:
    """Return what is there of uploads, and of files about them."""
    found = [one.key for one in store.uploads(OUT)]
    return found + [one.key for one in store.objects(OUT) if "__magic" in one.key]


def _fail(job: committers.Job) -> None:
    job.__exit__(ValueError, ValueError("what the block says"), None)


@pytest.mark.parametrize("name", ["omidpy", "magic"])
@pytest.mark.parametrize("end", [committers.Job.abort, committers.Job.commit, _fail])
def test_a_thread_that_writes_behind_the_end_of_its_job_leaves_nothing(
    store: ObjectStore, name: str, end: Callable[[committers.Job], object]
) -> None:
    """Its upload began behind the listing that looked for it."""
    job = begun("done", committer=name, inline_bytes=0)
    task = job.task()
    half, late = task.open("half"), task.open("late")
    half.write(b"x")
    end(job)

    def go_on() -> None:
        half.write(b"x" * 9_000_000)
        half.close()
        task.commit()

    acts: list[Callable[[], object]] = [
        lambda: late.write(b"x"),
        lambda: task.open("later"),
        go_on,
        job.task,
    ]
    for act in acts:
        with pytest.raises(CommitterError):
            act()
    assert left(store) == []
    assert visible(store) == (["done"] if end is committers.Job.commit else [])


def test_a_staged_task_that_ends_behind_its_job_sends_nothing(store: ObjectStore) -> None:
    """It sends when it is committed, which it is not."""
    job = begun(committer="directory")
    task = job.task()
    task.open("a").close()
    job.abort()
    with pytest.raises(CommitterError, match="is aborted, and cannot be committed"):
        task.commit()
    assert left(store) == []


def test_a_task_that_is_begun_while_its_job_ends_writes_nothing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread was between the look at the job and its task."""
    job = begun(inline_bytes=0)
    setup = job.committer.setup_task

    def and_abort(task: TaskId) -> Any:
        job.abort()
        return setup(task)

    monkeypatch.setattr(job.committer, "setup_task", and_abort)
    with pytest.raises(CommitterError):
        job.task().open("a")
    assert left(store) == []


def test_a_part_on_its_way_when_its_upload_was_aborted_is_not_kept(store: ObjectStore) -> None:
    """A store may keep it, and the upload with it: the upload is aborted again."""
    file = UploadedFile(
        Sender(store),
        bucket="lake",
        key="out/a",
        job_id="job_00001",
        first_part_bytes=10,
        inline_bytes=0,
        allowance=Allowance(0),
    )
    file.write(b"x")
    file.abort()
    file._send(b"which another thread was about to send")
    assert file._parts[-1].exception() is not None
    assert store.requests["AbortMultipartUpload"] == 2
    assert left(store) == []


def test_a_file_about_a_file_that_comes_behind_an_abort_goes(store: ObjectStore) -> None:
    """The thread that wrote it was about to, when another aborted the job."""
    job = begun(committer="magic")
    file = job.task().open("a")
    file.write(b"x")
    before_put(job, ".pending", job.abort)
    file.close()
    assert store_of(job).requests["AbortMultipartUpload"] == 1
    assert left(store) == []


# -- Spark -----------------------------------------------------------------------------------------


class _Waiting:
    """Stands for the time for which Spark lets tasks run on."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act
        self.waited_s = 0.0

    def wait(self, seconds: float) -> None:
        self.waited_s += seconds
        self.act()


def settings(**options: str) -> Any:
    """Return what a write's options say."""
    given = {"path": OUT.url, "inlineBytes": "0", **options}
    return _settings(given, StructType([]), overwrite=False)


def task_of(made: S3Committer, number: int) -> TaskMessage:
    """Run a task."""
    attempt = made.setup_task(TaskId(number))
    with attempt.open(f"f{number}") as file:
        file.write(b"x")
    return made.commit_task(attempt)


@pytest.mark.parametrize("name", ["omidpy", "magic"])
def test_what_a_task_begins_behind_the_abort_of_a_spark_job_goes(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Spark aborts a job once one task has failed for good, and kills the others afterwards."""
    made = settings(committer=name).committer()
    waiting = _Waiting(lambda: task_of(made, 1))
    monkeypatch.setattr(settling, "_never", waiting)
    writer = _BatchWriter(settings(committer=name), made)
    writer.abort([_Message(task_of(made, 0)), None, None])
    assert waiting.waited_s == settling.TASKS_END_S
    assert left(store) == []


def test_a_job_whose_tasks_have_all_ended_is_aborted_at_once(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can come, and nobody waits."""
    made = settings().committer()
    monkeypatch.setattr(settling, "_never", _Waiting(lambda: pytest.fail("nobody waits")))
    _BatchWriter(settings(), made).abort([_Message(task_of(made, 0))])
    assert left(store) == []


@pytest.mark.parametrize("name", ["omidpy", "directory", "magic"])
@pytest.mark.parametrize("runs_twice", [False, True])
def test_an_upload_that_an_attempt_begins_behind_the_end_of_its_job_goes(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, name: str, *, runs_twice: bool
) -> None:
    """It stood still, or was run beside another one, and the one sweep of its job is over."""
    now_s = 0.0
    monkeypatch.setattr(standing, "elapsed_s", lambda: now_s)
    made = settings(committer=name).committer()
    every_s = standing.AWAITED_BESIDE_S if runs_twice else standing.AWAITED_S
    assert made.awaited_s == standing.AWAITED_S
    made.awaited_s = every_s
    attempt, late = (made.setup_task(TaskId(0, number)) for number in range(2))
    now_s += every_s
    with attempt.open("f0") as file:
        file.write(b"x")
    made.commit_job([made.commit_task(attempt)])
    assert visible(store) == ["f0"]
    now_s += every_s
    with pytest.raises(CommitterError, match="comes too late"):  # noqa: PT012 - at either step
        with late.open("f1") as file:
            file.write(b"x")
        made.commit_task(late)
    made.abort_task(late)
    assert left(store) == []
    assert visible(store) == ["f0"]


@pytest.mark.parametrize("name", ["omidpy", "directory", "magic"])
def test_a_write_whose_process_dies_behind_its_plan_says_that_it_is_there(
    store: ObjectStore, name: str
) -> None:
    """Spark calls it failed, and aborts it in a new process: who ran it again had it twice.

    What the sweep of the commit had not come to goes all the same.
    """
    made = settings(committer=name).committer()
    messages = [_Message(task_of(made, 0))]
    sent = pickle.dumps(_BatchWriter(settings(committer=name), made))
    pickle.loads(sent).commit([*messages])
    store.create_upload(OUT.bucket, OUT.key(f"f1-{made.job_id}"), made.job_id, "")
    with pytest.raises(CommitterError, match=r"is committed, whatever failed behind that: .*s3://"):
        pickle.loads(sent).abort([*messages])
    assert left(store) == []
    assert visible(store) == ["f0"]


def test_what_a_late_attempt_says_of_its_files_goes_where_the_job_is_committed(
    store: ObjectStore,
) -> None:
    """The abort that said so left it, for ever."""
    made = settings(committer="magic").committer()
    messages = [_Message(task_of(made, 0))]
    late = made.setup_task(TaskId(0, 1))
    sent = pickle.dumps(_BatchWriter(settings(committer="magic"), made))
    pickle.loads(sent).commit([*messages])
    with late.open("f1") as file:
        file.write(b"x")
    assert len(left(store)) == 2
    with pytest.raises(CommitterError, match="is committed, whatever failed behind that"):
        pickle.loads(sent).abort([*messages])
    assert left(store) == []


def test_an_abort_by_which_the_head_cannot_be_read_leaves_no_upload(store: ObjectStore) -> None:
    """It is asked whether the job is committed, and what its tasks have begun goes in any case."""
    made = settings().committer()
    message = task_of(made, 0)
    store.put(OUT.bucket, head_key(OUT), b"{")
    with pytest.raises(CommitterError, match="cannot be read as a head"):
        made.abort_job([message])
    assert left(store) == []


def test_a_batch_that_is_run_again_is_known_without_success(store: ObjectStore) -> None:
    """With success=false its manifest was not written, and the query failed at it for ever."""
    writer = _StreamWriter(settings(success="false"))
    job_id = f"{QUERY}-b{1:010}"
    for _ in range(2):
        made = settings(success="false").committer(job_id=job_id)
        writer.commit([_Message(task_of(made, 0), job_id)], 1)
    assert left(store) == []
    found = [one.key for one in store.objects(OUT) if not OUT.below(one.key).startswith("_")]
    assert found == [f"out/f0-{job_id}"]


def test_a_batch_that_is_run_again_leaves_nothing_of_its_first_run(store: ObjectStore) -> None:
    """Its driver died before the batch was committed, and told nobody of its uploads."""
    writer = _StreamWriter(settings())
    for number in (1, 2):
        job_id = f"{QUERY}-b{number:010}"
        task_of(settings().committer(job_id=job_id), 0)
        writer.commit([_Message(task_of(settings().committer(job_id=job_id), 0), job_id)], number)
        assert left(store) == []
    # It was committed, and its driver died behind that; what others wrote in between is swept, too.
    task_of(settings().committer(job_id=job_id), 3)
    writer.commit([_Message(task_of(settings().committer(job_id=job_id), 0), job_id)], 2)
    assert left(store) == []
    assert len(visible(store)) == 2


def test_a_job_that_is_run_again_under_its_id_leaves_nothing_of_its_first_run(
    store: ObjectStore,
) -> None:
    """A job of a new id had no earlier run, and looks for none."""
    first = begun("a", job_id="job_00001", inline_bytes=0)
    assert len(left(store)) == 1
    del first
    second = begun("a", job_id="job_00001", inline_bytes=0)
    second.commit()
    assert left(store) == []
    assert store_of(second).requests["ListMultipartUploads"] == 1
    third = begun("b", inline_bytes=0)
    third.commit()
    assert store_of(third).requests["ListMultipartUploads"] == 0


# -- the verb that aborts what is left -------------------------------------------------------------


def planned_upload(store: ObjectStore) -> tuple[Plan, PendingFile]:
    """Return the plan of a job that is not written yet, with the one file of it, an upload."""
    key = OUT.key("b")
    upload_id = store.create_upload(OUT.bucket, key, "job_00001", "")
    etag = store.upload_part(OUT.bucket, key, upload_id, 1, b"x")
    one = PendingFile(key, 1, None, upload_id, (etag,), None)
    return Plan("job_00001", "omidpy", OUT, (one,)), one


@pytest.mark.parametrize("when", ["a", "b"])
def test_a_plan_that_is_written_while_uploads_are_aborted_is_seen_or_told(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Seconds before, its upload is kept; right before, nobody can, and its job fails whole."""
    seconds = iter(range(0, 10_000, 10))
    monkeypatch.setattr(leftovers, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    world = World(has_old=False)
    store, operator = world.objects.store(), world.objects.store()
    store.create_upload(OUT.bucket, OUT.key("a"), "job_00000", "")
    plan, one = planned_upload(store)
    abort_upload, waiting = operator.abort_upload, [plan]

    def behind_its_plan(bucket: str, key: str, upload_id: str) -> bool:
        if waiting and key == OUT.key(when):
            publishing.begin(store, waiting.pop())
        return abort_upload(bucket, key, upload_id)

    monkeypatch.setattr(operator, "abort_upload", behind_its_plan)
    done = leftovers.abort(operator, OUT, leftovers.matching(store.uploads(OUT)))
    if when == "a":
        assert [upload.key for upload in done.aborted] == [OUT.key("a")]
        assert [(upload.key, by) for upload, by in done.planned] == [(one.key, plan.address)]
        assert done.hit == ()
        return
    assert [(upload.key, by) for upload, by in done.hit] == [(one.key, plan.address)]
    with pytest.raises(CommitterError, match="somebody aborted it"):
        publishing.publish(store, plan, publishing.Effort(0.0))
    assert not [key for key in world.objects.objects if not is_hidden(OUT.below(key))]
    assert leftovers.plan_addresses(store, OUT) == []


@pytest.mark.parametrize("is_dated", [True, False])
def test_how_old_an_upload_is_says_the_store_and_not_this_machine(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, *, is_dated: bool
) -> None:
    """An operator's date that is a day ahead would make old what a job has begun a moment ago."""
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 86_400)

    def date(parsed: dict[str, Any], **_: Any) -> None:
        headers = parsed["ResponseMetadata"]["HTTPHeaders"]
        headers.pop("date", None)
        if is_dated:
            headers["date"] = formatdate(now_s, usegmt=True)

    store.client.meta.events.register("after-call.s3.ListMultipartUploads", date)
    found = leftovers.moment_ms(store, OUT, age_s=3600.0)
    expected = now_s - 3600 + (0 if is_dated else 86_400)
    assert abs(found / 1000 - expected) <= 1.0
