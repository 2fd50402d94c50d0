"""`omidpy committers`: what operators see, finish and take back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omidpy import committers
from omidpy.cli import main
from omidpy.committers.s3 import S3Committer
from tests.machines.s3.crashing import Death, Died
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Give a bucket; boto3 finds its store in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    return Bucket(s3)


def call(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    """Run a verb with `--json`; return what it prints, or its error if it fails."""
    with pytest.raises(SystemExit) as ended:
        main(["committers", *words, "--json"])
    out, err = capsys.readouterr()
    assert (ended.value.code or 0) == code, err
    document = json.loads(out)
    return document["error"] if code and "error" in document else document


def text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a verb for a person; return what it prints."""
    with pytest.raises(SystemExit) as ended:
        main(["committers", *words])
    assert not ended.value.code
    return capsys.readouterr().out


def upload(bucket: Bucket, key: str) -> str:
    """Begin an upload as somebody who then dies."""
    answer = bucket.client.create_multipart_upload(Bucket=bucket.name, Key=key)
    return str(answer["UploadId"])


def die_committing(job: committers.Job, *, at: int) -> None:
    """Let a driver die once a request of its commit was carried out."""
    assert isinstance(job.committer, S3Committer)
    Death(at, is_answered=True).watch(job.committer.store)
    with pytest.raises(Died):
        job.commit()


def dead_job(bucket: Bucket, *, at: int, folder: str = "out") -> str:
    """Let a driver die at a request of its commit; return the address of its plan."""
    job = committers.job(f"s3://{bucket.name}/{folder}", inline_bytes=5, threads=1).__enter__()
    for name, size in (("a", 3), ("b", 10), ("c", 20)):
        with job.task() as task, task.open(name) as file:
            file.write(b"x" * size)
    die_committing(job, at=at)
    return f"s3://{bucket.name}/{folder}/_omidpy/{job.id}/plan.json"


