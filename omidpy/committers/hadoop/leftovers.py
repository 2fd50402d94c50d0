"""What have jobs left?  Uploads that were not completed, and plans that were not ended.

An upload that a plan speaks of belongs to a job that has begun to commit: to abort it would leave
the job half visible until it is taken back, so that it is kept, and the plan is named.

A store has no condition on an abort, and a plan may be written at any moment.  So plans are looked
at again while uploads are aborted, no longer than LOOK_AGAIN_S before, and once behind that: whose
plan came in between is told.  Such a job decides nothing before all its files are complete; it
finds that one never will be, takes back what it has completed, and fails, as one that loses its
uploads before it has a plan.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from omidpy.committers.hadoop import rescue
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.answers import Gone, translated
from omidpy.committers.objects.store import ObjectStore, Upload
from omidpy.committers.places import PLANS, Folder, names_job
from omidpy.committers.publishing import ending
from omidpy.committers.publishing.completing import Progress, unobserved
from omidpy.errors import CommitterError

LOOK_AGAIN_S: Final = 5.0
"""How long plans are believed to be all that there are."""

_PLAN: Final = re.compile(rf"(?:.*/)?{PLANS}[^/]+/plan\.json", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Aborted:
    """What became of uploads."""

    aborted: tuple[Upload, ...]
    gone: tuple[Upload, ...]
    """Completed or aborted by another process meanwhile."""
    planned: tuple[tuple[Upload, str], ...]
    """Kept, each with the address of the plan that speaks of it."""
    hit: tuple[tuple[Upload, str], ...] = ()
    """Those of `aborted` of which a plan speaks that was written meanwhile, each with its address:
    its job fails, and takes back what it has made visible."""


def matching(
    uploads: Iterator[Upload], *, job_id: str | None = None, started_before_ms: int | None = None
) -> list[Upload]:
    """Return the uploads of a job, or those that began before a moment, or those that are both."""
    return [
        one
        for one in uploads
        if (job_id is None or names_job(one.key, job_id))
        and (started_before_ms is None or one.started_ms <= started_before_ms)
    ]


def moment_ms(store: ObjectStore, folder: Folder, *, age_s: float) -> int:
    """Return which moment was so long ago, by the store's date, by which uploads are dated.

    This machine's may be hours ahead, and the uploads of a job that has only begun would be old.

    Cost: 1 request.
    """
    with translated(folder.url, "ask for the date"):
        answer = store.client.list_multipart_uploads(
            Bucket=folder.bucket, Prefix=folder.prefix, MaxUploads=1
        )
    stated = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        now_s = parsedate_to_datetime(stated).timestamp()
    except ValueError:
        now_s = time.time()  # a store that does not say
    return int((now_s - age_s) * 1000)


def abort(
    store: ObjectStore,
    folder: Folder,
    uploads: Sequence[Upload],
    progress: Progress = unobserved,
) -> Aborted:
    """Abort uploads, but for those of plans, and of committed tasks of Hadoop's magic jobs."""
    planned: dict[tuple[str, str], str] = {}
    aborted, gone, kept = [], [], []
    due_s = -math.inf
    for done, upload in enumerate(uploads, 1):
        if time.monotonic() >= due_s:
            planned = _planned(store, folder)
            # From its end, or a long look would be followed by the next one for ever.
            due_s = time.monotonic() + LOOK_AGAIN_S
        address = planned.get(_id(upload))
        if address is not None:
            kept.append((upload, address))
        elif store.abort_upload(folder.bucket, upload.key, upload.upload_id):
            aborted.append(upload)
        else:
            gone.append(upload)
        progress(done, len(uploads))
    behind = _planned(store, folder) if aborted else {}
    hit = [(one, behind[_id(one)]) for one in aborted if _id(one) in behind]
    return Aborted(tuple(aborted), tuple(gone), tuple(kept), tuple(hit))


def _planned(store: ObjectStore, folder: Folder) -> dict[tuple[str, str], str]:
    """Return of which uploads a plan or a file speaks, each with the address of that."""
    planned = {
        (one.key, one.upload_id): plan.address
        for plan in plans_about(store, folder)
        for one in plan.files
    }
    return planned | {
        (one.file.key, one.file.upload_id): address
        for address, one in rescue.committed_uploads(store, folder)
    }


def _id(upload: Upload) -> tuple[str, str]:
    return upload.key, upload.upload_id


def plan_addresses(store: ObjectStore, folder: Folder) -> list[str]:
    """Return the addresses of all plans below a folder."""
    return [
        f"s3://{folder.bucket}/{one.key}"
        for one in store.objects(folder)
        if _PLAN.fullmatch(one.key)
    ]


def plans_about(store: ObjectStore, folder: Folder) -> list[Plan]:
    """Return the plans that may speak of uploads in a folder: below it, and beside it further up.

    Raises:
        CommitterError: One cannot be understood, so that it is not known of what it speaks.
    """
    addresses = plan_addresses(store, folder)
    parts = folder.prefix.split("/")[:-1]
    for depth in range(len(parts)):
        above = "".join(f"{part}/" for part in parts[:depth])
        addresses += plan_addresses(store, Folder(folder.bucket, f"{above}{PLANS}"))
    found = []
    for address in dict.fromkeys(addresses):
        key = address.removeprefix(f"s3://{folder.bucket}/")
        try:
            found.append(ending.load(store, address, folder.bucket, key)[0])
        except CommitterError as error:
            if not isinstance(error.__cause__, Gone):
                raise  # one that is gone was ended since it was listed
    return found
