"""Is all simple in a row, so that a snapshot sees the newest version of each of its columns?

Most rows of most tables are simple, and gets and scans ask it of each one that they read.  So the
module is compiled as the oracle's engine is: plain Python, to which `simple.pxd` beside it
gives C types where a compiler is found at install time.  Compiled it says the same of whatever a
damaged store holds: nothing here looks into bytes without Python's own checks.

What is not simple is for `reading/visibility.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, TypeVar

from omidpy.base.cells import (
    LEGACY_TOMBSTONE,
    LONG_BYTES,
    SHADOW_PREFIX,
    SHADOW_SUFFIX,
    data_qualifier,
    is_shadow_qualifier,
    is_tombstone,
)
from omidpy.model import CellRecord, PairedCell, RowValues

F = TypeVar("F", bound=tuple[Any, ...])

SimpleRow: TypeAlias = list[PairedCell]
"""What a snapshot sees of a row where every column is decided by a cell whose shadow cell was read,
at most one cell a column, in HBase's order."""

_IS_COMPILED: Final = not __file__.endswith(".py")

_PREFIX: Final = SHADOW_PREFIX
_SUFFIX: Final = SHADOW_SUFFIX
_SUFFIX_BYTES: Final = len(SHADOW_SUFFIX)
_LEGACY_TOMBSTONE: Final = LEGACY_TOMBSTONE
_LONG_BYTES: Final = LONG_BYTES
_COLON: Final = b":"


def is_compiled() -> bool:
    """Say whether this module runs as machine code."""
    return _IS_COMPILED


def simple_row(cells: SimpleRow, before: bytes) -> SimpleRow | None:
    """Pick the versions that a snapshot sees in a row where all is simple; None where it is not.

    Simple is: the newest version of every column has a shadow cell of a commit before the snapshot,
    and nothing can be a family marker.  Most rows of most tables are, and of those this says what
    `visible_row` says, without making an object: scans ask it for every row, and most get back
    what they gave.

    Args:
        cells: The row.
        before: The snapshot's start_ts as a shadow cell would hold it.  Timestamps have no sign, so
            that their bytes compare as they do.
    """
    last_family = last_qualifier = None
    is_whole = True
    for _, family, qualifier, _, value, shadow in cells:
        if qualifier == last_qualifier and family == last_family:
            is_whole = False
            continue
        if not shadow or shadow >= before or len(shadow) != _LONG_BYTES or not qualifier:
            return None
        last_family, last_qualifier = family, qualifier
        if not value or value == _LEGACY_TOMBSTONE:
            is_whole = False
    return cells if is_whole else _newest_values(cells)


def _newest_values(cells: SimpleRow) -> SimpleRow:
    """Keep the newest version of each column, unless it is a tombstone."""
    newest: dict[tuple[bytes, bytes], PairedCell] = {}
    for cell in cells:
        newest.setdefault((cell[1], cell[2]), cell)
    return [cell for cell in newest.values() if not is_tombstone(cell[4])]


def values_of(row: SimpleRow) -> RowValues:
    """Return the values of what a snapshot sees of a simple row, by `family:qualifier`."""
    return {family + _COLON + name: value for _, family, name, _, value, _ in row}


def simple_values(cells: SimpleRow, before: bytes) -> RowValues | None:
    """Return the values of what `simple_row` picks; None where that is None."""
    seen = simple_row(cells, before)
    return None if seen is None else values_of(seen)


def paired(cells: Sequence[CellRecord]) -> SimpleRow:
    """Pair a row's data cells with their shadow cells for `simple_row`.

    Shadow cells sort before the data of almost every qualifier.  One that does not, and one in
    Omid's older form, is not found, so that its row is not simple.
    """
    half = len(cells) // 2
    if 2 * half != len(cells):
        return _paired(cells)
    pairs: SimpleRow = []
    for place in range(half):
        # Nearly every row is as many shadow cells and then their data, in the same order.
        _, shadow_family, shadow_name, shadow_version, shadow = cells[place]
        row, family, qualifier, version, value = cells[half + place]
        if (
            shadow_name != _PREFIX + qualifier + _SUFFIX
            or shadow_version != version
            or shadow_family != family
            or qualifier[-_SUFFIX_BYTES:] == _SUFFIX
        ):
            return _paired(cells)
        pairs.append((row, family, qualifier, version, value, shadow))
    return pairs


def _paired(cells: Sequence[CellRecord]) -> SimpleRow:
    """Pair the cells of a row in whatever order they are."""
    shadows: dict[tuple[bytes, bytes, int], bytes] = {}
    pairs: SimpleRow = []
    for row, family, qualifier, version, value in cells:
        if not is_shadow_qualifier(qualifier):
            shadow = shadows.get((family, qualifier, version))
            pairs.append((row, family, qualifier, version, value, shadow))
        elif qualifier.startswith(_PREFIX):
            shadows[family, data_qualifier(qualifier), version] = value
    return pairs


def by_row(cells: Sequence[F]) -> list[list[F]]:
    """Return the cells of each row, of cells or of their fields in HBase's order."""
    rows: list[list[F]] = []
    last: bytes | None = None
    for cell in cells:
        key = cell[0]
        if key != last:
            last = key
            row: list[F] = []
            rows.append(row)
        row.append(cell)
    return rows
