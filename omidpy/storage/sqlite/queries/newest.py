"""The newest versions of each column: read on through the older ones, or seek the next column?

A table's cells are clustered by (row_key, family, qualifier, version DESC), so that the newest
version of a column comes first and the older ones lie between it and the next column.  Reading on
is cheapest where those are few, which is the rule.  Where they are many a recursive query seeks
from column to column, and costs the same however many lie between.

So a read begins by reading on, and looks at what came.  Once most of it is versions that were not
asked for it goes on by seeking.  A seek costs about what it costs to read four cells.

A scan that seeks makes a second statement, which sees the view of the first one only in a
transaction of the caller's.  A row that is read alone is read again from its start instead, so that
each attempt is a view of its own.
"""

# ruff: noqa: S608  the one name put into a statement is cells_<id>, made from an integer

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import chain
from operator import eq, itemgetter
from typing import Final, NamedTuple, TypeAlias

from omidpy.base.cells import SHADOW_PREFIX, SHADOW_SUFFIX
from omidpy.model import ColumnSpec, KeyRange

FIRST_CELLS: Final = 16
MAX_CELLS: Final = 64
"""Cells that are read on before it is looked at them: few at first, so that little is wasted."""

MAX_SURPLUS: Final = 0.75
"""Share of versions that were not asked for, past which a read seeks."""

MAX_NAMES: Final = 100
"""Columns that one statement names: SQLite has a limit of its values."""

Fields: TypeAlias = tuple[bytes, bytes, bytes, int, bytes]
"""Row, family, qualifier, version and value; of a pair, the value of the shadow cell too."""
Parts: TypeAlias = Generator[Iterable[Fields], None, None]
"""Cells as they are found, some at a time."""
Place: TypeAlias = tuple[bytes, bytes, bytes]
"""A row, a family and a qualifier."""
Query: TypeAlias = "tuple[str, dict[str, object]]"
"""A statement and its values."""

_column: Final = itemgetter(0, 1, 2)
_row: Final = itemgetter(0)


class FoundCells:
    """Cells as they are found.  To be closed: an open cursor would pin its view of the file."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._cells = chain.from_iterable(parts)  # in C, because scans read millions

    def __iter__(self) -> Iterator[Fields]:
        return self._cells

    def close(self) -> None:
        """End the reading, with rows left that were not asked for."""
        self._parts.close()


class Bounds(NamedTuple):
    """Which versions to read."""

    min_version: int
    max_version: int
    max_versions: int | None


class Search(NamedTuple):
    """Which cells are looked for."""

    cells: str
    """The table."""
    bounds: Bounds
    prefix: tuple[bytes, ...] = ()
    """A row, or a row and a family of it; empty: a range."""
    key_range: KeyRange = KeyRange()
    specs: Sequence[ColumnSpec] | None = None
    """Families and columns of a key range; None: all."""
    is_paired: bool = False
    """Whether data cells alone are looked for, each with the value of its shadow cell.

    Finding that is one step in the index that has just been read, and costs much less than handing
    another cell to Python.
    """

    def every(self, *, reverse: bool = False) -> Query:
        """Return the query for every version of a range, in the table's order or its reverse."""
        kind = _Kind(len(self.prefix), self.key_range.end != b"", self.specs is not None)
        text = _every_text(self.cells, kind, is_paired=self.is_paired, reverse=reverse)
        return text, self.values()

    def newest(self, place: Place) -> Query:
        """Return the query that seeks the newest versions of each column from a place on."""
        kind = _Kind(len(self.prefix), self.key_range.end != b"", self.specs is not None)
        count = self.bounds.max_versions
        text = _newest_text(self.cells, kind, is_paired=self.is_paired, is_single=count == 1)
        row, family, qualifier = place
        start = {"from_row": row, "from_family": family, "from_qualifier": qualifier}
        return text, {**self.values(), **start, "count": count}

    def of_row(self, row: bytes) -> Search:
        """Return the search for the same in one row of the range."""
        return self._replace(key_range=KeyRange(row, row + b"\x00"))

    def values(self) -> dict[str, object]:
        """Return the values of every query for it."""
        low, high, _ = self.bounds
        values: dict[str, object] = {"low": low, "high": high}
        if self.prefix:
            values["row"] = self.prefix[0]
            values["family"] = self.prefix[-1]
        else:
            values["start"], values["end"] = self.key_range
        if self.specs is not None:
            # One JSON value in place of a value for each column, of which SQLite has a limit.
            hexes = [
                (f.hex().upper(), None if q is None else q.hex().upper()) for f, q in self.specs
            ]
            values["families"] = json.dumps([f for f, q in hexes if q is None])
            values["names"] = json.dumps([f"{f}/{q}" for f, q in hexes if q is not None])
        return values


