"""Where is a large region cut, so that several tasks share it?  At sampled keys.

A cut decides who does the work, and nothing else: claims speak of rows, whichever task made them.
The cuts of the last run are taken again, where its claims show them, so that claims of one range
follow each other and no row of the table is read for it; where there are none, or far too few or
too many, keys are sampled.

Small regions cost nothing: whether a region is large is told by the rows that the last runs read of
its table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compactor.ranges.range_task import RangeTask
from compactor.report import RunRecord
from omidpy.errors import StorageError
from omidpy.model import KeyRange
from omidpy.storage.base import Store
from omidpy.storage.sampling import evenly, pieces, sampled_keys
from omidpy.storage.spreading import spread

ROWS_A_PIECE: Final = 500_000
"""Rows that one task should read: minutes of work."""
MOST_PIECES: Final = 64
"""Of one region."""
SAMPLES_A_PIECE: Final = 4
PIECES_FACTOR: Final = 2
"""Cuts of the last run are taken again if they make pieces within this factor of what is wanted."""
RUNS_ASKED: Final = 10
"""So many runs back: one of them passed over all of the table."""


@dataclass(frozen=True, slots=True)
class Cutting:
    """Into how many pieces the regions of a run are cut."""

    wanted: int | None = None
    """Pieces of every region; None asks how many rows the last runs read."""
    rows_read: Mapping[str, int] | None = None
    """By table, the most that one of the last runs has read."""
    claimed: Mapping[str, Sequence[bytes]] | None = None
    """By table, keys at which claims meet."""

    def pieces_of(self, table: str, regions: int) -> int:
        """Return into how many pieces each of so many regions of a table is cut."""
        if self.wanted is not None:
            return self.wanted
        rows = (self.rows_read or {}).get(table, 0)
        return max(1, min(MOST_PIECES, rows // max(regions, 1) // ROWS_A_PIECE + 1))

    def cut(self, store: Store, tasks: Sequence[RangeTask]) -> list[RangeTask]:
        """Return tasks for the pieces of each range, those of one server apart from each other.

        Cost: 1 RPC a table where the store knows servers; else nothing for a range that stays whole
        or was cut by the last run, and some short reads for others, see `sampled_keys`.
        """
        regions: dict[str, int] = {}
        for task in tasks:
            regions[task.table] = regions.get(task.table, 0) + 1
        cut = [
            replace(task, key_range=piece)
            for task in tasks
            for piece in self._pieces(store, task, self.pieces_of(task.table, regions[task.table]))
        ]
        return spread(store, cut, lambda task: (task.table, task.key_range.start))

    def _pieces(self, store: Store, task: RangeTask, count: int) -> list[KeyRange]:
        if count <= 1:
            return [task.key_range]
        before = pieces(task.key_range, (self.claimed or {}).get(task.table, ()))
        if max(2, count / PIECES_FACTOR) <= len(before) <= count * PIECES_FACTOR:
            return before
        try:
            keys = sampled_keys(
                store, task.table, task.families, task.key_range, count * SAMPLES_A_PIECE
            )
        except StorageError:
            # The pass finds out what is wrong, and says so.
            return [task.key_range]
        return pieces(task.key_range, evenly(keys, count - 1))


def rows_read_lately(runs: Sequence[RunRecord]) -> dict[str, int]:
    """Return by table the most rows that one of the last runs has read."""
    most: dict[str, int] = {}
    for run in runs[-RUNS_ASKED:]:
        for table in run.report.tables if run.report is not None else ():
            most[table.table] = max(most.get(table.table, 0), table.rows_read)
    return most
