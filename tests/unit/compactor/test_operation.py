"""A run is an operation: killed anywhere it is finished, and beside a living one it waits."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from compactor import report as report_module
from compactor.options import Options
from compactor.pruning import prune as prune_module
from compactor.pruning.prune import PruneLimits, PruneTask, SlicePruner
from compactor.ranges.progress import NoProgress, OnProgress
from compactor.ranges.range_pass import OnStep, ignore_step
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.report import Report, RunLog, RunRecord
from compactor.run.driver import RESUMABLE_S
from compactor.run.environment import Environment
from compactor.run.lease import PruneLease, PruneLeaseRecord
from compactor.run.local import ranges_here
from compactor.run.operation import KIND
from compactor.run.plan import ANSWERS_HOLD_S, STEPS, Compaction
from omidpy.base.cells import commit_row, encode_long
from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import OracleError, ReservationLost, StorageUnavailable, UsageError
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    LOW_WATERMARK_FACT,
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
)
from omidpy.facts.watermarks import PRUNE_HORIZON, PRUNE_LEASE, Claim, Watermarks
from omidpy.fate import Fate
from omidpy.fate.operation import Operation, Status
from omidpy.fate.table.store import FATE_TABLE, TableFateStore
from omidpy.model import KeyRange, Timestamp
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World, outcome, troubled
from tests.machines.interleaving import interleaved

WAITING: Final = replace(ALL_AT_ONCE, should_wait=True)
RESUMING: Final = replace(WAITING, should_resume=True)
KEPT: Final = STEPS.index("operation-kept")
RAISED: Final = STEPS.index("horizon-raised")


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


class Noted(NoProgress):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)


class Stage:
    """A store with some regions, and drivers that say which ranges they have read."""

    def __init__(self, store: Store | None = None) -> None:
        self.world = World(store or MemoryStore())
        self.world.table(splits=[b"b", b"d", b"m"])
        self.said = Noted()
        self.ranges: list[KeyRange] = []
        """What the last run has passed over."""
        self.sleep: Callable[[float], None] = self.world.clock.advance

    def compact(
        self,
        options: Options = WAITING,
        *,
        on_step: OnStep = ignore_step,
        compaction: type[Compaction] = Compaction,
        store: Store | None = None,
    ) -> Report:
        """Run the compactor."""
        store = store or self.world.store
        ranges = self.ranges = []
        execute = ranges_here(store, self.world.clock, on_step=on_step)

        def execute_and_note(tasks: list[RangeTask], on_progress: OnProgress) -> list[RangeResult]:
            ranges.extend(task.key_range for task in tasks)
            return list(execute(tasks, on_progress))

        environment = Environment(
            self.world.clock,
            execute_and_note,  # type: ignore[arg-type]  # a list is what it gets
            self.nap,
            self.said,
            on_step,
        )
        return compaction(store, options, environment).run()

    def nap(self, seconds: float) -> None:
        """Sleep as the test says."""
        self.sleep(seconds)

    def kill(self, step: str, options: Options = WAITING) -> None:
        """Run the compactor, and let it die at a step."""
        with pytest.raises(Killed):
            self.compact(options, on_step=at(step, die))
        self.world.clock.advance(1)

    def operations(self) -> list[Operation]:
        """Return what the store has of operations."""
        found = TableFateStore(self.world.store).scan()
        return [one for one in found if isinstance(one, Operation)]

    def runs(self) -> list[RunRecord]:
        """Return the history, oldest first."""
        return RunLog(self.world.control).runs()

    def horizon(self) -> int:
        """Return the prune horizon."""
        return Watermarks(self.world.control).prune_horizon()

    def clone(self, name: str = "clone", *, owner: str | None = COMMIT_TABLE) -> None:
        """Make a table that was copied from one whose shadow cells were not written yet."""
        families, plain = ((b"cf",), ()) if owner else ((), (b"cf",))
        self.world.table(name, owner=owner, families=families, plain_families=plain)
        self.world.put(b"a", 100, table=name)


@pytest.fixture
def stage() -> Stage:
    """Return a store with all kinds of work for a compaction."""
    made = Stage()
    troubled(made.world)
    return made


def at(step: str, act: Callable[[], object], *, nth: int = 1) -> OnStep:
    """Return a hook that acts once, at the nth time a step is reached."""
    left = [nth]

    def on_step(name: str) -> None:
        if name == step:
            left[0] -= 1
            if left[0] == 0:
                act()

    return on_step


def die() -> None:
    """End the process."""
    raise Killed


def unharmed() -> Any:
    """Return what a run leaves that nobody kills."""
    stage = Stage()
    troubled(stage.world)
    stage.compact()
    return outcome(stage.world)


# -- killed, and resumed ---------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS[KEPT : STEPS.index("run-ended")])
def test_a_resumed_run_reads_nothing_that_it_has_claimed(stage: Stage, step: str) -> None:
    """It goes on with its own L, whatever the low watermark is by now."""
    stage.kill(step)
    claims = Watermarks(stage.world.control).claims()
    stage.world.set_low_watermark(1500)
    report = stage.compact(RESUMING)
    assert report.low_watermark == 1000
    assert outcome(stage.world) == unharmed()
    assert not {claim.key_range for claim in claims} & set(stage.ranges)
    assert len(stage.ranges) == 4 - len(claims)
    (record,) = stage.runs()
    assert (record.state(), record.resumed_count, record.report) == ("done", 1, report)
    assert [one.status for one in stage.operations()] == [Status.SUCCESSFUL]


def test_a_resumed_run_reads_the_rest_of_a_region_that_grew(stage: Stage) -> None:
    """Regions merged meanwhile: only the rows of which nothing is claimed are read."""
    with pytest.raises(Killed):
        stage.compact(on_step=at("claimed", die, nth=2))
    stage.world.store.merge_regions("t", b"b")
    stage.world.store.merge_regions("t", b"d")
    stage.compact(RESUMING)
    assert stage.ranges == [KeyRange(b"d", b"m"), KeyRange(b"m", b"")]
    assert outcome(stage.world) == unharmed()


def test_a_range_that_could_not_be_claimed_is_tried_again(stage: Stage) -> None:
    """Else the resumed run could not say what is the matter with it."""
    bad = stage.world.put(b"n", 600)
    stage.world.enter(600, 650)
    stage.world.store.write({COMMIT_TABLE: [malformed_entry(600)]})
    stage.kill("minimum-known")
    (laggard,) = stage.compact(RESUMING).laggards
    assert stage.ranges == [KeyRange(b"m", b"")]
    assert (laggard.start, "600" in laggard.reason) == (b"m".hex(), True)
    assert bad in stage.world.cells()


def malformed_entry(start_ts: int) -> RowMutation:
    """Return a commit entry that says nothing."""
    return RowMutation(commit_row(start_ts), (Put(*COMMIT, start_ts, b"\xff" * 11),))


def test_what_another_run_has_claimed_is_read_all_the_same(stage: Stage) -> None:
    """Its horizon of old versions was another one."""
    stage.compact(ALL_AT_ONCE)
    stage.kill("list-tables")
    stage.compact(RESUMING)
    assert outcome(stage.world) == unharmed()


def test_without_a_killed_run_there_is_nothing_to_resume(stage: Stage) -> None:
    """A script may always give the option."""
    report = stage.compact(RESUMING)
    assert report.entries_pruned == 1
    assert stage.said.notes == ["there is no run to resume: this is a new one"]
    stage.compact(RESUMING)
    assert len(stage.runs()) == 2


def test_a_run_of_long_ago_is_not_resumed(stage: Stage) -> None:
    """Its low watermark is old; equality is still young enough."""
    stage.kill("ranges-passed")
    began_ms = stage.runs()[0].started_ms
    late_ms = began_ms + round(RESUMABLE_S * 1000) - stage.world.clock.wall_ms()
    stage.world.clock.step_wall(milliseconds=late_ms + 1)
    with pytest.raises(UsageError, match="run again without --resume"):
        stage.compact(RESUMING)
    stage.world.clock.step_wall(milliseconds=-1)
    assert stage.compact(RESUMING).entries_pruned == 1


def test_a_run_is_not_resumed_when_the_oracle_has_lost_its_state(stage: Stage) -> None:
    """What it would judge by its own L may commit by now; it had claimed nothing that tells."""
    stage.kill("list-tables")
    stage.world.control.write(LOW_WATERMARK_FACT, encode_long(500))
    with pytest.raises(OracleError, match="has lost its state"):
        stage.compact(RESUMING)
    assert Watermarks(stage.world.control).claims() == []


def test_a_run_that_stood_still_does_not_say_so_of_one_that_began_behind_it(stage: Stage) -> None:
    """An operator would restore the oracle's timestamps, and nothing ails them."""

    def another_begins_and_dies() -> None:
        stage.world.set_low_watermark(1500)
        stage.kill("list-tables")

    report = stage.compact(RESUMING, on_step=at("read-low-watermark", another_begins_and_dies))
    assert report.low_watermark == 1500


