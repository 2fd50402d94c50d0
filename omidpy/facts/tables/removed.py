"""Was a table removed behind a timestamp?  For readers who go on by a number, or read the past.

A table that is dropped and made again, or truncated, has nothing of what was committed to the one
before.  A reader by a timestamp finds fewer rows, or none, and nothing that tells (I8).  So who
removes a table writes down before, by its name:

    removed/<table>    incarnations of it, each with a timestamp above all that was committed to it

It is written behind the fence of the removal and before it, so that who dies in between leaves it
written.  An incarnation that is there all the same was not removed, and says nothing.

Lacks what HBase's own shell does, and what clients of earlier versions have removed.
"""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from omidpy.base.documents import Natural
from omidpy.base.tables import incarnation, was_before
from omidpy.errors import CorruptCell, NoSuchTable, StorageError
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.model import Timestamp
from omidpy.storage.base import Store

REMOVED_PREFIX: Final = b"removed/"
MOST_REMOVED: Final = 8
"""How many incarnations of a name are remembered.  One of those that were removed is enough, and
few are about to be removed and are not."""


class Removed(msgspec.Struct, frozen=True):
    """An incarnation that was about to be removed."""

    which: str
    """The incarnation; empty where the table had none."""
    at_ts: Natural
    """Above all that was committed to it."""


def removed_row(table: str) -> bytes:
    """Return the row of the control table that tells of a table's removals."""
    return REMOVED_PREFIX + table.encode()


def note_removal(store: Store, table: str, which: str, at_ts: Timestamp) -> None:
    """Write down that an incarnation is about to be removed.

    Args:
        store: Where it is.
        table: Its name.
        which: Its incarnation.
        at_ts: Drawn behind the fence of the removal.

    Raises:
        NoSuchTable: it is gone, and what was drawn since says nothing of it.

    Cost: 1 look at the table, 1 get and 1 durable write.
    """
    # Behind the drawing of the timestamp: what is committed to a later table of the name comes
    # after its making, and so is above it.
    if incarnation(store.schema(table)) != which:
        return
    control, row = ControlTable(store), removed_row(table)
    while True:
        raw = control.read(row)
        kept = [one for one in _decoded(raw, row) if one.which != which]
        kept = sorted(kept, key=lambda one: one.at_ts)[1 - MOST_REMOVED :]
        noted = encode_document([*kept, Removed(which, at_ts)])
        if control.replace(row, raw, noted):
            return


def forget_removal(store: Store, table: str, which: str) -> None:
    """Forget that an incarnation was about to be removed: it stays, and gets another name.

    Cost: 1 get, and 1 durable write where it was.
    """
    control, row = ControlTable(store), removed_row(table)
    while (raw := control.read(row)) is not None:
        known = _decoded(raw, row)
        kept = [one for one in known if one.which != which]
        if len(kept) == len(known) or control.replace(row, raw, encode_document(kept)):
            return


class Removals:
    """Tells whether a table is the successor of one that was removed."""

    def __init__(self, store: Store) -> None:
        """Read the facts of a store."""
        self._store = store
        self._control = ControlTable(store)

    @staticmethod
    def row(table: str) -> bytes:
        """Return the row of the control table that tells of a table's removals."""
        return removed_row(table)

    def told(self, table: str, raw: bytes | None, since: int) -> Timestamp | None:
        """Return when a table was removed whose commits behind a timestamp went with it.

        Args:
            table: Its name.
            raw: What its row holds.  One that cannot be read says nothing.
            since: The timestamp.

        Returns:
            None: none was.

        Raises:
            NoSuchTable: there is none of the name now.

        Cost: nothing, unless one is said to have been: then 1 look at the table that is there.
        """
        later = [one for one in _decoded(raw, removed_row(table)) if one.at_ts > since]
        if not later:
            return None
        schema = self._store.schema(table)
        there = {incarnation(schema), *was_before(schema)}
        at_ts = max((one.at_ts for one in later if one.which not in there), default=0)
        return Timestamp(at_ts) or None

    def check(self, table: str, start_ts: Timestamp) -> None:
        """Refuse what a snapshot has read of a table that was made anew since.

        Raises:
            StorageError: what it should see went with an earlier table.

        Cost: 1 get; see `told`.
        """
        at_ts = self.behind(table, start_ts)
        if at_ts is not None:
            raise StorageError(
                f"table {table!r} was dropped or truncated at {at_ts}, after the snapshot "
                f"{start_ts}, and what that sees went with it; begin anew, and read the table that "
                "is there now"
            )

    def behind(self, table: str, since: Timestamp) -> Timestamp | None:
        """Return when a table was removed behind a timestamp; None: it was not.

        Cost: 1 get; see `told`.
        """
        raw: bytes | None = None
        with contextlib.suppress(NoSuchTable):  # where no client of ours has ever set up the store
            raw = self._control.read(removed_row(table))
        return self.told(table, raw, since)


def _decoded(raw: bytes | None, row: bytes) -> list[Removed]:
    if raw is None:
        return []
    try:
        return decode_document(raw, list[Removed], row=row)
    except CorruptCell:
        return []
