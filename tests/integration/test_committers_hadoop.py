"""Jobs of Hadoop's magic committer and of ours: each side reads, ends and commits the other's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from omidpy import committers
from omidpy.cli import main
from omidpy.committers.hadoop import leftovers, rescue
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.pendings import PENDING_SET
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.errors import CommitterError
from tests.machines.hadoop import Hadoop, HadoopJob
from tests.machines.s3.crashing import Death, Died
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

pytestmark = [pytest.mark.integration, pytest.mark.java]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def hadoop(_s3: S3Server) -> Iterator[Hadoop]:
    """Give Hadoop's classes."""
    with Hadoop(_s3) as started:
        yield started


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """Give a bucket of its own."""
    return Bucket(s3)


@pytest.fixture
def store(s3: S3Server) -> ObjectStore:
    """Give a store that nobody else counts with."""
    return ObjectStore(StoreOptions(endpoint_url=s3.endpoint, threads=1))


def new_job() -> str:
    """Return an id that no job has."""
    return f"0b7f6a3e-1111-4222-8333-{next(_numbers):012}"


def dead_job(hadoop: Hadoop, bucket: Bucket, *, is_ready: bool = True) -> tuple[HadoopJob, str]:
    """Leave a job whose two tasks were committed, one of them at its second attempt."""
    job_id = new_job()
    job = hadoop.job(f"s3://{bucket.name}/out", job_id)
    job.setup()
    job.task(0, {"a": b"aaa", "p=1/b": b"bb"})()
    job.task(1, {"c": b"lost"})
    commit = job.task(1, {"c": b"c"}, attempt=1)
    if is_ready:
        commit()
    return job, f"s3://{bucket.name}/out/__magic_job-{job_id}"


FILES = {"out/a": b"aaa", "out/c": b"c", "out/p=1/b": b"bb"}


def data(bucket: Bucket) -> dict[str, bytes]:
    """Return what readers see."""
    return {f"out/{path}": bucket.get(f"out/{path}") for path in bucket.visible("out")}


def test_a_dead_job_of_hadoops_is_finished(
    hadoop: Hadoop, bucket: Bucket, store: ObjectStore
) -> None:
    """With the files of the attempts that were committed, and nothing left of any other."""
    _, address = dead_job(hadoop, bucket)
    bucket.put("out/theirs")
    assert len(list(store.uploads(Folder(bucket.name, "out/")))) == 4
    found = rescue.load(store, address)
    assert (found.tasks, found.unready, found.etag) == (2, "", "")
    assert sorted(one.key for one in found.plan.files) == sorted(FILES)
    manifest = rescue.resume(store, address)
    assert manifest.files == tuple(sorted(FILES))
    assert data(bucket) == {**FILES, "out/theirs": b"theirs"}
    assert sorted(bucket.keys()) == sorted([*FILES, "out/theirs", "out/_SUCCESS"])
    assert bucket.uploads() == []


def test_a_dead_job_of_hadoops_is_taken_back(
    hadoop: Hadoop, bucket: Bucket, store: ObjectStore
) -> None:
    """Half of its files visible, as a driver leaves them that dies in the middle of its commit."""
    _, address = dead_job(hadoop, bucket)
    bucket.put("out/theirs")
    complete_one(store, address)
    assert data(bucket) == {"out/a": b"aaa", "out/theirs": b"theirs"}
    rescue.take_back(store, address)
    assert bucket.keys() == ["out/theirs"]
    assert bucket.uploads() == []


def complete_one(store: ObjectStore, address: str, count: int = 1) -> None:
    """Complete uploads as the dead driver would have."""
    for one in rescue.load(store, address).plan.files[:count]:
        bucket = address.split("/")[2]
        store.complete_upload(bucket, one.key, one.upload_id, one.etags, is_new=False)


def test_a_half_committed_job_of_hadoops_is_finished(
    hadoop: Hadoop, bucket: Bucket, store: ObjectStore
) -> None:
    """What was completed is recognised by its tag."""
    _, address = dead_job(hadoop, bucket)
    complete_one(store, address, 2)
    rescue.resume(store, address)
    assert data(bucket) == FILES
    assert bucket.uploads() == []