class _Kind(NamedTuple):
    """What the text of a query depends on."""

    prefix_length: int
    has_end: bool
    has_specs: bool


_SQL_PREFIX: Final = f"x'{SHADOW_PREFIX.hex()}'"
_SQL_SUFFIX: Final = f"x'{SHADOW_SUFFIX.hex()}'"
_IS_DATA: Final = f" AND (substr(d.qualifier, -2) IS NOT {_SQL_SUFFIX} OR length(d.qualifier) = 2)"
IS_SELECTED: Final = (
    " AND (hex(d.family) IN (SELECT value FROM json_each(:families)) OR"
    " hex(d.family) || '/' || hex(d.qualifier) IN (SELECT value FROM json_each(:names)))"
)


def _fields(cells: str, *, is_paired: bool) -> tuple[str, str]:
    """Return what is selected, and the join that finds shadow cells."""
    names = "d.row_key, d.family, d.qualifier, d.version, d.value"
    if not is_paired:
        return names, ""
    return f"{names}, s.value", (
        f" LEFT JOIN {cells} s ON s.row_key = d.row_key AND s.family = d.family"
        f" AND s.qualifier = CAST({_SQL_PREFIX} || d.qualifier || {_SQL_SUFFIX} AS BLOB)"
        " AND s.version = d.version"
    )


@lru_cache(maxsize=1024)
def _every_text(cells: str, kind: _Kind, *, is_paired: bool, reverse: bool) -> str:
    names, join = _fields(cells, is_paired=is_paired)
    where = "d.row_key >= :start" + " AND d.row_key < :end" * kind.has_end
    order = (
        "d.row_key DESC, d.family DESC, d.qualifier DESC, d.version"
        if reverse
        else "d.row_key, d.family, d.qualifier, d.version DESC"
    )
    return (
        f"SELECT {names} FROM {cells} d{join} WHERE {where} AND d.version >= :low"
        f" AND d.version < :high{IS_SELECTED * kind.has_specs}{_IS_DATA * is_paired}"
        f" ORDER BY {order}"
    )


