"""Is a job committed or rolled back?  It is decided here, in the head of its destination (C9).

    commit     what was published becomes a job of the destination, at its place in the order
    roll back  nothing of the job is, and never will be, whatever its driver does when it wakes

    requests: 1 read and 1 write, and as many again for each other job that decides meanwhile;
              where a list is made anew 2 reads and 1 write more

A job that decides reads the head, looks whether it was decided already, and replaces exactly the
head that was read.  An answer that was lost is found in the next head: an outcome names its run.

What a job replaces is listed behind the head that it saw, and decided about by replacing that head:
so everything that was committed before is wholly in the listing.  What is in it of jobs that were
not, is left out by their plans, which are there before any file of theirs (C1, C10).

Lacks what is done to files (`publishing/ending.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from omidpy.base.reach import reached
from omidpy.base.timing.pauses import Pauses
from omidpy.committers.heads import delta, listing
from omidpy.committers.heads import head as heads
from omidpy.committers.heads import plan as plans
from omidpy.committers.heads.head import Entry, Head, Outcome, Replaces, head_key
from omidpy.committers.heads.looking import Seen, planned_jobs, read
from omidpy.committers.heads.neighbours import record_of
from omidpy.committers.heads.plan import OldFile, Plan
from omidpy.committers.objects.answers import Gone, Occupied
from omidpy.committers.objects.store import ListedObject, ObjectStore
from omidpy.committers.places import (
    SUMMARIES,
    Folder,
    batch_of,
    folder_of,
    is_hidden,
    owner,
)
from omidpy.errors import CommitterError

TRIES: Final = 200
"""How often a head is read again that others write; each time one of them has got on."""
PAUSE_S: Final = 0.01
LONGEST_PAUSE_S: Final = 0.5

_log: Final = logging.getLogger(__name__)


class Decided(CommitterError):
    """It was decided otherwise, or it is not known any more what was decided."""

    entry: Entry | None = None
    """What was; None if it was forgotten."""


class Forgotten(Decided):
    """The run has ended, and nobody remembers how."""


class Foreign(CommitterError):
    """The job can never be committed."""


def outcome_of(store: ObjectStore, plan: Plan) -> Entry | None:
    """Return how a run has ended; None if it has not, or that is forgotten; 1 request."""
    return read(store, plan.folder).head.of(plan.job_id, plan.run, plan.created_ms)


def is_committed(store: ObjectStore, folder: Folder, job_id: str, run: str) -> bool:
    """Say whether a run whose plan is gone is known to be committed; 1 request."""
    entries = read(store, folder).head.entries
    return any((one.job, one.run, one.outcome) == (job_id, run, "committed") for one in entries)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided, of which plan."""

    plan: Plan
    """As it is now: what it replaces may have been listed anew."""
    was_there: bool = False
    """Whether it was found: another has decided the same, or an own answer was lost."""


def commit(store: ObjectStore, plan: Plan, seen: Seen | None = None) -> Decision:
    """Decide that a job whose files are all visible is committed.

    Args:
        store: Where it is.
        plan: The plan.
        seen: The head that its list of old files belongs to; None reads it.

    Raises:
        Decided: It was decided otherwise.
        Foreign: Others were committed, and the job would have to come before them.
        CommitterError: The store failed, and the outcome is unknown; deciding once more finds out.
    """
    return _decide(store, plan, "committed", seen)


def roll_back(store: ObjectStore, plan: Plan) -> None:
    """Decide that nothing of a job is to be, or find that this was decided.

    Raises:
        Decided: It is committed.
        CommitterError: As for `commit`.
    """
    _decide(store, plan, "rolled back", None)


