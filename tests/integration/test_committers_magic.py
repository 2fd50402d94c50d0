"""The magic committer on a real S3 server: what it costs, what it leaves, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omidpy import committers
from omidpy.committers.hadoop import leftovers, rescue
from omidpy.committers.hadoop.magic import MagicCommitter
from omidpy.committers.objects import pendings
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.errors import CommitterError, UsageError
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration

JOB = "0b7f6a3e-1111-4222-8333-446655440000"


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """Give a bucket of its own."""
    return Bucket(s3)


@pytest.fixture
def store(s3: S3Server) -> ObjectStore:
    """Give a store that nobody else counts with."""
    return ObjectStore(StoreOptions(endpoint_url=s3.endpoint))


def begin(s3: S3Server, bucket: Bucket, **options: Any) -> committers.Job:
    """Return a job with the magic committer."""
    address = f"s3://{bucket.name}/out"
    return committers.job(address, committer="magic", endpoint_url=s3.endpoint, **options)


def write(job: committers.Job, name: str, data: bytes = b"abc", **task: Any) -> None:
    """Run a task that writes one file."""
    with job.task(**task) as running, running.open(name) as file:
        file.write(data)


def test_a_job_leaves_its_files_and_nothing_else(s3: S3Server, bucket: Bucket) -> None:
    """While it runs, files about files are where Hadoop looks for them; nobody sees a file."""
    with begin(s3, bucket) as job:
        write(job, "p=1/a.parquet")
        below = f"out/__magic_job-{job.id}/job-{job.id}/00/"
        with job.task() as task, task.open("b") as file:
            file.write(b"b")
            file.close()
            attempt = f"{below}tasks/attempt_omidpy_0000_m_000001_0/__base/b-{job.id}.pending"
            done = f"{below}task_omidpy_0000_m_000000.pendingset"
            assert sorted(bucket.keys()) == [done, attempt]
        assert bucket.visible("out") == []
        assert len(bucket.uploads()) == 2
    found = [f"b-{job.id}", f"p=1/a-{job.id}.parquet"]
    assert bucket.visible("out") == found
    assert sorted(bucket.keys()) == ["out/_SUCCESS", *(f"out/{one}" for one in found)]
    assert bucket.uploads() == []
    assert bucket.success("out")["committer"] == "magic"


def test_requests_are_as_many_as_promised(s3: S3Server, bucket: Bucket) -> None:
    """4 for a file, 2 for a task, 6 for the job; tasks neither list nor look nor read."""
    with begin(s3, bucket) as job:
        for at in range(5):
            write(job, f"f{at}")
        with job.task():
            pass
        assert isinstance(job.committer, MagicCommitter)
        assert dict(job.committer.store.requests) == {
            "CreateMultipartUpload": 5,
            "UploadPart": 5,
            "PutObject": 5 * 2,
            "DeleteObjects": 5,
        }
    assert job.committer.store.request_count == 5 * 4 + 5 * 2 + 6


def test_a_lost_attempt_is_found_by_its_pending(s3: S3Server, bucket: Bucket) -> None:
    """Also where names do not say whose a file is."""
    with begin(s3, bucket, unique_names=False, sweep="never") as job:
        with job.task(number=0).open("f") as file:
            file.write(b"lost")
        write(job, "f", number=0)
    assert bucket.get("out/f") == b"abc"
    assert bucket.uploads() == []
    assert bucket.keys() == ["out/_SUCCESS", "out/f"]


def test_an_aborted_job_leaves_nothing(s3: S3Server, bucket: Bucket) -> None:
    """Neither of tasks that were committed, nor of one that was lost, nor of a failed one."""

    def run() -> None:
        with begin(s3, bucket, unique_names=False) as job:
            write(job, "f")
            with job.task().open("lost") as file:
                file.write(b"lost")
            with job.task() as task:
                with task.open("g") as file:
                    file.write(b"g")
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert bucket.keys() == []
    assert bucket.uploads() == []


def dead(s3: S3Server, bucket: Bucket) -> str:
    """Leave a job of ours, one of whose tasks was committed; return its magic folder."""
    job = begin(s3, bucket, job_id=JOB)
    job.__enter__()
    write(job, "f")
    return f"s3://{bucket.name}/out/__magic_job-{JOB}"


def test_a_job_of_ours_without_a_plan_can_only_be_taken_back(
    s3: S3Server, bucket: Bucket, store: ObjectStore
) -> None:
    """It had not decided: what its tasks have written may be half of it."""
    address = dead(s3, bucket)
    assert rescue.magic_folders(store, Folder(bucket.name, "out/")) == [address]
    with pytest.raises(CommitterError, match=r"has no plan.* plan rollback s3://"):
        rescue.resume(store, address)
    assert len(bucket.uploads()) == 1
    rescue.take_back(store, address)
    assert bucket.keys() == []
    assert bucket.uploads() == []
    with pytest.raises(CommitterError, match="there is no s3://"):
        rescue.load(store, address)


def change(bucket: Bucket, fields: dict[str, Any]) -> None:
    """Change what the `.pendingset` says."""
    keys = bucket.keys()
    (key,) = [one for one in keys if one.endswith(pendings.PENDING_SET)]
    document = json.loads(bucket.get(key))
    for name, value in fields.items():
        target = document if name in document else document["commits"][0]
        target[name] = value
    bucket.put(key, json.dumps(document).encode())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": 4}, "is of version 4"),
        ({"commits": 3}, "cannot be read"),
        ({"jobId": "another"}, "is of job 'another'"),
        ({"bucket": "another"}, "speaks of s3://another/out/f"),
        ({"destinationKey": "out10/f"}, "is not below"),
        ({"etags": []}, "without length or tags"),
    ],
)
def test_a_set_that_nobody_understands_is_left_alone(
    s3: S3Server, bucket: Bucket, store: ObjectStore, fields: dict[str, Any], message: str
) -> None:
    """Whoever resumes or rolls back hears which, and nothing was written, completed or aborted."""
    address = dead(s3, bucket)
    change(bucket, fields)
    before = bucket.keys(), bucket.uploads()
    for act in (rescue.load, rescue.resume, rescue.take_back):
        with pytest.raises(CommitterError, match=message):
            act(store, address)
    assert (bucket.keys(), bucket.uploads()) == before


def test_uploads_of_committed_tasks_are_kept(
    s3: S3Server, bucket: Bucket, store: ObjectStore
) -> None:
    """Who aborts what is old must not make a job that died while it committed half visible."""
    address = dead(s3, bucket)
    folder = Folder(bucket.name, "out/")
    done = leftovers.abort(store, folder, list(store.uploads(folder)))
    assert [one for _, one in done.planned] == [address]
    assert done.aborted == ()
    assert len(bucket.uploads()) == 1


def test_another_folder_is_no_magic_one(store: ObjectStore) -> None:
    """What is below one is not it."""
    for address in ("s3://b/out", f"s3://b/__magic_job-{JOB}/x", "s3://b/__magic_job-"):
        with pytest.raises(UsageError, match="is no magic folder"):
            rescue.load(store, address)
