"""Marks of buckets (`marks.py`) in a table of SQL, changed in the transaction of entries.  Pure.

    share text PRIMARY KEY, fence bigint, mark text

A row is that of a table and of a bucket, of every owner it has.  To take a bucket over is to raise
its fence: what an earlier owner has not committed by then finds another fence than its own, and
changes nothing (X10).

A table of entries refuses what it has.  But a reader that takes rows out of it, to work on them or
to move them on, would be given those once more that came twice; marks stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from omidpy.errors import CorruptCell
from omidpy.recipes.export_queue.exporter import Deposed, Refused
from omidpy.recipes.export_queue.marks import decode_mark

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.marks import Mark, Share

TABLE: Final = "omidpy_marks"


class Marks:
    """The statements for one table of entries."""

    def __init__(self, table: str, placeholder: str) -> None:
        """Keep marks beside a table, in its schema."""
        schema, dot, _ = table.rpartition(".")
        self.table = f"{schema}{dot}{TABLE}"
        self._of = table
        self.make = (
            f"CREATE TABLE IF NOT EXISTS {self.table} "
            "(share text PRIMARY KEY, fence bigint NOT NULL, mark text NOT NULL)"
        )
        held, one = self.table, placeholder
        self.take = (
            f"INSERT INTO {held} AS held (share, fence, mark) "  # noqa: S608 - a checked name
            f"VALUES ({one}, {one}, {one}) ON CONFLICT (share) DO UPDATE "
            "SET fence = excluded.fence WHERE held.fence <= excluded.fence"
        )
        self.read = f"SELECT fence, mark FROM {held} WHERE share = {one}"  # noqa: S608 - see above
        self.keep = f"UPDATE {held} SET mark = {one} WHERE share = {one} AND fence = {one}"  # noqa: S608 - see above

    def take_over(self, cursor: Any, share: Share) -> Mark | None:
        """Raise the fence, in a transaction that is under way; return the mark.

        Args:
            cursor: What executes statements of that transaction.
            share: The bucket.

        Raises:
            Deposed: there is a later owner.
            Refused: the row is not of our making.
        """
        name = self._name(share)
        cursor.execute(self.take, (name, share.fence, ""))
        fence, mark = cursor.execute(self.read, (name,)).fetchone()
        if fence != share.fence:
            raise Deposed(f"{self.table}: {name} was taken over by the owner of fence {fence}")
        try:
            return decode_mark(mark, where=f"{self.table}, {name}") if mark else None
        except CorruptCell as error:
            raise Refused(str(error)) from error

    def advance(self, cursor: Any, share: Share, mark: Mark) -> None:
        """Replace the mark, in the transaction of the entries; it locks the row for all others.

        Raises:
            Deposed: there is a later owner; roll back.
        """
        name = self._name(share)
        cursor.execute(self.keep, (mark.encode(), name, share.fence))
        if cursor.rowcount != 1:
            raise Deposed(f"{self.table}: {name} was taken over")

    def _name(self, share: Share) -> str:
        return f"{self._of}/{share.name}"
