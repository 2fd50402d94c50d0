"""Requests that had no answer and arrive when nobody waits for them any more.

An upload has an end: one that was aborted is never completed.  A small file is written by one
request, which nothing can call back.
"""

from __future__ import annotations

import datetime as dt
import http.client
import pickle
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore import auth
from botocore.exceptions import ReadTimeoutError

from omidpy import committers
from omidpy.committers.hadoop import leftovers
from omidpy.committers.objects import store as stores
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder, parse_object
from omidpy.committers.publishing import ending
from omidpy.committers.s3 import S3Committer
from omidpy.errors import CommitterError
from tests.machines.s3.crashing import Death, Died
from tests.machines.s3.looking import Bucket
from tests.machines.s3.proxy import S3Proxy
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration


class Detour:
    """Keeps the requests that write a file; their sender hears nothing, and takes them for lost."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        """Watch for a file."""
        self.kept: list[Any] = []
        self.is_open = True
        self._name = name
        store.client.meta.events.register("before-send.s3.PutObject", self._keep)

    def _keep(self, request: Any, **_: Any) -> None:
        if self.is_open and f"/{self._name}" in request.url:
            self.kept.append(request)
            raise ReadTimeoutError(endpoint_url=request.url)

    def arrive(self) -> int:
        """Let one of them arrive after all; return what the store answers."""
        one = self.kept[0]
        url = urlsplit(one.url)
        headers = {
            name: value.decode() if isinstance(value, bytes) else str(value)
            for name, value in one.headers.items()
            if name != "Expect"
        }
        connection = http.client.HTTPConnection(url.netloc, timeout=60)
        try:
            connection.request(one.method, url.path, body=one.body, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    """Give a bucket of its own."""
    return Bucket(s3)


def begun(s3: S3Server, bucket: Bucket, **options: Any) -> tuple[committers.Job, ObjectStore]:
    """Begin a job of a small and a large file; both are written."""
    options = {"inline_bytes": 5, "threads": 1, "endpoint_url": s3.endpoint, **options}
    job = committers.job(f"s3://{bucket.name}/out", **options).__enter__()
    for name, size in (("small", 5), ("large", 50)):
        with job.task() as task, task.open(name) as file:
            file.write(b"x" * size)
    assert isinstance(job.committer, S3Committer)
    return job, job.committer.store


def test_a_job_is_not_taken_back_while_a_small_file_is_on_its_way(
    s3: S3Server, bucket: Bucket
) -> None:
    """It would be visible without the rest; whoever finishes the job sees all of it."""
    job, store = begun(s3, bucket)
    detour = Detour(store, "small-")
    with pytest.raises(
        CommitterError, match=r"half committed: .*small.*no answer.* resume"
    ) as raised:
        job.commit()
    with pytest.raises(CommitterError, match="still be carried out") as again:
        job.committer.abort_job([])
    assert raised.value.plan == again.value.plan
    assert detour.arrive() == 200
    plan, _ = ending.load(store, again.value.plan, *parse_object(again.value.plan))
    ending.resume(store, plan)
    assert [path.partition("-")[0] for path in bucket.visible("out")] == ["large", "small"]
    assert bucket.uploads() == []


def test_a_small_file_that_was_tried_twice_may_come_a_second_time(
    s3: S3Server, bucket: Bucket
) -> None:
    """Its second try was carried out; the first would appear again behind its removal."""
    job, store = begun(s3, bucket)
    detour = Detour(store, "small-")

    def open_up(**_: Any) -> None:
        detour.is_open = not detour.kept

    store.client.meta.events.register("needs-retry.s3.PutObject", open_up)
    (upload,) = store.uploads(job.committer.folder)  # type: ignore[attr-defined]  # it has one
    store.abort_upload(bucket.name, upload.key, upload.upload_id)
    with pytest.raises(CommitterError, match="still be carried out"):
        job.commit()
    assert len(detour.kept) == 1
    assert [path.partition("-")[0] for path in bucket.visible("out")] == ["small"]


def test_nobody_knows_of_a_plan_that_may_be_on_its_way(s3: S3Server, bucket: Bucket) -> None:
    """The job's uploads stay, and the error says what to do in either case; here it comes."""
    job, store = begun(s3, bucket)
    detour = Detour(store, "plan.json")
    with pytest.raises(CommitterError, match="nobody knows whether job") as raised:
        job.commit()
    assert len(bucket.uploads()) == 1
    assert detour.arrive() == 200
    (address,) = leftovers.plan_addresses(store, Folder(bucket.name, "out/"))
    assert address == raised.value.plan
    detour.is_open = False
    ending.take_back(store, *ending.load(store, address, *parse_object(address)))
    assert (bucket.keys(), bucket.uploads()) == ([], [])


