"""Is there a cell whose qualifier starts so?  A search that no time limit can cut off.

The region servers look for it, and nothing else of the table crosses the network.  A few rows,
drawn by lot, answer although they hold nothing: waypoints, from which the next call goes on.  Where
even those are missing, as among deleted rows, the search goes by stretches like any scan
(`paging.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from omidpy.model import Cell
from omidpy.storage.base import Row
from omidpy.storage.hbase import filters

WAYPOINT_CHANCE: Final = 1 / 10_000
"""How many of the rows passed are waypoints."""


def sought(prefix: bytes) -> bytes:
    """Return the filter that lets waypoints through, and cells whose qualifier starts so."""
    waypoint = filters.all_of(filters.random_rows(WAYPOINT_CHANCE), filters.first_cell())
    return filters.any_of(filters.column_prefix(prefix), waypoint)


def first_match(pages: Iterable[list[Row]], prefix: bytes) -> Cell | None:
    """Return the first cell whose qualifier starts with `prefix`, or None.

    Args:
        pages: The rows of a table through the filter; pages of one row, so that no call goes on
            after a waypoint.
        prefix: May be empty.

    Cost: 1 call for about every 10,000 rows.
    """
    for page in pages:
        for row in page:
            for cell in row:
                if cell.qualifier.startswith(prefix):
                    return cell
    return None
