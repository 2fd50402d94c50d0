"""Plans as JSON, and what is refused as one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from omidpy.committers.heads import plan as plans
from omidpy.committers.heads.plan import OldFile, Plan
from omidpy.committers.places import Folder
from omidpy.committers.values import PendingFile
from omidpy.errors import CommitterError

FOLDER = Folder("bucket", "out/")
PLAN = Plan(
    "job_00001",
    "omidpy",
    FOLDER,
    (
        PendingFile("out/a", 3, 1, "upload", ("0" * 32,)),
        PendingFile("out/b", 4, None, data=b"\x00\xff\n'"),
    ),
    (OldFile("out/old", "tag"),),
    is_new_only=False,
    is_sole=True,
    created_ms=17,
    run="one",
)
ADDRESS = "s3://bucket/out/_omidpy/job_00001/plan.json"


def changed(**changes: Any) -> bytes:
    """Return the plan with something else in it."""
    return json.dumps({**json.loads(plans.encode(PLAN)), **changes}).encode()


def test_a_plan_survives_being_written() -> None:
    """Whoever finishes the job knows nothing but this."""
    assert PLAN.address == ADDRESS
    assert plans.decode(plans.encode(PLAN), ADDRESS) == PLAN


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"[]", "is no plan"),
        (b'{"version": 1}', "is no plan"),
        (changed(version=3), "version 3.*knows version 2"),
        (changed(files=None), "cannot be read"),
        (changed(state="done"), "cannot be read"),
        (changed(job="x"), "cannot be read"),
        (changed(destination="/tmp"), "cannot be read"),
        (changed(files=[{"key": "a", "length": 1}]), "neither an upload nor bytes"),
        (changed(files=[{"key": "a", "length": 1, "data": "AAAA"}]), "3 bytes, not 1"),
        (changed(files=[{"key": "a", "length": 1, "data": "?"}]), "cannot be read"),
        (changed(files=[{"key": "a", "length": 1, "data": "eA==?"}]), "cannot be read"),
        (changed(destination="s3://bucket/other"), "copied or moved"),
        (changed(job="job_00002"), "copied or moved"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"success":' + b"[" * 100_000, "cannot be read"),
        (changed(success_path="data/theirs"), "does not write its manifest to 'data/theirs'"),
        (changed(success_path="_omidpy/head.json"), "does not write its manifest"),
        (changed(success_path="_omidpy/streams/../head.json"), "does not write its manifest"),
        (changed(files=[{"key": "../a", "length": 1, "data": "eA=="}]), "no path of a file"),
        (changed(files=[{"key": "_SUCCESS", "length": 1, "data": "eA=="}]), "readers"),
        (changed(files=[{"key": "a\x00", "length": 1, "data": "eA=="}]), "control character"),
        (changed(files=[{"key": "a", "length": -1, "upload_id": "u"}]), "-1 bytes"),
        (changed(files=[{"key": "a", "length": 1, "data": "eA=="}] * 2), "have one key"),
        (changed(old=[{"key": "a", "etag": "t"}]), "removes a file that it has"),
        (changed(old=[{"key": "_omidpy/x/plan.json", "etag": "t"}]), "readers do not see"),
        (changed(old=[{"key": "", "etag": "t"}]), "no path of a file"),
    ],
)
def test_what_is_no_plan_is_refused(data: bytes, message: str) -> None:
    """It would be carried out: a slip may cost somebody else's files."""
    with pytest.raises(CommitterError, match=message) as raised:
        plans.decode(data, ADDRESS)
    assert ADDRESS in str(raised.value)


def test_keys_of_a_plan_lie_below_its_destination() -> None:
    """They are written as paths below it, so that no plan can name another folder's object."""
    document = json.loads(plans.encode(PLAN))
    assert [one["key"] for one in document["files"]] == ["a", "b"]
    assert [one["key"] for one in document["old"]] == ["old"]


def test_the_tag_of_an_object_is_known_before_it_is_there() -> None:
    """By it a driver recognises its own object, and bytes that were changed on the way."""
    import hashlib

    part = hashlib.md5(b"x").hexdigest()
    both = hashlib.md5(bytes.fromhex(part) * 2).hexdigest()
    assert PendingFile("k", 2, upload_id="u", etags=(part, part)).etag == f"{both}-2"
    assert PendingFile("k", 1, data=b"x").etag == part
    assert not PendingFile("k", 1, upload_id="u", etags=("opaque",)).etag


def test_a_plan_that_ends_in_a_log_is_no_plan_to_who_knows_none() -> None:
    """An earlier omidpy would end it without its last step."""
    plan = replace(PLAN, table={"format": "delta", "schema": "{}", "partition_by": []})
    assert json.loads(plans.encode(plan))["version"] == 2
    assert json.loads(plans.encode(PLAN))["version"] == 1
    assert plans.decode(plans.encode(plan), ADDRESS) == plan
