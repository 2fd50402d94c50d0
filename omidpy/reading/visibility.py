"""Which version of each column does a snapshot see, and did its writer commit?  Two pure answers.

`visible_row` picks the versions that a snapshot sees out of a row's cells, and names the cells
that must be resolved first: did their transactions commit?  `commit_timestamp` answers that: a
generator that asks for the reads it needs, in the one order that is safe, and does none of them.

The writer's order is: commit entry durable, every shadow cell durable, commit entry removed.  So
absence from the commit table is evidence only together with a shadow cell read *afterwards* (I5,
I8).

Source: Omid's snapshot filter.  Ours differs where it is wrong: an invalidation is never final, a
family marker is compared by commit order and per row, and versions of a checkpointed transaction
resolve by their base.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from omidpy.base.cells import (
    SHADOW_PREFIX,
    data_qualifier,
    decode_long,
    is_family_marker,
    is_shadow_qualifier,
    is_tombstone,
    shadow_qualifier,
)
from omidpy.base.commit_facts import INVALID, CommitEntry
from omidpy.base.reach import reached
from omidpy.base.rows.simple import SimpleRow
from omidpy.model import TIMESTAMP_STEP, Cell, PairedCell, RowValues, Timestamp, base

# -- resolving one cell ----------------------------------------------------------------------------


class ReadCommitEntry(NamedTuple):
    """Ask for the commit entry of a transaction; the answer is a `CommitEntry`."""

    start_ts: Timestamp


class ReadShadowCell(NamedTuple):
    """Ask for the shadow cell of a cell, read now.

    The answer is a commit timestamp, None where the cell is there alone, or `GONE`.
    """

    cell: Cell


class Absence(Enum):
    """What the answer can be where no shadow cell is."""

    GONE = "gone"


GONE: Final = Absence.GONE
"""Neither the shadow cell nor the cell itself is there any more."""


class Invalidate(NamedTuple):
    """Ask to forbid the commit; the answer says whether the invalidation stands."""

    start_ts: Timestamp


class UndoInvalidation(NamedTuple):
    """Ask to remove an invalidation that a shadow cell proved false; the answer does not matter."""

    start_ts: Timestamp


Request: TypeAlias = ReadCommitEntry | ReadShadowCell | Invalidate | UndoInvalidation
Answer: TypeAlias = "CommitEntry | Absence | bool"


class Resolution(NamedTuple):
    """What became of the transaction that wrote a cell.

    `commit_ts` is None if it had not committed.  `is_final` says that it never will (invalidated),
    or that it did.  `is_healed` says that the cell's own shadow cell was seen.  `is_gone` says that
    the cell was taken away since it was read, rolled back or collected: its row tells more when it
    is read again.
    """

    commit_ts: Timestamp | None
    is_final: bool
    is_healed: bool
    is_gone: bool = False


Resolver: TypeAlias = Generator[Request, Answer, Resolution]


def commit_timestamp(cell: Cell, *, may_invalidate: bool) -> Resolver:
    """Find out whether the writer of `cell` committed; its row as read has no shadow cell of it.

    Args:
        cell: A data cell.
        may_invalidate: The transaction began below the reader's epoch, so that it can only have
            committed already; an undecided one is invalidated, lest a late commit entry of a
            deposed oracle appear behind the reader.

    Cost: 1 commit table get and 1 get; another 2 to 4 where a cell is invalidated.
    """
    start_ts = base(cell.version)
    while True:
        entry = yield ReadCommitEntry(start_ts)
        if entry is INVALID:
            reached("reader.invalidation_found", "I9")
            # Another reader may have invalidated a transaction that had completed and removed its
            # entry; its shadow cell tells, and outranks the invalidation.
            return (yield from _after_invalidation(cell))
        if entry is not None:
            return Resolution(_timestamp(entry), is_final=True, is_healed=False)
        # The writer writes the shadow cell, then removes its entry.  Both can have happened since
        # the row was read, so absence counts only once the shadow cell is read again.
        shadow = yield ReadShadowCell(cell)
        if shadow is GONE:
            # Perhaps it was collected, long after its commit: nothing is left to forbid, and an
            # invalidation would belie a commit whose other cells are there for ever.
            reached("reader.cell_is_gone", "I8")
            return Resolution(None, is_final=True, is_healed=False, is_gone=True)
        if shadow is not None:
            reached("reader.completed_meanwhile", "I5")
            return Resolution(_timestamp(shadow), is_final=True, is_healed=True)
        if not may_invalidate:
            return Resolution(None, is_final=False, is_healed=False)
        if (yield Invalidate(start_ts)):
            reached("reader.invalidated", "I9")
            return (yield from _after_invalidation(cell))
        reached("reader.commit_was_first", "I8")
        # A commit entry was first.  It may be gone again by now, and then the shadow cell is there,
        # unless both went with the cell: then the next round's invalidation succeeds.


def _after_invalidation(cell: Cell) -> Resolver:
    shadow = yield ReadShadowCell(cell)
    if shadow is None or shadow is GONE:
        return Resolution(None, is_final=True, is_healed=False, is_gone=shadow is GONE)
    yield UndoInvalidation(base(cell.version))
    return Resolution(_timestamp(shadow), is_final=True, is_healed=True)


def _timestamp(answer: Answer) -> Timestamp:
    assert isinstance(answer, int)
    return Timestamp(answer)


# -- the versions that a snapshot sees -------------------------------------------------------------


class SortedRow(NamedTuple):
    """A row's cells, told apart."""

    data: Sequence[Cell]
    """Data cells, tombstones and family markers, in HBase's order."""
    shadows: Mapping[tuple[bytes, bytes, int], Timestamp]
    """(family, data qualifier, version) -> commit_ts."""
    commits: Mapping[Timestamp, Timestamp]
    """start_ts -> commit_ts, known from any shadow cell of the row that speaks for its
    transaction.
    """


