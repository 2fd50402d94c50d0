"""Plans that are finished and taken back, and the steps of their operations: the rare ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from omidpy.base.timing.ages import Stamp
from omidpy.base.timing.clock import ManualClock
from omidpy.committers.choice import committer
from omidpy.committers.hadoop import leftovers
from omidpy.committers.heads import deciding
from omidpy.committers.heads import plan as plans
from omidpy.committers.heads.plan import OldFile, Plan
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore, Upload
from omidpy.committers.places import Folder
from omidpy.committers.publishing import ending, lateness, operation
from omidpy.committers.publishing.operation import (
    Abandon,
    Begin,
    DriverEnvironment,
    Operations,
    Publish,
    Sweep,
    Withdraw,
)
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import PendingFile, TaskId
from omidpy.errors import CommitterError
from omidpy.fate.admin import Admin, Outcome
from omidpy.fate.client import Fate
from omidpy.fate.step import Again, Done
from omidpy.storage.memory import MemoryStore

JOB: Final = "job_00001"
OUT: Final = Folder("lake", "out/")
A: Final = PendingFile("out/a", 1, data=b"a")
B: Final = PendingFile("out/b", 1, data=b"b")
PLAN: Final = Plan(JOB, "omidpy", OUT, (A, B), run="one")
KEY: Final = OUT.plan_key(JOB)


@pytest.fixture
def store(moto_bucket: str) -> ObjectStore:
    """Give a store that counts from nothing."""
    del moto_bucket
    return ObjectStore()


@pytest.fixture
def theirs(store: ObjectStore) -> ObjectStore:
    """Give what another process sees and does."""
    return ObjectStore(store.options)


def keys(store: ObjectStore) -> list[str]:
    """Return all that is there."""
    found = [one.key for one in store.objects(Folder("lake", ""))]
    return [key for key in found if not key.endswith("_omidpy/head.json")]


def refuse(store: ObjectStore, key: str, before: Callable[[], object] = lambda: None) -> None:
    """Let a store break down whenever a key is to be written."""

    def answer(params: dict[str, Any], **_: Any) -> Any:
        if not params["url_path"].endswith(key):
            return None
        from botocore.awsrequest import AWSResponse

        before()
        meta = {"HTTPStatusCode": 503}
        error = {"Code": "ServiceUnavailable", "Message": "down"}
        return AWSResponse("", 503, {}, None), {"Error": error, "ResponseMetadata": meta}

    store.client.meta.events.register("before-call.s3.PutObject", answer)


def write(store: ObjectStore, plan: Plan, **changes: Any) -> str:
    """Write a plan as its driver does; return its tag."""
    return ending.begin(store, replace(plan, **changes))


# -- finishing -------------------------------------------------------------------------------------


def test_a_job_that_was_committed_is_not_published_again(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """Its driver died behind `_SUCCESS`; since then readers have seen it, and one file has gone."""
    write(store, PLAN, old=(OldFile("out/old", "tag"),))
    for one in PLAN.files:
        theirs.put("lake", one.key, one.data or b"", job_id=JOB)
    theirs.put("lake", "out/_SUCCESS", b"{}", job_id=JOB)
    theirs.delete("lake", "out/a")
    ending.resume(store, ending.load(store, PLAN.address, "lake", KEY)[0])
    assert keys(store) == ["out/_SUCCESS", "out/b"]
    assert theirs.get("lake", "out/_SUCCESS")[0] == b"{}"


def test_what_can_never_be_is_said_before_what_may_pass(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """Of several failures one is named, and how many there were besides."""
    theirs.put("lake", "out/b", b"theirs")
    refuse(store, "/out/a")
    write(store, PLAN)
    with pytest.raises(
        CommitterError, match=r"nothing of it is visible: s3://lake/out/b exists .*\(and 1 more\)$"
    ):
        ending.publish(store, PLAN, ending.Effort(0.0))
    assert keys(store) == ["out/b"]


def test_one_failure_is_one(store: ObjectStore, theirs: ObjectStore) -> None:
    """And nothing is counted beside it."""
    theirs.put("lake", "out/b", b"theirs")
    write(store, PLAN)
    with pytest.raises(CommitterError, match=r"out/b exists and is not of job job_00001$"):
        ending.publish(store, PLAN, ending.Effort(0.0))


def test_a_manifest_that_is_there_after_all_makes_a_job_committed(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """The store carried the request out, and then said that it had not."""
    refuse(store, "_SUCCESS", lambda: theirs.put("lake", "out/_SUCCESS", b"{}", job_id=JOB))
    write(store, PLAN)
    with pytest.raises(
        CommitterError, match=rf"was committed, but could not write .* resume {PLAN.address}"
    ):
        ending.publish(store, PLAN, ending.Effort(0.0))
    assert keys(store) == ["out/_SUCCESS", KEY, "out/a", "out/b"]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_job_that_others_end_while_it_fails_is_no_half_one(
    store: ObjectStore, theirs: ObjectStore, monkeypatch: pytest.MonkeyPatch, *, is_resumed: bool
) -> None:
    """Nobody can resume it, or roll it back, since its plan is gone."""

    def end(*_: object) -> None:
        if is_resumed:
            ending.resume(theirs, PLAN)
        else:
            ending.take_back(theirs, *ending.load(theirs, PLAN.address, "lake", KEY))

    refuse(store, "/out/a")
    write(store, PLAN)
    monkeypatch.setattr(lateness, "refuse_if_late", end)  # behind the last look
    if is_resumed:
        assert ending.publish(store, PLAN, ending.Effort(0.0)).files == ("out/a", "out/b")
        assert keys(store) == ["out/_SUCCESS", "out/a", "out/b"]
        return
    with pytest.raises(CommitterError, match="rolled back by somebody else") as caught:
        ending.publish(store, PLAN, ending.Effort(0.0))
    assert not caught.value.plan
    assert keys(store) == []


# -- taking back -----------------------------------------------------------------------------------


def test_taking_back_asks_for_no_more_than_it_must(store: ObjectStore) -> None:
    """Small files have no upload, and no folder lies beside a plan that speaks of none."""
    etag = write(store, PLAN)
    before = store.counts()
    ending.take_back(store, PLAN, etag)
    sent = {name: count - before.get(name, 0) for name, count in store.counts().items()}
    # Of these the head of the destination is one that is read, and one that is written.
    assert sent == {"HeadObject": 3, "GetObject": 1, "PutObject": 2, "DeleteObject": 1}
    assert keys(store) == []


def test_uploads_alone_are_aborted_with_a_job(store: ObjectStore) -> None:
    """A small file is in its message and nowhere else."""
    made = committer("s3://lake/out", sweep="never", unique_names=False)
    assert isinstance(made, S3Committer)
    attempt = made.setup_task(TaskId(0))
    with attempt.open("f") as file:
        file.write(b"x")
    made.abort_job([made.commit_task(attempt)])
    # Its plan and the head of the destination, neither of which is there.
    assert made.store.counts() == {"GetObject": 2}


@pytest.mark.parametrize("is_again", [False, True])
def test_a_job_that_is_run_again_keeps_its_plan_whoever_takes_the_first_run_back(
    store: ObjectStore, theirs: ObjectStore, *, is_again: bool
) -> None:
    """He found the plan changed, stood still, and wrote his word over whatever was there by then.

    The second run then completed files without a plan that names them (C1); and where there was no
    second run, the plan of a job that had ended was there again.
    """
    etag = write(store, PLAN)
    theirs.put("lake", KEY, plans.encode(replace(PLAN, head="tag")), job_id=JOB)
    looks: list[str] = []

    def end(name: str) -> None:
        looks.append(name)
        if name != "PutObject" or looks.count("GetObject") < 1:
            return
        store.before_request = None
        ending.take_back(theirs, *ending.load(theirs, PLAN.address, "lake", KEY))
        if is_again:
            write(theirs, PLAN, run="two")

    store.before_request = end
    with pytest.raises(CommitterError):
        ending._say_rolling_back(store, PLAN, etag)
    assert store.before_request is None
    if is_again:
        assert ending.load(theirs, PLAN.address, "lake", KEY)[0] == replace(PLAN, run="two")
    else:
        assert keys(theirs) == []


def test_a_manifest_of_nobody_keeps_no_job_from_being_taken_back(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """It is not stamped, and so not ours, whatever it says."""
    theirs.put("lake", "out/_SUCCESS", b"nonsense")
    ending.take_back(store, PLAN, write(store, PLAN))
    assert keys(store) == ["out/_SUCCESS"]


def test_what_is_being_rolled_back_is_rolled_back_whatever_came_late(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """It was decided once, and is written no second time but in the head of the destination."""
    etag = write(store, PLAN, state="rolling back")
    theirs.put("lake", "out/_SUCCESS", b"{}", job_id=JOB)
    before = store.counts()["PutObject"]
    ending.take_back(store, replace(PLAN, state="rolling back"), etag)
    assert store.counts()["PutObject"] == before + 1
    assert keys(store) == ["out/_SUCCESS"]


def test_a_plan_that_has_gone_meanwhile_is_said_to_have_ended(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """Whoever resumed it was quicker."""
    etag = write(store, PLAN)
    theirs.delete("lake", KEY)
    theirs.put("lake", "out/a", b"a", job_id=JOB)
    with pytest.raises(CommitterError, match=r"there is no plan s3://.* finished or taken back"):
        ending.take_back(store, PLAN, etag)
    assert keys(store) == ["out/a"]


# -- what is left ----------------------------------------------------------------------------------


def test_uploads_are_chosen_by_their_age_and_job() -> None:
    """Equality is old enough, and each condition counts."""
    found = [Upload(f"out/f-{job}", "u", at) for job in (JOB, "job_00002") for at in (1, 2, 3)]

    def chosen(**by: Any) -> list[Upload]:
        return leftovers.matching(iter(found), **by)

    assert chosen(started_before_ms=2) == [found[0], found[1], found[3], found[4]]
    assert chosen(job_id=JOB, started_before_ms=1) == [found[0]]
    assert chosen(job_id=JOB) == found[:3]
    assert chosen() == found


def test_a_plan_that_ended_since_it_was_listed_speaks_of_nothing(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """Any other that cannot be read may speak of anything, and stops whoever aborts."""
    write(store, PLAN)
    upload_id = theirs.create_upload("lake", "out/f", JOB)
    found = list(theirs.uploads(OUT))

    def end(name: str) -> None:
        if name == "GetObject":
            theirs.delete("lake", KEY)

    store.before_request = end
    assert [one.upload_id for one in leftovers.abort(store, OUT, found).aborted] == [upload_id]
    theirs.put("lake", KEY, b"{")
    store.before_request = None
    with pytest.raises(CommitterError, match="cannot be read as a plan"):
        leftovers.abort(store, OUT, found)


def test_a_plan_at_the_top_of_a_bucket_keeps_what_it_speaks_of(store: ObjectStore) -> None:
    """Whoever aborts in a folder of it looks above, and whoever aborts in all of it looks below."""
    upload_id = store.create_upload("lake", "out/f", JOB)
    one = PendingFile("out/f", 1, upload_id=upload_id, etags=("aa",))
    top = Plan(JOB, "omidpy", Folder("lake", ""), (one,))
    ending.begin(store, top)
    for folder in (OUT, Folder("lake", "")):
        done = leftovers.abort(store, folder, list(store.uploads(OUT)))
        assert [address for _, address in done.planned] == [top.address]
    assert len(list(store.uploads(OUT))) == 1


# -- operations ------------------------------------------------------------------------------------


def begun(store: ObjectStore, submitted_ms: int = 0) -> Any:
    """Run the first step of an operation whose driver is long overdue."""
    seen = Stamp(operation.clock.boot, 0)
    step = Begin(OUT.url, JOB, StoreOptions(), submitted_ms, (seen,))
    return step.call(None, DriverEnvironment(store))  # type: ignore[arg-type]  # which it does not look at


def called(step: Any, store: ObjectStore) -> Any:
    """Call a step that reports how far it is to nobody."""
    return step.call(SimpleNamespace(progress=lambda _: None), DriverEnvironment(store))


def test_who_waits_for_a_dead_driver_has_the_last_word(store: ObjectStore) -> None:
    """P5: from then on no plan of it can be written."""
    begun(store)
    assert ending.load(store, PLAN.address, "lake", KEY)[0].state == "rolling back"
    with pytest.raises(CommitterError, match=r"was given up before .*; run it again"):
        ending.begin(store, PLAN)


@pytest.mark.parametrize("is_decided", [False, True])
def test_a_plan_that_others_have_changed_is_no_other_drivers(
    store: ObjectStore, theirs: ObjectStore, *, is_decided: bool
) -> None:
    """Its first try had no answer, and an operator came before the second: the id is its own."""
    etag = write(theirs, PLAN)
    if is_decided:
        deciding.roll_back(theirs, PLAN)
        ending._say_rolling_back(theirs, PLAN, etag)
    else:
        # Of its executor, which has listed anew what it replaces.
        theirs.put("lake", KEY, plans.encode(replace(PLAN, head="tag")), job_id=JOB)
    ending.begin(store, PLAN)
    if not is_decided:
        ending.publish(store, PLAN, ending.Effort(0.0))
        assert keys(store) == ["out/_SUCCESS", "out/a", "out/b"]
        return
    with pytest.raises(CommitterError, match="rolled back by somebody else"):
        ending.publish(store, PLAN, ending.Effort(0.0))
    assert keys(store) == [KEY]


def test_a_word_that_could_not_be_written_is_none(store: ObjectStore) -> None:
    """P5: the driver may write its plan yet, and so the step is run again."""
    refuse(store, KEY)
    with pytest.raises(CommitterError, match="could not write the object"):
        begun(store)


def test_a_plan_that_came_first_is_carried_out(store: ObjectStore, theirs: ObjectStore) -> None:
    """The driver wrote it between the look and the word; one of its files is the witness."""

    def come(name: str) -> None:
        if name == "PutObject" and KEY not in keys(theirs):
            write(theirs, PLAN)

    store.before_request = come
    following = begun(store)
    assert (following.run, following.witness) == ("one", "out/a")


def test_a_plan_of_no_files_has_no_witness(store: ObjectStore, theirs: ObjectStore) -> None:
    """And that its driver has written `_SUCCESS` does not end it: what it replaces is there yet."""
    write(store, PLAN, files=())
    theirs.put("lake", "out/_SUCCESS", b"{}", job_id=JOB)
    following = begun(store)
    assert isinstance(following, Publish)
    assert following.witness == ""


def test_a_plan_that_somebody_finishes_meanwhile_was_not_given_up(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """It came before the word, and was resumed by hand before the next look: look once more."""

    def hurry(name: str) -> None:
        if name == "PutObject" and not keys(theirs):
            write(theirs, PLAN)
        elif name == "GetObject" and store.counts()[name] == 4:
            ending.publish(theirs, PLAN, ending.Effort(0.0))

    store.before_request = hurry
    again = begun(store)
    assert isinstance(again, Again)
    found = again.step.call(None, DriverEnvironment(store))  # type: ignore[arg-type]  # which it does not look at
    assert isinstance(found, Done)
    assert found.result["outcome"] == operation.COMMITTED


def test_a_plan_that_came_and_went_before_the_word_was_carried_out(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """Its key was free again, the word was written, and the job that is committed was abandoned."""

    def hurry(name: str) -> None:
        if name == "PutObject" and not keys(theirs):
            write(theirs, PLAN)
            ending.resume(theirs, PLAN)

    store.before_request = hurry
    found = begun(store)
    assert isinstance(found, Done)
    assert found.result["outcome"] == operation.COMMITTED
    assert keys(store) == ["out/_SUCCESS", "out/a", "out/b"]


def test_a_plan_that_is_rolled_back_by_hand_is_withdrawn(store: ObjectStore) -> None:
    """Nobody completes what others see aborted."""
    write(store, PLAN, state="rolling back")
    step = Publish(OUT.url, JOB, StoreOptions(), "one", "out/a", sender="another")
    found = step.call(None, DriverEnvironment(store))  # type: ignore[arg-type]  # which it does not look at
    assert isinstance(found, Withdraw)
    assert found.why == "somebody has rolled it back"
    assert keys(store) == [KEY]


def test_a_plan_that_was_decided_against_is_withdrawn(store: ObjectStore) -> None:
    """Who rolled it back died before the plan said so."""
    write(store, PLAN)
    deciding.roll_back(store, PLAN)
    step = Publish(OUT.url, JOB, StoreOptions(), "one", "out/a", sender=store.id)
    found = called(step, store)
    assert isinstance(found, Withdraw)
    assert found.why == "somebody has rolled it back"


def test_the_head_of_a_destination_says_how_a_job_has_ended(store: ObjectStore) -> None:
    """Whatever is left of it, or was replaced since."""
    store.put("lake", "out/a", b"a", job_id=JOB)
    assert operation.ended(store, PLAN, "out/a", "one") == operation.COMMITTED
    deciding.roll_back(store, PLAN)
    assert operation.ended(store, PLAN, "out/a", "one") == operation.ROLLED_BACK
    deciding.commit(store, replace(PLAN, run="two"))
    assert operation.ended(store, PLAN, "", "two") == operation.COMMITTED
    assert operation.ended(store, PLAN, "out/a", "one") == operation.ROLLED_BACK
    assert operation.ended(store, PLAN, "") == operation.COMMITTED


def test_a_plan_that_cannot_be_carried_out_just_now_is_not_withdrawn(
    store: ObjectStore, theirs: ObjectStore
) -> None:
    """A store that is down comes back; only a file that can never be completed ends a job."""
    write(store, PLAN)
    refuse(store, "/out/a")
    step = Publish(OUT.url, JOB, StoreOptions(), "one", "out/a", sender=store.id)
    with pytest.raises(CommitterError, match="cannot be finished: could not write the object"):
        called(step, store)
    assert ending.load(store, PLAN.address, "lake", KEY)[0].state == "committing"
    theirs.put("lake", "out/a", b"theirs")
    found = called(step, theirs)
    assert isinstance(found, Withdraw)
    assert found.why == f"s3://lake/out/a exists and is not of job {JOB}"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_plan_is_waited_for_however_the_dates_of_machines_differ(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """One that was an hour ahead gave up jobs whose drivers lived; one behind waited for it."""
    driver, other = ManualClock(), ManualClock()
    other.step_wall(milliseconds=hours * 3_600_000)
    monkeypatch.setattr(operation, "clock", driver)
    submitted = Begin(OUT.url, JOB, StoreOptions(), driver.wall_ms(), (operation._now(),))
    for clock in (driver, other):
        monkeypatch.setattr(operation, "clock", clock)
        step: Any = submitted
        waited_s = 0.0
        while not isinstance(step, Abandon):
            pause = step.ready(cast("Any", None), DriverEnvironment(store))
            if pause is not None:
                waited_s += pause.seconds
                clock.advance(pause.seconds)
                continue
            found = called(step, store)
            step = found.step if isinstance(found, Again) else found
        assert waited_s == pytest.approx(operation.PLAN_WAIT_MS / 1000, abs=0.01)
        store.delete_many("lake", [KEY])


def test_what_may_come_late_is_waited_for_however_the_date_is_set(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C8: a file that came after a sweep would stay in view, of a job that was taken back."""
    clock = ManualClock()
    monkeypatch.setattr(operation, "clock", clock)
    write(store, PLAN)
    sweep = called(Withdraw(OUT.url, JOB, StoreOptions(), "one", "", is_late=True), store)
    hour_s, day_s = operation.LATE_WAIT_MS / 1000, operation.DATES_DIFFER_MS / 1000

    def left_s(one: Any) -> float:
        pause = one.ready(cast("Any", None), DriverEnvironment(store))
        return 0.0 if pause is None else float(pause.seconds)

    def by_date() -> Any:
        """Return what an omidpy has stored that went by the date alone."""
        old = operation.SweepByDate(OUT.url, JOB, StoreOptions(), "one", "", clock.wall_ms())
        return called(old, store)

    other = by_date()
    clock.step_wall(milliseconds=7_200_000)
    assert left_s(sweep) == hour_s
    assert left_s(other) == day_s - 3600.0
    clock.advance(hour_s)
    assert left_s(sweep) == 0.0
    elsewhere = ManualClock(wall_ms=clock.wall_ms())
    monkeypatch.setattr(operation, "clock", elsewhere)
    assert left_s(sweep) == left_s(other) == day_s - 7200.0
    elsewhere.advance(day_s - 7200.0)
    assert left_s(sweep) == left_s(other) == 0.0


