"""Data cells of a row with the values of their shadow cells; see `PairsCells`."""

from __future__ import annotations

from omidpy.base.cells import SHADOW_PREFIX, SHADOW_SUFFIX
from omidpy.model import Cell, PairedCell


def pairs_of(cells: list[Cell]) -> list[PairedCell]:
    """Return the data cells of a row, each with the value of its shadow cell.

    Where there are shadow cells alone, one of them comes as if it were data, so that no row is
    empty.  A hot loop: nearly every row of a scan is one shadow cell and one cell.
    """
    shadows: dict[tuple[bytes, bytes, int], bytes] = {}
    pairs: list[PairedCell] = []
    for row, family, qualifier, version, value in cells:
        if qualifier[-2:] != SHADOW_SUFFIX or len(qualifier) == len(SHADOW_SUFFIX):
            shadow = shadows.get((family, qualifier, version)) if shadows else None
            pairs.append((row, family, qualifier, version, value, shadow))
        elif qualifier[:3] == SHADOW_PREFIX:
            shadows[family, qualifier[3:-2], version] = value
    return pairs or [(*cell, None) for cell in cells[:1]]
