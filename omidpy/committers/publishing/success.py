"""The `_SUCCESS` object: JSON that says what a job has published.

Hadoop's `SuccessData` reads it: the names, the version and the types of its fields are Hadoop's,
and what is ours is added beside them.  Hadoop lists at most a hundred files; we list all.
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from omidpy.committers.values import Manifest, PendingFile, TaskMessage
from omidpy.errors import CommitterError

NAME: Final = "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"

_HADOOPS_NAMES: Final = {
    "CreateMultipartUpload": "object_multipart_initiated",
    "UploadPart": "multipart_upload_part_put",
    "CompleteMultipartUpload": "multipart_upload_completed",
    "AbortMultipartUpload": "object_multipart_aborted",
    "ListMultipartUploads": "object_multipart_list",
    "PutObject": "object_put_request",
    "GetObject": "action_http_get_request",
    "HeadObject": "action_http_head_request",
    "ListObjectsV2": "object_list_request",
    "DeleteObject": "object_delete_request",
    "DeleteObjects": "object_bulk_delete_request",
}
"""How Hadoop's statistics call what is asked of a store; those of file systems are its own."""


def summed(
    messages: Iterable[TaskMessage], sender: str, operations: Mapping[str, int]
) -> dict[str, int]:
    """Return how many requests of each operation a job has sent: its driver's and its tasks'.

    Args:
        messages: Of its tasks; some may have been sent through the driver's own store.
        sender: That store.
        operations: What it has sent.
    """
    last: dict[str, TaskMessage] = {}
    for one in messages:
        # A sender counts on from task to task.
        if one.sender != sender and one.requests >= (last.get(one.sender) or one).requests:
            last[one.sender] = one
    total = Counter(operations)
    for one in last.values():
        total.update(one.operations)
    return dict(sorted(total.items()))


def encode(manifest: Manifest, files: tuple[PendingFile, ...], *, now_ms: int) -> bytes:
    """Return what `_SUCCESS` holds."""
    metrics = {
        "committer_bytes_committed": manifest.bytes_written,
        "committer_jobs_completed": 1,
        "committer_commits_completed": len(manifest.files),
        "committer_requests": manifest.requests,
        "committer_rows": -1 if manifest.rows is None else manifest.rows,
        "committer_milliseconds": int(manifest.seconds * 1000),
    }
    document = {
        "name": NAME,
        "success": True,
        "timestamp": now_ms,
        "date": time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000)),
        "hostname": socket.gethostname(),
        "committer": manifest.committer,
        "description": f"published by omidpy to {manifest.destination}",
        "jobId": manifest.job_id,
        "jobIdSource": "omidpy",
        "metrics": metrics,
        "diagnostics": {},
        "iostatistics": {
            "counters": {
                _HADOOPS_NAMES.get(name, name): count for name, count in manifest.operations.items()
            },
            "gauges": {},
            "minimums": {},
            "maximums": {},
            "meanstatistics": {},
        },
        "filenames": [f"/{key}" for key in manifest.files],
        "state": "committed",
        "stage": "commit_job",
        "omidpy": {
            "destination": manifest.destination,
            "bytes": manifest.bytes_written,
            "rows": manifest.rows,
            "seconds": round(manifest.seconds, 3),
            "requests": manifest.requests,
            "operations": manifest.operations,
            "replaced": manifest.replaced,
            "files": [
                {"key": one.key, "bytes": one.length, "rows": one.rows, "etag": one.etag}
                for one in files
            ],
            **manifest.extra,
        },
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode(data: bytes, address: str) -> dict[str, Any]:
    """Read `_SUCCESS`; an empty one is what committers that rename leave, and is an empty dict.

    Raises:
        CommitterError: It is not what a committer writes.
    """
    if not data:
        return {}
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CommitterError(f"{address} is no JSON: {error}") from error
    # Hadoop's own committer of manifests calls its class otherwise, and means the same.
    if not isinstance(document, dict) or "SuccessData" not in str(document.get("name")):
        raise CommitterError(f"{address} is no manifest of a job")
    if not document["name"].endswith("/1"):
        raise CommitterError(
            f"{address} is a newer manifest, {document['name']!r}; this omidpy knows version 1"
        )
    return document
