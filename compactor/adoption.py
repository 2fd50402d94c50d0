"""May a table that something else made be taken for ours, and which of its families?

Adopting hands cells to readers and to the compactor: what has neither a shadow cell nor a commit
entry is then invisible, and goes at the next compaction.  So a table is read whole before it is
marked.  A family is marked if it was marked already, or if it holds shadow cells; every family of
an empty table is.  A family of plain data stays unmarked, and a table of nothing else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from compactor.ownership import ignored_tables, is_owned, set_ignored, unknown_tables
from omidpy.commit_facts import INVALID
from omidpy.commit_table import CommitTable
from omidpy.control import (
    COMMIT_TABLE_ATTRIBUTE,
    OMID_ENABLED,
    ControlTable,
    forgetfulness,
    is_system_table,
    transactional_families,
)
from omidpy.errors import NoSuchTable, UsageError
from omidpy.model import Cell, TableSchema, Timestamp, base
from omidpy.storage.base import Store
from omidpy.visibility import sort_row

PAGE_ROWS: Final = 500


class FamilyCensus(msgspec.Struct):
    """What one family holds."""

    is_marked: bool
    shadow_cells: int = 0
    data_cells: int = 0
    undecided_cells: int = 0
    """Data cells with neither a shadow cell nor a commit entry."""


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """What adopting a table would do."""

    table: str
    is_owned: bool
    """Whether it is ours already; then only missing marks are set."""
    families: frozenset[bytes]
    """The families that will be ours."""
    census: Mapping[bytes, FamilyCensus] = field(default_factory=dict)

    def undecided_cells(self) -> int:
        """Return how many cells the adoption would make invisible and collectable."""
        return sum(self.census[family].undecided_cells for family in self.families)


def plan_adoption(store: Store, table: str, commit_table: str) -> AdoptionPlan:
    """Read a table and decide which of its families can be ours.

    Raises:
        UsageError: no such table, a system table, one of another commit table, one of plain data
            alone, or one whose old versions HBase drops.

    Cost: reads the whole table, 1 commit table get a page.
    """
    schema = users_schema(store, table)
    owner = schema.attributes.get(COMMIT_TABLE_ATTRIBUTE)
    if owner not in (None, commit_table):
        raise UsageError(
            f"table {table} belongs to the commit table {owner}; remove its attribute "
            f"{COMMIT_TABLE_ATTRIBUTE} first if that is wrong"
        )
    census = take_census(store, schema, commit_table)
    families = frozenset(
        family for family, found in census.items() if found.is_marked or found.shadow_cells
    )
    if not families:
        if any(found.data_cells for found in census.values()):
            cells = sum(found.data_cells for found in census.values())
            raise UsageError(
                f"table {table} holds only plain data: none of its {cells} cells has a shadow "
                "cell, so no transaction would see them; copy it into a transactional table"
            )
        families = frozenset(census)
    if (complaint := forgetfulness(schema, families)) is not None:
        raise UsageError(complaint)
    return AdoptionPlan(table, is_owned(schema, commit_table), families, census)


def adopt(store: Store, plan: AdoptionPlan, commit_table: str) -> None:
    """Mark the families of a plan, and the table last: without its attribute nothing is ours."""
    for family in sorted(plan.families):
        store.set_family_attributes(plan.table, family, {OMID_ENABLED: "true"})
    store.set_table_attributes(plan.table, {COMMIT_TABLE_ATTRIBUTE: commit_table})
    control = ControlTable(store)
    if plan.table in ignored_tables(control):
        set_ignored(control, plan.table, is_ignored=False)


def check_ignorable(store: Store, table: str, commit_table: str) -> None:
    """Refuse to take a table out of the account whose transactions are ours.

    Raises:
        UsageError: there is none, or it is a system table, or ours.
    """
    if is_owned(users_schema(store, table), commit_table):
        raise UsageError(
            f"table {table} is ours: its cells need the commit table, and ignoring it would lose "
            "committed data; drop the table, or leave it out of one run with --exclude"
        )


def users_schema(store: Store, table: str) -> TableSchema:
    """Return the schema of a table that a command names.

    Raises:
        UsageError: there is none, or it belongs to Omid, omidpy or HBase.
    """
    if is_system_table(table):
        raise UsageError(f"table {table} is a system table; name a table of yours")
    try:
        return store.schema(table)
    except NoSuchTable:
        raise UsageError(unknown_tables([table], store.url)) from None


def take_census(store: Store, schema: TableSchema, commit_table: str) -> dict[bytes, FamilyCensus]:
    """Count, by family, the cells of a table and what is known of their transactions."""
    marked = transactional_families(schema)
    census = {name: FamilyCensus(name in marked) for name in schema.family_names()}
    commits = CommitTable(store, commit_table)
    for page in store.scan(schema.name, page_rows=PAGE_ROWS):
        unknown: list[Cell] = []
        for cells in page:
            row = sort_row(cells)
            for family, _, _ in row.shadows:
                census[family].shadow_cells += 1
            for cell in row.data:
                census[cell.family].data_cells += 1
                is_known = cell[1:4] in row.shadows or base(cell.version) in row.commits
                if not is_known:
                    unknown.append(cell)
        entries = commits.read({Timestamp(base(cell.version)) for cell in unknown})
        for cell in unknown:
            if entries[base(cell.version)] in (None, INVALID):
                census[cell.family].undecided_cells += 1
    return census