def sort_row(cells: Sequence[Cell]) -> SortedRow:
    """Tell a row's data cells from its shadow cells.

    A shadow cell whose value is its own version (an autocommitted cell) speaks for that cell alone.

    Raises:
        CorruptCell: if a shadow cell does not hold 8 bytes.
    """
    data: list[Cell] = []
    shadows: dict[tuple[bytes, bytes, int], Timestamp] = {}
    commits: dict[Timestamp, Timestamp] = {}
    for cell in cells:
        qualifier = cell.qualifier
        if not is_shadow_qualifier(qualifier):
            data.append(cell)
            continue
        commit_ts = decode_long(cell.value, what=f"the shadow cell {cell[:4]!r}")
        key = (cell.family, data_qualifier(qualifier), cell.version)
        if qualifier.startswith(SHADOW_PREFIX) or key not in shadows:
            shadows[key] = commit_ts
        if commit_ts != cell.version:
            commits[base(cell.version)] = commit_ts
    return SortedRow(data, shadows, commits)


class VisibleCell(NamedTuple):
    """A cell that a snapshot sees, and when it was committed (its start_ts for own writes)."""

    cell: Cell
    commit_ts: Timestamp


class VisibleRow(NamedTuple):
    """The cells that a snapshot sees in a row, at most one a column, in HBase's order."""

    cells: Sequence[VisibleCell]
    unhealed: Sequence[VisibleCell] = ()
    """Committed cells that decided the row, tombstones among them, and had no shadow cell in it."""


SeenRow: TypeAlias = VisibleRow | SimpleRow
"""What a snapshot sees of a row, at most one cell a column, in HBase's order."""

NOTHING: Final[SeenRow] = VisibleRow(())
"""A row of which a snapshot sees no cell."""


def cells_of(row: SeenRow) -> Sequence[VisibleCell]:
    """Return the cells of a row, whichever form it has."""
    if isinstance(row, VisibleRow):
        return row.cells
    return [
        VisibleCell(Cell(*cell[:5]), decode_long(cell[5] or b"", what="a shadow cell"))
        for cell in row
    ]


def is_nothing(row: SeenRow | RowValues) -> bool:
    """Say whether nothing is seen of a row, also where it comes as its values."""
    return not (row.cells if isinstance(row, VisibleRow) else row)


class Unresolved(NamedTuple):
    """Cells that must be resolved before the row can be decided."""

    cells: Sequence[Cell]


class Truncated(NamedTuple):
    """Some column showed only versions that the snapshot does not see: read all of them."""


TRUNCATED: Final = Truncated()
NOT_SEEN: Final = -1