def _decide(store: ObjectStore, plan: Plan, outcome: Outcome, seen: Seen | None) -> Decision:
    pauses = Pauses(PAUSE_S, LONGEST_PAUSE_S, at_least=1)
    for _ in range(TRIES):
        if seen is None:
            seen = read(store, plan.folder)
        found = seen.head.of(plan.job_id, plan.run, plan.created_ms)
        if found is not None:
            if found.outcome == outcome:
                reached("committers.decided_already", "C9")
                return Decision(plan, was_there=True)
            raise _otherwise(plan, found)
        if plan.created_ms <= seen.head.forgotten_ms:
            reached("committers.asked_for_its_plan", "C11")
            _check_plan(store, plan, seen.head)
        if outcome == "committed":
            if (lost := _lost(store, plan, seen.head)) is not None:
                raise lost
            if plan.replaces and seen.etag != plan.head:
                listed = _listed_anew(store, plan, seen)
                if listed is None:
                    seen = None
                    time.sleep(pauses.next_s())
                    continue
                plan = listed
        made = seen.head.with_entry(plan.job_id, plan.run, outcome, plan.created_ms, plan.replaces)
        now_ms = int(time.time() * 1000)
        if made.is_full(now_ms):
            made = made.without_old(set(planned_jobs(store, plan.folder)), now_ms)
        unnamed: frozenset[str] = frozenset()
        if outcome == "committed":
            made, unnamed = listing.added(store, plan.folder, made, listing.change_of(plan))
        try:
            is_next = _write(store, plan.folder, seen.etag, made)
        except (Occupied, Gone):
            # Another has written it, or our own answer was lost: the next head says which.
            reached("committers.head_was_another", "C10")
            seen = None
            time.sleep(pauses.next_s())
            continue
        if is_next and unnamed:
            _remove_lists(store, plan.folder, sorted(unnamed))
        return Decision(plan)
    raise CommitterError(
        f"the head of {plan.folder.url} was written by others {TRIES} times while job "
        f"{plan.job_id} was to be {outcome}; run `omidpy committers plan resume {plan.address}`",
        plan=plan.address,
    )


def _write(store: ObjectStore, folder: Folder, etag: str, head: Head) -> bool:
    """Write a head; say whether it is certain that it took the place of the one that was read."""
    data = heads.encode(head)
    store.put(folder.bucket, head_key(folder), data, is_new=not etag, expected_etag=etag)
    return store.has_swaps(folder.bucket)


def _remove_lists(store: ObjectStore, folder: Folder, keys: Sequence[str]) -> None:
    try:
        store.delete_many(folder.bucket, keys)
    except CommitterError as error:
        # The job is committed all the same; who fills the head next finds them (C13).
        _log.warning("lists of %s that nobody needs are left: %s", folder.url, error)


def _otherwise(plan: Plan, found: Entry) -> Decided:
    if found.outcome == "committed":
        error = Decided(
            f"job {plan.job_id} is committed, and can only be finished: run `omidpy committers "
            f"plan resume {plan.address}`",
            plan=plan.address,
        )
    else:
        error = Decided(f"job {plan.job_id} was rolled back by somebody else")
    error.entry = found
    return error


def _check_plan(store: ObjectStore, plan: Plan, head: Head) -> None:
    """Refuse a run that may have been decided and forgotten: then its plan is gone, or was (C11).

    It is looked at between the read of the head and its replacement, so that a job that decides
    meanwhile makes the replacement fail.  A plan that was not there when its time was forgotten is
    that of a run that had ended: it came late, or a second time.
    """
    ended = Forgotten(
        f"job {plan.job_id} was ended by another process, long ago; `omidpy committers verify "
        f"{plan.folder.url}` shows what is there"
    )
    try:
        data, _ = store.get(plan.folder.bucket, plan.folder.plan_key(plan.job_id))
    except Gone as error:
        raise ended from error
    if plans.decode(data, plan.address).run != plan.run:
        raise Decided(f"another run of job {plan.job_id} has begun to commit")
    # An outcome without a run is never forgotten: that of a job whose driver may come yet.
    if plan.run and head.has_forgotten(plan.job_id, plan.created_ms):
        reached("committers.came_when_forgotten", "C11")
        raise ended


# -- who was before --------------------------------------------------------------------------------


