"""Committers with one part broken on purpose, by name: each must be found by the simulator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from omidpy.committers import sweeping
from omidpy.committers.contents import manifests
from omidpy.committers.heads import deciding, listing
from omidpy.committers.heads import head as heads
from omidpy.committers.heads.head import Head, head_key
from omidpy.committers.heads.standing import Standing
from omidpy.committers.objects import store as stores
from omidpy.committers.objects.answers import Conflicting
from omidpy.committers.publishing import awakening, completing, ending, lateness
from omidpy.committers.s3 import S3Committer
from omidpy.errors import CommitterError
from omidpy.tx.callbacks import Callbacks
from tests.machines.simulator.plan import ALONE, PLAIN
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall

_publish = ending.publish
_remove_old = ending._remove_old
_load = ending.load


def begins_without_a_plan(*_: Any, **__: Any) -> str:
    """Complete files of which nobody else knows."""
    return ""


def removes_old_files_first(store: Any, plan: Any, *arguments: Any, **options: Any) -> Any:
    """Remove what a job replaces before the new files are there."""
    if plan.old:
        store.delete_many(plan.folder.bucket, [one.key for one in plan.old])
    return _publish(store, plan, *arguments, **options)


def writes_over_the_head(store: Any, folder: Any, etag: str, head: Any) -> bool:
    """Write a head whatever has become of the one that was read."""
    del etag
    store.put(folder.bucket, head_key(folder), heads.encode(head))
    return False


def knows_no_outcome(self: Head, job_id: str, run: str, created_ms: int) -> None:
    """Decide without a look at what was decided."""
    del self, job_id, run, created_ms


def decides_nothing(*_: Any) -> None:
    """Take a job back, and leave no word of it."""


def keeps_its_list(store: Any, plan: Any, seen: Any) -> Any:
    """Remove what was listed, and not what was committed since."""
    del store, seen
    return plan


def loses_to_nobody(*_: Any) -> None:
    """Commit a job that has to be the first, whoever was before."""


def knows_its_length(found: Any, one: Any, plan: Any) -> bool:
    """Take every file of a job for the one that was to be written, if it is as long."""
    return bool(found.job_id == plan.job_id and found.length == one.length)


def is_never_late(*_: Any, **__: Any) -> None:
    """Take a job back whatever of it may still be on its way."""


def asks_nobody(store: Any, plan: Any) -> Any:
    """Go on as if nothing had happened meanwhile."""
    del store
    return plan


def removes_all_lists(store: Any, folder: Any, head: Any, change: Any) -> Any:
    """Remove lists that the next head names, too."""
    made, gone = listing_added(store, folder, head, change)
    return made, gone | {listing.list_key(folder, one) for one in made.lists[:-1]}


listing_added = listing.added


def aborts_alone(store: Any, plan: Any, one: Any) -> None:
    """Abort what is not complete yet, and leave what is."""
    if one.upload_id:
        store.abort_upload(plan.folder.bucket, one.key, one.upload_id)


def takes_back_any_run(self: S3Committer, messages: Any) -> None:
    """Take a plan for one's own, whichever run of the job has written it."""
    del messages
    with suppress(CommitterError):
        bucket, key = self.folder.bucket, self.folder.plan_key(self.job_id)
        plan, etag = _load(self.store, f"s3://{bucket}/{key}", bucket, key)
        ending.take_back(self.store, plan, etag)
    self.sweep_uploads()


def forgets_whoever_waits(self: Head, *_: Any) -> Head:
    """Forget outcomes whose plans are there."""
    old, kept = self.entries[: -heads.KEPT], self.entries[-heads.KEPT :]
    forgotten_ms = max([self.forgotten_ms, *(one.created_ms for one in old)])
    return replace(self, entries=kept, forgotten_ms=forgotten_ms)


def sweeps_whatever_runs(store: Any) -> int:
    """Take every transaction for one that cannot commit any more."""
    del store
    return 2**62


def rows_of_their_own(folder: Any) -> bytes:
    """Have no row that two who replace a destination both write."""
    _rows.append(len(_rows))
    return bytes(_head_row(folder)) + b"%d" % len(_rows)


_rows: Final[list[int]] = []
_head_row = manifests.head_row


def writes_unconditionally(self: Any, bucket: str, key: str, data: bytes, **options: Any) -> Any:
    """Write an object whatever is there."""
    if key.endswith("/plan.json"):
        options |= {"is_new": False, "expected_etag": ""}
    return _put(self, bucket, key, data, **options)


_put = stores.ObjectStore.put


def discards_the_unknown(self: Callbacks, callback: Any) -> None:
    """Remove files of a transaction of which nobody knows whether it has committed."""
    self.before_commit(callback, 0)


def takes_a_refusal_for_an_answer(send: Callable[[], Any]) -> Any:
    """Go on after a 409 as if the request had been carried out."""
    try:
        return send()
    except Conflicting:
        return {"ETag": '"tag"'}


COMMITTING: Final = ALONE._replace(
    **PLAIN,
    calm_share=1.0,
    pauses_s=(5.0,),
    committers=(3,),
    rescuers=(0,),
    committer_stalls=(Stall(),),
    rescuer_stalls=(Stall(),),
    job_pauses_s=(0.3,),
    publish_shares=(0.0,),
    inline_shares=(0.5,),
    other_fault_counts=(0,),
    driver_death_shares=(0.0,),
    kept_outcomes=(100,),
    list_bytes=(1 << 17,),
)
"""Jobs of which nothing goes wrong, and that meet."""

MEETING: Final = COMMITTING._replace(job_pauses_s=(0.15,))
"""More of them."""

