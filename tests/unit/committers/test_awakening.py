"""What is left to do of a job that others have ended: each case by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from omidpy import committers
from omidpy.committers.heads import looking
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.publishing import ending
from omidpy.committers.values import PendingFile
from omidpy.errors import CommitterError
from tests.machines.s3.crashing import Died
from tests.machines.s3.jobs import OUT, before_put, begun, resume, run, store_of, visible


@pytest.fixture
def store(moto_bucket: str) -> ObjectStore:
    """Give what somebody outside sees."""
    del moto_bucket
    return ObjectStore()


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Give what lets an hour pass."""
    now = [0.0]
    monkeypatch.setattr("omidpy.committers.heads.standing.elapsed_s", lambda: now[0])

    def hour() -> None:
        now[0] += 3600.0

    return hour


def after_put(job: committers.Job, part: str, act: Callable[[], object]) -> None:
    """Let others act once, when the answer to a write of a key with `part` in it has arrived."""
    left = [act]

    def after(context: dict[str, Any], **_: Any) -> None:
        if left and context.pop("written", "").endswith(part):
            left.pop()()

    def before(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["written"] = params["url_path"]

    events = store_of(job).client.meta.events
    events.register("before-call.s3.PutObject", before)
    events.register("after-call.s3.PutObject", after)


def die() -> None:
    """End the process."""
    raise Died


def success_of(store: ObjectStore) -> str:
    """Return which job's `_SUCCESS` is there."""
    return str(json.loads(store.get("lake", "out/_SUCCESS")[0])["jobId"])


def test_who_finishes_a_job_leaves_the_manifest_of_a_later_one(store: ObjectStore) -> None:
    """The driver died behind its decision; another job was committed, and then it was resumed."""
    first = begun("a")
    before_put(first, "_SUCCESS", die)
    with pytest.raises(Died):
        first.commit()
    second = run("b")
    resume(store, first)
    assert success_of(store) == second.id
    assert visible(store) == ["a", "b"]


def test_who_finishes_a_job_writes_its_manifest_over_that_of_an_earlier_one(
    store: ObjectStore,
) -> None:
    """It is the last one's, whoever writes it."""
    run("a")
    second = begun("b")
    before_put(second, "_SUCCESS", die)
    with pytest.raises(Died):
        second.commit()
    resume(store, second)
    assert success_of(store) == second.id


def test_a_later_manifest_that_comes_between_look_and_write_stays(store: ObjectStore) -> None:
    """The write carries the tag of what was looked at."""
    first = begun("a")
    before_put(first, "_SUCCESS", die)
    with pytest.raises(Died):
        first.commit()
    operator, later = begun(), list[committers.Job]()
    plan_key = OUT.plan_key(first.id)
    before_put(operator, "_SUCCESS", lambda: later.append(run("b")))
    resumer = store_of(operator)
    ending.resume(resumer, ending.load(resumer, f"s3://lake/{plan_key}", "lake", plan_key)[0])
    assert success_of(store) == later[0].id


def test_a_driver_that_wakes_behind_its_decision_looks_before_its_manifest(
    store: ObjectStore, sleep: Callable[[], None]
) -> None:
    """Its job was finished and replaced meanwhile: `_SUCCESS` is not its any more."""
    later: list[committers.Job] = []

    def happen() -> None:
        sleep()
        resume(ObjectStore(), job)
        later.append(run("b", conflict="replace"))

    job = begun("a")
    after_put(job, "head.json", happen)
    job.commit()
    assert success_of(store) == later[0].id
    assert visible(store) == ["b"]


def test_a_driver_that_wakes_removes_no_plan_of_another_run(
    store: ObjectStore, sleep: Callable[[], None]
) -> None:
    """Its job was finished, replaced, and is run again under its id, just now."""
    second: list[committers.Job] = []

    def happen() -> None:
        sleep()
        resume(ObjectStore(), job)
        run("new", conflict="replace")
        second.append(begun("a", job_id="job_00001"))
        before_put(second[0], "_SUCCESS", die)
        with pytest.raises(Died):
            second[0].commit()

    job = begun("a", job_id="job_00001")
    after_put(job, "_SUCCESS", happen)
    job.commit()
    assert looking.planned_jobs(store, OUT) == ["job_00001"]
    resume(store, second[0])
    assert visible(store) == ["a", "new"]


def test_who_takes_a_job_back_and_sleeps_removes_no_plan_of_another_run(
    store: ObjectStore, sleep: Callable[[], None]
) -> None:
    """Another operator was quicker, and the job is run again under its id, just now."""
    one = PendingFile("out/a", 1, data=b"a", stamp="one")
    plan = Plan("job_00001", "omidpy", OUT, (one,), run="one", created_ms=1)
    etag = ending.begin(store, plan)
    left: list[dict[str, Any]] = [{}]

    def happen(params: dict[str, Any], **_: Any) -> None:
        if not left or not params["url_path"].endswith("out/a"):
            return
        left.pop()
        sleep()
        key = OUT.plan_key("job_00001")
        ending.take_back(store, *ending.load(store, plan.address, "lake", key))
        second = begun("b", job_id="job_00001")
        before_put(second, "_SUCCESS", die)
        with pytest.raises(Died):
            second.commit()

    sleeper = ObjectStore()
    sleeper.client.meta.events.register("before-call.s3.HeadObject", happen)
    ending.take_back(sleeper, plan, etag)
    assert not left
    assert looking.planned_jobs(store, OUT) == ["job_00001"]
    assert visible(store) == ["b"]


def test_what_is_published_again_under_the_name_of_an_old_file_stays(store: ObjectStore) -> None:
    """Equal bytes have equal tags: what the dead job was to remove is another's now."""
    run("x", "y", unique_names=False)
    first = begun("z", conflict="replace", unique_names=False)
    before_put(first, "_SUCCESS", die)
    with pytest.raises(Died):
        first.commit()
    run("x", conflict="replace", unique_names=False)
    assert visible(store) == ["x"]
    resume(store, first)
    assert visible(store) == ["x"]


def test_a_driver_that_is_behind_removes_what_others_have_listed(store: ObjectStore) -> None:
    """The head had moved on when its job was decided for it; who did so died at once."""

    def happen() -> None:
        run("b")
        operator = begun()
        before_put(operator, "_SUCCESS", die)
        key = OUT.plan_key(job.id)
        with pytest.raises(Died):
            ending.resume(
                store_of(operator),
                ending.load(store, f"s3://lake/{key}", "lake", key)[0],
            )

    run("old")
    job = begun("a", conflict="replace")
    before_put(job, "head.json", happen)
    job.commit()
    assert visible(store) == ["a"]
    assert looking.planned_jobs(store, OUT) == []


def test_an_unreadable_list_is_said_and_removes_nothing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published nobody knows then; the plan stays."""
    monkeypatch.setattr("omidpy.committers.heads.listing.INLINE_BYTES", 0)
    first = begun("a")
    before_put(first, "_SUCCESS", die)
    with pytest.raises(Died):
        first.commit()
    for one in store.objects(OUT):
        if "/lists/" in one.key:
            store.put("lake", one.key, b"nothing")
    with pytest.raises(CommitterError, match="cannot be read as a list of files"):
        resume(store, first)
    assert visible(store) == ["a"]
    assert looking.planned_jobs(store, OUT) == [first.id]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 8),
        ({"conflict": "fail"}, 9),
        ({"conflict": "fail", "scope": "partitions"}, 9),
        ({"conflict": "replace"}, 9),
        ({"conflict": "replace", "scope": "partitions"}, 9),
        ({"inline_bytes": 0}, 14),
        ({"committer": "directory"}, 14),
    ],
    ids=str,
)
def test_a_job_that_nobody_disturbs_asks_for_nothing_more(
    store: ObjectStore, options: dict[str, Any], count: int
) -> None:
    """Two requests for the head, beside the plan, three files, `_SUCCESS` and what it replaces."""
    if options.get("conflict") == "replace":
        run("p=1/old")
    job = run("p=1/a", "p=1/b", "p=1/c", **options)
    assert store_of(job).request_count == count
    assert len(visible(store)) == 3
