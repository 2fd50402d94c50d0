"""What is a pass over a range of rows told, and what does it tell?  Two values.

The task says everything that a pass needs besides the store, so that it can travel to a worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from compactor.pacing import UNPACED, Pacing
from compactor.ranges.spans import WHOLE, Span
from compactor.rows.heal import Scope
from omidpy.facts.tables.plain_versions import NO_VERSIONS, PlainVersions
from omidpy.facts.tables.sightings import NO_DOUBT
from omidpy.facts.watermarks import Claim
from omidpy.model import MAX_VERSION, KeyRange, Timestamp


@dataclass(frozen=True, slots=True)
class RangeTask:
    """A range to pass over, and what its cells are judged by."""

    table: str
    key_range: KeyRange
    families: frozenset[bytes]
    low_watermark: int
    first_timestamp: int
    drop_horizon: int
    commit_table: str
    plain: PlainVersions = NO_VERSIONS
    """Versions that writers without transactions use."""
    is_dry_run: bool = False
    run: str = ""
    """Who sends it: the run that its claim is dated by."""
    newest: int = MAX_VERSION
    """No commit timestamp can be above it."""
    incarnation: str = ""
    """Which table of its name was listed, and since when it is what it is."""
    doubtful: int = NO_DOUBT
    """Of versions at or below it absence of a commit proves nothing."""
    pacing: Pacing = UNPACED
    """How fast it may be read, and until when."""
    span: Span = WHOLE
    """Which of its versions are read."""
    collects_foreign: bool = False
    """Cells from before the oracle are judged by their shadow cells."""

    def scope(self) -> Scope:
        """Return which cells may be judged."""
        return Scope(
            self.families,
            self.low_watermark,
            self.first_timestamp,
            self.drop_horizon,
            self.plain,
            self.newest,
            self.span.is_collecting,
            self.collects_foreign,
        )


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What a pass did."""

    task: RangeTask
    rows_read: int = 0
    cells_read: int = 0
    bytes_read: int = 0
    """Keys and values."""
    seconds: float = 0.0
    cells_healed: int = 0
    transactions_invalidated: int = 0
    cells_dropped: int = 0
    bytes_dropped: int = 0
    foreign_cells: int = 0
    unseen_cells: int = 0
    """Cells without a transaction, which no snapshot sees until the table is adopted again."""
    rows_sifted: int = 0
    """Of those that were read, rows of which the store told that they are clean."""
    claim: Claim | None = None
    """What was claimed, or would have been in a dry run; None if the range is not healed."""
    obstacle: str = ""
    """Why there is no claim, and what to do about it."""
    forbidden: frozenset[Timestamp] = frozenset()
    """In a dry run, the transactions that would have been invalidated: other ranges may name them
    too, and they may be pruned in the same run."""