def test_a_plan_that_is_there_after_all_is_carried_out(s3: S3Server, bucket: Bucket) -> None:
    """Each answer was lost, and then somebody looked."""
    job, store = begun(s3, bucket)
    detour = Detour(store, "plan.json")

    def arrive_before(**_: Any) -> None:
        if detour.is_open:
            assert detour.arrive() == 200
            detour.is_open = False

    store.client.meta.events.register("before-call.s3.GetObject", arrive_before)
    job.commit()
    assert [path.partition("-")[0] for path in bucket.visible("out")] == ["large", "small"]


def test_a_store_that_refuses_a_plan_has_none(s3: S3Server, bucket: Bucket) -> None:
    """It has answered, and the job is aborted as before."""
    with S3Proxy(s3.port) as proxy:
        job, _ = begun(s3, bucket, endpoint_url=proxy.endpoint)
        proxy.break_down("Put", 503)
        with pytest.raises(CommitterError, match="write the object") as raised:
            job.commit()
    assert raised.value.plan == ""
    assert (bucket.keys(), bucket.uploads()) == ([], [])


def test_what_is_late_for_too_long_never_comes(
    s3: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a job can be taken back again, by itself."""
    monkeypatch.setattr(stores, "REQUEST_LIFE_S", 0.0)
    job, store = begun(s3, bucket)
    Detour(store, "small-")
    with pytest.raises(CommitterError, match="nothing of it is visible"):
        job.commit()
    assert (bucket.keys(), bucket.uploads()) == ([], [])


def test_a_store_refuses_a_request_that_was_signed_long_ago(
    s3: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is why waiting helps: this one is of half an hour ago."""
    job, store = begun(s3, bucket)
    detour = Detour(store, "small-")
    long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=stores.REQUEST_LIFE_S)
    monkeypatch.setattr(auth, "get_current_datetime", lambda: long_ago.replace(tzinfo=None))
    with pytest.raises(CommitterError):
        job.committer.store.put(bucket.name, f"out/small-{job.id}", b"x")  # type: ignore[attr-defined]
    assert detour.arrive() == 403


def test_another_process_of_a_dead_driver_does_not_take_its_job_back(
    s3: S3Server, bucket: Bucket
) -> None:
    """Spark aborts in a new one, which knows nothing of the requests that were on their way."""
    for inline_bytes in (5, 0):
        job, store = begun(s3, bucket, inline_bytes=inline_bytes)
        assert isinstance(job.committer, S3Committer)
        copy = pickle.loads(pickle.dumps(job.committer))
        Death(0, is_answered=True).watch(store)
        with pytest.raises(Died):
            job.commit()
        if inline_bytes:
            with pytest.raises(CommitterError, match="still be carried out") as raised:
                copy.abort_job([])
            assert leftovers.plan_addresses(copy.store, copy.folder) == [raised.value.plan]
            ending.take_back(
                copy.store,
                *ending.load(copy.store, raised.value.plan, *parse_object(raised.value.plan)),
            )
        else:
            copy.abort_job([])
        assert (bucket.keys(), bucket.uploads()) == ([], [])
