"""Jobs whose commit is an operation: whoever runs operations next ends what a driver has left."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

import omidpy
from omidpy.base.timing.clock import ManualClock
from omidpy.committers.hadoop import leftovers
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import parse_object, unique_name
from omidpy.committers.publishing import ending, operation
from omidpy.committers.publishing.operation import Operations
from omidpy.errors import CommitterError, StorageUnavailable, UsageError
from omidpy.fate.client import Fate
from omidpy.fate.operation import Status
from omidpy.fate.table.store import TableFateStore
from omidpy.opening import open_store
from omidpy.testing.fate.flaky import Flaky
from omidpy.testing.faults import FaultyStore, Point
from tests.machines.s3.crashing import Died
from tests.machines.s3.looking import Bucket
from tests.machines.s3.publishing import Mortal
from tests.machines.s3.recoverable import (
    World,
    a_driver_that_was_taken_for_dead_publishes_nothing,
    here,
    leave,
    watch,
)
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration


@pytest.fixture
def world(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> World:
    """Give a destination."""
    return World(s3, Bucket(s3))


def test_a_job_is_published_by_its_operation(world: World) -> None:
    """By the driver itself, where nobody else runs operations."""
    job = world.job()
    world.run(job)
    assert world.see() == "committed"
    assert world.outcomes() == ["committed"]
    assert job.manifest is not None
    assert len(job.manifest.files) == 3
    assert job.manifest.replaced == 1


def test_a_job_that_fails_before_its_commit_has_no_operation(world: World) -> None:
    """Nothing is to be finished."""

    def fail() -> None:
        with world.job() as job:
            job.task(str(Path(__file__)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (world.see(), world.all()) == ("rolled back", [])


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_driver_that_dies_anywhere_is_ended_by_the_next_executor(
    world: World, s3: S3Server, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """At each request, and at each call of the store of operations; and then nothing is left."""
    monkeypatch.setattr(Operations, "_result", here)
    living = Mortal()
    world.run_mortal(living)
    assert world.see() == "committed"
    ends = []
    for at in range(living.moments - 1, -1, -every):
        one = World(s3, world.bucket)
        with monkeypatch.context() as patch:
            with pytest.raises(Died):
                one.run_mortal(Mortal(at))
            patch.setattr(operation, "PLAN_WAIT_MS", 0)
            one.recover()
        if not one.all():
            # It never began to commit, and has left what `uploads abort` finds.
            assert leftovers.plan_addresses(one.objects, one.folder) == []
            leftovers.abort(one.objects, one.folder, list(one.objects.uploads(one.folder)))
            ends.append(one.see())
            continue
        assert one.outcomes() == [one.see()], at
        ends.append(one.see())
        one.recover()
        assert ends[-1] == one.see()
    assert (ends[0], ends[-1]) == ("committed", "rolled back")
    assert ends == sorted(ends)
    assert ends.count("committed") > 3


@pytest.mark.parametrize("is_planned", [True, False])
def test_what_other_jobs_upload_is_left_to_them(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_planned: bool
) -> None:
    """They may still run, in the same folder."""
    leave(world, monkeypatch, is_planned=is_planned)
    monkeypatch.setattr(operation, "PLAN_WAIT_MS", 0)
    key = world.folder.key(unique_name("theirs", "another-job"))
    world.objects.create_upload(world.folder.bucket, key, "another-job")
    world.recover()
    assert len(world.outcomes()) == 1
    assert [one.key for one in world.objects.uploads(world.folder)] == [key]


@pytest.mark.parametrize("is_planned", [True, False])
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.nightly)])
def test_an_executor_that_dies_anywhere_is_followed_by_another(
    world: World,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    every: int,
    *,
    is_planned: bool,
) -> None:
    """Both where there is a plan, and where there will be none."""
    for at in itertools.count(0, every):
        one = World(s3, world.bucket)
        leave(one, monkeypatch, is_planned=is_planned)
        monkeypatch.setattr(operation, "PLAN_WAIT_MS", 0)
        mortal = Mortal(at)
        objects = ObjectStore(one.objects.options)
        watch(objects, mortal)
        try:
            one.recover(FaultyStore(one.store, mortal.reach), objects)
            is_over = True
        except Died:
            is_over = False
        one.recover()
        assert one.outcomes() == [one.see()] == ["committed" if is_planned else "rolled back"]
        if is_over:
            assert at > 20
            return


def test_steps_stand_being_called_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes on after a crash calls again what was done."""
    leave(world, monkeypatch, is_planned=True)
    Fate(None, world.operations, caller=Flaky(), clock=ManualClock()).run_pending()
    assert world.outcomes() == [world.see()] == ["committed"]