def test_a_committed_job_of_hadoops_is_not_taken_back(
    hadoop: Hadoop, bucket: Bucket, store: ObjectStore
) -> None:
    """It died before it removed its magic folder; and meanwhile another wrote its `_SUCCESS`."""
    _, address = dead_job(hadoop, bucket)
    complete_one(store, address, 3)
    for success in (None, b""):
        if success is not None:
            bucket.put("out/_SUCCESS", success)
        with pytest.raises(CommitterError, match=r"is committed, and can only be finished.*resume"):
            rescue.take_back(store, address)
    assert data(bucket) == FILES
    rescue.resume(store, address)
    assert data(bucket) == FILES
    assert sorted(bucket.keys()) == sorted([*FILES, "out/_SUCCESS"])


def test_a_job_that_was_not_ready_is_not_finished(
    hadoop: Hadoop, bucket: Bucket, store: ObjectStore
) -> None:
    """A task was begun that was never committed: readers would see a part for the whole."""
    _, address = dead_job(hadoop, bucket, is_ready=False)
    with pytest.raises(CommitterError, match=r"its task was not committed; run .*rollback"):
        rescue.resume(store, address)
    rescue.take_back(store, address)
    assert bucket.keys() == []
    assert bucket.uploads() == []


def test_an_upload_that_is_gone_is_said(hadoop: Hadoop, bucket: Bucket, store: ObjectStore) -> None:
    """A rule of the bucket was quicker: the rest can be taken back, and theirs stays."""
    _, address = dead_job(hadoop, bucket)
    bucket.put("out/theirs")
    one = rescue.load(store, address).plan.files[1]
    store.abort_upload(bucket.name, one.key, one.upload_id)
    with pytest.raises(CommitterError, match=r"the upload of s3://.*/out/c is gone.*rollback"):
        rescue.resume(store, address)
    rescue.take_back(store, address)
    assert bucket.keys() == ["out/theirs"]
    assert bucket.uploads() == []


@pytest.mark.nightly
@pytest.mark.parametrize("action", ["resume", "take_back"])
@pytest.mark.parametrize("is_answered", [False, True])
def test_who_ends_a_dead_job_may_die_too(
    hadoop: Hadoop, bucket: Bucket, store: ObjectStore, action: str, *, is_answered: bool
) -> None:
    """At each request in turn; whoever comes next finishes what was begun."""
    for at in itertools.count():
        _, address = dead_job(hadoop, bucket)
        mortal = ObjectStore(store.options)
        death = Death(at, is_answered=is_answered)
        death.watch(mortal)
        act: Any = getattr(rescue, action)
        try:
            act(mortal, address)
        except Died:
            folder = Folder(bucket.name, "out/")
            if rescue.magic_folders(store, folder) or leftovers.plan_addresses(store, folder):
                act(store, address)
        assert data(bucket) == (FILES if action == "resume" else {})
        assert bucket.uploads() == []
        assert set(bucket.keys()) - set(FILES) == (
            {"out/_SUCCESS"} if action == "resume" else set()
        )
        store.delete_many(bucket.name, bucket.keys())
        if not death.has_come:
            assert at > 10
            return


def ours(s3: S3Server, bucket: Bucket) -> tuple[committers.Job, str]:
    """Leave a job of ours whose two tasks were committed."""
    job = committers.job(
        f"s3://{bucket.name}/out",
        committer="magic",
        job_id=new_job(),
        endpoint_url=s3.endpoint,
        unique_names=False,
    )
    job.__enter__()
    for name, content in (("a", b"aaa"), ("p=1/b", b"bb"), ("c", b"c")):
        with job.task() as task, task.open(name) as file:
            file.write(content)
    return job, f"out/__magic_job-{job.id}/job-{job.id}/00/"


def test_hadoop_commits_what_tasks_of_ours_have_written(
    s3: S3Server, hadoop: Hadoop, bucket: Bucket
) -> None:
    """Its own job commit, over our `.pendingset`s."""
    job, _ = ours(s3, bucket)
    hadoop.job(f"s3://{bucket.name}/out", job.id).commit()
    assert data(bucket) == FILES
    assert bucket.uploads() == []
    assert sorted(bucket.success("out")["filenames"]) == [f"/{key}" for key in sorted(FILES)]


