"""What a client must know of a table to use it: its families, and what its writes conflict on.

Pure.  Who reads it from the store, and how long it is believed, is the catalogue's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from omidpy.base.cells import cell_id, cell_ids, check_qualifier, row_id, table_id
from omidpy.base.schema.phoenix import in_sql
from omidpy.base.words.arguments import parse_column
from omidpy.errors import NoSuchFamily
from omidpy.model import CellId, CellName, TableId

MAX_KNOWN_COLUMNS: Final = 1024
"""Columns that a layout remembers: some tables have a column for each thing that they know."""

MAX_KNOWN_BYTES: Final = 64
"""How long those are at most."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a client must know of a table to use it."""

    name: str
    families: frozenset[bytes]
    """The transactional families; others exist perhaps, but are not ours."""
    conflict_level: str
    """`cell` or `row`."""
    settings: Mapping[bytes, Mapping[str, str]] = field(default_factory=dict, compare=False)
    """The attributes of every family, as HBase calls them."""
    is_phoenixs: bool = False
    """Whether Apache Phoenix writes it, too, and may keep indexes of it, which must be looked at
    before a write."""
    incarnation: str = field(default="", compare=False)
    """Which one of its name it is; empty where that was not said."""
    columns: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict, compare=False)
    """Family and qualifier of columns that were found to be writable; see `writable_column`."""

    def writable_column(self, column: bytes) -> tuple[bytes, bytes]:
        """Return family and qualifier of a column, `b"family:qualifier"`, that may be written.

        Raises:
            UsageError, NoSuchFamily, TypeError: it may not.
        """
        family, qualifier = parse_column(column)
        self.check_family(family)
        check_qualifier(qualifier)
        if len(self.columns) < MAX_KNOWN_COLUMNS and len(column) <= MAX_KNOWN_BYTES:
            self.columns[column] = (family, qualifier)
        return family, qualifier

    def conflict_id(self, row: bytes, family: bytes, qualifier: bytes) -> CellId:
        """Return what the oracle compares for a write to this cell."""
        if self.conflict_level == "row":
            return row_id(self.name, row)
        return cell_id(self.name, row, family, qualifier)

    def conflict_ids(self, names: Iterable[CellName]) -> set[CellId]:
        """Return what the oracle compares for writes to some cells of this table."""
        if self.conflict_level == "row":
            return {row_id(self.name, row) for row in {name.row for name in names}}
        return cell_ids(self.name, names)

    def fence_ids(self) -> set[TableId]:
        """Return what the oracle compares with fences for writes to this table."""
        names = {self.name}
        if self.is_phoenixs:
            # CREATE INDEX fences the table by the name that SQL has, also where the store has S:T.
            names.add(in_sql(self.name))
        return {table_id(name) for name in names}

    def check_family(self, family: bytes) -> None:
        """Raise `NoSuchFamily` unless the family exists and is transactional."""
        if family not in self.families:
            known = ", ".join(sorted(repr(name) for name in self.families))
            raise NoSuchFamily(
                f"table {self.name!r} has no transactional family {family!r}; it has {known}; one "
                f"that was added later is adopted with `omidpy table adopt {self.name} --apply`"
            )
