"""Which ranges shall a run pass over?  One task for each, first by regions, then by what is left.

Regions are only how the work is divided.  What a second list of tables shows that no task has tried
is passed over too: tables that appeared or were made anew, rows, and families that were marked
meanwhile.  What is found only then is read whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compactor.horizon import claims_by_table, common, overlaps, relevant, uncovered
from compactor.options import Options
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.ranges.spans import PastPasses
from compactor.tables.ownership import Standing, TableStanding, owned
from omidpy.errors import NoSuchTable, StorageError
from omidpy.facts.watermarks import Claim
from omidpy.model import KeyRange
from omidpy.storage.base import Store


def region_tasks(
    store: Store, standings: Iterable[TableStanding], options: Options, base_task: RangeTask
) -> list[RangeTask]:
    """Return one task for each region of each table that a run scans.

    Cost: 1 RPC a table.
    """
    tasks: list[RangeTask] = []
    for standing in scanned(standings, options):
        try:
            regions = store.regions(standing.name)
        except NoSuchTable:
            # Dropped since it was listed; the second listing will not have it.
            continue
        except StorageError:
            # One pass over all of it finds out what is wrong, and says so.
            regions = [KeyRange()]
        tasks += [_task(base_task, standing, region) for region in regions]
    return tasks


def narrowed(tasks: Sequence[RangeTask], past: PastPasses, options: Options) -> list[RangeTask]:
    """Return tasks that read no more than what earlier claims leave to be read.

    Args:
        tasks: They read everything.
        past: What earlier passes have claimed of these very tables.
        options: Whether everything shall be read, and how often.
    """
    if options.should_collect or options.should_collect_foreign:
        return list(tasks)
    return [
        replace(
            task,
            span=past.span(
                task.table,
                task.key_range,
                drop_horizon=task.drop_horizon,
                collect_every=options.collect_every,
            ),
        )
        for task in tasks
    ]


def missed_tasks(
    standings: Sequence[TableStanding],
    options: Options,
    base_task: RangeTask,
    results: Iterable[RangeResult],
    claimed: Iterable[Claim] = (),
) -> list[RangeTask]:
    """Return tasks for rows and families that no result speaks of.

    Args:
        standings: The tables as listed again.
        options: Which of them the run scans.
        base_task: What is the same for every task.
        results: What was tried; one with an obstacle is not tried again.
        claimed: What this run has claimed already, before its driver was killed.
    """
    tries = [_attempt(result.task) for result in results]
    attempts, _ = relevant([*tries, *claimed], owned(standings))
    tried = claims_by_table(attempts)
    return [
        _task(base_task, standing, segment.key_range)
        for standing in scanned(standings, options)
        for segment in uncovered(tried.get(standing.name, ()), below=1)
    ]


def unclaimed(
    tasks: Iterable[RangeTask], standings: Iterable[TableStanding], claimed: Iterable[Claim]
) -> list[RangeTask]:
    """Return what is left of tasks whose run has claimed some rows before its driver was killed.

    Args:
        tasks: Those of the whole run.
        standings: The tables as they are.
        claimed: What it has claimed, with its own L.
    """
    whole = claims_by_table(relevant(claimed, owned(standings))[0])
    return [
        replace(task, key_range=common(task.key_range, segment.key_range))
        for task in tasks
        for segment in uncovered(whole.get(task.table, ()), below=task.low_watermark)
        if overlaps(task.key_range, segment.key_range)
    ]


def scanned(standings: Iterable[TableStanding], options: Options) -> list[TableStanding]:
    """Return the tables of ours that the options choose."""
    return [
        standing
        for standing in standings
        if standing.standing is Standing.OWNED and options.scans(standing.name)
    ]


def _task(base_task: RangeTask, standing: TableStanding, key_range: KeyRange) -> RangeTask:
    return replace(
        base_task,
        table=standing.name,
        key_range=key_range,
        families=standing.families,
        incarnation=standing.incarnation,
        doubtful=standing.doubtful,
    )


def _attempt(task: RangeTask) -> Claim:
    """Describe the rows of a task as a claim, for interval arithmetic."""
    families = tuple(sorted(task.families))
    return Claim(task.table, *task.key_range, 1, 0, families, incarnation=task.incarnation)