def visible_row(
    row: SortedRow,
    start_ts: Timestamp,
    facts: Mapping[Cell, Timestamp | None],
    commits: Mapping[Timestamp, Timestamp],
    *,
    versions_read: int | None,
    has_own_cells: bool = True,
) -> VisibleRow | Unresolved | Truncated:
    """Pick the versions that the snapshot at `start_ts` sees.

    Per column it is the newest version that the transaction wrote itself or whose commit_ts is
    below `start_ts`; a tombstone shows nothing, and a family marker hides what was committed before
    it.

    Args:
        row: The row's cells with version < start_ts + 50.
        start_ts: The snapshot.
        facts: Fates found for single cells; None means not committed for this snapshot.
        commits: Commit timestamps known for whole transactions.
        versions_read: How many versions of each column were asked for; None: all.
        has_own_cells: Whether versions from `start_ts` on are the reader's own; not in time travel,
            where they are another transaction's.
    """
    by_column = _columns(row.data)
    decided: dict[tuple[bytes, bytes], tuple[Cell, int]] = {}
    markers: dict[bytes, tuple[Cell, int]] = {}
    missing: list[Cell] = []
    is_truncated = False

    def seen_at(cell: Cell) -> int | None:
        """Return the commit_ts if the snapshot sees the cell, `NOT_SEEN`, or None if unresolved."""
        version = cell.version
        if version >= start_ts:
            is_own = has_own_cells and version < start_ts + TIMESTAMP_STEP
            return start_ts if is_own else NOT_SEEN
        commit_ts = row.shadows.get((cell.family, cell.qualifier, version))
        if commit_ts is None:
            start = base(version)
            commit_ts = row.commits.get(start) or commits.get(start)
        if commit_ts is None:
            if cell not in facts:
                return None
            commit_ts = facts[cell]
        return commit_ts if commit_ts is not None and commit_ts < start_ts else NOT_SEEN

    for column, versions in by_column.items():
        for cell in versions:
            commit_ts = seen_at(cell)
            if commit_ts is None:
                missing.append(cell)
                break
            if commit_ts != NOT_SEEN:
                decided[column] = (cell, commit_ts)
                break
        else:
            is_truncated |= versions_read is not None and len(versions) >= versions_read
        # A marker and ordinary cells with the empty qualifier share a column: the newest marker in
        # the snapshot hides the family even where an ordinary cell was written above it.
        if column[1] == b"":
            for cell in versions:
                if not is_family_marker(cell.qualifier, cell.value):
                    continue
                commit_ts = seen_at(cell)
                if commit_ts is None:
                    missing.append(cell)
                    break
                if commit_ts != NOT_SEEN:
                    markers[column[0]] = (cell, commit_ts)
                    break
            else:
                is_truncated |= versions_read is not None and len(versions) >= versions_read
    if missing:
        return Unresolved(missing)
    if is_truncated:
        return TRUNCATED
    return VisibleRow(
        [
            VisibleCell(cell, Timestamp(commit_ts))
            for (family, _), (cell, commit_ts) in decided.items()
            if not is_tombstone(cell.value)
            and not (family in markers and is_hidden(cell, commit_ts, *markers[family]))
        ],
        [
            VisibleCell(cell, Timestamp(commit_ts))
            for cell, commit_ts in (*decided.values(), *markers.values())
            if cell.version < start_ts
            and (cell.family, cell.qualifier, cell.version) not in row.shadows
        ],
    )


def unhealed(cells: Iterable[PairedCell]) -> list[PairedCell]:
    """Return the newest version of each column that has no shadow cell, of those in a row."""
    found: list[PairedCell] = []
    last_family = last_qualifier = None
    for cell in cells:
        _, family, qualifier, _, _, shadow = cell
        if qualifier == last_qualifier and family == last_family:
            continue
        last_family, last_qualifier = family, qualifier
        if shadow is None:
            found.append(cell)
    return found


def healed(cells: Iterable[PairedCell], commits: Mapping[Timestamp, bytes]) -> list[PairedCell]:
    """Return a row as it will be once each cell of some transactions has its shadow cell.

    Args:
        cells: The row.
        commits: What the shadow cells of some transactions hold, by start_ts.
    """
    return [(*cell[:5], commits.get(base(cell[3]))) if cell[5] is None else cell for cell in cells]


def is_hidden(cell: Cell, commit_ts: int, marker: Cell, marker_commit_ts: int) -> bool:
    """Say whether a committed family marker hides a committed cell of its family.

    By commit order; within one transaction by version, an equal one hiding, as in Java.
    """
    if base(cell.version) == base(marker.version):
        return marker.version >= cell.version
    return marker_commit_ts > commit_ts


def _columns(data: Sequence[Cell]) -> dict[tuple[bytes, bytes], list[Cell]]:
    columns: dict[tuple[bytes, bytes], list[Cell]] = {}
    for cell in data:
        columns.setdefault((cell.family, cell.qualifier), []).append(cell)
    return columns


def shadow_column(cell: Cell) -> tuple[bytes, bytes]:
    """Return family and qualifier of the shadow cell of `cell`."""
    return cell.family, shadow_qualifier(cell.qualifier)