def test_a_run_that_stood_still_finishes_one_that_began_behind_it(stage: Stage) -> None:
    """By the timestamps of its own time, entries of that one's would be malformed."""

    def write_ceiling(ceiling: int) -> None:
        put = Put(*TIMESTAMP_CEILING, ceiling, encode_long(ceiling))
        row = RowMutation(TIMESTAMP_CEILING_ROW, (put,))
        stage.world.store.write({TIMESTAMP_TABLE: [row]})

    def another_begins_and_dies() -> None:
        write_ceiling(5000)
        stage.world.healed(b"n", 2000, 2050)
        stage.world.enter(2000, 2050)
        stage.world.set_low_watermark(3000)
        stage.kill("horizon-raised")

    class Slow(Compaction):
        has_begun = False

        def begin(self) -> Timestamp:
            low_watermark = super().begin()
            if not self.has_begun:
                self.has_begun = True
                another_begins_and_dies()
            return low_watermark

    write_ceiling(1500)
    stage.compact(compaction=Slow)
    assert 2000 not in stage.world.entries()
    assert not any("malformed" in note for note in stage.said.notes)
    assert all(not one.error for one in stage.runs())


def test_what_is_refused_to_be_resumed_is_left_for_a_plain_run(stage: Stage) -> None:
    """It has the lease no more, and the lease still names it."""
    stage.kill("ranges-passed")
    stage.world.clock.step_wall(milliseconds=10**9)
    with pytest.raises(UsageError):
        stage.compact(RESUMING)
    stage.compact()
    assert [one.state() for one in stage.runs()] == ["superseded", "done"]


