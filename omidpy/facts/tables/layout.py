"""What a client must know of a table to use it: its families, and what its writes conflict on.

Pure.  Who reads it from the store, and how long it is believed, is the catalogue's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from omidpy.base.cells import cell_id, cell_ids, row_id
from omidpy.errors import NoSuchFamily
from omidpy.model import CellId, CellName


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

    def check_family(self, family: bytes) -> None:
        """Raise `NoSuchFamily` unless the family exists and is transactional."""
        if family not in self.families:
            known = ", ".join(sorted(repr(name) for name in self.families))
            raise NoSuchFamily(
                f"table {self.name!r} has no transactional family {family!r}; it has {known}; one "
                f"that was added later is adopted with `omidpy table adopt {self.name} --apply`"
            )
