"""Each race that a naive pruner loses, as a broken variant that a scenario catches.

A scenario plays one interleaving and asserts what clients were promised.  The real compactor
passes it; the variant, which differs in the one thing its name says, must not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from compactor.horizon import claims_by_table
from compactor.options import Options
from compactor.pruning.prune import PruneLimits, SlicePruner, SlicesHere
from compactor.pruning.slices import Ends, Pruning
from compactor.pruning.unvisited import ask
from compactor.ranges.progress import NoProgress
from compactor.ranges.range_pass import OnStep, RangePass, ignore_step
from compactor.ranges.range_task import RangeTask
from compactor.report import Laggard, Report
from compactor.rows.clean import FoundRow
from compactor.rows.heal import ExaminedRow, RowPlan, Scope, unresolved
from compactor.rows.invalidations import InvalidationCounter, RehearsedCommitTable
from compactor.run.environment import Environment
from compactor.run.local import ranges_here
from compactor.run.plan import ANSWERS_HOLD_S, Compaction
from compactor.tables.ownership import TableStanding
from omidpy.base.cells import commit_row, encode_commit, encode_long
from omidpy.base.commit_facts import INVALID
from omidpy.base.tables import OMID_ENABLED
from omidpy.base.timing.clock import Clock
from omidpy.errors import OracleError, ReservationLost
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    INVALIDATION,
    LOW_WATERMARK_FACT,
    EntryRow,
    read_low_watermark,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import MIN_COLLECTION_GRACE_S, Claim, Watermarks
from omidpy.model import Cell, Timestamp, base
from omidpy.reading import resolution
from omidpy.reading.visibility import (
    GONE,
    Invalidate,
    ReadCommitEntry,
    ReadShadowCell,
    Resolution,
    Resolver,
    commit_timestamp,
)
from omidpy.storage.base import DeleteVersion, Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.interleaving import interleaved, once

NO_PRUNING_OF_INVALIDATIONS: Final = replace(ALL_AT_ONCE, invalidation_grace_s=86_400.0)


@dataclass(frozen=True)
class Parts:
    """The pieces of a compactor, each of which a variant may replace."""

    compaction: type[Compaction] = Compaction
    range_pass: type[RangePass] = RangePass
    resolver: Callable[..., Resolver] = commit_timestamp


class Stage:
    """A store in the middle of its life, and a compactor made of some parts."""

    def __init__(self, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts = parts
        self.world = World(MemoryStore())
        self.world.table()
        monkeypatch.setattr(resolution, "commit_timestamp", parts.resolver)

    def compact(
        self,
        options: Options = ALL_AT_ONCE,
        *,
        on_step: OnStep = ignore_step,
        before_call: Callable[[str, str], None] | None = None,
    ) -> Report:
        """Run the compactor, with other processes acting at steps or before store calls."""
        store = self.world.store
        if before_call is not None:
            store = interleaved(store, before_call)
        clock = self.world.clock
        executor = ranges_here(store, clock, on_step=on_step, pass_type=self.parts.range_pass)
        environment = Environment(clock, executor, clock.advance, NoProgress(), on_step)
        return self.parts.compaction(store, options, environment).run()

    def commit_late(self, start_ts: int, commit_ts: int) -> bool:
        """Write a commit entry where no invalidation stands; say whether it was accepted."""
        row = commit_row(start_ts)
        put = Put(*COMMIT, start_ts, encode_commit(start_ts, commit_ts))
        return self.world.store.check_and_mutate(
            COMMIT_TABLE, row, INVALIDATION, None, RowMutation(row, (put,))
        )

    def complete(self, *cells: Cell, commit_ts: int) -> None:
        """Write the shadow cells of a transaction, then remove its entry, as its client does."""
        for cell in cells:
            self.world.heal(cell, commit_ts)
        self.world.commit_table.complete([base(cells[0].version)])

    def shows(self, row: bytes, *, table: str = "t") -> bool:
        """Say whether a fresh snapshot sees anything in a row."""
        return bool(self.world.visible(row, 10_000, table=table))


def at(step: str, act: Callable[[], object]) -> OnStep:
    """Return a hook that acts once, at the first time a step is reached."""
    pending = [act]

    def on_step(name: str) -> None:
        if name == step and pending:
            pending.pop()()

    return on_step


class _Killed(BaseException):
    """Stands for SIGKILL."""


def killed() -> None:
    """End the process."""
    raise _Killed


# -- the watermark ---------------------------------------------------------------------------------


class ReadsWatermarkAfterScan(RangePass):
    """Claims what the low watermark is once the scan is over."""

    def claim(self) -> Claim:
        """Claim too much."""
        self.task = replace(self.task, low_watermark=read_low_watermark(self.store))
        return super().claim()


def transaction_commits_behind_the_scan(stage: Stage) -> None:
    """Its range is read, then it flushes and commits, then the low watermark passes it."""
    world = stage.world
    world.put(b"a", 100)
    world.enter(100, 150)

    def commit() -> None:
        world.put(b"b", 1050)
        world.enter(1050, 1100)
        world.set_low_watermark(2000)

    stage.compact(on_step=at("page-resolved", commit))
    assert stage.shows(b"b")


class ListsTablesFirst(Compaction):
    """Knows the tables before it knows L."""

    def highest_recorded(self) -> int:
        """List the tables too early."""
        self.listed = super().survey()
        return super().highest_recorded()

    def survey(self) -> list[TableStanding]:
        """Return the old list."""
        return self.listed


def table_appears_before_the_watermark_is_read(stage: Stage) -> None:
    """Create a table and commit to it; only then L is read."""
    world = stage.world

    def create() -> None:
        world.table("late")
        world.put(b"a", 900, table="late")
        world.enter(900, 950)

    stage.compact(on_step=at("read-recorded", create))
    assert stage.shows(b"a", table="late")


class UsesNowForTheWatermark(Compaction):
    """Takes the newest timestamp for the low watermark."""

    def read_low_watermark(self) -> Timestamp:
        """Return a timestamp that is not a promise."""
        return Timestamp(5000)


def transaction_is_still_running(stage: Stage) -> None:
    """Begin above L and commit after the run; nothing may have forbidden that."""
    cell = stage.world.put(b"a", 2000)
    stage.compact(NO_PRUNING_OF_INVALIDATIONS)
    assert stage.commit_late(2000, 6000)
    assert cell in stage.world.cells()
    assert stage.shows(b"a")


class TrustsARegressedWatermark(Compaction):
    """Takes every low watermark for a proof."""

    def highest_recorded(self) -> int:
        """Remember nothing."""
        return 0


def oracle_lost_its_state(stage: Stage) -> None:
    """With an in-memory timestamp store a restart forgets what was decided."""
    stage.compact()
    stage.world.control.write(LOW_WATERMARK_FACT, encode_long(500))
    try:
        stage.compact()
    except OracleError:
        return
    raise AssertionError("a run went on with a watermark that proves nothing")


class ComparesRawVersions(RangePass):
    """Forgets that a transaction writes up to 50 versions."""

    def __init__(
        self, store: Store, task: RangeTask, *, clock: Clock, on_step: OnStep = ignore_step
    ) -> None:
        super().__init__(store, task, clock=clock, on_step=on_step)
        self.scope = _RawScope(*self.scope)


class _RawScope(Scope):
    __slots__ = ()

    def max_version(self) -> int:
        return self.low_watermark + 1


def transaction_has_a_checkpoint(stage: Stage) -> None:
    """Its entry is at L, its cell at L + 1."""
    stage.world.put(b"a", 1001)
    stage.world.enter(1000, 1050)
    stage.compact()
    assert stage.shows(b"a")


# -- coverage --------------------------------------------------------------------------------------


class MissesRecentWrites(RangePass):
    """Reads the files of a region and not its memory, as a hook on HBase's compactions does."""

    def pages(self) -> Iterator[Sequence[FoundRow]]:
        """Leave out what has not been flushed: the last row."""
        for page in super().pages():
            yield page[:-1]


