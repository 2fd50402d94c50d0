"""Pages of rows of which some may be longer than memory: such a row is named, and not read.

A gateway returns of each row so many cells at most as it is told, and the rest as if it were a row
more.  So a page asks for as many rows as `paging.py` says, and for each row's share of a portion;
whatever fills its share may go on.  It is read again by itself, up to a portion, and is a long one
if it fills that, too.  Rows are asked for in such numbers that each share is twice what the longest
row of the page before came to, so that a table of rows alike reads none of them twice.

Bytes are judged by the cells that a row began with: no gateway tells the length of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, Protocol

from omidpy.model import KeyRange
from omidpy.storage.hbase import paging
from omidpy.storage.hbase.paging import Found, Reader, RowSizes, RowT, row_after
from omidpy.storage.options import LongRow, Portion
from omidpy.storage.portions import is_more, size_bytes

SHARE_OVER_LONGEST: Final = 2
"""How much longer than those before it a row may be, to come with its page."""


FIRST_CELL_BYTES: Final = 4096
"""What a cell is taken for before any was seen."""


class CutReader(Reader[RowT], Protocol):
    """Reads forwards, and can cut rows."""

    def read_cut(
        self, start: bytes, stop: bytes, count: int, *, most_cells: int, is_patient: bool
    ) -> list[RowT]:
        """Read as `read` does, but of each row at most so many cells; the rest comes as another.

        At most `count` come, rests included.
        """
        ...


def cut_pages(
    reader: CutReader[RowT],
    key_range: KeyRange,
    page_rows: int,
    most: Portion,
    *,
    table: str,
    sizes: RowSizes,
    is_sparse: bool,
) -> Iterator[list[RowT] | LongRow]:
    """Yield the rows of a range in key order, and a `LongRow` for each that is long."""
    found = paging.reads(
        _Cutting(reader, most).read,
        reader,
        key_range,
        page_rows,
        table=table,
        sizes=sizes,
        is_sparse=is_sparse,
    )
    for one in found:
        if one.rows:
            yield one.rows
        if one.long_row is not None:
            yield LongRow(one.long_row)


class _Cutting(Generic[RowT]):
    """Reads pages, and remembers how long the rows of the last one were."""

    def __init__(self, reader: CutReader[RowT], most: Portion) -> None:
        self._reader = reader
        self._most = most
        self._longest = 1
        self._cell_bytes = FIRST_CELL_BYTES

    def read(self, start: bytes, stop: bytes, count: int, *, is_patient: bool) -> Found[RowT]:
        """Read a page up to a row that may go on."""
        count = max(1, min(count, self._most.cells // (SHARE_OVER_LONGEST * self._longest)))
        share = self._most_cells(self._cell_bytes, count)
        rows = self._reader.read_cut(start, stop, count, most_cells=share, is_patient=is_patient)
        cut = next((number for number, row in enumerate(rows) if len(row) >= share), len(rows))
        if cut == 0 and rows:
            return self._read_alone(rows[0], is_patient=is_patient)
        if rows:
            self._longest = max(map(len, rows[:cut]))
            self._cell_bytes = _cell_bytes(rows[0])
        if len(rows) == 1 and is_more(rows[0], self._most):
            return self._long(rows[0][0][0])
        if cut < len(rows):
            return Found(rows[:cut], behind=rows[cut][0][0])
        return Found(rows, behind=row_after(rows[-1][0][0]) if len(rows) == count else None)

    def _read_alone(self, beginning: RowT, *, is_patient: bool) -> Found[RowT]:
        """Read a row of which some cells have come."""
        key = beginning[0][0]
        behind = row_after(key)
        self._cell_bytes = _cell_bytes(beginning)
        most_cells = self._most_cells(self._cell_bytes, 1)
        rows = self._reader.read_cut(
            key, behind, 1, most_cells=most_cells + 1, is_patient=is_patient
        )
        if not rows:
            return Found([], behind=behind)
        self._longest = len(rows[0])
        if len(rows[0]) > most_cells or is_more(rows[0], self._most):
            return self._long(key)
        return Found(rows, behind=behind)

    def _most_cells(self, cell_bytes: int, count: int) -> int:
        """Return the share of each of some rows, with cells of that size."""
        return max(1, min(self._most.cells, self._most.size_bytes // cell_bytes) // count)

    def _long(self, key: bytes) -> Found[RowT]:
        return Found([], long_row=key, behind=row_after(key))


def _cell_bytes(row: Sequence[tuple[Any, ...]]) -> int:
    return max(1, size_bytes(row) // len(row))