@pytest.mark.parametrize(
    "first",
    [
        Begin(OUT.url, JOB, StoreOptions(), 0),
        Publish(OUT.url, JOB, StoreOptions(), "one", "out/a"),
        Withdraw(OUT.url, JOB, StoreOptions(), "one", "", is_late=False),
        Sweep(OUT.url, JOB, StoreOptions(), "one", "", 0),
        Abandon(OUT.url, JOB, StoreOptions()),
    ],
)
def test_an_operation_that_has_begun_is_not_failed_by_hand(store: ObjectStore, first: Any) -> None:
    """P5: it would end wherever it is, and nobody would finish the job or take it back."""

    def break_down(**_: Any) -> None:
        raise CommitterError("down")

    for name in ("GetObject", "ListMultipartUploads"):
        store.client.meta.events.register(f"before-call.s3.{name}", break_down)
    with Operations(MemoryStore()).opened() as kept:
        fate = Fate(DriverEnvironment(store), kept)
        handle = fate.submit(operation.KIND, first)
        fate.run_pending()
        told = Admin(kept).fail(handle.id)
        assert (told.outcome, "past its pivot" in told.text) == (Outcome.REFUSED, True)
        found = handle.read()
    assert found is not None
    assert not found.is_finished


@pytest.mark.parametrize(
    ("key", "job_id", "outcome"),
    [
        ("out/_SUCCESS", JOB, operation.COMMITTED),
        ("out/a", JOB, operation.COMMITTED),
        ("out/a", "job_00002", operation.ROLLED_BACK),
        ("out/b", JOB, operation.ROLLED_BACK),
    ],
)
def test_what_a_job_has_left_says_how_it_has_ended(
    store: ObjectStore, key: str, job_id: str, outcome: str
) -> None:
    """One that leaves no `_SUCCESS` has left its files, of which one is the witness."""
    store.put("lake", key, b"a", job_id=job_id)
    assert operation.ended(store, PLAN, "out/a") == outcome


