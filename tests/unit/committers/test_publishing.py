"""Whose object is it?  What a commit takes for its own, it completes no more and may take back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import cast

import pytest

from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.store import Head, ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.publishing import completing
from omidpy.committers.values import PendingFile

JOB = "job_00001"
PART_TAG = hashlib.md5(b"abc", usedforsecurity=False).hexdigest()
OURS = PendingFile("out/a", 3, 1, "upload", (PART_TAG,))
HADOOPS = PendingFile("out/a", 3, None, "upload", (PART_TAG,), is_stamped=False)
UNHASHED = PendingFile("out/a", 3, None, "upload", ("opaque",), is_stamped=False)
TAG = OURS.etag


@dataclass
class OneObject:
    """A store that has one object at most, and notes what becomes of it."""

    found: Head | None
    log: list[str] = field(default_factory=list)

    has_upload: bool = True
    """Whether it says that there was an upload."""
    is_strict: bool = False
    """Whether it looks at tags."""

    def abort_upload(self, bucket: str, key: str, upload_id: str) -> bool:
        """Note it."""
        self.log.append(f"abort {bucket} {key} {upload_id}")
        return self.has_upload

    def head(self, bucket: str, key: str) -> Head | None:
        """Return what is there."""
        self.log.append(f"head {bucket} {key}")
        return self.found

    def delete(self, bucket: str, key: str) -> None:
        """Note it."""
        self.log.append(f"delete {bucket} {key}")

    def delete_many(self, bucket: str, keys: list[str], etags: dict[str, str]) -> None:
        """Note it."""
        self.log += [f"delete {bucket} {key} with tag {etags[key]}" for key in keys]


@pytest.mark.parametrize(
    ("file", "found", "is_deleted"),
    [
        (OURS, Head(3, TAG, JOB), True),
        (OURS, Head(3, "another, since the store keeps its own", JOB), True),
        (OURS, Head(4, TAG, JOB), False),
        (OURS, Head(3, TAG, "job_00002"), False),
        (OURS, Head(3, TAG, ""), False),
        (HADOOPS, Head(3, TAG, ""), True),
        (HADOOPS, Head(3, "another", ""), False),
        (HADOOPS, Head(4, TAG, ""), False),
        (HADOOPS, Head(3, TAG, "job_00002"), False),
        (HADOOPS, Head(3, TAG, JOB), True),
        (UNHASHED, Head(3, "opaque", ""), False),
        (UNHASHED, Head(3, "", ""), False),
        (OURS, None, False),
    ],
)
def test_what_is_taken_back_is_what_the_job_wrote(
    file: PendingFile, found: Head | None, *, is_deleted: bool
) -> None:
    """By the job's id where its writer could leave one, else by the tag; and first the upload."""
    store = OneObject(found)
    plan = Plan(JOB, "omidpy", Folder("bucket", "out/"), (file,))
    completing.undo(cast("ObjectStore", store), plan, file)
    expected = ["abort bucket out/a upload", "head bucket out/a"]
    assert store.log == expected + ["delete bucket out/a"] * is_deleted


def test_what_is_taken_back_is_named_by_its_tag_where_the_store_looks() -> None:
    """Whoever stands still behind his look may find the file of a later run of the job there."""
    store = OneObject(Head(3, TAG, JOB), is_strict=True)
    plan = Plan(JOB, "omidpy", Folder("bucket", "out/"), (OURS,))
    completing.undo(cast("ObjectStore", store), plan, OURS)
    assert store.log[-1] == f"delete bucket out/a with tag {TAG}"


@pytest.mark.parametrize(("found", "looks"), [(None, 2), (Head(3, TAG, "job_00002"), 1)])
def test_what_is_neither_begun_nor_there_is_asked_for_twice(found: Head | None, looks: int) -> None:
    """One of the two answers must be wrong; an object of another says that both are right."""
    store = OneObject(found, has_upload=False)
    plan = Plan(JOB, "omidpy", Folder("bucket", "out/"), (OURS,))
    completing.undo(cast("ObjectStore", store), plan, OURS)
    assert store.log == ["abort bucket out/a upload", "head bucket out/a"] * looks
