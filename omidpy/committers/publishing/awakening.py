"""What is left to do of a job that others may have ended while its driver stood still?

    a driver completes, and is stopped;  another process finishes its job;  a third replaces it, or
    some partitions of it;  the driver goes on

Nothing in the store refuses what such a driver does then: the names that it writes are free again.
So a driver that finds its job decided already, or notices that time has passed, asks the
destination's head what is published now, before it does anything more:

    its files that are not published are removed, by who may have written them again
    `_SUCCESS` stays, if that of a later commit is there
    of the files of before none is removed that is published again under its name
    its plan stays, if it is of another run of the job

    C15 (as-published)  when a driver ends that stood still, its files in the folder are those that
                        the head lists

A driver that is killed after it woke leaves what it wrote last.

Lacks the steps themselves (`ending.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any, Final

from omidpy.base.reach import reached
from omidpy.committers.heads import deciding, listing, looking
from omidpy.committers.heads import plan as plans
from omidpy.committers.heads.deciding import Decided, Forgotten
from omidpy.committers.heads.head import Entry
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.answers import Gone, Occupied
from omidpy.committers.objects.store import Head, ObjectStore
from omidpy.committers.publishing import success
from omidpy.committers.publishing.completing import each, remove_as_found, undo
from omidpy.committers.publishing.lateness import late_key
from omidpy.errors import CommitterError

TRIES: Final = 100
"""How often a head is read again, or `_SUCCESS` written, that others write, too."""


def rest_of(store: ObjectStore, plan: Plan) -> Plan | None:
    """Take back what is not published of a committed job; return what is left of its plan.

    2 requests, 1 for each list that the head names, and 2 or 3 for each file that is replaced.

    Returns:
        The plan with those files of before that may still be removed; None if another process has
        finished the job.

    Raises:
        CommitterError: The store failed, or a list cannot be read; another call goes on.
    """
    entry, published = _published(store, plan)
    if published is not None:
        _take_back_replaced(store, plan, published)
    elif entry is not None:
        # Of heads that list no files it is known what replaced everything, and no more.
        later = looking.read(store, plan.folder).head.commits_after(entry.epoch)
        if any(one.replaces == "folder" for one in later):
            _take_back_replaced(store, plan, ())
    now = as_it_is(store, plan)
    if now is None:
        return None
    # Who has decided may have listed the files of before anew, and not removed them.
    old = plan.old if now.head == plan.head else now.old
    return replace(plan, old=tuple(one for one in old if one.key not in (published or ())))


def after_another(store: ObjectStore, plan: Plan, error: CommitterError) -> None:
    """Return if another process has committed the job that this one could not finish.

    Raises:
        CommitterError: It was rolled back, or that is forgotten; what this process did since is
            taken back.  It names a small file of which a request may still be carried out (C8).
    """
    entry = deciding.outcome_of(store, plan)
    if entry is not None and entry.outcome == "committed":
        return
    if entry is None:
        # It has ended long ago, however: what is not published of it is to be nowhere.
        if isinstance(error, Forgotten):
            clear_forgotten(store, plan)
        else:
            rest_of(store, plan)
        late = _what_may_come(store, plan)
        raise CommitterError(f"{error}; nobody remembers how{late}") from error
    reached("committers.rolled_back_meanwhile", "C9")
    left = each(store, plan.files, partial(undo, store, plan))
    if left:
        raise CommitterError(f"{error}, and is not wholly taken back: {left[0]}") from error
    late = _what_may_come(store, plan)
    raise CommitterError(f"{error}; what this process did since is taken back{late}") from error


def _what_may_come(store: ObjectStore, plan: Plan) -> str:
    """Name a small file of an ended job, where a request of ours may still write it (C8)."""
    key = late_key(store, plan, is_anothers=False)
    if key is None:
        return ""
    reached("committers.late_behind_its_end", "C8")
    return (
        f", but a request to write {key} had no answer and may still be carried out: look for it "
        f"in half an hour; {_how_to_clear(plan)}"
    )


def _how_to_clear(plan: Plan) -> str:
    """Say which files somebody may remove by hand.

    A later run of the job may have published files of the same names, and so may another of those
    that go by its id: a name alone condemns none.
    """
    url, verb = plan.folder.url, "show" if plan.table is None else "list"
    return (
        f"remove by hand no file but one of job {plan.job_id} that `omidpy committers published "
        f"{verb} {url}` does not list, while `omidpy committers plan list {url}` names no plan of "
        "the job: any other is of a later run of it"
    )


def clear_forgotten(store: ObjectStore, plan: Plan) -> None:
    """Take back what is not published of a run that has ended, and remove the plan that came late.

    Raises:
        CommitterError: As for `rest_of`.
    """
    rest_of(store, plan)
    found = _with_tag(store, plan)
    if found is not None:
        # Its key is free for another run of the job as soon as any process has removed it.
        remove_as_found(store, plan.folder.bucket, plan.folder.plan_key(plan.job_id), found[1])


def decided_meanwhile(store: ObjectStore, plan: Plan) -> Decided | None:
    """Say whether files could not be completed because another process has ended the job.

    None if it has not, or that is not known.
    """
    try:
        entry = deciding.outcome_of(store, plan)
    except CommitterError:
        return None
    if entry is None:
        return None
    return Decided(f"job {plan.job_id} was {entry.outcome} by somebody else")


def write_success(store: ObjectStore, plan: Plan, data: bytes) -> None:
    """Write a job's `_SUCCESS`, unless it is there, or that of a later commit is."""
    bucket, key = plan.folder.bucket, plan.folder.key(plan.success_path)
    for _ in range(TRIES):
        found = store.head(bucket, key)
        if found is not None and (
            is_success_of(store, plan, found) or _is_of_later(store, plan, found)
        ):
            return
        tag = "" if found is None else found.etag
        stamps: Any = {"job_id": plan.job_id, "stamp": plan.run}
        try:
            store.put(bucket, key, data, is_new=not tag, expected_etag=tag, **stamps)
            return
        except (Occupied, Gone):
            continue  # another job's has come, or gone, since we looked
    raise CommitterError(f"s3://{bucket}/{key} was written by others {TRIES} times")


