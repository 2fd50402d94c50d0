"""Of what are the steps of a run made?  Reading, choosing, asking and forgetting, one method each.

`plan.py` puts them in order, and says why that order; a part does not know which step it is in.

This module does not know how ranges are executed: `local.py` does it here, `shell/job.py` on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from compactor.graces import ClaimAges
from compactor.horizon import (
    HOLE,
    aged,
    minimum,
    relevant,
    useless_claims,
    without_tables,
)
from compactor.options import Options
from compactor.pacing import Pacer
from compactor.pruning.collection import Collection
from compactor.pruning.keys import forget_keys, keys_horizon
from compactor.pruning.prune import PruneLimits, PruneTask, SlicesHere
from compactor.pruning.slices import (
    Ends,
    count,
    count_few,
    find_ends,
    out_of_time,
)
from compactor.pruning.snapshot_holds import SnapshotHolds, find_root
from compactor.pruning.snapshots import SnapshotRoot
from compactor.pruning.timestamps import recorded_ceiling
from compactor.pruning.unvisited import answers, refusals, stretches
from compactor.ranges.advances import forget_progress
from compactor.ranges.cutting import Cutting, rows_read_lately
from compactor.ranges.progress import Passed
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.ranges.schedule import Schedule, schedule
from compactor.ranges.spans import PastPasses
from compactor.report import Laggard, Report
from compactor.run.environment import Environment
from compactor.run.operation import Work
from compactor.run.rehearsal import Rehearsed
from compactor.run.reporting.journal import Journal
from compactor.run.reporting.notes import (
    BESIDE_OMID,
    note_on_questions,
)
from compactor.tables.following import adopt_followed
from compactor.tables.ownership import TableStanding, owned, survey, unknown_tables
from omidpy.base.remembered import remembered
from omidpy.base.tables import CONTROL_TABLE, KEYS_TABLE
from omidpy.errors import ConfigError, UsageError
from omidpy.facts.commit_table import (
    ADOPTED_CEILING_FACT,
    FIRST_TIMESTAMP_FACT,
    CommitTable,
    read_leading_low_watermark,
    read_low_watermark,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.format import check_format
from omidpy.facts.tables.listing import missing_of
from omidpy.facts.tables.plain_versions import presumed_plain
from omidpy.facts.tables.questions import Question, Questions
from omidpy.facts.watermarks import Claim, Watermarks
from omidpy.model import MAX_VERSION, TIMESTAMP_STEP, KeyRange, Timestamp
from omidpy.storage.base import Store
from omidpy.storage.options import RestoresTables

LONGEST_SLEEP_S: Final = 1.0
"""A wait is cut into naps, because the machine may be suspended meanwhile."""

PROGRESS_S: Final = 1.0
"""How long a pass goes on before the operation says how far it is."""


class CompactionParts(Work):
    """What one run knows, and the parts of its steps: each a method, so that a test can break it.

    What it remembers between steps is only what a successor finds out anew.
    """

    def __init__(self, store: Store, options: Options, environment: Environment) -> None:
        self.store = store
        self.options = options
        self.environment = environment
        self.clock = environment.clock
        self.execute_ranges = environment.execute_ranges
        self.sleep = environment.sleep
        self.progress = environment.progress
        self.on_step = environment.on_step
        self.asked = environment.asked
        self.snapshot_root: SnapshotRoot | None = None
        self.execute_slices = environment.execute_slices or SlicesHere(
            store, on_step=self.on_step, clock=self.clock, sleep=self.sleep
        )
        self.newest_timestamp = MAX_VERSION
        self.questions: Sequence[Question] = ()
        self.schedule = Schedule()
        self.pacing = options.pacing(now_ms=self.clock.wall_ms())
        self.pacer = Pacer(self.pacing, self.clock, self.sleep)
        self.control = ControlTable(store)
        self.watermarks = Watermarks(self.control)
        self.journal = Journal(self.control, self.clock, self.progress, self.on_step)
        self.ages = self.claim_ages()
        self.began_s = self.clock.monotonic_s()
        self.is_continued = False
        self.standings: list[TableStanding] | None = None
        self.is_list_old = False
        self.results: list[RangeResult] | None = None
        self.claims: list[Claim] | None = None
        self.has_just_asked = False
        self.surveyed_s = 0.0
        """When the newest list of tables was begun."""

    def claim_ages(self) -> ClaimAges:
        """Return what judges how old claims are, for this run."""
        return ClaimAges(
            self.watermarks,
            self.clock,
            self.journal.run_id,
            is_dry_run=self.options.is_dry_run,
        )

    @remembered
    def grace_s(self) -> float:
        """How old a claim must be to count, as asked for or as the store's clients need it."""
        follows_omid = self.control.read(ADOPTED_CEILING_FACT) is not None
        return self.options.grace_on(follows_omid=follows_omid)

    # -- steps 1 and 2: what is known ----------------------------------------------------------

    def check_system_tables(self) -> None:
        """Refuse a store where no oracle has run, a newer form, and names of no tables.

        A typo would leave a table out unnoticed.
        """
        listed = self.store.tables()
        for table in missing_of((self.options.commit_table, CONTROL_TABLE), self.store, listed):
            raise ConfigError(
                f"{self.store.url} has no table {table}; run `omidpy init`, or start tso-server "
                "on it, or check the address"
            )
        check_format(self.store)
        given = self.options.exclude | (self.options.tables or frozenset())
        given |= self.options.table_options.keys()
        if unknown := missing_of(sorted(given), self.store, listed):
            raise UsageError(unknown_tables(unknown, self.store.url))

    def highest_recorded(self) -> int:
        """Return the highest watermark that any run has relied on.

        Read before L: a run at the same time may record more, but never more than the L read here
        later.
        """
        recorded = [claim.watermark for claim in self.watermarks.claims()]
        recorded += [self.watermarks.prune_horizon(), self.watermarks.collection_horizon()]
        return max(recorded)

    def read_low_watermark(self) -> Timestamp:
        """Return L, and note if it is Omid's own."""
        found = read_leading_low_watermark(self.store)
        if found.is_omids:
            self.journal.note(BESIDE_OMID)
        return found.value

    def adopt_followed(self) -> None:
        """Adopt what a rule says of Phoenix's tables."""
        adopt_followed(
            self.store,
            self.options.commit_table,
            note=self.journal.note,
            newest=self.newest_now,
            is_dry_run=self.options.is_dry_run,
        )

    def survey(self) -> list[TableStanding]:
        """List the tables and what may be done with each."""
        # Before the list: the age of its answers, counted from here, is never too low (I7).
        self.surveyed_s = self.clock.monotonic_s()
        newest = None if self.options.is_dry_run else self.newest_now
        return survey(self.store, self.options.commit_table, newest=newest)

    def newest_now(self) -> int:
        """Return what no timestamp can be above that was issued up to now."""
        return self.find_newest_timestamp(read_low_watermark(self.store))

    def first_timestamp(self) -> Timestamp:
        """Return below which timestamp nothing is ours."""
        return self.control.read_number(FIRST_TIMESTAMP_FACT) or Timestamp(0)

    def follow_schedule(self, standings: Sequence[TableStanding]) -> None:
        """Do what the tables ask for: leave out those that are not due, and order the others."""
        claims = self.watermarks.claims()
        self.schedule = schedule(standings, claims, self.options, now_ms=self.clock.wall_ms())
        self.options = replace(self.options, resting=self.schedule.resting)
        for complaint in self.schedule.complaints:
            self.journal.note(complaint)

    def cutting(self) -> Cutting:
        """Return into which ranges regions are cut."""
        return Cutting(
            self.options.ranges_per_region,
            rows_read_lately(self.journal.earlier_runs()),
            self.schedule.edges(),
        )

    def base_task(self, low_watermark: Timestamp, drop_horizon: Timestamp) -> RangeTask:
        """Return the part of a task that is the same for every range."""
        return RangeTask(
            table="",
            key_range=KeyRange(),
            families=frozenset(),
            low_watermark=low_watermark,
            first_timestamp=self.first_timestamp(),
            drop_horizon=drop_horizon,
            commit_table=self.options.commit_table,
            plain=presumed_plain(self.store, low_watermark),
            is_dry_run=self.options.is_dry_run,
            run=self.journal.run_id,
            newest=self.newest_timestamp,
            collects_foreign=self.options.should_collect_foreign,
            pacing=self.pacing,
        )

    def find_newest_timestamp(self, low_watermark: Timestamp) -> int:
        """Return what no version or timestamp can be above that was issued up to now, L included.

        Raises:
            ConfigError: the oracle does not record its timestamps.
        """
        ceiling = recorded_ceiling(
            self.store, self.commit_table(), low_watermark=low_watermark, asked=self.asked
        )
        return MAX_VERSION if ceiling is None else ceiling + TIMESTAMP_STEP - 1

    # -- step 3: which versions may go ---------------------------------------------------------

    def collection(self) -> Collection:
        """Return what settles from which horizon on versions may go."""
        return Collection(
            self.watermarks,
            self.clock,
            grace_s=self.grace_s,
            retention_s=self.schedule.retention_s(self.options.retention_s),
            should_wait=self.options.should_wait,
            is_dry_run=self.options.is_dry_run,
            ages=self.watermarks.ages(self.clock),
            nap=self.nap,
            may_wait=lambda: not self.pacer.is_over(),
            on_step=self.on_step,
        )

    # -- steps 4 and 5: the ranges -------------------------------------------------------------

    def past_passes(self, standings: Iterable[TableStanding]) -> PastPasses:
        """Return what passes may rest on: claims on the tables as they are, of any age."""
        return PastPasses(self.usable(standings, self.watermarks.claims()))

    def claimed(self, low_watermark: Timestamp) -> list[Claim]:
        """Return what this run has claimed before its driver was killed."""
        return [
            claim
            for claim in self.watermarks.claims()
            if claim.run == self.journal.run_id and claim.watermark == low_watermark
        ]

    def pass_over(self, tasks: Sequence[RangeTask]) -> list[RangeResult]:
        """Have the ranges passed over, and wait for all of them.

        Progress comes with each page: of a region that takes an hour, the rows are counted as they
        are read.
        """
        if not tasks:
            return []
        tasks = self.schedule.paced(tasks)
        total = len(tasks)
        self.progress.update(0, total, Passed())

        began_s = self.clock.monotonic_s()

        def on_progress(done: int, passed: Passed) -> None:
            self.progress.update(done, total, passed)
            if self.context is not None and self.clock.monotonic_s() - began_s >= PROGRESS_S:
                self.context.progress(f"{done} of {total} ranges, {passed.rows} rows")

        return list(self.execute_ranges(tasks, on_progress))

    # -- steps 6 and 7: the horizon and the commit table ---------------------------------------

    def known_claims(self, results: Iterable[RangeResult]) -> list[Claim]:
        """Return every claim on record; in a dry run also those that it would have made.

        Each has an age from here on, those of this run too.
        """
        claims = [*self.watermarks.claims(), *self.rehearsed_claims(results)]
        if begun_anew := self.ages.stamp(claims):
            self.journal.note(
                f"nothing tells how old the claims of {begun_anew} earlier runs are, which were "
                "killed, or ran on another machine or before this one was started again: they "
                "count from now on"
            )
        return claims

    def rehearsed_claims(self, results: Iterable[RangeResult]) -> list[Claim]:
        """Return what the passes of a dry run would have claimed; none of any other run."""
        if not self.options.is_dry_run:
            return []
        return [result.claim for result in results if result.claim is not None]

    def claim_absence(self, base_task: RangeTask) -> RangeResult:
        """Claim that no table can hold a cell of a transaction up to L, as two lists have shown.

        The claim ages as others do, and counts while there is no table still.
        """
        task = replace(base_task, table=self.options.commit_table)
        claim = Claim(
            task.table, *task.key_range, task.low_watermark, self.clock.wall_ms(), (), task.run
        )
        if not self.options.is_dry_run:
            self.watermarks.record_claim(claim)
        return RangeResult(task, claim=claim)

    def await_claims(self, results: Iterable[RangeResult]) -> bool:
        """Sleep until this run's own claims are as old as the grace; say whether time passed."""
        has_claimed = self.is_continued or any(result.claim for result in results)
        if self.options.is_dry_run or not (has_claimed and self.grace_s):
            return False
        self.progress.note(f"waiting until the claims are {self.grace_s:g} s old")
        deadline_s = self.clock.monotonic_s() + self.grace_s
        while self.clock.monotonic_s() < deadline_s and not self.pacer.is_over():
            self.nap(deadline_s)
        return True

    def limits(
        self,
        standings: Sequence[TableStanding],
        claims: Sequence[Claim],
    ) -> PruneLimits:
        """Return what the claims that are old enough allow to forget."""
        horizon = self.minimum(standings, claims, grace_s=self.grace_s)
        grace_s = self.options.invalidation_grace_s
        invalidation_horizon = (
            Timestamp(HOLE) if grace_s is None else self.minimum(standings, claims, grace_s=grace_s)
        )
        return PruneLimits(self.first_timestamp(), horizon, invalidation_horizon)

    def find_snapshot_root(self) -> SnapshotRoot | None:
        """Return where HBase's snapshots are; None: that was not said, or this is no HBase."""
        return find_root(
            self.store,
            self.options.hbase_root,
            self.environment.open_folder,
            is_dry_run=self.options.is_dry_run,
        )

    @property
    def knows_snapshots(self) -> bool | None:
        """Whether they are known; None where there are none of single tables."""
        if self.snapshot_root is not None:
            return True
        return False if isinstance(self.store, RestoresTables) else None

    def hold_for_snapshots(
        self, limits: PruneLimits, standings: Sequence[TableStanding], claims: Sequence[Claim]
    ) -> tuple[PruneLimits, list[Laggard]]:
        """Keep what tables would need that are restored; say which snapshots hold something."""
        if self.snapshot_root is None:
            return limits, []
        holds = SnapshotHolds(
            self.control,
            self.snapshot_root,
            commit_table=self.options.commit_table,
            is_dry_run=self.options.is_dry_run,
        )
        return holds.limit(limits, standings, claims)

    def minimum(
        self, standings: Sequence[TableStanding], claims: Iterable[Claim], *, grace_s: float
    ) -> Timestamp:
        """Return the least watermark of every table that counts, 0 if anything is unknown."""
        # One table of which it is not known whose it is may hold cells of any transaction (I7).
        if any(standing.reason for standing in standings):
            return Timestamp(HOLE)
        if self.options.is_dry_run and self.options.should_wait:
            # By then this run's own claims would be as old as the grace for commits.
            grace_s = max(grace_s - self.grace_s, 0.0)
        old_enough = aged(claims, self.ages.age_ms, grace_s=grace_s)
        counting = owned(standings)
        if not counting:
            return without_tables(old_enough, self.options.commit_table)
        return minimum(counting, self.usable(standings, old_enough)) or Timestamp(HOLE)

    def usable(self, standings: Iterable[TableStanding], claims: Iterable[Claim]) -> list[Claim]:
        """Return the claims that speak of every family that is ours by now."""
        return relevant(claims, owned(standings))[0]

    def ends(self, limits: PruneLimits) -> Ends:
        """Find between which transactions those lie whose entries could go."""
        return find_ends(self.commit_table(), limits) if limits.horizon else Ends()

    def ask(
        self, standings: Iterable[TableStanding], limits: PruneLimits, ends: Ends
    ) -> tuple[PruneLimits, list[Laggard]]:
        """Ask for the entries about to go where no pass has been.

        Returns:
            Limits that name what was asked about, or that let nothing go; and what forbade it, or
            what was in the way of knowing.
        """
        versions = stretches(ends.start_timestamps)
        if versions and self.pacer.is_over():
            forbidding = [out_of_time(self.prune_task(limits))]
        else:
            given = answers(self.store, standings, versions)
            forbidding = refusals(given)
            self.remember([answer.question for answer in given])
        # One cell anywhere is enough: which entry is all that is left of a transaction no place
        # tells (I5).
        if forbidding:
            nothing = Timestamp(HOLE)
            return PruneLimits(limits.first_timestamp, nothing, nothing), forbidding
        return replace(limits, asked=versions), ends.obstacles

    def remember(self, questions: Sequence[Question]) -> None:
        """Say what asking cost, and record for each table what its answer rests on."""
        self.questions = questions
        if questions:
            self.journal.note(note_on_questions(questions))
        if not self.options.is_dry_run:
            now_ms = self.clock.wall_ms()
            Questions(self.control).record(
                msgspec.structs.replace(one, asked_ms=now_ms, run=self.journal.run_id)
                for one in questions
            )

    def ask_again(self, limits: PruneLimits) -> list[Laggard]:
        """Look whether anything has appeared since that forbids to go on with the slices.

        Asked is for all that may go, as before: a copy of a table that holds a cell of one that is
        gone already holds cells of others.
        """
        self.standings = self.survey()
        claims = [*self.watermarks.claims(), *self.rehearsed_claims(self.results or ())]
        held, snapshots = self.hold_for_snapshots(limits, self.standings, claims)
        if held.horizon < limits.horizon:
            return snapshots
        horizon = self.minimum(self.standings, claims, grace_s=0.0)
        if horizon < limits.horizon:
            reason = (
                f"what was to be forgotten up to {limits.horizon} is kept, because a table has "
                f"appeared meanwhile that is only healed up to {horizon}"
            )
            return [
                Laggard.of(self.options.commit_table, KeyRange(), watermark=horizon, reason=reason)
            ]
        return refusals(answers(self.store, self.standings, limits.asked))

    def prune_task(self, limits: PruneLimits) -> PruneTask:
        """Return what is the same for every slice."""
        return PruneTask(
            KeyRange(),
            limits,
            self.options.commit_table,
            newest=self.newest_timestamp,
            is_dry_run=self.options.is_dry_run,
            pacing=self.pacing,
            lease=None if self.lease is None else self.lease.guard,
        )

    def counted(self, report: Report, limits: PruneLimits, rehearsed: Rehearsed) -> Report:
        """Return a report that knows how many entries are left, if they are few or collected."""
        if self.options.metrics is None:
            few = None if self.options.is_dry_run else count_few(self.commit_table())
            return msgspec.structs.replace(report, entries_left=few)
        left = count(self.prune_task(limits), self.execute_slices, self.progress)
        if left is not None and self.options.is_dry_run:
            left += len(rehearsed.forbidden)
            left -= report.entries_pruned + report.invalidations_pruned
        growth = None if left is None else self.journal.growth_a_day(left)
        return msgspec.structs.replace(report, entries_left=left, entries_growth_a_day=growth)

    def commit_table(self) -> CommitTable:
        """Return the commit table."""
        return CommitTable(self.store, self.options.commit_table, newest=self.newest_timestamp)

    # -- what stays behind ---------------------------------------------------------------------

    def thin(self, standings: Sequence[TableStanding], claims: Sequence[Claim]) -> None:
        """Forget claims that nothing needs, holds that expired long ago, and what passes told."""
        tables = [standing.name for standing in standings]
        partial = frozenset(relevant(claims, owned(standings))[1])
        rest = [claim for claim in claims if claim not in partial]
        self.watermarks.forget_claims(
            [*partial, *useless_claims(rest, self.ages.age_ms, tables=tables)]
        )
        self.ages.forget()
        self.watermarks.forget_expired_holds(self.watermarks.ages(self.clock))
        # This run's passes are over; what is there was left by workers, or drivers, that died.
        forget_progress(self.control)

    def forget_keys(self, standings: Iterable[TableStanding], low_watermark: Timestamp) -> None:
        """Forget the idempotency keys that are old enough, where their table is ours to change."""
        keep_s = self.options.keep_keys_s
        if (
            keep_s is None
            or KEYS_TABLE not in owned(standings)
            or not self.options.scans(KEYS_TABLE)
        ):
            return
        horizon = keys_horizon(self.watermarks, low_watermark, keep_s=keep_s)
        if count := forget_keys(self.store, horizon):
            self.journal.note(f"{count} idempotency keys older than {keep_s:g} s were forgotten")

    def nap(self, until_s: float) -> None:
        """Sleep a little towards a moment of elapsed time."""
        remaining_s = until_s - self.clock.monotonic_s()
        if remaining_s > 0:
            self.sleep(min(remaining_s, LONGEST_SLEEP_S))
