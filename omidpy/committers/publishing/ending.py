"""How does a plan become visible files, and how is it taken back?

    publish    plan -> complete every file -> decide -> `_SUCCESS` -> remove files of before
               -> no plan
               a job that is known to have lost its place to another completes no file
    take back  decide -> plan says so -> abort or remove every file -> no plan

What is decided stands in the destination's head (`heads/deciding.py`), and is read before any step
of the other direction: a job that is committed is finished by a process that finds its plan, and in
no other way.

Each step may be done again, by another process, after any of them was cut short: a completion whose
answer was lost finds its own object, recognised by its length and by the job and run that its
metadata name.  Whatever is not recognised is another's, and stays.

    C2 (new-before-old)  no file of before is removed before every new one is visible
    C3 (own-only)        nothing is removed or aborted that is not of this run, or listed in its
                         plan as it was when the plan was made

To resume a plan whose driver lives is harmless; to take it back is not, and its driver then finds
that this was decided, and takes back what is left.  A driver that stood still looks, before it
writes a file, whether its plan is still there (`heads/standing.py`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from omidpy.base.callers.pools import begun
from omidpy.base.reach import reached
from omidpy.committers.heads import deciding, delta
from omidpy.committers.heads import plan as plans
from omidpy.committers.heads.deciding import Decided, Foreign, Forgotten
from omidpy.committers.heads.looking import Seen, read
from omidpy.committers.heads.plan import OldFile, Plan
from omidpy.committers.heads.standing import Standing
from omidpy.committers.objects import pendings
from omidpy.committers.objects.answers import Gone, Occupied
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.publishing import awakening, lateness, remains, success
from omidpy.committers.publishing.completing import (
    Progress,
    complete,
    each,
    is_own,
    undo,
    unobserved,
)
from omidpy.committers.values import Manifest, PendingFile, md5
from omidpy.errors import CommitterError


@dataclass(frozen=True, slots=True)
class Effort:
    """What a job has cost so far, for its manifest."""

    started_s: float
    """Monotonic."""
    operations: Mapping[str, int] = field(default_factory=dict)
    """Requests of its tasks, by operation."""


def begin(store: ObjectStore, plan: Plan) -> str:
    """Write a plan; from here on the job can be finished by anybody.  Return the plan's tag.

    Raises:
        CommitterError: It could not be written; if that is certain, nothing of the job happened.
    """
    data = plans.encode(plan)
    key = plan.folder.plan_key(plan.job_id)
    # Small files make a plan of some ten MiB; while it is on its way there is time to hash it.
    digest = begun(store.background.submit, md5, data)
    try:
        etag = store.put(plan.folder.bucket, key, data, job_id=plan.job_id, is_new=True)[0]
        store.note_tag(plan.folder.bucket, digest.result(), etag)
        return etag
    except Occupied:
        # Ours, if the answer to our first try was lost; else a second driver has the same job.
        found, etag = store.get(plan.folder.bucket, key)
        if found != data and (why := _anothers(found, plan)):
            raise CommitterError(why, plan=plan.address) from None
        reached("committers.own_plan_found", "C1")
        return etag
    except CommitterError as error:
        if not store.may_be_late(plan.folder.bucket, key):
            raise
        with suppress(CommitterError):
            found, etag = store.get(plan.folder.bucket, key)
            if found == data:
                return etag
        raise CommitterError(
            f"nobody knows whether job {plan.job_id} has begun to commit: {error}; if `omidpy "
            f"committers plan list {plan.folder.url}` shows its plan, resume it or roll it back, "
            f"else run `omidpy committers uploads abort --job {plan.job_id} {plan.folder.url}`",
            plan=plan.address,
        ) from error


def _anothers(found: bytes, plan: Plan) -> str:
    """Say whose a plan is that stands in the place of another one; empty: of the same run.

    That was changed by others, who end it, and its driver finds that out where it is decided (C9).
    """
    with suppress(CommitterError):  # of a newer version, or none
        there = plans.decode(found, plan.address)
        if there.run == plan.run != "":
            return ""
        if there.state == "rolling back" and not there.run:
            return (
                f"job {plan.job_id} was given up before it began to commit, by who had waited for "
                f"its plan in vain: {plan.address}; run it again"
            )
    return (
        f"another driver has begun to commit job {plan.job_id}: {plan.address}; each run of a job "
        "needs an id of its own"
    )


def load(store: ObjectStore, address: str, bucket: str, key: str) -> tuple[Plan, str]:
    """Read a plan; return it with its tag.

    Raises:
        CommitterError: There is none, or it cannot be understood.
    """
    try:
        data, etag = store.get(bucket, key)
    except Gone as error:
        raise CommitterError(
            f"there is no plan {address}: its job was finished or taken back, or never began to "
            "commit"
        ) from error
    return plans.decode(data, address), etag


def publish(
    store: ObjectStore,
    plan: Plan,
    effort: Effort,
    progress: Progress = unobserved,
    *,
    is_resumed: bool = False,
    seen: Seen | None = None,
    standing: Standing | None = None,
) -> Manifest:
    """Carry out a plan that is written: afterwards everything of it is visible, and it is gone.

    Args:
        store: Where it is.
        plan: The plan.
        effort: What the job has cost so far.
        progress: Told of each file that is complete.
        is_resumed: Another driver began: a failure leaves everything as it is, since it may come
            from what others did after a commit that was all but finished.
        seen: The destination's head behind which the plan's old files were listed, if it was read.
        standing: Of this driver since before it wrote the plan; None for one that begins here.

    Raises:
        CommitterError: With `plan`, it is unfinished; without, all was taken back.
    """
    if plan.state == "rolling back":
        raise CommitterError(
            f"{plan.address} is being rolled back; finish that with "
            f"`omidpy committers plan rollback {plan.address}`",
            plan=plan.address,
        )
    at_first = seen or _first_look(store, plan, is_resumed=is_resumed)
    was_there = is_resumed and _is_committed(store, plan, at_first)
    kept = standing or Standing(store, plan)
    replaced = None if is_resumed else at_first  # the head that the commit takes the place of

    def look_beside() -> None:
        nonlocal replaced
        replaced = read(store, plan.folder)

    lost = None
    if at_first is not None and not was_there:
        lost = deciding.lost_already(store, plan, at_first.head)
    if lost is not None:
        failures: list[CommitterError] = [lost]
    else:
        # A store that keeps conditions refuses to replace a head that is another one by then,
        # however long ago it was read, so that it may be read beside the files; of other stores
        # that is not known, and there `commit` reads it at the last moment.
        may_look = replaced is None and not is_resumed and store.is_strict
        failures = each(
            store,
            () if was_there else plan.files,
            lambda one: complete(store, plan, one, kept),
            progress,
            beside=look_beside if may_look else None,
        )
    if not failures and not was_there:
        try:
            decision = deciding.commit(store, plan, replaced)
            plan, was_there = decision.plan, decision.was_there
        except CommitterError as error:
            failures = [error]
    ended = next((one for one in failures if isinstance(one, Decided)), None)
    if ended is not None:
        reached("committers.ended_meanwhile", "C9")
    if failures and ended is None:
        ended = awakening.decided_meanwhile(store, plan)
    if ended is not None:
        awakening.after_another(store, plan, ended)
        was_there, failures = True, []
    if failures:
        lateness.refuse_if_late(store, plan, failures[0])
    if failures and is_resumed:
        raise CommitterError(
            f"job {plan.job_id} cannot be finished: {failures[0]}; run `omidpy committers plan "
            f"rollback {plan.address}` to take it back",
            plan=plan.address,
        ) from failures[0]
    if failures:
        failed = _after_failure(store, plan, failures)
        if not isinstance(failed, Decided):
            raise failed from failures[0]
        awakening.after_another(store, plan, failed)
        was_there = True
    is_behind = was_there or kept.has_stood_still()
    try:
        if is_behind:
            rest = awakening.rest_of(store, plan)
            if rest is None:
                reached("committers.finished_by_another", "C15")
                return manifest_of(store, plan, effort)
            plan = rest
        manifest = manifest_of(store, plan, effort)
        _write_success(store, plan, manifest, is_behind=is_behind)
    except CommitterError as error:
        raise CommitterError(
            f"job {plan.job_id} was committed, but {error}; run `omidpy committers plan resume "
            f"{plan.address}`",
            plan=plan.address,
        ) from error
    try:
        if plan.table is not None:
            delta.publish(store, plan)
    except CommitterError as error:
        raise CommitterError(
            f"job {plan.job_id} is committed, but readers of its table do not see it yet: {error}; "
            f"run `omidpy committers plan resume {plan.address}`",
            plan=plan.address,
        ) from error
    try:
        if not is_behind and kept.has_stood_still():
            rest = awakening.rest_of(store, plan)
            if rest is None:
                return manifest
            plan = rest
        _remove_old(store, plan)
    except CommitterError as error:
        raise CommitterError(
            f"job {plan.job_id} is committed and visible, but what it replaces or leaves could not "
            f"be removed: {error}; run `omidpy committers plan resume {plan.address}`",
            plan=plan.address,
        ) from error
    return manifest


def resume(store: ObjectStore, plan: Plan, progress: Progress = unobserved) -> Manifest:
    """Finish a plan whose driver has died.

    Files of before are removed only where they are as the plan has seen them: since the driver
    died, others may have written.
    """
    if plan.old and plan.table is None:
        plan = replace(plan, old=tuple(_still_old(store, plan.folder, plan.old)))
    return publish(store, plan, Effort(time.monotonic()), progress, is_resumed=True)


def take_back(
    store: ObjectStore,
    plan: Plan,
    etag: str,
    progress: Progress = unobserved,
    *,
    is_end: bool = True,
) -> None:
    """Undo a plan: afterwards nothing of its job is visible, and it is gone.

    Args:
        store: Where it is.
        plan: The plan.
        etag: Its tag; empty for one that is not written yet, because Hadoop began the job.
        progress: Told of each file that is undone.
        is_end: False leaves the plan, since a file may still come and is then to be undone, too.

    Raises:
        CommitterError: The job is committed already, or the store failed: the plan is still there.
    """
    bucket, kept = plan.folder.bucket, Standing(store, plan)
    if plan.state == "committing" and (_is_published(store, plan) or _is_all_visible(store, plan)):
        address = plan.address if etag else plan.magic_address
        raise CommitterError(
            f"job {plan.job_id} is committed, and can only be finished: run `omidpy committers "
            f"plan resume {address}`",
            plan=address,
        )
    if not etag:
        # Where there is no plan yet, who writes it first has the job in hand.
        _say_rolling_back(store, plan, etag)
    # The word that no driver comes behind: from here on its commit is refused (C9).
    try:
        deciding.roll_back(store, plan)
    except Forgotten:
        # What of it is published stays; its plan would be asked about again and again.
        awakening.clear_forgotten(store, plan)
        raise
    if etag:
        # From here on no process completes what others see us abort.
        _say_rolling_back(store, plan, etag)
    failures = each(store, plan.files, partial(undo, store, plan), progress)
    if failures:
        raise CommitterError(
            f"job {plan.job_id} is not wholly rolled back: {failures[0]}; run `omidpy committers "
            f"plan rollback {plan.address}`",
            plan=plan.address,
        ) from failures[0]
    if not is_end:
        return
    if plan.is_magic:
        remains.clear(store, plan.folder, plan.job_id, keeps=_uploads(plan))
    # If we stood still another may have ended it meanwhile, and the job be run again.
    if not kept.has_stood_still() or awakening.as_it_is(store, plan) is not None:
        store.delete(bucket, plan.folder.plan_key(plan.job_id))


def _say_rolling_back(store: ObjectStore, plan: Plan, etag: str) -> None:
    if plan.state == "rolling back":
        return
    bucket, key = plan.folder.bucket, plan.folder.plan_key(plan.job_id)
    data = plans.encode(replace(plan, state="rolling back"))
    while True:
        try:
            store.put(bucket, key, data, job_id=plan.job_id, is_new=not etag, expected_etag=etag)
            return
        except (Occupied, Gone):
            now, tag = load(store, plan.address, bucket, key)
            if now.state == "rolling back":
                return
            if not etag or now.run != plan.run:
                raise
            # Its driver listed anew what it replaces, before it found that it will not.  Over that
            # plan alone: by the time another may have ended the job, and it be run again (C1).
            etag = tag


def is_final(error: CommitterError) -> bool:
    """Say whether a plan that could not be finished never can be."""
    return isinstance(error.__cause__, Foreign)


def abort_files(store: ObjectStore, bucket: str, files: Sequence[PendingFile]) -> None:
    """Abort the uploads of files that no plan speaks of.

    Raises:
        CommitterError: The store failed; the uploads that are left can be listed and aborted.
    """
    uploads = [one for one in files if one.upload_id]
    failures = each(store, uploads, lambda one: store.abort_upload(bucket, one.key, one.upload_id))
    if failures:
        raise failures[0]


# -- the whole job ---------------------------------------------------------------------------------


def manifest_of(store: ObjectStore, plan: Plan, effort: Effort) -> Manifest:
    """Return what a job has published whose plan was carried out."""
    rows = [one.rows for one in plan.files]
    counts = success.summed((), store.id, Counter(store.counts()) + Counter(effort.operations))
    return Manifest(
        plan.job_id,
        plan.folder.url,
        plan.committer,
        tuple(sorted(one.key for one in plan.files)),
        sum(one.length for one in plan.files),
        None if None in rows else sum(row for row in rows if row is not None),
        time.monotonic() - effort.started_s,
        sum(counts.values()),
        len(plan.old),
        dict(plan.success or {}),
        counts,
    )


def _write_success(store: ObjectStore, plan: Plan, manifest: Manifest, *, is_behind: bool) -> None:
    if plan.success is None:
        return
    key = plan.folder.key(plan.success_path)
    files = tuple(sorted(plan.files, key=lambda one: one.key))
    data = success.encode(manifest, files, now_ms=int(time.time() * 1000))
    if is_behind:
        awakening.write_success(store, plan, data)
        return
    store.put(plan.folder.bucket, key, data, job_id=plan.job_id, stamp=plan.run)


def _remove_old(store: ObjectStore, plan: Plan) -> None:
    """Remove what the job replaces and leaves, and then the plan: in one request where possible."""
    bucket, key = plan.folder.bucket, plan.folder.plan_key(plan.job_id)
    # Of a table files go from its log, and from the store when its readers need them no more.
    old = {one.key: one.etag for one in plan.old} if plan.table is None else {}
    if old and not store.is_strict:
        # Amazon's store looks at the tags itself, others may not: what was written under such a
        # name since the list was made is another's (C3).
        old = {one.key: one.etag for one in _still_old(store, plan.folder, plan.old)}
    keys = list(old)
    if plan.is_magic:
        # Our own driver knows of every set from its tasks.
        unread = pendings.PENDING_SET if all(one.is_stamped for one in plan.files) else ""
        keys += remains.removable(store, plan.folder, plan.job_id, _uploads(plan), unread=unread)
    if not keys:
        store.delete(bucket, key)
        return
    try:
        store.delete_many(bucket, [*keys, key], old)
    except CommitterError:
        # The plan may be gone although something before it is not; what is there is this one, or
        # by now that of another run.
        with suppress(Occupied):
            store.put(bucket, key, plans.encode(plan), job_id=plan.job_id, is_new=True)
        raise


def _uploads(plan: Plan) -> frozenset[tuple[str, str]]:
    return frozenset((one.key, one.upload_id) for one in plan.files)


def _first_look(store: ObjectStore, plan: Plan, *, is_resumed: bool) -> Seen | None:
    """Read the head before any file, where that takes the place of another request; else None.

    Who resumes a job asks how it was decided; and a store that keeps conditions may be asked at any
    time what it is to replace, also before a job that may have lost its place begins with its
    files.
    """
    if is_resumed:
        return read(store, plan.folder)
    if not plan.must_be_first or not store.is_strict:
        return None
    try:
        return read(store, plan.folder)
    except CommitterError:
        return None  # it is read again beside the files


def _is_committed(store: ObjectStore, plan: Plan, seen: Seen | None = None) -> bool:
    """Say whether it is decided that a job is committed, by a head that was read, or the newest.

    Raises:
        CommitterError: It is decided that it is not.
    """
    head = (seen or read(store, plan.folder)).head
    entry = head.of(plan.job_id, plan.run, plan.created_ms)
    if entry is None:
        # Before there were heads, `_SUCCESS` was the decision.
        return _is_published(store, plan)
    if entry.outcome == "rolled back":
        raise CommitterError(
            f"{plan.address} is being rolled back; finish that with "
            f"`omidpy committers plan rollback {plan.address}`",
            plan=plan.address,
        )
    return True


def _is_published(store: ObjectStore, plan: Plan) -> bool:
    """Say whether `_SUCCESS` is this run's."""
    found = store.head(plan.folder.bucket, plan.folder.key(plan.success_path))
    return found is not None and awakening.is_success_of(store, plan, found)


