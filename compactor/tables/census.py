"""What does a table hold, family by family, and may transactions have written it?

Read before the table is adopted.  A data cell without a shadow cell is one of four things, told by
its commit entry and by its version (`omidpy/facts/tables/plain_versions.py`):

    committed     its entry stands: the next compaction writes its shadow cell
    plain         no oracle issues such versions: data, written without a transaction
    undecided     it may be a transaction's, and nothing says that it committed
    hopeless      plain data that no shadow cell can make visible as it is

Reads only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from compactor.rows.pieces import Piece, scan_pieces
from omidpy.base.cells import is_tombstone
from omidpy.base.commit_facts import INVALID
from omidpy.base.tables import transactional_families
from omidpy.facts.commit_table import CommitTable, read_timestamp_ceiling
from omidpy.facts.tables.plain_versions import NO_VERSIONS, PlainVersions, plain_versions
from omidpy.model import MAX_VERSION, TIMESTAMP_STEP, Cell, TableSchema, Timestamp, base
from omidpy.reading.visibility import sort_row
from omidpy.storage.base import Store
from omidpy.storage.options import Wanted

PAGE_ROWS: Final = 500


class FamilyCensus(msgspec.Struct):
    """What one family holds."""

    is_marked: bool
    shadow_cells: int = 0
    data_cells: int = 0
    committed_cells: int = 0
    """Data cells without a shadow cell whose commit entry stands."""
    undecided_cells: int = 0
    """Data cells with neither, which a transaction may have written."""
    plain_cells: int = 0
    """Data cells with neither, which none has written: they get shadow cells of their own."""
    self_committed_cells: int = 0
    """Shadow cells, of those counted, that name their own version: autocommitted, or converted."""

    @property
    def is_transactional(self) -> bool:
        """Whether transactions wrote here, as far as the cells tell."""
        is_written = self.shadow_cells > self.self_committed_cells or self.committed_cells > 0
        return self.is_marked or is_written


@dataclass(slots=True)
class Census:
    """What a table holds."""

    families: dict[bytes, FamilyCensus]
    is_plain_known: bool
    """Whether it is known which versions are plain: an oracle of ours has started."""
    hopeless: Counter[bytes] = field(default_factory=Counter)
    """By family, how many cells no transaction would see as they are."""
    objections: dict[bytes, str] = field(default_factory=dict)
    """By family, the first of them, and why."""

    def give_up(self, cell: Cell, reason: str) -> None:
        """Note a hopeless cell."""
        self.hopeless[cell.family] += 1
        self.objections.setdefault(cell.family, f"{cell[:4]!r}, {reason}")


def take_census(store: Store, schema: TableSchema, commit_table: str) -> Census:
    """Count the cells of a table and what is known of their transactions.

    Args:
        store: Where the table is.
        schema: Its description.
        commit_table: Where its transactions are decided.

    Cost: reads the whole table, 1 commit table get a page.
    """
    marked = transactional_families(schema)
    known = plain_versions(store)
    plain = known or NO_VERSIONS
    census = Census(
        {name: FamilyCensus(name in marked) for name in schema.family_names()}, known is not None
    )
    commits = CommitTable(store, commit_table)
    end = MAX_VERSION if known is None else _end_of_versions(store)
    wanted = Wanted(tuple(sorted(schema.family_names())))
    for page in scan_pieces(
        store, schema.name, wanted, page_rows=PAGE_ROWS, commits_of=_commits_of
    ):
        unknown = [cell for piece in page for cell in _count_piece(census, piece)]
        entries = commits.read({Timestamp(base(cell.version)) for cell in unknown})
        if any(cell.version >= end for cell in unknown):
            # Perhaps a transaction that began while we read.
            end = _end_of_versions(store)
        for cell in unknown:
            if entries[base(cell.version)] in (None, INVALID):
                _count_unresolved(census, cell, plain, end=end)
            else:
                census.families[cell.family].committed_cells += 1
    return census


def _end_of_versions(store: Store) -> int:
    """Return a bound above every version that a transaction has used so far."""
    ceiling = read_timestamp_ceiling(store)
    return MAX_VERSION if ceiling is None else ceiling + TIMESTAMP_STEP


def _commits_of(cells: Sequence[Cell]) -> Mapping[Timestamp, Timestamp]:
    return sort_row(cells).commits


def _count_piece(census: Census, piece: Piece) -> Iterator[Cell]:
    """Count the cells of a row; yield those of which no shadow cell of the row speaks."""
    row = sort_row(piece.cells)
    for (family, _, version), commit_ts in row.shadows.items():
        census.families[family].shadow_cells += 1
        census.families[family].self_committed_cells += commit_ts == version
    for cell in row.data:
        census.families[cell.family].data_cells += 1
        told = base(cell.version) in row.commits or base(cell.version) in piece.commits
        if cell[1:4] not in row.shadows and not told:
            yield cell


def _count_unresolved(census: Census, cell: Cell, plain: PlainVersions, *, end: int) -> None:
    """Count a cell with neither a shadow cell nor a commit entry."""
    if plain.contains(cell.version):
        census.families[cell.family].plain_cells += 1
        if is_tombstone(cell.value):
            census.give_up(cell, f"the value {cell.value!r} is how this format writes a delete")
        return
    census.families[cell.family].undecided_cells += 1
    if cell.version >= end:
        census.give_up(
            cell, f"version {cell.version} is above every timestamp that was issued so far"
        )
