"""Which commits has a pass forbidden, or would it, were it more than a rehearsal?

Two commit tables for the resolver of a pass: one notes the invalidations that it has made, for the
report; the other answers what it would, and makes none.
"""

from __future__ import annotations

from collections.abc import Collection

from omidpy.base.commit_facts import INVALID
from omidpy.facts.commit_table import CommitTable
from omidpy.model import MAX_VERSION, Timestamp, base
from omidpy.storage.base import Store


class InvalidationCounter(CommitTable):
    """A commit table that remembers which invalidations it created."""

    def __init__(self, store: Store, name: str, *, newest: int = MAX_VERSION) -> None:
        super().__init__(store, name, newest=newest)
        self.created: set[Timestamp] = set()

    def invalidate_all(self, start_timestamps: Collection[Timestamp]) -> dict[Timestamp, bool]:
        """Forbid commits, as `CommitTable` does; two runs at once may both count one of them."""
        entries = self.read(start_timestamps)
        stands = super().invalidate_all(start_timestamps)
        self.created |= {
            start_ts
            for start_ts, is_invalid in stands.items()
            if is_invalid and entries[start_ts] is not INVALID
        }
        return stands

    def undo_invalidation(self, start_ts: Timestamp) -> bool:
        """Remove a false invalidation, as `CommitTable` does."""
        self.created.discard(base(start_ts))
        return super().undo_invalidation(start_ts)


class RehearsedCommitTable(InvalidationCounter):
    """For dry runs: answers as the commit table would, and writes nothing."""

    def invalidate_all(self, start_timestamps: Collection[Timestamp]) -> dict[Timestamp, bool]:
        """Say which invalidations would stand."""
        entries = self.read(start_timestamps)
        self.created |= {start_ts for start_ts, entry in entries.items() if entry is None}
        return {start_ts: entry is None or entry is INVALID for start_ts, entry in entries.items()}

    def undo_invalidation(self, start_ts: Timestamp) -> bool:
        """Leave the invalidation: readers undo it as they meet it."""
        self.created.discard(base(start_ts))
        return False
