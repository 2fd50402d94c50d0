"""A run's own record: that it began, what it had to say, and how it ended.

`omidpy compact history` shows the newest of them.  A dry run says its notes and records nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from compactor.environment import Progress
from compactor.range_pass import OnStep
from compactor.report import Report, RunLog, RunRecord, new_run
from omidpy.base.clock import Clock
from omidpy.facts.control import ControlTable

DAY_MS: Final = 86_400_000


class Journal:
    """What one run tells and remembers."""

    def __init__(
        self,
        control: ControlTable,
        clock: Clock,
        progress: Progress,
        on_step: OnStep,
        *,
        is_dry_run: bool,
    ) -> None:
        """Begin without a record; see `begin`."""
        self._runs = RunLog(control)
        self._clock = clock
        self._progress = progress
        self._on_step = on_step
        self._is_recorded = False
        self._is_dry_run = is_dry_run
        self._record = new_run(now_ms=clock.wall_ms())
        self._notes: list[str] = []
        self.foreign_cells = 0
        self.earlier_runs: Sequence[RunRecord] = ()
        """Those on record when this one began, oldest first."""

    @property
    def run_id(self) -> str:
        """The name of this run, which no other has."""
        return self._record.run_id

    def note(self, text: str) -> None:
        """Say something that the report has no key for."""
        self._notes.append(text)
        self._progress.note(text)

    def begin(self) -> None:
        """Record that a run has begun, and say so if another has not ended."""
        runs = self.earlier_runs = self._runs.runs()
        if runs and runs[-1].ended_ms is None:
            other = runs[-1]
            self.note(
                f"run {other.run_id} (pid {other.pid} on {other.host}) has not ended: it is still "
                "at work or was killed, and both are harmless"
            )
        if not self._is_dry_run:
            self._runs.write(self._record)
            self._is_recorded = True
        self._on_step("run-recorded")

    def end(self, *, report: Report | None = None, error: str | None = None) -> None:
        """Record how the run ended."""
        if not self._is_recorded:
            return
        self._record = msgspec.structs.replace(
            self._record,
            ended_ms=self._clock.wall_ms(),
            error=error,
            report=report,
            foreign_cells=self.foreign_cells,
            notes=tuple(self._notes),
        )
        self._runs.write(self._record)
        self._on_step("run-ended")

    def growth_a_day(self, entries: int) -> float | None:
        """Return how many more entries there are than after the last run that counted them, a day.

        None if there is none, or it was only just.
        """
        for run in reversed(self._runs.runs()):
            if run.report is None or run.ended_ms is None or run.report.entries_left is None:
                continue
            elapsed_ms = self._clock.wall_ms() - run.ended_ms
            if elapsed_ms <= 0:
                return None
            return (entries - run.report.entries_left) * DAY_MS / elapsed_ms
        return None

    def thin(self) -> None:
        """Forget old records."""
        self._runs.thin()
