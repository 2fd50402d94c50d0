"""Drivers and tasks that die at every request, and what finishes their jobs.

By day every second request is died at before it leaves; by night each, also once it was carried
out, in every conflict mode, and in both ways of ending a job.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from omidpy import committers
from omidpy.committers.hadoop import leftovers, rescue
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder, parse_object
from omidpy.committers.publishing import ending as publishing
from omidpy.committers.s3 import S3Committer
from omidpy.errors import CommitterError
from tests.machines.s3.crashing import Death, Died
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration

_folders = itertools.count()


class World:
    """A destination with files of before, a neighbour whose name is longer, and a job."""

    def __init__(
        self, s3: S3Server, bucket: Bucket, conflict: str, committer: str = "omidpy"
    ) -> None:
        """Make it, in a folder that nobody has used."""
        self.folder = f"out{next(_folders)}x"
        self.bucket = bucket
        self.conflict = conflict
        self.store = ObjectStore(StoreOptions(endpoint_url=s3.endpoint))
        self.options: dict[str, Any] = {
            "endpoint_url": s3.endpoint,
            "committer": committer,
            "conflict": conflict,
            "inline_bytes": 5,
            "threads": 1,
        }
        self.old = [] if conflict == "fail" else ["old-0", "old-1"]
        for name in self.old:
            bucket.put(f"{self.folder}/{name}")
        self.neighbour = bucket.client.create_multipart_upload(
            Bucket=bucket.name, Key=f"{self.folder}10/f"
        )["UploadId"]

    @property
    def address(self) -> str:
        """Where the job writes."""
        return f"s3://{self.bucket.name}/{self.folder}"

    def run(self, death: Death | None) -> int:
        """Run the job until it dies or ends: small and large files, and a task tried twice."""
        job = committers.job(self.address, **self.options)
        assert isinstance(job.committer, S3Committer)
        if death is not None:
            death.watch(job.committer.store)
        with job:
            write(job)
        return job.committer.store.request_count

    def recover(self, action: str) -> None:
        """Do what an operator does after a driver has died."""
        folder = Folder(self.bucket.name, f"{self.folder}/")
        for address in leftovers.plan_addresses(self.store, folder):
            plan, etag = publishing.load(self.store, address, *parse_object(address))
            if action == "resume":
                publishing.resume(self.store, plan)
                continue
            try:
                publishing.take_back(self.store, plan, etag)
            except CommitterError as error:
                if "is committed" not in str(error):
                    raise
                publishing.resume(self.store, plan)
        for address in rescue.magic_folders(self.store, folder):
            rescue.take_back(self.store, address)  # it had no plan
        leftovers.abort(self.store, folder, list(self.store.uploads(folder)))

    def check(self) -> str:
        """See all of the job or nothing of it; return which."""
        found = self.bucket.visible(self.folder)
        names = sorted(path.partition("-")[0] for path in found if not path.startswith("old"))
        old = [path for path in found if path.startswith("old")]
        keys = self.bucket.keys(f"{self.folder}/")
        hidden = set(keys) - {f"{self.folder}/{path}" for path in found}
        assert [
            key for key in self.bucket.uploads() if not key.startswith(f"{self.folder}10/")
        ] == []
        assert f"{self.folder}10/f" in self.bucket.uploads()
        if not names:
            assert old == self.old
            assert hidden == set()
            return "nothing"
        assert names == ["f0", "f1", "f2", "f3"]
        assert old == ([] if self.conflict == "replace" else self.old)
        assert hidden == {f"{self.folder}/_SUCCESS"}
        for path in found:
            if not path.startswith("old"):
                data = self.bucket.get(f"{self.folder}/{path}")
                at = int(path[1])
                assert data == b"%d" % at * (3, 10, 4, 20)[at]
        return "all"

    def forget(self) -> None:
        """Give the neighbour's upload up, so that listings stay short."""
        self.bucket.client.abort_multipart_upload(
            Bucket=self.bucket.name, Key=f"{self.folder}10/f", UploadId=self.neighbour
        )


