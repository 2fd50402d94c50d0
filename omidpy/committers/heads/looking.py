"""What is at a destination now?  Its head, and the plans of jobs that have not ended.

Lacks what follows from it (`deciding.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from omidpy.committers.heads import head as heads
from omidpy.committers.heads.head import Head, head_key
from omidpy.committers.objects.answers import Gone
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import PLANS, Folder, is_job_id

_PLAN: Final = re.compile(r"([^/]+)/plan\.json", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Seen:
    """A head as it was read."""

    head: Head
    etag: str
    """Empty where there was none."""


def read(store: ObjectStore, folder: Folder) -> Seen:
    """Read the head of a destination; 1 request.

    Raises:
        CommitterError: It cannot be understood, or the store failed.
    """
    key = head_key(folder)
    try:
        data, etag = store.get(folder.bucket, key)
    except Gone:
        return Seen(Head(), "")
    return Seen(heads.decode(data, f"s3://{folder.bucket}/{key}"), etag)


def planned_jobs(store: ObjectStore, folder: Folder) -> list[str]:
    """Return the ids of jobs that have a plan at a destination; a listing of its plans."""
    below = Folder(folder.bucket, folder.key(PLANS))
    matches = (_PLAN.fullmatch(below.below(one.key)) for one in store.objects(below))
    return [match[1] for match in matches if match and is_job_id(match[1])]
