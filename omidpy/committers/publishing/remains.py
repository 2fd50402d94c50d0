"""What does a job's magic folder still speak of, when the job ends?

Its files about files go with the job, and so do uploads that they speak of and the job has no use
for: of attempts that were lost, and of runs before the last.

    C3 (own-only)  nothing is aborted whose key is not below the destination
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from omidpy.committers.objects import pendings
from omidpy.committers.objects.answers import Gone
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder

_log: Final = logging.getLogger(__name__)


def clear(
    store: ObjectStore, folder: Folder, job_id: str, *, keeps: Collection[tuple[str, str]]
) -> None:
    """Remove a job's magic folder, and abort what it speaks of but for `keeps`: keys and uploads.

    Raises:
        CommitterError: The store failed; what is left can be removed by another call.
    """
    store.delete_many(folder.bucket, removable(store, folder, job_id, keeps))


def removable(
    store: ObjectStore,
    folder: Folder,
    job_id: str,
    keeps: Collection[tuple[str, str]],
    *,
    unread: str = "",
) -> list[str]:
    """Abort what files of a magic folder speak of, but for `keeps`; return the keys to remove.

    A file that cannot be understood stays: what it speaks of would be lost from sight.
    """
    below = Folder(folder.bucket, folder.key(pendings.magic_folder(job_id)))
    keys = []
    for key in [one.key for one in store.objects(below)]:
        address = f"s3://{folder.bucket}/{key}"
        commits: tuple[pendings.Pending, ...] = ()
        try:
            if key.endswith(pendings.PENDING):
                commits = (pendings.decode_pending(store.get(folder.bucket, key)[0], address),)
            elif key.endswith(pendings.PENDING_SET) and not unread:
                commits = pendings.decode_set(store.get(folder.bucket, key)[0], address).commits
        except Gone:
            continue
        except pendings.Unreadable as error:
            _log.warning("left behind by job %s: %s", job_id, error)
            continue
        for one in commits:
            is_below = one.bucket == folder.bucket and one.file.key.startswith(folder.prefix)
            if is_below and (one.file.key, one.file.upload_id) not in keeps:
                store.abort_upload(one.bucket, one.file.key, one.file.upload_id)
        keys.append(key)
    return keys