def is_success_of(store: ObjectStore, plan: Plan, found: Head) -> bool:
    """Say whether a `_SUCCESS` is this run's."""
    if found.stamp and found.stamp != plan.run:
        return False
    if found.job_id or not plan.is_magic:
        return found.job_id == plan.job_id
    # Hadoop's own says whose it is in its text alone.
    bucket, key = plan.folder.bucket, plan.folder.key(plan.success_path)
    data, _ = store.get(bucket, key)
    return success.decode(data, f"s3://{bucket}/{key}").get("jobId") == plan.job_id


def _is_of_later(store: ObjectStore, plan: Plan, found: Head) -> bool:
    """Say whether a `_SUCCESS` is of a commit behind this one; the head is read behind it."""
    head = looking.read(store, plan.folder).head
    entry = head.of(plan.job_id, plan.run, plan.created_ms)
    if entry is None:
        return False
    return any(
        one.job == found.job_id and one.run == found.stamp
        for one in head.commits_after(entry.epoch)
    )


def _published(store: ObjectStore, plan: Plan) -> tuple[Entry | None, frozenset[str] | None]:
    """Return a run's outcome, and the keys that are published; None if the head does not know."""
    for _ in range(TRIES):
        seen = looking.read(store, plan.folder)
        entry = seen.head.of(plan.job_id, plan.run, plan.created_ms)
        is_old = plan.created_ms <= seen.head.forgotten_ms
        epoch = 0 if entry is None else entry.epoch
        if (entry is None and not is_old) or seen.head.unlisted >= max(epoch, 1):
            return entry, None
        files = listing.files_if_newest(store, plan.folder, seen)
        if files is not None:
            return entry, frozenset(plan.folder.key(one.path) for one in files)
    raise CommitterError(
        f"the head of {plan.folder.url} was written by others {TRIES} times while it was read"
    )


def _take_back_replaced(store: ObjectStore, plan: Plan, published: Collection[str]) -> None:
    if plan.table is not None:
        return  # of a table, files that were replaced stay for readers of before
    replaced = [one for one in plan.files if one.key not in published]
    if replaced:
        reached("committers.woke_behind_others", "C15")
    failures = each(store, replaced, partial(undo, store, plan))
    if failures:
        raise CommitterError(
            f"job {plan.job_id} was committed by another process and replaced since, and "
            f"{failures[0]}; {_how_to_clear(plan)}"
        ) from failures[0]


def as_it_is(store: ObjectStore, plan: Plan) -> Plan | None:
    """Return a run's plan; None if it is gone, or made way for that of another run of the job."""
    found = _with_tag(store, plan)
    return None if found is None else found[0]


def _with_tag(store: ObjectStore, plan: Plan) -> tuple[Plan, str] | None:
    """Return the same, and its tag."""
    try:
        data, etag = store.get(plan.folder.bucket, plan.folder.plan_key(plan.job_id))
    except Gone:
        return None
    now = plans.decode(data, plan.address)
    return (now, etag) if now.run == plan.run else None
