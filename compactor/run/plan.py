"""In what order does a compaction do its work?  The order is the proof.

    1   read what is recorded, then the low watermark L: lower than recorded, the oracle lost its
        state, and nothing that was proven with it holds any more
    2   *then* list the tables: what exists now is all that can hold cells of transactions <= L
    3   publish the collection horizon; drop only what was public for a grace
        (`pruning/collection.py`)
    4   pass over every range of every table of ours; each pass claims its range
        (`ranges/range_pass.py`)
    5   list again, and pass over what is not claimed yet, with the same L; where neither list
        has a table of ours, claim just that
    6   the horizon is the minimum over the whole key space of every table that counts, from claims
        older than the grace alone: a client whose reply was lost still looks for its entry; then
        the snapshots are listed, which may bring back a table as it was
        (`pruning/snapshot_holds.py`)
    7   ask every place that no pass goes over for cells of what is about to go
        (`pruning/unvisited.py`)
    8   raise the prune horizon durably, *then* delete commit entries (`pruning/prune.py`)

Between 1 and 2 the run takes the lease, behind a holder that lives, and reads L again where it had
to wait.  Only the holder comes through 8, and before each further round of 8, or if the list that
7 asked by is older than a minute, asks 7 again.

Killed anywhere, the next run finishes the job: every step is true for ever once it is done, or is
done again.  A run that has lost its lease makes claims that are true, and nothing else.

What the steps are made of is in `steps.py`; `operation.py` has what is kept between them, and
`driver.py` carries them out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from compactor.horizon import HOLE
from compactor.options import Options
from compactor.pruning.collection import COLLECTION_STEPS
from compactor.pruning.laggards import laggards
from compactor.pruning.prune import PRUNE_STEPS, PruneLimits
from compactor.pruning.slices import (
    Pruning,
    begun,
    prune_round,
    tell,
)
from compactor.ranges.range_pass import PASS_STEPS
from compactor.ranges.tasks import missed_tasks, narrowed, region_tasks, unclaimed
from compactor.report import AskedReport, Report, RunRecord
from compactor.run.driver import Driver, rehearse
from compactor.run.environment import Environment
from compactor.run.operation import Listing
from compactor.run.rehearsal import Rehearsed
from compactor.run.reporting.notes import (
    NO_ROOT,
    notes_on,
    notes_on_malformed,
)
from compactor.run.reporting.summing import Outcome, summed
from compactor.run.steps import CompactionParts
from compactor.tables.ownership import TableStanding, owned
from omidpy.base.reach import reached
from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import OracleError
from omidpy.facts.registration import forget_parts
from omidpy.model import Timestamp
from omidpy.storage.base import Store

STEPS: Final = (
    "read-recorded",
    "read-low-watermark",
    "lease-taken",
    "run-recorded",
    "operation-kept",
    "list-tables",
    *COLLECTION_STEPS,
    *PASS_STEPS,
    "ranges-passed",
    "listed-again",
    "minimum-known",
    "unvisited-asked",
    "horizon-raised",
    *PRUNE_STEPS,
    "pruned",
    "claims-thinned",
    "run-ended",
    "operation-ended",
)
"""Every named step; `on_step` is called with the name once the step is done."""

ANSWERS_HOLD_S: Final = 60.0
"""Who prunes asks again what began to be asked longer ago."""


def run(store: Store, options: Options, environment: Environment) -> Report:
    """Compact a store once.

    Raises:
        ConfigError: the store has no commit table, or its oracle does not record its timestamps.
        UsageError: `options` names a table that does not exist.
        OracleError: the low watermark went back; nothing was written.
    """
    return Compaction(store, options, environment).run()


class Compaction(CompactionParts):
    """One run, with its steps in order."""

    def run(self) -> Report:
        """Carry the run out, and return its report."""
        if self.options.is_dry_run:
            if self.options.should_resume:
                self.journal.note(
                    "a dry run goes on with no other: this is what a new one would do"
                )
            rehearse(self, clock=self.clock)
        else:
            driver = Driver(
                self.store,
                self,
                clock=self.clock,
                sleep=self.sleep,
                on_step=self.on_step,
                lease_s=self.environment.lease_s,
            )
            driver.run(should_resume=self.options.should_resume)
        assert self.journal.report is not None, "a run that ends without an error has one"
        return self.journal.report

    def begin(self) -> Timestamp:
        """Refuse what cannot be compacted, before anything is written; return L."""
        self.check_system_tables()
        recorded = self.highest_recorded()
        self.on_step("read-recorded")
        low_watermark = self.read_low_watermark()
        self.on_step("read-low-watermark")
        if low_watermark < recorded:
            raise OracleError(
                f"the low watermark of {self.store.url} is {low_watermark}, below {recorded}, "
                "which an earlier compaction recorded: the oracle has lost its state, or the "
                f"store was restored without {CONTROL_TABLE}; nothing was written.  Restore the "
                "timestamp table, or raise its ceiling above that number and restart tso-server"
            )
        self.newest_timestamp = self.find_newest_timestamp(low_watermark)
        self.snapshot_root = self.find_snapshot_root()
        return low_watermark

    def continue_run(self, record: RunRecord, written: bytes) -> None:
        """Become a run that was killed."""
        self.journal.go_on(record, written)
        self.ages = self.claim_ages()
        self.is_continued = True

    def elder(self, record: RunRecord, written: bytes) -> Compaction:
        """Return what does the rest of a run that was killed, beside this one."""
        elder = type(self)(self.store, self.options, self.environment)
        elder.newest_timestamp = self.newest_timestamp
        elder.snapshot_root = self.snapshot_root
        elder.continue_run(record, written)
        return elder

    # -- the steps of the operation ------------------------------------------------------------

    def list_tables(self) -> None:
        """Make the first list, of which is what Phoenix has made meanwhile."""
        self.adopt_followed()
        self.known_standings()
        self.on_step("list-tables")

    def known_standings(self) -> list[TableStanding]:
        """Return the newest list, the first one where there is none here."""
        if self.standings is None:
            self.standings = self.survey()
            self.follow_schedule(self.standings)
        return self.standings

    def settle(self, low_watermark: Timestamp) -> Timestamp:
        """Publish a collection horizon, and return the one to act on."""
        return self.collection().settle(low_watermark)

    def pass_over_tables(self, low_watermark: Timestamp, drop_horizon: Timestamp) -> None:
        """Pass over every range of ours, list again, and pass over what was missed."""
        base_task = self.base_task(low_watermark, drop_horizon)
        claimed = self.claimed(low_watermark) if self.is_continued else []
        first = self.known_standings()
        tasks = region_tasks(self.store, first, self.options, base_task)
        tasks = self.cutting().cut(self.store, tasks)
        if claimed:
            tasks = unclaimed(tasks, first, claimed)
        tasks = narrowed(tasks, self.past_passes(first), self.options)
        results = self.pass_over(self.schedule.ordered(tasks))
        self.on_step("ranges-passed")
        self.standings = self.survey()
        self.on_step("listed-again")
        missed = missed_tasks(self.standings, self.options, base_task, results, claimed)
        results += self.pass_over(missed)
        if not (owned(first) or owned(self.standings)):
            results.append(self.claim_absence(base_task))
        self.results = results
        if missed:
            reached("compaction.ranges_missed", "I6")
        self.is_list_old = bool(missed)

    def find_horizon(self, low_watermark: Timestamp, drop_horizon: Timestamp) -> Listing:
        """Take the minimum of what is claimed, and ask for what is about to go."""
        if self.results is None:
            # The process that passed was killed.  What he could not claim is tried again, so that
            # it is known why.
            self.pass_over_tables(low_watermark, drop_horizon)
        assert self.results is not None, "they were just made"
        assert self.standings is not None, "the passes have listed"
        claims = self.known_claims(self.results)
        has_waited = self.options.should_wait and self.await_claims(self.results)
        if self.is_list_old or has_waited:
            self.standings = self.survey()
            claims = self.known_claims(self.results)
        self.claims = claims
        limits = self.limits(self.standings, claims)
        limits, held = self.hold_for_snapshots(limits, self.standings, claims)
        if limits.horizon and self.knows_snapshots is False:
            self.journal.note(NO_ROOT)
        self.on_step("minimum-known")
        ends = self.ends(limits)
        ends.start_timestamps += Rehearsed.of(self.results).old_enough(limits)
        limits, forbidding = self.ask(self.standings, limits, ends)
        self.on_step("unvisited-asked")
        self.has_just_asked = True
        pruning = begun(limits, ends) if limits.horizon else Pruning(())
        pruning = replace(pruning, obstacles=(*held, *forbidding))
        is_news = limits.horizon > self.watermarks.prune_horizon() or bool(pruning.rests)
        return Listing(limits, pruning, is_news=is_news)

    def raise_horizon(self, limits: PruneLimits) -> None:
        """Raise the prune horizon, unless another run may by now."""
        # Durable before anything is deleted: a run that is killed in between has raised it for
        # nothing, and none has deleted above it (I7).
        if self.lease is not None:
            self.lease.raise_horizon(self.watermarks, limits.horizon)
            self.on_step("horizon-raised")

    def prune_round(self, limits: PruneLimits, before: Pruning) -> Pruning:
        """Go on with every slice that is left; ask again before, unless that was done just now.

        A driver may stand still between asking and its first round for longer than its answers are
        good for, and keep its lease.
        """
        is_old = self.clock.monotonic_s() > self.surveyed_s + ANSWERS_HOLD_S
        if (is_old or not self.has_just_asked) and (forbidding := self.ask_again(limits)):
            return replace(before, rests=(), obstacles=(*before.obstacles, *forbidding))
        self.has_just_asked = False
        if self.options.invalidation_grace_s is None:
            # The run that found the limits may have been told another, and was killed.
            limits = replace(limits, invalidation_horizon=Timestamp(HOLE))
        after = prune_round(self.prune_task(limits), self.execute_slices, before)
        tell(self.progress, after)
        return after

    def write_report(self, low_watermark: Timestamp, limits: PruneLimits, pruning: Pruning) -> None:
        """Forget what is useless, and record what the run has done."""
        self.on_step("pruned")
        results = self.results or []
        claims = self.claims
        if claims is None:
            # In this order: a claim of a table that is not on the list would be forgotten.
            claims = self.known_claims(results)
            self.standings = None
        standings = self.known_standings()
        rehearsed = Rehearsed.of(results)
        pruned = rehearsed.corrected(pruning.pruned(self.options.commit_table), limits)
        horizon = self.watermarks.prune_horizon()
        if self.lease is None:
            horizon = max(horizon, limits.horizon)
        else:
            self.thin(standings, claims)
            forget_parts(self.store, low_watermark)
            self.forget_keys(standings, low_watermark)
            self.on_step("claims-thinned")
        self.journal.foreign_cells = sum(result.foreign_cells for result in results)
        for note in (
            *notes_on(standings, results, first_timestamp=limits.first_timestamp),
            *notes_on_malformed(self.watermarks.malformed),
        ):
            self.journal.note(note)
        behind = laggards(
            standings,
            self.usable(standings, claims),
            results,
            low_watermark=low_watermark,
            options=self.options,
        )
        report = summed(
            results,
            pruned,
            rehearsed,
            Outcome(
                low_watermark,
                horizon,
                limits.first_timestamp,
                list(dict.fromkeys((*behind, *pruned.obstacles))),
            ),
            self.watermarks,
            self.clock,
            is_dry_run=self.options.is_dry_run,
            began_s=self.began_s,
        )
        asked = [AskedReport.of(question) for question in self.questions]
        report = msgspec.structs.replace(report, asked=asked, knows_snapshots=self.knows_snapshots)
        self.journal.end(report=self.counted(report, limits, rehearsed))
