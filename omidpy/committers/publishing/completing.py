"""One file of a plan: how does it become visible, and how invisible for ever?

A completion whose answer was lost finds its own object, recognised by its length and by the job and
run that its metadata name.  Whatever is not recognised is another's, and stays.

    C14 (never-over)  no request of a job takes the place of an object that its plan does not list,
                      however late it comes

Lacks which files, and when (`ending.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from omidpy.base.callers.pools import begun
from omidpy.base.reach import reached
from omidpy.committers.heads.deciding import Decided, Foreign, outcome_of
from omidpy.committers.heads.plan import Plan
from omidpy.committers.heads.standing import Standing
from omidpy.committers.objects.answers import Gone, Occupied, Spoilt
from omidpy.committers.objects.store import Head, ObjectStore
from omidpy.committers.values import PendingFile
from omidpy.errors import CommitterError

Progress = Callable[[int, int], None]
"""Called with how many files are done, and of how many."""

TRIES: Final = 20
"""How often a name is written that others write, too."""

_One = TypeVar("_One")


def unobserved(_done: int, _total: int) -> None:
    """Tell no one of a file that is complete."""


def complete(store: ObjectStore, plan: Plan, one: PendingFile, standing: Standing) -> None:
    """Make a file visible; doing so again is harmless.

    Raises:
        Decided: The job has ended meanwhile.
        Foreign: It never can be.
        CommitterError: The store failed.
    """
    bucket = plan.folder.bucket
    address = f"s3://{bucket}/{one.key}"
    standing.check()
    try:
        if one.data is not None:
            etag, is_hash = _put(store, plan, one, one.data)
        else:
            etag, is_hash = store.complete_upload(
                bucket, one.key, one.upload_id, one.etags, is_new=plan.is_new_only
            )
    except CommitterError as error:
        # The answer to an earlier try may have been lost, or a driver before us completed it.
        found = store.head(bucket, one.key)
        if found is not None and is_own(found, one, plan):
            reached("committers.own_file_found", "C4")
            return
        if isinstance(error, Occupied):
            raise Foreign(f"{address} exists and is not of job {plan.job_id}") from error
        if isinstance(error, Gone):
            raise Foreign(
                f"the upload of {address} is gone: somebody aborted it, or the bucket's rules did"
            ) from error
        if isinstance(error, Spoilt):
            raise Foreign(
                f"the upload of {address} is not what its task has sent: {error}"
            ) from error
        raise
    if is_hash and one.etag and etag != one.etag:
        raise Foreign(
            f"{address} is not what its task has written: its tag is {etag}, not {one.etag}"
        )


def _put(store: ObjectStore, plan: Plan, one: PendingFile, data: bytes) -> tuple[str, bool]:
    """Write a small file where nothing is, or over the one that the plan has listed (C14).

    A driver that stood still may send it when its job was finished long ago, and another's file has
    the name: that one has another tag.  An upload needs no such care, since it is completed once.
    """

    def send(*, is_new: bool, expected_etag: str = "") -> tuple[str, bool]:
        return store.put(
            plan.folder.bucket,
            one.key,
            data,
            job_id=plan.job_id,
            stamp=one.stamp,
            is_new=is_new,
            expected_etag=expected_etag,
        )

    if plan.is_new_only:
        return send(is_new=True)
    there = next((old.etag for old in plan.old if old.key == one.key), "")
    for _ in range(TRIES):
        try:
            return send(is_new=not there, expected_etag=there)
        except (Occupied, Gone):
            # Another process has written or removed it.  It is looked at before the head: while the
            # job is not decided, no other can have replaced what it was to write.
            found = store.head(plan.folder.bucket, one.key)
            if found is not None and is_own(found, one, plan):
                return found.etag, False
            if (entry := outcome_of(store, plan)) is not None:
                raise Decided(f"job {plan.job_id} was {entry.outcome} by somebody else") from None
            there = "" if found is None else found.etag
    raise CommitterError(
        f"s3://{plan.folder.bucket}/{one.key} was written by others {TRIES} times", retryable=True
    )


def undo(store: ObjectStore, plan: Plan, one: PendingFile) -> None:
    """Make a file invisible for ever.  First the upload: then no completion can come after us."""
    bucket = plan.folder.bucket
    for _ in range(2):
        was_there = not one.upload_id or store.abort_upload(bucket, one.key, one.upload_id)
        found = store.head(bucket, one.key)
        if found is not None and is_own(found, one, plan):
            remove_as_found(store, bucket, one.key, found.etag)
            return
        if was_there or found is not None:
            return
        # Neither upload nor file: one of the two answers may be wrong, and no step looks later.


def remove_as_found(store: ObjectStore, bucket: str, key: str, etag: str) -> None:
    """Remove a file or a plan as it was found.

    Whoever stood still since may find the one of a later run of its job there, which stays where
    the store looks at tags.
    """
    if store.is_strict:
        store.delete_many(bucket, [key], {key: etag})
    else:
        store.delete(bucket, key)


def is_own(found: Head, one: PendingFile, plan: Plan) -> bool:
    """Say whether an object is the one that this plan completes.

    An earlier run of the same job may have left one of the same name and length.
    """
    if one.stamp:
        is_this = found.stamp == one.stamp
        return is_this and found.job_id == plan.job_id and found.length == one.length
    if one.is_stamped or found.job_id:
        return found.job_id == plan.job_id and found.length == one.length
    return bool(one.etag) and found.etag == one.etag and found.length == one.length


def each(
    store: ObjectStore,
    items: Sequence[_One],
    work: Callable[[_One], object],
    progress: Progress = unobserved,
    *,
    beside: Callable[[], object] | None = None,
) -> list[CommitterError]:
    """Do something for each, many at a time; return what failed.

    What is no error of ours ends it at once: a driver that is being killed sends nothing more.

    Args:
        store: Its options say how many at a time.
        items: What for.
        work: What.
        progress: Told of each that is done.
        beside: Done meanwhile, if there is anything to do; that it fails is no failure.
    """
    failures: list[CommitterError] = []
    if not items:
        return failures
    with ThreadPoolExecutor(min(store.options.threads, len(items))) as pool:
        aside = None if beside is None else begun(pool.submit, beside)
        futures = [begun(pool.submit, work, item) for item in items]
        try:
            for done, future in enumerate(futures, 1):
                try:
                    future.result()
                except CommitterError as error:
                    failures.append(error)
                progress(done, len(items))
            if aside is not None:
                with suppress(CommitterError):
                    aside.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return failures
