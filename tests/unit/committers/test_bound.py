"""How long does it take to end a job whose driver was killed?  By a clock turned by hand."""

from __future__ import annotations

from typing import Any, Final

import pytest

from omidpy import committers
from omidpy.base.timing.clock import ManualClock
from omidpy.committers.heads import looking
from omidpy.committers.objects import client
from omidpy.committers.objects import store as stores
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.publishing import ending, operation
from omidpy.committers.publishing.operation import ENDED_WITHIN_S, DriverEnvironment, Operations
from omidpy.fate.client import Fate, OperationHandle
from omidpy.fate.operation import Operation, Status
from omidpy.fate.table.store import TableFateStore
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore
from tests.machines.s3.crashing import Died
from tests.machines.s3.jobs import store_of
from tests.machines.s3.publishing import Mortal

JOBS: Final = 6


@pytest.fixture
def clock(moto_bucket: str, monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Give the clock of all processes."""
    del moto_bucket
    made = ManualClock()
    monkeypatch.setattr(operation, "clock", made)
    return made


def leave(store: MemoryStore, clock: ManualClock, folder: str, at: str) -> None:
    """Let a driver die: behind the word that there is a job, its plan, or in its operation."""
    mortal = Mortal()

    def begin(*arguments: Any) -> str:
        mortal.is_dead = at == "submitted"
        made = "" if mortal.is_dead else publish(*arguments)
        mortal.is_dead = mortal.is_dead or at == "planned"
        mortal.reach()
        return made

    def run(_: Operations, fate: Fate, handle: OperationHandle) -> Any:
        del fate, handle
        requests = store_of(job)
        env = DriverEnvironment(requests)
        driver = Fate(env, operations_of(store, mortal), {"PUBLISH": 1}, clock=clock)
        requests.before_request = lambda name: die() if name == "PutObject" else None
        while True:
            driver.run_pending()

    def die() -> None:
        mortal.is_dead = True
        mortal.reach()

    publish = ending.begin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ending, "begin", begin)
        patch.setattr(Operations, "_result", run)
        job = committers.job(f"s3://lake/{folder}", store=store, threads=1, inline_bytes=0)
        with pytest.raises(Died), job, job.task() as task, task.open("a") as file:
            file.write(b"x")


def operations_of(store: MemoryStore, mortal: Mortal) -> TableFateStore:
    """Return the operations of a store that a dead process does not reach any more."""
    return TableFateStore(FaultyStore(store, mortal.reach))


def test_jobs_of_killed_drivers_are_ended_within_the_bound(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six, four were not finished after 80 s: each look of each made another client of boto3."""
    store = MemoryStore()
    for number in range(JOBS):
        leave(store, clock, f"out{number}", ("submitted", "planned", "running")[number % 3])
    clients: list[Any] = []

    def counted(options: client.StoreOptions) -> Any:
        clients.append(client.new_client(options))
        return clients[-1]

    monkeypatch.setattr(stores, "new_client", counted)
    monkeypatch.setattr(stores, "_copies", type(stores._copies)())
    operations = TableFateStore(store)
    executor = Fate(None, operations, clock=clock)
    began_s = clock.monotonic_s()
    looks = 0
    while not all(one.is_finished for one in all_of(operations)):
        clock.advance(executor.run_pending() or 0.5)
        looks += 1
        assert clock.monotonic_s() - began_s <= ENDED_WITHIN_S, all_of(operations)
    assert len(clients) == 1
    assert [one.status for one in all_of(operations)] == [Status.SUCCESSFUL] * JOBS
    seen = ObjectStore()
    for number in range(JOBS):
        folder = Folder("lake", f"out{number}/")
        epoch = looking.read(seen, folder).head.epoch
        assert epoch == (0 if number % 3 == 0 else 1)
        assert list(seen.uploads(folder)) == []
    assert looks < 400


def all_of(operations: TableFateStore) -> list[Operation]:
    """Return every operation that was submitted."""
    found = (one for one in operations.scan() if isinstance(one, Operation))
    return [one for one in found if one.status is not Status.NEW]


def test_the_bound_is_what_its_parts_are() -> None:
    """A plan is waited for, then a lease is, and then the next look comes."""
    parts_s = operation.PLAN_WAIT_MS / 1000 + 10.0 + operation.LONGEST_LOOK_S
    assert parts_s <= ENDED_WITHIN_S


def test_a_plan_is_looked_for_less_and_less_often(clock: ManualClock) -> None:
    """And at the last moment once more."""
    store = ObjectStore()
    first = operation.Begin(
        "s3://lake/out", "job_00001", store.options, clock.wall_ms(), (operation._now(),)
    )
    pauses = []
    while (pause := first.ready(None, DriverEnvironment(store))) is not None:  # type: ignore[arg-type]  # unused
        pauses.append(pause.seconds)
        clock.advance(pause.seconds)
    assert pauses[0] == operation.LOOK_EVERY_S
    assert max(pauses) == operation.LONGEST_LOOK_S
    assert sum(pauses) == pytest.approx(operation.PLAN_WAIT_MS / 1000, abs=0.01)
    assert len(pauses) < 40


def test_an_earlier_run_that_was_committed_is_not_taken_for_this_one(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was slow to write its plan was told "committed", and nothing of it was there.

    Its operation had waited in vain, and found the id of the job committed: by a run of last week.
    """
    cells = MemoryStore()

    def job(name: str) -> committers.Job:
        made = committers.job(
            "s3://lake/out", store=cells, job_id="job_00001", threads=1, sweep="never"
        ).__enter__()
        with made.task() as task, task.open(name) as file:
            file.write(b"x")
        return made

    job("first").commit()
    begin, slept = ending.begin, list[str]()

    def sleep(*given: Any) -> str:
        if not slept:
            slept.append("for longer than its operation waits")
            clock.advance(operation.PLAN_WAIT_MS / 1000 + 1)
            other = Fate(None, TableFateStore(cells), clock=clock)
            while not all(one.is_finished for one in all_of(TableFateStore(cells))):
                clock.advance(other.run_pending() or 0.5)
        return begin(*given)

    monkeypatch.setattr(ending, "begin", sleep)
    second = job("second")
    second.commit()
    names = [one.key.partition("-")[0] for one in ObjectStore().objects(Folder("lake", "out/"))]
    assert names == ["out/_SUCCESS", "out/_omidpy/head.json", "out/first", "out/second"]
    assert slept
