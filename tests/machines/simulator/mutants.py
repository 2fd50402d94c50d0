"""The product with one part broken on purpose, by name: each must be found by the simulator.

A mutant of the machine decides every request by itself, in Python, where it can be broken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

from msgspec import structs

from omidpy.base.tables import CONTROL_TABLE, VALUE
from omidpy.commit.outcome import OutcomeFinder
from omidpy.commit.post_commit import Completer, SyncPostCommitter
from omidpy.errors import LeaseLost, OmidError, OracleUnavailable, StorageUnavailable
from omidpy.facts.commit_table import COMMIT_TABLE, LOW_WATERMARK_FACT
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, TableId, Timestamp
from omidpy.oracle.base import AbortReason
from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.base import CellGroup, Condition, ProcessLock
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    FenceResponse,
    InvalidateResponse,
    InvalidateVerdict,
)
from tests.machines.simulator.plan import ALONE, PLAIN
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall
from tso.core.batches import Batches
from tso.core.events import Batch, Deferred, Flush, FlushResult, Send
from tso.core.machine import Machine
from tso.core.past.recalling import Recaller
from tso.core.settings import TIMESTAMPS_PER_MS
from tso.core.writes import cell_group
from tso.durable import persist
from tso.durable.lease import Lease
from tso.durable.persist import StorePersistence

# -- the machine -----------------------------------------------------------------------------------


class _Machine(Machine[Any]):
    def run(self, *_: Any, **__: Any) -> tuple[int, int]:
        """Leave every request to the methods that are broken below."""
        return 0, 0


class NoConflictCheck(_Machine):
    """Lets everybody commit whatever was written meanwhile."""

    def _decide(
        self, ticket: Any, request: CommitRequest, client: int, *, is_certain: bool = True
    ) -> None:
        super()._decide(
            ticket, structs.replace(request, cell_ids=()), client, is_certain=is_certain
        )


class ChecksOneCell(_Machine):
    """Looks for conflicts of the first cell alone."""

    def _decide(
        self, ticket: Any, request: CommitRequest, client: int, *, is_certain: bool = True
    ) -> None:
        first = structs.replace(request, cell_ids=request.cell_ids[:1])
        super()._decide(ticket, first, client, is_certain=is_certain)


class RepliesEarly(_Machine):
    """Sends the answers of a batch, then flushes it."""

    def handle(self, event: Any) -> list[Any]:
        """Put the answers before their flush."""
        effects: list[Any] = []
        for effect in super().handle(event):
            if isinstance(effect, Flush):
                answers = effect.batch.answers
                effects.append(Send([(t, a) for t, a in answers if not isinstance(a, Deferred)]))
                effect.batch.answers = [(t, a) for t, a in answers if isinstance(a, Deferred)]
            effects.append(effect)
        return effects


class Overtaking(Batches[Any]):
    """Batches without decisions need not wait for the flight, nor for the lease."""

    def _may_leave(self, batch: Batch[Any], is_vouched: bool) -> bool:  # noqa: FBT001 - as it is there
        del is_vouched
        return not batch.has_decisions() and batch.newest_ts <= self._durable_ceiling


class BeginOvertakes(_Machine):
    """Lets a begin go while earlier commits are on their way to the store."""

    _batches_type = Overtaking


class ForgetsTheEpoch(_Machine):
    """Lets what began before it commit, of whose conflicts it knows nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._engine.low_watermark = 0


class LosesFences(_Machine):
    """Answers a fence with a timestamp, and remembers nothing."""

    def _fence(self, ticket: Any, table_id: Any, effects: list[Any]) -> None:
        super()._fence(ticket, TableId(0), effects)
        answers = self._batches._pending.answers
        _, answer = answers[-1]
        assert isinstance(answer, FenceResponse), "there is always room for one"
        answers[-1] = ticket, FenceResponse(table_id, answer.fence_ts)


class DecidesTwice(_Machine):
    """Decides a commit that it is asked for again as if it were new."""

    def _commit(self, ticket: Any, request: CommitRequest, effects: list[Any]) -> None:
        self._decide(ticket, request, self._client)


