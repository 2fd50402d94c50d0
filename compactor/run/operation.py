"""A run is one operation, whose steps another driver can go on with: their order, and what lasts.

    ListTables      list, record that the run has begun, publish the collection horizon
    PassOver        pass over every range of ours; list again, and pass over what was missed
    FindHorizon     the minimum over the whole key space; ask every place that no pass goes over
    RaiseHorizon    the pivot: from here on it only rolls forward
    Prune           one round of slices; again with what is left, until nothing is
    WriteReport     forget what is useless by now, and say what was done

What a step needs to know of those before it is in its fields, as far as it cannot be found out
anew: L, the horizon of old versions, the limits, the slices that are left.  Claims and tables are
read again.  What a step does is a method of `Work`; `plan.py` has them, and says why the order is
the proof.

A step may be called again by a driver that finds it done in part:

    passes are true whichever task makes them; ranges that this run has claimed are left out
    the horizon, once it is to be raised, was proven; raised twice it stays where it is
    a slice that was pruned has nothing left that may go
    before a slice is pruned by another driver, or by the same driver later, every place is asked
    again: what has appeared since ends the pruning, and is reported

The tasks of a driver that was killed may go on in Spark for a while.  Those that pass do no harm,
for the same reason; those that prune stop when another run has taken the lease (`lease.py`), and
delete what it would delete until then, below a horizon that is durable.

Only a driver has what these steps need, and `driver.py` carries them out.  Any other executor of
the store waits for one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from compactor.pruning.prune import PruneLimits
from compactor.pruning.slices import Pruning
from compactor.report import RunRecord
from compactor.run.lease import PruneLease
from compactor.run.reporting.journal import Journal
from omidpy.fate.step import Answer, Defer, Done, Step, StepContext, step
from omidpy.model import Timestamp

NAMESPACE: Final = "compaction"
KIND: Final = "COMPACTION"
"""What `omidpy fate list` calls it."""

NO_DRIVER_S: Final = 60.0
"""How long another executor of the store leaves such an operation alone."""


class KeptLimits(NamedTuple):
    """`PruneLimits`, as a step keeps them."""

    first_timestamp: int
    horizon: int
    invalidation_horizon: int
    asked: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, limits: PruneLimits) -> KeptLimits:
        """Return limits in the form that a step is stored in."""
        return cls(
            limits.first_timestamp,
            limits.horizon,
            limits.invalidation_horizon,
            tuple((stretch.start, stretch.stop) for stretch in limits.asked),
        )

    def limits(self) -> PruneLimits:
        """Return the limits as a pass takes them."""
        return PruneLimits(
            Timestamp(self.first_timestamp),
            Timestamp(self.horizon),
            Timestamp(self.invalidation_horizon),
            [range(*stretch) for stretch in self.asked],
        )


@dataclass(frozen=True, slots=True)
class Listing:
    """What may be forgotten, as the step that looks for the horizon has found."""

    limits: PruneLimits
    pruning: Pruning
    """What is to be gone through."""
    is_news: bool
    """Whether there is anything to raise, or to go through."""


class Work(ABC):
    """What the steps do.  Each may be called again, by another driver too."""

    context: StepContext | None = None
    """Whom to tell how far a step is."""
    error: Exception | None = None
    """What a step has raised: its driver ends the operation, or leaves it."""
    lease: PruneLease | None = None
    """The right to prune; None in a dry run, which does not."""
    journal: Journal

    @abstractmethod
    def begin(self) -> Timestamp:
        """Refuse what cannot be compacted, before anything is written; return L."""

    @abstractmethod
    def continue_run(self, record: RunRecord, written: bytes) -> None:
        """Become a run that was killed."""

    @abstractmethod
    def elder(self, record: RunRecord, written: bytes) -> Work:
        """Return what does the rest of a run that was killed, beside this one."""

    @abstractmethod
    def list_tables(self) -> None:
        """List the tables, and record that the run has begun."""

    @abstractmethod
    def settle(self, low_watermark: Timestamp) -> Timestamp:
        """Publish a collection horizon, and return the one to act on."""

    @abstractmethod
    def pass_over_tables(self, low_watermark: Timestamp, drop_horizon: Timestamp) -> None:
        """Have everything passed over that this run has not claimed yet."""

    @abstractmethod
    def find_horizon(self, low_watermark: Timestamp, drop_horizon: Timestamp) -> Listing:
        """Find what may be forgotten, and ask every place that no pass goes over."""

    @abstractmethod
    def raise_horizon(self, limits: PruneLimits) -> None:
        """Raise the prune horizon durably."""

    @abstractmethod
    def prune_round(self, limits: PruneLimits, before: Pruning) -> Pruning:
        """Go on with every slice that is left, once."""

    @abstractmethod
    def write_report(self, low_watermark: Timestamp, limits: PruneLimits, pruning: Pruning) -> None:
        """Forget what is useless, and record what the run has done."""


class CompactionStep(Step):
    """A step of a run."""

    low_watermark: int

    def ready(self, tx: StepContext, env: Any) -> Defer | None:
        """Wait for a driver."""
        del tx
        if isinstance(env, Work):
            return None
        return Defer(NO_DRIVER_S, "the next `omidpy compact`, or the Spark job, goes on with it")

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Do the step, and keep what it raises for the driver, who is asked what went wrong."""
        work: Work = env
        work.context = tx
        try:
            return self.do(work)
        except Exception as error:
            work.error = error
            raise

    @abstractmethod
    def do(self, work: Work) -> Answer:
        """Do what the step is named for; return the next one."""

    @property
    def watermark(self) -> Timestamp:
        """L, the low watermark of the run."""
        return Timestamp(self.low_watermark)