def lost_already(store: ObjectStore, plan: Plan, head: Head) -> Foreign | None:
    """Say why a run can only be refused, before it touches a file; None where that is not known.

    This tells earlier what the decision would find.  Of a run that is decided, or may have been and
    is forgotten, it says nothing: that is for the decision.

    No request; in partitions 1 listing for each 1,000 keys, and perhaps 1 of plans, if the head
    has a file in one that the run must find empty.
    """
    is_open = head.of(plan.job_id, plan.run, plan.created_ms) is None
    if not is_open or plan.created_ms <= head.forgotten_ms:
        return None
    if plan.is_sole_in_partitions:
        folders = {folder_of(plan.folder.below(one.key)) for one in plan.files} - {""}
        taken = tuple(f"{one}/" for one in folders)
        if not any(one.path.startswith(taken) for one in head.recent.files):
            return None
    try:
        return _lost(store, plan, head)
    except CommitterError:
        return None  # the decision asks again


def _lost(store: ObjectStore, plan: Plan, head: Head) -> Foreign | None:
    """Say why a run cannot be the first, as it has to be, behind a head."""
    if plan.is_batch and (newest := _newest_batch(plan, head)) is not None:
        return Foreign(
            f"batch {newest} of the stream of job {plan.job_id} was published at "
            f"{plan.folder.url} by another run of its query meanwhile; the query goes on from its "
            "checkpoint if you start it again, and no other one must have a copy of that"
        )
    if plan.is_sole and head.commits_after(plan.epoch):
        return Foreign(
            f"another job was committed to {plan.folder.url} since this one began, whose "
            "conflict mode is `fail`"
        )
    if plan.is_sole_in_partitions and head.commits_after(plan.epoch):
        taken = visible(store, plan, "partitions", head)
        if taken:
            return Foreign(
                f"the partition {folder_of(plan.folder.below(taken[0].key))} of {plan.folder.url} "
                "was written by another job since this one began, whose conflict mode is `fail`"
            )
    return None


def _newest_batch(plan: Plan, head: Head) -> int | None:
    """Return the newest batch that a head knows of a stream, if it is the plan's own or later."""
    stream, number = batch_of(plan.job_id)
    others = [batch_of(one.job) for one in head.entries if one.outcome == "committed"]
    newest = max((at for query, at in others if query == stream), default=-1)
    return newest if newest >= number >= 0 else None


def _listed_anew(store: ObjectStore, plan: Plan, seen: Seen) -> Plan | None:
    """List what a job replaces behind a head, and write that into its plan.

    The plan is read before the head, and replaced as it was read, although the list may be the same
    again: so who has listed behind an older head, and stood still since, cannot write that list
    over a newer one.  Whoever finishes the job goes by the list in its plan.

    Returns:
        None: another has written the head, or the plan, meanwhile.

    Raises:
        Decided: The job has ended meanwhile.
    """
    bucket, key = plan.folder.bucket, plan.folder.plan_key(plan.job_id)
    ended = Decided(f"job {plan.job_id} was ended by another process")
    try:
        data, etag = store.get(bucket, key)
    except Gone as error:
        raise ended from error
    now = plans.decode(data, plan.address)
    if now.run != plan.run or now.state != "committing":
        raise Decided(f"job {plan.job_id} was rolled back by somebody else")
    if read(store, plan.folder).etag != seen.etag:
        return None
    listed = replace(plan, old=tuple(old_files(store, plan, seen.head)), head=seen.etag)
    if listed.old != plan.old:
        reached("committers.listed_anew", "C10")
    try:
        store.put(bucket, key, plans.encode(listed), job_id=plan.job_id, expected_etag=etag)
    except Occupied:
        return None
    except Gone as error:
        raise ended from error
    return listed


def old_files(store: ObjectStore, plan: Plan, head: Head) -> list[OldFile]:
    """List what a job is to remove: what readers see of jobs that a head names, and of others.

    1 listing for each 1,000 keys, and 1 of plans unless the head knows whose all files are.
    """
    if not plan.replaces:
        return []
    if plan.table is not None:
        return delta.old_files(store, plan, plan.replaces)
    return [OldFile(one.key, one.etag) for one in visible(store, plan, plan.replaces, head)]