def committed_cell_is_still_in_memory(stage: Stage) -> None:
    """Hide a committed cell where only a scan of the server sees it."""
    for row in (b"a", b"z"):
        stage.world.put(row, 100)
    stage.world.enter(100, 150)
    stage.compact()
    assert stage.shows(b"a")
    assert stage.shows(b"z")


class ClaimsBeforeHealing(RangePass):
    """Records what it is about to do."""

    def pages(self) -> Iterator[Sequence[FoundRow]]:
        """Claim, then scan."""
        self.claim()
        return super().pages()


def run_dies_between_resolving_and_healing(stage: Stage) -> None:
    """Another run, which does not scan the table, prunes by the records."""
    stage.world.table("u")
    stage.world.put(b"a", 100)
    stage.world.enter(100, 150)
    with pytest.raises(_Killed):
        stage.compact(
            replace(ALL_AT_ONCE, tables=frozenset({"t"})), on_step=at("page-resolved", killed)
        )
    stage.compact(replace(ALL_AT_ONCE, exclude=frozenset({"t"})))
    assert stage.shows(b"a")


class CountsOnlyWhoReported(Compaction):
    """Takes the minimum over the records there are."""

    def minimum(
        self, standings: Sequence[TableStanding], claims: Iterable[Claim], *, grace_s: float
    ) -> Timestamp:
        """Forget whoever is silent."""
        reported = list(claims_by_table(claims))
        named = [standing for standing in standings if standing.name in reported]
        return super().minimum(named, claims, grace_s=grace_s)


