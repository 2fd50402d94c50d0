"""The oracle's writing and taking over with a guard taken out, by name.

They are about what only a busy oracle does (many commits as one batch), about answers of the store
that got lost, and about the one that is deposed and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import COMMIT
from omidpy.facts.leadership import LEASE_FACT
from omidpy.model import Column
from omidpy.storage.base import Condition, Entries, GuardedMutation
from omidpy.wire.messages import CommitRequest
from tests.machines.simulator.mutants import (
    BUSY,
    DEPOSED,
    DISTURBED,
    FAILING_OVER,
    READING,
    STALLED,
    Overtaking,
    _Machine,
)
from tests.machines.simulator.plan import Focus
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall
from tso.core.events import Batch, Flush, FlushResult, Frames, Send
from tso.core.machine import Machine
from tso.core.writes import commit_entries, commit_entry
from tso.durable import persist
from tso.durable.lease import Lease
from tso.durable.persist import StorePersistence

# -- what is looked at behind a write --------------------------------------------------------------


class _Trusting:
    """A store that is asked ahead, of whose looks nobody wants to know."""

    def __init__(self, store: Any, *, of_few: bool, of_many: bool) -> None:
        self._store = store
        self._of_few = of_few
        self._of_many = of_many

    def write_then_check(
        self, changes: Sequence[GuardedMutation], check: Condition
    ) -> tuple[list[bool], bool]:
        """Write, and say that all is well."""
        applied, is_ours = self._store.write_then_check(changes, check)
        return applied, is_ours or self._of_few

    def put_then_check(self, entries: Entries, checks: Sequence[Condition]) -> list[bool]:
        """Do the same."""
        found = self._store.put_then_check(entries, checks)
        return [True for _ in found] if self._of_many else found


class TrustsItsPut(StorePersistence):
    """Writes many entries, and does not look at what was read behind them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self._ahead is not None:
            trusting: Any = _Trusting(self._ahead, of_few=False, of_many=True)
            self._ahead = trusting


class TrustsItsFew(StorePersistence):
    """Does so with few entries."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self._ahead is not None:
            trusting: Any = _Trusting(self._ahead, of_few=True, of_many=False)
            self._ahead = trusting


class LooksAtNoLeaseBehindMany(StorePersistence):
    """Writes large batches step by step, and answers without a look at the lease."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ahead = None

    def _check_with_ceiling(self) -> None:
        """Take the lease for ours."""


class LooksAtNoLeaseBehindOne(StorePersistence):
    """Does so with single commits."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ahead = None

    def _write_in_steps(self, batch: Batch[Any], entries: Any) -> frozenset[int]:
        if len(batch.commits) == 1 and not batch.invalidations:
            return self._write_commit(*batch.commits[0])
        return super()._write_in_steps(batch, entries)


class ReadsNoInvalidations(StorePersistence):
    """Looks at the lease behind many commits, and not at what clients of Omid's have forbidden."""

    def _check_with_invalidations(self, batch: Batch[Any]) -> frozenset[int]:
        del batch
        self._lease.check()
        return frozenset()


class KnowsNobodyOfOmids(Machine[Any]):
    """Takes every client for one of ours, who forbids nothing by itself."""

    @property
    def has_omids_clients(self) -> bool:
        """Never."""
        return False

    @has_omids_clients.setter
    def has_omids_clients(self, value: bool) -> None:
        del value


def unconditional(start_ts: int, commit_ts: int) -> GuardedMutation:
    """Return a commit entry that is written whatever was forbidden."""
    entry = commit_entry(start_ts, commit_ts)
    nothing = Column(COMMIT.family, b"nobody")
    return entry._replace(condition=Condition(entry.table, entry.mutation.row, nothing, None))


class AnswersWhatFailed(StorePersistence):
    """Takes a guarded batch that failed for written, as long as it carries no ceiling."""

    def _write_guarded(self, batch: Batch[Any], entries: Any) -> frozenset[int]:
        try:
            return super()._write_guarded(batch, entries)
        except StorageUnavailable:
            if batch.ceiling is not None:
                raise
            return frozenset()


# -- the lease -------------------------------------------------------------------------------------


