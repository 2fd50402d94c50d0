"""What must be written to one row, and what may go from it?  Asked of a row that was read whole.

Or of some columns of one, or versions of a column: only what is old needs all (`long_rows.py`).

Pure: a row as read, what became of its cells, and three numbers in; puts and exact deletes out.  It
neither resolves cells (`visibility.py`) nor writes (`ranges/range_pass.py`), and it names single
versions only, never ranges of them, so that a writer who was faster loses nothing.

    L, the low watermark      cells with base(version) <= L are decided for ever; only they matter
    H, the drop horizon       H <= L; no snapshot below H is read any more; 0 collects nothing
    the first timestamp       a cell below it was not written under this oracle: foreign, left alone
    the plain versions        a cell of one, without a commit, is no transaction's: left alone, too

Two kinds of cells below the first timestamp are committed versions like any others.  Plain data
that was adopted: its version is no transaction's, and its shadow cell, which adopting wrote, says
so.  And, where an operator asked for it, whatever has a shadow cell that every reader looks up:
what it says is what they see.  A cell without one is never judged: it is not known who wrote it.

A cell whose shadow cell is malformed, and one of whose transaction nothing is known, are left as
they are; they may be visible, so that what hides them, or what they hide, stays as well.

What is written, and in which of five writes, each acknowledged before the next begins:

    0  shadow cells for committed cells without one
    1  gone: cells of transactions that never committed
    2  gone: committed versions that no snapshot at or above H can see
    3  gone: the top of a column that shows nothing at H, a tombstone or a cell below a family
       marker, and every family marker but the newest
    4  gone: the newest family marker, once nothing that it hides is left

No write both puts and deletes, because HBase takes a page of such rows in one call, and rows with
both in a call each.  The first two need no order, since no snapshot sees what never committed (I9).

Which committed versions go, `old_versions.py` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from compactor.rows.old_versions import NOTHING, Later, collect, is_single, later
from omidpy.base.cells import (
    LONG_BYTES,
    SHADOW_PREFIX,
    SHADOW_SUFFIX,
    data_qualifier,
    encode_long,
    is_shadow_qualifier,
    shadow_qualifier,
)
from omidpy.facts.tables.plain_versions import NO_VERSIONS, PlainVersions
from omidpy.model import MAX_VERSION, TIMESTAMP_STEP, Cell, Timestamp, base
from omidpy.reading.visibility import SortedRow, shadow_column, sort_row
from omidpy.storage.base import DeleteVersion, Put, RowMutation

PHASE_COUNT: Final = 5
"""Writes of one row, in order; see the module's docstring."""
DURABLE_PHASES: Final = 2
"""So many of them a claim rests on: what they write is healed or gone for good."""


class Scope(NamedTuple):
    """Which cells a pass may judge."""

    families: frozenset[bytes]
    """Families marked as transactional; the others are not ours to change."""
    low_watermark: int
    first_timestamp: int
    drop_horizon: int
    plain: PlainVersions = NO_VERSIONS
    """Versions that writers without transactions use: nothing of theirs is forbidden or dropped."""
    newest: int = MAX_VERSION
    """No commit timestamp can be above it."""
    sees_whole_rows: bool = True
    """Else a row has the versions of a span alone, and nothing is said of its old ones."""
    collects_foreign: bool = False
    """Cells below the first timestamp are judged by their shadow cells, if they have some."""

    def max_version(self) -> int:
        """Return the exclusive bound of versions with base(version) <= L, checkpoints included."""
        return base(self.low_watermark) + TIMESTAMP_STEP


class ExaminedRow(NamedTuple):
    """A row's cells, told apart by what a pass may do with them."""

    row: bytes
    ours: SortedRow
    legacy_shadows: Mapping[tuple[bytes, bytes, int], bytes]
    """(family, data qualifier, version) -> qualifier of a shadow cell in Omid's form without
    prefix."""
    has_prefixed: frozenset[tuple[bytes, bytes, int]]
    """Cells whose shadow cell has the form that every reader looks up; None were looked at if
    there is no legacy one."""
    foreign: Sequence[Cell]
    """Cells of marked families below the first timestamp that are left alone, shadow cells left
    out."""
    bare_foreign: Sequence[Cell]
    """Those of them without a shadow cell."""
    malformed: Sequence[Cell] = ()
    """Shadow cells that no writer of this format produces; they are in none of the above."""
    unreadable: Sequence[Cell] = ()
    """The data cells that they speak for; nor are these."""