# -- killed, and run again -------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS[KEPT:RAISED])
def test_a_run_that_died_before_its_pivot_is_superseded(stage: Stage, step: str) -> None:
    """The next one has a low watermark of its own."""
    stage.kill(step)
    stage.world.set_low_watermark(1500)
    assert stage.compact().low_watermark == 1500
    killed, last = stage.runs()
    assert (killed.state(), killed.superseded_by, last.state()) == (
        "superseded",
        last.run_id,
        "done",
    )
    assert [one.status for one in stage.operations()].count(Status.FAILED) == 1
    assert any("takes its place" in note for note in stage.said.notes)


@pytest.mark.parametrize("step", [*STEPS[RAISED : STEPS.index("run-ended")], "run-ended"])
def test_a_run_that_died_behind_its_pivot_is_finished_first(stage: Stage, step: str) -> None:
    """Then the next one runs."""
    stage.kill(step)
    stage.compact()
    assert [one.state() for one in stage.runs()] == ["done", "done"]
    assert [one.status for one in stage.operations()] == [Status.SUCCESSFUL] * 2
    assert outcome(stage.world) == unharmed()


@pytest.mark.parametrize("should_resume", [True, False])
def test_a_killed_run_forgets_no_invalidations_against_the_next_ones_word(
    stage: Stage, *, should_resume: bool
) -> None:
    """`never` is for clients whose entries may come at any time: it ends what another began."""
    stage.kill("horizon-raised")
    assert 200 in stage.world.entries()
    never = replace(WAITING, invalidation_grace_s=None, should_resume=should_resume)
    stage.compact(never)
    assert list(stage.world.entries()) == [200]
    stage.compact()
    assert stage.world.entries() == {}


def test_a_rehearsal_that_asks_again_knows_what_it_would_have_claimed(stage: Stage) -> None:
    """It asks once more where the first answers have grown old, as any other run does."""

    def ask_for_long() -> None:
        stage.world.clock.advance(ANSWERS_HOLD_S + 1)

    expected = stage.compact(replace(WAITING, is_dry_run=True))
    slow = stage.compact(
        replace(WAITING, is_dry_run=True), on_step=at("unvisited-asked", ask_for_long)
    )
    assert (slow.entries_pruned, slow.laggards) == (expected.entries_pruned, [])
    assert slow.entries_pruned == stage.compact().entries_pruned == 1