@step(version=1, namespace=NAMESPACE)
class ListTables(CompactionStep):
    """Finds out what there is, once L is known."""

    low_watermark: int

    def do(self, work: Work) -> Answer:
        """List, and settle which versions may go."""
        work.list_tables()
        return PassOver(self.low_watermark, work.settle(self.watermark))


@step(version=1, namespace=NAMESPACE)
class PassOver(CompactionStep):
    """Heals, drops and claims."""

    low_watermark: int
    drop_horizon: int

    def do(self, work: Work) -> Answer:
        """Pass over every range of ours."""
        work.pass_over_tables(self.watermark, Timestamp(self.drop_horizon))
        return FindHorizon(self.low_watermark, self.drop_horizon)


@step(version=1, namespace=NAMESPACE)
class FindHorizon(CompactionStep):
    """Finds out what may be forgotten."""

    low_watermark: int
    drop_horizon: int

    def do(self, work: Work) -> Answer:
        """Take the minimum, and ask."""
        found = work.find_horizon(self.watermark, Timestamp(self.drop_horizon))
        limits = KeptLimits.of(found.limits)
        if not found.is_news:
            return WriteReport(self.low_watermark, limits, found.pruning)
        return RaiseHorizon(self.low_watermark, limits, found.pruning)


# The pivot: entries may go once the horizon is raised, and nothing brings them back.
@step(version=1, namespace=NAMESPACE, pivot=True)
class RaiseHorizon(CompactionStep):
    """Announces what is about to be forgotten."""

    low_watermark: int
    limits: KeptLimits
    pruning: Pruning

    def do(self, work: Work) -> Answer:
        """Raise the prune horizon, up to the least region watermark (I7)."""
        work.raise_horizon(self.limits.limits())
        if not self.pruning.rests:
            return WriteReport(self.low_watermark, self.limits, self.pruning)
        return Prune(self.low_watermark, self.limits, self.pruning)


@step(version=1, namespace=NAMESPACE)
class Prune(CompactionStep):
    """Forgets, slice by slice, what the horizon lets go."""

    low_watermark: int
    limits: KeptLimits
    pruning: Pruning

    def do(self, work: Work) -> Answer:
        """Go on with what is left, once."""
        pruning = work.prune_round(self.limits.limits(), self.pruning)
        if pruning.rests:
            return self.again(pruning=pruning)
        return WriteReport(self.low_watermark, self.limits, pruning)


@step(version=1, namespace=NAMESPACE)
class WriteReport(CompactionStep):
    """Writes the run's report, and ends the run."""

    low_watermark: int
    limits: KeptLimits
    pruning: Pruning

    def do(self, work: Work) -> Answer:
        """Clean up, and say what was done."""
        work.write_report(self.watermark, self.limits.limits(), self.pruning)
        return Done()
