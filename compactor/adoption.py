"""May a table that something else made be taken for ours, and which of its families?

Adopting hands cells to readers and to the compactor: what has neither a shadow cell nor a commit
entry is then invisible, and goes at the next compaction.  So a table is read whole before it is
marked.  A family is marked if it was marked already, or if it holds shadow cells; every family of
an empty table is.  Beside such families one of plain data stays unmarked.  In a table of nothing
else, all its families are marked, once their cells have shadow cells (`conversion.py`).

A table that is ours may have been written to since by somebody without transactions.  Adopting it
once more finds those cells, and gives them shadow cells as the first time.

Omid's clients agree on how conflicts are detected by their settings alone, ours by an attribute of
the table.  So adopting records it: what the operator says, else what Omid does by default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from compactor.conversion import (
    convert,
    late_versions,
    objection,
    versions_to_convert,
)
from compactor.ownership import (
    NOT_IGNORED,
    family_text,
    is_owned,
    read_ignored,
    set_ignored,
    unknown_tables,
)
from omidpy.catalog import CONFLICT_LEVELS
from omidpy.commit_facts import INVALID
from omidpy.commit_table import CommitTable
from omidpy.control import (
    COMMIT_TABLE_ATTRIBUTE,
    CONFLICT_LEVEL_ATTRIBUTE,
    OMID_ENABLED,
    TTL_ATTRIBUTE,
    VERSIONS_ATTRIBUTE,
    ControlTable,
    forgetfulness,
    is_system_table,
    transactional_families,
    weakness,
)
from omidpy.errors import NoSuchTable, UsageError
from omidpy.model import Cell, TableSchema, Timestamp, base
from omidpy.plain_versions import PlainVersions
from omidpy.storage.base import Store
from omidpy.visibility import sort_row

PAGE_ROWS: Final = 500

OMIDS_CONFLICT_LEVEL: Final = "cell"
"""What Omid's `conflictAnalysisLevel` is where nobody set it."""


class FamilyCensus(msgspec.Struct):
    """What one family holds."""

    is_marked: bool
    shadow_cells: int = 0
    data_cells: int = 0
    undecided_cells: int = 0
    """Data cells with neither a shadow cell nor a commit entry."""
    late_cells: int = 0
    """Those of them, in a table of ours, that were written without a transaction."""
    self_committed_cells: int = 0
    """Shadow cells, of those counted, that name their own version: autocommitted, or converted."""

    @property
    def is_transactional(self) -> bool:
        """Whether transactions wrote here, as far as the cells tell."""
        return self.is_marked or self.shadow_cells > self.self_committed_cells


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """What adopting a table would do."""

    table: str
    is_owned: bool
    """Whether it is ours already; then only missing marks are set, and late cells converted."""
    families: frozenset[bytes]
    """The families that will be ours."""
    plain: frozenset[bytes] = frozenset()
    """Those of them that hold plain data, whose cells get shadow cells first."""
    late: frozenset[bytes] = frozenset()
    """Those of them that hold plain data written since they became ours."""
    altered: frozenset[bytes] = frozenset()
    """Those of them whose limits of versions or age are taken away."""
    conflict_level: str = OMIDS_CONFLICT_LEVEL
    """What every client of the table must detect conflicts by."""
    is_level_chosen: bool = False
    """Whether an operator has said so, or the table did; else it is Omid's default."""
    census: Mapping[bytes, FamilyCensus] = field(default_factory=dict)

    def undecided_cells(self) -> int:
        """Return how many cells the adoption would make invisible and collectable."""
        transactional = [self.census[family] for family in self.families - self.plain]
        return sum(found.undecided_cells - found.late_cells for found in transactional)

    def plain_cells(self) -> int:
        """Return how many cells of plain data get shadow cells."""
        first = sum(self.census[family].undecided_cells for family in self.plain)
        return first + sum(self.census[family].late_cells for family in self.late)