def test_what_cannot_be_finished_is_given_up(stage: Stage) -> None:
    """Entries that it left go with the next run: nothing that is stored may stop every run."""
    stage.kill("horizon-raised")
    fates = TableFateStore(stage.world.store)
    (left,) = stage.operations()
    unknown = b'{"step":"compaction.OfTheFuture","version":1,"fields":{}}'
    fates.write(left, msgspec.structs.replace(left, stack=(*left.stack[:-1], unknown)))
    report = stage.compact()
    assert report.entries_pruned == 1
    assert stage.runs()[0].state() == "superseded"
    assert [one.status for one in stage.operations()] == [Status.SUCCESSFUL]


def test_a_failed_run_leaves_nothing_to_finish(stage: Stage) -> None:
    """It ended; the next one begins at once."""

    def fail() -> None:
        raise StorageUnavailable("the disk caught fire")

    with pytest.raises(StorageUnavailable, match="caught fire"):
        stage.compact(on_step=at("listed-again", fail))
    (failed,) = stage.operations()
    assert (failed.status, stage.runs()[0].state()) == (Status.FAILED, "failed")
    assert failed.exception is not None
    assert "caught fire" in failed.exception.message
    stage.compact()
    assert not any("takes its place" in note for note in stage.said.notes)


def test_a_run_that_fails_behind_its_pivot_is_finished_by_the_next(stage: Stage) -> None:
    """It cannot be undone, and says what went wrong."""

    def fail() -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        stage.compact(on_step=at("pruned", fail))
    assert stage.runs()[0].state() == "failed"
    stage.compact()
    assert [one.state() for one in stage.runs()] == ["done", "done"]


