"""^C anywhere in a job: all of it is visible afterwards or nothing, without anybody's help."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path

import pytest

from omidpy import committers
from omidpy.committers.hadoop import leftovers
from omidpy.committers.places import Folder
from omidpy.committers.s3 import S3Committer
from tests.integration.test_committers_crashes import World, write
from tests.machines.interrupts.lines import Interrupt, Interrupter
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration


class Interrupted(World):
    """A world in which the driver lives on."""

    def go(self, *, is_explicit: bool = False, at: int | None = None) -> None:
        """Run the job, which its block commits, or a call in it; interrupt a request of it."""
        job = committers.job(self.address, **self.options)
        assert isinstance(job.committer, S3Committer)
        self.sender = job.committer.store
        sent = itertools.count()

        def interrupt(_: str) -> None:
            if next(sent) == at:
                raise Interrupt

        self.sender.before_request = interrupt
        with job:
            write(job)
            if is_explicit:
                job.commit()

    def settle(self) -> int:
        """Wait for what is still being sent; return how many of the job's files are visible."""
        if hasattr(self, "sender"):
            self.sender.background.shutdown()
        visible = self.bucket.visible(self.folder)
        return len([path for path in visible if not path.startswith("old")])

    def check_as_it_is(self, where: object) -> str:
        """See all of the job or nothing, and the same once what is left is finished."""
        files = self.settle()
        assert files in {0, 4}, where
        if leftovers.plan_addresses(self.store, Folder(self.bucket.name, f"{self.folder}/")):
            assert files == 4, where
        self.recover("resume")
        end = self.check()
        assert end == ("all" if files else "nothing"), where
        self.forget()
        return end


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("conflict", ["append", pytest.param("replace", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("committer", ["omidpy", "magic"])
def test_a_job_whose_request_is_interrupted_is_whole_or_absent(
    s3: S3Server, committer: str, conflict: str, every: int
) -> None:
    """Each of them: of its completions, too, which are taken back."""
    bucket = Bucket(s3)
    spared = Interrupted(s3, bucket, conflict, committer)
    spared.go()
    count = spared.sender.request_count
    assert spared.check_as_it_is("spared") == "all"
    ends = set()
    for at in range(0, count, every):
        world = Interrupted(s3, bucket, conflict, committer)
        with suppress(Interrupt):
            world.go(at=at)
        ends.add(world.check_as_it_is(at))
    assert ends == {"nothing", "all"}


# Python tells of an interrupt in `__del__`, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", [199, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("committer", "conflict", "is_explicit"),
    [
        ("omidpy", "append", False),
        ("omidpy", "replace", True),
        ("magic", "append", True),
        ("magic", "replace", False),
        # By day each two of committer, conflict and call meet.
        *(
            pytest.param(*others, marks=pytest.mark.nightly)
            for others in [
                ("omidpy", "append", True),
                ("omidpy", "replace", False),
                ("magic", "append", False),
                ("magic", "replace", True),
            ]
        ),
    ],
)
def test_an_interrupted_job_is_whole_or_absent(
    s3: S3Server, committer: str, conflict: str, every: int, *, is_explicit: bool
) -> None:
    """A plan that is left is of a job that is visible, and uploads can be listed."""
    bucket = Bucket(s3)
    places = Interrupter((Path(committers.__file__).parent,))
    numbers: list[int] = []
    for _ in range(2):  # what the first one fills are caches
        spared = Interrupted(s3, bucket, conflict, committer)
        numbers = places.places(lambda: spared.go(is_explicit=is_explicit))  # noqa: B023 - now
        assert spared.check() == "all"
        spared.forget()
    assert len(numbers) > 500
    ends = set()
    for number in numbers[::every]:
        world = Interrupted(s3, bucket, conflict, committer)
        with suppress(Interrupt):
            places.interrupt(lambda: world.go(is_explicit=is_explicit), number, Interrupt())  # noqa: B023 - now
        ends.add(world.check_as_it_is(places.where))
    assert ends == {"nothing", "all"}


# Python tells of an interrupt in `__del__`, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("conflict", ["append", "replace"])
def test_an_interrupted_job_on_a_disk_is_whole_or_absent(
    tmp_path: Path, conflict: str, every: int
) -> None:
    """Version 1, which renames file by file, and takes back what it has renamed."""
    places = Interrupter((Path(committers.__file__).parent,))
    folders = (tmp_path / str(number) for number in itertools.count())

    def run(folder: Path) -> None:
        folder.mkdir()
        (folder / "old").touch()
        with committers.job(f"file://{folder}", committer="file", conflict=conflict) as job:
            write(job)

    run(next(folders))  # what the first one fills are caches
    numbers = places.places(lambda: run(next(folders)))
    assert len(numbers) > 500
    ends = set()
    for number in numbers[::every]:
        folder = next(folders)
        with suppress(Interrupt):
            places.interrupt(lambda: run(folder), number, Interrupt())  # noqa: B023 - now
        files = len(list(folder.glob("f*")))
        assert files in {0, 4}, places.where
        assert (folder / "_SUCCESS").exists() == (files == 4), places.where
        assert files == 4 or (folder / "old").exists(), places.where
        ends.add(files)
    assert ends == {0, 4}
