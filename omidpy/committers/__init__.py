"""Committers: the output of a job appears whole at its destination, or not at all.

    import omidpy.committers

    with omidpy.committers.job("s3://bucket/folder") as job:
        job.task(table)

Files are uploaded where they will be, and become visible when the job is committed: nothing is
renamed or copied.  `docs/guide/committers.md` says which committer to choose.

    omidpy.committers.published("s3://bucket/folder").table()

reads what the last committed job has left, whatever is published meanwhile.

Importing this needs no extra; publishing to S3 needs `omidpy[s3]`.
"""

from __future__ import annotations

from omidpy.committers.choice import CONFLICTS, NAMES, committer, job
from omidpy.committers.contents.reading import published
from omidpy.committers.contents.state import PublishedState
from omidpy.committers.jobs import Job, Task
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.protocol import (
    Attempt,
    Capabilities,
    Committer,
    Conflict,
    DelayedFile,
    TaskFile,
)
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import Manifest, PendingFile, TaskId, TaskMessage
from omidpy.errors import CommitterError

__all__ = [
    "CONFLICTS",
    "NAMES",
    "Attempt",
    "Capabilities",
    "Committer",
    "CommitterError",
    "Conflict",
    "DelayedFile",
    "Job",
    "Manifest",
    "ObjectStore",
    "PendingFile",
    "PublishedState",
    "S3Committer",
    "StoreOptions",
    "Task",
    "TaskFile",
    "TaskId",
    "TaskMessage",
    "committer",
    "job",
    "published",
]
