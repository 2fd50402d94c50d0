"""What is wrong with a row, as it was read: pure, by compaction's judgement (`rows/heal.py`).

And what a check remembers of all rows and entries, until it has looked again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from compactor.check.findings import Finding, Kind
from compactor.check.repair import Suspicion
from compactor.horizon import Segment
from compactor.obstacles import malformed_shadow
from compactor.rows.heal import ExaminedRow, Scope, examine, plan_row, unresolved
from compactor.rows.pieces import CommitsOf, Piece
from omidpy.base.cells import data_qualifier
from omidpy.base.commit_facts import INVALID
from omidpy.facts.commit_table import EntryRow
from omidpy.model import Cell, Timestamp, base
from omidpy.reading.visibility import shadow_column
from omidpy.storage.base import DeleteVersion, RowMutation


@dataclass(slots=True)
class SeenEntry:
    """What was seen of the transaction of an entry."""

    has_cells: bool = False
    is_needed: bool = False


@dataclass(slots=True)
class Seen:
    """What the first look came to, since the last second one."""

    suspects: dict[tuple[str, bytes], set[tuple[object, ...]]] = field(default_factory=dict)
    """What looked wrong, by table and row."""
    suspect_cells: int = 0
    leaked: dict[Timestamp, Kind] = field(default_factory=dict)
    malformed_entries: list[Finding] = field(default_factory=list)
    rows_read: int = 0
    cells_read: int = 0
    entries_read: int = 0
    invalidations: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the store has promised about its rows, and so what may be asked of them."""

    claimed: Mapping[str, Sequence[Segment]]
    """By table, up to where its rows were claimed to be healed."""
    doubtful: Mapping[str, int]
    """By table, up to which timestamp nothing is sure, since the table was restored."""
    prune_horizon: int

    def wrong_in(
        self,
        table: str,
        row: ExaminedRow,
        scope: Scope,
        looked_up: Mapping[Timestamp, EntryRow],
    ) -> Iterator[Suspicion]:
        """Say what is wrong with a row, given what the commit table holds of its unhealed cells."""
        for cell in row.malformed:
            detail = malformed_shadow(cell)
            yield Suspicion(Finding.of(Kind.MALFORMED_SHADOW, table, cell, detail), cell)
        # Cells of a malformed entry are left out: it is the entry that is wrong.
        resolved = {
            cell: commit_ts_of(looked_up[base(cell.version)])
            for cell in unresolved(row)
            if not looked_up[base(cell.version)].complaint
        }
        plan = plan_row(row, resolved, scope)
        cells = {cell[1:4]: cell for cell in row.ours.data}
        for put in plan.heals:
            cell = cells[put.family, data_qualifier(put.qualifier), put.version]
            is_claimed = base(cell.version) <= self.watermark_of(table, cell.row)
            kind = Kind.BROKEN_CLAIM if is_claimed else Kind.UNHEALED
            yield Suspicion(Finding.of(kind, table, cell), cell, RowMutation(cell.row, puts=(put,)))
        for cell in plan.garbage:
            is_forbidden = looked_up[base(cell.version)].entry is INVALID
            start_ts = base(cell.version)
            is_lost = start_ts <= self.prune_horizon and not is_forbidden
            is_lost |= start_ts <= self.doubtful[table]
            kind = Kind.UNPROVEN if is_lost else Kind.UNCOMMITTED
            yield Suspicion(Finding.of(kind, table, cell), cell)
        for orphan in plan.orphans:
            column = (orphan.family, orphan.qualifier, orphan.version)
            cell = Cell(row.row, *column, b"")
            remedy = RowMutation(row.row, deletes=(DeleteVersion(*column),))
            yield Suspicion(Finding.of(Kind.ORPHAN_SHADOW, table, cell), cell, remedy)

    def watermark_of(self, table: str, row: bytes) -> int:
        """Return up to where a row was claimed to be healed."""
        segments = self.claimed.get(table, [])
        index = bisect_right(segments, row, key=lambda segment: segment.key_range.start)
        return segments[index - 1].watermark if index else 0


def commits_of(scope: Scope) -> CommitsOf:
    """Return what finds the commits that the shadow cells of a part of a row tell."""
    return lambda cells: examine(cells, scope).ours.commits


def examined(piece: Piece, scope: Scope) -> ExaminedRow:
    """Examine a row, or a part of one with what the rest of it tells."""
    found = examine(piece.cells, scope)
    if not piece.commits:
        return found
    ours = found.ours
    return found._replace(ours=ours._replace(commits={**ours.commits, **piece.commits}))


def commit_ts_of(row: EntryRow) -> Timestamp | None:
    """Return when a transaction committed by its entry; None: it did not."""
    return None if row.entry is INVALID else row.entry


def shadow_of(cell: Cell) -> tuple[bytes, bytes, bytes, int]:
    """Return the place of a data cell's shadow cell."""
    return (cell.row, *shadow_column(cell), cell.version)
