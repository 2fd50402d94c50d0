"""May a table that something else made be taken for ours, and which of its families?

Every family, unless the operator names fewer: a client of Omid's writes into any of them, and what
it commits in one that is not ours we would neither see nor heal.

Adopting hands cells to readers and to the compactor: what has neither a shadow cell nor a commit
entry is then invisible, and goes at the next compaction.  So a table is read whole before it is
marked (`census.py`).  Plain data gets shadow cells of its own (`conversion.py`); undecided cells go
only with the operator's consent.

A table that is ours may have been written to since by a client without transactions, or have got
another family.  Adopting it once more does for those what it does the first time.

Omid's clients agree on how conflicts are detected by their settings alone, ours by an attribute of
the table.  So adopting records it: what the operator says, else what Omid does by default.  Apache
Phoenix always goes by row, so that its tables take no other level (`base/schema/phoenix.py`).

Between looking and adopting the table may be dropped, and another one made of its name, whose cells
were not looked at.  So what is adopted is the incarnation that was read: each change names
it, or looks right before where it cannot.  A table without one, Java's or the shell's, gets one
before it is read if it is about to be adopted; a plan that was made without that can only tell
whether the table looks the same still.  It may also be restored, and have its incarnation still;
so its state is compared, too, and what becomes ours is the table in the state that was read.

The level of a table of ours changes while clients write it.  Between the two levels lies a fence,
before which no client is let in and behind which none comes that knows the earlier one:

    ours by cell -> nobody's -> fence -> ours by row

Another operator may adopt it meanwhile.  So each change names the level that was seen, and the last
one the change of which it is the end: what another operator has made of the table is left as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import msgspec

from compactor.tables.census import Census, FamilyCensus, take_census
from compactor.tables.conversion import convert
from compactor.tables.naming import (
    another,
    check_incarnation,
    check_told,
    give_name,
    set_attributes,
    told_name,
)
from compactor.tables.ownership import (
    Ignored,
    change_ignored,
    family_text,
    is_owned,
    unknown_tables,
)
from omidpy.base.cells import table_id
from omidpy.base.schema.phoenix import CONFLICT_LEVEL as PHOENIXS_CONFLICT_LEVEL
from omidpy.base.schema.phoenix import is_transactional, objection
from omidpy.base.tables import (
    CHANGING,
    COMMIT_TABLE_ATTRIBUTE,
    CONFLICT_LEVEL_ATTRIBUTE,
    INCARNATION_ATTRIBUTE,
    KEPT_ATTRIBUTE,
    LEVEL_CHANGE_ATTRIBUTE,
    MAKER_ATTRIBUTE,
    MOST_KEPT,
    OMID_ENABLED,
    TTL_ATTRIBUTE,
    VERSIONS_ATTRIBUTE,
    forgetfulness,
    incarnation,
    is_system_table,
    new_incarnation,
    transactional_families,
    was_before,
    weakness,
)
from omidpy.errors import NoSuchTable, StorageError, UsageError
from omidpy.facts.tables.catalog import CONFLICT_LEVELS, is_closed
from omidpy.facts.tables.makers import Makers
from omidpy.facts.tables.plain_versions import NO_VERSIONS, plain_versions
from omidpy.facts.tables.removed import forget_removal
from omidpy.facts.tables.sightings import NO_DOUBT, doubt_about, sight_adopted, state_of
from omidpy.model import TableSchema
from omidpy.oracle.base import Oracle
from omidpy.storage.base import Store

OMIDS_CONFLICT_LEVEL: Final = "cell"
"""What Omid's `conflictAnalysisLevel` is by default."""


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """What adopting a table would do."""

    table: str
    owned: frozenset[bytes]
    """The families that are ours already; empty if the table is not."""
    families: frozenset[bytes]
    """The families that will be ours, those included."""
    seen: TableSchema
    """The table as it was when its cells were read."""
    state: int | None = None
    """In which one it was before (`facts/sightings.py`); None where no table is restored alone."""
    altered: frozenset[bytes] = frozenset()
    """Those of them whose limits of versions or age are taken away."""
    conflict_level: str = OMIDS_CONFLICT_LEVEL
    """What every client of the table must detect conflicts by."""
    is_level_chosen: bool = False
    """Whether an operator has said so, or the table did; else it is Omid's default."""
    changes_level: bool = False
    """Whether it is ours already, and says that its clients go by another one."""
    census: Mapping[bytes, FamilyCensus] = field(default_factory=dict)
    """What every family holds, those included that will not be ours."""

    @property
    def which(self) -> str:
        """Which table of its name it is, as an operator is told."""
        return told_name(self.seen, self.state)

    @property
    def plain(self) -> frozenset[bytes]:
        """The families of ours-to-be with plain data, whose cells get shadow cells first."""
        return frozenset(one for one in self.families if self.census[one].plain_cells)

    def plain_cells(self) -> int:
        """Return how many cells of plain data get shadow cells."""
        return sum(self.census[family].plain_cells for family in self.families)

    def undecided_cells(self) -> int:
        """Return how many cells the adoption would make invisible and collectable.

        What is undecided in a family that is ours already is what running transactions are writing.
        """
        return sum(self.census[family].undecided_cells for family in self.families - self.owned)

    def has_unhealed_cells(self) -> bool:
        """Say whether some cell has no shadow cell, and is no plain data."""
        return any(
            self.census[family].undecided_cells or self.census[family].committed_cells
            for family in self.families
        )

    def census_after(self, converted: Mapping[bytes, int]) -> dict[bytes, FamilyCensus]:
        """Return what the families hold once so many cells of each have got shadow cells."""
        return {
            family: msgspec.structs.replace(
                found,
                is_marked=found.is_marked or family in self.families,
                shadow_cells=found.shadow_cells + converted.get(family, 0),
                self_committed_cells=found.self_committed_cells + converted.get(family, 0),
                plain_cells=0 if family in self.families else found.plain_cells,
            )
            for family, found in self.census.items()
        }


