"""Is there a cell whose qualifier starts so?  A search that no time limit can cut off.

The region servers look for it, and nothing else of the table crosses the network.  But a call that
finds nothing lasts until the table's end, which may take longer than the gateway waits.  So a few
rows, drawn by lot, answer although they hold nothing: waypoints, from which the next call goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omidpy.model import Cell
from omidpy.storage.base import Row
from omidpy.storage.hbase import filters, paging

WAYPOINT_CHANCE: Final = 1 / 10_000
"""How many of the rows passed are waypoints."""


def find_qualifier(read_first: Callable[[bytes, bytes], Row], prefix: bytes) -> Cell | None:
    """Return some cell whose qualifier starts with `prefix`, or None.

    Args:
        read_first: Reads the first row from a key on of which a filter lets something through:
            those cells; none at the table's end.
        prefix: May be empty.

    Cost: 1 call for about every 10,000 rows.
    """
    waypoint = filters.all_of(filters.random_rows(WAYPOINT_CHANCE), filters.first_cell())
    sought = filters.any_of(filters.column_prefix(prefix), waypoint)
    start = b""
    while row := read_first(start, sought):
        for cell in row:
            if cell.qualifier.startswith(prefix):
                return cell
        start = paging.row_after(row[0].row)
        if not start:
            return None
    return None
