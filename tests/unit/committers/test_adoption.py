"""Jobs of Hadoop's that died, as they are found: what is finished, taken back, and left alone.

Here the folder is written as Hadoop writes it; `tests/integration/test_committers_hadoop.py` asks
Hadoop itself.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from omidpy.committers.choice import committer
from omidpy.committers.hadoop import rescue
from omidpy.committers.hadoop.magic import MagicCommitter
from omidpy.committers.heads import plan as plans
from omidpy.committers.objects import pendings
from omidpy.committers.objects.answers import Occupied
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.publishing import ending
from omidpy.committers.values import PendingFile, TaskId
from omidpy.errors import CommitterError

JOB: Final = "0b7f6a3e-1111-4222-8333-000000000001"
OUT: Final = Folder("lake", "out/")
BASE: Final = f"out/__magic_job-{JOB}/job-{JOB}"
ADDRESS: Final = f"s3://lake/out/__magic_job-{JOB}"


@pytest.fixture
def store(moto_bucket: str) -> ObjectStore:
    """Give a store with a file of somebody else."""
    found = ObjectStore()
    found.put(moto_bucket, "out/theirs", b"theirs")
    return found


def upload(store: ObjectStore, key: str, data: bytes) -> PendingFile:
    """Upload a file as Hadoop does, which puts no job into its metadata."""
    upload_id = store.client.create_multipart_upload(Bucket="lake", Key=key)["UploadId"]
    tag = store.upload_part("lake", key, upload_id, 1, data)
    return PendingFile(key, len(data), None, upload_id, (tag,), is_stamped=False)


def unmarked(document: Any) -> bytes:
    """Return what Hadoop would have written, who does not say that a plan decides."""
    for one in document.get("commits", [document]):
        one["extraData"] = {}
    return json.dumps(document).encode()


def commit_task(
    store: ObjectStore, number: int, *files: PendingFile, run: str = "00", job_id: str = JOB
) -> str:
    """Write the `.pendingset` of a task; return its key."""
    said = pendings.encode_set(
        "lake",
        [(f"{BASE}/{run}/{one.key}", one) for one in files],
        now_ms=0,
        job_id=job_id,
        task=TaskId(number),
    )
    key = f"{BASE}/{run}/task_x_0000_m_{number:06}{pendings.PENDING_SET}"
    store.put("lake", key, unmarked(json.loads(said)))
    return key


def begin_task(
    store: ObjectStore, number: int, one: PendingFile, *, run: str = "00", attempt: int = 0
) -> None:
    """Write a `.pending` of an attempt."""
    name = f"attempt_x_0000_m_{number:06}_{attempt}"
    path = f"{BASE}/{run}/tasks/{name}/__base/{one.key.removeprefix('out/')}"
    said = pendings.encode_pending("lake", path, one, now_ms=0)
    store.put("lake", f"{path}{pendings.PENDING}", unmarked(json.loads(said)))


def complete(store: ObjectStore, one: PendingFile) -> None:
    """Make an upload visible, as the dead driver would have."""
    store.complete_upload("lake", one.key, one.upload_id, one.etags, is_new=False)


def keys(store: ObjectStore) -> list[str]:
    """Return all that is there."""
    found = [one.key for one in store.objects(Folder("lake", ""))]
    return [key for key in found if not key.endswith("_omidpy/head.json")]


def uploads(store: ObjectStore) -> list[str]:
    """Return the keys of uploads."""
    return [one.key for one in store.uploads(Folder("lake", ""))]


def test_the_last_run_counts_and_the_others_uploads_go(store: ObjectStore) -> None:
    """A driver that began anew wrote to a folder of its own; lost attempts left `.pending`s."""
    commit_task(store, 0, upload(store, "out/older", b"1"), run="02")
    commit_task(store, 0, upload(store, "out/a", b"a"), run="10")
    commit_task(store, 1, run="10")
    begin_task(store, 0, upload(store, "out/lost", b"2"), run="10", attempt=1)
    store.put("lake", f"{BASE}/10/marker", b"")
    store.put("lake", f"out/__magic_job-{JOB}/elsewhere", b"")
    found = rescue.load(store, ADDRESS)
    assert (found.tasks, found.unready, found.etag) == (2, "", "")
    before = store.counts().get("AbortMultipartUpload", 0)
    manifest = rescue.resume(store, ADDRESS)
    assert manifest.files == ("out/a",)
    assert keys(store) == ["out/_SUCCESS", "out/a", "out/theirs"]
    assert uploads(store) == []
    # The upload that was completed is not aborted besides.
    assert store.counts()["AbortMultipartUpload"] - before == 2


def test_a_task_of_an_earlier_run_does_not_make_a_job_unready(store: ObjectStore) -> None:
    """What was not committed then was begun anew, or given up with its run."""
    begin_task(store, 3, upload(store, "out/older", b"1"), run="00")
    commit_task(store, 0, upload(store, "out/a", b"a"), run="01")
    assert rescue.load(store, ADDRESS).unready == ""


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_job_that_was_not_ready_is_taken_back_and_not_finished(
    store: ObjectStore, *, is_begun: bool
) -> None:
    """Whoever finished it would publish half of it, or nothing at all."""
    if is_begun:
        commit_task(store, 0, upload(store, "out/a", b"a"))
        begin_task(store, 1, upload(store, "out/b", b"b"))
        why = r"attempt_x_0000_m_000001_0 had written, and its task was not committed"
    else:
        store.put("lake", f"{BASE}/00/tasks/nothing", b"")
        why = "no task of it was committed"
    before = keys(store), uploads(store)
    with pytest.raises(CommitterError, match=rf"cannot be finished: {why}; .* rollback {ADDRESS}"):
        rescue.resume(store, ADDRESS)
    assert (keys(store), uploads(store)) == before
    rescue.take_back(store, ADDRESS)
    assert (keys(store), uploads(store)) == (["out/theirs"], [])


def test_two_tasks_that_wrote_one_key_are_refused(store: ObjectStore) -> None:
    """Nobody knows which of them readers should see."""
    for number in (0, 1):
        commit_task(store, number, upload(store, "out/a", b"a"))
    before = keys(store), uploads(store)
    with pytest.raises(CommitterError, match=r"two tasks .* have written out/a; nothing was touch"):
        rescue.load(store, ADDRESS)
    assert (keys(store), uploads(store)) == before


def test_what_goes_while_it_is_read_is_somebodys(store: ObjectStore) -> None:
    """Its job is running, or somebody else finishes it."""
    key = commit_task(store, 0, upload(store, "out/a", b"a"))
    begin_task(store, 0, upload(store, "out/a", b"a"))

    def remove(operation: str) -> None:
        # The first that is read is the plan, the second the `.pending`.
        if operation == "GetObject" and store.counts()[operation] == 2:
            watcher.delete("lake", key)

    watcher, store.before_request = ObjectStore(), remove
    with pytest.raises(CommitterError, match=r"pendingset went while it was read: its job is run"):
        rescue.load(store, ADDRESS)


@pytest.mark.parametrize("success", [None, "ours", "another's", b"nonsense"])
def test_a_job_that_was_committed_is_not_taken_back(
    store: ObjectStore, success: str | bytes | None
) -> None:
    """It died before it removed its folder; its `_SUCCESS` or its files say so."""
    one = upload(store, "out/a", b"a")
    commit_task(store, 0, one)
    complete(store, one)
    if isinstance(success, str):
        job_id = JOB if success == "ours" else "another"
        success = json.dumps({"name": "x.SuccessData/1", "jobId": job_id}).encode()
    if success is not None:
        store.put("lake", "out/_SUCCESS", success)
    if success == b"nonsense":
        with pytest.raises(CommitterError, match="out/_SUCCESS is no JSON"):
            rescue.take_back(store, ADDRESS)
    else:
        with pytest.raises(CommitterError, match=rf"can only be finished: .* resume {ADDRESS}`$"):
            rescue.take_back(store, ADDRESS)
    assert "out/a" in keys(store)


def test_the_manifest_of_a_job_is_enough_where_a_file_has_gone(store: ObjectStore) -> None:
    """Readers saw it whole; what they removed since then does not make it half of one."""
    one, two = upload(store, "out/a", b"a"), upload(store, "out/b", b"b")
    commit_task(store, 0, one, two)
    complete(store, one)
    said = {"name": "x.SuccessData/1", "jobId": JOB}
    store.put("lake", "out/_SUCCESS", json.dumps(said).encode())
    with pytest.raises(CommitterError, match="can only be finished"):
        rescue.take_back(store, ADDRESS)
    said["jobId"] = "another"
    store.put("lake", "out/_SUCCESS", json.dumps(said).encode())
    rescue.take_back(store, ADDRESS)
    assert (keys(store), uploads(store)) == (["out/_SUCCESS", "out/theirs"], [])


def test_files_that_are_not_all_the_jobs_were_not_committed(store: ObjectStore) -> None:
    """Where one is somebody else's, the job was in the middle, and that one stays."""
    one, two = upload(store, "out/a", b"a"), upload(store, "out/theirs", b"ours")
    commit_task(store, 0, one, two)
    complete(store, one)
    rescue.take_back(store, ADDRESS)
    assert (keys(store), uploads(store)) == (["out/theirs"], [])
    assert store.get("lake", "out/theirs")[0] == b"theirs"