def examine(cells: Sequence[Cell], scope: Scope) -> ExaminedRow:
    """Tell the cells of a row apart.

    Args:
        cells: The row, whole in the families of `scope`, with versions below its `max_version()`.
        scope: What may be judged.
    """
    families, first, end = scope.families, scope.first_timestamp, scope.max_version()
    ours = [cell for cell in cells if cell[1] in families and first <= cell[3] < end]
    foreign: list[Cell] = []
    if len(ours) != len(cells):
        foreign = [
            cell
            for cell in cells
            if cell.family in families
            and cell.version < first
            and not is_shadow_qualifier(cell.qualifier)
        ]
    if foreign and (known := _committed_foreign(foreign, cells, scope)):
        foreign = [cell for cell in foreign if cell[1:4] not in known]
        ours = [
            cell
            for cell in cells
            if cell.family in families
            and (first <= cell.version < end or _spoken_for(cell) in known)
        ]
    legacy: dict[tuple[bytes, bytes, int], bytes] = {}
    prefixed: set[tuple[bytes, bytes, int]] = set()
    malformed: list[Cell] = []
    newest = scope.newest
    for cell in ours:
        qualifier = cell[2]
        # The common case first: this line sees every cell.
        if qualifier[-2:] != SHADOW_SUFFIX or not qualifier[2:]:
            continue
        # Negative numbers, read without a sign, are above every timestamp.
        if len(cell[4]) != LONG_BYTES or not cell[3] <= int.from_bytes(cell[4]) <= newest:
            malformed.append(cell)
        if qualifier[:3] != SHADOW_PREFIX:
            legacy[cell[1], qualifier[:-2], cell[3]] = qualifier
    if malformed:
        return _set_aside(malformed, cells, scope)
    if legacy:
        present = {cell[1:4] for cell in ours}
        prefixed = {key for key in legacy if (key[0], shadow_qualifier(key[1]), key[2]) in present}
    bare: Sequence[Cell] = ()
    if foreign:
        present = {cell[1:4] for cell in cells}
        bare = [cell for cell in foreign if (*shadow_column(cell), cell.version) not in present]
    return ExaminedRow(cells[0].row, sort_row(ours), legacy, frozenset(prefixed), foreign, bare)


def _committed_foreign(
    foreign: Sequence[Cell], cells: Sequence[Cell], scope: Scope
) -> frozenset[tuple[bytes, bytes, int]]:
    """Return those cells below the first timestamp that are committed versions like any others."""
    values = {cell[1:4]: cell.value for cell in cells if is_shadow_qualifier(cell.qualifier)}
    found = set()
    for cell in foreign:
        value = values.get((*shadow_column(cell), cell.version), b"")
        if len(value) != LONG_BYTES or not cell.version <= int.from_bytes(value) <= scope.newest:
            continue
        is_adopted = value == encode_long(cell.version) and scope.plain.contains(cell.version)
        if is_adopted or scope.collects_foreign:
            found.add(cell[1:4])
    return frozenset(found)


def _spoken_for(cell: Cell) -> tuple[bytes, bytes, int]:
    """Return family, qualifier and version of a data cell, its own or the one it speaks for."""
    if is_shadow_qualifier(cell.qualifier):
        return cell.family, data_qualifier(cell.qualifier), cell.version
    return cell.family, cell.qualifier, cell.version


def _set_aside(malformed: list[Cell], cells: Sequence[Cell], scope: Scope) -> ExaminedRow:
    """Examine a row without its malformed shadow cells, and without the cells they speak for.

    What such a cell's transaction came to, another cell of the row may tell, or its entry; but
    nothing is written over a shadow cell that was meant otherwise.
    """
    keys = {(cell.family, data_qualifier(cell.qualifier), cell.version) for cell in malformed}
    rest: list[Cell] = []
    unreadable: list[Cell] = []
    for cell in cells:
        is_shadow = is_shadow_qualifier(cell.qualifier)
        qualifier = data_qualifier(cell.qualifier) if is_shadow else cell.qualifier
        if (cell.family, qualifier, cell.version) not in keys:
            rest.append(cell)
        elif not is_shadow:
            unreadable.append(cell)
    if rest:
        examined = examine(rest, scope)
    else:
        examined = ExaminedRow(cells[0].row, sort_row(()), {}, frozenset(), (), ())
    return examined._replace(malformed=malformed, unreadable=unreadable)


def unresolved(row: ExaminedRow) -> list[Cell]:
    """Return the cells that no shadow cell of the row speaks for."""
    shadows, commits = row.ours.shadows, row.ours.commits
    return [
        cell for cell in row.ours.data if cell[1:4] not in shadows and base(cell[3]) not in commits
    ]


class Orphan(NamedTuple):
    """A shadow cell whose data cell is not in the row as read."""

    family: bytes
    data_qualifier: bytes
    version: int
    qualifier: bytes