@lru_cache(maxsize=1024)
def _newest_text(cells: str, kind: _Kind, *, is_paired: bool, is_single: bool) -> str:
    """Return the query that goes from column to column.

    `at` is a column: its row, family and qualifier, its newest version, and the first qualifier
    behind it.  Asked for what is greater than the column, SQLite would step over all of its
    versions.  There is one row of it at a time, so that they come in the order of the table; CROSS
    JOIN keeps that order.
    """
    behind = (
        "(x.row_key, x.family, x.qualifier) >= (at.r, at.f, at.next)"
        + " AND x.row_key < :end" * kind.has_end,
        "x.row_key = :row AND (x.family, x.qualifier) >= (at.f, at.next)",
        "x.row_key = :row AND x.family = :family AND x.qualifier >= at.next",
    )[kind.prefix_length]
    versions = (
        "d.version = at.v"
        if is_single
        else f"d.version <= at.v AND d.version >= coalesce((SELECT y.version FROM {cells} y"
        " WHERE y.row_key = at.r AND y.family = at.f AND y.qualifier = at.q AND y.version <= at.v"
        " AND y.version >= :low ORDER BY y.version DESC LIMIT 1 OFFSET :count - 1), :low)"
    )
    names, join = _fields(cells, is_paired=is_paired)
    return (
        "WITH RECURSIVE at (r, f, q, v, next) AS ("
        "SELECT :from_row, :from_family, :from_qualifier, -1, :from_qualifier UNION ALL"
        " SELECT n.row_key, n.family, n.qualifier, n.version, CAST(n.qualifier || x'00' AS BLOB)"
        f" FROM at CROSS JOIN {cells} n ON (n.row_key, n.family, n.qualifier, n.version) ="
        f" (SELECT x.row_key, x.family, x.qualifier, x.version FROM {cells} x"
        f" WHERE {behind} AND x.version >= :low AND x.version < :high"
        " ORDER BY x.row_key, x.family, x.qualifier, x.version DESC LIMIT 1))"
        f" SELECT {names} FROM at CROSS JOIN {cells} d ON d.row_key = at.r AND d.family = at.f"
        f" AND d.qualifier = at.q AND {versions}{join}"
        f" WHERE at.v >= 0{IS_SELECTED * kind.has_specs}{_IS_DATA * is_paired}"
    )


# -- a row -----------------------------------------------------------------------------------------


def row_found(
    connection: sqlite3.Connection, cells: str, prefix: tuple[bytes, ...], bounds: Bounds
) -> list[Fields]:
    """Read a row or a family of it: at least `max_versions` of each column, in order."""
    low, high, count = bounds
    cursor = connection.execute(_row_text(cells, len(prefix)), (low, high, *prefix))
    if count is None:
        return cursor.fetchall()
    size = 2 * FIRST_CELLS  # to begin again costs as much as so many cells
    found: list[Fields] = cursor.fetchmany(size)
    if len(found) < size:
        return found  # the rule; a cursor that was read to its end is closed
    with closing(cursor):
        part = found
        while not _is_surplus(part, count):
            size = min(4 * size, max(MAX_CELLS, 8 * count))
            part = cursor.fetchmany(size)
            found += part
            if len(part) < size:
                return found
    row, family = prefix[0], prefix[1] if len(prefix) > 1 else b""
    search = Search(cells, bounds, prefix)
    return connection.execute(*search.newest((row, family, b""))).fetchall()


@lru_cache(maxsize=1024)
def _row_text(cells: str, prefix_length: int) -> str:
    return (
        f"SELECT row_key, family, qualifier, version, value FROM {cells}"
        " WHERE version >= ? AND version < ? AND row_key = ?"
        f"{' AND family = ?' * (prefix_length - 1)}"
        " ORDER BY row_key, family, qualifier, version DESC"
    )


def columns_found(
    connection: sqlite3.Connection,
    cells: str,
    row: bytes,
    names: Sequence[tuple[bytes, bytes]],
    bounds: Bounds,
) -> list[Fields]:
    """Read at most `MAX_NAMES` columns of a row, in the order of `names`, which are disjoint."""
    low, high, count = bounds
    values: list[object] = [value for name in names for value in name]
    values.append(row)
    if count is None:
        values += (low, high)
    elif count == 1:
        values += (row, low, high, 0)
    else:
        values += (high, row, low, high, count - 1, low)
    text = _columns_text(cells, len(names), None if count is None else count == 1)
    return connection.execute(text, values).fetchall()


