"""Syncs that are skipped, and what else is believed of disks and clocks, by name.

Most of them are the product without one of the places where it asks for a durable write; others
take a sync that failed for done, or a clock for one that goes on while its host is suspended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from compactor.ranges.range_pass import RangePass
from omidpy.base.cells import encode_long
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.control import ControlTable
from omidpy.fate.table.joined import JoinedChanges
from omidpy.model import Timestamp
from omidpy.storage.base import RowMutation
from tests.machines.simulator.compaction_mutants import COMPACTING
from tests.machines.simulator.mutants import (
    DEPOSED,
    SETTING_CLOCKS,
    STALLED,
    TROUBLED,
)
from tests.machines.simulator.operation_mutants import OPERATING
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall
from tests.machines.simulator.world import SimClock
from tso.core.events import Batch, FlushResult
from tso.core.settings import TIMESTAMPS_PER_MS
from tso.durable.ceiling import StoredCeiling
from tso.durable.persist import StorePersistence

T = TypeVar("T")


class Unsynced:
    """A store as one sees it who asks for no sync."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        """Pass everything else on."""
        return getattr(self._store, name)

    def write(self, batch: Mapping[str, Sequence[RowMutation]], **_: object) -> None:
        """Change rows; see `Store`."""
        self._store.write(batch)

    def check_and_mutate(self, *arguments: Any, **_: object) -> bool:
        """Change a row on a condition; see `Store`."""
        is_applied: bool = self._store.check_and_mutate(*arguments)
        return is_applied

    def write_guarded(self, mutations: Any, *, guard: Any = None, **_: object) -> Any:
        """Change rows at once; see `Store`."""
        return self._store.write_guarded(mutations, guard=guard)


def without_syncs(owner: Any, act: Callable[[], T]) -> T:
    """Let something write by its store, its facts and its ceiling, and sync nothing."""
    store, control = owner._store, getattr(owner, "_control", None)
    ceiling = getattr(owner, "_ceiling", None)
    owner._store = Unsynced(store)
    if control is not None:
        owner._control = ControlTable(owner._store)
    if ceiling is not None:
        ceiling._store = owner._store
    try:
        return act()
    finally:
        owner._store = store
        if control is not None:
            owner._control = control
        if ceiling is not None:
            ceiling._store = store


# -- the oracle ------------------------------------------------------------------------------------


class CommitsUnsynced(StorePersistence):
    """Answers commits whose entries are on no disk."""

    def flush(self, batch: Batch[Any]) -> FlushResult:
        """Sync no batch that has some."""
        flush = partial(super().flush, batch)
        return without_syncs(self, flush) if batch.commits else flush()


class CellsUnsynced(StorePersistence):
    """Answers commits whose cells it wrote with their shadow cells, and which are on no disk."""

    def flush(self, batch: Batch[Any]) -> FlushResult:
        """Sync no batch that has some."""
        flush = partial(super().flush, batch)
        return without_syncs(self, flush) if batch.groups else flush()


class _CeilingUnsynced(StoredCeiling):
    def replace(self, expected: bytes | None, ceiling: int) -> bool:
        return without_syncs(self, partial(super().replace, expected, ceiling))


class CeilingUnsynced(StorePersistence):
    """Issues timestamps below a ceiling that is on no disk."""

    def __init__(self, store: Any, *rest: Any, **options: Any) -> None:
        super().__init__(store, *rest, **options)
        self._ceiling = _CeilingUnsynced(store)


class _CeilingTakenForSynced(StoredCeiling):
    def note(self, ceiling: int, *, was_applied: bool) -> None:
        if not was_applied:
            found = self.find()
            if found is None or found.value != encode_long(ceiling):
                raise self.lost(found)
        super().note(ceiling, was_applied=True)


class TakesItsOwnForSynced(StorePersistence):
    """Finds the ceiling that it tried to write, and does not write it once more."""

    def __init__(self, store: Any, *rest: Any, **options: Any) -> None:
        super().__init__(store, *rest, **options)
        self._ceiling = _CeilingTakenForSynced(store)


class TakesFailedSyncsForDone(StorePersistence):
    """Answers what was to be synced, and was not."""

    def flush(self, batch: Batch[Any]) -> FlushResult:
        """Say that everything is well."""
        try:
            return super().flush(batch)
        except StorageUnavailable as error:
            if "sync" not in str(error):
                raise
            return FlushResult(entries=dict.fromkeys([*batch.lookups, *batch.invalidations]))


class BeginsUnsynced(StorePersistence):
    """Begins to serve, and none of what says so is on any disk."""

    def start(self, *arguments: Any, **options: Any) -> Any:
        """Sync nothing."""
        return without_syncs(self, partial(super().start, *arguments, **options))


class BeginsAtItsClock(StorePersistence):
    """Takes its own clock for the time, where the stored ceiling is above it."""

    def start(self, settings: Any, now: Any, *, accept_clock: bool) -> Any:
        """Begin lower."""
        inherited = super().start(settings, now, accept_clock=accept_clock)
        clock_ts = now.wall_ms * TIMESTAMPS_PER_MS
        return replace(inherited, epoch=min(inherited.epoch, clock_ts))


def awake_s(self: SimClock) -> float:
    """Return the seconds in which a host was not suspended."""
    return 1000.0 + self._world.now_s - self.slept_s


# -- clients and others ----------------------------------------------------------------------------

_invalidate = CommitTable.invalidate
_invalidate_all = CommitTable.invalidate_all
_joins = JoinedChanges.__init__


def forbids_unsynced(self: CommitTable, start_ts: Timestamp) -> bool:
    """Forbid a commit, and sync nothing."""
    return without_syncs(self, partial(_invalidate, self, start_ts))


def forbids_all_unsynced(self: CommitTable, starts: Any) -> Any:
    """Do so with many."""
    return without_syncs(self, partial(_invalidate_all, self, starts))


def takes_all_for_forbidden(self: CommitTable, start_ts: Timestamp) -> bool:
    """Forbid a commit, and take it for forbidden though it came first."""
    _invalidate(self, start_ts)
    return True


def joins_unsynced(self: JoinedChanges, store: Any) -> None:
    """Keep operations on no disk."""
    _joins(self, Unsynced(store))


class HealsUnsynced(RangePass):
    """Claims a range whose shadow cells are on no disk."""

    def write(self, mutations: Sequence[RowMutation], *, durable: bool = False) -> None:
        """Sync nothing."""
        del durable
        super().write(mutations)


BLACKOUTS: Final = TROUBLED._replace(
    fault_counts=(0,),
    power_losses=(2, 3),
    dark_s=(0.2, 1.0),
    pauses_s=(0.2,),
)
"""The power goes, and nothing else goes wrong."""

ON_A_HOST: Final = BLACKOUTS._replace(store_kinds=("file", "shared"))
"""Everybody loses it."""

ON_SERVERS: Final = BLACKOUTS._replace(store_kinds=("cluster",), dark_s=(0.2,))
"""The store alone does."""

FAILING_SYNCS: Final = BLACKOUTS._replace(
    undisturbed_share=0.0,
    failing_syncs=(0.1,),
    lost=(0.0,),
    unheard=(0.0,),
    late=(0.0,),
    twice=(0.0,),
    torn=(0.0,),
)
"""And what asked for a sync hears that it failed."""

APART: Final = ON_SERVERS._replace(
    timestamps=("world",),
    clock_skews_ms=(20_000,),
    oracle_leases_s=(2.0,),
    fault_counts=(2,),
    fault_kinds=("crash",),
    power_losses=(3, 4),
    pauses_s=(2.0,),
)
"""The oracles' clocks differ by more than a ceiling is ahead, and one follows the other."""

