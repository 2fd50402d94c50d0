"""Rows of one table that may be longer than memory: in pages, or part by part.

Functions like those of `cells.py`, for `CutsRows`.  A cursor is left as soon as a portion is full,
and closed, as an open one would pin its view of the file.
"""

# ruff: noqa: S608  the one name put into a statement is cells_<id>, made from an integer

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from omidpy.model import Cell, KeyRange
from omidpy.storage import portions
from omidpy.storage.base import Row
from omidpy.storage.options import LongRow, Portion, Wanted
from omidpy.storage.sqlite.queries.cells import read_page, scan_cells, to_cell, to_cells
from omidpy.storage.sqlite.queries.newest import Bounds, Fields


def page(
    connection: sqlite3.Connection,
    cells: str,
    *,
    key_range: KeyRange,
    wanted: Wanted,
    count: int,
    most: Portion,
) -> tuple[list[Row] | LongRow, bool]:
    """Read the next rows of a range, or name the next one if it is long.

    Returns:
        At most `count` rows, no more than a portion but for the first; whether they were the last.
    """
    bounds = Bounds(wanted.min_version, wanted.max_version, None)
    found = scan_cells(connection, cells, key_range, wanted.columns(), bounds, reverse=False)
    rows, is_last = read_page(found, count, to_cells, most)
    if not rows or (sum(map(len, rows)) <= most.cells and not portions.is_more(rows[0], most)):
        return rows, is_last
    # Cells were fetched some hundred at a time.
    first_page = next(portions.pages((portions.whole_or_long(row, most) for row in rows), most))
    return first_page, False


def first(
    connection: sqlite3.Connection,
    cells: str,
    *,
    keys: Sequence[bytes],
    wanted: Wanted,
    most: Portion,
) -> list[Row | LongRow]:
    """Read the first of some rows, as many as make a portion, and one at least."""

    def read() -> Iterator[Row | LongRow]:
        for key in keys:
            row, is_whole = part(connection, cells, row=key, after=None, wanted=wanted, most=most)
            yield row if is_whole else LongRow(key)

    return portions.first_portion(read(), most)


def part(
    connection: sqlite3.Connection,
    cells: str,
    *,
    row: bytes,
    after: Cell | None,
    wanted: Wanted,
    most: Portion,
) -> tuple[Row, bool]:
    """Read a portion of a row behind one of its cells, and say whether it was the last one."""
    with closing(_behind(connection, cells, row, after, wanted)) as found:
        return portions.first_part(map(to_cell, found), most)


def _behind(
    connection: sqlite3.Connection, cells: str, row: bytes, after: Cell | None, wanted: Wanted
) -> Generator[Fields, None, None]:
    """Yield the cells of a row behind one of them."""
    bounds = (wanted.min_version, wanted.max_version)
    where = f"SELECT row_key, family, qualifier, version, value FROM {cells} WHERE row_key = ?"
    where += " AND version >= ? AND version < ? AND family = ?"
    order = " ORDER BY qualifier, version DESC"
    for family in wanted.families:
        queries: list[tuple[str, tuple[object, ...]]] = [("", ())]
        if after is not None and family < after.family:
            continue
        if after is not None and family == after.family:
            queries = [
                (" AND qualifier = ? AND version < ?", (after.qualifier, after.version)),
                (" AND qualifier > ?", (after.qualifier,)),
            ]
        for condition, values in queries:
            query = where + condition + order
            with closing(connection.execute(query, (row, *bounds, family, *values))) as cursor:
                yield from cursor