def write(job: committers.Job) -> None:
    """Let four tasks write a file each."""
    for at, size in enumerate((3, 10, 4, 20)):
        lost = job.task(number=at)
        if at == 1:
            with lost.open("lost") as file:
                file.write(b"l" * 30)
            lost = job.task(number=at)
        with lost as task, task.open(f"f{at}") as file:
            file.write(b"%d" % at * size)


def die_everywhere(
    s3: S3Server,
    conflict: str,
    action: str,
    *,
    is_answered: bool,
    committer: str = "omidpy",
    step: int = 1,
) -> tuple[list[str], int]:
    """Let a driver die at each request, or at some; return each job's end, and of how many."""
    bucket = Bucket(s3)
    whole = World(s3, bucket, conflict, committer)
    count = whole.run(None)
    assert whole.check() == "all"
    whole.forget()
    ends = []
    for at in range(0, count, step):
        world = World(s3, bucket, conflict, committer)
        with pytest.raises(Died):
            world.run(Death(at, is_answered=is_answered))
        world.recover(action)
        ends.append(world.check())
        world.forget()
    return ends, count


def check_ends(ends: list[str], count: int, action: str, *, at_least: int = 6) -> None:
    """Say that a plan divides the ends: before it nothing is left, and after it what was asked."""
    assert len(ends) == count
    assert ends == sorted(ends, reverse=True), "nothing comes before all"
    assert ends[0] == "nothing"
    # What can only be taken back before `_SUCCESS` is whole afterwards, whatever was asked.
    assert ends[-1] == "all"
    if action == "resume":
        # Each completion, `_SUCCESS`, and the plan's end.
        assert ends.count("all") >= at_least


def test_a_driver_that_dies_at_any_request_is_finished(s3: S3Server) -> None:
    """Readers see all of its job or nothing, and no upload is left."""
    ends, count = die_everywhere(s3, "append", "resume", is_answered=False, step=2)
    check_ends(ends, len(range(0, count, 2)), "resume", at_least=3)


def test_a_magic_job_that_dies_is_finished(s3: S3Server) -> None:
    """The same with files about files, none of which is left; by night at every request."""
    ends, count = die_everywhere(
        s3, "append", "resume", is_answered=False, committer="magic", step=5
    )
    check_ends(ends, len(range(0, count, 5)), "resume", at_least=2)


@pytest.mark.nightly
@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("action", ["resume", "rollback"])
@pytest.mark.parametrize("conflict", ["fail", "append", "replace"])
@pytest.mark.parametrize("committer", ["omidpy", "magic"])
def test_a_driver_that_dies_anywhere_in_any_mode_is_finished_or_taken_back(
    s3: S3Server, committer: str, conflict: str, action: str, *, is_answered: bool
) -> None:
    """The long form: what was carried out although nobody heard of it, and both ways to end."""
    ends, count = die_everywhere(s3, conflict, action, is_answered=is_answered, committer=committer)
    assert len(ends) == count


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("action", ["resume", pytest.param("rollback", marks=pytest.mark.nightly)])
def test_who_recovers_may_die_too(s3: S3Server, action: str, every: int) -> None:
    """A recovery is begun again by the next, wherever it stopped, until all is one or the other."""
    bucket = Bucket(s3)
    at = 0
    while True:
        world = World(s3, bucket, "replace")
        # Small files and one upload are completed, and the rest is not.
        with pytest.raises(Died):
            world.run(Death(11, is_answered=True))
        assert leftovers.plan_addresses(world.store, Folder(bucket.name, f"{world.folder}/"))
        death = Death(at, is_answered=at % 2 == 0)
        mortal = ObjectStore(world.store.options)
        death.watch(mortal)
        living, world.store = world.store, mortal
        try:
            world.recover(action)
            is_over = True
        except Died:
            is_over = False
        world.store = living
        world.recover(action)
        assert world.check() == ("all" if action == "resume" else "nothing")
        world.forget()
        if is_over:
            assert at > 8
            return
        at += every
