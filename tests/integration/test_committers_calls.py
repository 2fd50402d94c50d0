"""An S3 committer called as engines call it: after deaths, a second time, beside strangers."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from omidpy import committers
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import TaskId, TaskMessage
from omidpy.errors import CommitterError
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """Give a bucket of its own."""
    return Bucket(s3)


def committer_of(s3: S3Server, bucket: Bucket, **options: Any) -> S3Committer:
    """Return a committer of a new job that was set up."""
    made = committers.committer(f"s3://{bucket.name}/out", endpoint_url=s3.endpoint, **options)
    assert isinstance(made, S3Committer)
    made.setup_job()
    return made


def written(made: S3Committer, *paths: str, number: int = 0) -> TaskMessage:
    """Return the message of a task that wrote a byte to each path."""
    attempt = made.setup_task(TaskId(0, number))
    for path in paths:
        with attempt.open(path) as file:
            file.write(b"x")
    return made.commit_task(attempt)


@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_plan_that_nobody_understands_is_left_as_it_is(
    s3: S3Server, bucket: Bucket, *, is_aborted: bool
) -> None:
    """It may be a newer omidpy's, which has begun to commit: nothing is aborted, or run again."""
    made = committer_of(s3, bucket, inline_bytes=0)
    message = written(made, "f")
    key = made.folder.plan_key(made.job_id)
    bucket.put(key, b'{"format": "omidpy-plan", "version": 3}')
    with pytest.raises(CommitterError, match="finish it with the omidpy that began it"):
        made.abort_job([message]) if is_aborted else made.was_committed()
    assert bucket.keys() == [key]
    assert len(bucket.uploads()) == 1


def test_replacing_partitions_lists_nothing_where_none_is_written(
    s3: S3Server, bucket: Bucket
) -> None:
    """A file at the top is in no partition; the table may have millions of others."""
    bucket.put("out/p=1/old")
    made = committer_of(s3, bucket, conflict="replace", scope="partitions")
    made.commit_job([written(made, "top")])
    assert made.store.requests["ListObjectsV2"] == 0
    assert len(bucket.visible("out")) == 2


@pytest.mark.parametrize(
    ("number", "is_lone", "listings"), [(0, True, 0), (1, None, 1), (0, False, 1), (7, True, 0)]
)
def test_uploads_are_looked_for_where_a_task_was_begun_twice(
    s3: S3Server, bucket: Bucket, number: int, listings: int, *, is_lone: bool | None
) -> None:
    """Numbers of attempts tell it, or who runs them and numbers all tasks of a session."""
    made = committer_of(s3, bucket)
    message = written(made, "f", number=number)
    made.commit_job([message if is_lone is None else replace(message, is_lone=is_lone)])
    assert made.store.requests["ListMultipartUploads"] == listings


def test_small_files_that_cannot_be_uploaded_leave_no_upload(s3: S3Server, bucket: Bucket) -> None:
    """The plan takes none of them, and the store refuses the second."""
    made = committer_of(s3, bucket, inline_job_bytes=0, threads=1)
    message = written(made, "a", "b", "c")

    def refuse(operation: str) -> None:
        if operation == "UploadPart" and made.store.requests[operation] == 2:
            raise CommitterError("no more")

    made.store.before_request = refuse
    with pytest.raises(CommitterError, match="no more"):
        made.commit_job([message])
    assert bucket.keys() == []
    assert bucket.uploads() == []


def test_a_name_that_has_the_jobs_id_is_new_in_mode_replace_too(
    s3: S3Server, bucket: Bucket
) -> None:
    """Nothing else has a right to it: what came there after the listing is not written over."""
    made = committer_of(s3, bucket, conflict="replace")
    message = written(made, "f")
    key = message.files[0].key

    def come(operation: str) -> None:
        if operation == "PutObject" and not bucket.keys():
            bucket.put(key, b"theirs")

    made.store.before_request = come
    with pytest.raises(CommitterError, match="exists and is not of job"):
        made.commit_job([message])
    assert bucket.keys() == [key]
    assert bucket.get(key) == b"theirs"


def test_an_attempt_that_was_aborted_is_not_committed(s3: S3Server, bucket: Bucket) -> None:
    """Whoever aborted it has told others so."""
    made = committer_of(s3, bucket)
    attempt = made.setup_task(TaskId(0))
    made.abort_task(attempt)
    with pytest.raises(CommitterError, match="be committed"):
        made.commit_task(attempt)


def test_as_many_requests_are_under_way_as_there_may_be(s3: S3Server, bucket: Bucket) -> None:
    """Two at a time, and no more: a store throttles who sends too many."""
    made = committer_of(s3, bucket, threads=2)
    message = written(made, *"abcdefgh")
    meeting = threading.Barrier(2, timeout=20)
    senders = set()

    def meet(operation: str) -> None:
        if operation == "PutObject" and made.store.requests[operation] in range(2, 10):
            senders.add(threading.get_ident())
            meeting.wait()

    made.store.before_request = meet
    made.commit_job([message])
    assert len(senders) == 2
