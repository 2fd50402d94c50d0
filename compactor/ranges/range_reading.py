"""What does a pass read of its range: which rows, in which pieces, and which not at all?

A span says from which version on, and whether a row that has one is read whole (`spans.py`).  Where
a store can tell which rows are clean, what those hold is never read; a row that is too long to be
held is named, and read part by part by the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from compactor.ranges.range_task import RangeTask
from compactor.rows.clean import FoundRow
from compactor.rows.heal import Scope
from omidpy.model import KeyRange
from omidpy.storage.base import Row, Store
from omidpy.storage.options import CutsRows, LongRow, Portion, Sieve, Sifted, SiftsRows, Wanted

PAGE_ROWS: Final = 500
"""Rows read, resolved and written together."""

PORTION: Final = Portion(cells=20_000, size_bytes=8 << 20)
"""What a pass holds at a time, about: a row that is more is passed over part by part."""

FIRST_SIFTED_CELLS: Final = 2_000
MOST_SIFTED_CELLS: Final = 32_000
"""Cells that a store sifts at once: few until it is known whether that is worth it."""

MOST_OTHERS: Final = 0.1
"""Share of rows not seen to be clean, past which a store sifts no more of a range."""

Piece: TypeAlias = Sequence[FoundRow] | LongRow | Sifted
"""A page of rows, one row that is too long for any page, or rows that the store calls clean."""


class RangeReading:
    """Reads the range of one `RangeTask`: the families of ours, up to the last checkpoint of L."""

    def __init__(
        self, store: Store, task: RangeTask, scope: Scope, check_window: Callable[[], None]
    ) -> None:
        """Read nothing yet.

        Args:
            store: Where the table is.
            task: Its range, and the span of versions that is read.
            scope: Which cells may be judged.
            check_window: Called between two looks at the store; ends the pass once it is too late.
        """
        self.store = store
        self.task = task
        self.scope = scope
        self.check_window = check_window

    def pieces(self) -> Iterator[Piece]:
        """Read the range, piece by piece.

        Of a span, rows with a version from its first one on: none, where another run claimed with a
        higher L.
        """
        store, span = self.store, self.task.span
        # Where each row is read whole that a span finds, all of them must be found; and who reads
        # slowly wants small pages.
        may_sift = (span.is_whole or not span.is_collecting) and not self.task.pacing.has_rate()
        if isinstance(store, SiftsRows) and may_sift:
            yield from self._sifted(store)
        else:
            yield from self._pages(self.task.key_range)

    def _sifted(self, store: SiftsRows) -> Iterator[Piece]:
        """Read the rows that the store does not tell to be clean, of which `clean.py` says why.

        What it says is of a view that began behind L, as is what is read (L3).
        """
        least = self.task.span.min_version
        sieve = Sieve(self.wanted(least), self.scope.first_timestamp, self.scope.newest)
        most_cells = FIRST_SIFTED_CELLS
        rest: KeyRange | None = self.task.key_range
        while rest is not None:
            self.check_window()
            found = store.sift(self.task.table, rest, sieve, most_cells=most_cells)
            if len(found.others) > MOST_OTHERS * (found.rows + len(found.others)):
                yield from self._pages(rest)
                return
            yield found
            yield from self.whole_rows(found.others, least)
            rest = found.rest
            most_cells = min(4 * most_cells, MOST_SIFTED_CELLS)

    def _pages(self, key_range: KeyRange) -> Iterator[Sequence[FoundRow] | LongRow]:
        store, wanted = self.store, self.wanted(self.task.span.min_version)
        page_rows = self.task.pacing.page_rows(PAGE_ROWS)
        if isinstance(store, CutsRows):
            yield from store.scan_portions(
                self.task.table, key_range, wanted, page_rows=page_rows, most=PORTION
            )
            return
        yield from store.scan(
            self.task.table,
            key_range,
            columns=wanted.columns(),
            min_version=wanted.min_version,
            max_version=wanted.max_version,
            page_rows=page_rows,
        )

    def whole_rows(
        self, rows: Sequence[bytes], min_version: int = 0
    ) -> Iterator[Sequence[Row] | LongRow]:
        """Read rows, each whole from a version on; one that is gone meanwhile is left out."""
        store, wanted = self.store, self.wanted(min_version)
        if not isinstance(store, CutsRows):
            found = store.get(
                self.task.table,
                rows,
                columns=wanted.columns(),
                min_version=wanted.min_version,
                max_version=wanted.max_version,
            )
            yield [cells for cells in found if cells]
            return
        while rows:
            portion = store.get_portion(self.task.table, rows, wanted, most=PORTION)
            rows = rows[len(portion) :]
            yield [cells for cells in portion if cells and not isinstance(cells, LongRow)]
            yield from (cells for cells in portion if isinstance(cells, LongRow))

    def row_parts(self, row: bytes) -> Iterator[Row]:
        """Read a row that the store has said is long, a portion at a time."""
        assert isinstance(self.store, CutsRows), "it has said that the row is long"
        span = self.task.span
        wanted = self.wanted(0 if span.is_collecting else span.min_version)
        yield from self.store.row_parts(self.task.table, row, wanted, most=PORTION)

    def wanted(self, min_version: int = 0) -> Wanted:
        """Return what of a row is read."""
        families = tuple(sorted(self.task.families))
        return Wanted(families, min_version, self.scope.max_version())
