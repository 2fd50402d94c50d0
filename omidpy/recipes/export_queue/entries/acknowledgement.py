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
from omidpy.recipes.export_queue.entries.layout import FAMILY, QUALIFIER
from omidpy.storage.base import DeleteVersion, RowMutation

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.entries.ordering import FoundEntry
    from omidpy.storage.base import Store

ROWS_AT_ONCE: Final = 1000

_SHADOW: Final = shadow_qualifier(QUALIFIER)


def remove(store: Store, table: str, found: Sequence[FoundEntry]) -> None:
    """Remove the cells of entries as a snapshot has shown them, durably.

    The row of an entry has one version, unless its entry was moved or taken in a transaction.  The
    shadow cell goes with its cell, whether it has been written yet or not: on HBase its marker then
    hides one that comes late.

    Cost: 1 write.
    """
    if found:
        store.write({table: removals(found)}, durable=True)


def removals(found: Sequence[FoundEntry]) -> list[RowMutation]:
    """Return what removes the cells of entries as a snapshot has shown them; see `remove`."""
    return [RowMutation(one.row, deletes=_both(one.version)) for one in found]


def remove_deleted(store: Store, table: str, rows: Sequence[bytes]) -> None:
    """Remove what is left of rows whose entries a transaction has deleted, durably.

    Cost: 1 get and 1 write for each `ROWS_AT_ONCE` rows.
    """
    for at in range(0, len(rows), ROWS_AT_ONCE):
        if mutations := removals_of(store, table, rows[at : at + ROWS_AT_ONCE]):
            store.write({table: mutations}, durable=True)


def removals_of(store: Store, table: str, rows: Sequence[bytes]) -> list[RowMutation]:
    """Return what removes rows with all that is in them now.  Cost: 1 get."""
    found = store.get(table, rows)
    return [_removal(cells[0].row, {cell.version for cell in cells}) for cells in found if cells]


def _removal(row: bytes, versions: set[int]) -> RowMutation:
    return RowMutation(row, deletes=[one for version in sorted(versions) for one in _both(version)])


def _both(version: int) -> list[DeleteVersion]:
    """Return what removes a version of an entry, and its shadow cell."""
    return [
        DeleteVersion(FAMILY, QUALIFIER, version),
        DeleteVersion(FAMILY, _SHADOW, version),
    ]
