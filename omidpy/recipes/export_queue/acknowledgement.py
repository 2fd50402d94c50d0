"""Removes entries that were delivered: those cells that are there, and no others.

    X5 (exact-removal)  a delivered row is removed version by version, as a read has shown them

Never by a range of rows or of time: a transaction that began before may commit later, and its
entries stand between those that were delivered.  What arrives after the read, a shadow cell that
was under way, is left to a compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from omidpy.base.cells import shadow_qualifier
from omidpy.recipes.export_queue.layout import FAMILY, QUALIFIER
from omidpy.storage.base import DeleteVersion, RowMutation

if TYPE_CHECKING:
    from omidpy.storage.base import Store

ROWS_AT_ONCE: Final = 1000

_SHADOW: Final = shadow_qualifier(QUALIFIER)


def remove(store: Store, table: str, rows: Sequence[bytes]) -> None:
    """Remove rows that were delivered, durably.

    The shadow cell goes with its cell, whether it has been written yet or not: on HBase its marker
    then hides one that comes late.

    Cost: 1 get and 1 write for each `ROWS_AT_ONCE` rows.
    """
    for at in range(0, len(rows), ROWS_AT_ONCE):
        mutations = []
        for cells in store.get(table, rows[at : at + ROWS_AT_ONCE]):
            versions = {(cell.family, cell.qualifier, cell.version) for cell in cells}
            versions |= {(FAMILY, _SHADOW, cell.version) for cell in cells}
            deletes = tuple(DeleteVersion(*version) for version in sorted(versions))
            if cells:
                mutations.append(RowMutation(cells[0].row, deletes=deletes))
        if mutations:
            store.write({table: mutations}, durable=True)
