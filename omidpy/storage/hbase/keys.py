"""Which row keys can HBase find?  Shorter ones than it could store.

HBase finds a row's region by a key made of the table's name and the row, which is a row key too and
must fit one; so what is left for a row is a little less than 32,767 bytes.
"""

from __future__ import annotations

from typing import Final

from omidpy.errors import UsageError
from omidpy.storage import rules

LOCATION_BYTES: Final = 16
"""What HBase adds to table and row in the key by which it finds the row's region."""


def check_findable(table: str, row: bytes) -> None:
    """Refuse a key whose region HBase cannot look up."""
    longest = rules.MAX_ROW_BYTES - LOCATION_BYTES - len(table)
    if len(row) > longest:
        raise UsageError(
            f"the row key {row[:32]!r}... has {len(row)} bytes; in table {table!r} HBase finds "
            f"rows of at most {longest}"
        )