def plan_adoption(
    store: Store,
    table: str,
    commit_table: str,
    *,
    families: Collection[bytes] | None = None,
    may_alter: bool = False,
    conflict_level: str | None = None,
    names_it: bool = False,
    only: str | None = None,
) -> AdoptionPlan:
    """Read a table and say what adopting it would do.

    Args:
        store: Where the table is.
        table: Its name.
        commit_table: Whose transactions it shall have.
        families: Which of its families; None is all of them.
        may_alter: Plan to take away the limits of families, instead of refusing those that have
            some.
        conflict_level: What its clients detect conflicts by, `cell` or `row`.  None: what the table
            says, else what Omid's clients do by default.
        names_it: Give a table that has none an incarnation before it is read, and change nothing
            else: then `adopt` knows whether it still is this one.
        only: What `AdoptionPlan.which` was, where another table of the name is to be left alone.

    Raises:
        StorageError: it became another table while it was looked at.
        UsageError: no such level, table or family, a system table, one of another commit table, one
            that Phoenix writes without transactions or at another level, one of plain data that
            transactions would misread, one whose old versions or acknowledged writes HBase drops,
            or a family with the mark is not among `families`.

    Cost: reads the whole table, 1 commit table get a page.
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
    consider = partial(
        _considered,
        store,
        table,
        commit_table,
        families=families,
        conflict_level=conflict_level,
        may_alter=may_alter,
    )
    schema, found = consider()
    check_told(table, told_name(schema, state_of(store, table)), only)
    if names_it and not incarnation(schema):
        give_name(store, table)
        # Another table may have had the name when it was looked at.
        schema, found = consider()
    wanted, altered, chosen, recorded = found
    state = state_of(store, table)
    if only is not None and "@" in only:
        check_told(table, told_name(schema, state), only)  # of another one, the name is new
    marked = transactional_families(schema)
    census = take_census(store, schema, commit_table)
    _check_visible(store, table, census, wanted)
    level = chosen or OMIDS_CONFLICT_LEVEL
    is_ours = is_owned(schema, commit_table)
    return AdoptionPlan(
        table,
        marked if is_ours else frozenset(),
        wanted,
        schema,
        state,
        altered,
        conflict_level=level,
        is_level_chosen=chosen is not None,
        changes_level=is_ours and recorded not in (None, level),
        census=census.families,
    )


class _Considered(NamedTuple):
    """What is known of an adoption before a cell is read."""

    wanted: frozenset[bytes]
    altered: frozenset[bytes]
    chosen_level: str | None
    recorded_level: str | None


def _considered(
    store: Store,
    table: str,
    commit_table: str,
    *,
    families: Collection[bytes] | None,
    conflict_level: str | None,
    may_alter: bool,
) -> tuple[TableSchema, _Considered]:
    """Return the table, and what its schema says of adopting it; see `plan_adoption`."""
    schema = users_schema(store, table)
    owner = schema.attributes.get(COMMIT_TABLE_ATTRIBUTE)
    if owner not in (None, commit_table):
        raise UsageError(
            f"table {table} belongs to the commit table {owner}; remove its attribute "
            f"{COMMIT_TABLE_ATTRIBUTE} first if that is wrong"
        )
    if (complaint := weakness(schema)) is not None:
        raise UsageError(complaint)
    chosen, recorded = _chosen_level(schema, conflict_level)
    wanted = frozenset(schema.family_names() if families is None else families)
    check_families(schema, wanted)
    if missing := sorted(transactional_families(schema) - wanted):
        raise UsageError(
            f"family {family_text(missing[0])} of table {table} has {OMID_ENABLED}=true, so that "
            "it is ours with the table; name it among --families, too"
        )
    altered = limited_families(schema) & wanted
    if altered and not may_alter and (complaint := forgetfulness(schema, wanted)) is not None:
        raise UsageError(f"{complaint}, or add --alter-families")
    return schema, _Considered(wanted, altered, chosen, recorded)


def _chosen_level(schema: TableSchema, asked: str | None) -> tuple[str | None, str | None]:
    """Return what a table's conflicts shall be detected by, and what it says so far.

    None: that was not said.

    Raises:
        UsageError: Phoenix does otherwise, or a change was interrupted and it is not said to what.
    """
    if (why := objection(schema)) is not None:
        raise UsageError(why)
    recorded = schema.attributes.get(CONFLICT_LEVEL_ATTRIBUTE)
    if is_transactional(schema):
        if asked not in (None, PHOENIXS_CONFLICT_LEVEL):
            raise UsageError(
                f"table {schema.name} is Phoenix's, which detects conflicts by "
                f"{PHOENIXS_CONFLICT_LEVEL}: by {asked} updates of both would be lost; leave "
                f"--conflict-level out, or give {PHOENIXS_CONFLICT_LEVEL}"
            )
        return PHOENIXS_CONFLICT_LEVEL, recorded
    if asked is None and recorded == CHANGING:
        raise UsageError(
            f"a change of the conflict level of table {schema.name} was interrupted; say with "
            "--conflict-level what it shall be"
        )
    return asked or recorded, recorded


def adopt(
    store: Store,
    plan: AdoptionPlan,
    commit_table: str,
    *,
    oracle: Oracle | None = None,
    doubtful: int = NO_DOUBT,
    reopens: bool = False,
) -> Counter[bytes]:
    """Carry out a plan; the table's attribute comes last: without it nothing is ours.

    Args:
        store: Where the table is.
        plan: What to do.
        commit_table: Whose transactions it shall have.
        oracle: Sets the fence that a change of the level takes; may be left out if it does not
            change.
        doubtful: Versions at or below it that have no proof may be what is left of committed data,
            so that they stay (`facts/sightings.py`), where single tables are restored; a person who
            adopts has said that they may go.
        reopens: Whether transactions may write a table of ours again that somebody has closed to
            remove it (`omidpy/facts/tables/removal.py`).

    Returns:
        By family, how many cells of plain data got shadow cells.

    Raises:
        StorageError: the table is another one than was read for the plan.
        UsageError: plain data changed meanwhile; the adoption can be done again.  Or the level
            changes and there is no oracle; nothing was changed.
    """
    if plan.changes_level and oracle is None:
        raise UsageError(
            f"table {plan.table} is ours, and its clients must not go on by the earlier conflict "
            "level; name its oracle with --tso, which fences them off"
        )
    before = _as_seen(store, plan)
    which = incarnation(before) or give_name(store, plan.table)
    check = partial(check_incarnation, store, plan.table, which, plan.state)
    for family in sorted(plan.altered):
        limits = {VERSIONS_ATTRIBUTE: None, TTL_ATTRIBUTE: None}
        check()
        store.set_family_attributes(plan.table, family, limits)
    converted: Counter[bytes] = Counter()
    if plan.plain:
        versions = plain_versions(store) or NO_VERSIONS
        converted = convert(store, plan.table, plan.plain, versions, check=check)
    for family in sorted(plan.families):
        # A mark on another table, should it come in between, makes that one no table of ours.
        check()
        store.set_family_attributes(plan.table, family, {OMID_ENABLED: "true"})
    makers = Makers(store)
    is_ghost = makers.is_ghost(before) or makers.is_unclear(before)
    # What was claimed of an earlier table of this name says nothing of one that becomes ours.  And
    # who was about to remove this one, and stands still, shall not remove it when it goes on.
    is_new = is_ghost or not plan.owned or (reopens and is_closed(store, before))
    becomes = new_incarnation() if is_new else which
    attributes: dict[str, str | None] = {
        CONFLICT_LEVEL_ATTRIBUTE: plan.conflict_level,
        COMMIT_TABLE_ATTRIBUTE: commit_table,
        INCARNATION_ATTRIBUTE: becomes,
    }
    if plan.owned and becomes != which:
        # So that who was about to remove it does not say that it is gone.
        attributes[KEPT_ATTRIBUTE] = " ".join([*was_before(before), which][-MOST_KEPT:])
    if is_ghost:
        # From now on it is there for every client: one change makes it so.
        attributes[MAKER_ATTRIBUTE] = None
    # Clients go by the level that the table has, and another operator may have changed it since: to
    # set it without the fence would lose updates.
    seen = {
        name: plan.seen.attributes.get(name)
        for name in (CONFLICT_LEVEL_ATTRIBUTE, LEVEL_CHANGE_ATTRIBUTE)
    }
    if plan.changes_level and oracle is not None:
        # In this order: who comes now is refused, who came before is aborted by the fence, and who
        # comes behind it reads the table anew (`Catalog.layout_for`).
        changing: dict[str, str | None] = {
            CONFLICT_LEVEL_ATTRIBUTE: CHANGING,
            LEVEL_CHANGE_ATTRIBUTE: new_incarnation(),
        }
        set_attributes(store, plan.table, which, changing, seen=seen)
        oracle.fence(table_id(plan.table))
        # Behind the fence of this change, and of no other one.
        seen = changing
        attributes[LEVEL_CHANGE_ATTRIBUTE] = None
    if plan.state is not None and becomes != which:
        # Before it is ours: who finds that, finds also what is in doubt about it.
        if plan.owned and not is_ghost:
            doubtful = max(doubtful, doubt_about(store, plan.table, which))
        sight_adopted(store, plan.table, becomes, state=plan.state, doubtful=doubtful)
    set_attributes(store, plan.table, which, attributes, seen=seen)
    if becomes != which:
        # Who was about to remove it did not, and does not any more.
        forget_removal(store, plan.table, which)

    def but_what_is_ours(word: Ignored) -> Ignored:
        return Ignored(False, tuple(sorted(set(word.families) - plan.families)), word.incarnation)

    # Of the same table, which has another incarnation since it is ours.
    change_ignored(store, before, but_what_is_ours, which=becomes)
    return converted


def _as_seen(store: Store, plan: AdoptionPlan) -> TableSchema:
    """Return the table that was read for a plan.

    One that had no incarnation then is known by its looks alone: another that was made like it
    meanwhile is taken for it.  `names_it` of `plan_adoption` leaves no such room.

    Raises:
        StorageError: it is another one.
    """
    found = store.schema(plan.table)
    which = incarnation(plan.seen)
    is_same = incarnation(found) == which and state_of(store, plan.table) == plan.state
    if not (is_same and (which or found == plan.seen)):
        raise another(plan.table)
    return found


def _check_visible(store: Store, table: str, census: Census, wanted: frozenset[bytes]) -> None:
    """Refuse data that transactions would not see as it is, or of which that is unknown."""
    if not census.is_plain_known and any(
        found.undecided_cells and not found.is_transactional
        for family, found in census.families.items()
        if family in wanted
    ):
        raise UsageError(
            f"no oracle has started on {store.url} yet, so that it is not known which versions are "
            "transactions'; start `tso-server` first"
        )
    if hopeless := [family for family in sorted(wanted) if census.hopeless[family]]:
        count = sum(census.hopeless[family] for family in hopeless)
        raise UsageError(
            f"{count} cells of {table} are plain data that transactions would not see as they are; "
            f"the first: {census.objections[hopeless[0]]}; rewrite or delete those, leave their "
            "family out with --families, or copy the table into a transactional one"
        )


def limited_families(schema: TableSchema) -> frozenset[bytes]:
    """Return the families of which the store drops old versions or old cells."""
    return frozenset(
        family.name
        for family in schema.families
        if {VERSIONS_ATTRIBUTE, TTL_ATTRIBUTE} & family.attributes.keys()
    )


def ignore(
    store: Store,
    table: str,
    commit_table: str,
    *,
    families: Collection[bytes] | None = None,
    is_dry_run: bool = False,
    only: str | None = None,
) -> str:
    """Take a table, or some of its families, out of the account.

    Args:
        store: Where it is.
        table: Its name.
        commit_table: Whose transactions did not write there.
        families: Which of its families; None is all of it, those that it may get later too.
        is_dry_run: Only look whether that may be done.
        only: What this has returned, where another table of the name is to be left alone.

    Returns:
        Which table of the name it is; empty where nothing tells.

    Raises:
        StorageError: it is another one than `only`.
        UsageError: there is none, or it is a system table, or its transactions are ours.
    """
    schema = users_schema(store, table)
    found = told_name(schema, state_of(store, table))
    check_told(table, found, only)
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
        return found
    which = incarnation(schema)
    if not which and store.capabilities.table_admin:
        # The operator has consented to this table, and not to another one of its name.
        which = new_incarnation()
        unnamed = {INCARNATION_ATTRIBUTE: None}
        if not store.set_table_attributes(table, {INCARNATION_ATTRIBUTE: which}, only=unnamed):
            raise StorageError(f"table {table} changed meanwhile, and is not ignored; ask again")

    def more(word: Ignored) -> Ignored:
        both = tuple(sorted({*word.families, *(families or ())}))
        return Ignored(word.is_ignored or families is None, both, which)

    change_ignored(store, schema, more, which=which)
    return found


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