def table_has_never_been_scanned(stage: Stage) -> None:
    """Commit to a table that is new, or was left out, or is disabled."""
    stage.world.table("u")
    stage.world.put(b"a", 100, table="u")
    stage.world.enter(100, 150)
    stage.compact(replace(ALL_AT_ONCE, exclude=frozenset({"u"})))
    assert stage.shows(b"a", table="u")


class KeysRecordsByRegion(Compaction):
    """Keeps one record for each region that ever was, and none dies with its region."""

    def minimum(
        self, standings: Sequence[TableStanding], claims: Iterable[Claim], *, grace_s: float
    ) -> Timestamp:
        """Take the least of all regions, former ones too."""
        newest: dict[object, int] = {}
        for claim in claims:
            key = (claim.table, claim.key_range)
            newest[key] = max(newest.get(key, 0), claim.watermark)
        return Timestamp(min(newest.values(), default=0))


def regions_split_and_merge(stage: Stage) -> None:
    """Split, merge, and expect the horizon to follow; a stalled pruner prunes no more."""
    world = stage.world
    stage.compact()
    world.split(b"m")
    world.set_low_watermark(2000)
    stage.compact()
    world.store.merge_regions("t", b"m")
    world.set_low_watermark(3000)
    assert stage.compact().horizon == 3000


class KeepsRecordsOfDroppedTables(Compaction):
    """Trusts a record although the table it speaks of was replaced."""

    def thin(self, standings: Sequence[TableStanding], claims: Sequence[Claim]) -> None:
        """Forget nothing."""


def table_is_restored_from_a_snapshot(stage: Stage) -> None:
    """Old cells come back without their shadow cells; a record from before is a lie."""
    world = stage.world
    world.table("u")
    stage.compact()
    world.store.drop_table("t")
    stage.compact()
    world.table("t")
    world.put(b"a", 100)
    world.enter(100, 150)
    stage.compact(replace(ALL_AT_ONCE, exclude=frozenset({"t"})))
    assert stage.shows(b"a")


class CountsRecordsOfFewerFamilies(Compaction):
    """Takes a record for the whole table, whatever the pass went over."""

    def usable(self, standings: Iterable[TableStanding], claims: Iterable[Claim]) -> list[Claim]:
        """Ask for tables alone."""
        del standings
        return list(claims)


