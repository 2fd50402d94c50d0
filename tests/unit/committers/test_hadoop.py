"""Hadoop's files about files: the bytes that it writes and reads, and those that nobody should."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omidpy.committers.objects import pendings
from omidpy.committers.values import PendingFile, TaskId
from omidpy.errors import CommitterError

FILE = PendingFile("out/p=1/f", 7, 3, "upload-1", ("aa", "bb"))
PATH = "out/__magic_job-j/job-j/00/tasks/attempt_omidpy_0000_m_000002_1/__base/p=1/f"
STATISTICS = (
    '"iostatistics":{"counters":{},"gauges":{},"minimums":{},"maximums":{},"meanstatistics":{}}'
)
SAID = (
    '"uri":"s3a://b/' + PATH + '","uploadId":"upload-1","bucket":"b","destinationKey":"out/p=1/f",'
    '"created":1795383972717,"saved":1795383972717,"date":"Sun Nov 22 21:46:12 UTC 2026",'
)
REST = (
    '"text":"","etags":[{"etag":"\\"aa\\"","checksumAlgorithm":null,"checksum":null},'
    '{"etag":"\\"bb\\"","checksumAlgorithm":null,"checksum":null}],'
    '"extraData":{"omidpy":"plan"},"length":7,' + STATISTICS + ',"partCount":2}'
)


def test_a_pending_has_hadoops_fields_in_hadoops_order() -> None:
    """As hadoop-aws 3.5.0 wrote them to a server."""
    found = pendings.encode_pending("b", PATH, FILE, now_ms=1795383972717).decode()
    assert found == ('{"version":2,"filename":null,' + SAID + '"jobId":"","taskId":"",' + REST)


def test_a_set_has_hadoops_fields_in_hadoops_order() -> None:
    """Each upload in it tells where its own `.pending` was, and of which attempt."""
    found = pendings.encode_set(
        "b", [(PATH, FILE)], now_ms=1795383972717, job_id="j", task=TaskId(2, 1)
    ).decode()
    assert found == (
        '{"version":3,"jobId":"j","commits":[{"version":2,"filename":"s3a://b/'
        + PATH
        + '.pending",'
        + SAID
        + '"jobId":"j","taskId":"attempt_omidpy_0000_m_000002_1",'
        + REST
        + "],"
        + STATISTICS
        + "}"
    )


def test_paths_are_hadoops() -> None:
    """A `.pendingset` has the name of a task, and attempts at it are told by theirs."""
    assert pendings.attempt_folder("j", TaskId(2, 1)) + "p=1/f" == PATH.removeprefix("out/")
    name = "task_omidpy_0000_m_000002.pendingset"
    assert pendings.set_path("j", TaskId(2, 1)) == f"__magic_job-j/job-j/00/{name}"
    assert pendings.set_of_attempt("attempt_omidpy_0000_m_000002_1") == name
    assert pendings.set_of_attempt("something else") == ""


def test_what_was_written_is_read() -> None:
    """Without what Hadoop does not know: rows, and that our objects name their job."""
    said = pendings.decode_pending(pendings.encode_pending("b", PATH, FILE, now_ms=0), "x")
    expected = PendingFile("out/p=1/f", 7, None, "upload-1", ("aa", "bb"), is_stamped=False)
    assert said == pendings.Pending("b", expected, is_ours=True)
    data = pendings.encode_set("b", [(PATH, FILE)], now_ms=0, job_id="j", task=TaskId(0))
    assert pendings.decode_set(data, "x") == pendings.Pendings("j", (said,))


COMMIT: dict[str, Any] = json.loads(pendings.encode_pending("b", PATH, FILE, now_ms=0))
SET: dict[str, Any] = {"version": 3, "jobId": "j", "commits": [COMMIT]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({**SET, "version": 4}, "s3://b/x is of version 4, and this omidpy knows version 3"),
        ({**SET, "commits": [{**COMMIT, "version": 3}]}, "an upload of version 3"),
        ({**SET, "commits": [COMMIT, COMMIT]}, "two uploads for one key"),
        ({**SET, "commits": [{**COMMIT, "uploadId": ""}]}, "without bucket, key or id"),
        ({**SET, "commits": [{**COMMIT, "etags": []}]}, "without length or tags"),
        ({**SET, "commits": [{**COMMIT, "length": -1}]}, "without length or tags"),
        # So did versions before 3.4.
        ({**SET, "commits": [{**COMMIT, "etags": ["aa"]}]}, "cannot be read: Expected `object`"),
        ({"version": 3, "jobId": "j"}, "missing required field `commits`"),
        ([], "cannot be read"),
    ],
)
def test_a_set_that_nobody_understands_is_refused(document: object, message: str) -> None:
    """By its address, before anything of it is acted on."""
    with pytest.raises(CommitterError, match=message):
        pendings.decode_set(json.dumps(document).encode(), "s3://b/x")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"3"])
def test_what_is_no_json_of_hadoops_is_refused(data: bytes) -> None:
    """Half of a file, too."""
    with pytest.raises(CommitterError, match="s3://b/x cannot be read"):
        pendings.decode_pending(data, "s3://b/x")
