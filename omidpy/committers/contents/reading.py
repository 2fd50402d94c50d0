"""What has the last committed job left at a destination?  Asked of its head, and not of a listing.

    omidpy.committers.published("s3://bucket/folder").table()

A folder shows files one after the other while a job publishes, and those of a driver that died in
the middle, for as long as its plan is not ended.  Its head has them all from one instant on, or
none (C12).  What it does not know is what other tools have written there: `others` does.

    requests: 1 read, and 1 for each list that the head names; without a head 1 listing for each
              1,000 keys, 1 of plans, and 1 read
"""

from __future__ import annotations

from typing import Any, Final

from omidpy.committers.choice import object_store
from omidpy.committers.contents.manifests import PublishedFile
from omidpy.committers.contents.state import PublishedState
from omidpy.committers.heads import deciding, listing, looking
from omidpy.committers.heads.changes import ListedFile
from omidpy.committers.heads.head import Head, head_key
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.answers import Gone
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder, owner, parse_folder
from omidpy.committers.publishing import ending
from omidpy.errors import CommitterError

TRIES: Final = 100
"""How often a head is read again that others write; each time one of them has got on."""


def published(destination: str, **options: Any) -> PublishedState:
    """Return what a destination has, as of the last commit of a job there.

    Args:
        destination: `s3://BUCKET/FOLDER`.
        options: How it is reached: endpoint_url, region, profile, path_style and threads.

    Returns:
        Files of committed jobs alone, and all of those; none where no job was committed.

    Raises:
        CommitterError: It is not known, since another tool has written what is there, or an omidpy
            that did not list files.
        UsageError: The address or an option is wrong.
    """
    folder = parse_folder(destination)
    return state_of(object_store(folder.url, options), folder)


def state_of(store: ObjectStore, folder: Folder) -> PublishedState:
    """Return what a destination has; see `published`."""
    for _ in range(TRIES):
        seen = looking.read(store, folder)
        if not seen.etag:
            found = others(store, PublishedState(folder.url, 0, (), store))
            if looking.read(store, folder).etag:
                continue  # the first job was committed just now
            if found:
                raise CommitterError(
                    f"{folder.url} has no head, and {len(found)} files, {found[0]} for one: "
                    "another tool has written them, and says itself which are part of it; a job "
                    "with conflict='replace' begins a list of them"
                )
            return PublishedState(folder.url, 0, (), store)
        if seen.head.unlisted:
            raise CommitterError(
                f"s3://{folder.bucket}/{head_key(folder)} does not say which files commits up to "
                f"{seen.head.unlisted} have left: an earlier omidpy has written it; a job with "
                "conflict='replace' begins a list of them"
            )
        try:
            listed = listing.files_if_newest(store, folder, seen)
        except Gone as error:
            raise CommitterError(
                f"{error}; the head of {folder.url} names this list, and somebody has removed "
                "it; a job with conflict='replace' begins a new one"
            ) from error
        if listed is not None:
            files = tuple(_published(folder, one) for one in listed)
            return PublishedState(folder.url, seen.head.epoch, files, store)
    raise CommitterError(
        f"the head of {folder.url} was written by others {TRIES} times while it was read; ask again"
    )


def others(store: ObjectStore, state: PublishedState) -> list[str]:
    """Return the keys of files that readers of the folder see, and that no job's head knows.

    1 listing for each 1,000 keys, 1 of plans, and 1 read for each plan and for the head.
    """
    folder = parse_folder(state.destination)
    seen = {one.key for one in state.files}
    nothing = Plan("nobody00", "omidpy", folder, ())
    found = deciding.visible(store, nothing, "folder", Head())
    left = [one.key for one in found if one.key not in seen]
    if not left:
        return []
    # What a committed job has yet to remove is in its plan; a job that was committed since the
    # state was read is in the newest head.
    for job_id in looking.planned_jobs(store, folder):
        removed = _removed(store, folder, job_id)
        left = [key for key in left if key not in removed]
    now = looking.read(store, folder).head
    return [key for key in left if not (owner(key) and now.is_committed(owner(key)))]


def _removed(store: ObjectStore, folder: Folder, job_id: str) -> frozenset[str]:
    key = folder.plan_key(job_id)
    try:
        plan, _ = ending.load(store, f"s3://{folder.bucket}/{key}", folder.bucket, key)
    except CommitterError as error:
        if isinstance(error.__cause__, Gone):
            return frozenset()
        raise
    return frozenset(one.key for one in plan.old)


def _published(folder: Folder, one: ListedFile) -> PublishedFile:
    key = folder.key(one.path)
    return PublishedFile(folder.bucket, key, one.path, one.length, one.rows, one.etag)