class RenewsWhateverIsThere(Lease):
    """Renews the record, be it another's by now."""

    def _renew(self) -> None:
        record = structs.replace(self._record, sequence=self._record.sequence + 1)
        raw = self._control.read(LEASE_FACT)
        self._replace(raw, record)


class BlindToRenewals(Lease):
    """Counts from when it first saw any record, and not from when that changed."""

    def _other_holder(self, raw: bytes | None) -> str | None:
        since_s = self._seen_s
        holder = super()._other_holder(raw)
        if since_s:
            self._seen_s = since_s
        return holder


class NotesNoRelease(Lease):
    """Takes over from whoever holds the record, as if it had given it up."""

    def _other_holder(self, raw: bytes | None) -> str | None:
        holder = super()._other_holder(raw)
        return None if holder is not None and self._seen_s < self._clock.monotonic_s() else holder


# -- decisions -------------------------------------------------------------------------------------


class RemembersEveryAbort(_Machine):
    """Remembers the refusal of what was looked up, which may be a conflict with itself."""

    def _decide(
        self, ticket: Any, request: CommitRequest, client: int, *, is_certain: bool = True
    ) -> None:
        del is_certain
        super()._decide(ticket, request, client)


class GivesTooMuchBack(_Machine):
    """Lowers the ceiling at its end below what was issued."""

    def _finish(self, effects: list[Any]) -> None:
        issued = self._engine.last_issued
        self._engine.last_issued = max(issued - 5_000, 1)
        super()._finish(effects)
        self._engine.last_issued = issued


class AdmitsTheOld(_Machine):
    """Lets what is below the low watermark commit, if only nothing conflicts that is remembered."""

    def _decide(
        self, ticket: Any, request: CommitRequest, client: int, *, is_certain: bool = True
    ) -> None:
        before = self._engine.low_watermark
        self._engine.low_watermark = min(before, request.start_ts - 1)
        super()._decide(ticket, request, client, is_certain=is_certain)
        self._engine.low_watermark = max(before, self._engine.low_watermark)


class TellsTheRefused(Machine[Any]):
    """Tells of a commit that was forbidden when it was to be written."""

    def _land(self, result: FlushResult, effects: list[Any]) -> None:
        super()._land(replace(result, refused=frozenset()), effects)


class RunsReplyEarly(Machine[Any]):
    """Sends the answers of a batch of runs, then flushes it."""

    def handle(self, event: Any) -> list[Any]:
        """Put the answers before their flush."""
        effects: list[Any] = []
        for effect in super().handle(event):
            if isinstance(effect, Flush):
                answers: Any = effect.batch.answers
                effects.append(Send([(t, a) for t, a in answers if isinstance(a, Frames)]))
                effect.batch.answers = [(t, a) for t, a in answers if not isinstance(a, Frames)]
            effects.append(effect)
        return effects


class OvertakesTheFlight(Machine[Any]):
    """Lets begins go while a batch of commits is on its way to the store."""

    _batches_type = Overtaking


def all_but_the_last(commits: Sequence[tuple[int, int]]) -> Entries:
    """Return the entries of many transactions, and forget one."""
    return commit_entries(list(commits)[:-1])


BATCHES: Final = STALLED._replace(
    oracle_stalls=(Stall(),),
    store_kinds=("cluster",),
    oracle_leases_s=(2.0,),
    timestamps=("world", "incremental"),
    crowds=(2,),
    crowd_pauses_s=(0.5,),
    crowd_sizes=((12, 24),),
    crowd_stalls=(Stall(),),
    crowd_tongues=("ours",),
    pauses_s=(2.0,),
    few_at_once=(0,),
    pages_rows=(None,),
    turns_work=(None,),
)
"""Many commits at a time, on a store that writes them one after the other."""

FORBIDDING: Final = BATCHES._replace(
    crowd_tongues=("java",),
    crowds=(2,),
    crowd_thinking_shares=(1.0,),
    crowd_fence_shares=(1.0,),
    conflict_maps=(4096,),
    ages_ms=(900_000,),
    oracle_leases_s=(10.0,),
    pauses_s=(1.0,),
)
"""Clients of Omid's, who forbid by themselves what is not answered."""

