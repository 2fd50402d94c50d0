"""What has a dead job of Hadoop left, and what would finish it or take it back?

    s3://BUCKET/DEST/__magic_job-<job>

Hadoop writes no plan: its magic folder is all that is known of a job.  It becomes a plan here, with
the files of every task that was committed, and from then on is a job like any other.

    C7 (nothing-guessed)  no plan is made of a folder that has a file about files which cannot be
                          understood, or which speaks of another job, bucket or destination

What cannot be known is how many tasks the job had.  A task that was begun and not committed says
that the job was not ready, and it is refused; for the rest, the operator that resumes it knows, or
rolls it back.  A job of ours that has no plan had not decided, and can only be rolled back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects import pendings
from omidpy.committers.objects.answers import Gone
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder, check_job_id, parse_folder
from omidpy.committers.publishing import ending
from omidpy.committers.publishing.completing import Progress, unobserved
from omidpy.committers.values import Manifest, PendingFile
from omidpy.errors import CommitterError, UsageError

_FOLDER: Final = re.compile(rf"((?:.*/)?){pendings.MAGIC}([^/]+)/", re.DOTALL)
_RUN: Final = re.compile(r"job-[^/]+/([0-9]+)/(.+)", re.DOTALL)
_ATTEMPT: Final = re.compile(r"tasks/([^/]+)/.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Adopted:
    """A job's magic folder, read."""

    plan: Plan
    etag: str
    """Of the plan; empty while none is written."""
    tasks: int = 0
    """How many were committed."""
    unready: str = ""
    """Why it cannot be finished; empty if it can."""


def is_magic(address: str) -> bool:
    """Say whether an address is one of a magic folder, and not of a plan."""
    return address.rstrip("/").rpartition("/")[2].startswith(pendings.MAGIC)


def magic_folders(store: ObjectStore, folder: Folder) -> list[str]:
    """Return the addresses of all magic folders below a folder; a listing of it."""
    found = {
        match[0]: None
        for one in store.objects(folder)
        if (match := re.match(rf"(?:.*/)?{pendings.MAGIC}[^/]+(?=/)", one.key, re.DOTALL))
    }
    return [f"s3://{folder.bucket}/{one}" for one in found]


def committed_uploads(store: ObjectStore, folder: Folder) -> Iterator[tuple[str, pendings.Pending]]:
    """Yield the uploads of committed tasks below a folder, each with its job's magic folder.

    A job that died in the middle of its commit would be half visible for ever without them.

    Raises:
        CommitterError: A file about files cannot be understood: it is not known of what it speaks.
    """
    for address in magic_folders(store, folder):
        at = parse_folder(address)
        for key in [one.key for one in store.objects(at)]:
            if key.endswith(pendings.PENDING_SET):
                data, _ = _fetched(store, at.bucket, key)
                for one in pendings.decode_set(data, f"s3://{at.bucket}/{key}").commits:
                    yield address, one


def load(store: ObjectStore, address: str) -> Adopted:
    """Read a magic folder, or the plan that was made of it; nothing is written.

    Raises:
        CommitterError: There is none, or something in it cannot be understood.
        UsageError: The address is none of a magic folder.
    """
    at = parse_folder(address)
    match = _FOLDER.fullmatch(at.prefix)
    if match is None:
        raise UsageError(f"{address!r} is no magic folder; write s3://BUCKET/DEST/__magic_job-JOB")
    folder, job_id = Folder(at.bucket, match[1]), check_job_id(match[2])
    key = folder.plan_key(job_id)
    try:
        plan, etag = ending.load(store, f"s3://{at.bucket}/{key}", at.bucket, key)
    except CommitterError as error:
        if not isinstance(error.__cause__, Gone):
            raise
        return _read(store, folder, at, job_id)
    return Adopted(plan, etag)


