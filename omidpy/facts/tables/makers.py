"""Which of those who make a table for one operation has made it?

An operation draws the incarnation of the table that it makes.  Its runner may be stopped right
before it makes the table, and go on when the operation is long over, and the table that the next
runner has made was dropped, or written to.  No look before the call keeps it from that, and one
behind it comes too late to take the table away again: a client may have written to it.

So each try has a name of its own, its *maker*, which is an attribute of the table, and one row says
for good whose table the incarnation is:

    made/<incarnation>    a maker; or `NOBODY`: the operation has ended without

It is set once, by a condition.  Where a store makes a table in one with it, a runner that comes too
late is refused.  On HBase it makes a table whose maker is not the one that the row names: a
*ghost*.  No client sees that: a client that opens a table reads the row first, lists leave it out,
and the next one to make a table of its name removes it, by its incarnation and its maker.  Nothing
that was acknowledged can be in it, since no client has ever opened it: what clients remember of the
table that had its name is from before a fence (`Catalog.layout_for`).

A table whose row is not set yet was made just now.  The first client to come by sets it, before it
writes to the table or drops it; so no other try can still become the one that counts.

Tables without a maker are what they are: those that clients make by a call of their own, Omid's,
and those of earlier versions.  A copy that was restored from a snapshot has the maker that it had.
A row stays for as long as its maker may be stopped, which is for ever: it has some 100 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from omidpy.base.tables import (
    CONTROL_TABLE,
    INCARNATION_ATTRIBUTE,
    MAKER_ATTRIBUTE,
    VALUE,
    incarnation,
    maker,
    new_incarnation,
)
from omidpy.errors import CorruptCell, NoSuchTable, TableExists
from omidpy.facts.control import ControlTable, put_value
from omidpy.model import TableSchema
from omidpy.storage.base import Condition, GuardedMutation, Store

MADE_PREFIX: Final = b"made/"
NOBODY: Final = b"-"
_MAKER: Final = re.compile(rb"[0-9a-f]{32}")
"""As `new_incarnation` draws it."""


class Makers:
    """The makers of the tables of one store.  Safe to share among threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._control = ControlTable(store)
        self._is_atomic = store.capabilities.guarded_batches
        """Whether tables are made in one with their row, so that there are no ghosts."""
        self._seen: set[tuple[str, str]] = set()
        """Incarnations with the makers that their rows name, which never change."""

    def make_table(self, schema: TableSchema, splits: Sequence[bytes]) -> bool:
        """Make a table that has an incarnation, unless that was made before, or given up.

        Returns:
            Whether it was made.  If not, there may be a ghost of it.

        Raises:
            TableExists: there is one of its name; nothing was changed.
        """
        which, own = incarnation(schema), new_incarnation()
        named = replace(schema, attributes={**schema.attributes, MAKER_ATTRIBUTE: own})
        if self._is_atomic:
            row = _row(which)
            absent = Condition(CONTROL_TABLE, row, VALUE, None)
            claim = GuardedMutation(CONTROL_TABLE, put_value(row, own.encode()), absent)
            return self._store.create_table(named, splits=splits, beside=claim)
        if self._control.read(_row(which)) is not None:
            return False
        # A stop between the two makes a ghost of it: by then another try's name may be in the row.
        self._store.create_table(named, splits=splits)
        return self.settle(named)

    def settle(self, schema: TableSchema) -> bool:
        """See to it that a table is the one that counts, before it is written to or dropped.

        Args:
            schema: A table, as it was read before.

        Returns:
            False: it is a ghost.

        Raises:
            NoSuchTable: it was made just now, and this gateway cannot say so.
            CorruptCell: whose table it is cannot be read.

        Cost: 1 get the first time where it was made for an operation on HBase, 1 conditional write
        more if no client has come by; else nothing.
        """
        which, own = incarnation(schema), maker(schema)
        if self._is_atomic or not own or (which, own) in self._seen:
            return True
        named = _checked(self._control.read(_row(which)), which, schema.name)
        if named is None:
            if not self._store.capabilities.checked_changes:
                raise NoSuchTable(
                    f"table {schema.name!r} is being made; ask again, or look with `omidpy fate "
                    "list` through hbase+thrift2:// what the operation that makes it waits for"
                )
            named = _checked(self._name(which, own.encode()), which, schema.name)
        if named != own.encode():
            return False
        self._seen.add((which, own))
        return True

    def give_up(self, which: str) -> bool:
        """Let no runner make an incarnation any more.

        Returns:
            False: it was made.
        """
        found = self._name(which, NOBODY)
        # Of what cannot be read it is unknown; but no runner makes it while that stands there.
        return found == NOBODY or bool(_complaint(found))

    def ghosts(self, schemas: Iterable[TableSchema]) -> frozenset[str]:
        """Return the names of those tables that are ghosts.

        One of which that cannot be read is none: a client that opens it is told.

        Cost: 1 get where some were made for operations on HBase; else nothing.
        """
        if self._is_atomic:
            return frozenset()
        told = [(one.name, incarnation(one), maker(one)) for one in schemas if maker(one)]
        asked = [(name, *pair) for name, *pair in told if tuple(pair) not in self._seen]
        rows = tuple(_row(which) for _, which, _ in asked)
        named = self._control.read_many(rows) if rows else []
        return frozenset(
            name
            for (name, _, own), found in zip(asked, named, strict=True)
            if found not in (None, own.encode()) and not _complaint(found)
        )

    def is_ghost(self, schema: TableSchema) -> bool:
        """Say whether a table is a ghost.  Cost: as `ghosts`."""
        return schema.name in self.ghosts([schema])

    def is_unclear(self, schema: TableSchema) -> bool:
        """Say whether what names the maker of a table cannot be read.  Cost: as `ghosts`."""
        if self._is_atomic or not maker(schema):
            return False
        found = self._control.read(_row(incarnation(schema)))
        return found is not None and bool(_complaint(found))

    def remove_ghost(self, schema: TableSchema) -> None:
        """Remove a ghost, so that its name is free.

        Raises:
            TableExists: clients of Omid's, which know nothing of ghosts, have written to it.
        """
        try:
            if self.is_written(schema):
                raise TableExists(ghost_text(schema.name, is_written=True))
            which = {INCARNATION_ATTRIBUTE: incarnation(schema), MAKER_ATTRIBUTE: maker(schema)}
            self._store.drop_table(schema.name, only=which)
        except NoSuchTable:
            return

    def is_written(self, schema: TableSchema) -> bool:
        """Say whether a ghost has cells, and not another table that has its name by now.

        Raises:
            NoSuchTable: it is gone.

        Cost: a search for a cell; where there is one, 1 look at the table.
        """
        if self._store.find_cell(schema.name) is None:
            return False
        # Behind the search: a table that has taken its place, and that clients write to, must not
        # be called one that anybody may drop.
        now = self._store.schema(schema.name)
        return (incarnation(now), maker(now)) == (incarnation(schema), maker(schema))

    def _name(self, which: str, own: bytes) -> bytes:
        """Set a row that may be absent; return what it is then, for good."""
        row = _row(which)
        if self._control.replace_own(row, None, own):
            return own
        found = self._control.read(row)  # of a faster runner
        assert found is not None, "it was set, and is never removed"
        return found


def ghost_text(table: str, *, is_written: bool) -> str:
    """Say what a ghost is, and what becomes of it."""
    text = (
        f"table {table!r} is there for nobody: who made it was stopped, and went on when it had "
        "been dropped"
    )
    if is_written:
        return (
            f"{text}; clients that know nothing of that have written to it: take it over with "
            f"`omidpy table adopt {table} --apply`, or drop it in HBase's shell"
        )
    return f"{text}; the next table of its name takes its place"


def _complaint(found: bytes) -> str:
    """Say why a row names no maker; empty if it does."""
    if found == NOBODY or _MAKER.fullmatch(found):
        return ""
    return f"holds {found[:80]!r}, which is the maker of no table"


def _checked(found: bytes | None, which: str, table: str) -> bytes | None:
    if found is not None and (complaint := _complaint(found)):
        raise CorruptCell(
            f"{CONTROL_TABLE} row {_row(which)!r} {complaint}, so that nobody knows whether table "
            f"{table!r} is there for anybody: `omidpy table adopt {table} --apply` says that it is"
        )
    return found


def _row(which: str) -> bytes:
    return MADE_PREFIX + which.encode()