def test_hadoop_reads_what_we_write_and_would_write_the_same(
    s3: S3Server, hadoop: Hadoop, bucket: Bucket
) -> None:
    """`SinglePendingCommit` and `PendingSet`: loaded, validated, and written again byte by byte."""
    job, below = ours(s3, bucket)
    with job.task(number=7).open("d") as file:
        file.write(b"d")
    fs = hadoop.fs(bucket.name)
    files = hadoop.files
    for path, kind in (
        ("task_omidpy_0000_m_000000.pendingset", files.PendingSet),
        ("tasks/attempt_omidpy_0000_m_000007_0/__base/d.pending", files.SinglePendingCommit),
    ):
        written = bucket.get(below + path)
        status = fs.getFileStatus(hadoop.path(f"s3://{bucket.name}/{below}{path}"))
        asked = (fs, status.getPath(), status)
        serializer = kind.serializer()
        is_set = path.endswith(PENDING_SET)
        loaded = kind.load(*asked) if is_set else kind.load(*asked, serializer)
        loaded.validate()
        again = bytes(loaded.toBytes(serializer)).decode()
        # It notes where it has found a `.pending`, which is null in the file.
        found = again.replace(f'"filename":"{status.getPath().toString()}"', '"filename":null')
        assert found == written.decode()


def test_hadoop_reads_our_manifest(s3: S3Server, hadoop: Hadoop, bucket: Bucket) -> None:
    """Of each committer: `SuccessData.load` asks for its name and version."""
    for name in ("omidpy", "directory", "partitioned", "magic"):
        folder = f"s3://{bucket.name}/{name}"
        with (
            committers.job(folder, committer=name, endpoint_url=s3.endpoint) as job,
            job.task() as task,
            task.open("f") as file,
        ):
            file.write(b"f")
        loaded = hadoop.files.SuccessData.load(
            hadoop.fs(bucket.name), hadoop.path(f"{folder}/_SUCCESS")
        )
        assert list(loaded.getFilenames()) == [f"/{name}/f-{job.id}"]
        assert (loaded.getCommitter(), loaded.getJobId()) == (name, job.id)
        assert loaded.getSuccess()
        assert loaded.getMetrics()["committer_commits_completed"] == 1


def test_our_verification_reads_hadoops_manifest(
    s3: S3Server, hadoop: Hadoop, bucket: Bucket, store: ObjectStore
) -> None:
    """Which files it names, and whether they are there."""
    from omidpy.committers.contents import verification

    del s3
    job, _ = dead_job(hadoop, bucket)
    job.commit()
    found = verification.verify(store, Folder(bucket.name, "out/"))
    assert (found.files, found.committer, found.is_whole) == (3, "magic", True)
    assert json.loads(bucket.get("out/_SUCCESS"))["jobId"] == found.job_id


def test_operators_see_and_end_a_dead_job(
    s3: S3Server,
    hadoop: Hadoop,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By its magic folder, which the list of plans has."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    path = f"s3://{bucket.name}/out"

    def call(*words: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main(["committers", *words, "--json"])
        out, err = capsys.readouterr()
        return err if ended.value.code else json.loads(out)

    for action in ("resume", "rollback"):
        _, address = dead_job(hadoop, bucket)
        assert call("plan", "list", path) == [{"plan": address}]
        assert len(call("uploads", "list", path)) == 4
        shown = call("plan", "show", address)
        assert (shown["tasks"], shown["unready"], shown["committer"]) == (2, None, "magic")
        assert [one["key"] for one in shown["files"]] == sorted(FILES)
        aborted = call("uploads", "abort", path)
        assert len(aborted["aborted"]) == 1
        assert {one["plan"] for one in aborted["planned"]} == {address}
        ended = call("plan", action, address)
        assert ended["destination"] == path
        assert data(bucket) == (FILES if action == "resume" else {})
        assert f"there is no {address}" in call("plan", "show", address)
        ObjectStore(StoreOptions(endpoint_url=s3.endpoint)).delete_many(bucket.name, bucket.keys())
