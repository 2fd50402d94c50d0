"""A job, one of whose requests meets with trouble: what may come of it, wherever its store is.

    404, 409, 412, 503   the answer to a request that was not carried out
    lost                 it was carried out, has no answer, and is sent again
    silent               so is every try
    twice                it arrives twice

Stores that are asked for nothing else do not lie so; those behind proxies, gateways and caches do.
A job that says that it was committed is there whole, one that does not is nowhere or names its
plan, which an operator ends later, and nothing of other jobs is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

import pytest

from omidpy.committers.contents import reading
from omidpy.committers.heads import looking
from omidpy.committers.jobs import Job
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder, owner
from omidpy.committers.publishing import ending
from omidpy.committers.s3 import S3Committer
from omidpy.errors import CommitterError
from tests.machines.s3.pairs import APPEND, RESUME, Kind, Model, State, names

Trouble = int | Literal["lost", "silent", "twice"]
TROUBLES: Final[tuple[Trouble, ...]] = (404, 409, 412, 503, "lost", "silent", "twice")


@dataclass(frozen=True)
class Scene:
    """A destination, and how it is looked at when nothing is wrong."""

    folder: Folder
    store: Callable[[], ObjectStore]
    """Gives the store of another process."""
    committer: type[S3Committer] = S3Committer
    """Of its jobs."""

    def begin(self, store: ObjectStore, kind: Kind, who: str) -> Job:
        """Begin a job that has written its files."""
        made = self.committer(
            self.folder, store, conflict=kind.conflict, scope=kind.scope, inline_bytes=1
        )
        job = Job(made).__enter__()
        with job.task() as task:
            for path in kind.files(who):
                with task.open(path) as file:
                    file.write(b"x" if path.endswith("s") else b"xx")
        return job

    def visible(self) -> State:
        """Return what is in the folder."""
        found = (self.folder.below(one.key) for one in self.store().objects(self.folder))
        return names(path for path in found if not path.startswith("_"))

    def published(self) -> State:
        """Return what the head says."""
        return names(one.path for one in reading.state_of(self.store(), self.folder))

    def plans(self) -> list[str]:
        """Return the jobs that have not ended."""
        return looking.planned_jobs(self.store(), self.folder)

    def end(self, operators: Iterable[Kind]) -> None:
        """Let an operator end what has not ended; who cannot finish a job takes it back."""
        failed: CommitterError | None = None
        for operator in operators:
            store = self.store()
            for job_id in self.plans():
                key = self.folder.plan_key(job_id)
                address = f"s3://{self.folder.bucket}/{key}"
                plan, etag = ending.load(store, address, self.folder.bucket, key)
                try:
                    if operator is RESUME:
                        ending.resume(store, plan)
                    else:
                        ending.take_back(store, plan, etag)
                except CommitterError as error:
                    failed = error
        assert self.plans() == [], failed


def check(
    scene: Scene,
    kind: Kind,
    troubled: ObjectStore,
    operators: Iterable[Kind],
    what: object,
    *,
    begins_twice: bool = False,
) -> bool:
    """Run a job over a store that gets into trouble, and judge; say whether it was committed.

    Args:
        scene: Where.
        kind: What the job does.
        troubled: What it writes through.
        operators: Who ends it, one after the other, if it has not ended.
        what: To be named where it goes wrong.
        begins_twice: Whether a request may arrive twice of which its sender knows nothing.

    Raises:
        AssertionError: It is half there, or said to be what it is not.
    """
    before = scene.visible()
    job: Job | None = None
    try:
        job = scene.begin(troubled, kind, "a")
        job.commit()
        said = None
    except CommitterError as error:
        said = error
    if plans := scene.plans():
        assert said is not None, f"{what}: {plans} are left of a job that has ended"
        assert said.plan, f"{what}: {plans} are left, and not named: {said}"
        scene.end(operators)
    is_committed = job is not None and looking.read(scene.store(), scene.folder).head.is_committed(
        job.id
    )
    assert said is not None or is_committed, f"{what}: it was acknowledged"
    if said is not None and is_committed:
        assert said.plan, f"{what}: it was committed, and {said}"
    model = Model(before)
    wanted = model.after(kind, "a")[1].state if is_committed else before
    assert scene.published() == wanted, f"{what}: {said}"
    assert scene.visible() == wanted, f"{what}: {said}"
    if said is None:
        left = [one.key for one in scene.store().uploads(scene.folder)]
        # Of an upload that a network has begun twice its driver knows nothing; its name tells whose
        # it is, to `uploads abort --job` or `sweep="always"`.
        is_known = begins_twice and job is not None and all(owner(one) == job.id for one in left)
        assert left == [] or is_known, f"{what}: uploads {left} are left"
    # Whatever has happened, the next job finds a destination like others.
    scene.begin(scene.store(), APPEND, "next").commit()
    assert scene.visible() == scene.published() == wanted | set(APPEND.files("next")), what
    return is_committed


def quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between tries."""
    monkeypatch.setattr("omidpy.committers.objects.answers.CONFLICT_PAUSE_S", 0.0)
    monkeypatch.setattr("omidpy.committers.heads.deciding.PAUSE_S", 0.0)
    monkeypatch.setattr("botocore.endpoint.time", _Timeless())


class _Timeless:
    """What boto3 waits with between its tries."""

    @staticmethod
    def sleep(_seconds: float) -> None:
        """Go on at once."""
