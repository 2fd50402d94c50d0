"""What do Hadoop's magic committer and ours leave for each other?  Its files about files, as JSON.

    DEST/__magic_job-<job>/job-<job>/<run>/tasks/<attempt>/__base/<path>.pending
    DEST/__magic_job-<job>/job-<job>/<run>/<task>.pendingset

A `.pending` is one upload of an attempt at a task; a `.pendingset` has those of a task that was
committed.  Fields that are not needed here are written as Hadoop writes them, and ignored when
read.

What is read here a stranger may have written: a caller that acts on it asks first whether its keys
are below the destination.

Source: hadoop-aws 3.5.0; its SinglePendingCommit is version 2, its PendingSet version 3.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from omidpy.base.documents import prepared
from omidpy.committers.values import PendingFile, TaskId
from omidpy.errors import CommitterError

PENDING: Final = ".pending"
PENDING_SET: Final = ".pendingset"
MAGIC: Final = "__magic_job-"
BASE: Final = "__base"

_COMMIT_VERSION: Final = 2
_SET_VERSION: Final = 3
_MARK: Final = "omidpy"
"""In `extraData`, which is for jobs that say more: a plan decides about this job."""
_TRACKER: Final = "omidpy_0000_m"
_ATTEMPT: Final = re.compile(r"attempt_(.+)_[0-9]+")
_NO_STATISTICS: Final[dict[str, dict[str, int]]] = {
    "counters": {},
    "gauges": {},
    "minimums": {},
    "maximums": {},
    "meanstatistics": {},
}


class Unreadable(CommitterError):
    """A file about files that cannot be understood."""


class _Etag(msgspec.Struct):
    etag: str


class _Commit(msgspec.Struct, rename="camel"):
    version: int
    bucket: str
    destination_key: str
    upload_id: str
    length: int
    etags: list[_Etag]
    extra_data: dict[str, str] | None = None


class _Set(msgspec.Struct, rename="camel"):
    version: int
    job_id: str
    commits: list[_Commit]


@dataclass(frozen=True, slots=True)
class Pending:
    """An upload, as a file about it says."""

    bucket: str
    file: PendingFile
    is_ours: bool = False
    """Whether a committer of this product began it, whose job a plan decides about."""


@dataclass(frozen=True, slots=True)
class Pendings:
    """The uploads of a committed task."""

    job_id: str
    commits: tuple[Pending, ...]


def magic_folder(job_id: str) -> str:
    """Return the folder of a job's files about files, below its destination."""
    return f"{MAGIC}{job_id}/"


def attempt_folder(job_id: str, task: TaskId) -> str:
    """Return the folder of an attempt's `.pending`s, below the destination."""
    attempt = f"attempt_{_TRACKER}_{task.task:06}_{task.attempt}"
    return f"{magic_folder(job_id)}job-{job_id}/00/tasks/{attempt}/{BASE}/"


def set_path(job_id: str, task: TaskId) -> str:
    """Return the path of a task's `.pendingset`, below the destination."""
    return f"{magic_folder(job_id)}job-{job_id}/00/task_{_TRACKER}_{task.task:06}{PENDING_SET}"


def set_of_attempt(attempt: str) -> str:
    """Return the name of the `.pendingset` that an attempt's task leaves; empty if it is none."""
    match = _ATTEMPT.fullmatch(attempt)
    return f"task_{match[1]}{PENDING_SET}" if match else ""


def encode_pending(bucket: str, path: str, one: PendingFile, *, now_ms: int) -> bytes:
    """Return what the `.pending` of a file holds whose own path is `bucket`, `path`."""
    return _json(_document(bucket, path, one, now_ms))


def encode_set(
    bucket: str, files: Sequence[tuple[str, PendingFile]], *, now_ms: int, job_id: str, task: TaskId
) -> bytes:
    """Return what a `.pendingset` holds: files, each with its path below the magic folder."""
    task_id = f"attempt_{_TRACKER}_{task.task:06}_{task.attempt}"
    commits = [
        {
            **_document(bucket, path, one, now_ms),
            "filename": f"s3a://{bucket}/{path}{PENDING}",
            "jobId": job_id,
            "taskId": task_id,
        }
        for path, one in files
    ]
    return _json(
        {
            "version": _SET_VERSION,
            "jobId": job_id,
            "commits": commits,
            "iostatistics": _NO_STATISTICS,
        }
    )


def decode_pending(data: bytes, address: str) -> Pending:
    """Read a `.pending`.

    Raises:
        Unreadable: It is none, or one of another version.
    """
    return _pending(_converted(data, address, _Commit, _COMMIT_VERSION), address)


def decode_set(data: bytes, address: str) -> Pendings:
    """Read a `.pendingset`.

    Raises:
        Unreadable: It is none, or one of another version, or has a key twice.
    """
    found: _Set = _converted(data, address, _Set, _SET_VERSION)
    commits = tuple(_pending(one, address) for one in found.commits)
    if len({one.file.key for one in commits}) != len(commits):
        raise Unreadable(f"{address} has two uploads for one key; nothing was touched")
    return Pendings(found.job_id, commits)


def _document(bucket: str, path: str, one: PendingFile, now_ms: int) -> dict[str, Any]:
    return {
        "version": _COMMIT_VERSION,
        "filename": None,
        "uri": f"s3a://{bucket}/{path}",
        "uploadId": one.upload_id,
        "bucket": bucket,
        "destinationKey": one.key,
        "created": now_ms,
        "saved": now_ms,
        "date": time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000)),
        "jobId": "",
        "taskId": "",
        "text": "",
        "etags": [
            {"etag": f'"{etag}"', "checksumAlgorithm": None, "checksum": None} for etag in one.etags
        ],
        "extraData": {_MARK: "plan"},
        "length": one.length,
        "iostatistics": _NO_STATISTICS,
        "partCount": len(one.etags),
    }


def _converted(data: bytes, address: str, kind: Any, version: int) -> Any:
    try:
        raw = json.loads(data)
        if isinstance(raw, dict) and raw.get("version", version) != version:
            raise Unreadable(
                f"{address} is of version {raw['version']!r}, and this omidpy knows version "
                f"{version} of it; finish its job with what wrote it, or a newer omidpy"
            )
        return msgspec.convert(raw, prepared(kind))
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise Unreadable(
            f"{address} cannot be read: {error}; nothing was touched.  If its job is lost anyway, "
            "delete it and roll the job back"
        ) from error


def _pending(one: _Commit, address: str) -> Pending:
    etags = tuple(etag.etag.strip('"') for etag in one.etags)
    if one.version != _COMMIT_VERSION:
        raise Unreadable(
            f"{address} has an upload of version {one.version}, and this omidpy knows version "
            f"{_COMMIT_VERSION}; finish its job with what wrote it, or a newer omidpy"
        )
    if not (one.bucket and one.destination_key and one.upload_id):
        raise Unreadable(f"{address} has an upload without bucket, key or id")
    if one.length < 0 or not etags or not all(etags):
        raise Unreadable(f"{address} has an upload without length or tags")
    file = PendingFile(
        one.destination_key.removeprefix("/"),
        one.length,
        None,
        one.upload_id,
        etags,
        is_stamped=False,
    )
    return Pending(one.bucket, file, is_ours=_MARK in (one.extra_data or {}))


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
