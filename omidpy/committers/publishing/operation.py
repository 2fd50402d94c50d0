"""The commit of a job as an operation, which outlives its driver.

    submit -> write the plan -> Begin -> Publish -> done
                                                 -> Withdraw -> Sweep -> done   an upload is gone
                             -> Begin -> Abandon -> done    the driver died before its plan

The operation is kept before there is a plan, so that there is no instant at which a driver can die
and leave what no process will look at.  From then on an executor of the store (the driver's own, or
`omidpy fate run`) finishes it: the plan is carried out if it was written, and what was uploaded is
removed if it was not.  Steps may run any number of times, and by two at once: each change of theirs
recognises its own.

    P5 (one-end)  a job whose operation is kept is published or abandoned, and never both

Whether the plan was written is decided at its key, which takes one object: the plan of the driver,
or the word of an executor that gave up waiting for it, that the job is rolled back.  A driver that
was only slow finds that word, and its job has failed.

A small file is written by one request, and one that a dead process has sent may be carried out
after everything was taken back (C8).  So an executor leaves word before its first request; where
another one finds that it cannot be finished, it takes back what is there at once, and looks
again when no such request can come any more.

Lacks what publishing is (`ending.py`), and what runs operations (`omidpy/fate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from omidpy.base.timing.ages import Stamp
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.committers.heads import deciding, looking
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.answers import Gone
from omidpy.committers.objects.client import StoreOptions, endpoint_of
from omidpy.committers.objects.store import ObjectStore, shared
from omidpy.committers.places import owner, parse_folder
from omidpy.committers.publishing import ending, lateness
from omidpy.committers.publishing.completing import remove_as_found
from omidpy.committers.publishing.ending import Effort
from omidpy.committers.values import Manifest
from omidpy.errors import CommitterError, FateError, OperationFailed, UsageError
from omidpy.facts.watermarks import DATES_DIFFER_S
from omidpy.fate.client import Fate, OperationHandle
from omidpy.fate.operation import Operation, key_text
from omidpy.fate.step import Again, Answer, Defer, Done, Retry, Step, StepContext, step
from omidpy.fate.store import FateStore
from omidpy.fate.table.store import TableFateStore
from omidpy.fate.zookeeper.store import ZooKeeperFateStore
from omidpy.opening import open_store
from omidpy.oracle.zookeeper import SCHEME, parse_zookeeper

KIND: Final = "PUBLISH"
PLAN_WAIT_MS: Final = 60_000
"""A plan that is not there after so long is not waited for: its driver has died."""
MOST_MACHINES: Final = 64
"""Of so many it is remembered since when they wait for a plan."""
LATE_WAIT_MS: Final = 3_600_000
"""Half an hour, for which a store takes a request that was signed, and as much besides."""
DATES_DIFFER_MS: Final = round(DATES_DIFFER_S * 1000)
"""So much longer is waited where only dates tell, of two machines or of two starts of one."""
LOOK_EVERY_S: Final = 1.0
LONGEST_LOOK_S: Final = 5.0
"""A driver that was there has written its plan soon; each look costs a request."""
ENDED_WITHIN_S: Final = 75.0
"""A job whose driver has died is ended so long afterwards, and as long as its own requests take,
while an executor runs with the usual lease: that wait for a plan, the lease of an executor,
and a look.  But one that cannot be finished, and of which a small file may come, takes an hour, and
a day more where its executor's machine is started anew meanwhile, or another one goes on."""
RESULT_WAIT_S: Final = 600.0
"""So long a driver waits for the end; the operation goes on without it."""

COMMITTED: Final = "committed"
ROLLED_BACK: Final = "rolled back"

clock: Clock = SystemClock()
"""What tests turn by hand; steps are told no time."""

_WEATHER: Final = Retry(max=1_000_000, first_s=0.5, longest_s=30.0)