def test_uploads_are_listed_and_aborted_by_folder(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dataset1` says nothing of `dataset10`."""
    first = upload(bucket, "dataset1/f")
    upload(bucket, "dataset10/f")
    path = f"s3://{bucket.name}/dataset1"
    (found,) = call(capsys, "uploads", "list", path)
    assert (found["key"], found["upload_id"]) == ("dataset1/f", first)
    assert first in text(capsys, "uploads", "list", path)
    done = call(capsys, "uploads", "abort", path)
    assert [one["key"] for one in done["aborted"]] == ["dataset1/f"]
    assert bucket.uploads() == ["dataset10/f"]
    assert call(capsys, "uploads", "list", path) == []
    assert "no uploads are left" in text(capsys, "uploads", "list", path)
    assert "aborted 0 uploads" in text(capsys, "uploads", "abort", path)


def test_uploads_are_chosen_by_job_and_age(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that is running keeps its own."""
    for key in ("out/f-job_00001", "out/f-job_00002"):
        upload(bucket, key)
    path = f"s3://{bucket.name}/out"
    assert call(capsys, "uploads", "abort", path, "--older-than", "1h")["aborted"] == []
    (found,) = call(capsys, "uploads", "list", path, "--job", "job_00001")
    assert found["key"] == "out/f-job_00001"
    call(capsys, "uploads", "abort", path, "--job", "job_00001")
    assert bucket.uploads() == ["out/f-job_00002"]
    assert len(call(capsys, "uploads", "list", path, "--older-than", "0")) == 1
    assert "is no duration" in call(capsys, "uploads", "list", path, "--older-than", "soon", code=2)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_long_work_shows_how_far_it_is(
    bucket: Bucket,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_terminal: bool,
) -> None:
    """On a terminal, and on stderr: what scripts read is not touched."""
    monkeypatch.setenv("FORCE_COLOR", "1" if is_terminal else "")
    address = dead_job(bucket, at=0)
    path = f"s3://{bucket.name}/out"
    for words, bar in (
        (("uploads", "abort", path), "aborting uploads"),
        (("plan", "resume", address), "completing files"),
        (("verify", path), "comparing files"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["committers", *words, "--json"])
        assert not ended.value.code
        out, err = capsys.readouterr()
        json.loads(out)
        assert (bar in err) is is_terminal


def test_uploads_of_a_plan_are_kept(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    """To abort them would leave their job half visible for ever; also from folders below."""
    plan = dead_job(bucket, at=0)
    for path in ("", "/out"):
        done = call(capsys, "uploads", "abort", f"s3://{bucket.name}{path}")
        assert done["aborted"] == []
        assert {one["plan"] for one in done["planned"]} == {plan}
    assert len(bucket.uploads()) == 2
    shown = text(capsys, "uploads", "abort", f"s3://{bucket.name}/out")
    assert f"plan resume {plan}" in shown


def test_uploads_below_the_destination_of_a_plan_are_kept(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan lies further up than where one looks."""
    job = committers.job(f"s3://{bucket.name}/a/out", inline_bytes=0, threads=1).__enter__()
    with job.task() as task:
        task.open("p=1/f").close()
    die_committing(job, at=0)
    done = call(capsys, "uploads", "abort", f"s3://{bucket.name}/a/out/p=1")
    assert (len(done["aborted"]), len(done["planned"])) == (0, 1)
    assert len(bucket.uploads()) == 1


@pytest.mark.parametrize("verb", ["resume", "rollback"])
def test_a_plan_is_found_shown_and_ended(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """All of the job, or nothing of it; a second time there is no plan."""
    address = dead_job(bucket, at=2)
    path = f"s3://{bucket.name}/out"
    assert call(capsys, "plan", "list", path) == [{"plan": address}]
    assert address in text(capsys, "plan", "list", f"s3://{bucket.name}")
    shown = call(capsys, "plan", "show", address)
    assert (shown["state"], shown["destination"], shown["bytes"]) == ("committing", path, 33)
    assert [one["upload_id"] is None for one in shown["files"]] == [True, False, False]
    assert "in the plan" in text(capsys, "plan", "show", address)
    done = call(capsys, "plan", verb, address)
    assert done["job"] == shown["job"]
    assert len(bucket.visible("out")) == (3 if verb == "resume" else 0)
    assert bucket.uploads() == []
    assert "finished or taken back" in call(capsys, "plan", verb, address, code=1)
    assert "no job has begun" in text(capsys, "plan", "list", path)


def test_plans_are_counted_for_whoever_watches(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In a file for the node exporter, which is 0 again once the job is ended."""
    address = dead_job(bucket, at=2)
    path = f"s3://{bucket.name}/out"
    numbers = tmp_path / "plans.prom"
    for count in (1, 0):
        call(capsys, "plan", "list", path, "--metrics", str(numbers))
        shown = f'omidpy_committers_half_published{{folder="{path}"}} {count}.0'
        assert shown in numbers.read_text()
        if count:
            call(capsys, "plan", "resume", address)
    error = call(capsys, "plan", "list", path, "--metrics", str(tmp_path), code=2)
    assert "--metrics" in error


def test_a_committed_job_is_finished_and_not_taken_back(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its `_SUCCESS` is there, and readers may have acted on it; only its plan was left."""
    address = dead_job(bucket, at=6)
    error = call(capsys, "plan", "rollback", address, code=1)
    assert f"plan resume {address}" in error
    assert len(bucket.visible("out")) == 3
    call(capsys, "plan", "resume", address)
    assert len(bucket.keys()) == 3 + 1


def test_what_is_being_rolled_back_is_not_resumed(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of its uploads may be aborted."""
    address = dead_job(bucket, at=0)
    key = address.removeprefix(f"s3://{bucket.name}/")
    document = json.loads(bucket.get(key))
    bucket.put(key, json.dumps({**document, "state": "rolling back"}).encode())
    assert "is being rolled back" in call(capsys, "plan", "resume", address, code=1)
    call(capsys, "plan", "rollback", address)
    assert bucket.keys() == []


def test_an_upload_that_is_gone_stops_a_resumption(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator decides; nothing is taken back unasked, since the job may have been whole."""
    address = dead_job(bucket, at=0)
    gone = call(capsys, "plan", "show", address)["files"][1]
    bucket.client.abort_multipart_upload(
        Bucket=bucket.name, Key=gone["key"], UploadId=gone["upload_id"]
    )
    error = call(capsys, "plan", "resume", address, code=1)
    assert gone["key"] in error
    assert f"plan rollback {address}" in error
    call(capsys, "plan", "rollback", address)
    assert bucket.keys() == []
    assert bucket.uploads() == []


def test_only_files_of_before_that_are_as_they_were_are_replaced(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """Since the driver died, somebody wrote one of them anew."""
    bucket.put("out/a", b"before")
    bucket.put("out/b", b"before")
    job = committers.job(f"s3://{bucket.name}/out", conflict="replace", threads=1).__enter__()
    with job.task() as task:
        task.open("new").close()
    die_committing(job, at=3)
    bucket.put("out/b", b"since")
    (found,) = call(capsys, "plan", "list", f"s3://{bucket.name}/out")
    assert call(capsys, "plan", "resume", found["plan"])["replaced"] == 1
    assert [path.partition("-")[0] for path in bucket.visible("out")] == ["b", "new"]


def test_a_destination_is_verified(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    """Against what its manifest promises: files, bytes, tags and rows."""
    import pyarrow as pa

    path = f"s3://{bucket.name}/out"
    with committers.job(path) as job:
        job.task(pa.table({"v": [1, 2, 3]}))
        job.task(pa.table({"v": [4]}))
    bucket.put("out/theirs")
    found = call(capsys, "verify", path, "--rows")
    assert found["whole"] is True
    assert (found["files"], found["rows"], found["others"]) == (2, 4, ["out/theirs"])
    assert "2 files" in text(capsys, "verify", path)
    said = bucket.success("out")
    said["omidpy"]["files"][0]["rows"] += 1
    bucket.put("out/_SUCCESS", json.dumps(said).encode())
    assert call(capsys, "verify", path)["whole"] is True  # rows are counted if that is asked for
    assert " rows, not " in call(capsys, "verify", path, "--rows", code=1)["different"][0]
    assert job.manifest is not None
    first, second = job.manifest.files
    bucket.put(first, b"x")
    bucket.client.delete_object(Bucket=bucket.name, Key=second)
    found = call(capsys, "verify", path, code=1)
    assert found["missing"] == [second]
    assert first in found["different"][0]


def test_each_difference_alone_is_one(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of the right length may be another one, and a file that is gone is missed."""
    path = f"s3://{bucket.name}/out"
    with committers.job(path) as job, job.task() as task:
        for name in ("a", "b"):
            with task.open(name) as file:
                file.write(b"12345")
    assert job.manifest is not None
    first, second = job.manifest.files
    for data, message in ((b"54321", "its tag is"), (b"123456", "6 bytes, not 5")):
        bucket.put(first, data)
        found = call(capsys, "verify", path, code=1)
        assert message in found["different"][0]
        assert not found["missing"]
    bucket.put(first, b"12345")
    assert call(capsys, "verify", path)["whole"] is True
    bucket.client.delete_object(Bucket=bucket.name, Key=second)
    assert call(capsys, "verify", path, code=1)["different"] == []


def test_what_cannot_be_verified_says_why(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """Absent, empty, or no manifest."""
    path = f"s3://{bucket.name}/out"
    assert "no job was committed" in call(capsys, "verify", path, code=1)
    bucket.put("out/_SUCCESS", b"")
    assert "committer that renames" in call(capsys, "verify", path, code=1)
    bucket.put("out/_SUCCESS", b"{}")
    assert "is no manifest" in call(capsys, "verify", path, code=1)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"{", "cannot be read"), (b'{"format":"omidpy-plan","version":9}', "a newer one")],
)
def test_a_plan_that_cannot_be_understood_is_left_alone(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], data: bytes, message: str
) -> None:
    """Nor is any upload aborted that it may speak of."""
    key = "out/_omidpy/job_00001/plan.json"
    bucket.put(key, data)
    upload(bucket, "out/f")
    for verb in ("show", "resume", "rollback"):
        assert message in call(capsys, "plan", verb, f"s3://{bucket.name}/{key}", code=1)
    assert message in call(capsys, "uploads", "abort", f"s3://{bucket.name}/out", code=1)
    assert bucket.uploads() == ["out/f"]
    assert bucket.get(key) == data


def test_doctor_says_what_a_store_promises_and_leaves_nothing(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server of these tests keeps both conditions."""
    place = f"s3://{bucket.name}/out"
    found = call(capsys, "doctor", place)
    assert [one["verdict"] for one in found["checks"]] == ["ok", "ok", "ok"]
    assert [one["if_match"] for one in found["checks"] if "if_match" in one] == ["kept"]
    assert not bucket.keys()
    bucket.put("out/_omidpy/head.json", b"{}")  # which another tool has written
    found = call(capsys, "doctor", place, code=1)
    assert not found["ok"]
    assert not bucket.keys()