class RowPlan(NamedTuple):
    """What is to be done to one row."""

    row: bytes
    heals: Sequence[Put]
    garbage: Sequence[Cell]
    """Cells of transactions that are durably invalidated."""
    superseded: Sequence[Cell]
    tops: Sequence[Cell]
    markers: Sequence[Cell]
    orphans: Sequence[Orphan]
    """Shadow cells to drop once a fresh read shows that their data cells are gone indeed."""
    legacy_shadows: Mapping[tuple[bytes, bytes, int], bytes]
    unseen: Sequence[Cell] = ()
    """Cells that stay although no snapshot sees them: written without a transaction."""
    undecided: Sequence[Cell] = ()
    """Cells that stay because it could not be found out what became of their transaction: while
    there is one, its range is not healed."""
    later: Later | None = None
    """None: what stays now, and was seen, stays at any horizon."""

    def is_empty(self) -> bool:
        """Say whether the row is to be left as it is."""
        return not any(self[1:7])

    def dropped_count(self) -> int:
        """Return how many data cells go."""
        return len(self.garbage) + len(self.superseded) + len(self.tops) + len(self.markers)

    def dropped_bytes(self) -> int:
        """Return the size of the data cells that go, keys and values."""
        going = (self.garbage, self.superseded, self.tops, self.markers)
        return sum(map(cell_bytes, (cell for cells in going for cell in cells)))

    def phases(self) -> list[RowMutation | None]:
        """Return the writes in order, None where a phase leaves the row alone."""
        phases = [RowMutation(self.row, puts=self.heals)]
        for cells in (self.garbage, self.superseded, self.tops, self.markers):
            deletes = [delete for cell in cells for delete in self._deletes(cell)]
            phases.append(RowMutation(self.row, deletes=deletes))
        return [one if one.puts or one.deletes else None for one in phases]

    def _deletes(self, cell: Cell) -> Iterable[DeleteVersion]:
        """Delete exactly one version of a cell, and its shadow cell with it.

        The shadow cell is deleted unseen: another run may have healed the cell since it was read.
        """
        yield DeleteVersion(cell.family, cell.qualifier, cell.version)
        yield DeleteVersion(*shadow_column(cell), cell.version)
        legacy = self.legacy_shadows.get(cell[1:4])
        if legacy is not None:
            yield DeleteVersion(cell.family, legacy, cell.version)


def plan_row(row: ExaminedRow, resolved: Mapping[Cell, Timestamp | None], scope: Scope) -> RowPlan:
    """Decide what to do to a row.

    Args:
        row: The row as `examine` told it apart.
        resolved: For every cell that `unresolved` named: when its transaction committed; None means
            that an invalidation stands durably and no shadow cell was seen after it, or, for a
            version of writers without transactions, merely that there is no commit.  A cell that
            is left out stays as it is.
        scope: What may be judged.
    """
    data, shadows, commits = row.ours
    committed: list[tuple[Cell, int]] = []
    unhealed: list[tuple[Cell, int]] = []
    garbage: list[Cell] = []
    unseen: list[Cell] = []
    undecided: list[Cell] = []
    for cell in data:
        key = cell[1:4]
        commit_ts = shadows.get(key)
        is_healed = commit_ts is not None and not (
            key in row.legacy_shadows and key not in row.has_prefixed
        )
        if commit_ts is None:
            commit_ts = commits.get(base(cell[3]))
        if commit_ts is None and cell not in resolved:
            undecided.append(cell)
            continue
        if commit_ts is None:
            commit_ts = resolved[cell]
        if commit_ts is None:
            # An invalidation may stand of a plain cell, too: readers of Omid's plant them.
            (unseen if scope.plain.contains(cell.version) else garbage).append(cell)
            continue
        committed.append((cell, commit_ts))
        if not is_healed:
            unhealed.append((cell, commit_ts))
    staying = [*row.foreign, *row.unreadable, *undecided, *unseen]
    more = None
    superseded, tops, markers = NOTHING
    if scope.sees_whole_rows and not is_single(committed):
        superseded, tops, markers = collect(committed, staying, scope.drop_horizon)
        more = later(committed, staying, (*superseded, *tops, *markers), scope.drop_horizon)
    # Those that go in a later phase too: until then they must not depend on their entry.
    heals = [
        Put(*shadow_column(cell), cell.version, encode_long(commit_ts))
        for cell, commit_ts in unhealed
    ]
    orphans = orphans_of(row)
    unseen += [cell for cell in row.bare_foreign if scope.plain.contains(cell.version)]
    return RowPlan(
        row.row,
        heals,
        garbage,
        superseded,
        tops,
        markers,
        orphans,
        row.legacy_shadows,
        unseen,
        undecided,
        more,
    )


def cell_bytes(cell: Cell) -> int:
    """Return the size of a cell, as far as it does not depend on how it is stored."""
    return len(cell.row) + len(cell.family) + len(cell.qualifier) + LONG_BYTES + len(cell.value)


def orphans_of(row: ExaminedRow) -> list[Orphan]:
    """Return the shadow cells of a row whose data cells are not in it."""
    present = {cell[1:4] for cell in row.ours.data}
    orphans: list[Orphan] = []
    for key in row.ours.shadows:
        if key in present:
            continue
        legacy = row.legacy_shadows.get(key)
        if legacy is not None:
            orphans.append(Orphan(*key, legacy))
        if legacy is None or key in row.has_prefixed:
            orphans.append(Orphan(*key, shadow_qualifier(key[1])))
    return orphans