@dataclass(frozen=True)
class DriverEnvironment:
    """What steps get that the job's own driver runs; others open the store by its options."""

    committing: ObjectStore


# -- steps -----------------------------------------------------------------------------------------


@step(version=1, namespace="committers", pivot=True, retry=_WEATHER)
class Begin(Step):
    """Find the plan, or give up waiting for it."""

    destination: str
    job_id: str
    options: StoreOptions
    submitted_ms: int
    """By the driver's clock."""
    seen: tuple[Stamp, ...] = ()
    """Since when machines have known of it, each by its elapsed time: dates of two machines differ,
    and those of one are set."""

    def ready(self, tx: StepContext, env: Any) -> Defer | None:
        """Wait for a driver that may be about to write it."""
        del tx
        store, plan = _opened(self, env)
        if store.head(plan.folder.bucket, plan.folder.plan_key(self.job_id)) is not None:
            return None
        waited_ms = self._waited_ms()
        if waited_ms is None or waited_ms >= PLAN_WAIT_MS:
            return None
        waited_s = waited_ms / 1000
        left_s = PLAN_WAIT_MS / 1000 - waited_s
        pause_s = min(max(LOOK_EVERY_S, waited_s / 10), LONGEST_LOOK_S, left_s)
        return Defer(pause_s, f"for the plan {plan.address}")

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Take the driver's word, or say that there will be none."""
        del tx
        store, nothing = _opened(self, env)
        found = _plan(store, nothing)
        if found is None and ended(store, nothing, "") == COMMITTED:
            # An operator has resumed the plan by hand.
            return Done(_result(COMMITTED, self.job_id))
        if found is None and not self._is_late():
            return self._noted()
        if found is None:
            if self._comes_behind_the_end(store, nothing):
                return Done(_result(COMMITTED, self.job_id))
            found = _plan(store, nothing)
            if found is None:
                # The plan was there first, and has ended since: that it did, the next look finds.
                return self.again()
        if found.state == "committing":
            witness = found.files[0].key if found.files else ""
            return Publish(self.destination, self.job_id, self.options, found.run, witness)
        return Abandon(self.destination, self.job_id, self.options)

    def _comes_behind_the_end(self, store: ObjectStore, nothing: Plan) -> bool:
        """Write the word that there will be no plan, and say whether one was carried out before."""
        word = replace(nothing, state="rolling back", created_ms=self.submitted_ms)
        try:
            # Who is first at this key has decided.
            etag = ending.begin(store, word)
        except CommitterError as error:
            if not error.plan:
                raise
            return False
        # Unless we stood still behind our looks: then it was free again, because an operator has
        # resumed the plan that was there (P5).
        if ended(store, nothing, "") != COMMITTED:
            return False
        remove_as_found(store, nothing.folder.bucket, nothing.folder.plan_key(self.job_id), etag)
        return True

    def _is_late(self) -> bool:
        waited_ms = self._waited_ms()
        return waited_ms is not None and waited_ms >= PLAN_WAIT_MS

    def _waited_ms(self) -> int | None:
        """Return for how long this machine has waited; None: it knows of it only now."""
        since_ms = (one.boot_ms for one in self.seen if one.boot == clock.boot)
        return max((_now().boot_ms - one for one in since_ms), default=None)

    def _noted(self) -> Again:
        """Go on waiting, by this machine's elapsed time as well."""
        if self._waited_ms() is not None:
            return self.again()
        return self.again(seen=(*self.seen[-MOST_MACHINES + 1 :], _now()))


