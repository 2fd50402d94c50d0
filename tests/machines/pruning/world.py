"""Which world is searched: its setting, its actors, and the one thing that is done wrong in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, StrEnum, auto


class Setting(StrEnum):
    """How the oracle writes commit entries."""

    REGULAR = "regular"
    """The low watermark is raised only once earlier decisions are durable."""
    ZOMBIE = "zombie"
    """A new oracle raises it while an entry of the old one is still under way."""
    LOW_LATENCY = "low latency"
    """The client writes its own entry, whenever it comes to it, where no `IT` stands."""


class Mutation(Flag):
    """Ways to get the protocol wrong; docs/explanation/pruning-checks.md says which breaks what."""

    NONE = 0
    # The order of a pass.
    WATERMARK_AFTER_SCAN = auto()
    NO_INVALIDATION = auto()
    SHADOW_BEFORE_ENTRY = auto()
    DROP_BEFORE_INVALIDATION = auto()
    NO_SECOND_LOOK = auto()
    INVALIDATION_IS_FINAL = auto()
    CLAIM_BEFORE_HEALS = auto()
    RAW_VERSIONS = auto()
    RESOLVES_BY_COLUMN = auto()
    # Passes that read only what is new.
    WINDOW_TOO_HIGH = auto()
    WINDOW_SURVIVES_RESTORE = auto()
    # Horizons and graces.
    ONE_RANGE_SUFFICES = auto()
    COMMITS_WITHOUT_GRACE = auto()
    INVALIDATIONS_WITHOUT_GRACE = auto()
    WATERMARK_BEFORE_DURABLE = auto()
    COMMITS_BELOW_WATERMARK = auto()
    TRUSTS_REGRESSION = auto()
    # Places that no pass goes over.
    NOBODY_ASKED = auto()
    ASKED_BEFORE_WATERMARK = auto()
    # Snapshots, and tables that go back to them.
    SNAPSHOTS_IGNORED = auto()
    SNAPSHOT_UNDER_WAY_IGNORED = auto()
    CLAIMS_SURVIVE_RESTORE = auto()
    PASS_SURVIVES_RESTORE = auto()
    # Readers.
    READER_TAKES_ABSENCE_FOR_FINAL = auto()
    READER_TRUSTS_ITS_INVALIDATION = auto()
    READER_TAKES_INVALIDATION_FOR_FINAL = auto()
    # Old versions.
    COLLECTS_BELOW_TENTATIVE = auto()
    DROPS_UNANNOUNCED = auto()
    HORIZON_READ_BEFORE_BATCH = auto()


@dataclass(frozen=True, slots=True)
class World:
    """What a search is about."""

    setting: Setting
    mutation: Mutation = Mutation.NONE
    transaction_count: int = 1
    silent: frozenset[int] = frozenset()
    """The clients of these transactions, by index, are never heard of again once they asked for
    their commit."""
    is_foreign: bool = False
    """The second table is not ours: no pass goes over it, it is only asked."""
    is_incremental: bool = False
    """Passes read only versions above the last claim."""
    has_reader: bool = False
    has_snapshots: bool = False
    """The first table may go back to a snapshot."""
    is_bold: bool = False
    """It does so while a run prunes, and a run that lost its lease prunes on.  No mistake: nothing
    rests on a lease."""
    loses_state: bool = False
    """The oracle may forget its low watermark."""
    collects: bool = False
    """Superseded versions are dropped, while somebody reads at an earlier snapshot."""

    def does(self, mutation: Mutation) -> bool:
        """Say whether a mistake is made."""
        return mutation in self.mutation