def test_old_operations_go_with_the_records_of_their_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One a night, for ever, would be a leak of its own."""
    monkeypatch.setattr(report_module, "RUNS_KEPT", 3)
    for _ in range(6):
        stage.compact(ALL_AT_ONCE)
    assert len(stage.runs()) == 3
    assert {one.id for one in stage.operations()} == {one.operation for one in stage.runs()}
    rows = [row[0].row for page in stage.world.store.scan(FATE_TABLE) for row in page]
    assert not [row for row in rows if row.startswith(b"worker")]


@pytest.mark.parametrize("years", [-1, 1])
def test_a_run_is_the_newest_whatever_the_date_was_set_to(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    """Where the date was set back, or was ahead once, runs of today were forgotten at their end."""
    monkeypatch.setattr(report_module, "RUNS_KEPT", 3)
    year_ms = 365 * 86_400_000
    for _ in range(4):
        stage.world.clock.step_wall(milliseconds=max(years, 0) * year_ms)
        stage.compact(ALL_AT_ONCE)
        stage.world.clock.step_wall(milliseconds=-max(years, 0) * year_ms)
    stage.world.clock.step_wall(milliseconds=min(years, 0) * year_ms)
    for count in range(1, 4):
        now_ms = stage.world.clock.wall_ms()
        stage.compact(ALL_AT_ONCE)
        newest = RunLog(stage.world.control, stage.world.clock.wall_ms).runs()[-1]
        assert newest.started_ms == now_ms
        assert len(stage.operations()) == 3
        runs = RunLog(stage.world.control, stage.world.clock.wall_ms).runs()
        assert sum(one.started_ms <= now_ms for one in runs) == count
        stage.world.clock.advance(60)


def test_other_executors_leave_a_run_to_the_next_compaction(stage: Stage) -> None:
    """`omidpy fate run` on the same store may know its steps, and has not what they need."""
    stage.kill("ranges-passed")
    fate = Fate(None, TableFateStore(stage.world.store), clock=stage.world.clock)
    fate.run_pending()
    fate.close()
    (left,) = stage.operations()
    assert (left.name, left.status) == (KIND, Status.IN_PROGRESS)
    assert "omidpy compact" in left.waiting
    assert stage.compact(RESUMING).entries_pruned == 1


def test_a_claim_that_is_made_while_a_run_ends_is_not_forgotten() -> None:
    """A run that was taken for dead makes it, on a table that was made just before."""
    claim = Claim("late", b"", b"", 1000, 0, (b"cf",), "another")
    numbers = itertools.count(1)
    is_over = False
    while not is_over:
        stage = Stage()
        troubled(stage.world)
        stage.kill("pruned")
        left = [next(numbers)]

        def before(_method: str, _table: str, stage: Stage = stage, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                stage.world.table("late")
                Watermarks(stage.world.control).record_claim(claim)

        stage.compact(RESUMING, store=interleaved(stage.world.store, before))
        is_over = left[0] > 0
        assert is_over or claim in Watermarks(stage.world.control).claims()


# -- two at once -----------------------------------------------------------------------------------


@contextlib.contextmanager
def at_work(world: World, **names: str) -> Iterator[PruneLease]:
    """Hold the lease, as a run on another machine does."""
    fates = TableFateStore(world.store)
    worker = fates.new_worker(lease_s=15.0, clock=world.clock)
    lease = PruneLease(world.store, world.clock, judge=fates.new_judge(world.clock))
    named = {"run": "the other", "operation": "", **names}
    assert lease.try_take(lease.look(), worker=worker.id, **named)
    try:
        yield lease
    finally:
        worker.retire()


def test_a_run_waits_for_one_that_lives_and_says_so_once(stage: Stage) -> None:
    """Then it runs, with a low watermark of then."""
    with at_work(stage.world) as other:
        naps: list[float] = []

        def sleep(seconds: float) -> None:
            naps.append(seconds)
            stage.world.clock.advance(seconds)
            if len(naps) == 5:
                stage.world.set_low_watermark(1500)
                other.release()

        stage.sleep = sleep
        assert stage.compact(ALL_AT_ONCE).low_watermark == 1500
    (note,) = stage.said.notes
    assert "waiting for run the other (process" in note
    assert len(naps) == 5


def test_a_run_does_not_wait_for_the_dead(stage: Stage) -> None:
    """Whose row is gone, or whose process."""
    with at_work(stage.world) as other:
        token = other.record.token

    def sleep(_: float) -> None:
        pytest.fail("it waits")

    stage.sleep = sleep
    stage.compact(ALL_AT_ONCE)
    assert stage.said.notes == []
    assert (
        PruneLease(stage.world.store, stage.world.clock, judge=Nobody()).look().token == token + 1
    )


def test_a_run_that_is_over_has_given_its_lease_back(stage: Stage) -> None:
    """Its row as a worker goes too; but that may fail, and then the next run would wait for it."""
    lease = PruneLease(stage.world.store, stage.world.clock, judge=Nobody())
    held: list[PruneLeaseRecord] = []
    stage.compact(ALL_AT_ONCE, on_step=at("run-ended", lambda: held.append(lease.look())))
    assert [one.is_held for one in (*held, lease.look())] == [True, False]
    stage.kill("ranges-passed")
    assert not lease.look().is_held


class NoLocks(MemoryStore):
    """A store whose locks are not of this process, as HBase has none."""

    @property
    def capabilities(self) -> Any:
        """Everything else."""
        return replace(super().capabilities, process_locks=False)


def test_what_is_left_of_a_dead_driver_goes_with_its_lease() -> None:
    """One row for each that is killed, for ever, where no other executor sweeps."""
    stage = Stage(NoLocks())
    fates = TableFateStore(stage.world.store)
    worker = fates.new_worker(lease_s=15.0, clock=stage.world.clock)
    lease = PruneLease(stage.world.store, stage.world.clock, judge=Nobody())
    assert lease.try_take(lease.look(), worker=worker.id, run="dead", operation="")
    assert len(fates.worker_names()) == 1
    stage.compact(ALL_AT_ONCE)
    assert fates.worker_names() == {}


class Nobody:
    """Takes nobody for dead."""

    def dead(self, workers: object) -> frozenset[str]:
        """Return nobody."""
        del workers
        return frozenset()


def test_a_lease_that_cannot_be_read_is_nobodys(stage: Stage) -> None:
    """Whoever had it finds other bytes than its own."""
    stage.world.control.write_beside(PRUNE_HORIZON, PRUNE_LEASE, None, b"{")
    assert stage.compact().entries_pruned == 1


FENCED: Final = [
    step
    for step in STEPS[STEPS.index("operation-kept") : STEPS.index("operation-ended")]
    if step != "horizon-raised"
]


PASSING: Final = STEPS[STEPS.index("operation-kept") : STEPS.index("listed-again")]


@pytest.mark.parametrize("step", FENCED)
def test_a_run_that_was_taken_for_dead_records_and_prunes_nothing(stage: Stage, step: str) -> None:
    """It stands at a step for a lease's time; the next one keeps all entries, and so must it."""
    careful = replace(ALL_AT_ONCE, grace_s=1e6, invalidation_grace_s=1e6)
    watermarks = Watermarks(stage.world.control)
    seen: list[tuple[object, ...]] = []
    claimed: set[bytes] = set()

    def state() -> tuple[object, ...]:
        return stage.world.entries(), stage.horizon(), stage.runs()

    def other() -> None:
        stage.world.table("unknown-to-the-first")
        stage.compact(careful)
        seen.append(state())
        claimed.update(claim.row() for claim in watermarks.claims())

    with pytest.raises(ReservationLost, match="was taken for dead"):
        stage.compact(on_step=at(step, other))
    if step in PASSING:
        # What it claims is true all the same.
        assert {one.row() for one in watermarks.claims()} >= claimed
    else:
        assert {one.row() for one in watermarks.claims()} == claimed
    assert seen == [state()]
    assert all(one.is_finished for one in stage.operations())


