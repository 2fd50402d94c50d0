"""Which rows of a page are as they should be, so that a pass has nothing to do about them?

Most rows of most tables are clean: each of their cells was healed by the client that wrote it, and
has no older version.  `heal.py` says of a clean row that nothing is to be written, dropped, looked
up, remembered or told, and makes some objects a cell to say so; here one look at each cell does.

    clean     the row holds data cells and their shadow cells in the form with a prefix, one for
              each, none below the first timestamp; no column has two versions;
              no data cell is a tombstone or a family marker, which are empty; every shadow cell
              holds a timestamp that a commit of its version can have

What is not seen to be clean is given to `heal.py`, whatever it is: a row too many costs time, one
too few would lose what it should have been given.  So every doubt here is a no, and
`tests/property/test_clean_rows.py` holds the two to one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from compactor.pacing import page_bytes
from compactor.rows.heal import Scope
from omidpy.base.cells import (
    LEGACY_TOMBSTONE,
    LONG_BYTES,
    SHADOW_PREFIX,
    SHADOW_SUFFIX,
    encode_long,
)
from omidpy.storage.base import CellFields, Row
from omidpy.storage.options import LazyRow

FoundRow: TypeAlias = Row | LazyRow
"""A row as a store returns it; those of one page are alike."""

_without_row: Final = itemgetter(1, 2, 3, 4)


class Sifted(NamedTuple):
    """A page, once the clean rows were taken out of it."""

    rows: list[Row]
    """All others."""
    size_bytes: int
    """Of the whole page, keys and values."""


def sifted(page: Sequence[FoundRow], scope: Scope) -> Sifted:
    """Take out the rows that are certainly clean, and count what was read.

    Timestamps have no sign, so that their bytes compare as they do.  A hot loop.

    Args:
        page: Rows as `examine` takes them, their cells in HBase's order.
        scope: What may be judged.
    """
    first, newest = scope.first_timestamp, encode_long(scope.newest)
    rest: list[Row] = []
    size_bytes = 0
    # Most neighbours have the same version, so that each is looked at once.
    version_before: int | None = None
    earliest = b""
    for row in page:
        family_before: bytes | None = None
        unpaired: dict[bytes, int] = {}
        key, cells = _opened(row)
        row_bytes = len(row) * (len(key) + LONG_BYTES)
        for family, qualifier, version, value in cells:
            row_bytes += len(family) + len(qualifier) + len(value)
            if family != family_before:
                # A shadow cell speaks for its own family.
                if unpaired:
                    break
                family_before = family
            if version != version_before:
                if version < first:
                    break
                version_before, earliest = version, encode_long(version)
            if qualifier[-2:] != SHADOW_SUFFIX:
                # Shadow cells come before the data of almost every qualifier.
                if unpaired.pop(qualifier, None) != version:
                    break
                if not value or value == LEGACY_TOMBSTONE:
                    break
            elif (
                qualifier[:3] != SHADOW_PREFIX
                or len(value) != LONG_BYTES
                or not earliest <= value <= newest
                or unpaired.setdefault(qualifier[3:-2], version) != version
            ):
                break
        else:
            if not unpaired:
                size_bytes += row_bytes
                continue
        rest.append(list(row))
    return Sifted(rest, size_bytes + page_bytes(rest))


def _opened(row: FoundRow) -> tuple[bytes, Iterable[CellFields]]:
    """Return the key of a row and what is in its cells, without making any."""
    if isinstance(row, list):
        return row[0].row, map(_without_row, row)
    return row.key, row.fields()
