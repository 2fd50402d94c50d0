"""Which changes has a row seen between two commit timestamps?  Pure.

A transaction that wrote a column several times changed it once: its newest version is what readers
see.  A family marker, which Omid's Java clients write, hides what its transaction wrote at or below
its version, and is a change of the whole family.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from omidpy.base.cells import (
    LONG_BYTES,
    SHADOW_PREFIX,
    SHADOW_SUFFIX,
    is_family_marker,
    is_tombstone,
)
from omidpy.model import (
    Cell,
    Change,
    ChangeKind,
    ColumnSpec,
    Timestamp,
    base,
)

Committed: TypeAlias = tuple[Cell, Timestamp]
"""A data cell, and when its transaction committed."""


def order(change: Change) -> tuple[Timestamp, bytes, bool, bytes]:
    """Return what changes are sorted by: their commits, and in one commit their cells."""
    is_of_one_column = change.kind is not ChangeKind.DELETE_FAMILY
    return change.commit_ts, change.row, is_of_one_column, change.column


def changes_of(
    committed: Iterable[Committed],
    *,
    since: int,
    until: int,
    columns: Collection[ColumnSpec] | None,
) -> Iterator[Change]:
    """Yield the changes of one row, in no order.

    Args:
        committed: Its committed data cells, those of the transactions between the two all.
        since: An offset: what was committed at or below it is left out.
        until: Another one: what was committed above it is left out.
        columns: Which columns, or whole families; None: all.
    """
    by_commit: dict[Timestamp, list[Cell]] = {}
    for cell, commit_ts in committed:
        if since < commit_ts <= until:
            by_commit.setdefault(commit_ts, []).append(cell)
    for commit_ts, cells in by_commit.items():
        for cell, kind in _decisive(cells):
            if _is_wanted(cell, kind, columns):
                yield _change(cell, kind, commit_ts)


def simple_changes(
    cells: Sequence[Cell], *, after: bytes, upto: bytes, columns: Collection[ColumnSpec] | None
) -> list[Change] | None:
    """Return the changes of a row where all is simple; None where it is not.

    Simple is: every data cell has its shadow cell in front of it, and no column has two cells of
    one transaction.  Of a family marker, whose qualifier is empty, the shadow cell is behind.  Most
    rows are simple, and of those this says what `changes_of` says.

    Args:
        cells: The row, as a store returns it.
        after: `since` as a shadow cell would hold it: bytes of timestamps compare as they do.
        upto: `until`, the same.
        columns: As there.
    """
    shadows: dict[tuple[bytes, bytes, int], bytes] = {}
    found: list[Change] = []
    last: tuple[bytes, bytes, int] | None = None
    for row, family, qualifier, version, value in cells:
        if qualifier[-2:] == SHADOW_SUFFIX:
            if qualifier[:3] != SHADOW_PREFIX:
                return None
            shadows[family, qualifier[3:-2], version] = value
            continue
        shadow = shadows.get((family, qualifier, version))
        start_ts = base(version)
        this = family, qualifier, start_ts
        if shadow is None or len(shadow) != LONG_BYTES or this == last:
            return None
        last = this
        if not after < shadow <= upto or (
            columns is not None
            and (family, None) not in columns
            and (family, qualifier) not in columns
        ):
            continue
        commit_ts = Timestamp(int.from_bytes(shadow))
        column = family + b":" + qualifier
        if is_tombstone(value):
            found.append(Change(row, column, None, ChangeKind.DELETE, start_ts, commit_ts))
        else:
            found.append(Change(row, column, value, ChangeKind.PUT, start_ts, commit_ts))
    return found


def _decisive(cells: Sequence[Cell]) -> Iterator[tuple[Cell, ChangeKind]]:
    """Yield those cells of one transaction in one row that readers come to see."""
    markers: dict[bytes, Cell] = {}
    newest: dict[tuple[bytes, bytes], Cell] = {}
    for cell in cells:
        if is_family_marker(cell.qualifier, cell.value):
            if cell.family not in markers or markers[cell.family].version < cell.version:
                markers[cell.family] = cell
            continue
        column = cell.family, cell.qualifier
        if column not in newest or newest[column].version < cell.version:
            newest[column] = cell
    for marker in markers.values():
        yield marker, ChangeKind.DELETE_FAMILY
    for cell in newest.values():
        hiding = markers.get(cell.family)
        # At an equal version it is hidden, as in Java.
        if hiding is None or cell.version > hiding.version:
            yield cell, ChangeKind.DELETE if is_tombstone(cell.value) else ChangeKind.PUT


def _is_wanted(cell: Cell, kind: ChangeKind, columns: Collection[ColumnSpec] | None) -> bool:
    """Say whether a change of a cell was asked for."""
    if columns is None or (cell.family, None) in columns:
        return True
    if kind is ChangeKind.DELETE_FAMILY:
        return any(family == cell.family for family, _ in columns)
    return (cell.family, cell.qualifier) in columns


def _change(cell: Cell, kind: ChangeKind, commit_ts: Timestamp) -> Change:
    if kind is ChangeKind.DELETE_FAMILY:
        return Change(cell.row, cell.family, None, kind, base(cell.version), commit_ts)
    column = cell.family + b":" + cell.qualifier
    value = cell.value if kind is ChangeKind.PUT else None
    return Change(cell.row, column, value, kind, base(cell.version), commit_ts)
