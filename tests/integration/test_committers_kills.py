"""Drivers in processes of their own that are killed, by SIGKILL, when a request of theirs arrives.

What `test_committers_crashes.py` does by exceptions, for real: the process has no last word, and
several of its requests may be on their way.  An operator then does what the guide says, with the
commands that it names.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from omidpy.cli import main
from tests.machines.processes import LONGEST_S, ROOT
from tests.machines.s3.driver import SIZES, content
from tests.machines.s3.looking import Bucket
from tests.machines.s3.proxy import S3Proxy
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration

# The requests of a job in mode `append`, in order: an upload and its part for each large file,
# the plan, the files in any order, `_SUCCESS`, and the end of the plan.
IN_TASKS: Final = 2 * 2
PLAN: Final = IN_TASKS + 1
SUCCESS: Final = PLAN + len(SIZES) + 1
LAST: Final = SUCCESS + 3


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    """Give the network of the driver."""
    with S3Proxy(s3.port) as made:
        yield made


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Give a bucket with a neighbour of a longer name, whose upload is nobody's business."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    made = Bucket(s3)
    made.client.create_multipart_upload(Bucket=made.name, Key="out10/theirs")
    return made


def call(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Run a verb of the command; return what it says."""
    with pytest.raises(SystemExit) as ended:
        main(["committers", *words, "--json"])
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    return json.loads(out)


def kill_driver(
    proxy: S3Proxy, bucket: Bucket, number: int, *, is_carried_out: bool, conflict: str = "append"
) -> bool:
    """Run a job until its request `number`, from 1; say whether it was killed."""
    # It waits for its standard input, so that nothing arrives before the proxy knows whom to kill.
    words = [f"s3://{bucket.name}/out", conflict, proxy.endpoint]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.machines.s3.driver", *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as driver:
        proxy.end_at(number, driver.kill, is_carried_out=is_carried_out)
        _, said = driver.communicate(timeout=LONGEST_S)
    proxy.wait_until_idle()
    assert driver.returncode in {0, -9}, said.decode()
    return driver.returncode == -9


def has_success(bucket: Bucket) -> bool:
    """Say whether the job is committed."""
    return bucket.keys("out/_SUCCESS") != []


def recover(capsys: pytest.CaptureFixture[str], bucket: Bucket, action: str) -> None:
    """Do what the guide says: end each plan, then abort what uploads are left."""
    address = f"s3://{bucket.name}/out"
    for one in call(capsys, "plan", "list", address):
        is_committed = action == "rollback" and has_success(bucket)
        call(capsys, "plan", "resume" if is_committed else action, one["plan"])
    listed = {one["key"] for one in call(capsys, "uploads", "list", address)}
    assert listed == set(bucket.uploads()) - {"out10/theirs"}, "the command finds what is left"
    call(capsys, "uploads", "abort", address)


def check(bucket: Bucket, *, is_whole: bool, old: list[str]) -> None:
    """See all files of the job, or none, and nothing that is hidden but `_SUCCESS`."""
    found = bucket.visible("out")
    of_job = {path[:7]: path for path in found if not path.startswith("old")}
    assert sorted(of_job) == (sorted(SIZES) if is_whole else [])
    for name, path in of_job.items():
        assert bucket.get(f"out/{path}") == content(name)
    assert [path for path in found if path.startswith("old")] == old
    assert len(bucket.keys("out/")) == len(found) + is_whole
    assert bucket.uploads() == ["out10/theirs"]


@pytest.mark.parametrize(
    ("number", "is_carried_out"),
    [
        (IN_TASKS, False),
        (PLAN, False),
        (PLAN, True),
        (PLAN + 2, True),
        (SUCCESS, False),
        (LAST, False),
    ],
)
def test_a_driver_that_is_killed_is_finished_by_the_command(
    proxy: S3Proxy,
    bucket: Bucket,
    capsys: pytest.CaptureFixture[str],
    number: int,
    *,
    is_carried_out: bool,
) -> None:
    """Its plan divides the ends: before it is durable nothing is left, afterwards all is there."""
    assert kill_driver(proxy, bucket, number, is_carried_out=is_carried_out)
    recover(capsys, bucket, "resume")
    check(bucket, is_whole=(number, is_carried_out) >= (PLAN, True), old=[])


@pytest.mark.parametrize("number", [PLAN + 2, LAST])
def test_a_driver_that_is_killed_is_taken_back_unless_it_was_committed(
    proxy: S3Proxy, bucket: Bucket, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    """With `_SUCCESS` the job is decided, and can only be finished."""
    assert kill_driver(proxy, bucket, number, is_carried_out=False)
    recover(capsys, bucket, "rollback")
    check(bucket, is_whole=number == LAST, old=[])


@pytest.mark.nightly
@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("action", ["resume", "rollback"])
@pytest.mark.parametrize("conflict", ["fail", "append", "replace"])
def test_a_driver_is_killed_at_each_of_its_requests(
    proxy: S3Proxy,
    s3: S3Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    conflict: str,
    action: str,
    *,
    is_carried_out: bool,
) -> None:
    """The long form, until a job ends before its turn."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    plan = PLAN if conflict == "append" else PLAN + 1  # its listing comes first
    number = 0
    while True:
        number += 1
        bucket = Bucket(s3)
        bucket.client.create_multipart_upload(Bucket=bucket.name, Key="out10/theirs")
        old = ["old-0", "old-1"] if conflict == "replace" else []
        for name in old:
            bucket.put(f"out/{name}")
        was_killed = kill_driver(
            proxy, bucket, number, is_carried_out=is_carried_out, conflict=conflict
        )
        if number < plan + (not is_carried_out):
            is_whole = False
        elif action == "resume" or not was_killed:
            is_whole = True
        else:
            is_whole = has_success(bucket)
        recover(capsys, bucket, action)
        check(bucket, is_whole=is_whole, old=[] if is_whole else old)
        if not was_killed:
            assert number > LAST
            return
