"""The SQL over cells: a row that is written all day stays cheap to read, and is read right."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from omidpy.model import MAX_VERSION, ColumnSpec, KeyRange
from omidpy.storage.base import Row
from omidpy.storage.sqlite import cells as sqlite_cells
from omidpy.storage.sqlite.cells import MAX_STEPS, Bounds, create_cells, read_row, scan_cells

TABLE = "cells_1"


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """Return an empty table."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        create_cells(made, TABLE)
        yield made


def write(connection: sqlite3.Connection, versions: int, *, rows: tuple[bytes, ...]) -> None:
    """Give each row two families of two columns with so many versions each."""
    columns = itertools.product(rows, (b"f", b"g"), (b"", b"q"), range(1, versions + 1))
    connection.executemany(
        f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?)", [(*column, b"v") for column in columns]
    )


def instructions(connection: sqlite3.Connection, versions: int) -> int:
    """Return how much SQLite did to read the newest versions of a row, by every kind of read."""
    connection.execute(f"DELETE FROM {TABLE}")
    write(connection, versions, rows=(b"r",))
    counter = itertools.count()
    connection.set_progress_handler(lambda: next(counter) < 0, 1)
    bounds = Bounds(0, MAX_VERSION, 3)
    kinds: list[list[ColumnSpec] | None] = [None, [(b"f", None)], [(b"g", b"q")]]
    for specs in kinds:
        read_row(connection, TABLE, b"r", specs, bounds)
    list(scan_cells(connection, TABLE, KeyRange(), None, bounds, reverse=False))
    connection.set_progress_handler(None, 0)
    return next(counter)


def test_a_row_of_many_versions_costs_no_more_than_one_of_few(
    connection: sqlite3.Connection,
) -> None:
    """A counter has every version of a day until it is compacted, and is read all the time."""
    few = instructions(connection, 2 * MAX_STEPS)
    assert instructions(connection, 50 * MAX_STEPS) < 1.2 * few


@pytest.mark.parametrize("steps", [0, 1, 5, MAX_STEPS])
@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_columns_that_are_cut_short_are_all_there(
    connection: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    count: int,
    reverse: bool,  # noqa: FBT001  a parameter
) -> None:
    """Seeking the next column must neither skip one nor show one twice, in either direction."""
    monkeypatch.setattr(sqlite_cells, "MAX_STEPS", steps)
    rows = (b"a", b"a\x00", b"b", b"\xff")
    write(connection, 8, rows=rows)
    bounds = Bounds(2, 8, count)
    newest = range(7, max(7 - count, 1), -1)

    def expected(row: bytes, *families: bytes) -> Row:
        names = itertools.product((row,), families, (b"", b"q"), newest)
        return [sqlite_cells.to_cell((*name, b"v")) for name in names]

    for row in rows:
        assert read_row(connection, TABLE, row, None, bounds) == expected(row, b"f", b"g")
        assert read_row(connection, TABLE, row, [(b"g", None)], bounds) == expected(row, b"g")
    key_range = KeyRange(b"a", b"\xff")
    found = scan_cells(connection, TABLE, key_range, [(b"f", None)], bounds, reverse=reverse)
    cells = [cell for row in rows[:3] for cell in expected(row, b"f")]
    assert list(map(sqlite_cells.to_cell, found)) == (cells[::-1] if reverse else cells)
