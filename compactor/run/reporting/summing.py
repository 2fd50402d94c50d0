"""The report of a run, from what its tasks came to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from compactor.lag import TimestampAges, holds_of
from compactor.pruning.slices import Pruned
from compactor.ranges.range_task import RangeResult
from compactor.report import Laggard, RangeReport, Report, TableReport
from compactor.run.rehearsal import Rehearsed
from omidpy.base.timing.ages import Ages
from omidpy.base.timing.clock import Clock
from omidpy.facts.watermarks import Watermarks
from omidpy.model import Timestamp

SLOWEST: Final = 3
"""Ranges of a table that are named."""


class Outcome(NamedTuple):
    """What a run has come to beside its counts."""

    low_watermark: Timestamp
    horizon: Timestamp
    first_timestamp: int
    laggards: Sequence[Laggard]


def summed(
    results: Sequence[RangeResult],
    pruned: Pruned,
    rehearsed: Rehearsed,
    outcome: Outcome,
    watermarks: Watermarks,
    clock: Clock,
    *,
    is_dry_run: bool,
    began_s: float,
) -> Report:
    """Return the report of a run.

    Cost: 2 scans of the control table.
    """
    samples = watermarks.samples()
    ages = TimestampAges(samples, now_ms=clock.wall_ms())
    floor = max(outcome.horizon, outcome.first_timestamp)
    tables = by_table(results)
    return Report(
        rows_read=sum(result.rows_read for result in results),
        cells_read=sum(result.cells_read for result in results),
        cells_healed=sum(result.cells_healed for result in results),
        transactions_invalidated=(
            len(rehearsed.forbidden)
            if is_dry_run
            else sum(result.transactions_invalidated for result in results)
        ),
        cells_dropped=sum(result.cells_dropped for result in results),
        entries_pruned=pruned.entries,
        invalidations_pruned=pruned.invalidations,
        low_watermark=outcome.low_watermark,
        horizon=outcome.horizon,
        bytes_dropped=sum(table.bytes_dropped for table in tables),
        ranges=sum(bool(result.task.families) for result in results),
        ranges_whole=sum(
            bool(result.task.families) and result.task.span.is_whole for result in results
        ),
        quick=why_quick(results),
        tables=tables,
        low_watermark_age_s=ages.age_s(outcome.low_watermark),
        horizon_age_s=ages.age_s(outcome.horizon),
        holds=holds_of(watermarks, Ages(clock, samples)),
        laggards=[ages.dated(one, floor=floor) for one in outcome.laggards],
        dry_run=is_dry_run,
        seconds=round(clock.monotonic_s() - began_s, 3),
    )


def why_quick(results: Sequence[RangeResult]) -> str:
    """Say why passes had nothing to judge; empty if they had, if one was hindered, or none was."""
    passes = [one for one in results if one.task.families]
    rows = sum(one.rows_read for one in passes)
    if not passes or any(one.obstacle for one in passes):
        return ""
    if not rows:
        return "nothing to heal: no cell was found that the claims of earlier runs do not speak of"
    if rows != sum(one.rows_sifted for one in passes):
        return ""
    return (
        f"nothing to heal: in all {rows:,} rows each cell has its shadow cell and one version, as "
        "the store told without handing them out"
    )


def slowest(results: Sequence[RangeResult]) -> list[RangeReport]:
    """Return the ranges that took longest, the longest first; none if there is only one."""
    if len(results) == 1:
        return []
    longest = sorted(results, key=lambda one: one.seconds, reverse=True)[:SLOWEST]
    return [
        RangeReport(
            one.task.key_range.start.hex(),
            one.task.key_range.end.hex(),
            round(one.seconds, 3),
            one.rows_read,
        )
        for one in longest
    ]


def by_table(results: Iterable[RangeResult]) -> list[TableReport]:
    """Return what was done to each table, by name."""

    def name(result: RangeResult) -> str:
        return result.task.table

    found = []
    for table, group in groupby(sorted(results, key=name), key=name):
        of_table = [one for one in group if one.task.families]
        if of_table:
            found.append(
                TableReport(
                    table,
                    sum(one.rows_read for one in of_table),
                    sum(one.cells_healed for one in of_table),
                    sum(one.cells_dropped for one in of_table),
                    sum(one.bytes_dropped for one in of_table),
                    ranges=len(of_table),
                    cells_read=sum(one.cells_read for one in of_table),
                    bytes_read=sum(one.bytes_read for one in of_table),
                    seconds=round(sum(one.seconds for one in of_table), 3),
                    slowest=slowest(of_table),
                )
            )
    return found