class _Aborting(Recaller):
    def looked_up(self, start_ts: int, result: FlushResult) -> CommitResponse | str:
        """Refuse what the table does not know."""
        answer = super().looked_up(start_ts, result)
        if isinstance(answer, str):
            return CommitResponse(Timestamp(start_ts), None, (), AbortReason.UNSTATED.value)
        return answer


class RetriesAreAborted(_Machine):
    """Takes a missing commit entry for an abort."""

    _recaller_type = _Aborting


class IgnoresInvalidations(_Machine):
    """Promises that a transaction will not commit, and forgets it."""

    def _invalidate(self, ticket: Any, start_ts: int, effects: list[Any]) -> None:
        if self._decisions.get(start_ts):
            super()._invalidate(ticket, start_ts, effects)
        else:
            verdict = InvalidateVerdict.INVALIDATED
            self._batches.answer(ticket, InvalidateResponse(Timestamp(start_ts), verdict))


class ForgetsSilently(_Machine):
    """Forgets commits, and does not raise the low watermark to them."""

    def _decide(
        self, ticket: Any, request: CommitRequest, client: int, *, is_certain: bool = True
    ) -> None:
        before = self._engine.low_watermark
        super()._decide(ticket, request, client, is_certain=is_certain)
        self._engine.low_watermark = before


class FollowsTheClockBack(_Machine):
    """Issues what the clock says, also where it was set back."""

    def _set_time(self, now: Any) -> None:
        super()._set_time(now)
        now_ts = now.wall_ms * TIMESTAMPS_PER_MS
        if self._settings.timestamps == "world" and now_ts < self._engine.last_issued:
            self._engine.clock_ts = self._engine.last_issued = now_ts


class _Uncovered(Batches[Any]):
    def _may_leave(self, batch: Batch[Any], is_vouched: bool) -> bool:  # noqa: FBT001 - as it is there
        durable, self._durable_ceiling = self._durable_ceiling, batch.newest_ts
        may_leave = super()._may_leave(batch, is_vouched)
        self._durable_ceiling = durable
        return may_leave

    def take_answers(self, batch: Batch[Any]) -> list[Any]:
        """Take whatever is asked for as covered."""
        self._durable_ceiling = max(self._durable_ceiling, batch.newest_ts)
        return super().take_answers(batch)


class IssuesAboveTheCeiling(_Machine):
    """Does not wait for the ceiling above a timestamp."""

    _batches_type = _Uncovered


# -- the persistence -------------------------------------------------------------------------------


class ReusesTheCeiling(StorePersistence):
    """Begins below the stored ceiling, where timestamps may have been issued."""

    def start(self, settings: Any, now: Any, *, accept_clock: bool) -> Any:
        """Begin a lookahead lower."""
        inherited = super().start(settings, now, accept_clock=accept_clock)
        epoch = max(inherited.epoch - settings.lookahead, 0)
        return replace(inherited, epoch=epoch)


class WatermarkFirst(StorePersistence):
    """Writes the low watermark before the commits that were decided before it."""

    def flush(self, batch: Batch[Any]) -> FlushResult:
        """Write it, then the rest."""
        if batch.low_watermark is not None:
            self._control.raise_number(LOW_WATERMARK_FACT, batch.low_watermark)
        return super().flush(batch)


class TakesTornForWhole(StorePersistence):
    """Takes a batch that failed for written."""

    def flush(self, batch: Batch[Any]) -> FlushResult:
        """Say that everything is well."""
        try:
            return super().flush(batch)
        except StorageUnavailable:
            asked = [*batch.lookups, *batch.invalidations]
            return FlushResult(entries=dict.fromkeys(asked))


class WritesCellsUnguarded(StorePersistence):
    """Writes the cells of commits whoever has the lease, and looks at it behind them."""

    def flush(self, batch: Batch[Any]) -> FlushResult:
        """Write them first."""
        if batch.groups:
            self._store.write_guarded([cell_group(*one) for one in batch.groups], durable=True)
        return super().flush(batch)


def without_shadow_cells(start_ts: int, commit_ts: int, cells: Any) -> CellGroup:
    """Return the cells of a commit as a client would write them before it."""
    return CellGroup(cells, cell_group(start_ts, commit_ts, cells).condition)


# -- the lease -------------------------------------------------------------------------------------


