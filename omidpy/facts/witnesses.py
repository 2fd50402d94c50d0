"""What does one cell of a transaction tell of it?  Its shadow cell proves a commit.

That it is there without one, or not there, is for the caller to judge: he knows who else may write
it, or remove it.
"""

from __future__ import annotations

from omidpy.base.cells import decode_long, shadow_qualifier
from omidpy.errors import NoSuchTable
from omidpy.model import Cell, Timestamp
from omidpy.storage.base import Store


def witness_state(store: Store, table: str, cell: Cell) -> tuple[Timestamp | None, bool]:
    """Return a cell's commit_ts by its shadow cell, and whether the cell is there.

    Neither is, where there is no such table.

    Cost: 1 get.
    """
    shadow = shadow_qualifier(cell.qualifier)
    try:
        found = store.get(
            table,
            (cell.row,),
            columns=((cell.family, cell.qualifier), (cell.family, shadow)),
            min_version=cell.version,
            max_version=cell.version + 1,
        )[0]
    except NoSuchTable:
        return None, False
    commit_ts = None
    is_present = False
    for seen in found:
        if seen.qualifier == shadow:
            commit_ts = decode_long(seen.value, what=f"the shadow cell {seen[:4]!r}")
        else:
            is_present = True
    return commit_ts, is_present