def family_is_adopted_after_the_pass(stage: Stage) -> None:
    """Adopt one whose cells were never healed, and leave the table out of the next run."""
    world = stage.world
    world.table("u", plain_families=(b"cg",))
    stage.compact()
    world.put(b"a", 100, table="u", family=b"cg")
    world.enter(100, 150)
    world.store.set_family_attributes("u", b"cg", {OMID_ENABLED: "true"})
    stage.compact(replace(ALL_AT_ONCE, exclude=frozenset({"u"})))
    assert stage.shows(b"a", table="u")


class AsksItsOwnTablesAlone(Compaction):
    """Takes for clean whatever has neither a mark nor a shadow cell."""

    def ask(
        self, standings: Iterable[TableStanding], limits: PruneLimits, ends: Ends
    ) -> tuple[PruneLimits, list[Laggard]]:
        """Ask nobody."""
        ours = [replace(standing, rest=frozenset()) for standing in standings]
        return super().ask(ours, limits, ends)


def table_was_written_by_the_dead_alone(stage: Stage) -> None:
    """Leave a cell and its entry, as a Java client does that is killed after its commit."""
    world = stage.world
    world.table("java", families=(), plain_families=(b"cf",), owner=None)
    world.put(b"a", 100, table="java")
    world.enter(100, 150)
    stage.compact()
    assert stage.shows(b"a", table="java")


class AsksForEntriesVersionsAlone(Compaction):
    """Looks for the entries' own versions and forgets the checkpoints."""

    def ask(
        self, standings: Iterable[TableStanding], limits: PruneLimits, ends: Ends
    ) -> tuple[PruneLimits, list[Laggard]]:
        """Ask too little."""
        versions = [range(start_ts, start_ts + 1) for start_ts in ends.start_timestamps]
        refusals = ask(self.store, standings, versions)
        return replace(limits, asked=() if refusals else versions), refusals


def the_dead_left_a_checkpoint(stage: Stage) -> None:
    """Its only cell has another version than its entry."""
    world = stage.world
    world.table("java", families=(), plain_families=(b"cf",), owner=None)
    world.put(b"a", 101, table="java")
    world.enter(100, 150)
    stage.compact()
    assert stage.shows(b"a", table="java")


class PrunesWhatNobodyAskedAbout(Compaction):
    """Asks for some transactions, and then forgets all below the horizon."""

    def ask(
        self, standings: Iterable[TableStanding], limits: PruneLimits, ends: Ends
    ) -> tuple[PruneLimits, list[Laggard]]:
        """Take one answer for all."""
        limits, refusals = super().ask(standings, limits, ends)
        return replace(limits, asked=[range(2**63)]), refusals


class PrunesOnAnOldAnswer(Compaction):
    """Asks again before each further round, and never before the first."""

    def prune_round(self, limits: PruneLimits, before: Pruning) -> Pruning:
        """Take the answer for one of just now."""
        self.surveyed_s = self.clock.monotonic_s()
        return super().prune_round(limits, before)


def driver_stands_still_before_its_first_round(stage: Stage) -> None:
    """Meanwhile a copy appears, in which nothing is healed."""
    world = stage.world
    world.put(b"a", 100)
    world.enter(100, 150)

    def copied() -> None:
        world.clock.advance(ANSWERS_HOLD_S + 1)
        world.table("copy", families=(), plain_families=(b"cf",), owner=None)
        world.put(b"a", 100, table="copy")

    stage.compact(on_step=at("horizon-raised", copied))
    assert stage.shows(b"a", table="copy")


def entry_arrives_behind_the_question(stage: Stage) -> None:
    """Let a deposed oracle write what it decided long ago, of cells in a table that is not ours."""
    world = stage.world
    world.table("java", families=(), plain_families=(b"cf",), owner=None)
    world.put(b"a", 900, table="java")
    world.enter(100, 150)
    stage.compact(on_step=at("unvisited-asked", lambda: world.enter(900, 950)))
    assert stage.shows(b"a", table="java")