DEAD_IN_FLIGHT: Final = BATCHES._replace(oracle_stalls=(Stall(0.05, 9.0, "COMMIT_TABLE"),))
"""Oracles that stand still right before a batch is written, and are deposed meanwhile."""


def _ceiling_focus() -> Focus:
    return FAILING_OVER._replace(timestamps=("incremental",), pauses_s=(0.2,))


BATCH_MUTANTS: Final[dict[str, Mutant]] = {
    "put of many trusted": Mutant(Parts(persistence=TrustsItsPut), "I4", DEAD_IN_FLIGHT),
    "put of few trusted": Mutant(
        Parts(persistence=TrustsItsFew),
        "I4",
        DEAD_IN_FLIGHT._replace(few_at_once=(None,), crowds=(0,)),
    ),
    "lease ignored for large batches": Mutant(
        Parts(persistence=LooksAtNoLeaseBehindMany), "I4", DEAD_IN_FLIGHT
    ),
    "lease ignored for single commits": Mutant(
        Parts(persistence=LooksAtNoLeaseBehindOne),
        "I4",
        DEAD_IN_FLIGHT._replace(crowds=(0,), pauses_s=(0.2,)),
    ),
    "invalidations of many not read": Mutant(
        Parts(persistence=ReadsNoInvalidations),
        "I2",
        FORBIDDING,
    ),
    "Omid's clients taken for ours": Mutant(
        Parts(machine=KnowsNobodyOfOmids),
        "I2",
        FORBIDDING,
    ),
    "entry written unconditionally": Mutant(
        Parts(patches=(Patch(persist, "commit_entry", unconditional),)),
        "I2",
        FORBIDDING._replace(
            few_at_once=(3,),
            crowd_sizes=((1, 2),),
        ),
    ),
    "last entry of a batch left out": Mutant(
        Parts(patches=(Patch(persist, "commit_entries", all_but_the_last),)), "I2", BATCHES
    ),
    "forbidden, and told": Mutant(Parts(machine=TellsTheRefused), "I2", FORBIDDING),
    "runs answered early": Mutant(Parts(machine=RunsReplyEarly), "I2", BATCHES),
    "begins overtake a batch": Mutant(
        Parts(machine=OvertakesTheFlight), "I2", BATCHES._replace(pauses_s=(0.05,))
    ),
    "failed batch answered": Mutant(
        Parts(persistence=AnswersWhatFailed),
        "I2",
        DISTURBED._replace(store_kinds=("shared", "file"), lost=(0.05,)),
    ),
    "lease renewed whoever has it": Mutant(Parts(lease=RenewsWhateverIsThere), "I1", DEPOSED),
    "blind to renewals": Mutant(
        Parts(lease=BlindToRenewals),
        "I1",
        READING._replace(
            timestamps=("incremental",), oracle_leases_s=(2.0,), pauses_s=(0.3,), fault_counts=(0,)
        ),
    ),
    "lease taken from the living": Mutant(
        Parts(lease=NotesNoRelease),
        "I1",
        READING._replace(timestamps=("incremental",), oracle_leases_s=(10.0,), fault_counts=(0,)),
    ),
    "every abort remembered": Mutant(
        Parts(machine=RemembersEveryAbort),
        "I8",
        BUSY._replace(
            calm_share=0.0,
            fault_counts=(0,),
            undisturbed_share=1.0,
            decision_memories=(4,),
            repeat_shares=(1.0,),
            late_message_shares=(0.02, 0.05),
            post_commits=(("sync",),),
            pauses_s=(0.2,),
        ),
    ),
    "too much given back": Mutant(
        Parts(machine=GivesTooMuchBack),
        "I1",
        _ceiling_focus()._replace(fault_kinds=("stop",), conflict_maps=(64,)),
    ),
    "the old admitted": Mutant(
        Parts(machine=AdmitsTheOld),
        "lost update",
        FAILING_OVER._replace(
            conflict_maps=(8,), thinking_shares=(0.1,), thoughts_s=(6.0,), pauses_s=(0.2,)
        ),
    ),
}
"""By name."""
