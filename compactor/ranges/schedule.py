"""Which tables come first, and which are not due?  What tables ask for, and what a run was told.

Pure: the tables' settings, the claims on record and the date in; an order of ranges and a list of
tables to leave out.  A schedule decides when work is done and never what counts: a table that is
left out holds the horizon at its last claims, and says so as a laggard.

The retention of a table is no number of its own.  A snapshot reads every table, and one horizon
tells readers what they may still read; so the longest retention of any table of ours holds for all,
and no table drops what a snapshot that is let in needs (I10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from compactor.horizon import claims_by_table, coverage, overlaps, relevant
from compactor.options import Options
from compactor.pacing import Pacing
from compactor.ranges.range_task import RangeTask
from compactor.tables.ownership import Standing, TableStanding, owned
from omidpy.base.schema.table_settings import (
    ATTRIBUTES,
    DEFAULT_SETTINGS,
    TableSettings,
    setting_attributes,
    settings_of,
)
from omidpy.facts.watermarks import Claim

EARLY: Final = 0.1
"""A table is due so much of its time before it is over: a nightly run, which never starts to the
second, finds one of `every=1d` due each night."""

_RUN_DIGITS: Final = 20
"""A run's id begins with the wall time at which it started."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is done when, in one run."""

    settings: Mapping[str, TableSettings] = field(default_factory=dict)
    """Of tables of ours."""
    resting: Mapping[str, str] = field(default_factory=dict)
    """Tables that are not due, and why."""
    complaints: Sequence[str] = ()
    """What cannot be read of what tables ask for."""
    claims: Mapping[str, Sequence[Claim]] = field(default_factory=dict)
    """What earlier runs claimed of tables of ours as they are."""
    began_ms: int = 0
    """The date, from which windows are reckoned."""

    def of(self, table: str) -> TableSettings:
        """Return what a table asks for."""
        return self.settings.get(table, DEFAULT_SETTINGS)

    def retention_s(self, of_run: float) -> float:
        """Return how far back snapshots stay readable: as the run says, or a table, if longer."""
        return max([of_run, *(one.retention_s for one in self.settings.values())])

    def edges(self) -> dict[str, list[bytes]]:
        """Return, by table, the keys at which ranges of earlier runs meet."""
        return {
            table: sorted({edge for claim in claims for edge in claim.key_range if edge})
            for table, claims in self.claims.items()
        }

    def paced(self, tasks: Iterable[RangeTask]) -> list[RangeTask]:
        """Return ranges that take no more than their tables allow, nor than the run may."""
        return [replace(task, pacing=self._pacing(task)) for task in tasks]

    def _pacing(self, task: RangeTask) -> Pacing:
        asked = self.of(task.table)
        ends_ms = None if asked.until is None else asked.until.ends_ms(self.began_ms)
        slower = task.pacing.at_most(asked.max_rows_per_s, asked.max_bytes_per_s)
        return slower.until(ends_ms, whose=f"table {task.table}")

    def ordered(self, tasks: Iterable[RangeTask]) -> list[RangeTask]:
        """Return ranges in the order in which they are begun.

        Those of tables with higher priority come first, and among them those that are healed least
        far, such as what the last run's window left.
        """
        healed = {table: coverage(claims) for table, claims in self.claims.items()}

        def place(task: RangeTask) -> tuple[int, int]:
            segments = healed.get(task.table, ())
            least = min(
                (
                    segment.watermark
                    for segment in segments
                    if overlaps(segment.key_range, task.key_range)
                ),
                default=0,
            )
            return -self.of(task.table).priority, least

        return sorted(tasks, key=place)


def schedule(
    standings: Sequence[TableStanding], claims: Iterable[Claim], options: Options, *, now_ms: int
) -> Schedule:
    """Settle what is done when.

    Args:
        standings: Every table of the store.
        claims: Every claim on record.
        options: `--table-option` goes before what tables say; what `--tables` names is due.
        now_ms: The date, as runs are named by it.
    """
    settings: dict[str, TableSettings] = {}
    resting: dict[str, str] = {}
    complaints: list[str] = []
    by_table = claims_by_table(relevant(claims, owned(standings))[0])
    for one in standings:
        if one.standing is not Standing.OWNED:
            continue
        told = setting_attributes(one.name, options.table_options.get(one.name, {}))
        found, wrong = settings_of(one.name, {**one.settings, **told})
        settings[one.name] = found
        complaints += wrong
        if options.tables is not None or not found.every_s:
            continue
        passed_ms = _passed_ms(by_table.get(one.name, ()))
        if 0 <= now_ms - passed_ms < found.every_s * 1000 * (1 - EARLY):
            text = {**one.settings, **told}[ATTRIBUTES["every"]]
            hours = (now_ms - passed_ms) / 3_600_000
            resting[one.name] = (
                f"left out by its every={text}, since a run passed over it {hours:.1f} h ago; "
                f"name it with --tables to have it done now"
            )
    return Schedule(settings, resting, complaints, by_table, now_ms)


def _passed_ms(claims: Iterable[Claim]) -> int:
    """Return when the run began that passed over a table's rows; the earliest if there are several.

    0 if some row was never passed over, or it is not known when.
    """
    dated = [
        msgspec.structs.replace(claim, watermark=int(claim.run[:_RUN_DIGITS]))
        for claim in claims
        if claim.run[:_RUN_DIGITS].isdecimal()
    ]
    return min(segment.watermark for segment in coverage(dated))