def _is_all_visible(store: ObjectStore, plan: Plan) -> bool:
    """Say whether a job that Hadoop began has every file where it belongs: it was committed.

    Another job may have written its `_SUCCESS` over this one's, and nothing else would tell.
    """
    if not plan.files or any(one.is_stamped for one in plan.files):
        return False
    for one in plan.files:
        found = store.head(plan.folder.bucket, one.key)
        if found is None or not is_own(found, one, plan):
            return False
    return True


def _after_failure(
    store: ObjectStore, plan: Plan, failures: Sequence[CommitterError]
) -> CommitterError:
    """Take back what a failed commit has made visible; return what to raise.

    `Decided`: another process has ended the job meanwhile, and its plan is gone.
    """
    count = "" if len(failures) == 1 else f" (and {len(failures) - 1} more)"
    first = next((one for one in failures if isinstance(one, Foreign)), failures[0])
    try:
        key = plan.folder.plan_key(plan.job_id)
        found, etag = load(store, plan.address, plan.folder.bucket, key)
        take_back(store, found, etag)
    except Forgotten as error:
        return CommitterError(f"{first}{count}; {error}")
    except CommitterError as error:
        is_gone = isinstance(error.__cause__, Gone)
        if is_gone and (ended := awakening.decided_meanwhile(store, plan)) is not None:
            return ended
        with suppress(CommitterError):
            if _is_committed(store, plan):
                return CommitterError(
                    f"job {plan.job_id} was committed, but {first}{count}; run `omidpy "
                    f"committers plan resume {plan.address}`",
                    plan=plan.address,
                )
        return CommitterError(
            f"job {plan.job_id} is half committed: {first}{count}; taking it back failed too: "
            f"{error}; run `omidpy committers plan resume {plan.address}`, or `rollback`",
            plan=plan.address,
        )
    return CommitterError(
        f"job {plan.job_id} was taken back and nothing of it is visible: {first}{count}"
    )


def _still_old(store: ObjectStore, folder: Folder, old: Iterable[OldFile]) -> list[OldFile]:
    now = {one.key: one.etag for one in store.objects(folder)}
    return [one for one in old if now.get(one.key) == one.etag]