@step(version=1, namespace="committers", pivot=True, retry=_WEATHER)
class Publish(Step):
    """Carry the plan out, or take it back where it cannot be."""

    destination: str
    job_id: str
    options: StoreOptions
    run: str
    """Of the job, whose plan this is."""
    witness: str
    """The key of one of its files; empty if it has none."""
    sender: str = ""
    """The id of the first store whose requests carry it out; empty while none has sent any."""

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Finish the job by its plan, or say how it has ended already."""
        store, nothing = _opened(self, env)
        plan = _plan(store, nothing)
        if plan is None:
            outcome = ended(store, nothing, self.witness, self.run)
            return Done(_result(outcome, self.job_id, self.run))
        why = "somebody has rolled it back"
        if plan.state == "committing":
            if not self.sender:
                # From here on the next executor knows that requests of ours may be on their way.
                return self.again(sender=store.id)
            try:
                ending.resume(
                    store, plan, lambda done, total: tx.progress(f"{done} of {total} files")
                )
                return Done(_result(COMMITTED, self.job_id, self.run))
            except CommitterError as error:
                if ending.is_final(error):
                    why = str(error.__cause__)
                else:
                    found = deciding.outcome_of(store, plan)
                    if found is None or found.outcome == "committed":
                        raise
        # A store that steps share may be sending for a step that this process was deposed from.
        is_own = isinstance(env, DriverEnvironment) and self.sender == store.id
        is_anothers = bool(self.sender) and not is_own
        return Withdraw(
            self.destination,
            self.job_id,
            self.options,
            self.run,
            why,
            is_late=lateness.late_key(store, plan, is_anothers=is_anothers) is not None,
        )


@step(version=1, namespace="committers", pivot=True, retry=_WEATHER)
class Withdraw(Step):
    """Take a plan back that cannot be carried out."""

    destination: str
    job_id: str
    options: StoreOptions
    run: str
    why: str
    """Why it cannot."""
    is_late: bool
    """Whether a small file may come after it was taken back."""

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Make invisible what is there."""
        del tx
        store, nothing = _opened(self, env)
        _take_back(store, nothing, self.run, is_end=not self.is_late)
        if not self.is_late:
            return Done(_result(ROLLED_BACK, self.job_id, self.run, self.why))
        # The operation was in our hands before we began: what an earlier executor sent, it had
        # sent.
        now_ms, boot_ms = clock.wall_ms(), round(clock.monotonic_s() * 1000)
        return Sweep(
            self.destination,
            self.job_id,
            self.options,
            self.run,
            self.why,
            now_ms,
            clock.boot,
            boot_ms,
        )


@step(version=2, namespace="committers", pivot=True, retry=_WEATHER)
class Sweep(Step):
    """Remove what came after its job was taken back, once nothing more can come."""

    destination: str
    job_id: str
    options: StoreOptions
    run: str
    why: str
    since_ms: int
    """When it was taken back, by the date of who did it."""
    boot: str = ""
    """Whose elapsed time `boot_ms` is (`Clock.boot`); empty where that was not noted."""
    boot_ms: int = 0

    def ready(self, tx: StepContext, env: Any) -> Defer | None:
        """Wait for requests that may be on their way (C8), however the date is set."""
        del tx, env
        if self.boot == clock.boot:
            left_ms = self.boot_ms + LATE_WAIT_MS - round(clock.monotonic_s() * 1000)
        else:
            left_ms = self.since_ms + LATE_WAIT_MS + DATES_DIFFER_MS - clock.wall_ms()
        if left_ms <= 0:
            return None
        return Defer(left_ms / 1000, "for requests of another process that may still arrive")

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Take it back again, plan and all."""
        del tx
        store, nothing = _opened(self, env)
        _take_back(store, nothing, self.run)
        return Done(_result(ROLLED_BACK, self.job_id, self.run, self.why))


@step(version=1, name="Sweep", namespace="committers", pivot=True, retry=_WEATHER)
class SweepByDate(Step):
    """As an omidpy stored it that went by the date alone."""

    destination: str
    job_id: str
    options: StoreOptions
    run: str
    why: str
    since_ms: int

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Wait as is done now."""
        del tx, env
        return Sweep(self.destination, self.job_id, self.options, self.run, self.why, self.since_ms)


