"""Which rows hold the horizon back, and why?

Pure: what is known of the tables, the claims and what this run met in; one laggard for each stretch
of rows below L out, with the reason an operator can act upon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from compactor.horizon import HOLE, claims_by_table, common, overlaps, uncovered
from compactor.options import Options
from compactor.ranges.range_task import RangeResult
from compactor.report import Laggard, RunRecord
from compactor.tables.ownership import Standing, TableStanding
from omidpy.facts.watermarks import Claim
from omidpy.model import KeyRange

NOT_SCANNED: Final = "not scanned since; run `omidpy compact`"
"""What is said of rows behind of which nothing else is known."""


def laggards(
    standings: Iterable[TableStanding],
    claims: Iterable[Claim],
    results: Sequence[RangeResult],
    *,
    low_watermark: int,
    options: Options,
) -> list[Laggard]:
    """Return the rows whose watermark is below L, whatever their claims' age.

    Args:
        standings: Every table of the store.
        claims: Every claim on record.
        results: What this run's passes came to.
        low_watermark: L.
        options: Which tables this run scanned.
    """
    by_table = claims_by_table(claims)
    found: list[Laggard] = []
    for standing in standings:
        name = standing.name
        if standing.reason:
            found.append(Laggard.of(name, KeyRange(), watermark=HOLE, reason=standing.reason))
        if standing.standing is not Standing.OWNED:
            continue
        for key_range, watermark in uncovered(by_table.get(name, ()), below=low_watermark):
            parts = (
                _obstacles(results, name, key_range)
                if options.scans(name)
                else [(key_range, _left_out(options, name))]
            )
            found += [
                Laggard.of(name, part, watermark=watermark, reason=reason) for part, reason in parts
            ]
    return found


def _obstacles(
    results: Iterable[RangeResult], table: str, key_range: KeyRange
) -> list[tuple[KeyRange, str]]:
    """Return what kept this run from claiming rows that it meant to scan, each with its rows."""
    found: list[tuple[KeyRange, str]] = []
    met = [result for result in results if result.obstacle and result.task.table == table]
    for result in sorted(met, key=lambda result: result.task.key_range.start):
        rows, reason = result.task.key_range, result.obstacle
        if not overlaps(rows, key_range):
            continue
        part = common(rows, key_range)
        if found and found[-1][1] == reason and found[-1][0].end == part.start:
            # A table of many regions that is disabled has one obstacle.
            found[-1] = (KeyRange(found[-1][0].start, part.end), reason)
        elif (part, reason) not in found:
            found.append((part, reason))
    return found or [(key_range, "appeared during the run; the next will scan it")]


def _left_out(options: Options, table: str) -> str:
    if table in options.resting:
        return options.resting[table]
    if table in options.exclude:
        return "left out by --exclude; run again without it"
    return "not among --tables; run again without it"


# -- between two runs ------------------------------------------------------------------------------


def known_reasons(runs: Sequence[RunRecord], behind: Iterable[Laggard]) -> list[Laggard]:
    """Return rows behind with what the last run met in them, where nothing later is known.

    Running it again helps against nothing that it has met.

    Args:
        runs: Those on record, oldest first.
        behind: Rows behind; those that are said to be `NOT_SCANNED` get another reason.
    """
    last = runs[-1] if runs else None
    ended = next((run for run in reversed(runs) if run.report is not None), None)
    met = [] if ended is None or ended.report is None else list(ended.report.laggards)
    found: list[Laggard] = []
    for one in behind:
        if one.reason != NOT_SCANNED:
            found.append(one)
            continue
        rows = _rows(one)
        parts = [other for other in met if other.table == one.table]
        parts = [other for other in parts if overlaps(_rows(other), rows)]
        if ended is not None:
            reason = f"(as the run of {_moment(ended.started_ms)} has found)"
            found += [
                _part(one, common(_rows(other), rows), f"{other.reason} {reason}")
                for other in parts
            ]
        otherwise = _of_run(last) if last is not None and last.report is None else one.reason
        known = [Claim(one.table, *_rows(other), 1, 0) for other in parts]
        found += [
            _part(one, common(rest.key_range, rows), otherwise)
            for rest in uncovered(known, below=1)
            if overlaps(rest.key_range, rows)
        ]
    return found


def _of_run(last: RunRecord) -> str:
    """Say what became of a run that has no report."""
    of = f"the run of {_moment(last.started_ms)}"
    if last.error is not None:
        return f"not scanned since: {of} has failed: {last.error}"
    return (
        f"not scanned since: {of} is at work, or was killed (process {last.pid} on {last.host}); "
        "`omidpy compact --resume` goes on with it"
    )


def _part(laggard: Laggard, rows: KeyRange, reason: str) -> Laggard:
    return Laggard.of(laggard.table, rows, watermark=laggard.watermark, reason=reason)


def _moment(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _rows(laggard: Laggard) -> KeyRange:
    return KeyRange(bytes.fromhex(laggard.start), bytes.fromhex(laggard.end))