def visible(store: ObjectStore, plan: Plan, scope: Replaces, head: Head) -> list[ListedObject]:
    """Return the files of others in a job's scope, but for those of jobs that are not decided."""
    written = {one.key for one in plan.files}
    below = _below(store, plan.folder, written, scope, says_record=bool(plan.replaces))
    found = [one for one in below if one.key not in written]
    committed = {one.job for one in head.entries if one.outcome == "committed"}
    if all(owner(one.key) in committed for one in found) and _are_listed(plan.folder, head, found):
        return found
    # A file is listed: then the plan of its job is there now, or the job has ended (C1).  One that
    # was committed since makes us read the head again.
    planned = planned_jobs(store, plan.folder)
    running = {one for one in planned if one not in committed}
    # Of a job that is run again under its id its plan alone can tell which files are of which run,
    # and so of one without an id in its names.
    is_any_unnamed = any(not owner(one.key) for one in found)
    asked = [one for one in planned if one in committed or is_any_unnamed]
    undecided = [one for job_id in asked if (one := _undecided(store, plan.folder, job_id, head))]
    names = {file.key for one in undecided for file in one.files}
    over = {file.key for one in undecided if not one.is_new_only for file in one.files}
    if any(one.job_id in committed for one in undecided):
        reached("committers.run_again_left_alone", "C10")
    doubtful = {one.key for one in found if one.key in names or owner(one.key) in running}
    # What is listed nobody else has written: a name that is taken refuses the other run, unless it
    # replaces what has its names.  Then it may be of either: no job removes it, and who must be the
    # first is not.
    listed = _listed(store, plan.folder, head) if doubtful else set()
    if plan.replaces:
        listed -= over
    return [one for one in found if one.key not in doubtful or one.key in listed]


def _are_listed(folder: Folder, head: Head, found: Sequence[ListedObject]) -> bool:
    """Say whether a head alone tells that files are part of the destination; no request.

    A file of a committed job that is not may be of another run of it, which still commits.
    """
    if head.lists or head.unlisted:
        return False
    published = {one.path for one in head.recent.files}
    return all(folder.below(one.key) in published for one in found)


def _listed(store: ObjectStore, folder: Folder, head: Head) -> set[str]:
    """Return the keys that a head lists; none if it is not the newest, which is read again."""
    try:
        return {folder.key(one.path) for one in listing.files_of(store, folder, head)}
    except Gone:
        return set()


def _below(
    store: ObjectStore, folder: Folder, written: set[str], scope: Replaces, *, says_record: bool
) -> Iterator[ListedObject]:
    top = ""
    places: Sequence[str] = ("",)
    if scope == "partitions":
        # A file at the top is in no partition, and replaces nothing.
        folders = sorted({folder_of(folder.below(key)) for key in written} - {""})
        if not folders:
            return
        places = [f"{one}/" for one in folders]
        top = _common(folders)
    records: set[str] = set()
    for one in store.objects(Folder(folder.bucket, folder.key(top))):
        path = folder.below(one.key)
        if says_record and (record := record_of(path)) and record not in records:
            records.add(record)
            _say_record(folder, record)
        is_summary = path.rpartition("/")[2] in SUMMARIES
        if is_hidden(path) and not is_summary:
            continue
        if path.startswith(tuple(places)):
            yield one


def _say_record(folder: Folder, record: str) -> None:
    _log.warning(
        "%s has %s: who reads by it sees nothing of this job, and it may name what the job "
        "removes; `omidpy committers doctor %s` says more",
        folder.url,
        record,
        folder.url,
    )


def _common(folders: Sequence[str]) -> str:
    """Return the folder that has all others, with "/" at its end; empty if that is the top."""
    common = []
    for parts in zip(*(one.split("/") for one in folders), strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return "".join(f"{part}/" for part in common)


def _undecided(store: ObjectStore, folder: Folder, job_id: str, head: Head) -> Plan | None:
    """Return the plan of a job; None if it has ended since, or is committed by what a head says."""
    key = folder.plan_key(job_id)
    try:
        data, _ = store.get(folder.bucket, key)
    except Gone:
        return None
    plan = plans.decode(data, f"s3://{folder.bucket}/{key}")
    entry = head.of(plan.job_id, plan.run, plan.created_ms)
    return None if entry is not None and entry.outcome == "committed" else plan
