"""Which tables are there, and since when is each what it is?  HBase's catalogue knows.

It says when a table was last enabled.  A snapshot is restored into a table that is disabled, or
cloned into one that is made; either way the table is enabled afterwards, and HBase's master writes
that into `hbase:meta`, at the version of its clock.  No move, split or merge of regions changes it,
nor does an attribute of the table, nor a restart of HBase.

So a table whose state has kept its version was not restored.  One with another version may have
been, or was disabled for another reason: the catalogue does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from omidpy.errors import NoSuchTable, StorageError, StorageUnavailable
from omidpy.model import Cell, Column

CATALOGUE: Final = "hbase:meta"
STATE: Final = Column(b"table", b"state")
"""Its version is the state.  The row is the name of the table, with its namespace if it is not the
default one."""
_OWN: Final = "hbase:"
_CLOSED: Final = {b"\x08\x01": "disabled", b"\x08\x02": "disabling", b"\x08\x03": "enabling"}
"""What the cell holds, a `TableState`, of a table that is not enabled."""


def closed(cells: Iterable[Cell]) -> dict[str, str]:
    """Return the tables of which no cell is read or written, by their states; each with a word."""
    found = {cell.row.decode(errors="backslashreplace"): _CLOSED.get(cell.value) for cell in cells}
    return {name: word for name, word in found.items() if word is not None}


def hidden(
    pages: Iterable[list[list[Cell]]], listed: Collection[str], look: Callable[[str], object]
) -> dict[str, str]:
    """Return the tables that are there and that HBase does not show to this user, and why.

    Where it goes by rights, the master leaves a table out of its list that the user may neither
    create nor administer.  Everybody may read the catalogue.

    Args:
        pages: The states of all tables.
        listed: What the list had, which was made before.
        look: Reads the schema of one.
    """
    found = {}
    for page in pages:
        for cells in page:
            name = cells[0].row.decode(errors="backslashreplace")
            if name in listed or name.startswith(_OWN):
                continue
            try:
                look(name)
            except NoSuchTable:
                continue  # made just now, or gone
            except StorageUnavailable:
                raise
            except StorageError as error:
                found[name] = str(error)
    return found
