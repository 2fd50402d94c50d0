"""Jobs of one destination, `s3://lake/out`, that are stopped in the middle while others act.

The bucket is the one that moto plays in this process (`moto_bucket`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from omidpy import committers
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.publishing import ending
from omidpy.committers.s3 import S3Committer

OUT: Final = Folder("lake", "out/")


def begun(*names: str, content: bytes = b"x", **options: Any) -> committers.Job:
    """Begin a job that has written some files."""
    options = {"threads": 1, **options}
    job = committers.job("s3://lake/out", **options).__enter__()
    for name in names:
        with job.task() as task, task.open(name) as file:
            file.write(content)
    return job


def run(*names: str, **options: Any) -> committers.Job:
    """Run a job."""
    job = begun(*names, **options)
    job.commit()
    return job


def store_of(job: committers.Job) -> ObjectStore:
    """Return the store that a job writes through."""
    assert isinstance(job.committer, S3Committer)
    return job.committer.store


def before_put(job: committers.Job, part: str, act: Callable[[], object]) -> None:
    """Let others act once, before a job sends a write of a key that has `part` in it."""
    left = [act]

    def before(params: dict[str, Any], **_: Any) -> None:
        if left and part in params["url_path"]:
            left.pop()()

    store_of(job).client.meta.events.register("before-call.s3.PutObject", before)


def visible(store: ObjectStore) -> list[str]:
    """Return the names of files that readers see, without the ids of jobs."""
    paths = [OUT.below(one.key) for one in store.objects(OUT)]
    return sorted(path.partition("-")[0] for path in paths if not path.startswith("_"))


def resume(store: ObjectStore, job: committers.Job) -> None:
    """Finish a job as an operator does."""
    key = OUT.plan_key(job.id)
    ending.resume(store, ending.load(store, f"s3://lake/{key}", "lake", key)[0])


def take_back(store: ObjectStore, job: committers.Job) -> None:
    """Roll a job back as an operator does."""
    key = OUT.plan_key(job.id)
    ending.take_back(store, *ending.load(store, f"s3://lake/{key}", "lake", key))
