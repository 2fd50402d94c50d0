"""The SQL over one table's cells: rows, pages, conditions, batches.

Functions from a connection to cells and back.  The table `cells_<id>` is clustered by (row_key,
family, qualifier, version DESC), which is HBase's order, so that each query reads one range of one
index and sorts nothing.  Whoever calls owns the transaction.
"""

# ruff: noqa: S608  the one name put into a statement is cells_<id>, made from an integer

from __future__ import annotations

import json
import sqlite3
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import lru_cache, partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from omidpy.base.cells import SHADOW_PREFIX, SHADOW_SUFFIX
from omidpy.errors import CorruptCell
from omidpy.model import Cell, ColumnSpec, KeyRange, PairedCell
from omidpy.storage import portions, rules
from omidpy.storage.base import Portion, Row
from omidpy.storage.sqlite.handle import transact

T = TypeVar("T")
C = TypeVar("C", bound=tuple[Any, ...])

FIRST_CHUNK_CELLS: Final = 4
MAX_CHUNK_CELLS: Final = 1024
"""Cells fetched at a time: few until their size is known, then what the page seems to need."""

ROW_OF: Final = itemgetter(0)
VALUE_OF: Final = itemgetter(4)

PAGE_BYTES: Final = 4 << 20
"""About how much of a scan is in memory at a time, past which a page ends with its row."""

MAX_STEPS: Final = 64
"""Versions past the wanted ones that a read steps over before it seeks the next column: a row that
is written all day has thousands, and each read of it would go through all of them."""

Fields: TypeAlias = tuple[bytes, bytes, bytes, int, bytes]
Found: TypeAlias = Generator[Fields, None, None]
"""Cells as they are found.  To be closed: an open cursor would pin its view of the file."""
Place: TypeAlias = tuple[bytes, bytes, bytes]
"""A row, a family and a qualifier."""
QueryAfter: TypeAlias = "Callable[[Place | None], tuple[str, Sequence[object]]]"
"""Makes a query and its values, for what lies behind a column, or for all."""

to_cell: Callable[[tuple[object, ...]], Cell] = cast(
    "Callable[[tuple[object, ...]], Cell]", partial(tuple.__new__, Cell)
)
"""Make a Cell of a tuple of its fields, in C: scans make millions."""

to_cells: Callable[[Iterable[Any]], Iterable[Cell]] = partial(map, to_cell)
"""Make cells of the fields of many."""


def to_pairs(fields: Iterable[Any]) -> Iterable[PairedCell]:
    """Take the fields of many as they are."""
    return fields


class Bounds(NamedTuple):
    """Which versions to read."""

    min_version: int
    max_version: int
    max_versions: int | None


def create_cells(connection: sqlite3.Connection, cells: str) -> None:
    """Create the table of cells."""
    connection.execute(
        f"CREATE TABLE {cells} (row_key BLOB NOT NULL, family BLOB NOT NULL,"
        " qualifier BLOB NOT NULL, version INTEGER NOT NULL, value BLOB NOT NULL,"
        " PRIMARY KEY (row_key, family, qualifier, version DESC)) WITHOUT ROWID"
    )


# -- reading --------------------------------------------------------------------------------------