@lru_cache(maxsize=1024)
def _columns_text(cells: str, length: int, is_single: bool | None) -> str:  # noqa: FBT001  cached
    """Return the query for so many columns: one version, or several, or, for None, all of them."""
    # Each value stands where it is bound: early releases of Python 3.12 warn of numbered ones.
    nth = (
        f"(SELECT y.version FROM {cells} y WHERE y.row_key = ? AND y.family = w.column1"
        " AND y.qualifier = w.column2 AND y.version >= ? AND y.version < ?"
        " ORDER BY y.version DESC LIMIT 1 OFFSET ?)"
    )
    if is_single is None:
        versions = "d.version >= ? AND d.version < ?"
    elif is_single:
        versions = f"d.version = {nth}"
    else:
        versions = f"d.version < ? AND d.version >= coalesce({nth}, ?)"
    return (
        "SELECT d.row_key, d.family, d.qualifier, d.version, d.value"
        f" FROM (VALUES {', '.join(['(?, ?)'] * length)}) w CROSS JOIN {cells} d"
        f" ON d.row_key = ? AND d.family = w.column1 AND d.qualifier = w.column2 AND {versions}"
    )


# -- scans -----------------------------------------------------------------------------------------


def newest_first(connection: sqlite3.Connection, search: Search) -> Parts:
    """Yield at least `max_versions` of each column of a range, in the order of the table.

    The caller gives it one view of the file.
    """
    count = search.bounds.max_versions
    with closing(connection.execute(*search.every())) as cursor:
        if count is None:
            yield cursor
            return
        size = FIRST_CELLS
        while True:
            part = cursor.fetchmany(size)
            yield part
            if len(part) < size:
                return
            if _is_surplus(part, count):
                break
            size = min(4 * size, max(MAX_CELLS, 8 * count))
    row, family, qualifier = part[-1][:3]
    with closing(connection.execute(*search.newest((row, family, qualifier + b"\x00")))) as cursor:
        yield cursor


def newest_last(connection: sqlite3.Connection, search: Search) -> Parts:
    """Yield the same in the reverse order of the table.

    The caller gives it one view of the file.
    """
    count = search.bounds.max_versions
    with closing(connection.execute(*search.every(reverse=True))) as cursor:
        if count is None:
            yield cursor
            return
        held: list[Fields] = []
        """Cells of the last row, of which more may come."""
        size = FIRST_CELLS
        while True:
            part = cursor.fetchmany(size)
            if part and part[0][0] != part[-1][0]:
                first = list(map(_row, part)).index(part[-1][0])
                yield held
                yield part[:first]
                held = part[first:]
            elif held and part and held[0][0] != part[0][0]:
                yield held
                held = part
            else:
                held += part
            if len(part) < size:
                yield held
                return
            if _is_surplus(part, count):
                break
            size = min(4 * size, max(MAX_CELLS, 8 * count))
    for row in _rows_backwards(connection, search, held[0][0]):
        query = search.of_row(row).newest((row, b"", b""))
        yield reversed(connection.execute(*query).fetchall())


def _rows_backwards(connection: sqlite3.Connection, search: Search, row: bytes) -> Iterator[bytes]:
    """Yield a row's key, and then the keys below it, whatever is in the rows."""
    yield row
    before = f"SELECT max(row_key) FROM {search.cells} WHERE row_key >= :start AND row_key <"
    query = (
        f"WITH RECURSIVE keys (row) AS ({before} :row"
        f" UNION ALL SELECT ({before} keys.row) FROM keys WHERE keys.row IS NOT NULL)"
        " SELECT row FROM keys WHERE row IS NOT NULL"
    )
    values = {"start": search.key_range.start, "row": row}
    with closing(connection.execute(query, values)) as cursor:
        for (key,) in cursor:
            yield key


def _is_surplus(part: Sequence[Fields], count: int) -> bool:
    """Say whether most of what was read is versions past the newest `count` of their columns.

    Only where the last column goes on past them, so that nothing of it is missing.
    """
    if len(part) <= count or part[-1][:3] != part[-1 - count][:3]:
        return False  # the rule, and quickly said
    names = list(map(_column, part))
    surplus: int = sum(map(eq, names, names[count:]))
    return surplus > MAX_SURPLUS * len(part)
