"""Which rows of a stretch are plainly clean?  The SQL that tells, without handing out their cells.

What is clean says `SiftsRows`.  Pairs are counted: data cells, each with a shadow cell as it should
be.  No two data cells share one, so that a row of which all cells are counted, two for each pair,
holds pairs alone.  If that comes out for a stretch as a whole, as it nearly always does, no row is
looked at by itself.

Damaged files hold values that are no bytes.  Those sort before all bytes, or are of no length that
counts, so that such a cell is in no pair.
"""

# ruff: noqa: S608  the one name put into a statement is cells_<id>, made from an integer

from __future__ import annotations

import sqlite3
from functools import lru_cache
from typing import Final

from omidpy.base.cells import (
    LEGACY_TOMBSTONE,
    LONG_BYTES,
    SHADOW_PREFIX,
    SHADOW_SUFFIX,
    encode_long,
)
from omidpy.model import KeyRange
from omidpy.storage.options import Sieve, Sifted

_PREFIX: Final = f"x'{SHADOW_PREFIX.hex()}'"
_SUFFIX: Final = f"x'{SHADOW_SUFFIX.hex()}'"


def sift(
    connection: sqlite3.Connection,
    cells: str,
    *,
    key_range: KeyRange,
    sieve: Sieve,
    most_cells: int,
) -> Sifted:
    """Sift the first rows of a range, about so many cells; the caller gives it one view."""
    wanted = sieve.wanted
    bounds: dict[str, object] = {
        **{f"family{number}": family for number, family in enumerate(wanted.families)},
        "start": key_range.start,
        "end": key_range.end,
        "low": wanted.min_version,
        "high": wanted.max_version,
    }
    selected = _selected(len(wanted.families), has_end=key_range.end != b"")
    cut = f"SELECT d.row_key FROM {cells} d WHERE {selected} ORDER BY d.row_key LIMIT 1 OFFSET :nth"
    if connection.execute(cut, {**bounds, "nth": 0}).fetchone() is None:
        return Sifted(0, 0, 0, None, [], None)
    rest = None
    last = connection.execute(cut, {**bounds, "nth": most_cells - 1}).fetchone()
    if last is not None:
        # The row of that cell may go on.
        behind = bounds["end"] = last[0] + b"\x00"
        rest = KeyRange(behind, key_range.end)
        selected = _selected(len(wanted.families), has_end=True)
    query = f"SELECT count(*) FROM {cells} d WHERE {selected}"
    (count,) = connection.execute(query, bounds).fetchone()
    values = {
        **bounds,
        "first": sieve.first_version,
        "newest": encode_long(sieve.newest),
        "tombstone": LEGACY_TOMBSTONE,
    }
    clean = _clean_rows(cells, selected)
    query = f"SELECT count(*), sum(cells), sum(bytes), min(oldest) FROM ({clean})"
    rows, paired, size_bytes, oldest = connection.execute(query, values).fetchone()
    if paired == count:
        return Sifted(rows, count, size_bytes, oldest, [], rest)
    query = f"SELECT d.row_key, count(*) FROM {cells} d WHERE {selected} GROUP BY d.row_key"
    counts = dict(connection.execute(query, bounds))
    found = [one for one in connection.execute(clean, values) if one[1] == counts[one[0]]]
    for key, *_ in found:
        del counts[key]
    return Sifted(
        len(found),
        sum(one[1] for one in found),
        sum(one[2] for one in found),
        min((one[3] for one in found), default=None),
        list(counts),
        rest,
    )


@lru_cache(maxsize=1024)
def _selected(families: int, *, has_end: bool) -> str:
    """Return the condition on cells to be looked at."""
    names = ", ".join(f":family{number}" for number in range(families))
    return (
        f"d.row_key >= :start{' AND d.row_key < :end' * has_end}"
        f" AND d.version >= :low AND d.version < :high AND d.family IN ({names})"
    )


@lru_cache(maxsize=1024)
def _clean_rows(cells: str, selected: str) -> str:
    """Return the query for rows without what no clean row has, and how many cells their pairs are.

    A row has other cells, too, unless it has that many.
    """
    of_row = "x.row_key = d.row_key AND x.version >= :low AND x.version < :high"
    return (
        "SELECT d.row_key AS key, 2 * count(*) AS cells,"
        " 2 * sum(length(d.row_key) + length(d.family) + length(d.qualifier))"
        f" + sum(length(d.value)) + count(*) * {_pair_bytes()} AS bytes,"
        " min(d.version) AS oldest"
        f" FROM {cells} d CROSS JOIN {cells} s ON s.row_key = d.row_key AND s.family = d.family"
        f" AND s.qualifier = CAST({_PREFIX} || d.qualifier || {_SUFFIX} AS BLOB)"
        " AND s.version = d.version"
        f" WHERE {selected}"
        f" AND d.qualifier >= x'' AND substr(d.qualifier, -2) IS NOT {_SUFFIX}"
        " AND d.value > x'' AND d.value <> :tombstone"
        f" AND s.value >= x'' AND length(s.value) = {LONG_BYTES} AND s.value <= :newest"
        " GROUP BY d.row_key HAVING min(d.version) >= :first"
        # Most rows have one version, and then one look tells of all commits and columns.
        " AND CASE WHEN min(d.version) = max(d.version)"
        f" THEN {_is_behind('min(s.value)', 'max(d.version)')}"
        f" ELSE NOT EXISTS (SELECT 1 FROM {cells} x WHERE {of_row}"
        " GROUP BY x.family, x.qualifier HAVING count(*) > 1)"
        f" AND NOT EXISTS (SELECT 1 FROM {cells} x WHERE {of_row}"
        f" AND substr(x.qualifier, -2) IS {_SUFFIX}"
        f" AND NOT {_is_behind('x.value', 'x.version')}) END"
    )


def _is_behind(value: str, version: str) -> str:
    """Return the condition that 8 bytes are a number that is not below another."""
    return f"hex({value}) >= printf('%016X', {version})"


def _pair_bytes() -> int:
    """Return what a pair has beside names, twice, and the value of its data cell."""
    return 2 * LONG_BYTES + len(SHADOW_PREFIX) + len(SHADOW_SUFFIX) + LONG_BYTES