def test_an_operation_is_known_by_the_plan_that_it_has_in_hand(store: ObjectStore) -> None:
    """Those of other jobs say nothing, and nor does one that has ended."""
    cells = MemoryStore()
    operations = Operations(cells)
    step = Begin(OUT.url, JOB, StoreOptions(), 0, (Stamp(operation.clock.boot, 0),))
    with operations.opened() as kept:
        fate = Fate(DriverEnvironment(store), kept)
        handle = fate.submit(operation.KIND, step, key=(operation.KIND, PLAN.address))
        found = operations.under_way(PLAN.address)
        assert found is not None
        assert found.id == handle.id
        assert operations.under_way(PLAN.address.replace(JOB, "job_00002")) is None
        while (one := handle.read()) is not None and not one.is_finished:
            fate.run_pending()
        assert operations.under_way(PLAN.address) is None


def test_an_operation_that_is_run_elsewhere_reaches_the_same_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An endpoint that only this process has in its environment travels with it."""
    reachable = operation._reachable
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert reachable(StoreOptions()).endpoint_url is None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://any")
    assert reachable(StoreOptions()).endpoint_url == "http://any"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3")
    assert reachable(StoreOptions(region="r")) == StoreOptions("http://s3", "r")
    assert reachable(StoreOptions("http://own")).endpoint_url == "http://own"


def test_the_plan_of_another_version_is_no_word(store: ObjectStore) -> None:
    """Nobody knows what it says, and so nobody goes on."""
    store.put("lake", KEY, json.dumps({"format": plans.FORMAT, "version": 3}).encode())
    with pytest.raises(CommitterError, match="finish it with the omidpy that began it"):
        begun(store)
