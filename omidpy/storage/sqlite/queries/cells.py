"""The SQL over one table's cells: rows, pages, conditions, batches.

Functions from a connection to cells and back.  The table `cells_<id>` is clustered by (row_key,
family, qualifier, version DESC), which is HBase's order, so that each query reads one range of one
index and sorts nothing.  Whoever calls owns the transaction.
"""

# ruff: noqa: S608  the one name put into a statement is cells_<id>, made from an integer

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import lru_cache, partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, TypeVar, cast

from omidpy.base.rows.simple import by_row
from omidpy.errors import CorruptCell
from omidpy.model import Cell, CellRecord, ColumnSpec, KeyRange, PairedCell
from omidpy.storage import portions, rules
from omidpy.storage.base import Row
from omidpy.storage.options import Portion
from omidpy.storage.sqlite.handle import transact
from omidpy.storage.sqlite.queries.newest import (
    IS_SELECTED,
    MAX_NAMES,
    Bounds,
    Fields,
    FoundCells,
    Search,
    columns_found,
    newest_first,
    newest_last,
    row_found,
)

T = TypeVar("T")
C = TypeVar("C", bound=tuple[Any, ...])

FIRST_CHUNK_CELLS: Final = 4
MAX_CHUNK_CELLS: Final = 1024
"""Cells fetched at a time: few until their size is known, then what the page seems to need."""

VALUE_OF: Final = itemgetter(4)

PAGE_BYTES: Final = 4 << 20
"""About how much of a scan is in memory at a time, past which a page ends with its row."""

CELLS_AT_ONCE: Final = (64, 32, 16, 8, 4, 2, 1)
"""So many cells one statement puts: of few lengths, since each is prepared, and kept so."""

to_cell: Callable[[tuple[object, ...]], Cell] = cast(
    "Callable[[tuple[object, ...]], Cell]", partial(tuple.__new__, Cell)
)
"""Make a Cell of a tuple of its fields, in C: scans make millions."""

to_cells: Callable[[Iterable[Any]], Iterable[Cell]] = partial(map, to_cell)
"""Make cells of the fields of many."""


def to_pairs(fields: Iterable[Any]) -> Iterable[PairedCell]:
    """Take the fields of many as they are."""
    return fields


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
        return _newest(row_found(connection, cells, (row,), bounds), bounds)
    result: Row = []
    for named, some in groupby(specs, _is_named):
        if named:
            names = cast("list[tuple[bytes, bytes]]", list(some))
            for first in range(0, len(names), MAX_NAMES):
                part = names[first : first + MAX_NAMES]
                result += map(to_cell, columns_found(connection, cells, row, part, bounds))
            continue
        for family, _ in some:
            found = row_found(connection, cells, (row, family), bounds)
            result += _newest(found, bounds)
    return result


def _is_named(spec: ColumnSpec) -> bool:
    return spec[1] is not None


def _newest(found: list[Fields], bounds: Bounds) -> Row:
    row = list(map(to_cell, found))
    return row if bounds.max_versions is None else rules.newest(row, bounds.max_versions)


def takes_one_statement(specs: list[ColumnSpec] | None) -> bool:
    """Say whether `read_row` reads a row by one statement, which is a view of its own."""
    return (
        specs is None or len(specs) == 1 or (len(specs) <= MAX_NAMES and all(map(_is_named, specs)))
    )


# -- scans -----------------------------------------------------------------------------------------


def scan_cells(
    connection: sqlite3.Connection,
    cells: str,
    key_range: KeyRange,
    specs: list[ColumnSpec] | None,
    bounds: Bounds,
    *,
    reverse: bool,
    is_paired: bool = False,
) -> FoundCells:
    """Yield the cells of a range in key order, or in its exact reverse.

    With a count of versions there may be more of a column than that, and it may take several
    statements, which the caller gives one view.
    """
    search = Search(cells, bounds, (), key_range, specs, is_paired)
    return FoundCells((newest_last if reverse else newest_first)(connection, search))


def read_page(
    found: FoundCells | sqlite3.Cursor,
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
            rows = by_row(chunk)
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
    query = (
        f"SELECT row_key, family, qualifier, version, value FROM {cells} d"
        f" WHERE version >= :low AND version < :high{IS_SELECTED * (specs is not None)}"
        " AND hex(substr(qualifier, 1, :length)) = :prefix"
        " ORDER BY row_key, family, qualifier, version DESC LIMIT 1"
    )
    # In hex, because the start of an empty blob is NULL, which equals nothing.
    sought = {"length": len(prefix), "prefix": prefix.hex().upper()}
    values = {**Search(cells, bounds, specs=specs).values(), **sought}
    fields = connection.execute(query, values).fetchone()
    return None if fields is None else to_cell(fields)


# -- writing --------------------------------------------------------------------------------------


def apply_effects(connection: sqlite3.Connection, cells: str, effects: rules.Effects) -> None:
    """Write and delete the cells of a batch."""
    puts = [(*key, value) for key, value in effects.items() if value is not None]
    if puts:
        put_cells(connection, cells, puts)
    if len(puts) < len(effects):
        deleted = [key for key, value in effects.items() if value is None]
        connection.executemany(_delete(cells), deleted)


def put_cells(
    connection: sqlite3.Connection,
    cells: str,
    records: Sequence[CellRecord],
    *,
    over: bool = True,
) -> int:
    """Put cells: row, family, qualifier, version and value each; return how many that changed.

    Many go in one statement, since for each the interpreter's lock is let go and taken again.

    Args:
        connection: It has a transaction open.
        cells: The table.
        records: In their order: of two on a cell the later one is left.
        over: Whether one that is there is put over; else it stays.
    """
    changed = first = 0
    left = len(records)
    for count in CELLS_AT_ONCE:
        while left >= count:
            some = records[first : first + count]
            text = _insertion(cells, count, over)
            changed += connection.execute(text, _bound(some)).rowcount
            first += count
            left -= count
    return changed


def _bound(records: Sequence[CellRecord]) -> list[bytearray | int]:
    """Return the fields of cells as `sqlite3` takes them at once.

    For each that is `bytes` it looks for somebody who adapts it, which takes longer than the copy.
    """
    found: list[bytearray | int] = []
    for row, family, qualifier, version, value in records:
        found += (
            bytearray(row),
            bytearray(family),
            bytearray(qualifier),
            version,
            bytearray(value),
        )
    return found


@lru_cache(maxsize=8 * 1024)
def _insertion(cells: str, count: int, over: bool) -> str:  # noqa: FBT001  cached
    places = ", ".join(["(?, ?, ?, ?, ?)"] * count)
    return f"INSERT OR {'REPLACE' if over else 'IGNORE'} INTO {cells} VALUES {places}"


@lru_cache(maxsize=1024)
def _delete(cells: str) -> str:
    return f"DELETE FROM {cells} WHERE row_key = ? AND family = ? AND qualifier = ? AND version = ?"