class OverwritesRecords(RangePass):
    """Keeps one record a range, which the last writer sets."""

    def claim(self) -> Claim:
        """Set the record, whatever it said."""
        self.on_step("before-claim")
        watermarks = Watermarks(ControlTable(self.store))
        watermarks.forget_claims(watermarks.claims())
        return super().claim()


def older_run_claims_after_a_newer_one(stage: Stage) -> None:
    """Let a newer run claim more before an older one claims; the proof must stay."""

    def newer_run() -> None:
        stage.world.set_low_watermark(2000)
        stage.compact()

    with contextlib.suppress(ReservationLost):
        stage.compact(on_step=at("before-claim", newer_run))
    claims = Watermarks(stage.world.control).claims()
    assert max(claim.watermark for claim in claims) == 2000


# -- resolving a cell ------------------------------------------------------------------------------


class HealsOnly(RangePass):
    """Heals what is committed and leaves the rest undecided."""

    def may_invalidate(self, start_ts: Timestamp) -> bool:
        """Forbid nothing."""
        return False

    def resolve(self, rows: Sequence[ExaminedRow]) -> Mapping[Cell, Timestamp | None]:
        """Return answers that are not final."""
        cells = [("t", cell) for row in rows for cell in unresolved(row)]
        resolutions = self.resolver.resolve(cells, may_invalidate=self.may_invalidate)
        return {cell: resolution.commit_ts for (_, cell), resolution in resolutions.items()}

    def apply(self, plans: Sequence[RowPlan]) -> None:
        """Write the shadow cells alone."""
        super().apply([plan._replace(garbage=()) for plan in plans])


def deposed_oracle_commits_after_the_pass(stage: Stage) -> None:
    """If its entry is accepted, the commit must last."""
    stage.world.put(b"a", 900)
    accepted: list[bool] = []
    stage.compact(on_step=at("ranges-passed", lambda: accepted.append(stage.commit_late(900, 950))))
    assert stage.shows(b"a") or accepted == [False]


class PrunesInvalidationsLikeCommits(Compaction):
    """Knows one grace."""

    def limits(self, standings: Sequence[TableStanding], claims: Sequence[Claim]) -> PruneLimits:
        """Let invalidations go as soon as commits."""
        limits = super().limits(standings, claims)
        return replace(limits, invalidation_horizon=limits.horizon)


def low_latency_client_commits_after_the_run(stage: Stage) -> None:
    """Java's low-latency clients write their own entry, as late as they like."""
    stage.world.put(b"a", 900)
    stage.compact(NO_PRUNING_OF_INVALIDATIONS)
    assert not stage.commit_late(900, 950) or stage.shows(b"a")


class DropsBeforeInvalidating(RangePass):
    """Removes cells first and forbids their commit then."""

    def __init__(
        self, store: Store, task: RangeTask, *, clock: Clock, on_step: OnStep = ignore_step
    ) -> None:
        super().__init__(store, task, clock=clock, on_step=on_step)
        self.commit_table = RehearsedCommitTable(store, task.commit_table)
        self.resolver._commit_table = self.commit_table

    def apply(self, plans: Sequence[RowPlan]) -> None:
        """Do it in the wrong order."""
        super().apply(plans)
        durable = InvalidationCounter(self.store, self.task.commit_table)
        for plan in plans:
            for cell in plan.garbage:
                durable.invalidate(base(cell.version))


def commit_arrives_while_garbage_is_dropped(stage: Stage) -> None:
    """Let a commit in flight arrive between two writes; it must not survive its cells."""
    stage.world.put(b"a", 900)
    accepted: list[bool] = []
    stage.compact(
        NO_PRUNING_OF_INVALIDATIONS,
        on_step=at("page-garbage-dropped", lambda: accepted.append(stage.commit_late(900, 950))),
    )
    assert stage.shows(b"a") or accepted == [False]


