"""Scans of some columns: by their names, or of their families whole, whichever is less work.

To a server a column that is named is a place to seek in each row, which takes it as long as some
cells that it reads on.  So where rows have little else, their families are read whole, and what was
not asked for is left out here; where they have much, columns are named.  Which it is, a sample of
the next rows says: behind the first page, and from time to time.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from omidpy.model import ColumnSpec, PairedCell, RowValues
from omidpy.storage.hbase.native.scanning import Position, Scanner

SAMPLE_ROWS: Final = 16
SAMPLE_BYTES: Final = 2**16
"""What a sample comes to, at most, about."""
SAMPLED_PAGES: Final = 16
"""From so many pages on there is a sample each time that so many more have come."""


def pages_of_some(
    named: Scanner, whole: Scanner, wanted: Collection[ColumnSpec], rows: int
) -> Generator[list[Any], None, None]:
    """Yield pages as `named.pages` does, although whole families may be read for them.

    Args:
        named: Reads what is wanted, in pairs or as values.
        whole: Reads whole families in the same way.
        wanted: Columns, those of shadow cells among them, and families.
        rows: Of a page.

    Raises:
        OmidError: as `Scanner.pages`.

    Cost: as `Scanner.pages`, and a call for a few rows behind pages 1, 2, 4, 8, 16, 32, 48, ...
    """
    # A row that is longer than a page is read by names.
    whole = replace(whole, is_too_long=lambda _: True)
    chosen = _Chosen(wanted)
    position: Position | None = named.start()
    count, sampled_count, is_whole = 0, 1, False
    while position is not None:
        with closing((whole if is_whole else named).pages(rows, position)) as pages:
            while True:
                try:
                    page = next(pages)
                except StopIteration as end:
                    position, is_whole = end.value, False
                    break
                count += 1
                if found := chosen.of(page) if is_whole else page:
                    yield found
                # A page of fewer rows is full of bytes, or the last of its region.
                if count >= sampled_count and len(page) >= rows:
                    sampled_count = count + min(count, SAMPLED_PAGES)
                    position = named.behind(page)
                    is_better = _is_mostly_wanted(whole, position, chosen)
                    if is_better != is_whole:
                        is_whole = is_better
                        break


def _is_mostly_wanted(whole: Scanner, position: Position, chosen: _Chosen) -> bool:
    """Say whether half of the cells of some rows are wanted."""
    sample = replace(whole, pairing=None).page(position, SAMPLE_ROWS, most_bytes=SAMPLE_BYTES)
    if sample.long_row is not None:
        return False
    cells = [(cell.family, cell.qualifier) for row in sample.rows for cell in row]
    return 2 * sum(map(chosen.is_wanted, cells)) >= len(cells)


class _Chosen:
    """Leaves out of rows what was not asked for."""

    def __init__(self, wanted: Collection[ColumnSpec]) -> None:
        self._families = {family for family, name in wanted if name is None}
        self._columns = frozenset(wanted)
        self._names = frozenset(family + b":" + name for family, name in wanted if name is not None)

    def is_wanted(self, column: tuple[bytes, bytes]) -> bool:
        """Say whether a column was asked for."""
        return column in self._columns or column[0] in self._families

    def of(self, page: Sequence[Any]) -> list[Any]:
        """Return a page without the rest, and without the rows of which no pairs are left."""
        found: list[Any] = []
        for row in page:
            if isinstance(row, list):
                if pairs := self._pairs(row):
                    found.append(pairs)
                continue
            key, content = row
            if isinstance(content, list):
                if pairs := self._pairs(content):
                    found.append((key, pairs))
            elif content.keys() <= self._names:
                found.append(row)
            else:
                found.append((key, self._values(content)))
        return found

    def _pairs(self, row: list[PairedCell]) -> list[PairedCell]:
        return [pair for pair in row if self.is_wanted((pair[1], pair[2]))]

    def _values(self, values: RowValues) -> RowValues:
        return {
            name: value
            for name, value in values.items()
            if name in self._names or name.partition(b":")[0] in self._families
        }