def resume(store: ObjectStore, address: str, progress: Progress = unobserved) -> Manifest:
    """Publish what the committed tasks of a dead job have written.

    Raises:
        CommitterError: It cannot be finished; with `plan`, it was begun.
    """
    found = load(store, address)
    if found.unready:
        raise CommitterError(
            f"job {found.plan.job_id} cannot be finished: {found.unready}; run `omidpy committers "
            f"plan rollback {found.plan.magic_address}`"
        )
    if not found.etag:
        ending.begin(store, found.plan)
    return ending.resume(store, found.plan, progress)


def take_back(store: ObjectStore, address: str, progress: Progress = unobserved) -> Plan:
    """Abort what a dead job has left, and remove what of it is visible.

    Raises:
        CommitterError: It was committed, or the store failed.
    """
    found = load(store, address)
    ending.take_back(store, found.plan, found.etag, progress)
    return found.plan


def _read(store: ObjectStore, folder: Folder, at: Folder, job_id: str) -> Adopted:
    sets: dict[str, dict[str, str]] = {}
    attempts: set[tuple[str, str]] = set()
    is_there = is_ours = False
    for one in store.objects(at):
        is_there = True
        match = _RUN.fullmatch(at.below(one.key))
        if match is None:
            continue
        run, path = match[1], match[2]
        if path.endswith(pendings.PENDING_SET) and "/" not in path:
            sets.setdefault(run, {})[path] = one.key
        elif path.endswith(pendings.PENDING) and (attempt := _ATTEMPT.fullmatch(path)):
            attempts.add((run, attempt[1]))
            pending, _ = _fetched(store, at.bucket, one.key)
            said = pendings.decode_pending(pending, f"s3://{at.bucket}/{one.key}")
            is_ours = is_ours or said.is_ours
    if not is_there:
        raise CommitterError(
            f"there is no {at.url}: its job was finished or taken back, or has another id"
        )
    # A job that was begun anew, with its driver, has a folder for each run; the last one counts.
    last = max([*sets, *(run for run, _ in attempts)], key=int, default="")
    files: dict[str, PendingFile] = {}
    for key in sets.get(last, {}).values():
        for commit in _commits(store, folder, key, job_id):
            is_ours = is_ours or commit.is_ours
            if files.setdefault(commit.file.key, commit.file) is not commit.file:
                raise CommitterError(
                    f"two tasks of job {job_id} have written {commit.file.key}; nothing was touched"
                )
    begun = sorted(
        attempt
        for run, attempt in attempts
        if run == last and pendings.set_of_attempt(attempt) not in sets.get(last, {})
    )
    unready = ""
    if is_ours:
        unready = "it has no plan, and so had not begun to commit when it died"
    elif begun:
        unready = f"{begun[0]} had written, and its task was not committed"
    elif not sets.get(last):
        unready = "no task of it was committed"
    plan = Plan(
        job_id,
        "magic",
        folder,
        tuple(files[key] for key in sorted(files)),
        created_ms=int(time.time() * 1000),
        success={"adopted": True},
        is_magic=True,
    )
    return Adopted(plan, "", len(sets.get(last, {})), unready)


def _commits(
    store: ObjectStore, folder: Folder, key: str, job_id: str
) -> Iterator[pendings.Pending]:
    address = f"s3://{folder.bucket}/{key}"
    found = pendings.decode_set(_fetched(store, folder.bucket, key)[0], address)
    if found.job_id != job_id:
        raise CommitterError(
            f"{address} is of job {found.job_id!r}, and not of {job_id}; nothing was touched"
        )
    for one in found.commits:
        if one.bucket != folder.bucket or not one.file.key.startswith(folder.prefix):
            raise CommitterError(
                f"{address} speaks of s3://{one.bucket}/{one.file.key}, which is not below "
                f"{folder.url}; nothing was touched"
            )
        yield one


def _fetched(store: ObjectStore, bucket: str, key: str) -> tuple[bytes, str]:
    try:
        return store.get(bucket, key)
    except Gone as error:
        raise CommitterError(
            f"s3://{bucket}/{key} went while it was read: its job is running, or somebody else "
            "finishes it; nothing was touched"
        ) from error