def reads_shadow_before_entry(cell: Cell, *, may_invalidate: bool) -> Resolver:
    """Look for the shadow cell, then for the entry, and believe both."""
    shadow = yield ReadShadowCell(cell)
    if isinstance(shadow, int) and shadow:
        return Resolution(Timestamp(shadow), is_final=True, is_healed=True)
    entry = yield ReadCommitEntry(base(cell.version))
    if isinstance(entry, int):
        return Resolution(Timestamp(entry), is_final=True, is_healed=False)
    yield Invalidate(base(cell.version))
    return Resolution(None, is_final=True, is_healed=False)


def transaction_completes_between_the_two_reads(stage: Stage) -> None:
    """Its shadow cell was not there yet, and its entry is not there any more."""
    cell = stage.world.put(b"a", 900)
    stage.world.enter(900, 950)
    complete = once("get", COMMIT_TABLE, lambda: stage.complete(cell, commit_ts=950))
    is_reading: list[bool] = []
    stage.compact(
        on_step=at("page-read", lambda: is_reading.append(True)),
        before_call=lambda method, table: complete(method, table) if is_reading else None,
    )
    assert stage.shows(b"a")


def treats_invalidation_as_final(cell: Cell, *, may_invalidate: bool) -> Resolver:
    """Believe every invalidation."""
    inner = commit_timestamp(cell, may_invalidate=may_invalidate)
    request = next(inner)
    while True:
        answer = yield request
        if isinstance(request, ReadCommitEntry) and answer is INVALID:
            return Resolution(None, is_final=True, is_healed=False)
        try:
            request = inner.send(answer)
        except StopIteration as stop:
            resolution: Resolution = stop.value
            return resolution


def another_healer_invalidated_by_mistake(stage: Stage) -> None:
    """Complete a transaction, remove its entry, then invalidate it."""
    cell = stage.world.put(b"a", 900)
    stage.world.enter(900, 950)

    def complete_and_invalidate() -> None:
        stage.complete(cell, commit_ts=950)
        stage.world.invalidate(900)

    stage.compact(on_step=at("page-read", complete_and_invalidate))
    assert stage.shows(b"a")


def trusts_its_own_invalidation(cell: Cell, *, may_invalidate: bool) -> Resolver:
    """Take a successful invalidation for the end of the matter."""
    inner = commit_timestamp(cell, may_invalidate=may_invalidate)
    request = next(inner)
    while True:
        answer = yield request
        if isinstance(request, Invalidate) and answer:
            return Resolution(None, is_final=True, is_healed=False)
        try:
            request = inner.send(answer)
        except StopIteration as stop:
            resolution: Resolution = stop.value
            return resolution


def transaction_completes_just_before_it_is_invalidated(stage: Stage) -> None:
    """Entry, shadow cell and removal of the entry, all between our read and our write."""
    cell = stage.world.put(b"a", 900)

    def commit_and_complete() -> None:
        stage.world.enter(900, 950)
        stage.complete(cell, commit_ts=950)

    stage.compact(before_call=once("check_and_mutate", COMMIT_TABLE, commit_and_complete))
    assert stage.shows(b"a")


class CachesAbsence(RangePass):
    """Remembers that a transaction did not commit, and applies it to all its cells."""

    def resolve(self, rows: Sequence[ExaminedRow]) -> Mapping[Cell, Timestamp | None]:
        """Resolve each transaction by its first cell."""
        resolved = dict(super().resolve(rows))
        cached: dict[Timestamp, Timestamp | None] = {}
        return {
            cell: cached.setdefault(base(cell.version), resolved[cell]) for cell in sorted(resolved)
        }


def one_of_its_cells_was_collected_meanwhile(stage: Stage) -> None:
    """Complete a transaction and collect its first cell together with the shadow cell."""
    world = stage.world
    first, second = world.put(b"a", 900), world.put(b"b", 900)
    world.enter(900, 950)

    def complete_and_collect() -> None:
        stage.complete(first, second, commit_ts=950)
        shadow = b"\x00\xc2\x80q\xc2\x80"
        deletes = (DeleteVersion(b"cf", b"q", 900), DeleteVersion(b"cf", shadow, 900))
        world.store.write({"t": [RowMutation(b"a", deletes=deletes)]})

    stage.compact(on_step=at("page-read", complete_and_collect))
    assert stage.shows(b"b")


