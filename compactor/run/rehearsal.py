"""What a run that writes nothing must add, to say what one would do that writes.

Passes forbid commits, and what they wrote is pruned with the rest if the graces allow.  A dry run
finds the commit table as it was; so the transactions that its passes would have forbidden are taken
into account by name, each once, however many ranges it left cells in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from compactor.pruning.prune import PruneLimits
from compactor.pruning.slices import Pruned
from compactor.ranges.range_task import RangeResult
from omidpy.base.commit_facts import INVALID
from omidpy.facts.commit_table import EntryRow
from omidpy.model import Timestamp


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What passes would have written to the commit table; empty unless it is a dry run."""

    forbidden: frozenset[Timestamp]

    @classmethod
    def of(cls, results: Iterable[RangeResult]) -> Self:
        """Return what the passes of a run would have written."""
        return cls(frozenset[Timestamp]().union(*(result.forbidden for result in results)))

    def old_enough(self, limits: PruneLimits) -> list[Timestamp]:
        """Return the transactions whose invalidation could go as soon as it is there."""
        return [one for one in self.forbidden if limits.is_old_enough(_invalidation(one))]

    def corrected(self, pruned: Pruned, limits: PruneLimits) -> Pruned:
        """Return how many invalidations would go."""
        more = sum(limits.may_prune(_invalidation(one)) for one in self.forbidden)
        return replace(pruned, invalidations=pruned.invalidations + more)


def _invalidation(start_ts: Timestamp) -> EntryRow:
    return EntryRow(start_ts, INVALID)
