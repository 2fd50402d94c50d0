"""How much of a row, or of some rows, makes a portion?  Pure; see `CutsRows`.

A portion is bounded by cells and by bytes, and holds one cell at least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from omidpy.model import Cell
from omidpy.storage.base import Row
from omidpy.storage.options import LongRow, Portion


def size_bytes(cells: Iterable[tuple[Any, ...]]) -> int:
    """Return what a portion counts of cells."""
    return sum(len(cell[2]) + len(cell[4]) for cell in cells)


def is_more(row: Sequence[tuple[Any, ...]], most: Portion) -> bool:
    """Say whether cells are more than a portion; each begins as `Cell` does."""
    return len(row) > 1 and (len(row) > most.cells or size_bytes(row) > most.size_bytes)


def whole_or_long(row: Row, most: Portion) -> Row | LongRow:
    """Return a row, without its cells if it is more than a portion."""
    return LongRow(row[0].row) if is_more(row, most) else row


def fills(row: Row, share: int) -> bool:
    """Say whether a family of a row has as many cells as were asked for: it may have more."""
    if len(row) < share:
        return False
    return max(Counter(cell.family for cell in row).values(), default=0) >= share


def first_portion(rows: Iterable[Row | LongRow], most: Portion) -> list[Row | LongRow]:
    """Return the first of some rows, as many as make a portion, and one at least."""
    taken: list[Row | LongRow] = []
    cell_count = byte_count = 0
    for row in rows:
        if not isinstance(row, LongRow):
            cell_count += len(row)
            byte_count += size_bytes(row)
        if taken and (cell_count > most.cells or byte_count > most.size_bytes):
            break
        taken.append(row)
    return taken


def pages(rows: Iterable[Row | LongRow], most: Portion) -> Iterator[list[Row] | LongRow]:
    """Gather rows in pages of at most a portion; a long row comes by itself."""
    page: list[Row] = []
    cell_count = byte_count = 0
    for row in rows:
        if isinstance(row, LongRow):
            if page:
                yield page
            yield row
            page, cell_count, byte_count = [], 0, 0
            continue
        cell_count += len(row)
        byte_count += size_bytes(row)
        if page and (cell_count > most.cells or byte_count > most.size_bytes):
            yield page
            page, cell_count, byte_count = [], len(row), size_bytes(row)
        page.append(row)
    if page:
        yield page


def parts(cells: Iterable[Cell], most: Portion) -> Iterator[Row]:
    """Cut cells into portions."""
    rest, is_last = list(cells), False
    while rest and not is_last:
        part, is_last = first_part(rest, most)
        yield part
        rest = rest[len(part) :]


def first_part(cells: Iterable[Cell], most: Portion) -> tuple[Row, bool]:
    """Return the first portion of cells, and whether there is nothing behind it.

    Not more than one cell behind it is looked at.
    """
    part: Row = []
    byte_count = 0
    for cell in cells:
        byte_count += len(cell[2]) + len(cell[4])
        if part and (len(part) >= most.cells or byte_count > most.size_bytes):
            return part, False
        part.append(cell)
    return part, True