@step(version=1, namespace="committers", pivot=True, retry=_WEATHER)
class Abandon(Step):
    """Remove what a job has uploaded that will not be published, and the word that says so."""

    destination: str
    job_id: str
    options: StoreOptions

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Abort each upload whose key has the job's id."""
        del tx
        store, nothing = _opened(self, env)
        for upload in list(store.uploads(nothing.folder)):
            if owner(upload.key) == self.job_id:
                store.abort_upload(nothing.folder.bucket, upload.key, upload.upload_id)
        _take_back(store, nothing, run="")
        why = "its driver has died before it had written its plan"
        return Done(_result(ROLLED_BACK, self.job_id, why=why))


def _now() -> Stamp:
    """Return this moment, by the elapsed time of this machine."""
    return Stamp(clock.boot, round(clock.monotonic_s() * 1000))


def _result(outcome: str, job_id: str, run: str = "", why: str = "") -> Mapping[str, str]:
    return {"outcome": outcome, "job": job_id, "run": run, "why": why}


def _opened(
    one: Begin | Publish | Withdraw | Sweep | Abandon, env: Any
) -> tuple[ObjectStore, Plan]:
    """Return the store of a step, and the plan of a job that has nothing."""
    driver = env.committing if isinstance(env, DriverEnvironment) else None
    plan = Plan(one.job_id, "omidpy", parse_folder(one.destination), (), success=None)
    # The driver's own counts its requests, and has a client already.  Others' is this process's:
    # a client costs more time than a look, and its store remembers which requests had no answer.
    return driver or shared(one.options), plan


def _plan(store: ObjectStore, nothing: Plan) -> Plan | None:
    bucket, key = nothing.folder.bucket, nothing.folder.plan_key(nothing.job_id)
    try:
        return ending.load(store, nothing.address, bucket, key)[0]
    except CommitterError as error:
        if isinstance(error.__cause__, Gone):
            return None
        raise


def _take_back(store: ObjectStore, nothing: Plan, run: str, *, is_end: bool = True) -> None:
    """Take back what is left of a run, unless its plan has made way for another run's."""
    bucket, key = nothing.folder.bucket, nothing.folder.plan_key(nothing.job_id)
    try:
        plan, etag = ending.load(store, nothing.address, bucket, key)
    except CommitterError as error:
        if isinstance(error.__cause__, Gone):
            return  # it is taken back, by who came before us or by hand
        raise
    if plan.state == "committing" and plan.run != run:
        return
    ending.take_back(store, plan, etag, is_end=is_end)


def ended(store: ObjectStore, nothing: Plan, witness: str, run: str = "") -> str:
    """Say how a job has ended whose plan is gone: by its destination's head, or what it has left.

    Args:
        store: Where it is.
        nothing: A plan of the job that has nothing.
        witness: The key of one of its files; empty if none is known.
        run: Which run of it; empty for any.
    """
    head = looking.read(store, nothing.folder).head
    entry = head.of(nothing.job_id, run, 0) if run else None
    if entry is not None:
        return COMMITTED if entry.outcome == "committed" else ROLLED_BACK
    if not run and head.is_committed(nothing.job_id):
        return COMMITTED
    keys = [nothing.folder.key(nothing.success_path), *([witness] if witness else [])]
    heads = [store.head(nothing.folder.bucket, key) for key in keys]
    is_there = any(head is not None and head.job_id == nothing.job_id for head in heads)
    return COMMITTED if is_there else ROLLED_BACK


# -- the driver ------------------------------------------------------------------------------------