def forbids_what_is_gone(cell: Cell, *, may_invalidate: bool) -> Resolver:
    """Take a cell that is gone for one that has no shadow cell."""
    inner = commit_timestamp(cell, may_invalidate=may_invalidate)
    request = next(inner)
    while True:
        answer = yield request
        try:
            request = inner.send(None if answer is GONE else answer)
        except StopIteration as stop:
            resolution: Resolution = stop.value
            return resolution


def another_run_collects_what_this_one_has_read(stage: Stage) -> None:
    """Complete a transaction; a run with a higher horizon drops what it wrote as superseded."""
    world = stage.world
    old = world.put(b"a", 100)
    world.enter(100, 150)
    world.healed(b"a", 200, 250)

    def complete_and_collect() -> None:
        stage.complete(old, commit_ts=150)
        world.clock.advance(MIN_COLLECTION_GRACE_S)
        assert world.compact().cells_dropped == 1

    with contextlib.suppress(ReservationLost):
        stage.compact(NO_PRUNING_OF_INVALIDATIONS, on_step=at("page-read", complete_and_collect))
    assert world.entries() == {}


# -- deleting --------------------------------------------------------------------------------------


class PrunesAtOnce(Compaction):
    """Knows no grace at all."""

    def minimum(
        self, standings: Sequence[TableStanding], claims: Iterable[Claim], *, grace_s: float
    ) -> Timestamp:
        """Count every claim."""
        return super().minimum(standings, claims, grace_s=0.0)


def client_lost_its_reply(stage: Stage) -> None:
    """Read the commit table as Java does, find nothing, and erase the cells."""
    cell = stage.world.put(b"a", 100)
    stage.world.enter(100, 150)
    stage.compact(replace(ALL_AT_ONCE, grace_s=3600.0))
    if 100 not in stage.world.entries():
        stage.world.remove(cell)
    assert stage.shows(b"a")


class DeletesWholeRows(Compaction):
    """Deletes the row that it read, whatever has become of it."""

    def __init__(self, store: Store, options: Options, environment: Environment) -> None:
        super().__init__(store, options, environment)
        self.execute_slices = SlicesHere(
            store, on_step=environment.on_step, pruner_type=_WholeRowPruner
        )


class _WholeRowPruner(SlicePruner):
    def remove(self, rows: Sequence[EntryRow]) -> None:
        super().remove([row._replace(entry=INVALID) for row in rows])


def invalidation_appears_while_its_row_is_pruned(stage: Stage) -> None:
    """Let an invalidation take the place of a commit; it must outlive its own grace."""
    world = stage.world
    world.put(b"a", 100)
    world.enter(100, 150)

    def replace_entry() -> None:
        world.commit_table.complete([Timestamp(100)])
        world.invalidate(100)

    stage.compact(NO_PRUNING_OF_INVALIDATIONS, on_step=at("page-judged", replace_entry))
    assert world.entries() == {100: INVALID}


class DeletesInvalidationsAlone(Compaction):
    """Deletes of each row the columns that it has read."""

    def __init__(self, store: Store, options: Options, environment: Environment) -> None:
        super().__init__(store, options, environment)
        self.execute_slices = SlicesHere(
            store, on_step=environment.on_step, pruner_type=_ColumnPruner
        )


class _ColumnPruner(SlicePruner):
    def remove(self, rows: Sequence[EntryRow]) -> None:
        for row in rows:
            delete = DeleteVersion(*INVALIDATION, row.start_ts)
            mutation = RowMutation(commit_row(row.start_ts), deletes=(delete,))
            self.commit_table._store.write({COMMIT_TABLE: [mutation]})