def plan_adoption(
    store: Store,
    table: str,
    commit_table: str,
    *,
    may_alter: bool = False,
    conflict_level: str | None = None,
) -> AdoptionPlan:
    """Read a table and decide which of its families can be ours.

    Args:
        store: Where the table is.
        table: Its name.
        commit_table: Whose transactions it shall have.
        may_alter: Plan to take away the limits of families, instead of refusing those that have
            some.
        conflict_level: What its clients detect conflicts by, `cell` or `row`.  None: what the table
            says, else what Omid's clients do by default.

    Raises:
        UsageError: no such level or table, a system table, one of another commit table, one of
            plain data that transactions would misread, or one whose old versions or acknowledged
            writes HBase drops.

    Cost: reads the whole table, 1 commit table get a page; plain data is read twice.
    """
    if not (store.capabilities.multi_version_scan and store.capabilities.table_admin):
        raise UsageError(
            f"{store.url} cannot scan all versions of a table or change its attributes, which "
            "adopting needs; open the store through hbase+thrift2://"
        )
    if conflict_level not in (None, *CONFLICT_LEVELS):
        raise UsageError(
            f"the conflict level {conflict_level!r} is none of {', '.join(CONFLICT_LEVELS)}"
        )
    schema = users_schema(store, table)
    owner = schema.attributes.get(COMMIT_TABLE_ATTRIBUTE)
    if owner not in (None, commit_table):
        raise UsageError(
            f"table {table} belongs to the commit table {owner}; remove its attribute "
            f"{COMMIT_TABLE_ATTRIBUTE} first if that is wrong"
        )
    if (complaint := weakness(schema)) is not None:
        raise UsageError(complaint)
    owned = is_owned(schema, commit_table)
    late_ones = late_versions(store) if owned else None
    census = take_census(store, schema, commit_table, late_ones)
    families = frozenset(name for name, found in census.items() if found.is_transactional)
    plain: frozenset[bytes] = frozenset()
    if not families:
        families = frozenset(census)
        plain = frozenset(name for name, found in census.items() if found.data_cells)
    altered = limited_families(schema) & families
    if altered and not may_alter and (complaint := forgetfulness(schema, families)) is not None:
        raise UsageError(f"{complaint}, or add --alter-families")
    late = frozenset(name for name, found in census.items() if found.late_cells)
    if plain:
        _check_convertible(store, table, plain, versions_to_convert(store))
    if late and late_ones is not None:
        _check_convertible(store, table, late, late_ones, among_transactions=True)
    chosen = conflict_level or schema.attributes.get(CONFLICT_LEVEL_ATTRIBUTE)
    return AdoptionPlan(
        table,
        owned,
        families,
        plain,
        late,
        altered,
        conflict_level=chosen or OMIDS_CONFLICT_LEVEL,
        is_level_chosen=chosen is not None,
        census=census,
    )


def adopt(store: Store, plan: AdoptionPlan, commit_table: str) -> int:
    """Carry out a plan; the table's attribute comes last: without it nothing is ours.

    Returns:
        How many cells of plain data got shadow cells.

    Raises:
        UsageError: plain data changed meanwhile; the adoption can be done again.
    """
    for family in sorted(plan.altered):
        limits = {VERSIONS_ATTRIBUTE: None, TTL_ATTRIBUTE: None}
        store.set_family_attributes(plan.table, family, limits)
    converted = 0
    if plan.plain:
        converted = convert(store, plan.table, plan.plain, versions_to_convert(store))
    if plan.late:
        versions = late_versions(store)
        converted += convert(store, plan.table, plan.late, versions, among_transactions=True)
    for family in sorted(plan.families):
        store.set_family_attributes(plan.table, family, {OMID_ENABLED: "true"})
    attributes = {
        CONFLICT_LEVEL_ATTRIBUTE: plan.conflict_level,
        COMMIT_TABLE_ATTRIBUTE: commit_table,
    }
    store.set_table_attributes(plan.table, attributes)
    control = ControlTable(store)
    word = read_ignored(control).get(plan.table, NOT_IGNORED)
    still_ignored = set(word.families) - plan.families
    if word.is_ignored or len(still_ignored) < len(word.families):
        set_ignored(control, plan.table, is_ignored=False, families=still_ignored)
    return converted


def limited_families(schema: TableSchema) -> frozenset[bytes]:
    """Return the families of which the store drops old versions or old cells."""
    return frozenset(
        family.name
        for family in schema.families
        if {VERSIONS_ATTRIBUTE, TTL_ATTRIBUTE} & family.attributes.keys()
    )