class Operations:
    """Where a job's commit is kept as an operation.  An address travels; an open store does not."""

    def __init__(self, where: object) -> None:
        """Take the address of a store, an open one, its manager, or a store of operations.

        Raises:
            UsageError: it is none.
        """
        self._where: Any = where
        if isinstance(where, str | FateStore) or _is_store(where):
            return
        self._where = getattr(where, "store", None)
        if not _is_store(self._where):
            raise UsageError("the address of a store, an open one, or its manager")

    @contextmanager
    def opened(self) -> Iterator[FateStore]:
        """Give the store of operations."""
        if not isinstance(self._where, str):
            found = self._where
            yield found if isinstance(found, FateStore) else TableFateStore(found)
            return
        if self._where.startswith(SCHEME):
            folder = f"/{parse_zookeeper(self._where).namespace}/fate"
            with closing(ZooKeeperFateStore(self._where, folder)) as operations:
                yield operations
            return
        with closing(open_store(self._where, must_exist=True)) as store:
            yield TableFateStore(store)

    def carry_out(self, store: ObjectStore, plan: Plan, effort: Effort) -> Manifest:
        """Write a plan and see it carried out, by this process or another.

        Raises:
            CommitterError: without `plan`, nothing of the job is visible, and nothing will be;
                with it, the operation goes on.
        """
        result, trouble = self._carried_out(store, plan)
        if result["outcome"] == COMMITTED and not result["run"] and not _is_decided(store, plan):
            # An executor that waited in vain for the plan found an earlier run of the job
            # committed.  That operation has ended, and the plan is there: another one carries it
            # out.
            result, trouble = self._carried_out(store, plan)
        is_own = result["run"] == plan.run or (not result["run"] and _is_decided(store, plan))
        if result["outcome"] != COMMITTED or not is_own:
            why = result["why"] or "another run of the job was quicker; give each an id of its own"
            raise CommitterError(
                f"job {plan.job_id} was taken back and nothing of it is visible: {why}{trouble}"
            )
        return ending.manifest_of(store, plan, effort)

    def _carried_out(self, store: ObjectStore, plan: Plan) -> tuple[Any, str]:
        """Return what an operation has come to, and what is to be said of its plan besides."""
        first = Begin(
            plan.folder.url,
            plan.job_id,
            _reachable(store.options),
            clock.wall_ms(),
            seen=(_now(),),
        )
        with self.opened() as operations:
            fate = Fate(DriverEnvironment(store), operations, {KIND: 1})
            handle = fate.submit(KIND, first, key=(KIND, plan.address))
            try:
                ending.begin(store, plan)
            except CommitterError as error:
                # Perhaps it is there all the same, and perhaps another one is; the operation will
                # find out, as if this process had died here.
                trouble = f": {error}"
            else:
                trouble = ""
            try:
                result = self._result(fate, handle)
            except OperationFailed as error:
                raise CommitterError(f"job {plan.job_id} was not published: {error}") from error
            except FateError as error:
                raise CommitterError(
                    f"job {plan.job_id} is not finished yet{trouble}: {error}; `omidpy fate status "
                    f"{handle.id}` shows how far it is",
                    plan=plan.address,
                ) from error
        return result, trouble

    def _result(self, fate: Fate, handle: OperationHandle) -> Any:
        """Run the operation here, or wait for the executor that does."""
        with fate:
            return handle.result(RESULT_WAIT_S)

    def under_way(self, plan_address: str) -> Operation | None:
        """Return the operation that has a plan in hand; None if it has ended, or never was."""
        key = key_text((KIND, plan_address))
        with self.opened() as operations:
            for one in operations.scan():
                if isinstance(one, Operation) and one.key == key and not one.is_finished:
                    return one
        return None


def _is_decided(store: ObjectStore, plan: Plan) -> bool:
    """Say whether a head knows that a run, and not another one of its job, is committed."""
    entry = deciding.outcome_of(store, plan)
    return entry is not None and entry.outcome == "committed"


def _is_store(one: object) -> bool:
    return hasattr(one, "check_and_mutate")


def _reachable(options: StoreOptions) -> StoreOptions:
    """Return options by which another process reaches the same store."""
    return replace(options, endpoint_url=endpoint_of(options))