@pytest.mark.parametrize("step", ["lease-taken", "run-recorded"])
def test_a_run_that_has_lost_its_lease_at_once_leaves_no_operation(stage: Stage, step: str) -> None:
    """Nobody would ever find it."""
    with pytest.raises(ReservationLost):
        stage.compact(on_step=at(step, stage.compact))
    assert sorted(one.state() for one in stage.runs()) == ["done", "failed"]
    assert [one.status for one in stage.operations()] == [Status.SUCCESSFUL]


def test_only_the_newest_holder_raises_the_horizon(stage: Stage) -> None:
    """Compared in the row itself, so that no moment is too late."""
    watermarks = Watermarks(stage.world.control)
    with at_work(stage.world) as deposed, at_work_after(stage.world, deposed) as newest:
        with pytest.raises(ReservationLost, match="lost its lease"):
            deposed.raise_horizon(watermarks, Timestamp(900))
        assert stage.horizon() == 0
        newest.raise_horizon(watermarks, Timestamp(800))
        newest.raise_horizon(watermarks, Timestamp(700))
        assert stage.horizon() == 800


@contextlib.contextmanager
def at_work_after(world: World, deposed: PruneLease) -> Iterator[PruneLease]:
    """Take the lease from one who holds it still."""
    with at_work(world) as lease:
        assert lease.record.token == deposed.record.token + 1
        yield lease


class Unguarded(MemoryStore):
    """A store without transactions of many rows, as HBase."""

    @property
    def capabilities(self) -> Any:
        """Everything else."""
        return replace(super().capabilities, guarded_batches=False)


@pytest.mark.parametrize("kind", [MemoryStore, Unguarded])
def test_a_slice_is_pruned_by_the_newest_holder_alone(kind: type[MemoryStore]) -> None:
    """An executor that its driver has outlived, or that outlived its driver."""
    stage = Stage(kind())
    stage.world.enter(100, 150)
    limits = PruneLimits(Timestamp(0), Timestamp(1000), Timestamp(1000), [range(1000)])
    with at_work(stage.world) as lease:
        task = PruneTask(KeyRange(), limits, COMMIT_TABLE, lease=lease.guard)
        with at_work(stage.world):
            result = SlicePruner(stage.world.store, task).run()
    assert (result.is_deposed, result.entries, stage.world.entries()) == (True, 0, {100: 150})


class Watched(Unguarded):
    """Remembers what is written to the table, and how."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bool] = []

    def write(
        self, mutations: Mapping[str, Sequence[RowMutation]], *, durable: bool = False
    ) -> None:
        """Write."""
        if "t" in mutations:
            self.written.append(durable)
        super().write(mutations, durable=durable)


def test_what_a_claim_rests_on_is_durable_before_it() -> None:
    """I6: each server of HBase's has a log of its own, and the claim's says nothing of others."""
    store = Watched()
    stage = Stage(store)
    troubled(stage.world)
    store.written.clear()
    before_claims: list[bool] = []
    heals = at("page-healed", lambda: before_claims.append(store.written[-1]))
    garbage = at("page-garbage-dropped", lambda: before_claims.append(store.written[-1]))

    def on_step(name: str) -> None:
        heals(name)
        garbage(name)

    stage.compact(on_step=on_step)
    assert before_claims == [True, True]


# -- what appears while it prunes ------------------------------------------------------------------


@pytest.mark.parametrize("options", [WAITING, RESUMING])
def test_a_copy_that_appears_before_it_goes_on_keeps_every_entry(
    stage: Stage, options: Options
) -> None:
    """Hours lie between; the copy's cells have no shadow cell, and their entries are all there."""
    stage.kill("horizon-raised")
    stage.clone()
    stage.compact(options)
    if options is RESUMING:
        assert stage.world.entries().keys() >= {100}
        stage.compact()
    assert stage.world.shadows("clone") == {(b"a", 100): 150}
    assert outcome(stage.world)[1] == {}