def commit_appears_while_its_invalidation_is_pruned(stage: Stage) -> None:
    """Let the last write of a deposed oracle arrive; what was forbidden must not come to stand."""
    stage.world.put(b"a", 100)
    stage.compact(on_step=at("page-judged", lambda: stage.world.enter(100, 150)))
    assert 100 not in stage.world.entries()


# -- the table -------------------------------------------------------------------------------------

RACES: Final[list[tuple[Parts, Callable[[Stage], None]]]] = [
    (Parts(range_pass=ReadsWatermarkAfterScan), transaction_commits_behind_the_scan),
    (Parts(ListsTablesFirst), table_appears_before_the_watermark_is_read),
    (Parts(range_pass=MissesRecentWrites), committed_cell_is_still_in_memory),
    (Parts(range_pass=ClaimsBeforeHealing), run_dies_between_resolving_and_healing),
    (Parts(range_pass=HealsOnly), deposed_oracle_commits_after_the_pass),
    (Parts(PrunesInvalidationsLikeCommits), low_latency_client_commits_after_the_run),
    (Parts(range_pass=ComparesRawVersions), transaction_has_a_checkpoint),
    (Parts(PrunesAtOnce), client_lost_its_reply),
    (Parts(CountsOnlyWhoReported), table_has_never_been_scanned),
    (Parts(KeysRecordsByRegion), regions_split_and_merge),
    (Parts(KeepsRecordsOfDroppedTables), table_is_restored_from_a_snapshot),
    (Parts(CountsRecordsOfFewerFamilies), family_is_adopted_after_the_pass),
    (Parts(AsksItsOwnTablesAlone), table_was_written_by_the_dead_alone),
    (Parts(AsksForEntriesVersionsAlone), the_dead_left_a_checkpoint),
    (Parts(PrunesWhatNobodyAskedAbout), entry_arrives_behind_the_question),
    (Parts(PrunesOnAnOldAnswer), driver_stands_still_before_its_first_round),
    (Parts(resolver=reads_shadow_before_entry), transaction_completes_between_the_two_reads),
    (Parts(range_pass=DropsBeforeInvalidating), commit_arrives_while_garbage_is_dropped),
    (Parts(resolver=treats_invalidation_as_final), another_healer_invalidated_by_mistake),
    (
        Parts(resolver=trusts_its_own_invalidation),
        transaction_completes_just_before_it_is_invalidated,
    ),
    (Parts(UsesNowForTheWatermark), transaction_is_still_running),
    (Parts(TrustsARegressedWatermark), oracle_lost_its_state),
    (Parts(range_pass=OverwritesRecords), older_run_claims_after_a_newer_one),
    (Parts(DeletesWholeRows), invalidation_appears_while_its_row_is_pruned),
    (Parts(DeletesInvalidationsAlone), commit_appears_while_its_invalidation_is_pruned),
    (Parts(range_pass=CachesAbsence), one_of_its_cells_was_collected_meanwhile),
    (Parts(resolver=forbids_what_is_gone), another_run_collects_what_this_one_has_read),
]


def name_of(value: Any) -> str:
    """Name a variant by what it breaks, a scenario by what happens."""
    if isinstance(value, Parts):
        for part, real in (
            (value.compaction, Compaction),
            (value.range_pass, RangePass),
            (value.resolver, commit_timestamp),
        ):
            if part is not real:
                return part.__name__
    return str(value.__name__)


@pytest.mark.parametrize("scenario", [scenario for _, scenario in RACES], ids=name_of)
def test_compactor_wins_the_race(
    scenario: Callable[[Stage], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scenario itself is sound: what it asserts holds for the real thing."""
    scenario(Stage(Parts(), monkeypatch))


@pytest.mark.parametrize(("parts", "scenario"), RACES, ids=name_of)
def test_naive_variant_is_caught(
    parts: Parts, scenario: Callable[[Stage], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thing differs, and a promise is broken."""
    with pytest.raises(AssertionError):
        scenario(Stage(parts, monkeypatch))
