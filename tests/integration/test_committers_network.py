"""Answers that are lost between a job and its store, and stores that refuse."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from omidpy import committers
from omidpy.committers.choice import committer
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import TaskId, TaskMessage
from omidpy.errors import CommitterError
from tests.machines.s3.looking import Bucket
from tests.machines.s3.proxy import S3Proxy
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    """Give a network that a test may break."""
    with S3Proxy(s3.port) as made:
        yield made


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """Give a bucket, seen past the proxy."""
    return Bucket(s3)


def begun(proxy: S3Proxy, bucket: Bucket, conflict: str = "append") -> committers.Job:
    """Begin a job of a small and a large file; both are written."""
    job = committers.job(
        f"s3://{bucket.name}/out",
        endpoint_url=proxy.endpoint,
        inline_bytes=5,
        threads=1,
        conflict=conflict,
    ).__enter__()
    for name, size in (("small", 5), ("large", 50)):
        with job.task() as task, task.open(name) as file:
            file.write(b"x" * size)
    return job


@pytest.mark.parametrize("conflict", ["fail", "append", "replace"])
@pytest.mark.parametrize("kind", ["Put", "Complete", "Delete", "DeleteMany", "List"])
def test_a_commit_whose_answer_is_lost_is_a_commit(
    proxy: S3Proxy, bucket: Bucket, kind: str, conflict: str
) -> None:
    """Tried again, each step finds what it has done, and takes it for its own."""
    if conflict == "replace":
        bucket.put("out/old")
    job = begun(proxy, bucket, conflict)
    before = proxy.requests[kind]
    proxy.lose_answer(kind, count=2 if kind == "Put" else 1)
    manifest = job.commit()
    assert len(manifest.files) == 2
    assert [path.partition("-")[0] for path in bucket.visible("out")] == ["large", "small"]
    assert bucket.success("out")["jobId"] == job.id
    assert len(bucket.keys()) == 3
    assert proxy.requests[kind] - before != 1, "it was tried again, or never"


def test_a_removal_that_is_never_answered_leaves_a_plan(proxy: S3Proxy, bucket: Bucket) -> None:
    """The plan went with the old files, as it turned out; the error names it, so it is there."""
    bucket.put("out/old")
    job = begun(proxy, bucket, "replace")
    proxy.lose_answer("DeleteMany", count=100)
    with pytest.raises(CommitterError, match="is committed and visible, but") as raised:
        job.commit()
    assert raised.value.plan.removeprefix(f"s3://{bucket.name}/") in bucket.keys("out/_omidpy/")
    assert len(bucket.visible("out")) == 2


def test_every_put_of_a_sole_job_may_lose_its_answer(proxy: S3Proxy, bucket: Bucket) -> None:
    """The plan, the small file and `_SUCCESS` are each refused as there already: by ourselves."""
    for lost in range(1, 7):
        folder_job = begun(proxy, bucket, "fail")
        proxy.lose_answer("Put", count=lost % 4)
        folder_job.commit()
        assert len(bucket.visible("out")) == 2
        left = bucket.keys()
        for key in left:
            bucket.client.delete_object(Bucket=bucket.name, Key=key)


def test_a_part_whose_answer_is_lost_is_sent_again(proxy: S3Proxy, bucket: Bucket) -> None:
    """An upload that was begun twice is left once, for the command that finds it by its job."""
    proxy.lose_answer("Part")
    job = begun(proxy, bucket)
    assert proxy.requests["Part"] == 2
    job.commit()
    assert len(bucket.visible("out")) == 2
    assert bucket.uploads() == []


COUNTERS = {
    "Create": "object_multipart_initiated",
    "Part": "multipart_upload_part_put",
    "Complete": "multipart_upload_completed",
    "Put": "object_put_request",
    "List": "object_list_request",
    "Delete": "object_delete_request",
    "DeleteMany": "object_bulk_delete_request",
    "Head": "action_http_head_request",
    "Get": "action_http_get_request",
}


@pytest.mark.parametrize(
    ("options", "after"),
    [
        ({"conflict": "fail"}, ["Put", "Delete"]),
        ({"conflict": "replace"}, ["Put", "List", "DeleteMany"]),
        ({"committer": "magic"}, ["Put", "List", "DeleteMany"]),
    ],
)
def test_success_counts_the_requests_that_came(
    proxy: S3Proxy, bucket: Bucket, options: dict[str, Any], after: list[str]
) -> None:
    """By operation: of driver and tasks, repetitions too, but for those of `_SUCCESS` and after."""
    if options.get("conflict") == "replace":
        bucket.put("out/old")
    given = {"inline_bytes": 5, **options}
    given["endpoint_url"] = proxy.endpoint
    made = committer(f"s3://{bucket.name}/out", given.pop("committer", "omidpy"), **given)
    made.setup_job()
    proxy.lose_answer("Part")
    proxy.lose_answer("Complete")
    messages: list[TaskMessage] = []
    for worker in (pickle.loads(pickle.dumps(made)), made, pickle.loads(pickle.dumps(made))):
        for _ in range(2):
            attempt = worker.setup_task(TaskId(len(messages)))
            for size in (5, 50):
                with attempt.open(f"f{len(messages)}-{size}") as file:
                    file.write(b"x" * size)
            messages.append(worker.commit_task(attempt))
    manifest = made.commit_job(messages[::-1])
    arrived = proxy.requests - Counter(after)
    said = bucket.success("out")
    assert said["iostatistics"]["counters"] == {COUNTERS[kind]: n for kind, n in arrived.items()}
    assert sum(said["omidpy"]["operations"].values()) == arrived.total()
    assert said["metrics"]["committer_requests"] == manifest.requests == arrived.total()
    assert len(bucket.visible("out")) == 12


def test_a_store_that_breaks_down_leaves_nothing_visible_once_it_is_back(
    proxy: S3Proxy, bucket: Bucket
) -> None:
    """The small file was visible; the error names no plan, for it was taken back."""
    job = begun(proxy, bucket)
    proxy.break_down("Complete", 503)
    with pytest.raises(CommitterError, match="nothing of it is visible") as raised:
        job.commit()
    assert raised.value.plan == ""
    assert bucket.keys() == []
    assert bucket.uploads() == []


def test_what_cannot_be_taken_back_names_its_plan(proxy: S3Proxy, bucket: Bucket) -> None:
    """The store refuses that, too: whoever comes later finishes the job."""
    from omidpy.committers.places import parse_object
    from omidpy.committers.publishing import ending

    job = begun(proxy, bucket)
    proxy.break_down("Complete", 503)
    proxy.break_down("Get", 503)
    with pytest.raises(CommitterError, match=r"is half committed.*plan resume") as raised:
        job.commit()
    address = raised.value.plan
    assert address == f"s3://{bucket.name}/out/_omidpy/{job.id}/plan.json"
    proxy.mend()
    assert isinstance(job.committer, S3Committer)
    store = job.committer.store
    plan, _ = ending.load(store, address, *parse_object(address))
    ending.resume(store, plan)
    assert len(bucket.visible("out")) == 2
    assert len(bucket.keys()) == 3


def test_a_plan_stays_until_all_of_it_is_taken_back(proxy: S3Proxy, bucket: Bucket) -> None:
    """The store would not abort an upload: without the plan nobody would come back for it."""
    job = begun(proxy, bucket)
    proxy.break_down("Complete", 503)
    proxy.break_down("Abort", 503)
    with pytest.raises(
        CommitterError, match=r"half committed.*is not wholly rolled back"
    ) as raised:
        job.commit()
    assert raised.value.plan.removeprefix(f"s3://{bucket.name}/") in bucket.keys("out/_omidpy/")
    assert len(bucket.uploads()) == 1


def test_an_upload_that_cannot_be_aborted_is_said(proxy: S3Proxy, bucket: Bucket) -> None:
    """A job that is aborted has no plan that would speak of it."""
    job = begun(proxy, bucket)
    task = job.task()
    with task.open("other") as file:
        file.write(b"x" * 50)
    proxy.break_down("Abort", 503)
    for one in (task, job):
        with pytest.raises(CommitterError, match="could not abort the upload"):
            one.abort()
    assert len(bucket.uploads()) == 2


def test_a_plan_that_an_error_names_outlives_the_block(proxy: S3Proxy, bucket: Bucket) -> None:
    """Its end took the job back although the error had said how to resume it."""
    job = begun(proxy, bucket)
    proxy.break_down("Complete", 503)
    proxy.break_down("Get", 503)
    with pytest.raises(CommitterError, match="is half committed") as raised:
        job.commit()
    proxy.mend()
    job.__exit__(CommitterError, raised.value, None)
    assert raised.value.plan == f"s3://{bucket.name}/{bucket.keys('out/_omidpy/')[0]}"


def test_a_store_without_uploads_is_said_to_lack_them(proxy: S3Proxy, bucket: Bucket) -> None:
    """Committers need them; nothing was written."""
    proxy.break_down("Create", 501)
    with pytest.raises(CommitterError, match="committers need multipart uploads"):
        begun(proxy, bucket)
    assert bucket.keys() == []