def _check_convertible(
    store: Store,
    table: str,
    families: Collection[bytes],
    versions: PlainVersions,
    *,
    among_transactions: bool = False,
) -> None:
    """Refuse plain data that transactions would not see as it is."""
    columns = [(family, None) for family in sorted(families)]
    count, first = 0, ""
    for page in store.scan(table, columns=columns, page_rows=PAGE_ROWS):
        for cells in page:
            row = sort_row(cells)
            for cell in row.data:
                if among_transactions and not versions.contains(cell.version):
                    continue
                if cell[1:4] in row.shadows or (why := objection(cell, versions)) is None:
                    continue
                first = first or f"{cell[:4]!r}, {why}"
                count += 1
    if count:
        raise UsageError(
            f"{count} cells of {table} are plain data that transactions would not see as they are; "
            f"the first: {first}; rewrite or delete those, or copy the table into a transactional "
            "one"
        )


def ignore(
    store: Store,
    table: str,
    commit_table: str,
    *,
    families: Collection[bytes] | None = None,
    is_dry_run: bool = False,
) -> None:
    """Take a table, or some of its families, out of the account.

    Args:
        store: Where it is.
        table: Its name.
        commit_table: Whose transactions did not write there.
        families: Which of its families; None is all of it, those that it may get later too.
        is_dry_run: Only look whether that may be done.

    Raises:
        UsageError: there is none, or it is a system table, or its transactions are ours.
    """
    schema = users_schema(store, table)
    ours = transactional_families(schema) if is_owned(schema, commit_table) else frozenset()
    if families is None and ours:
        raise UsageError(
            f"table {table} is ours: its cells need the commit table, and ignoring it would lose "
            "committed data; drop the table, leave it out of one run with --exclude, or name a "
            "family without the mark with --families"
        )
    check_families(schema, families or ())
    if claimed := sorted(ours & frozenset(families or ())):
        raise UsageError(
            f"family {family_text(claimed[0])} of table {table} is ours: its cells need the commit "
            "table, and ignoring it would lose committed data"
        )
    if is_dry_run:
        return
    control = ControlTable(store)
    word = read_ignored(control).get(table, NOT_IGNORED)
    if families is None:
        set_ignored(control, table, is_ignored=True, families=word.families)
    else:
        both = {*word.families, *families}
        set_ignored(control, table, is_ignored=word.is_ignored, families=both)


def check_families(schema: TableSchema, families: Iterable[bytes]) -> None:
    """Refuse families that a table lacks.

    Raises:
        UsageError: naming the first of them, and those that there are.
    """
    names = schema.family_names()
    if unknown := sorted(set(families) - set(names)):
        raise UsageError(
            f"table {schema.name} has no family {family_text(unknown[0])}; it has "
            f"{', '.join(map(family_text, names))}"
        )


def users_schema(store: Store, table: str) -> TableSchema:
    """Return the schema of a table that a command names.

    Raises:
        UsageError: there is none, or it belongs to Omid, omidpy or HBase.
    """
    if is_system_table(table):
        raise UsageError(f"table {table} is a system table; name a table of yours")
    try:
        schema = store.schema(table)
    except NoSuchTable:
        raise UsageError(unknown_tables([table], store.url)) from None
    if schema.name != table:
        # The default namespace of HBase may be named; what is recorded goes by the other name.
        raise UsageError(f"{table} is a second name of the table {schema.name}; use that one")
    return schema


def take_census(
    store: Store,
    schema: TableSchema,
    commit_table: str,
    late_ones: PlainVersions | None = None,
) -> dict[bytes, FamilyCensus]:
    """Count, by family, the cells of a table and what is known of their transactions.

    Args:
        store: Where the table is.
        schema: Its description.
        commit_table: Where its transactions are decided.
        late_ones: In a table of ours, which versions are certainly no transaction's.
    """
    marked = transactional_families(schema)
    census = {name: FamilyCensus(name in marked) for name in schema.family_names()}
    commits = CommitTable(store, commit_table)
    for page in store.scan(schema.name, page_rows=PAGE_ROWS):
        unknown: list[Cell] = []
        for cells in page:
            row = sort_row(cells)
            for (family, _, version), commit_ts in row.shadows.items():
                census[family].shadow_cells += 1
                census[family].self_committed_cells += commit_ts == version
            for cell in row.data:
                census[cell.family].data_cells += 1
                is_known = cell[1:4] in row.shadows or base(cell.version) in row.commits
                if not is_known:
                    unknown.append(cell)
        entries = commits.read({Timestamp(base(cell.version)) for cell in unknown})
        for cell in unknown:
            if entries[base(cell.version)] in (None, INVALID):
                found = census[cell.family]
                found.undecided_cells += 1
                if found.is_marked and late_ones and late_ones.contains(cell.version):
                    found.late_cells += 1
    return census
