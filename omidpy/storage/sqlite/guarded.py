"""Changes on conditions, applied in one transaction: each sees what those before it did.

Entries, of which an oracle writes thousands at a time, go without an object for each.
"""

# ruff: noqa: S608  the one name put into a statement is cells_<id>, made from an integer

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from omidpy.model import CellRecord, Column
from omidpy.storage import rules
from omidpy.storage.sqlite.queries.cells import apply_effects, put_cells

ROWS_AT_ONCE: Final = 64
"""Rows that one statement looks for."""

MIN_ROWS_AT_ONCE: Final = 8
"""Fewer are looked for one by one, which is as quick."""


class Check(NamedTuple):
    """A condition on a table that was looked up."""

    cells: str
    row: bytes
    column: Column
    expected: bytes | None


class Prepared(NamedTuple):
    """A guarded mutation on a table that was looked up."""

    cells: str
    row: bytes
    effects: rules.Effects
    """All in that row."""
    check: Check | None


class PreparedRows(NamedTuple):
    """Mutations without conditions that follow each other, of a table that was looked up."""

    cells: str
    rows: list[bytes]
    """One for each mutation."""
    effects: rules.Effects
    """All of theirs: of two on a cell the later one is left."""


class PreparedEntries(NamedTuple):
    """Entries for a table that was looked up."""

    cells: str
    column: Column
    absent: Column
    entries: Sequence[tuple[bytes, int, bytes]]


class PreparedGroup(NamedTuple):
    """Cells that are put together, for tables that were looked up."""

    cells: Sequence[tuple[str, Sequence[CellRecord]]] | None
    """None: one of the tables or families is not there, and nothing is put."""
    check: Check


AnyPrepared: TypeAlias = Prepared | PreparedRows | PreparedEntries | PreparedGroup


def apply_guarded(
    connection: sqlite3.Connection,
    prepared: Sequence[AnyPrepared],
    guard: Check | None,
) -> tuple[list[bool] | None, bool]:
    """Apply what its checks allow, in order.

    Returns:
        What was applied; None, and nothing applied, if the guard fails.  And whether a cell is
        there for sure that was not there before.

    Changes are kept back and sent in one go.  A check that asks for a row among them has them sent
    first.  What is checked to be absent is looked for before, many at a time: that still holds for
    a row which nothing before has changed.
    """
    if not _holds(connection, guard):
        return None, False
    has_new = False
    found_before = _found_before(connection, prepared)
    applied: list[bool] = []
    pending: dict[str, rules.Effects] = {}
    changed_rows: set[tuple[str, bytes]] = set()

    def send() -> None:
        for cells, effects in pending.items():
            apply_effects(connection, cells, effects)
        pending.clear()

    for place, one in enumerate(prepared, 1):
        if isinstance(one, PreparedEntries):
            send()
            applied += _apply_entries(connection, one)
            changed_rows.update((one.cells, row) for row, _, _ in one.entries)
            continue
        if isinstance(one, PreparedRows):
            pending.setdefault(one.cells, {}).update(one.effects)
            changed_rows.update((one.cells, row) for row in one.rows)
            applied += [True] * len(one.rows)
            continue
        check = one.check
        # Each sees what those before it did: of a row among those a look from before says nothing.
        if check is None:
            holds = True
        elif (check.cells, check.row) in changed_rows:
            send()
            holds = _holds(connection, check)
        elif check.expected is None and (check.cells, check.column) in found_before:
            holds = check.row not in found_before[check.cells, check.column]
        else:
            holds = _holds(connection, check)
        if isinstance(one, PreparedGroup):
            holds = holds and one.cells is not None
            if holds:
                send()
                has_new |= _put_group(connection, one)
                if place < len(prepared):  # to a group that is the last nothing comes
                    changed_rows.update(_rows_of(one))
        elif holds:
            pending.setdefault(one.cells, {}).update(one.effects)
            changed_rows.add((one.cells, one.row))
        applied.append(holds)
    send()
    return applied, has_new


def _put_group(connection: sqlite3.Connection, group: PreparedGroup) -> bool:
    """Put the cells of a group; return whether one of them is new for sure."""
    has_new = False
    for cells, records in group.cells or ():
        added = put_cells(connection, cells, records, over=False)
        has_new |= added > 0
        if added != len(records):
            put_cells(connection, cells, records)
    return has_new


def _rows_of(group: PreparedGroup) -> set[tuple[str, bytes]]:
    return {
        (cells, row) for cells, records in group.cells or () for row in {one[0] for one in records}
    }


def _found_before(
    connection: sqlite3.Connection, prepared: Sequence[AnyPrepared]
) -> dict[tuple[str, Column], set[bytes]]:
    """Return, of each column that many checks want absent, the rows among theirs that have it."""
    if len(prepared) < MIN_ROWS_AT_ONCE:
        return {}
    wanted: defaultdict[tuple[str, Column], list[bytes]] = defaultdict(list)
    for one in prepared:
        check = one.check if isinstance(one, Prepared | PreparedGroup) else None
        if check is not None and check.expected is None:
            wanted[check.cells, check.column].append(check.row)
    return {
        (cells, column): _rows_with(connection, cells, column, rows)
        for (cells, column), rows in wanted.items()
        if len(rows) >= MIN_ROWS_AT_ONCE
    }


def _apply_entries(connection: sqlite3.Connection, prepared: PreparedEntries) -> list[bool]:
    cells, column, absent, entries = prepared
    present = _rows_with(connection, cells, absent, [row for row, _, _ in entries])
    put_cells(
        connection,
        cells,
        [(row, *column, version, value) for row, version, value in entries if row not in present],
    )
    return [row not in present for row, _, _ in entries]


def _rows_with(
    connection: sqlite3.Connection, cells: str, column: Column, rows: list[bytes]
) -> set[bytes]:
    """Return those rows that have a column."""
    return {
        row
        for first in range(0, len(rows), ROWS_AT_ONCE)
        for (row,) in connection.execute(
            _present_query(cells), (*column, *_filled_up(rows[first : first + ROWS_AT_ONCE]))
        )
    }


def _filled_up(rows: list[bytes]) -> list[bytes]:
    """Return as many rows as the statement has places: it is prepared once."""
    return rows + rows[-1:] * (ROWS_AT_ONCE - len(rows))


@lru_cache(maxsize=1024)
def _present_query(cells: str) -> str:
    places = ", ".join("?" * ROWS_AT_ONCE)
    return (
        f"SELECT DISTINCT row_key FROM {cells} WHERE family = ? AND qualifier = ?"
        f" AND row_key IN ({places})"
    )


def _holds(connection: sqlite3.Connection, check: Check | None) -> bool:
    if check is None:
        return True
    found = connection.execute(_newest_query(check.cells), (check.row, *check.column)).fetchone()
    return (None if found is None else found[0]) == check.expected


@lru_cache(maxsize=1024)
def _newest_query(cells: str) -> str:
    return (
        f"SELECT value FROM {cells} WHERE row_key = ? AND family = ? AND qualifier = ?"
        " ORDER BY version DESC LIMIT 1"
    )
