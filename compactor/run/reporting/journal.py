"""A run's own record: that it began, what it had to say, and how it ended.

`omidpy compact history` shows the newest of them.  A dry run says its notes and records nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from compactor.ranges.progress import Progress
from compactor.ranges.range_pass import OnStep
from compactor.report import Report, RunLog, RunRecord, new_run
from omidpy.base.timing.clock import Clock
from omidpy.base.words.printable import storable
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
    ) -> None:
        """Begin without a record; see `begin`, which a dry run does not call."""
        self._runs = RunLog(control, clock.wall_ms)
        self._clock = clock
        self._progress = progress
        self._on_step = on_step
        self._written: bytes | None = None
        self._record = new_run(now_ms=clock.wall_ms())
        self._notes: list[str] = []
        self.foreign_cells = 0
        self.report: Report | None = None
        """What it has ended with."""

    @property
    def run_id(self) -> str:
        """The name of this run, which no other has."""
        return self._record.run_id

    def earlier_runs(self) -> list[RunRecord]:
        """Return the runs on record besides this one, oldest first.  Cost: 1 scan."""
        return [run for run in self._runs.runs() if run.run_id != self.run_id]

    def note(self, text: str) -> None:
        """Say something that the report has no key for."""
        self._notes.append(text)
        self._progress.note(text)

    def begin(self, *, operation: str) -> None:
        """Record that a run has begun, carried out as `operation`."""
        self._record = msgspec.structs.replace(self._record, operation=operation)
        self._written = self._runs.write(self._record)
        self._on_step("run-recorded")

    def continued(self, record: RunRecord) -> RunRecord:
        """Return what the record of a run that was killed becomes while this process goes on."""
        return msgspec.structs.replace(
            record,
            host=self._record.host,
            pid=self._record.pid,
            ended_ms=None,
            error=None,
            resumed_count=record.resumed_count + 1,
        )

    def go_on(self, record: RunRecord, written: bytes) -> None:
        """Become the record of a run that was killed, to which its own driver writes no more.

        Args:
            record: As it is now.
            written: The same, as it was written.
        """
        self._record, self._written = record, written
        self._notes = [*record.notes, *self._notes]

    def end(self, *, report: Report | None = None, error: str | None = None) -> None:
        """Record how the run ended, unless another driver has taken its record over."""
        self.report = report
        if self._written is None:
            return
        self._record = msgspec.structs.replace(
            self._record,
            ended_ms=self._clock.wall_ms(),
            error=None if error is None else storable(error),
            report=report,
            foreign_cells=self.foreign_cells,
            notes=tuple(self._notes),
        )
        self._written = self._runs.replace(self._written, self._record)
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