DISK_MUTANTS: Final[dict[str, Mutant]] = {
    "commits unsynced": Mutant(Parts(persistence=CommitsUnsynced), "I2", ON_A_HOST),
    "cells unsynced": Mutant(Parts(persistence=CellsUnsynced), "I2", ON_A_HOST),
    "commits unsynced, and lost": Mutant(
        Parts(persistence=CommitsUnsynced),
        "I8",
        ON_A_HOST._replace(store_kinds=("file",), power_losses=(4,)),
    ),
    "ceiling unsynced": Mutant(
        Parts(persistence=CeilingUnsynced), "I1", APART._replace(pauses_s=(0.5,))
    ),
    "beginning unsynced": Mutant(
        Parts(persistence=BeginsUnsynced),
        "I1|operator",
        APART._replace(fault_counts=(6,), power_losses=(12,), pauses_s=(0.5,)),
    ),
    "own ceiling taken for synced": Mutant(
        Parts(persistence=TakesItsOwnForSynced),
        "I1",
        FAILING_SYNCS._replace(
            store_kinds=("cluster",),
            timestamps=("world",),
            clock_skews_ms=(20_000,),
            oracle_leases_s=(2.0,),
            power_losses=(15,),
            dark_s=(0.2,),
            pauses_s=(1.0,),
        ),
    ),
    "failed sync taken for done": Mutant(
        Parts(persistence=TakesFailedSyncsForDone), "I2", FAILING_SYNCS
    ),
    "begun at the clock": Mutant(
        Parts(persistence=BeginsAtItsClock),
        "I1",
        SETTING_CLOCKS._replace(clock_skews_ms=(20_000,)),
    ),
    "clock that stands still with its host": Mutant(
        Parts(patches=(Patch(SimClock, "monotonic_s", awake_s),)), "I1", DEPOSED
    ),
    "forbidden, and not synced": Mutant(
        Parts(
            patches=(
                Patch(CommitTable, "invalidate", forbids_unsynced),
                Patch(CommitTable, "invalidate_all", forbids_all_unsynced),
            )
        ),
        "I9",
        ON_SERVERS._replace(
            oracle_leases_s=(2.0,),
            timestamps=("world",),
            power_losses=(12,),
            pauses_s=(0.1,),
            oracle_stalls=(Stall(0.1, 14.0, "COMMIT_TABLE"),),
            death_shares=(0.0,),
        ),
    ),
    "commit taken for forbidden": Mutant(
        Parts(patches=(Patch(CommitTable, "invalidate", takes_all_for_forbidden),)),
        "I9",
        STALLED._replace(
            store_kinds=("cluster",),
            death_shares=(0.0,),
            pauses_s=(0.1,),
            oracle_stalls=(Stall(0.1, 12.0, "COMMIT_TABLE"),),
            client_stalls=(Stall(0.5, 8.0, "check_and_mutate OMID_COMMIT_TABLE"),),
        ),
    ),
    "heals unsynced": Mutant(
        Parts(range_pass=HealsUnsynced),
        "I8|lost append|stale read",
        COMPACTING._replace(
            calm_share=0.0,
            fault_counts=(0,),
            undisturbed_share=1.0,
            store_kinds=("cluster",),
            power_losses=(3, 4),
            dark_s=(0.2,),
            compaction_pauses_s=(0.2,),
            compactor_stalls=(Stall(),),
            other_fault_counts=(0,),
            post_commits=(("none",),),
        ),
    ),
    "operations unsynced": Mutant(
        Parts(patches=(Patch(JoinedChanges, "__init__", joins_unsynced),)),
        "E3",
        OPERATING._replace(
            calm_share=0.0,
            fault_counts=(0,),
            undisturbed_share=1.0,
            power_losses=(8,),
            dark_s=(0.2,),
            verbs=(("create", "drop"),),
            operator_stalls=(Stall(),),
        ),
    ),
}
"""By name."""
