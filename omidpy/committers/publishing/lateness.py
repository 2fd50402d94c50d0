"""May a file of a job still appear after the job was taken back?

    C8 (none-late)       no job is said to be taken back while a small file of it may be on its way,
                         by its driver or who goes on with its operation: an upload that was aborted
                         is never completed, but what is written in one request has no such end

Requests that had no answer are the store's to remember (`ObjectStore.may_be_late`), for as long as
one may be carried out; those of a process that has died are not known.
"""

from __future__ import annotations

from omidpy.base.reach import reached
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.store import ObjectStore
from omidpy.errors import CommitterError


def refuse_if_late(
    store: ObjectStore,
    plan: Plan,
    cause: CommitterError | None = None,
    *,
    is_anothers: bool = False,
) -> None:
    """Refuse to take a plan back of which a file may appear afterwards (C8).

    Args:
        store: By whose requests.
        plan: The plan.
        cause: What has failed.
        is_anothers: A process that has died began to carry it out, and its requests are not known.

    Raises:
        CommitterError: With `plan`: it can only be finished now.
    """
    key = late_key(store, plan, is_anothers=is_anothers)
    if key is None:
        return
    reached("committers.may_come_late", "C8")
    why = "" if cause is None else f": {cause}"
    raise CommitterError(
        f"job {plan.job_id} is half committed{why}; it is not taken back, because a request to "
        f"write {key} may have had no answer and still be carried out; run `omidpy committers plan "
        f"resume {plan.address}`, or `rollback` in half an hour",
        plan=plan.address,
    ) from cause


def late_key(store: ObjectStore, plan: Plan, *, is_anothers: bool) -> str | None:
    """Return the key of a file that may appear whatever is done now; None if there is none."""
    for one in plan.files:
        is_late = is_anothers or store.may_be_late(plan.folder.bucket, one.key)
        if one.data is not None and is_late:
            return one.key
    return None