TWINS: Final = COMMITTING._replace(strictness=(True,), twin_shares=(0.7,))
"""Jobs whose ids others have, too."""

DYING: Final = COMMITTING._replace(driver_death_shares=(0.15,), rescuers=(1,))
"""Drivers that die at a request, and who ends their jobs."""

STALLING: Final = COMMITTING._replace(
    committer_stalls=(Stall(0.1, 12.0, "PutObject|Complete"),),
    rescuers=(2,),
    patiences_s=(0.0,),
)
"""Drivers that stand still, and whose jobs are ended meanwhile."""

SILENT: Final = COMMITTING._replace(
    calm_share=0.0,
    fault_counts=(0,),
    objects_lost=(0.0,),
    objects_late=(0.1,),
    objects_unheard=(0.0,),
    objects_busy=(0.5,),
    inline_shares=(1.0,),
)
"""Requests that have no answers."""

REFUSED: Final = COMMITTING._replace(
    calm_share=0.0,
    fault_counts=(0,),
    objects_lost=(0.0,),
    objects_late=(0.0,),
    objects_unheard=(0.0,),
    objects_busy=(0.0,),
    objects_conflicting=(0.1,),
)
"""Requests that are answered 409."""

PUBLISHING: Final = COMMITTING._replace(publish_shares=(1.0,), job_pauses_s=(0.5,))
"""Files of transactions."""


def _patched(owner: Any, name: str, value: Any) -> Parts:
    return Parts(patches=(Patch(owner, name, value),))


COMMITTER_MUTANTS: Final[dict[str, Mutant]] = {
    "completed without a plan": Mutant(
        _patched(ending, "begin", begins_without_a_plan), "C15", DYING
    ),
    "replaced files removed first": Mutant(
        _patched(ending, "publish", removes_old_files_first), "C4", COMMITTING
    ),
    "head written unconditionally": Mutant(
        _patched(deciding, "_write", writes_over_the_head), "C9|C10", MEETING
    ),
    "decided twice": Mutant(
        _patched(Head, "of", knows_no_outcome),
        "C9|C10",
        STALLING._replace(rollback_shares=(1.0,)),
    ),
    "taken back without a word": Mutant(
        _patched(deciding, "roll_back", decides_nothing),
        "C9",
        STALLING._replace(rollback_shares=(1.0,)),
    ),
    "old files listed once": Mutant(
        _patched(deciding, "_listed_anew", keeps_its_list), "C15", MEETING
    ),
    "first in word only": Mutant(_patched(deciding, "_lost", loses_to_nobody), "C10", MEETING),
    "length taken for identity": Mutant(
        Parts(
            patches=(
                Patch(completing, "is_own", knows_its_length),
                Patch(ending, "is_own", knows_its_length),
            )
        ),
        "C4",
        TWINS,
    ),
    "taken back while it is late": Mutant(
        _patched(lateness, "late_key", is_never_late), "C15", SILENT
    ),
    "woken, and not asked": Mutant(
        Parts(
            patches=(
                Patch(awakening, "rest_of", asks_nobody),
                Patch(Standing, "check", lambda _: None),
            )
        ),
        "C15",
        STALLING._replace(
            committer_stalls=(Stall(0.3, 12.0, "PutObject s-"),),
            inline_shares=(1.0,),
            rollback_shares=(0.0,),
        ),
    ),
    "lists removed that are named": Mutant(
        _patched(listing, "added", removes_all_lists),
        "C13",
        COMMITTING._replace(list_bytes=(200,)),
    ),
    "aborted, and not removed": Mutant(
        Parts(
            patches=(Patch(ending, "undo", aborts_alone), Patch(awakening, "undo", aborts_alone))
        ),
        "C15",
        STALLING._replace(rollback_shares=(1.0,)),
    ),
    "another run taken back": Mutant(
        _patched(S3Committer, "abort_job", takes_back_any_run), "C3", TWINS
    ),
    "second run taken for the first": Mutant(
        _patched(deciding, "_are_listed", lambda *_: True),
        "C4",
        TWINS._replace(
            twin_shares=(0.4,),
            committer_stalls=(
                Stall(0.3, 4.0, "PutObject head.json"),
                Stall(0.3, 4.0, "PutObject s-"),
            ),
            inline_shares=(1.0,),
            job_pauses_s=(0.1,),
        ),
    ),
    "plan written over another's": Mutant(
        _patched(stores.ObjectStore, "put", writes_unconditionally),
        "C15|C3|C9",
        TWINS._replace(driver_death_shares=(0.02,), rescuers=(1,)),
    ),
    "outcome forgotten too soon": Mutant(
        _patched(Head, "without_old", forgets_whoever_waits),
        "C9",
        STALLING._replace(kept_outcomes=(1,), rollback_shares=(1.0,)),
    ),
    "forgotten, and not asked": Mutant(
        _patched(deciding, "_check_plan", lambda *_: None),
        "C9|C10",
        STALLING._replace(kept_outcomes=(1,), job_pauses_s=(0.05,)),
    ),
    "swept before it has committed": Mutant(
        _patched(sweeping, "read_low_watermark", sweeps_whatever_runs),
        "P1|P4",
        PUBLISHING._replace(rescuers=(2,)),
    ),
    "no row that all write": Mutant(
        _patched(manifests, "head_row", rows_of_their_own), "P2", PUBLISHING
    ),
    "files removed as it commits": Mutant(
        _patched(Callbacks, "after_rollback", discards_the_unknown), "P1|P4", PUBLISHING
    ),
    "409 taken for done": Mutant(
        _patched(stores, "again_after_conflicts", takes_a_refusal_for_an_answer),
        "C4|C12",
        REFUSED,
    ),
}
"""By name."""