class ZombieLease(Lease):
    """Never finds out that it was lost."""

    @property
    def guard(self) -> Condition:
        """A condition that always holds."""
        return Condition(CONTROL_TABLE, b"nobody", VALUE, None)

    @property
    def proof(self) -> Condition | None:
        """The same."""
        return self.guard

    @property
    def vouched_until_s(self) -> float:
        """For ever."""
        return float("inf")

    def renew_if_due(self, *, before_check: bool = False) -> None:
        """Renew it, and believe that it worked."""
        try:
            super().renew_if_due(before_check=before_check)
        except LeaseLost:
            return

    def check(self) -> None:
        """Believe that it is ours."""


class VouchesForEver(Lease):
    """Lets answers that need no flush leave although another may have taken over."""

    @property
    def vouched_until_s(self) -> float:
        """For ever."""
        return float("inf")


class OpensLockedFiles(Lease):
    """Does not ask for the lock of the file."""

    def try_acquire(self) -> str | None:
        """Take what is written there for all there is."""
        self._lock = cast("ProcessLock", _NoLock())
        return super().try_acquire()


class _NoLock:
    excludes = True

    def release(self) -> None:
        """Have nothing to give back."""


class Impatient(Lease):
    """Takes a lease over that stood still for a second."""

    def _other_holder(self, raw: bytes | None) -> str | None:
        holder = super()._other_holder(raw)
        return None if self._clock.monotonic_s() - self._seen_s > 1.0 else holder


# -- clients ---------------------------------------------------------------------------------------


class TakesSilenceForAbort(OutcomeFinder):
    """Takes a commit without an answer for one that did not happen."""

    def settle(self, *_: Any, **__: Any) -> Aborted:
        """Guess."""
        return Aborted()


class TakesAbsentForAborted(OutcomeFinder):
    """Takes cells that are not there for never committed, and does not ask the oracle."""

    def _ask(self, start_ts: Any, witness: Any, *arguments: Any) -> Any:
        if witness is not None and self._witness_state(witness) == (None, False):
            return Aborted()
        return super()._ask(start_ts, witness, *arguments)


class LeavesACellOut(TcpOracle):
    """Has one cell less checked than was written."""

    def commit(self, start_ts: Any, cell_ids: Any, *arguments: Any, **options: Any) -> Any:
        """Leave the first one out."""
        return super().commit(start_ts, list(cell_ids)[1:], *arguments, **options)

    def commit_cells(self, start_ts: Any, cell_ids: Any, *arguments: Any) -> Any:
        """Do the same."""
        return super().commit_cells(start_ts, list(cell_ids)[1:], *arguments)


