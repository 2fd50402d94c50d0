"""May these entries go?  Every place that no pass goes over is asked first.

A pass heals what lies in families of ours.  But nothing says where a transaction wrote: a client of
Omid's writes into any table, and one that died after its commit left neither a mark nor a shadow
cell there, so that its entry is all there is (I5).  So before entries go, each table and family
that this run's passes do not own is searched for a cell of theirs, data or shadow cell; one is
enough, and nothing goes.  Only an operator's word takes a place out of that: it is adopted, or
ignored.

Asked is by versions, from the least start timestamp that is about to go to the greatest with all
its checkpoints.  HBase leaves out files without such versions, and gives cells written without a
transaction versions of another size, so that large plain tables cost one short call a region.

What was asked and answered is remembered for people (`omidpy/facts/tables/questions.py`); each run
asks anew, because no record says when such a table is written.

Why an answer of none lets them go:

    a transaction at or below L that is, or comes to be, committed was decided before L was read,
    and had all its cells in the store by then (L1 and L2 of `docs/explanation/pruning.md`)

    their tables were there before L was read too, so a list made afterwards names them; one that
    is not on it was dropped, one made later is empty of such cells, or is a copy

    what no pass owns is asked after that list, and what a pass owns is claimed by families

An entry that comes late, from an oracle that was deposed, lies in a stretch that was asked, or
stays.  Copies of tables that are made after the last list are beyond this; that page says so, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from msgspec.structs import replace

from compactor.horizon import HOLE
from compactor.pruning.prune import PruneLimits
from compactor.pruning.slices import find_ends
from compactor.report import Laggard
from compactor.tables.ownership import (
    Standing,
    TableStanding,
    family_remedy,
    family_text,
    remedy,
    survey,
)
from omidpy.base.cells import is_shadow_qualifier
from omidpy.errors import NoSuchTable, StorageError
from omidpy.facts.commit_table import (
    COMMIT_TABLE,
    FIRST_TIMESTAMP_FACT,
    CommitTable,
    read_low_watermark,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.questions import Question
from omidpy.model import (
    FIRST_WORLD_TIMESTAMP,
    MAX_VERSION,
    TIMESTAMP_STEP,
    Cell,
    KeyRange,
    Timestamp,
)
from omidpy.storage.base import Store


class Place(NamedTuple):
    """Families of a table that no pass goes over."""

    table: str
    families: frozenset[bytes]
    """Empty where they are not known: all of them."""
    is_part: bool
    """Whether the rest of the table is ours."""


def unvisited(standings: Iterable[TableStanding]) -> Iterator[Place]:
    """Return where cells may lie that no pass sees, and of which no operator has spoken."""
    for standing in standings:
        if standing.rest or standing.is_hidden:
            yield Place(standing.name, standing.rest, standing.standing is Standing.OWNED)


def stretches(start_timestamps: Iterable[int]) -> list[range]:
    """Return the versions that cells of some transactions may have, in at most two stretches.

    One for timestamps that count and one for those of world time, where an oracle of Omid's turned
    from the one to the other: the versions that HBase's own clock sets lie between.
    """
    ends: dict[bool, tuple[int, int]] = {}
    for start_ts in start_timestamps:
        is_world = start_ts >= FIRST_WORLD_TIMESTAMP
        low, high = ends.get(is_world, (start_ts, start_ts))
        ends[is_world] = (min(low, start_ts), max(high, start_ts))
    return [
        range(low, min(high + TIMESTAMP_STEP, MAX_VERSION))
        for _, (low, high) in sorted(ends.items())
    ]


class Answer(NamedTuple):
    """What came of asking one place."""

    question: Question
    laggard: Laggard | None
    """Why nothing may go; None if nothing lies there."""


def ask(
    store: Store, standings: Iterable[TableStanding], versions: Sequence[range]
) -> list[Laggard]:
    """Return what forbids to forget the transactions with cells of these versions.

    As `answers` says; one laggard for each place that holds such a cell, or could not be asked.
    """
    return refusals(answers(store, standings, versions))


def answers(
    store: Store, standings: Iterable[TableStanding], versions: Sequence[range]
) -> list[Answer]:
    """Ask every place for cells of these versions.

    Args:
        store: It is read only.
        standings: Every table, listed after L was read.
        versions: As `stretches` returns them; where there is none, no server is asked.

    Returns:
        One answer for each place that is there.

    Cost: 1 short call a region for each stretch, on HBase, and 1 to know the regions; a place is
    left at its first cell.
    """
    if not versions:
        return []
    found = (_ask_place(store, place, versions) for place in unvisited(standings))
    return [answer for answer in found if answer is not None]


def refusals(given: Iterable[Answer]) -> list[Laggard]:
    """Return what answers forbid to forget anything."""
    return [answer.laggard for answer in given if answer.laggard is not None]


def holding_back(
    store: Store, commit_table: str, standings: Iterable[TableStanding]
) -> list[Laggard]:
    """Return what would forbid to forget the transactions at or below the low watermark.

    For a person that looks: a run asks about fewer of them, those that are old enough.

    Cost: reads the ends of the commit table, and asks as `ask` does.
    """
    low_watermark = read_low_watermark(store)
    first = ControlTable(store).read_number(FIRST_TIMESTAMP_FACT) or Timestamp(0)
    limits = PruneLimits(first, low_watermark, low_watermark)
    ends = find_ends(CommitTable(store, commit_table), limits)
    return ask(store, standings, stretches(ends.start_timestamps))


class Surveyed(NamedTuple):
    """Whose each table of a store is, and what holds the horizon back: for several who look."""

    standings: list[TableStanding]
    holding: list[Laggard]

    @classmethod
    def of(cls, store: Store) -> Self:
        """Look now.  Cost: as `survey` and `holding_back`."""
        standings = survey(store, COMMIT_TABLE)
        return cls(standings, holding_back(store, COMMIT_TABLE, standings))


def _ask_place(store: Store, place: Place, versions: Sequence[range]) -> Answer | None:
    columns = [(family, None) for family in sorted(place.families)] or None
    asked = Question(
        place.table,
        tuple(sorted(place.families)),
        tuple((stretch.start, stretch.stop) for stretch in versions),
    )
    calls = 0
    try:
        region_count = len(store.regions(place.table))
        for stretch in versions:
            calls += region_count
            cell = store.find_cell(
                place.table,
                columns=columns,
                min_version=stretch.start,
                max_version=stretch.stop,
            )
            if cell is not None:
                # Before it there is none; behind it no run has looked.
                rows, reason = KeyRange(cell.row, b""), _reason(place, cell)
                laggard = Laggard.of(place.table, rows, watermark=HOLE, reason=reason)
                return Answer(replace(asked, calls=calls, cells=1, answer=reason), laggard)
    except NoSuchTable:
        # Dropped since it was listed, with all its cells: no entry need outlive those (I5).
        return None
    except StorageError as error:
        reason = f"could not be searched for cells of the transactions to be forgotten: {error}"
        laggard = Laggard.of(place.table, KeyRange(), watermark=HOLE, reason=reason)
        return Answer(replace(asked, answer=reason), laggard)
    return Answer(replace(asked, calls=calls), None)


def _reason(place: Place, cell: Cell) -> str:
    kind = "shadow cell" if is_shadow_qualifier(cell.qualifier) else "cell"
    found = (
        f"row {cell.row!r} holds the {kind} {cell.qualifier!r} of family "
        f"{family_text(cell.family)} at version {cell.version}, which a transaction about to be "
        "forgotten may have written"
    )
    if place.is_part:
        family = family_text(cell.family)
        return f"family {family} is not ours: {found}; {family_remedy(place.table, cell.family)}"
    return f"not adopted: {found}; {remedy(place.table)}"
