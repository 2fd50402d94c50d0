"""What compactors took away, and whether nobody could see it any more.

Before each change of a table its rows are looked at as readers would, at every moment from the
published horizon on, and after it once more: what a change takes away, no snapshot at or above the
horizon may have seen (I10).  And what says of a cell that it is committed may go with the cell, or
where something else says so, but not before (I5).

The committed cells that went are kept here.  The judge counts them with what the tables hold in the
end, so that they are told from those that were lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from omidpy.base.cells import (
    data_qualifier,
    is_family_marker,
    is_shadow_qualifier,
    is_tombstone,
)
from omidpy.base.commit_facts import CommitEntry
from omidpy.base.tables import CONTROL_TABLE
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import COLLECTION_HORIZON
from omidpy.model import MAX_VERSION, Cell, Timestamp, base
from omidpy.reading.visibility import is_hidden
from omidpy.storage.base import Row, RowMutation
from omidpy.storage.memory import MemoryStore

OF_THE_SYSTEM: Final = ("OMID", CONTROL_TABLE)
"""What the names of tables begin with that hold no cells of transactions."""

Seen: TypeAlias = dict[tuple[bytes, bytes], bytes]
"""The value of each column of a row."""


class Attic:
    """Committed cells that compactors took away."""

    def __init__(
        self,
        memory: MemoryStore,
        commit_of: Callable[[int], int | None],
        entries_of: Callable[[Sequence[int]], Mapping[Timestamp, CommitEntry]],
        found: Callable[[str], None],
    ) -> None:
        """Begin with nothing.

        Args:
            memory: The store's.
            commit_of: Returns the commit timestamp of a transaction if it is committed.
            entries_of: Returns the commit entries that there are.
            found: Told what is wrong.
        """
        self._memory = memory
        self._commit_of = commit_of
        self._entries_of = entries_of
        self._found = found
        self.cells: dict[str, set[Cell]] = defaultdict(set)
        """By table."""
        self.commits: dict[int, set[int]] = defaultdict(set)
        """Where transactions are committed some of whose cells are here, by start_ts."""

    def before(self, batch: Mapping[str, Sequence[RowMutation]]) -> dict[tuple[str, bytes], Row]:
        """Return the rows as they are from which a change takes something away."""
        rows = {
            (table, one.row)
            for table, mutations in batch.items()
            if not table.startswith(OF_THE_SYSTEM)
            for one in mutations
            if one.deletes
        }
        return {place: row for place in sorted(rows) if (row := self._row(*place))}

    def after(self, before: Mapping[tuple[str, bytes], Row]) -> None:
        """Look at what was taken away from rows."""
        for (table, key), row in before.items():
            left = self._row(table, key)
            if gone := set(row) - set(left):
                self._look(table, row, left, gone)

    def _look(self, table: str, row: Row, left: Row, gone: set[Cell]) -> None:
        horizon = ControlTable(self._memory).read_number(COLLECTION_HORIZON) or 0
        commits = {
            cell: commit_ts
            for cell in row
            if not is_shadow_qualifier(cell.qualifier)
            and (commit_ts := self._commit_of(base(cell.version))) is not None
        }
        lost = [cell for cell in gone if cell in commits]
        for cell in lost:
            self.cells[table].add(cell)
            self.commits[base(cell.version)].add(commits[cell])
        if lost:
            moments = {horizon, MAX_VERSION, *(one + 1 for one in commits.values())}
            for moment in sorted(one for one in moments if one >= horizon):
                was, is_now = seen_at(row, commits, moment), seen_at(left, commits, moment)
                if was != is_now:
                    self._found(
                        f"I10: a snapshot at {moment}, where the horizon is {horizon}, saw {was} "
                        f"in {table} {row[0].row!r}, and then {is_now}, without {sorted(lost)}"
                    )
                    break
        told = {(one.family, one.qualifier, one.version) for one in left}
        for cell in gone:
            if not is_shadow_qualifier(cell.qualifier):
                continue
            name = (cell.family, data_qualifier(cell.qualifier), cell.version)
            start_ts = Timestamp(base(cell.version))
            if name in told and not isinstance(self._entries_of([start_ts]).get(start_ts), int):
                self._found(f"I5: of {table} {cell} went, and its data cell is still there")

    def _row(self, table: str, key: bytes) -> Row:
        if table not in self._memory._tables:
            return []
        return self._memory.get(table, (key,))[0]


def seen_at(row: Row, commits: Mapping[Cell, int], moment: int) -> Seen:
    """Return what a snapshot sees of a row, by the rule alone.

    Args:
        row: Its cells, in HBase's order.
        commits: When those were committed that are.
        moment: The snapshot's start_ts.
    """
    seen: Seen = {}
    markers: dict[bytes, tuple[Cell, int]] = {}
    newest: dict[tuple[bytes, bytes], tuple[Cell, int]] = {}
    for cell in row:
        commit_ts = commits.get(cell)
        if commit_ts is None or commit_ts >= moment:
            continue
        if is_family_marker(cell.qualifier, cell.value):
            markers.setdefault(cell.family, (cell, commit_ts))
        newest.setdefault((cell.family, cell.qualifier), (cell, commit_ts))
    for column, one in newest.items():
        marker = markers.get(column[0])
        if not is_tombstone(one[0].value) and not (marker and is_hidden(*one, *marker)):
            seen[column] = one[0].value
    return seen
