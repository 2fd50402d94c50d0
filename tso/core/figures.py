"""Count what was decided, by reason, in the metrics of the oracle."""

from __future__ import annotations

from omidpy.base.reach import reached
from omidpy.base.telemetry.metrics import Metrics
from tso.core.answers import ABORT_RATE, ABORT_TOO_LARGE
from tso.core.engine import ABORT_CONFLICT, ABORT_FENCE, ABORT_LOW_WATERMARK


class Figures:
    """What a machine decided: told at once where it is seldom, once a turn where it is not."""

    def __init__(self, metrics: Metrics) -> None:
        """Begin with nothing to tell."""
        self.metrics = metrics
        self.run_count = 0
        """How many runs were not told yet."""
        self._begins = self._commits = self._aborts = 0

    def add_run(self, begins: int, commits: int, aborts: int) -> None:
        """Note what a run decided; `tell` tells it."""
        self.run_count += 1
        self._begins += begins
        self._commits += commits
        self._aborts += aborts

    def tell(self) -> None:
        """Tell what runs decided: once for all of a turn, since telling costs more than a run."""
        if self._begins:
            self.metrics.count("tso.timestampAllocation", self._begins)
        if self._commits:
            self.metrics.count("tso.commits", self._commits)
        if self._aborts:
            self.metrics.count("tso.aborts", self._aborts)
        self.run_count = self._begins = self._commits = self._aborts = 0

    def refused(self, verdict: int) -> None:
        """Tell that a commit was refused, and why."""
        self.metrics.count("tso.aborts")
        if verdict == ABORT_CONFLICT:
            self.metrics.count("tso.aborts.conflict")
        elif verdict == ABORT_LOW_WATERMARK:
            reached("oracle.snapshot_too_old", "I4")
            self.metrics.count("tso.aborts.lowWatermark")
        elif verdict == ABORT_FENCE:
            reached("oracle.fenced", "I9")
            self.metrics.count("tso.aborts.fence")
        elif verdict == ABORT_TOO_LARGE:
            self.metrics.count("tso.aborts.tooLarge")
        elif verdict == ABORT_RATE:
            self.metrics.count("tso.rates.refused")
