"""Remove a table, if it is the one that is meant, and if that is wanted still.

HBase removes only what is disabled, and a table that was just made, or cloned from a snapshot, is
not.  So who looks once it is disabled, and finds the one that is wanted, removes no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from omidpy.errors import StorageUnavailable


class OneTable(NamedTuple):
    """What a store asks of HBase about one table."""

    is_meant: Callable[[], bool]
    """Raises `NoSuchTable` where it is not there."""
    is_enabled: Callable[[], bool]
    disable: Callable[[], object]
    enable: Callable[[], object]
    drop: Callable[[], object]


def drop_if(table: OneTable, *, looks_again: bool, still: Callable[[], bool]) -> bool:
    """Remove a table as `RestoresTables.drop_table_if` says; return whether it was.

    Args:
        table: The table.
        looks_again: Whether another one may have its name.
        still: Asked once nothing that is made by then can be removed any more.
    """
    if not table.is_meant():
        return False
    is_ours = table.is_enabled()
    if is_ours:
        try:
            table.disable()
        except StorageUnavailable:
            # Who disables it at the same moment may be faster.
            if table.is_enabled():
                raise
            is_ours = False
    # Also where another client has disabled it: another of its name, perhaps, which he gives back
    # or wants to remove himself.
    if (looks_again and not table.is_meant()) or not still():
        if is_ours:
            table.enable()
        return False
    table.drop()
    return True