def in_one_view(read: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
    """Run several statements on one view of the file: a row must not change between two of them."""
    return transact(connection, "BEGIN", read)


def read_row(
    connection: sqlite3.Connection,
    cells: str,
    row: bytes,
    specs: list[ColumnSpec] | None,
    bounds: Bounds,
) -> Row:
    """Read one row; `specs` are disjoint and in order, so their cells come in order too."""
    if specs is None:
        query = partial(_row_query, cells, (row,), bounds)
        return list(map(to_cell, _newest_first(connection, query, bounds.max_versions)))
    result: Row = []
    for family, qualifier in specs:
        if qualifier is None:
            query = partial(_row_query, cells, (row, family), bounds)
            result += map(to_cell, _newest_first(connection, query, bounds.max_versions))
        else:
            result += map(to_cell, _column(connection, cells, (row, family, qualifier), bounds))
    return result


def takes_one_statement(specs: list[ColumnSpec] | None, bounds: Bounds) -> bool:
    """Say whether `read_row` reads a row in one statement, which is a view of its own."""
    if specs is None:
        return bounds.max_versions is None
    return len(specs) == 1 and (bounds.max_versions is None or specs[0][1] is not None)


def _column(
    connection: sqlite3.Connection, cells: str, column: Place, bounds: Bounds
) -> list[Fields]:
    """Read one column, newest version first."""
    low, high, count = bounds
    limit = -1 if count is None else count
    return connection.execute(_column_query(cells), (*column, low, high, limit)).fetchall()


@lru_cache(maxsize=1024)
def _column_query(cells: str) -> str:
    return (
        f"SELECT row_key, family, qualifier, version, value FROM {cells}"
        " WHERE row_key = ? AND family = ? AND qualifier = ? AND version >= ? AND version < ?"
        " ORDER BY version DESC LIMIT ?"
    )


def _row_query(
    cells: str, prefix: tuple[bytes, ...], bounds: Bounds, after: Place | None
) -> tuple[str, Sequence[object]]:
    """Return the query for a row or a family of it, from the beginning or behind a column."""
    values: tuple[object, ...] = (*prefix, bounds.min_version, bounds.max_version)
    if after is not None:
        values += _behind(after)[len(prefix) :]
    return _row_text(cells, len(prefix), after is not None), values


@lru_cache(maxsize=1024)
def _row_text(cells: str, prefix_length: int, is_resumed: bool) -> str:  # noqa: FBT001  cached
    names = ("row_key", "family", "qualifier")
    where = " AND ".join(f"{name} = ?" for name in names[:prefix_length])
    rest = names[prefix_length:]
    behind = f" AND ({', '.join(rest)}) >= ({', '.join('?' * len(rest))})" if is_resumed else ""
    return (
        f"SELECT row_key, family, qualifier, version, value FROM {cells}"
        f" WHERE {where} AND version >= ? AND version < ?{behind}"
        " ORDER BY row_key, family, qualifier, version DESC"
    )


def _behind(column: Place) -> Place:
    """Return the first place behind a column.

    Asked for what is greater than the column, SQLite would step over all of its versions; in
    reverse, where there is no such place, it does, which takes it 0.3 ms for a thousand.
    """
    row, family, qualifier = column
    return row, family, qualifier + b"\x00"


# -- the newest versions of each column ------------------------------------------------------------


def _newest_first(connection: sqlite3.Connection, query: QueryAfter, count: int | None) -> Found:
    """Yield at most `count` versions of each column, in the order of the table."""
    after: Place | None = None
    while True:
        with closing(connection.execute(*query(after))) as cursor:
            if count is None:
                yield from cursor
                return
            column: Place | None = None
            seen_count = 0
            for fields in cursor:
                if fields[:3] != column:
                    column, seen_count = fields[:3], 0
                seen_count += 1
                if seen_count <= count:
                    yield fields
                elif seen_count > count + MAX_STEPS:
                    after = column
                    break
            else:
                return


def _newest_last(
    connection: sqlite3.Connection, query: QueryAfter, cells: str, bounds: Bounds
) -> Found:
    """Yield the newest versions of each column, in the reverse order of the table."""
    count = bounds.max_versions
    after: Place | None = None
    while True:
        with closing(connection.execute(*query(after))) as cursor:
            if count is None:
                yield from cursor
                return
            column: Place | None = None
            seen_count = 0
            newest: deque[Fields] = deque(maxlen=count)
            for fields in cursor:
                if fields[:3] != column:
                    yield from newest
                    newest.clear()
                    column, seen_count = fields[:3], 0
                seen_count += 1
                newest.append(fields)
                if seen_count > count + MAX_STEPS:
                    after = column
                    break
            else:
                yield from newest
                return
        assert after is not None, "only a column that went on and on ends the loop early"
        yield from reversed(_column(connection, cells, after, bounds))


# -- scans -----------------------------------------------------------------------------------------


def scan_cells(
    connection: sqlite3.Connection,
    cells: str,
    key_range: KeyRange,
    specs: list[ColumnSpec] | None,
    bounds: Bounds,
    *,
    reverse: bool,
) -> Found:
    """Yield the cells of a range in key order, or in its exact reverse.

    With a count of versions it may take several statements, which the caller gives one view.
    """
    query = partial(_scan_query, cells, key_range, specs, bounds, reverse)
    if reverse:
        return _newest_last(connection, query, cells, bounds)
    return _newest_first(connection, query, bounds.max_versions)


def _scan_query(
    cells: str,
    key_range: KeyRange,
    specs: list[ColumnSpec] | None,
    bounds: Bounds,
    reverse: bool,  # noqa: FBT001  given by `partial`
    after: Place | None,
) -> tuple[str, Sequence[object]]:
    """Return the query for a range, from its beginning or behind a column."""
    where = "version >= ? AND version < ?"
    values: list[object] = [bounds.min_version, bounds.max_version]
    # A place stands for the bound on its side: with both, SQLite would seek by the wider one.
    if after is not None:
        where += f" AND (row_key, family, qualifier) {'<' if reverse else '>='} (?, ?, ?)"
        values += after if reverse else _behind(after)
    if after is None or reverse:
        where += " AND row_key >= ?"
        values.append(key_range.start)
    if key_range.end and (after is None or not reverse):
        where += " AND row_key < ?"
        values.append(key_range.end)
    selected, wanted = _selection(specs)
    where += selected
    values += wanted
    order = (
        "row_key DESC, family DESC, qualifier DESC, version"
        if reverse
        else "row_key, family, qualifier, version DESC"
    )
    query = (
        f"SELECT row_key, family, qualifier, version, value FROM {cells} WHERE {where}"
        f" ORDER BY {order}"
    )
    return query, values


def pairs_found(
    connection: sqlite3.Connection,
    cells: str,
    key_range: KeyRange,
    specs: list[ColumnSpec] | None,
    max_version: int,
) -> sqlite3.Cursor:
    """Find data cells in key order, each with its shadow cell's value.

    Finding that is one step in the index that the scan has just read, and costs much less than
    handing another cell to Python.
    """
    where = "d.version < ? AND d.row_key >= ?"
    values: list[object] = [max_version, key_range.start]
    if key_range.end:
        where += " AND d.row_key < ?"
        values.append(key_range.end)
    selected, wanted = _selection(specs, of="d.")
    query = (
        "SELECT d.row_key, d.family, d.qualifier, d.version, d.value, s.value"
        f" FROM {cells} d LEFT JOIN {cells} s ON s.row_key = d.row_key AND s.family = d.family"
        f" AND s.qualifier = CAST({_SQL_PREFIX} || d.qualifier || {_SQL_SUFFIX} AS BLOB)"
        f" AND s.version = d.version WHERE {where}{selected}"
        f" AND (substr(d.qualifier, -2) IS NOT {_SQL_SUFFIX} OR length(d.qualifier) = 2)"
        " ORDER BY d.row_key, d.family, d.qualifier, d.version DESC"
    )
    return connection.execute(query, (*values, *wanted))


_SQL_PREFIX: Final = f"x'{SHADOW_PREFIX.hex()}'"
_SQL_SUFFIX: Final = f"x'{SHADOW_SUFFIX.hex()}'"


def _selection(specs: list[ColumnSpec] | None, *, of: str = "") -> tuple[str, list[object]]:
    """Return the condition that a cell is selected; `of` names its table."""
    if specs is None:
        return "", []
    # One JSON value in place of a parameter for each column, of which SQLite has a limit.
    where = (
        f" AND (hex({of}family) IN (SELECT value FROM json_each(?)) OR"
        f" hex({of}family) || '/' || hex({of}qualifier) IN (SELECT value FROM json_each(?)))"
    )
    hexes = [(f.hex().upper(), None if q is None else q.hex().upper()) for f, q in specs]
    return where, [
        json.dumps([family for family, qualifier in hexes if qualifier is None]),
        json.dumps([f"{f}/{q}" for f, q in hexes if q is not None]),
    ]


def read_page(
    found: Found | sqlite3.Cursor,
    limit: int,
    made: Callable[[Iterable[Any]], Iterable[C]],
    most: Portion | None = None,
) -> tuple[list[list[C]], bool]:
    """Read at most `limit` whole rows, and say whether they were the last ones.

    Args:
        found: The fields of cells; closed here, as an open cursor would pin its view of the file.
        limit: Rows of a page.
        made: Makes cells of the fields of many.
        most: What a page comes to at most, in cells too.  The first row, if it is more, comes with
            a little more than that.

    What is done to every cell is done in C, because scans read millions.
    """
    page: list[list[C]] = []
    cell_count = size_bytes = 0
    chunk_cells = FIRST_CHUNK_CELLS
    most_cells = sys.maxsize if most is None else most.cells
    most_bytes = PAGE_BYTES if most is None else min(PAGE_BYTES, most.size_bytes)
    with closing(found):
        while chunk := list(made(islice(found, chunk_cells))):
            rows = [list(cells) for _, cells in groupby(chunk, ROW_OF)]
            if page and page[-1][0][0] == chunk[0][0]:
                page[-1] += rows.pop(0)
            page += rows
            cell_count += len(chunk)
            try:
                size_bytes += sum(map(len, map(VALUE_OF, chunk)))
                size_bytes += len(chunk) * (len(chunk[0][0]) + len(chunk[0][2]))
            except TypeError:
                raise CorruptCell(
                    f"a cell from row {chunk[0][0]!r} on holds no bytes: the file was damaged, or "
                    "changed by another program; restore it from a backup"
                ) from None
            # The last row may go on, so there must be one more than is handed out.
            is_full = size_bytes >= most_bytes or cell_count > most_cells
            if len(page) > limit or (is_full and len(page) > 1):
                del page[min(limit, len(page) - 1) :]
                return page, False
            if is_full and most is not None and portions.is_more(page[0], most):
                return page, False
            chunk_cells = min(
                4 * chunk_cells,
                MAX_CHUNK_CELLS,
                (limit + 1 - len(page)) * cell_count // len(page) + 1,
                max(most_bytes - size_bytes, 0) * cell_count // max(size_bytes, 1) + 1,
            )
        return page, True


def find_cell(
    connection: sqlite3.Connection,
    cells: str,
    prefix: bytes,
    specs: list[ColumnSpec] | None,
    bounds: Bounds,
) -> Cell | None:
    """Return the first cell whose qualifier starts with `prefix`; without an index for it, slow."""
    selected, wanted = _selection(specs)
    query = (
        f"SELECT row_key, family, qualifier, version, value FROM {cells}"
        f" WHERE version >= ? AND version < ?{selected}"
        " AND hex(substr(qualifier, 1, ?)) = ?"
        " ORDER BY row_key, family, qualifier, version DESC LIMIT 1"
    )
    # In hex, because the start of an empty blob is NULL, which equals nothing.
    sought = (len(prefix), prefix.hex().upper())
    values = (bounds.min_version, bounds.max_version, *wanted, *sought)
    fields = connection.execute(query, values).fetchone()
    return None if fields is None else to_cell(fields)


# -- writing --------------------------------------------------------------------------------------


def apply_effects(connection: sqlite3.Connection, cells: str, effects: rules.Effects) -> None:
    """Write and delete the cells of a batch."""
    puts = [(*key, value) for key, value in effects.items() if value is not None]
    if puts:
        connection.executemany(insertion(cells), puts)
    if len(puts) < len(effects):
        deleted = [key for key, value in effects.items() if value is None]
        connection.executemany(_delete(cells), deleted)


@lru_cache(maxsize=1024)
def insertion(cells: str) -> str:
    """Return the statement that puts a cell: its row, family, qualifier, version and value."""
    return f"INSERT OR REPLACE INTO {cells} VALUES (?, ?, ?, ?, ?)"


@lru_cache(maxsize=1024)
def _delete(cells: str) -> str:
    return f"DELETE FROM {cells} WHERE row_key = ? AND family = ? AND qualifier = ? AND version = ?"
