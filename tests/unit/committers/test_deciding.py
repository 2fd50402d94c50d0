"""Jobs of one destination, one in the middle of the other: what became of each, and of its files.

Each test stops a job before one of its requests, and lets others act there.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.exceptions import ReadTimeoutError

from omidpy import committers
from omidpy.committers.contents import reading
from omidpy.committers.heads import deciding, listing, looking
from omidpy.committers.heads import head as heads
from omidpy.committers.heads.head import Head, head_key
from omidpy.committers.heads.plan import OldFile, Plan
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.publishing import ending
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import PendingFile
from omidpy.errors import CommitterError
from omidpy.storage.memory import MemoryStore
from tests.machines.s3.crashing import Death, Died
from tests.machines.s3.fake import FakeStore, Objects
from tests.machines.s3.jobs import (
    OUT,
    before_put,
    begun,
    resume,
    run,
    store_of,
    take_back,
    visible,
)


@pytest.fixture
def store(moto_bucket: str) -> ObjectStore:
    """Give what somebody outside sees."""
    del moto_bucket
    return ObjectStore()


# -- what is decided -------------------------------------------------------------------------------


def test_a_committed_job_is_not_rolled_back_whoever_wrote_the_last_manifest(
    store: ObjectStore,
) -> None:
    """It had removed what it replaced, and died; then its own files were taken back, too."""
    run("old")
    job = begun("new", conflict="replace")
    store_of(job).client.meta.events.register("before-call.s3.DeleteObjects", _die)
    with pytest.raises(Died):
        job.commit()
    (old,) = [one.key for one in store.objects(OUT) if "old" in one.key]
    store.delete("lake", old)
    run("appended")
    assert store.get("lake", "out/_SUCCESS")[0]
    with pytest.raises(CommitterError, match="is committed, and can only be finished"):
        take_back(store, job)
    with pytest.raises(CommitterError, match="is committed, and can only be finished"):
        job.committer.abort_job([])
    assert visible(store) == ["appended", "new"]
    resume(store, job)
    assert visible(store) == ["appended", "new"]


def _die(**_: Any) -> None:
    raise Died


def test_a_driver_whose_job_is_rolled_back_while_it_publishes_commits_nothing(
    store: ObjectStore,
) -> None:
    """Whoever rolls back decides first; the driver finds that before anything else."""
    job = begun("a", "b")
    before_put(job, "head.json", lambda: take_back(store, job))
    with pytest.raises(CommitterError, match="rolled back by somebody else"):
        job.commit()
    assert visible(store) == []
    assert looking.read(store, OUT).head.epoch == 0


def test_a_driver_that_wakes_behind_a_rollback_names_what_may_still_come(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that all is taken back, where a request of its own was still on its way."""
    job = begun("a", "b")
    before_put(job, "head.json", lambda: take_back(store, job))
    monkeypatch.setattr(store_of(job), "may_be_late", lambda _, key: key.startswith("out/b"))
    with pytest.raises(CommitterError, match=r"write out/b\S* .*may still be carried out"):
        job.commit()
    assert visible(store) == []


