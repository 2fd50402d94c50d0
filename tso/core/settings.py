"""What an instance of the oracle is made with: choices, and what the store held.

Values and their defaults; `config.py` reads choices from a command line, `durable/persist.py` the
store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from omidpy.base.timing.ages import Sample
from omidpy.model import TIMESTAMP_STEP
from omidpy.wire.frames import MAX_COMMIT_NUMBERS
from tso.core.shares.rates import Limits

TimestampMode: TypeAlias = Literal["world", "incremental"]

DEFAULT_TIMESTAMPS: Final[TimestampMode] = "world"

DECISION_MEMORY: Final = 2**20
"""Decisions that a retry or duplicate is answered from."""

BEGIN_MEMORY: Final = 2**20
"""Transactions of which it is remembered who began them, the latest of all clients."""

OLD_BEGIN_MEMORY: Final = 2**22
"""The same of older ones that may still commit, shared by all clients; see `owners.py`."""

DEFAULT_MAP_SIZE: Final = 16_000_000
"""Writes of cells that are remembered: 337 MiB when all of them are there."""

MIN_COMMIT_CELLS: Final = 1000
"""Cells that one commit may have however small the conflict map is."""

LEAST_CELLS_PER_S: Final = 10_000
"""Cells that one share may take however small the conflict map is: a thousand commits of ten."""

NO_LIMIT: Final = 0
"""As what a share may spend in a second."""

WORLD_LOOKAHEAD: Final = 1_000_000_000
"""How far the durable ceiling is above what is being issued, in world time: one second."""

INCREMENTAL_LOOKAHEAD: Final = 1_000_000 * TIMESTAMP_STEP
"""The same for incremental timestamps: a million of them."""

MAX_WAITING_CELLS: Final = 2**20
"""Cells of all commits that wait until the commit table was read; they take 40 bytes each."""

TIMESTAMPS_PER_MS: Final = 1_000_000
"""World timestamps count nanoseconds."""

DEFAULT_AGE_MS: Final = 15 * 60 * 1000
"""Older transactions can no longer commit."""

MAX_AGE_MS: Final = 100 * 365 * 24 * 3600 * 1000
"""The longest that may be chosen: a hundred years, which 64 bits hold, also in nanoseconds."""

PROTECTED_MS: Final = DEFAULT_AGE_MS
"""Transactions so old are kept from what others write, where they may be as old or older."""

AGE_BESIDE_OMID_MS: Final = 24 * 3600 * 1000
"""The same where Omid's tables were there before us: Java's transactions have no limit."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator may choose."""

    timestamps: TimestampMode = DEFAULT_TIMESTAMPS
    conflict_map_size: int = DEFAULT_MAP_SIZE
    max_transaction_age_ms: int = DEFAULT_AGE_MS
    decision_memory: int = DECISION_MEMORY
    hash_seed: int = 0
    """Makes the conflict map's buckets hard to guess for clients that choose cell ids."""

    cells_per_s: float | None = NO_LIMIT
    """Cells of the conflict map that one share may take, see `rates.py`.  0: as many as it likes;
    None: so many that none turns the map over within `PROTECTED_MS`, while others are there."""
    begins_per_s: float = NO_LIMIT
    commits_per_s: float = NO_LIMIT

    begin_memory: int = BEGIN_MEMORY
    old_begin_memory: int = OLD_BEGIN_MEMORY
    is_reserved: bool = False
    """Whether all that may ever be remembered has its memory from the start."""

    @property
    def max_commit_cells(self) -> int:
        """How many cells one commit may have: a small part of what the conflict map holds.

        A commit that fills the map would abort every transaction that runs.
        """
        return min(self._burst_cells, MAX_COMMIT_NUMBERS)

    @property
    def _burst_cells(self) -> int:
        return max(self.conflict_map_size // 4, MIN_COMMIT_CELLS)

    @property
    def limits(self) -> Limits:
        """What one share may spend in a second."""
        cells_per_s, present_s = self.cells_per_s, 0.0
        if cells_per_s is None:
            protected_ms = min(self.max_transaction_age_ms, PROTECTED_MS)
            # With the burst that is three quarters of the map in that time.
            cells_per_s = max(self.conflict_map_size * 500 / protected_ms, LEAST_CELLS_PER_S)
            present_s = self.max_transaction_age_ms / 1000
        return Limits(
            cells_per_s,
            self._burst_cells,
            self.begins_per_s,
            self.commits_per_s,
            present_s,
        )

    @property
    def lookahead(self) -> int:
        """How far the durable ceiling is kept above the last timestamp."""
        return WORLD_LOOKAHEAD if self.timestamps == "world" else INCREMENTAL_LOOKAHEAD


@dataclass(frozen=True, slots=True)
class Inherited:
    """What an instance found in the store, and made of it, before it may answer."""

    epoch: int
    """The ceiling that was stored: nothing above it was ever issued (I1)."""
    ceiling: int
    """The ceiling that is stored now, for this instance alone."""
    samples: tuple[int, ...] = ()
    """`elapsed_ms` of the recorded samples."""
    last_sample: Sample | None = None
    follows_omid: bool = False
    """Whether Omid's own oracle served the store before us, so that Java clients may exist."""

    def transaction_age_ms(self, chosen_ms: int | None) -> int:
        """Return the chosen age of transactions, or the default that fits the store."""
        if chosen_ms is not None:
            return chosen_ms
        return AGE_BESIDE_OMID_MS if self.follows_omid else DEFAULT_AGE_MS
