"""What `omidpy fsck --repair` takes out of a table, or writes over, is kept byte for byte.

A copy is a row of the control table, named by a digest of where the cell was and what it held, so
that the same cell is kept once, whichever process dies between the copy and the act.  The copy is
durable before anything is done to the cell.

A row of this kind is never removed: on HBase a delete would hide a later copy of the same cell,
and a copy that is not there is a cell that is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from omidpy.base.cells import encode_long
from omidpy.base.documents import Moment
from omidpy.base.tables import CONTROL_FAMILY, CONTROL_TABLE, FIXED_VERSION, VALUE
from omidpy.errors import StorageError
from omidpy.facts.control import ControlTable, encode_document
from omidpy.model import Cell, Column
from omidpy.storage.base import Put, RowMutation, Store

QUARANTINE_PREFIX: Final = b"quarantine/"
KEPT_VALUE: Final = Column(CONTROL_FAMILY, b"kept")
"""Beside the document: what the cell held, as it was, since it may be as long as a cell can be."""

NAME_DIGITS: Final = 24


class KeptCell(msgspec.Struct, frozen=True):
    """A cell that was taken out of its table, or written over."""

    table: str
    incarnation: str
    """Which table of the name."""
    row: bytes
    family: bytes
    qualifier: bytes
    version: int
    value_bytes: int
    """How long its value is."""
    when_ms: Moment
    """Wall time of the first copy, for people."""
    why: str
    """What was wrong with it."""
    intent: str
    """What was about to be done to it, and on what ground."""

    def column(self) -> Column:
        """Return its family and qualifier."""
        return Column(self.family, self.qualifier)


class Quarantine:
    """Keeps cells, and shows them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._control = ControlTable(store)

    def keep(self, cell: Cell, kept: KeptCell) -> str:
        """Copy a cell, and return the name of the copy once it is durable.

        A cell of these very bytes that was kept before is not kept again.

        Args:
            cell: What it holds.
            kept: What is said of it.

        Raises:
            StorageError: the copy is not what was written: nothing may be done to the cell.

        Cost: 1 durable write, and 1 get.
        """
        name = _name(kept, cell.value)
        row = QUARANTINE_PREFIX + name.encode()
        put = Put(VALUE.family, VALUE.qualifier, FIXED_VERSION, encode_document(kept))
        # Empty values mean something else to some stores, so each has a byte in front of it.
        value = Put(*KEPT_VALUE, FIXED_VERSION, b"=" + cell.value)
        self._store.check_and_mutate(
            CONTROL_TABLE, row, VALUE, None, RowMutation(row, puts=(put, value)), durable=True
        )
        if self.value(name) != cell.value:
            raise StorageError(
                f"{CONTROL_TABLE} row {row!r} does not hold what was just copied there, so that "
                "nothing is done to the cell"
            )
        return name

    def cells(self) -> Iterator[tuple[str, KeptCell | None]]:
        """Yield the name of each copy, and what is said of it; None cannot be read."""
        found, malformed = self._control.documents(QUARANTINE_PREFIX, KeptCell)
        for row in sorted({*found, *malformed}):
            name = row.removeprefix(QUARANTINE_PREFIX).decode(errors="backslashreplace")
            yield name, found.get(row)

    def value(self, name: str) -> bytes | None:
        """Return what a cell held; None if there is no such copy.  Cost: 1 get."""
        kept = self._control.read_beside(QUARANTINE_PREFIX + name.encode(), KEPT_VALUE)
        return None if kept is None else kept[1:]


def _name(kept: KeptCell, value: bytes) -> str:
    """Return what no other cell has, by its place and its bytes."""
    digest = hashlib.sha256()
    for part in (
        kept.table.encode(),
        kept.incarnation.encode(),
        kept.row,
        kept.family,
        kept.qualifier,
        encode_long(kept.version),
        value,
    ):
        digest.update(encode_long(len(part)))
        digest.update(part)
    return digest.hexdigest()[:NAME_DIGITS]