class TakesSilenceForNotSent(TcpOracle):
    """Takes a commit without an answer for one that was never asked for."""

    def commit(self, *arguments: Any, **options: Any) -> Any:
        """Ask, and say of every failure that nothing was sent."""
        return self._silently(super().commit, *arguments, **options)

    def commit_cells(self, *arguments: Any, **options: Any) -> Any:
        """Do the same."""
        return self._silently(super().commit_cells, *arguments, **options)

    def _silently(self, ask: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return ask(*arguments, **options)
        except OracleUnavailable as error:
            error.was_sent = False
            raise


class _EntryFirst(Completer):
    def complete(self, batch: Any) -> None:
        try:
            self._commit_table.complete([one.start_ts for one in batch])
            for one in batch:
                self._store.write({table: list(rows) for table, rows in one.shadow_cells.items()})
        except OmidError:
            return


def removes_entries_first(*arguments: Any, **options: Any) -> TransactionManager:
    """Make a client that removes the commit entry before the shadow cells are there."""
    manager = TransactionManager(*arguments, **options)
    session = manager.session
    session.post_committer = SyncPostCommitter(
        _EntryFirst(session.store, session.reader.resolver._commit_table, lambda _: None)
    )
    return manager


def leaves_the_undecided_alone(*arguments: Any, **options: Any) -> TransactionManager:
    """Make a client that takes a transaction for aborted, and does not forbid its commit."""
    manager = TransactionManager(*arguments, **options)
    commit_table: Any = manager.session.reader.resolver._commit_table
    commit_table.invalidate_all = lambda starts: dict.fromkeys(starts, True)
    return manager


QUIET: Final = ALONE._replace(**PLAIN, calm_share=1.0, thinking_shares=(0.0,))
"""Nothing goes wrong."""

BUSY: Final = QUIET._replace(pauses_s=(0.05,))
"""The same, and there is much to do."""

TROUBLED: Final = BUSY._replace(
    calm_share=0.0,
    undisturbed_share=1.0,
    fault_counts=(2, 3, 4),
    half_close_counts=(0,),
    power_losses=(0,),
)
"""Processes of which something goes wrong, on a store of which nothing does."""

FAILING_OVER: Final = TROUBLED._replace(
    oracle_leases_s=(2.0,),
    fault_counts=(4, 6),
    fault_kinds=("crash", "pause", "pause", "stop"),
    fault_pauses_s=(6, 7, 8, 9),
)
"""One oracle after the other."""

STALLED: Final = TROUBLED._replace(fault_counts=(0,), oracle_leases_s=(2.0,))
"""Oracles that stand still right before certain calls, and go on as if nothing had been."""

SLOW_TO_WRITE: Final = STALLED._replace(
    oracle_leases_s=(10.0,),
    oracle_stalls=(Stall(0.03, 9.0, COMMIT_TABLE), Stall(0.03, 9.0, "write")),
)
"""Oracles that are alive, and do not answer a commit before its client gives up."""

READING: Final = TROUBLED._replace(
    exporters=(2,),
    other_fault_counts=(0,),
    exporter_stalls=(Stall(),),
    store_kinds=("cluster", "shared"),
    adding_shares=(0.0,),
    pauses_s=(5.0,),
)
"""Transactions that begin and write nothing."""

DEPOSED: Final = READING._replace(
    timestamps=("incremental",),
    oracle_leases_s=(2.0,),
    fault_counts=(4, 6),
    fault_kinds=("pause",),
    fault_pauses_s=(6, 7, 8, 9),
)
"""Oracles that go on when another has taken over, and are asked for timestamps."""

LONG: Final = BUSY._replace(thinking_shares=(0.05, 0.1), thoughts_s=(4.0,))
"""Transactions that take seconds, beside others."""

UNANSWERED: Final = TROUBLED._replace(
    fault_kinds=("hang up", "hang up", "crash", "stop"),
    late_message_shares=(0.003, 0.02),
    repeat_shares=(0.3,),
)
"""Commits of which nobody hears."""

SETTING_CLOCKS: Final = TROUBLED._replace(
    timestamps=("world",),
    fault_counts=(9, 12),
    fault_kinds=("clock", "clock", "crash"),
)
"""Oracles whose hosts have their clocks set."""

DISTURBED: Final = TROUBLED._replace(
    undisturbed_share=0.0,
    lost=(0.005, 0.02),
    unheard=(0.005, 0.02),
    late=(0.0, 0.005),
    torn=(0.0, 0.2),
    fault_kinds=("crash", "cut", "full", "pause"),
)
"""A store whose calls get lost, and are done in part."""

MUTANTS: Final[dict[str, Mutant]] = {
    "no conflict check": Mutant(Parts(machine=NoConflictCheck), "lost update", QUIET),
    "one cell checked": Mutant(Parts(machine=ChecksOneCell), "lost update", QUIET),
    "cell left out of the write set": Mutant(Parts(oracle=LeavesACellOut), "lost update", QUIET),
    "lock of a file ignored": Mutant(
        Parts(lease=OpensLockedFiles),
        "I1",
        READING._replace(store_kinds=("file",), timestamps=("incremental",), fault_counts=(0,)),
    ),
    "early reply": Mutant(Parts(machine=RepliesEarly), "I2", QUIET),
    "begin overtakes a commit": Mutant(Parts(machine=BeginOvertakes), "I2", QUIET),
    "forgotten epoch": Mutant(
        Parts(machine=ForgetsTheEpoch),
        "lost update",
        FAILING_OVER._replace(
            fault_counts=(9,),
            fault_kinds=("crash",),
            conflict_maps=(4096,),
            ages_ms=(900_000,),
            thinking_shares=(0.05,),
            thoughts_s=(6.0,),
            pauses_s=(0.2,),
        ),
    ),
    "lost fence": Mutant(Parts(machine=LosesFences), "fence", LONG._replace(fence_shares=(0.3,))),
    "commit decided twice": Mutant(Parts(machine=DecidesTwice), "I8", UNANSWERED),
    "retry answered abort": Mutant(
        Parts(machine=RetriesAreAborted), "I8", UNANSWERED._replace(decision_memories=(4,))
    ),
    "invalidation ignored": Mutant(
        Parts(machine=IgnoresInvalidations),
        "I9",
        QUIET._replace(
            late_message_shares=(0.1,),
            conflict_maps=(4096,),
            ages_ms=(900_000,),
            workloads=(("registers", "long fork"),),
        ),
    ),
    "silent eviction": Mutant(
        Parts(machine=ForgetsSilently), "lost update", LONG._replace(conflict_maps=(8,))
    ),
    "clock followed back": Mutant(Parts(machine=FollowsTheClockBack), "I1", SETTING_CLOCKS),
    "issued above the ceiling": Mutant(
        Parts(machine=IssuesAboveTheCeiling),
        "I1",
        READING._replace(
            timestamps=("world",),
            oracle_leases_s=(10.0,),
            fault_counts=(2, 3),
            clock_skews_ms=(20_000,),
            fault_kinds=("cut",),
            cut_ends=("oracle store",),
            fault_cuts_s=(12, 18),
        ),
    ),
    "reused ceiling": Mutant(
        Parts(persistence=ReusesTheCeiling),
        "I1",
        FAILING_OVER._replace(timestamps=("incremental",), fault_kinds=("crash",), pauses_s=(0.2,)),
    ),
    "watermark before durability": Mutant(
        Parts(persistence=WatermarkFirst),
        "I4",
        STALLED._replace(
            conflict_maps=(8,),
            oracle_stalls=(Stall(0.2, 0.5, "write"),),
            thinking_shares=(0.05,),
            thoughts_s=(1.0,),
        ),
    ),
    "torn batch accepted": Mutant(Parts(persistence=TakesTornForWhole), "I2", DISTURBED),
    "cells written unguarded": Mutant(
        Parts(persistence=WritesCellsUnguarded),
        "I9",
        STALLED._replace(
            store_kinds=("shared",), oracle_stalls=(Stall(0.04, 12.0, "write_guarded"),)
        ),
    ),
    "cells without shadow cells": Mutant(
        Parts(patches=(Patch(persist, "cell_group", without_shadow_cells),)),
        "I5",
        QUIET._replace(store_kinds=("file", "shared")),
    ),
    "absent taken for aborted": Mutant(
        Parts(outcomes=TakesAbsentForAborted),
        "I9",
        SLOW_TO_WRITE._replace(
            store_kinds=("file", "shared"), oracle_stalls=(Stall(0.03, 9.0, "write_guarded"),)
        ),
    ),
    "zombie that answers": Mutant(Parts(lease=ZombieLease), "I1", DEPOSED),
    "lease vouched for ever": Mutant(Parts(lease=VouchesForEver), "I1", DEPOSED),
    "impatient standby": Mutant(
        Parts(lease=Impatient),
        "I1",
        READING._replace(timestamps=("incremental",), oracle_leases_s=(10.0,), fault_counts=(0,)),
    ),
    "silence taken for abort": Mutant(Parts(outcomes=TakesSilenceForAbort), "I9", SLOW_TO_WRITE),
    "silence taken for not sent": Mutant(Parts(oracle=TakesSilenceForNotSent), "I9", SLOW_TO_WRITE),
    "undecided left alone": Mutant(
        Parts(manager=leaves_the_undecided_alone),
        "lost append",
        STALLED._replace(
            store_kinds=("cluster",),
            death_shares=(0.1,),
            oracle_stalls=(Stall(0.05, 10.0, COMMIT_TABLE),),
            workloads=(("appends",),),
        ),
    ),
    "entry removed first": Mutant(
        Parts(manager=removes_entries_first),
        "I8",
        DISTURBED._replace(death_shares=(0.1,), post_commits=(("sync",),)),
    ),
}
"""By name."""
