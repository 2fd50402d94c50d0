"""Jobs whose commit is an operation, drivers that die, and executors that come afterwards."""

from __future__ import annotations

import itertools
from typing import Any, Final

import pytest

from omidpy import committers
from omidpy.base.timing.clock import ManualClock
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.publishing import ending, operation
from omidpy.committers.publishing.operation import Operations
from omidpy.committers.s3 import S3Committer
from omidpy.errors import CommitterError
from omidpy.fate.client import Fate, OperationHandle
from omidpy.fate.operation import Operation, Status
from omidpy.fate.table.store import TableFateStore
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore
from tests.machines.s3.crashing import Died
from tests.machines.s3.looking import Bucket
from tests.machines.s3.publishing import Mortal
from tests.machines.s3.server import S3Server

_folders = itertools.count()

FILES: Final = {"f0": b"0" * 3, "f1": b"1" * 10, "f2": b"2" * 20}


class World:
    """A store of operations and a destination with a file of before."""

    def __init__(self, s3: S3Server, bucket: Bucket) -> None:
        """Make them."""
        self.store = MemoryStore()
        self.bucket = bucket
        self.name = f"out{next(_folders)}x"
        self.folder = Folder(bucket.name, f"{self.name}/")
        self.objects = ObjectStore(StoreOptions(endpoint_url=s3.endpoint))
        self.operations = TableFateStore(self.store)
        bucket.put(f"{self.name}/old")

    def job(self, where: object = None, **options: Any) -> committers.Job:
        """Return a job that replaces the file of before."""
        return committers.job(
            self.folder.url,
            endpoint_url=self.objects.options.endpoint_url,
            store=self.store if where is None else where,
            **{"conflict": "replace", "inline_bytes": 5, "threads": 1, **options},
        )

    def run(self, job: committers.Job) -> None:
        """Write three files, two of them by uploads."""
        with job:
            for name, data in FILES.items():
                with job.task() as task, task.open(name) as file:
                    file.write(data)

    def run_mortal(self, mortal: Mortal) -> None:
        """Run the job until it dies: at a request, or at a call of the store of operations."""
        job = self.job(FaultyStore(self.store, mortal.reach))
        assert isinstance(job.committer, S3Committer)
        watch(job.committer.store, mortal)
        self.run(job)

    def recover(self, store: Store | None = None, objects: ObjectStore | None = None) -> None:
        """Run whatever operations there are, as somebody else and later."""
        clock = ManualClock()
        env = None if objects is None else operation.DriverEnvironment(objects)
        fate = Fate(env, TableFateStore(store or self.store), clock=clock)
        for _ in range(100):
            wait_s = fate.run_pending()
            if all(one.is_finished for one in self.all()):
                return
            clock.advance(wait_s or 1.0)
        raise AssertionError(f"not ended: {self.all()}")

    def all(self) -> list[Operation]:
        """Return every operation that was submitted, and not only made for that."""
        found = (one for one in self.operations.scan() if isinstance(one, Operation))
        return [one for one in found if one.status is not Status.NEW]

    def outcomes(self) -> list[str]:
        """Return how the operations have ended."""
        assert all(one.status is Status.SUCCESSFUL for one in self.all())
        return [one.result["outcome"] for one in self.all()]

    def see(self) -> str:
        """See all of the job or nothing of it, with nothing beside; return which."""
        found = {path.partition("-")[0]: path for path in self.bucket.visible(self.name)}
        prefix = f"{self.name}/"
        hidden = set(self.bucket.keys(prefix)) - {prefix + path for path in found.values()}
        assert [key for key in self.bucket.uploads() if key.startswith(prefix)] == []
        if "old" in found:
            assert (set(found), hidden) == ({"old"}, set())
            return "rolled back"
        assert {
            name: self.bucket.get(f"{self.name}/{path}") for name, path in found.items()
        } == FILES
        assert hidden == {f"{self.name}/_SUCCESS"}
        return "committed"


def watch(store: ObjectStore, mortal: Mortal) -> None:
    """Count the moments of a store's requests, too."""
    store.before_request = mortal.reach
    store.client.meta.events.register("after-call.s3", mortal.reach)


def here(_: Operations, fate: Fate, handle: OperationHandle) -> Any:
    """Run an operation in this thread, whose death is then that of all."""
    while (found := handle.read()) is not None and not found.is_finished:
        fate.run_pending()
    return handle.result(0)


def leave(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_planned: bool, **options: Any
) -> None:
    """Let a driver die before it writes its plan, or behind."""
    begin = ending.begin

    def die(*arguments: Any) -> str:
        if is_planned:
            begin(*arguments)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(ending, "begin", die)
        with pytest.raises(Died):
            world.run(world.job(**options))


def a_driver_that_was_taken_for_dead_publishes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its operation has ended; whatever the driver does then, nothing is visible."""
    begin = ending.begin

    def too_late(*arguments: Any) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(ending, "begin", begin)
            patch.setattr(operation, "PLAN_WAIT_MS", 0)
            world.recover()
        return begin(*arguments)

    monkeypatch.setattr(ending, "begin", too_late)
    with pytest.raises(CommitterError, match=r"was taken back and nothing.*its driver has died"):
        world.run(world.job(inline_bytes=1000))
    assert world.outcomes() == [world.see()] == ["rolled back"]
