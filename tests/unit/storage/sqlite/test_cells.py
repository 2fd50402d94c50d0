"""The SQL over cells: a row that is written all day stays cheap to read, and is read right."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import omidpy.storage.sqlite
from omidpy.base.cells import encode_long, shadow_qualifier
from omidpy.model import MAX_VERSION, Cell, ColumnSpec, KeyRange
from omidpy.storage import rules
from omidpy.storage.base import Row
from omidpy.storage.sqlite.queries import cells as sqlite_cells
from omidpy.storage.sqlite.queries import newest
from omidpy.storage.sqlite.queries.cells import (
    CELLS_AT_ONCE,
    create_cells,
    put_cells,
    read_row,
    scan_cells,
)
from omidpy.storage.sqlite.queries.newest import MAX_CELLS, Bounds

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


def instructions(
    connection: sqlite3.Connection,
    versions: int,
    *,
    reverse: bool = False,
    counts: tuple[int, ...] = (1, 3),
) -> int:
    """Return how much SQLite did to read the newest versions of a row, by every kind of read."""
    connection.execute(f"DELETE FROM {TABLE}")
    write(connection, versions, rows=(b"r",))
    counter = itertools.count()
    connection.set_progress_handler(lambda: next(counter) < 0, 1)
    for count in counts:
        bounds = Bounds(0, MAX_VERSION, count)
        kinds: list[list[ColumnSpec] | None] = [None, [(b"f", None)], [(b"f", b""), (b"g", b"q")]]
        for specs in kinds:
            read_row(connection, TABLE, b"r", specs, bounds)
        list(scan_cells(connection, TABLE, KeyRange(), None, bounds, reverse=reverse))
    connection.set_progress_handler(None, 0)
    return next(counter)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_row_of_many_versions_costs_no_more_than_one_of_few(
    connection: sqlite3.Connection,
    reverse: bool,  # noqa: FBT001  a parameter
) -> None:
    """A counter has every version of a day until it is compacted, and is read all the time."""
    few = instructions(connection, 2 * newest.FIRST_CELLS, reverse=reverse)
    assert instructions(connection, 5000, reverse=reverse) < 1.2 * few


def test_a_read_that_goes_deeper_seeks_too(connection: sqlite3.Connection) -> None:
    """Where what it passes over is many versions, those behind may be many more."""
    few = instructions(connection, 1000, counts=(100,))
    assert instructions(connection, 5000, counts=(100,)) < 1.2 * few


def test_a_scan_pays_for_few_versions_of_many(connection: sqlite3.Connection) -> None:
    """Whatever their number, once it has seen how things are."""
    rows = tuple(b"%03d" % number for number in range(50))

    def cost(versions: int, *, reverse: bool) -> int:
        connection.execute(f"DELETE FROM {TABLE}")
        write(connection, versions, rows=rows)
        counter = itertools.count()
        connection.set_progress_handler(lambda: next(counter) < 0, 1)
        bounds = Bounds(0, MAX_VERSION, 1)
        found = scan_cells(connection, TABLE, KeyRange(), None, bounds, reverse=reverse)
        assert len({cell[:3] for cell in found}) == 4 * len(rows)
        connection.set_progress_handler(None, 0)
        return next(counter)

    for reverse in (False, True):
        assert cost(300, reverse=reverse) < 1.2 * cost(30, reverse=reverse)


def test_versions_that_are_few_are_read_on_through(connection: sqlite3.Connection) -> None:
    """One statement for the newest of a thousand columns: a seek each would cost four times it."""
    rows = tuple(b"%03d" % number for number in range(250))
    write(connection, 2, rows=rows)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    bounds = Bounds(0, MAX_VERSION, 1)
    for reverse in (False, True):
        list(scan_cells(connection, TABLE, KeyRange(), None, bounds, reverse=reverse))
    assert len(statements) == 2
    assert not any("RECURSIVE" in statement for statement in statements)


@pytest.mark.parametrize(("cells", "share"), [(1, 0.0), (2, 0.0), (3, 0.3), (8, 0.3), (16, 0.75)])
@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_columns_that_are_cut_short_are_all_there(
    connection: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    cells: int,
    share: float,
    count: int,
    reverse: bool,  # noqa: FBT001  a parameter
) -> None:
    """Seeking the next column must neither skip one nor show one twice, in either direction."""
    monkeypatch.setattr(newest, "FIRST_CELLS", cells)
    monkeypatch.setattr(newest, "MAX_SURPLUS", share)
    rows = (b"a", b"a\x00", b"b", b"\xff")
    write(connection, 8, rows=rows)
    bounds = Bounds(2, 8, count)
    wanted = range(7, max(7 - count, 1), -1)

    def expected(row: bytes, *families: bytes) -> Row:
        names = itertools.product((row,), families, (b"", b"q"), wanted)
        return [sqlite_cells.to_cell((*name, b"v")) for name in names]

    for row in rows:
        assert read_row(connection, TABLE, row, None, bounds) == expected(row, b"f", b"g")
        assert read_row(connection, TABLE, row, [(b"g", None)], bounds) == expected(row, b"g")
        both: list[ColumnSpec] = [(b"f", b""), (b"f", b"q")]
        assert read_row(connection, TABLE, row, both, bounds) == expected(row, b"f")
        assert read_row(connection, TABLE, row, [*both, (b"g", None)], bounds) == expected(
            row, b"f", b"g"
        )
    key_range = KeyRange(b"a", b"\xff")
    found = map(
        sqlite_cells.to_cell,
        scan_cells(connection, TABLE, key_range, [(b"f", None)], bounds, reverse=reverse),
    )
    expected_cells = [cell for row in rows[:3] for cell in expected(row, b"f")]
    in_order = list(found)[::-1] if reverse else list(found)
    assert rules.newest(in_order, count) == expected_cells


@pytest.mark.parametrize(("cells", "share"), [(1, 0.0), (2, 0.0), (16, 0.75), (16, 1.0)])
@pytest.mark.parametrize("reverse", [False, True])
def test_pairs_that_are_cut_short_are_all_there(
    connection: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    cells: int,
    share: float,
    reverse: bool,  # noqa: FBT001  a parameter
) -> None:
    """The newest version of each data column with its own shadow cell, and none for an older one's.

    A qualifier that begins as a shadow cell's does is data like any other.
    """
    monkeypatch.setattr(newest, "FIRST_CELLS", cells)
    monkeypatch.setattr(newest, "MAX_SURPLUS", share)
    names = (b"", b"\x00\xc2\x80x", b"q", b"\xc2\x80")
    rows = (b"a", b"b", b"c")
    written = []
    for row, name, version in itertools.product(rows, names, range(1, 40)):
        written.append((row, b"f", name, version, b"v"))
        if version != 35 or name != b"q":
            written.append((row, b"f", shadow_qualifier(name), version, encode_long(version)))
    connection.executemany(f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?)", written)
    for max_version in (40, 36):
        found = list(
            scan_cells(
                connection,
                TABLE,
                KeyRange(b"a", b"c"),
                None,
                Bounds(0, max_version, 1),
                reverse=reverse,
                is_paired=True,
            )
        )
        first: dict[tuple[bytes, ...], tuple[object, ...]] = {
            cell[:3]: cell for cell in (found if reverse else found[::-1])
        }
        top = max_version - 1
        assert set(first.values()) == {
            (row, b"f", name, top, b"v", None if (top, name) == (35, b"q") else encode_long(top))
            for row in rows[:2]
            for name in names
        }


def test_a_row_that_is_long_is_read_in_time(connection: sqlite3.Connection) -> None:
    """Its columns are few versions each, and more than a chunk."""
    columns = ((b"r", b"f", b"%06d" % number, 1, b"v") for number in range(5 * MAX_CELLS))
    connection.executemany(f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?)", columns)
    bounds = Bounds(0, MAX_VERSION, 1)
    assert len(read_row(connection, TABLE, b"r", None, bounds)) == 5 * MAX_CELLS
    for reverse in (False, True):
        found = scan_cells(connection, TABLE, KeyRange(), None, bounds, reverse=reverse)
        assert len(list(found)) == 5 * MAX_CELLS


def test_more_columns_than_a_statement_names_are_read(connection: sqlite3.Connection) -> None:
    """SQLite has a limit of values; their order stays."""
    names = [b"%06d" % number for number in range(2 * newest.MAX_NAMES + 1)]
    columns = ((b"r", b"f", name, version, b"v") for name in names for version in (1, 2))
    connection.executemany(f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?)", columns)
    specs: list[ColumnSpec] = [(b"f", name) for name in names]
    for count, versions in ((1, (2,)), (2, (2, 1)), (None, (2, 1))):
        found = read_row(connection, TABLE, b"r", specs, Bounds(0, MAX_VERSION, count))
        expected = [Cell(b"r", b"f", name, at, b"v") for name in names for at in versions]
        assert found == expected


@pytest.mark.parametrize("count", [0, 1, 2, 3, 20, 63, 64, 65, 127, 64 * 3 + 37])
def test_cells_are_put_whole_and_in_few_statements(
    connection: sqlite3.Connection, count: int
) -> None:
    """For each statement the interpreter's lock is let go, and another thread takes it."""
    said: list[str] = []
    connection.set_trace_callback(said.append)
    records = [(b"r", b"f", b"%d" % number, 1, b"v%d" % number) for number in range(count)]
    assert put_cells(connection, TABLE, records) == count
    assert len(said) <= count // CELLS_AT_ONCE[0] + len(CELLS_AT_ONCE)
    connection.set_trace_callback(None)
    found = connection.execute(f"SELECT * FROM {TABLE}").fetchall()
    assert sorted(found) == sorted(records)


def test_of_two_on_a_cell_the_later_one_is_left(connection: sqlite3.Connection) -> None:
    """Also within one statement; and what is there stays where it is not put over."""
    cell = (b"r", b"f", b"q", 1)
    assert put_cells(connection, TABLE, [(*cell, b"a"), (*cell, b"b")]) >= 1
    assert connection.execute(f"SELECT value FROM {TABLE}").fetchall() == [(b"b",)]
    others = [(b"r", b"f", b"%d" % number, 1, b"v") for number in range(5)]
    assert put_cells(connection, TABLE, [*others, (*cell, b"c")], over=False) == 5
    values = connection.execute(f"SELECT value FROM {TABLE} WHERE qualifier = ?", (b"q",))
    assert values.fetchall() == [(b"b",)]


def test_no_query_numbers_its_values() -> None:
    """Python 3.12.0 to 3.12.3 warn of `?1`, so that with `-W error` no row could be read."""
    folder = Path(omidpy.storage.sqlite.__file__).parent
    numbered = [
        path.name
        for path in sorted(folder.rglob("*.py"))
        if re.search(r"\?\d|\(\?{", path.read_text("utf-8"))
    ]
    assert numbered == []
