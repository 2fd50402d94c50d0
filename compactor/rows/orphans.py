"""Shadow cells without a data cell: which of them may go?

A row is read before its writer is done, or while another pass drops a cell with its shadow cell, so
that what a plan names are suspects: one goes only if a fresh read shows it, and not its data cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from compactor.rows.heal import Orphan, RowPlan, cell_bytes
from omidpy.base.cells import LONG_BYTES
from omidpy.model import Cell
from omidpy.storage.base import DeleteVersion, Row, RowMutation, Store

Orphans: TypeAlias = Mapping[bytes, Sequence[Orphan]]
"""By row."""


def confirmed_orphans(
    store: Store, table: str, plans: Sequence[RowPlan], *, max_version: int
) -> Orphans:
    """Return the shadow cells among those of some plans that a fresh read shows alone too.

    Args:
        store: It is read only.
        table: Whose rows the plans are about.
        plans: Each about a row of its own.
        max_version: The exclusive bound of versions that were read.

    Cost: 1 get; none without a suspect.
    """
    suspects = {plan.row: plan.orphans for plan in plans if plan.orphans}
    if not suspects:
        return {}
    if len(suspects) == 1:
        ((row, orphans),) = suspects.items()
        found = [_named(store, table, row, orphans)]
    else:
        found = store.get(table, list(suspects), max_version=max_version)
    confirmed: dict[bytes, Sequence[Orphan]] = {}
    for (row, orphans), cells in zip(suspects.items(), found, strict=True):
        present = {cell[1:4] for cell in cells}
        still = [
            orphan
            for orphan in orphans
            if (orphan.family, orphan.qualifier, orphan.version) in present
            and (orphan.family, orphan.data_qualifier, orphan.version) not in present
        ]
        if still:
            confirmed[row] = still
    return confirmed


def _named(store: Store, table: str, row: bytes, orphans: Sequence[Orphan]) -> Row:
    """Read the columns that are in question alone: the row may be a long one."""
    columns = {
        (orphan.family, name): None
        for orphan in orphans
        for name in (orphan.qualifier, orphan.data_qualifier)
    }
    versions = [orphan.version for orphan in orphans]
    (cells,) = store.get(
        table,
        [row],
        columns=list(columns),
        min_version=min(versions),
        max_version=max(versions) + 1,
    )
    return cells


def removing(orphans: Orphans) -> list[RowMutation]:
    """Return the writes that remove them, one mutation a row."""
    return [
        RowMutation(
            row,
            deletes=[DeleteVersion(one.family, one.qualifier, one.version) for one in of_row],
        )
        for row, of_row in orphans.items()
    ]


def orphan_bytes(orphans: Orphans) -> int:
    """Return their size, keys and values."""
    value = bytes(LONG_BYTES)
    return sum(
        cell_bytes(Cell(row, one.family, one.qualifier, one.version, value))
        for row, of_row in orphans.items()
        for one in of_row
    )