def test_two_who_take_back_agree_and_one_who_finishes_wins(store: ObjectStore) -> None:
    """Both have read the folder, and each of them writes the plan."""
    commit_task(store, 0, upload(store, "out/a", b"a"))
    found = rescue.load(store, ADDRESS).plan
    key = found.folder.plan_key(JOB)
    store.put("lake", key, plans.encode(found))
    with pytest.raises(Occupied):
        ending.take_back(store, found, "")
    assert uploads(store) == ["out/a"]
    rolling = json.loads(plans.encode(found)) | {"state": "rolling back"}
    store.put("lake", key, json.dumps(rolling).encode())
    ending.take_back(store, found, "")
    assert (keys(store), uploads(store)) == (["out/theirs"], [])


def test_a_plan_that_is_there_is_that_of_the_folder(store: ObjectStore) -> None:
    """Whoever began to finish it has decided what belongs to it."""
    commit_task(store, 0, upload(store, "out/a", b"a"))
    begun = rescue.load(store, ADDRESS).plan
    etag = ending.begin(store, begun)
    begin_task(store, 1, upload(store, "out/b", b"b"))
    found = rescue.load(store, ADDRESS)
    assert (found.etag, found.unready, found.plan.files) == (etag, "", begun.files)
    rescue.resume(store, ADDRESS)
    assert keys(store) == ["out/_SUCCESS", "out/a", "out/theirs"]
    assert uploads(store) == []


@pytest.mark.parametrize(("bucket", "key"), [("lake", "out10/f"), ("other", "out/f")])
def test_a_folder_that_speaks_of_elsewhere_costs_nobody_an_upload(
    store: ObjectStore, bucket: str, key: str
) -> None:
    """Whoever can write below the destination must not abort what is not below it."""
    store.client.create_bucket(Bucket="other")
    made = committer("s3://lake/out", "magic", job_id=JOB)
    assert isinstance(made, MagicCommitter)
    upload_id = store.client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    one = PendingFile(key, 1, None, upload_id, ("aa",), is_stamped=False)
    path = f"{BASE}/00/tasks/attempt_x_0000_m_000000_0/__base/f"
    said = pendings.encode_pending(bucket, path, one, now_ms=0)
    store.put("lake", f"{path}{pendings.PENDING}", said)
    made.abort_job([])
    assert [one.key for one in store.uploads(Folder(bucket, ""))] == [key]
    assert keys(store) == ["out/theirs"]