def test_what_may_be_removed_by_hand_is_no_file_of_a_later_run(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the job's id in its name, too, by which it used to be condemned."""
    job = begun("a", "b")

    def run_again() -> None:
        take_back(store, job)
        run("c", job_id=job.id)

    before_put(job, "head.json", run_again)
    monkeypatch.setattr(store_of(job), "may_be_late", lambda _, key: key.startswith("out/b"))
    with pytest.raises(CommitterError, match="may still be carried out") as caught:
        job.commit()
    assert f"published show {OUT.url}` does not list" in str(caught.value)
    assert "what has" not in str(caught.value)
    (listed,) = reading.state_of(store, OUT).files
    assert listed.path.startswith("c")
    assert job.id in listed.path


def test_a_driver_whose_end_is_forgotten_names_what_may_still_come(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told that nobody remembers, and a request of its own is still on its way."""
    job = begun("a")

    def end_and_forget() -> None:
        take_back(store, job)
        seen = looking.read(store, OUT)
        (entry,) = seen.head.entries
        head = replace(
            seen.head,
            entries=(),
            forgotten_ms=entry.created_ms,
            closed_ms=entry.created_ms,
        )
        store.put("lake", head_key(OUT), heads.encode(head))

    before_put(job, "head.json", end_and_forget)
    monkeypatch.setattr(store_of(job), "may_be_late", lambda *_: True)
    with pytest.raises(CommitterError, match=r"nobody remembers how, but a request to write out/a"):
        job.commit()
    assert visible(store) == []


def test_a_driver_that_wakes_after_its_job_was_rolled_back_writes_no_new_plan(
    store: ObjectStore,
) -> None:
    """Its operation found no plan and gave up; a plan may be written then as if nothing were."""
    job = begun("a")
    nothing = Plan(job.id, "omidpy", OUT, (), success=None, created_ms=10**15)

    def give_up() -> None:
        word = replace(nothing, state="rolling back")
        ending.take_back(store, word, ending.begin(store, word))

    before_put(job, "plan.json", give_up)
    with pytest.raises(CommitterError, match="rolled back by somebody else"):
        job.commit()
    assert visible(store) == []


def test_an_answer_lost_to_ones_own_decision_is_a_commit(store: ObjectStore) -> None:
    """The head was written, and is found to name the run."""
    job = begun("a")
    lost = [1]

    def answer(params: dict[str, Any], **_: Any) -> Any:
        if not params["url_path"].endswith("head.json") or not lost:
            return None
        lost.pop()
        store.put("lake", head_key(OUT), params["body"])
        return _refusal(412, "PreconditionFailed")

    store_of(job).client.meta.events.register("before-call.s3.PutObject", answer)
    job.commit()
    assert visible(store) == ["a"]
    assert looking.read(store, OUT).head.epoch == 1


def _refusal(status: int, code: str) -> Any:
    from botocore.awsrequest import AWSResponse

    meta = {"HTTPStatusCode": status}
    error = {"Code": code, "Message": code}
    return AWSResponse("", status, {}, None), {"Error": error, "ResponseMetadata": meta}


# -- one job beside another ------------------------------------------------------------------------


def test_what_a_job_has_completed_that_still_commits_is_not_replaced(store: ObjectStore) -> None:
    """It said that four files were committed, and two were there."""
    run("old")
    job = begun("a", "b", "c", "d")
    before_put(job, "out/c-", lambda: run("new", conflict="replace"))
    job.commit()
    assert visible(store) == ["a", "b", "c", "d", "new"]


@pytest.mark.parametrize("has_lists", [False, True])
def test_what_a_second_run_of_a_committed_job_has_completed_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, *, has_lists: bool
) -> None:
    """Its first run's outcome says nothing of the files of the second, which has their names."""
    if has_lists:
        monkeypatch.setattr(listing, "INLINE_BYTES", 10)
    objects = Objects()

    def begin(store: ObjectStore, name: str, job_id: str | None, conflict: Any) -> committers.Job:
        made = S3Committer(OUT, store, job_id=job_id, conflict=conflict)
        job = committers.Job(made).__enter__()
        with job.task() as task, task.open(name) as file:
            file.write(b"x")
        return job

    begin(objects.store(), "a", "again_0001", "append").commit()
    begin(objects.store(), "b", None, "replace").commit()
    store = objects.store()
    again = begin(store, "a", "again_0001", "append")
    key = OUT.key("a-again_0001")
    assert key not in objects.objects

    def replace(_: int, operation: str) -> None:
        if key in objects.objects and operation == "PutObject":
            store.at_request = None
            begin(objects.store(), "c", None, "replace").commit()

    store.at_request = replace
    again.commit()
    assert store.at_request is None
    assert key in objects.objects
    published = {one.path.partition("-")[0] for one in reading.state_of(store, OUT).files}
    assert published == {"a", "c"}


@pytest.mark.parametrize("job_id", ["again_0001", "other_0002"])
def test_what_an_undecided_run_has_written_over_a_published_name_is_not_replaced(
    job_id: str,
) -> None:
    """Its names have no id, and are listed for an earlier run: its file was removed, and listed."""
    objects = Objects()
    first = begun_in(objects, "a", "again_0001", "replace", unique_names=False)
    first.commit()
    again = begun_in(objects, "a", job_id, "replace", unique_names=False, content=b"second")
    store, key = objects_of(again), OUT.key("a")

    def happen(_: int, operation: str) -> None:
        if objects.objects[key].data == b"second" and operation == "PutObject":
            store.at_request = None
            begun_in(objects, "c", None, "replace").commit()

    store.at_request = happen
    again.commit()
    assert store.at_request is None
    assert contents(objects) == (["a"], ["a"])


@pytest.mark.usefixtures("forgets")
def test_files_of_a_forgotten_run_are_replaced_while_its_job_is_run_again() -> None:
    """They have the id of a job that still commits, and are listed: readers saw them for ever."""
    objects = Objects()
    begun_in(objects, "a", "again_0001").commit()
    come_others(objects)
    again = begun_in(objects, "b", "again_0001")
    store, key = objects_of(again), OUT.key("b-again_0001")

    def happen(_: int, operation: str) -> None:
        if key in objects.objects and operation == "PutObject":
            store.at_request = None
            begun_in(objects, "c", None, "replace").commit()

    store.at_request = happen
    again.commit()
    published, there = contents(objects)
    assert published == there
    assert [one.partition("-")[0] for one in there] == ["b", "c"]


@pytest.mark.usefixtures("forgets")
def test_files_of_a_forgotten_run_are_in_the_way_of_who_must_be_the_first() -> None:
    """Its job is run again, and dies: nobody saw that the partition was not empty any more."""
    objects = Objects()
    job = begun_in(objects, "p=1/k", None, "fail", scope="partitions")
    begun_in(objects, "p=1/a", "again_0001").commit()
    come_others(objects)
    die_once_there(begun_in(objects, "p=1/b", "again_0001"), objects, OUT.plan_key("again_0001"))
    with pytest.raises(CommitterError, match="since this one began"):
        job.commit()
    assert "p=1/a-again_0001" in contents(objects)[0]


def test_a_published_file_that_is_written_over_is_in_the_way_of_who_must_be_the_first() -> None:
    """Whichever run it is of: the partition is not empty."""
    objects = Objects()
    job = begun_in(objects, "p=1/k", None, "fail", scope="partitions")
    begun_in(objects, "p=1/a", "again_0001", "replace", unique_names=False).commit()
    again = begun_in(objects, "p=1/a", "other_0002", "replace", unique_names=False)
    die_once_there(again, objects, OUT.plan_key("other_0002"))
    with pytest.raises(CommitterError, match="since this one began"):
        job.commit()
    assert contents(objects) == (["p=1/a"], ["p=1/a"])


def test_a_job_without_an_id_in_its_names_is_known_by_its_plan(store: ObjectStore) -> None:
    """Nothing else tells whose its files are."""
    job = begun("a", "b", unique_names=False)
    before_put(job, "out/b", lambda: run("new", conflict="replace"))
    job.commit()
    assert visible(store) == ["a", "b", "new"]


@pytest.mark.parametrize("part", ["plan.json", "out/b-", "head.json", "_SUCCESS"])
def test_of_two_that_replace_one_comes_after_the_other(store: ObjectStore, part: str) -> None:
    """Both succeeded, with files of both."""
    run("old")
    first = begun("a", "b", conflict="replace")
    before_put(first, part, lambda: run("new", conflict="replace"))
    first.commit()
    assert visible(store) == (["new"] if part == "_SUCCESS" else ["a", "b"])


@pytest.mark.parametrize("part", ["plan.json", "out/b-", "head.json"])
def test_what_was_committed_before_is_replaced_although_it_came_behind_the_list(
    store: ObjectStore, part: str
) -> None:
    """It was committed before, and so is one of the files of before; also by who resumes."""
    first = begun("a", "b", conflict="replace")
    before_put(first, part, lambda: run("between"))
    first.commit()
    assert visible(store) == ["a", "b"]


def test_who_resumes_knows_what_was_listed_anew(store: ObjectStore) -> None:
    """The driver died once it was committed: the plan has what came behind the first list."""
    first = begun("a", conflict="replace")
    before_put(first, "head.json", lambda: run("between"))
    before_put(first, "_SUCCESS", _die)
    with pytest.raises(Died):
        first.commit()
    assert visible(store) == ["a", "between"]
    run("later")
    resume(ObjectStore(), first)
    assert visible(store) == ["a", "later"]


def test_a_list_behind_an_older_head_takes_the_place_of_no_newer_one(store: ObjectStore) -> None:
    """Its driver stood still before it wrote the list, and an operator has written another one.

    The operator commits the job and dies, so that a third one goes by what the plan says.
    """
    job = begun("a", conflict="replace")
    events = store_of(job).client.meta.events
    is_listed, may_write, is_tried, is_ended = (threading.Event() for _ in range(4))

    def list_anew() -> None:
        run("before")
        events.register("before-call.s3.GetObject", stand_still)

    def stand_still(params: dict[str, Any], **_: Any) -> None:
        if "plan.json" in params["url_path"] and not is_listed.is_set():
            is_listed.set()
            assert may_write.wait(30)
            events.register("after-call.s3.PutObject", wait_once_more)

    def wait_once_more(**_: Any) -> None:
        is_tried.set()
        assert is_ended.wait(30)

    def let_it_try(params: dict[str, Any], **_: Any) -> None:
        if "head.json" in params["url_path"]:
            may_write.set()
            assert is_tried.wait(30)

    def die(params: dict[str, Any], **_: Any) -> None:
        if "_SUCCESS" in params["url_path"]:
            raise Died

    before_put(job, "head.json", list_anew)
    with ThreadPoolExecutor(1) as driver:
        committing = driver.submit(job.commit)
        try:
            assert is_listed.wait(30)
            run("behind")
            operator = ObjectStore()
            operator.client.meta.events.register("before-call.s3.PutObject", let_it_try)
            operator.client.meta.events.register("before-call.s3.PutObject", die)
            with pytest.raises(Died):
                resume(operator, job)
            resume(ObjectStore(), job)
            assert visible(store) == ["a"]
        finally:
            may_write.set()
            is_ended.set()
        committing.result()
    assert visible(store) == ["a"]


@pytest.mark.parametrize(
    "options", [{}, {"success": False}, {"scope": "partitions"}, {"committer": "partitioned"}]
)
@pytest.mark.parametrize("part", ["plan.json", "head.json"])
def test_of_two_jobs_that_must_be_the_first_one_is(
    store: ObjectStore, options: dict[str, Any], part: str
) -> None:
    """Two were let in without `_SUCCESS`, or where it is about partitions."""
    first, second = (begun(f"p=1/{name}", conflict="fail", **options) for name in "ba")
    before_put(second, part, first.commit)
    with pytest.raises(CommitterError, match="since this one began"):
        second.commit()
    assert visible(store) == ["p=1/b"]


FIRST: list[dict[str, Any]] = [
    {},
    {"inline_bytes": 0},
    {"scope": "partitions", "inline_bytes": 0},
    {"committer": "partitioned"},
    {"committer": "magic"},
]


@pytest.mark.parametrize("part", ["", "plan.json"])
@pytest.mark.parametrize("options", FIRST, ids=str)
def test_who_has_lost_its_place_is_told_before_it_touches_a_file(
    store: ObjectStore, options: dict[str, Any], part: str
) -> None:
    """It completed them all, and then removed them: readers of the folder saw both."""
    second = begun("p=1/a", "p=1/c", conflict="fail", **options)
    first = begun("p=1/b")
    if part:
        before_put(second, part, first.commit)
    else:
        first.commit()
    touched = touched_by(store_of(second))
    with pytest.raises(CommitterError, match=r"nothing of it is visible.*since this one began"):
        second.commit()
    assert touched == []
    assert visible(store) == ["p=1/b"]
    assert looking.planned_jobs(store, OUT) == []
    assert list(store.uploads(OUT)) == []


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("options", FIRST[:3], ids=str)
def test_who_resumes_a_job_that_has_lost_its_place_touches_no_file(
    store: ObjectStore,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_strict: bool,
) -> None:
    """On any store, since the head is asked first whether the job is committed; nothing goes."""
    monkeypatch.setattr(ObjectStore, "is_strict", is_strict)
    dead = begun("p=1/a", "p=1/c", conflict="fail", **options)
    Death(0, is_answered=True).watch(store_of(dead))
    with pytest.raises(Died):
        dead.commit()
    run("p=1/b")
    uploads = list(store.uploads(OUT))
    operator = ObjectStore()
    touched = touched_by(operator)
    with pytest.raises(CommitterError, match=r"since this one began.*plan rollback"):
        resume(operator, dead)
    assert touched == []
    assert looking.planned_jobs(store, OUT) == [dead.id]
    assert list(store.uploads(OUT)) == uploads
    take_back(store, dead)
    assert visible(store) == ["p=1/b"]


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_job_kept_as_an_operation_that_has_lost_its_place_touches_no_file(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, *, is_strict: bool
) -> None:
    """Its steps ask the head before they begin, whichever store it is, and take the job back."""
    monkeypatch.setattr(ObjectStore, "is_strict", is_strict)
    job = begun("p=1/a", conflict="fail", store=MemoryStore())
    run("p=1/b")
    touched = touched_by(store_of(job))
    with pytest.raises(CommitterError, match=r"taken back.*since this one began"):
        job.commit()
    assert touched == []
    assert visible(store) == ["p=1/b"]
    assert looking.planned_jobs(store, OUT) == []


@pytest.mark.parametrize("part", ["/a-", "_SUCCESS"])
@pytest.mark.parametrize("scope", ["folder", "partitions"])
def test_who_was_the_first_is_finished_although_others_came_behind(
    store: ObjectStore, scope: str, part: str
) -> None:
    """Its driver died, or stood still while another finished its job; then a third was added."""

    def happen() -> None:
        if part == "_SUCCESS":
            raise Died
        resume(ObjectStore(), job)
        run("p=1/b")

    job = begun("p=1/a", conflict="fail", scope=scope)
    before_put(job, part, happen)
    if part == "_SUCCESS":
        with pytest.raises(Died):
            job.commit()
        run("p=1/b")
        resume(store, job)
    else:
        job.commit()
    assert visible(store) == ["p=1/a", "p=1/b"]
    assert looking.planned_jobs(store, OUT) == []


@pytest.mark.parametrize("is_sole_in_partitions", [False, True])
def test_an_early_look_speaks_only_of_runs_that_can_be_nothing_but_refused(
    store: ObjectStore, *, is_sole_in_partitions: bool
) -> None:
    """One that is decided, or may have been and is forgotten, is for the decision."""
    run("p=1/b")
    head = looking.read(store, OUT).head
    files = (PendingFile("out/p=1/a", 1, data=b"a", stamp="one"),)
    plan = Plan(
        "job_00001",
        "omidpy",
        OUT,
        files,
        is_sole=not is_sole_in_partitions,
        is_sole_in_partitions=is_sole_in_partitions,
        run="one",
        created_ms=5,
    )
    assert deciding.lost_already(store, plan, head) is not None
    assert deciding.lost_already(store, replace(plan, epoch=1), head) is None
    assert deciding.lost_already(store, plan, replace(head, forgotten_ms=5)) is None
    for outcome in ("committed", "rolled back"):
        decided = head.with_entry("job_00001", "one", outcome, 5)
        assert deciding.lost_already(store, plan, decided) is None
    assert deciding.lost_already(store, replace(plan, run="other"), decided) is not None


def test_an_early_look_lists_nothing_for_partitions_that_no_job_has_written(
    store: ObjectStore,
) -> None:
    """The decision lists once; and where a file was removed by hand, the store's word counts."""
    other = run("p=2/b", "p=11/b")
    job = begun("p=1/a", conflict="fail", scope="partitions")
    sent: list[str] = []
    store_of(job).before_request = sent.append
    job.commit()
    assert sent.count("ListObjectsV2") == 1
    store.delete("lake", f"out/p=2/b-{other.id}")
    run("p=2/c", conflict="fail", scope="partitions")
    assert visible(store) == ["p=1/a", "p=11/b", "p=2/c"]


def touched_by(store: ObjectStore) -> list[str]:
    """Return what a process writes or completes from now on of what readers see."""
    touched: list[str] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        if is_data(params["url_path"]):
            touched.append(params["url_path"])

    for operation in ("PutObject", "CompleteMultipartUpload"):
        store.client.meta.events.register(f"before-call.s3.{operation}", note)
    return touched


def is_data(path: str) -> bool:
    """Say whether a request is about a file that readers see."""
    return "/p=1/" in unquote(path) and "__magic" not in path


def test_jobs_that_must_be_the_first_of_other_partitions_are_both(store: ObjectStore) -> None:
    """One is not in the other's way."""
    options: dict[str, Any] = {"conflict": "fail", "scope": "partitions"}
    first, second = begun("p=2/b", **options), begun("p=1/a", **options)
    before_put(second, "head.json", first.commit)
    second.commit()
    assert visible(store) == ["p=1/a", "p=2/b"]


def test_a_destination_whose_jobs_all_failed_is_empty(store: ObjectStore) -> None:
    """What is remembered of them is in nobody's way."""
    failed = begun("a")
    before_put(failed, "head.json", lambda: take_back(store, failed))
    with pytest.raises(CommitterError):
        failed.commit()
    run("b", conflict="fail")
    assert visible(store) == ["b"]


def test_a_driver_that_wakes_after_its_job_was_finished_and_replaced_leaves_nothing(
    store: ObjectStore,
) -> None:
    """It published its files again over the newer ones, and `_SUCCESS` was its."""

    def happen() -> None:
        resume(ObjectStore(), job)
        run("new", conflict="replace")

    job = begun("a", "b")
    before_put(job, "out/a-", happen)
    job.commit()
    assert visible(store) == ["new"]
    assert json.loads(store.get("lake", "out/_SUCCESS")[0])["filenames"][0].startswith("/out/new")


def test_a_driver_that_stood_still_looks_before_it_writes_another_file(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where partitions alone were replaced: what it would write nobody would take back."""
    now = [0.0]
    monkeypatch.setattr("omidpy.committers.heads.standing.elapsed_s", lambda: now[0])

    def happen() -> None:
        now[0] = 3600.0
        resume(ObjectStore(), job)
        run("p=1/new", conflict="replace", scope="partitions")

    job = begun("p=1/a", "p=1/b")
    store_of(job).client.meta.events.register(
        "after-call.s3.PutObject", lambda **_: happen() if not now[0] else None
    )
    job.commit()
    assert visible(store) == ["p=1/new"]


# -- whose file it is ------------------------------------------------------------------------------


@pytest.mark.parametrize("inline_bytes", [0, 100])
def test_the_file_of_an_earlier_run_is_not_taken_for_this_ones(
    store: ObjectStore, inline_bytes: int
) -> None:
    """The same id, name and length, and other bytes: "committed", with the first run's bytes."""
    options: dict[str, Any] = {"job_id": "job_00001", "inline_bytes": inline_bytes}
    run("a", content=b"first", **options)
    with pytest.raises(CommitterError, match="exists and is not of"):
        run("a", content=b"other", **options)
    assert store.get("lake", "out/a-job_00001")[0] == b"first"
    run_of = json.loads(store.get("lake", "out/_SUCCESS")[0])
    assert run_of["omidpy"]["bytes"] == 5


def test_what_another_wrote_under_the_name_of_an_old_file_stays(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not what the job listed."""
    monkeypatch.setattr(ObjectStore, "is_strict", False)
    store.put("lake", "out/theirs", b"old")
    job = begun("new", conflict="replace")
    before_put(job, "_SUCCESS", lambda: store.put("lake", "out/theirs", b"newer"))
    job.commit()
    assert visible(store) == ["new", "theirs"]


def test_a_store_that_looks_at_tags_is_told_them(store: ObjectStore) -> None:
    """Amazon's removes no object of another tag, in one request with a thousand others."""
    store.put("lake", "out/theirs", b"old")
    job = begun("new", conflict="replace")
    asked: list[dict[str, Any]] = []
    store_of(job).client.meta.events.register(
        "provide-client-params.s3.DeleteObjects",
        lambda params, **_: asked.extend(params["Delete"]["Objects"]),
    )
    job.commit()
    assert asked[0] == {"Key": "out/theirs", "ETag": '"149603e6c03516362a8da23f624db945"'}


# -- a head ----------------------------------------------------------------------------------------


def test_outcomes_are_forgotten_once_their_plans_are_gone(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head does not grow; of a job that has a plan its outcome is kept (C11)."""
    monkeypatch.setattr(heads, "KEPT", 2)
    monkeypatch.setattr(heads, "MOST", 4)
    monkeypatch.setattr(heads, "YOUNG_MS", 0)
    first = begun("first")
    before_put(first, "_SUCCESS", _die)
    with pytest.raises(Died):
        first.commit()
    jobs = [run(f"f{at}") for at in range(6)]
    found = looking.read(store, OUT).head
    assert found.epoch == 7
    assert len(found.entries) <= 4
    assert found.is_committed(first.id)
    assert not found.is_committed(jobs[0].id)
    assert found.forgotten_ms > 0
    with pytest.raises(CommitterError, match="can only be finished"):
        take_back(store, first)


def test_a_word_about_a_run_that_nobody_knows_is_not_forgotten() -> None:
    """Its driver may write its plan at any time, and has none to be asked for before."""
    head = Head().with_entry("job_00001", "", "rolled back", 7)
    for at in range(heads.MOST):
        head = head.with_entry(f"job_1{at:04}", "one", "committed", at)
    found = head.without_old((), heads.YOUNG_MS + heads.MOST)
    assert (len(found.entries), found.forgotten_ms) == (heads.KEPT + 1, heads.MOST - heads.KEPT - 1)
    assert found.of("job_00001", "any", 7) is not None
    assert found.of("job_00001", "any", 8) is None
    assert found.epoch == heads.MOST


def test_a_run_that_may_be_forgotten_is_asked_for_its_plan(store: ObjectStore) -> None:
    """It was rolled back long ago: a head that does not name it is no leave to commit it."""
    one = PendingFile("out/a", 1, data=b"a", stamp="one")
    plan = Plan("job_00001", "omidpy", OUT, (one,), run="one", created_ms=5)
    store.put("lake", head_key(OUT), heads.encode(Head(3, (), 5)))
    with pytest.raises(CommitterError, match="ended by another process, long ago"):
        deciding.commit(store, plan)
    assert not deciding.commit(store, replace(plan, created_ms=6)).was_there
    ending.begin(store, replace(plan, job_id="job_00002"))
    deciding.commit(store, replace(plan, job_id="job_00002"))
    assert looking.read(store, OUT).head.epoch == 5


@pytest.mark.parametrize("comes", ["nothing", "another run"])
def test_a_plan_that_is_written_again_takes_the_place_of_no_other(
    monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    """Its removal failed half way, and the job was run again under its id, just then."""
    objects = Objects()
    begun_in(objects, "old").commit()
    job = begun_in(objects, "a", "again_0001", "replace")
    store, key = objects_of(job), OUT.plan_key("again_0001")

    def fail(*_: Any) -> None:
        del objects.objects[key]
        if comes == "another run":
            die_once_there(begun_in(objects, "b", "again_0001"), objects, key)
            there.append(objects.objects[key].data)
        raise CommitterError("the store broke down")

    there: list[bytes] = []
    monkeypatch.setattr(store, "delete_many", fail)
    with pytest.raises(CommitterError, match=r"could not be removed.*broke down.*plan resume"):
        job.commit()
    other = objects.store()
    plan = ending.load(other, f"s3://lake/{key}", "lake", key)[0]
    if there:
        assert objects.objects[key].data == there[0]
    else:
        assert [one.key.partition("-")[0] for one in plan.old] == ["out/old"]
    ending.resume(other, plan)
    assert "a-again_0001" in contents(objects)[0]
    assert ("b-again_0001" in contents(objects)[0]) == bool(there)


# -- a plan that comes when its run is forgotten ---------------------------------------------------

FORGOTTEN = [
    ("append", "roll back", False),
    ("append", "resume", False),
    ("replace", "resume", False),
    ("replace", "resume", True),
    ("append", "resume", True),
]


@pytest.fixture
def forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let heads remember few runs, and forget young ones, too."""
    monkeypatch.setattr(heads, "KEPT", 3)
    monkeypatch.setattr(heads, "MOST", 6)
    monkeypatch.setattr(heads, "YOUNG_MS", 0)


@pytest.mark.usefixtures("forgets")
@pytest.mark.parametrize(("conflict", "how", "is_replaced"), FORGOTTEN)
def test_a_plan_that_comes_when_its_run_is_forgotten_changes_nothing(
    conflict: str, how: str, *, is_replaced: bool
) -> None:
    """Files were removed that the head listed, or all jobs since were replaced by it (C11)."""
    objects = Objects()
    begun_in(objects, "zero").commit()
    job = begun_in(objects, "early", conflict=conflict)
    key, kept = OUT.plan_key(job.id), list[Any]()

    def keep(_: int, __: str) -> None:
        if key in objects.objects and not kept:
            kept.append(objects.objects[key])

    objects_of(job).at_request = keep
    job.commit()
    come_others(objects, is_replaced=is_replaced)
    assert not looking.read(objects.store(), OUT).head.is_committed(job.id)
    before = contents(objects)
    for _ in range(2):
        objects.objects[key] = kept[0]
        store = objects.store()
        plan, etag = ending.load(store, f"s3://lake/{key}", "lake", key)
        with pytest.raises(CommitterError, match="ended by another process, long ago"):
            end(store, plan, etag, how)
        assert contents(objects) == before
        assert key not in objects.objects
        come_others(objects)
        before = contents(objects)


@pytest.mark.usefixtures("forgets")
@pytest.mark.parametrize(("conflict", "is_replaced"), [("replace", False), ("append", True)])
def test_a_driver_whose_plan_comes_twice_commits_nothing_when_its_run_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, conflict: str, *, is_replaced: bool
) -> None:
    """It was stopped at that request; its job was finished, forgotten, and committed once more."""
    now_s = [0.0]
    monkeypatch.setattr("omidpy.committers.heads.standing.elapsed_s", lambda: now_s[0])
    objects = Objects()
    begun_in(objects, "zero").commit()
    job = begun_in(objects, "early", conflict=conflict)
    store, key, before = objects_of(job), OUT.plan_key(job.id), list[Any]()

    def find(number: int, operation: str) -> None:
        if operation == "PutObject" and store.twice_at is None:
            store.twice_at = number

    def happen() -> None:
        other = objects.store()
        ending.resume(other, ending.load(other, f"s3://lake/{key}", "lake", key)[0])
        come_others(objects, is_replaced=is_replaced)
        before.append(contents(objects))
        now_s[0] += 3600

    store.at_request, store.between = find, happen
    with pytest.raises(CommitterError, match="ended by another process, long ago"):
        job.commit()
    assert [contents(objects)] == before
    assert key not in objects.objects


@pytest.mark.usefixtures("forgets")
@pytest.mark.parametrize("how", ["resume", "roll back"])
def test_a_plan_that_waited_while_others_were_forgotten_is_ended(how: str) -> None:
    """Its driver died, and a head that forgets says that it was there."""
    objects = Objects()
    job = begun_in(objects, "early")
    key = OUT.plan_key(job.id)
    die_once_there(job, objects, key)
    for _ in range(2):
        come_others(objects)
    store = objects.store()
    plan, etag = ending.load(store, f"s3://lake/{key}", "lake", key)
    head = looking.read(store, OUT).head
    assert plan.created_ms <= head.closed_ms
    assert head.waiting[job.id] == -1
    end(store, plan, etag, how)
    published = contents(objects)[0]
    assert any("early" in one for one in published) == (how == "resume")
    assert key not in objects.objects


@pytest.mark.usefixtures("forgets")
@pytest.mark.parametrize("how", ["resume", "roll back"])
def test_who_removes_a_plan_that_came_late_removes_no_other(how: str) -> None:
    """It stood still at that request, and another run of the job has a plan of its own by then."""
    objects = Objects()
    job = begun_in(objects, "early")
    key, kept, others = OUT.plan_key(job.id), list[Any](), list[bytes]()

    def keep(_: int, __: str) -> None:
        if key in objects.objects and not kept:
            kept.append(objects.objects[key])

    objects_of(job).at_request = keep
    job.commit()
    come_others(objects)
    objects.objects[key] = kept[0]
    store = objects.store()
    plan, etag = ending.load(store, f"s3://lake/{key}", "lake", key)

    def run_again(_: int, operation: str) -> None:
        if operation.startswith("DeleteObject") and not others:
            others.append(b"")
            del objects.objects[key]
            die_once_there(begun_in(objects, "again", job.id), objects, key)
            others[0] = objects.objects[key].data

    store.at_request = run_again
    with pytest.raises(CommitterError, match="ended by another process, long ago"):
        end(store, plan, etag, how)
    assert others[0]
    assert objects.objects[key].data == others[0]


@pytest.mark.usefixtures("forgets")
def test_the_word_that_no_driver_comes_is_remembered_however_late_it_is_said() -> None:
    """An executor says it long after the job was submitted, and the driver wakes after that."""
    objects = Objects()
    job = begun_in(objects, "early")
    key, said = OUT.plan_key(job.id), list[Plan]()

    def happen(_: int, operation: str) -> None:
        if operation != "PutObject" or said:
            return
        submitted_ms = int(time.time() * 1000)
        said.append(Plan(job.id, "omidpy", OUT, (), state="rolling back", created_ms=submitted_ms))
        time.sleep(0.01)  # so that the others begin later, to the millisecond
        come_others(objects)
        store = objects.store()
        assert looking.read(store, OUT).head.closed_ms > submitted_ms
        ending.begin(store, said[0])
        ending.take_back(store, *ending.load(store, said[0].address, "lake", key))
        come_others(objects)

    objects_of(job).at_request = happen
    with pytest.raises(CommitterError, match="rolled back"):
        job.commit()
    assert said
    assert not any("early" in one for one in contents(objects)[0])


@pytest.mark.usefixtures("forgets")
def test_a_plan_that_came_late_and_waits_is_none_that_was_there_before() -> None:
    """It was there when others were forgotten, and not when its own run was."""
    head = Head().with_entry("job_00001", "one", "committed", 5)
    for at in range(6, 12):
        head = head.with_entry(f"job_1{at:04}", "one", "committed", at)
    head = head.without_old({"job_00002"}, 100)
    assert (head.of("job_00001", "one", 5), head.closed_ms) == (None, 8)
    for at in range(12, 18):
        head = head.with_entry(f"job_1{at:04}", "one", "committed", at)
    head = heads.decode(heads.encode(head.without_old({"job_00001", "job_00002"}, 100)), "head")
    assert head.closed_ms == 14
    assert [head.has_forgotten("job_00001", ms) for ms in (5, 8, 9, 14)] == [1, 1, 0, 0]
    assert [head.has_forgotten("job_00002", ms) for ms in (5, 14)] == [0, 0]
    assert [head.has_forgotten("job_00003", ms) for ms in (14, 15)] == [1, 0]
    # Its plan has gone: whatever comes now, its runs of that time have ended.
    assert head.without_old((), 100).has_forgotten("job_00002", 5)


def test_young_runs_are_kept_so_that_a_clock_may_be_behind() -> None:
    """A hundred jobs in a minute made what a slower clock had written look like one of before."""
    now_ms = 10**12
    head = Head(closed_ms=7)
    for at in range(heads.MOST_YOUNG):
        head = head.with_entry(f"job_1{at:04}", "one", "committed", now_ms - 1000)
    assert not head.is_full(now_ms)
    assert head.is_full(now_ms + heads.YOUNG_MS)
    head = head.with_entry("job_00001", "one", "committed", now_ms)
    assert head.is_full(now_ms)
    less = head.without_old((), now_ms)
    assert len(less.entries) == heads.MOST_YOUNG // 2
    assert (less.forgotten_ms, less.closed_ms) == (now_ms - 1000, 7)
    assert not less.has_forgotten("job_00009", now_ms - 1000)
    aged = less.without_old((), now_ms + heads.YOUNG_MS)
    assert (len(aged.entries), aged.closed_ms) == (heads.KEPT, now_ms - 1000)
    assert aged.has_forgotten("job_00009", now_ms - 1000)


def begun_in(
    objects: Objects,
    name: str,
    job_id: str | None = None,
    conflict: Any = "append",
    *,
    content: bytes = b"x",
    **options: Any,
) -> committers.Job:
    """Begin a job that has written one file, over a bucket in memory."""
    made = S3Committer(OUT, objects.store(), job_id=job_id, conflict=conflict, **options)
    job = committers.Job(made).__enter__()
    with job.task() as task, task.open(name) as file:
        file.write(content)
    return job


def objects_of(job: committers.Job) -> FakeStore:
    """Return the store in memory that a job writes through."""
    store = store_of(job)
    assert isinstance(store, FakeStore)
    return store


def die_once_there(job: committers.Job, objects: Objects, key: str) -> None:
    """Commit a job whose driver dies when an object has been written."""

    def look(_: int, __: str) -> None:
        if key in objects.objects:
            raise Died

    objects_of(job).at_request = look
    with pytest.raises(Died):
        job.commit()


def end(store: ObjectStore, plan: Plan, etag: str, how: str) -> None:
    """End a job as an operator does."""
    if how == "resume":
        ending.resume(store, plan)
    else:
        ending.take_back(store, plan, etag)


def come_others(objects: Objects, *, is_replaced: bool = False) -> None:
    """Run so many jobs that what was before is forgotten."""
    if is_replaced:
        begun_in(objects, "all", conflict="replace").commit()
    for at in range(9):
        begun_in(objects, f"other{at}").commit()


def contents(objects: Objects) -> tuple[list[str], list[str]]:
    """Return what is published, and what readers of the folder see."""
    published = [one.path for one in reading.state_of(objects.store(), OUT).files]
    paths = [OUT.below(key) for key in objects.objects]
    return sorted(published), sorted(path for path in paths if not path.startswith("_"))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[" * 100_000, b'{"format":"omidpy-head","version":2}', b"\xff"]
)
def test_what_is_no_head_ends_a_job_and_is_named(store: ObjectStore, data: bytes) -> None:
    """Whoever has written it is not overwritten, and nothing is removed."""
    run("old")
    store.put("lake", head_key(OUT), data)
    with pytest.raises(CommitterError, match=r"_omidpy/head\.json"):
        run("new", conflict="replace")
    assert visible(store) == ["old"]
    assert store.get("lake", head_key(OUT))[0] == data


def test_a_store_without_conditions_is_told_of(
    store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs go on as they did, and it is said what is not promised."""
    run("a")
    job = begun("b")

    def refuse(params: dict[str, Any], **_: Any) -> Any:
        return _refusal(501, "NotImplemented") if "If-Match" in params["headers"] else None

    store_of(job).client.meta.events.register("before-call.s3.PutObject", refuse)
    job.commit()
    assert visible(store) == ["a", "b"]
    assert "has no conditional writes" in caplog.text


@pytest.mark.parametrize("conflict", ["append", "fail"])
@pytest.mark.parametrize("is_strict", [True, False])
def test_a_head_is_read_while_files_are_on_their_way_where_conditions_are_kept(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, conflict: str, *, is_strict: bool
) -> None:
    """Nobody waits for it then; and where nobody knows of conditions, it is as new as it can be."""
    del store
    monkeypatch.setattr(ObjectStore, "is_strict", is_strict)
    job = begun("a", "b", conflict=conflict)
    sent: list[str] = []
    store_of(job).before_request = sent.append
    job.commit()
    files = ["PutObject"] * 2
    middle = ["GetObject", *files] if is_strict else [*files, "GetObject"]
    assert sent == ["PutObject", *middle, "PutObject", "PutObject", "DeleteObject"]


def test_who_is_committed_meanwhile_stays_where_conditions_are_ignored() -> None:
    """Whoever commits before the last look of a job is in the head that it writes."""
    for at in itertools.count():
        objects = Objects()
        objects.if_match = "ignored"
        world, other = objects.store(), objects.store()
        acted: list[int] = []

        def act(number: int, operation: str) -> None:
            if number == at and not acted:  # noqa: B023 - called in this turn
                acted.append(number)  # noqa: B023 - see above
                committed(other)  # noqa: B023 - see above
            is_looked.extend([number] if operation == "GetObject" else [])  # noqa: B023 - see above

        is_looked: list[int] = []
        committed(world)
        world.sent, world.at_request = 0, act
        committed(world)
        if not acted or acted[0] > is_looked[0]:
            break
        assert looking.read(world, OUT).head.epoch == 3, at
    assert at > 4, "before its plan, its files, and its look"


def committed(store: ObjectStore) -> None:
    """Run a job of two files over a store in memory."""
    with committers.job(OUT.url, inline_bytes=1) as job:
        job.committer.store = store  # type: ignore[attr-defined]  # of this committer
        with job.task() as task:
            for name, content in (("small", b"x"), ("large", b"xx")):
                with task.open(name) as file:
                    file.write(content)


def test_a_conflict_is_tried_again(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """409 says that another request was under way, and nothing of what is there."""
    monkeypatch.setattr("omidpy.committers.objects.answers.CONFLICT_PAUSE_S", 0.0)
    for operation, inline_bytes in (("PutObject", 100), ("CompleteMultipartUpload", 0)):
        job = begun(operation, inline_bytes=inline_bytes)
        left = [1, 1]

        def conflict(left: list[int] = left, **_: Any) -> Any:
            return _refusal(409, "ConditionalRequestConflict") if left and left.pop() else None

        store_of(job).client.meta.events.register(f"before-call.s3.{operation}", conflict)
        job.commit()
        assert left == []
    assert visible(store) == ["CompleteMultipartUpload", "PutObject"]


def test_a_store_whose_tags_are_no_hashes_takes_small_files(store: ObjectStore) -> None:
    """S3 Express has others, and says so nowhere: the plan's own tag tells."""
    job = begun("a")

    def change(parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if "ETag" in parsed and model.name == "PutObject":
            parsed["ETag"] = '"0123456789abcdef0123456789abcdef"'

    store_of(job).client.meta.events.register("after-call.s3", change)
    job.commit()
    assert visible(store) == ["a"]


def test_an_upload_whose_id_nobody_was_told_is_swept(store: ObjectStore) -> None:
    """The answer of its beginning was lost, and another one was begun: it cost money for ever."""
    job = begun()
    lost: list[str] = []

    def lose(request: Any, **_: Any) -> None:
        if not lost:
            lost.append(store.create_upload("lake", f"out/a-{job.id}", job.id))
            raise ReadTimeoutError(endpoint_url=request.url)

    store_of(job).client.meta.events.register("before-send.s3.CreateMultipartUpload", lose)
    with job.task() as task, task.open("a") as file:
        file.write(b"x" * 3_000_000)
    job.commit()
    assert (visible(store), len(lost)) == (["a"], 1)
    assert list(store.uploads(OUT)) == []


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_death_at_any_request_leaves_one_job_or_the_other(store: ObjectStore, every: int) -> None:
    """Two that replace, the first of which dies anywhere, and is then finished, or taken back."""
    count = 0
    for at in itertools.count(0, every):
        for one in list(store.objects(OUT)):
            store.delete("lake", one.key)
        run("old")
        first = begun("a", "b", conflict="replace")
        Death(at, is_answered=at % 2 == 0).watch(store_of(first))
        try:
            first.commit()
        except Died:
            count += 1
        else:
            break
        run("new", conflict="replace")
        if any(one.key == OUT.plan_key(first.id) for one in store.objects(OUT)):
            ended = looking.read(store, OUT).head
            if ended.is_committed(first.id):
                with pytest.raises(CommitterError, match="can only be finished"):
                    take_back(store, first)
                resume(ObjectStore(), first)
            else:
                take_back(store, first)
        assert visible(store) == ["new"]
    assert count * every > 7


def test_a_plan_of_before_there_were_heads_is_finished(store: ObjectStore) -> None:
    """It says nothing of heads, and its `_SUCCESS` is its decision."""
    plan = Plan(
        "job_00001",
        "omidpy",
        OUT,
        (PendingFile("out/a", 1, data=b"a"),),
        (OldFile("out/old", "0cc175b9c0f1b6a831c399e269772661"),),
        run="one",
    )
    store.put("lake", "out/old", b"a")
    ending.begin(store, plan)
    ending.resume(store, plan)
    assert visible(store) == ["a"]


def test_a_sole_job_of_before_there_were_heads_is_finished_although_others_came_behind(
    store: ObjectStore,
) -> None:
    """No head names it, and one names others; its `_SUCCESS` says that it was committed."""
    one = PendingFile("out/a", 1, data=b"a", stamp="one")
    plan = Plan("job_00001", "omidpy", OUT, (one,), is_sole=True, run="one")
    ending.begin(store, plan)
    stamps: Any = {"job_id": plan.job_id, "stamp": plan.run}
    store.put("lake", one.key, b"a", **stamps)
    run("b", success=False)
    store.put("lake", "out/_SUCCESS", b"{}", **stamps)
    ending.resume(store, plan)
    assert visible(store) == ["a", "b"]
    assert looking.planned_jobs(store, OUT) == []