def test_a_slow_driver_is_not_taken_for_dead(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that comes by before its plan is there waits."""
    begin = ending.begin

    def slow(*arguments: Any) -> str:
        fate = Fate(None, world.operations, clock=ManualClock())
        assert fate.run_pending() is not None
        (one,) = world.all()
        assert "for the plan s3://" in one.waiting
        return begin(*arguments)

    monkeypatch.setattr(ending, "begin", slow)
    world.run(world.job())
    assert world.see() == "committed"


def test_a_plan_that_somebody_has_resumed_is_not_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand, before an executor came by: its job is committed."""
    leave(world, monkeypatch, is_planned=True)
    (address,) = leftovers.plan_addresses(world.objects, world.folder)
    ending.resume(world.objects, ending.load(world.objects, address, *parse_object(address))[0])
    monkeypatch.setattr(operation, "PLAN_WAIT_MS", 0)
    world.recover()
    assert world.outcomes() == [world.see()] == ["committed"]


def test_a_plan_that_goes_between_two_looks_is_waited_for(world: World) -> None:
    """Whoever was told to go on, and finds nothing, has no right yet to say that there is none."""
    seen = (operation._now(),)
    begin = operation.Begin(world.folder.url, "weekly_report", world.objects.options, 0, seen)
    assert begin.call(cast("Any", None), None) == begin.again()
    assert leftovers.plan_addresses(world.objects, world.folder) == []


def test_a_driver_that_was_taken_for_dead_fails_and_nothing_is_visible(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is first at the plan's key has decided."""
    a_driver_that_was_taken_for_dead_publishes_nothing(world, monkeypatch)


def test_a_plan_whose_answer_was_lost_is_carried_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is told how its job ended, whatever it heard of its plan."""
    begin = ending.begin

    def unheard(*arguments: Any) -> str:
        begin(*arguments)
        raise CommitterError("no answer", retryable=True)

    monkeypatch.setattr(ending, "begin", unheard)
    world.run(world.job())
    assert world.see() == "committed"


def test_a_job_whose_upload_is_gone_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is the driver's to hear."""
    begin = ending.begin

    def abort_one(*arguments: Any) -> str:
        lose_an_upload(world)
        return begin(*arguments)

    monkeypatch.setattr(ending, "begin", abort_one)
    with pytest.raises(CommitterError, match=r"taken back.*the upload of .* is gone") as caught:
        world.run(world.job())
    assert caught.value.plan == ""
    assert world.see() == world.outcomes()[0] == "rolled back"


def test_a_job_whose_part_is_another_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No try can complete its upload, and each waited for the next one."""
    begin = ending.begin

    def spoil_one(*arguments: Any) -> str:
        (first, *_) = list(world.objects.uploads(world.folder))
        world.objects.upload_part(world.folder.bucket, first.key, first.upload_id, 1, b"other")
        return begin(*arguments)

    monkeypatch.setattr(ending, "begin", spoil_one)
    with pytest.raises(CommitterError, match=r"taken back.*the upload of .* is not what its task"):
        world.run(world.job())
    assert world.see() == world.outcomes()[0] == "rolled back"


def lose_an_upload(world: World) -> None:
    """Let somebody abort one of a job's uploads, so that it cannot be finished."""
    (first, *_) = list(world.objects.uploads(world.folder))
    world.objects.abort_upload(world.folder.bucket, first.key, first.upload_id)


def test_what_a_dead_executor_has_sent_is_removed_when_it_comes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C8: whoever comes next knows nothing of its requests but that there may be some."""
    leave(world, monkeypatch, is_planned=True)
    lose_an_upload(world)
    objects = ObjectStore(world.objects.options)
    sent = []

    def die(*arguments: Any, **options: Any) -> Any:
        sent.append((arguments, options))
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(objects, "put", die)
        with pytest.raises(Died):
            world.recover(objects=objects)

    fate = Fate(None, world.operations, clock=ManualClock())
    fate.run_pending()
    (one,) = world.all()
    assert "requests of another process" in one.waiting
    assert set(world.bucket.visible(world.name)) == {"old"}

    ((arguments, options),) = sent
    world.objects.put(*arguments, **options)
    assert len(world.bucket.visible(world.name)) == 2
    monkeypatch.setattr(operation, "LATE_WAIT_MS", 0)
    world.recover()
    assert world.outcomes() == [world.see()] == ["rolled back"]


def test_a_driver_that_had_no_answer_says_that_its_job_is_not_finished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C8 again: its own request may be carried out later; what is there goes at once."""

    def look(_: Operations, fate: Fate, handle: Any) -> Any:
        lose_an_upload(world)
        fate.run_pending()
        return handle.result(0)

    monkeypatch.setattr(ObjectStore, "may_be_late", lambda *_: True)
    monkeypatch.setattr(Operations, "_result", look)
    with pytest.raises(CommitterError, match="is not finished yet"):
        world.run(world.job())
    assert set(world.bucket.visible(world.name)) == {"old"}
    monkeypatch.setattr(operation, "LATE_WAIT_MS", 0)
    world.recover()
    assert world.outcomes() == [world.see()] == ["rolled back"]


@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.nightly)])
def test_who_takes_a_job_back_may_die_anywhere(
    world: World, s3: S3Server, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """The next one takes back what is left."""
    monkeypatch.setattr(operation, "LATE_WAIT_MS", 0)
    for at in itertools.count(0, every):
        one = World(s3, world.bucket)
        leave(one, monkeypatch, is_planned=True)
        lose_an_upload(one)
        mortal = Mortal(at)
        objects = ObjectStore(one.objects.options)
        watch(objects, mortal)
        try:
            one.recover(FaultyStore(one.store, mortal.reach), objects)
            is_over = True
        except Died:
            is_over = False
        one.recover()
        assert one.outcomes() == [one.see()] == ["rolled back"], at
        if is_over:
            assert at > 20
            return


def test_the_plan_of_a_later_run_is_not_swept(world: World) -> None:
    """Somebody has rolled the first run back by hand, and run the job again."""
    later = Plan("weekly_report", "omidpy", world.folder, (), run="second")
    ending.begin(world.objects, later)
    first = operation.Sweep(
        world.folder.url, "weekly_report", world.objects.options, "first", "", since_ms=0
    )
    first.call(cast("Any", None), None)
    found, _ = ending.load(world.objects, later.address, *parse_object(later.address))
    assert found.state == "committing"


def test_a_driver_gives_up_waiting_and_the_operation_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job is not aborted behind the operation's back."""
    with monkeypatch.context() as patch:
        patch.setattr(operation, "RESULT_WAIT_S", 0.0)
        patch.setattr(Operations, "_result", lambda _, __, handle: handle.result(0))
        job = world.job()
        with pytest.raises(CommitterError, match=r"is not finished yet: .*`omidpy fate") as caught:
            world.run(job)
        assert caught.value.plan.startswith("s3://")
        with pytest.raises(CommitterError, match="is in the hands of operation"):
            job.committer.abort_job([])
    world.recover()
    assert world.see() == "committed"


def test_a_second_run_of_a_job_is_told_that_another_was_quicker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends what the first has left, and fails."""
    leave(world, monkeypatch, is_planned=True, job_id="weekly_report")
    with pytest.raises(CommitterError, match="another run of the job was quicker"):
        world.run(world.job(job_id="weekly_report"))
    assert world.outcomes() == [world.see()] == ["committed"]


def test_a_store_that_is_down_before_the_operation_is_kept_aborts_the_job(world: World) -> None:
    """Nothing was begun."""

    def down(point: Point) -> None:
        raise StorageUnavailable(point.name)

    store = FaultyStore(world.store, down)
    with pytest.raises(StorageUnavailable):
        world.run(world.job(store))
    assert world.see() == "rolled back"


@pytest.mark.parametrize("where", [5, "nonsense:", object()])
def test_what_is_no_store_is_refused(world: World, where: object) -> None:
    """At once, or when it is opened."""
    if isinstance(where, str):
        with pytest.raises(omidpy.ConfigError, match="none of: sqlite"):
            world.run(world.job(where))
        assert world.see() == "rolled back"
    else:
        with pytest.raises(UsageError, match="must be the address of a store, an open one"):
            world.job(where)


# -- processes -------------------------------------------------------------------------------------

_KILLED = """
import sys
import omidpy.committers
from omidpy.committers.publishing import ending
from omidpy.testing.faults import kill

url, address, at = sys.argv[1:]
job = omidpy.committers.job(address, store=url, inline_bytes=0)
left = int(at)
def count(operation):
    global left
    left -= 1
    if not left:
        kill()
with job:
    with job.task() as task, task.open("f0") as file:
        file.write(b"000")
    with job.task() as task, task.open("f1") as file:
        file.write(b"111")
    job.committer.store.before_request = count
"""


@pytest.mark.parametrize(
    "at", [4, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3, 5, 6, 7, 8))]
)
def test_fate_run_ends_what_a_killed_driver_has_left(
    at: int, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGKILL; `omidpy fate run` is what somebody runs anyway."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    bucket = Bucket(s3)
    url = f"sqlite:///{tmp_path / 'x.db'}"
    omidpy.connect(url).close()
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, url, f"s3://{bucket.name}/out", str(at)],
        check=False,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL
    script = (
        "import sys\n"
        "from omidpy.committers.publishing import operation\n"
        "operation.PLAN_WAIT_MS = 0\n"
        "from omidpy.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    words = ("--store", url, "--lease", "1s")
    with subprocess.Popen([sys.executable, "-c", script, "fate", "run", *words]) as executor:
        with closing(open_store(url)) as store:
            operations = TableFateStore(store)
            (one,) = list(operations.scan())
            assert Fate(None, operations).get(one.id).wait(60) is Status.SUCCESSFUL
        executor.send_signal(signal.SIGTERM)
        assert executor.wait(60) == 0
    assert len(bucket.visible("out")) == (0 if at == 1 else 2)
    assert bucket.uploads() == []
    assert bucket.keys("out/_omidpy") == []
