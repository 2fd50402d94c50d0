"""Parts, and the names and options of a committer."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future

import pytest

from omidpy.committers import choice
from omidpy.committers.objects import store
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.objects.uploads import (
    LARGEST_PART_BYTES,
    MOST_PARTS,
    PARTS_AT_ONCE,
    SMALLEST_PART_BYTES,
    Allowance,
    Sender,
    UploadedFile,
    part_bytes,
)
from omidpy.committers.publishing import success
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import Manifest, PendingFile
from omidpy.errors import CommitterError, UsageError


def test_ten_thousand_parts_hold_the_largest_object() -> None:
    """A store takes no more parts, and objects of 5 TiB."""
    sizes = [part_bytes(number, 8 * 2**20) for number in range(1, MOST_PARTS + 1)]
    assert sum(sizes) >= 5 * 2**40
    assert min(sizes) >= SMALLEST_PART_BYTES
    assert max(sizes) <= LARGEST_PART_BYTES
    assert sizes == sorted(sizes)
    assert part_bytes(1000, 8) == 8
    assert part_bytes(1001, 8) == 16


def test_a_part_more_than_a_store_takes_is_refused_before_it_is_sent() -> None:
    """The store would say so only when the upload is completed."""
    file = UploadedFile(
        Sender(ObjectStore()),
        bucket="b",
        key="k",
        job_id="job_00001",
        first_part_bytes=1,
        inline_bytes=0,
        allowance=Allowance(0),
    )
    file._upload, file._parts = Future(), [Future()] * MOST_PARTS
    file.write(b"x")
    with pytest.raises(CommitterError, match="more than 10000 parts"):
        file.close()


def test_parts_wait_for_room() -> None:
    """M3: whoever writes faster than the store takes it is held up, and not its memory filled."""
    sender = Sender(ObjectStore(StoreOptions(threads=1)))
    all_sent = threading.Event()

    def held() -> str:
        return str(all_sent.wait(0.2))

    first = sender.send(held)
    for _ in range(PARTS_AT_ONCE):
        sender.send(str)
    all_sent.set()
    assert first.result() == "False"


def test_an_allowance_is_spent_whole_or_not() -> None:
    """Equality is still allowed."""
    allowance = Allowance(10)
    assert not allowance.take(11)
    assert allowance.take(10)
    assert not allowance.take(1)
    assert allowance.take(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "omid"}, "committer='omid' is none of .*did you mean 'omidpy'"),
        ({"conflit": "fail"}, "no option 'conflit'; did you mean 'conflict'"),
        ({"conflict": "merge"}, "conflict='merge' must be one of fail, append, replace"),
        ({"inline_bytes": "much"}, "inline_bytes='much' must be a size"),
        ({"inline_bytes": -1}, "inline_bytes=-1 must be a size"),
        ({"threads": 0}, "threads=0 must be a whole number"),
        ({"success": "perhaps"}, "success='perhaps' must be true or false"),
        ({"endpoint_url": ""}, "endpoint_url='' must be a text"),
        ({"job_id": "1"}, "job id '1' must be"),
        ({"app_attempt": 1}, "committer='omidpy' has no option 'app_attempt'"),
    ],
)
def test_options_are_refused_by_name(options: dict[str, object], message: str) -> None:
    """One that is misspelt would change nothing, and nobody would know."""
    with pytest.raises(UsageError, match=message):
        choice.committer("s3://b/out", **options)  # type: ignore[arg-type]  # wrong on purpose


def test_texts_and_values_mean_the_same() -> None:
    """Spark's options are texts."""
    made = choice.committer(
        "s3://b/out", inline_bytes="2MiB", success="false", threads="4", job_id="job_00001"
    )
    assert isinstance(made, S3Committer)
    assert (made.inline_bytes, made.marks_success) == (2 * 2**20, False)
    assert (made.store.options.threads, made.job_id) == (4, "job_00001")


def test_a_committer_can_be_sent_to_tasks() -> None:
    """It is the same job there, with a client of its own."""
    made = choice.committer("s3://b/out", conflict="replace")
    copy, again = (pickle.loads(pickle.dumps(made)) for _ in range(2))
    assert isinstance(copy, S3Committer)
    assert (copy.job_id, copy.conflict) == (made.job_id, "replace")
    assert isinstance(made, S3Committer)
    assert copy.store.id != made.store.id
    # Tasks of one process share it; those of a copy, too, and other jobs do not.
    assert again.store is copy.store is pickle.loads(pickle.dumps(copy)).store
    assert pickle.loads(pickle.dumps(choice.committer("s3://b/out"))).store is not copy.store
    for _ in range(20):
        pickle.loads(pickle.dumps(choice.committer("s3://b/out")))
    assert len(store._copies) == 8


MANIFEST = Manifest("job_00001", "s3://b/out", "omidpy", ("out/a",), 3, 7, 0.5, 4)


def test_a_manifest_is_what_hadoop_reads() -> None:
    """The names and types of its fields are Hadoop's; ours stand in a field of our own."""
    data = success.encode(MANIFEST, (PendingFile("out/a", 3, 7, data=b"abc"),), now_ms=1000)
    document = success.decode(data, "x")
    assert document["name"] == "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"
    assert document["success"] is True
    assert document["date"] == "Thu Jan 01 00:00:01 UTC 1970"
    assert document["filenames"] == ["/out/a"]
    assert all(type(value) is int for value in document["metrics"].values())
    assert document["omidpy"]["files"][0]["rows"] == 7


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "is no JSON"),
        (b"[]", "is no manifest"),
        (b'{"name": "other"}', "is no manifest"),
        (b'{"name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/2"}', "newer manifest"),
    ],
)
def test_what_is_no_manifest_is_refused(data: bytes, message: str) -> None:
    """To verify against it would say that all is well."""
    with pytest.raises(CommitterError, match=f"s3://b/_SUCCESS .*{message}"):
        success.decode(data, "s3://b/_SUCCESS")


def test_an_empty_manifest_is_a_renaming_committers() -> None:
    """It says that a job ended, and nothing else."""
    assert success.decode(b"", "x") == {}