def test_a_copy_that_is_not_ours_stops_it_and_is_named(stage: Stage) -> None:
    """It was restored beside the table, and nobody has adopted it yet."""
    stage.kill("horizon-raised")
    stage.clone(owner=None)
    report = stage.compact(RESUMING)
    assert [one.table for one in report.laggards] == ["clone"]
    assert report.entries_pruned == 0
    assert 100 in stage.world.entries()


class InSmallRounds(Compaction):
    """Prunes an entry a task."""

    def prune_task(self, limits: PruneLimits) -> PruneTask:
        """Read one and leave the rest."""
        return replace(super().prune_task(limits), most_entries=1)


def test_every_round_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand million entries take hours, in which tables are restored."""
    monkeypatch.setattr(prune_module, "PAGE_ENTRIES", 1)
    stage = Stage()
    a_dozen_entries(stage.world)
    appear = at("page-pruned", lambda: stage.world.table("appeared"), nth=2)
    report = stage.compact(ALL_AT_ONCE, on_step=appear, compaction=InSmallRounds)
    assert [one.table for one in report.laggards] == ["appeared", COMMIT_TABLE]
    left = len(stage.world.entries())
    assert 12 - 5 <= left < 12
    assert stage.compact(compaction=InSmallRounds).entries_pruned == left


def a_dozen_entries(world: World) -> None:
    """Write entries into one bucket, which is pruned in rounds of 1, 4, 4 and 3 of them."""
    for number in range(1, 13):
        world.enter(800 * number, 800 * number + 50)
    world.set_low_watermark(10_000)


@pytest.mark.parametrize(("nth", "lost"), [(1, 1), (2, 1), (3, 2), (5, 4), (6, 1)])
def test_a_killed_round_is_the_only_one_that_is_read_again(
    nth: int, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of the slices is kept behind each round."""
    monkeypatch.setattr(prune_module, "PAGE_ENTRIES", 1)
    stage = Stage()
    a_dozen_entries(stage.world)
    with pytest.raises(Killed):
        stage.compact(
            ALL_AT_ONCE, on_step=at("page-pruned", die, nth=nth), compaction=InSmallRounds
        )
    assert len(stage.world.entries()) == 12 - nth
    scanned: list[str] = []
    store = interleaved(
        stage.world.store,
        lambda method, table: scanned.append(table) if method == "scan" else None,
    )
    report = stage.compact(replace(ALL_AT_ONCE, should_resume=True), store=store)
    assert stage.world.entries() == {}
    assert report.entries_pruned == 12 - lost, "those of the killed round are not counted"
    assert "t" not in scanned


# -- what it costs ---------------------------------------------------------------------------------


def test_a_run_with_nothing_to_do_writes_little(stage: Stage) -> None:
    """Thousands of small runs are made, and each durable write waits for a disk."""
    stage.compact()
    writes: list[str] = []

    def before(method: str, table: str) -> None:
        if method in ("write", "check_and_mutate", "write_guarded"):
            writes.append(table)

    stage.compact(ALL_AT_ONCE, store=interleaved(stage.world.store, before))
    assert writes.count(FATE_TABLE) <= 10
    assert writes.count(CONTROL_TABLE) <= 16


def test_a_dry_run_takes_as_long_as_it_takes() -> None:
    """Nobody takes its place; one that read for longer than a lease ended with an error."""
    world = World(MemoryStore())
    world.table()
    world.put(b"a", 100)

    def linger(step: str) -> None:
        if step == "page-read":
            world.clock.advance(86_400)

    report = world.compact(replace(ALL_AT_ONCE, is_dry_run=True), on_step=linger)
    assert (report.rows_read, report.seconds) == (1, 86_400)
