"""What a store in a SQLite file reads: rows, pages of them, parts of one.

A call reads in one short view of the file and keeps none: a scan is pages by key, because a reader
that pinned an old view would not see a shadow cell when it reads it afresh.

What is remembered between calls is a table's id and families, which never change; ids are never
used again, so that what is remembered of a dropped table fails and is looked up afresh.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from omidpy.errors import StorageError
from omidpy.model import MAX_VERSION, Cell, ColumnSpec, KeyRange, PairedCell
from omidpy.storage import rules
from omidpy.storage.base import WHOLE_TABLE, Row
from omidpy.storage.options import LongRow, Portion, Sieve, Sifted, Wanted
from omidpy.storage.pages import Pages, Reads
from omidpy.storage.sqlite.file import Database, StaleTable
from omidpy.storage.sqlite.queries import rows
from omidpy.storage.sqlite.queries.catalogue import Catalog, Physical
from omidpy.storage.sqlite.queries.cells import (
    find_cell,
    in_one_view,
    read_page,
    read_row,
    scan_cells,
    takes_one_statement,
    to_cells,
    to_pairs,
)
from omidpy.storage.sqlite.queries.newest import Bounds
from omidpy.storage.sqlite.queries.sifting import sift

T = TypeVar("T")


def url_of(path: str) -> str:
    """Return the address of a path, from which `connect` finds the same path again."""
    return "sqlite:///" + path.replace("%", "%25").replace("?", "%3F")


class SqliteReads:
    """Reads of one file."""

    def __init__(self, path: str, file: Database) -> None:
        self._path = path
        self._file = file
        self._catalog = Catalog(self.url)
        self._known: dict[str, Physical] = {}

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        return url_of(self._path)

    def get(
        self,
        table: str,
        rows: Sequence[bytes],
        *,
        columns: Sequence[ColumnSpec] | None = None,
        min_version: int = 0,
        max_version: int = MAX_VERSION,
        max_versions: int | None = None,
    ) -> list[Row]:
        """Read rows; see `Store`."""
        rules.check_bounds(min_version, max_version, max_versions)
        bounds = Bounds(min_version, max_version, max_versions)
        for row in rows:
            rules.check_row(row)

        try:
            return self._get(table, rows, columns, bounds)
        except StaleTable:
            self._known.clear()
            return self._afresh(lambda: self._get(table, rows, columns, bounds))

    def _get(
        self,
        table: str,
        rows: Sequence[bytes],
        columns: Sequence[ColumnSpec] | None,
        bounds: Bounds,
    ) -> list[Row]:
        known = self._known.get(table) or self._physical(table)
        cells, specs = known.cells, known.selection(table, columns)
        if len(rows) == 1 and takes_one_statement(specs):
            (row,) = rows
            return [
                self._file.read(lambda connection: read_row(connection, cells, row, specs, bounds))
            ]

        def read(connection: sqlite3.Connection) -> list[Row]:
            return [read_row(connection, cells, row, specs, bounds) for row in rows]

        return self._file.read(partial(in_one_view, read))

    def scan(
        self,
        table: str,
        key_range: KeyRange = WHOLE_TABLE,
        *,
        columns: Sequence[ColumnSpec] | None = None,
        min_version: int = 0,
        max_version: int = MAX_VERSION,
        max_versions: int | None = None,
        reverse: bool = False,
        page_rows: int = 1000,
    ) -> Iterator[list[Row]]:
        """Yield pages of rows; see `Store`."""
        rules.check_bounds(min_version, max_version, max_versions)
        bounds = Bounds(min_version, max_version, max_versions)
        rules.check_page_rows(page_rows)
        rules.check_range(key_range)
        self._physical(table).selection(table, columns)
        reads = Reads()
        pages = self._pages(
            table, key_range, columns, bounds, reverse=reverse, limit=page_rows, reads=reads
        )
        return Pages(pages, reads)

    def _pages(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        bounds: Bounds,
        *,
        reverse: bool,
        limit: int,
        reads: Reads,
    ) -> Iterator[list[Row]]:
        start, end = key_range

        def call() -> tuple[list[Row], bool]:
            known = self._physical(table)
            cells, specs = known.cells, known.selection(table, columns)
            if specs is not None and not specs:
                return [], True

            def read(connection: sqlite3.Connection) -> tuple[list[Row], bool]:
                found = scan_cells(
                    connection, cells, KeyRange(start, end), specs, bounds, reverse=reverse
                )
                return read_page(found, limit, to_cells)

            if bounds.max_versions is None:
                return self._file.read(read)
            return self._file.read(partial(in_one_view, read))

        is_last = False
        while not is_last:
            reads.count += 1
            page, is_last = self._afresh(call)
            if not page:
                return
            if reverse:
                end = page[-1][0].row
                page = [row[::-1] for row in page]
            else:
                start = page[-1][0].row + b"\x00"
            if (count := bounds.max_versions) is not None:
                page = [rules.newest(row, count) for row in page]
            yield page

    def scan_pairs(
        self,
        table: str,
        key_range: KeyRange,
        *,
        columns: Sequence[ColumnSpec] | None,
        max_version: int,
        page_rows: int,
        reverse: bool = False,
    ) -> Iterator[list[list[PairedCell]]]:
        """Yield pages of data cells with their shadow cells; see `PairsCells`."""
        reads = Reads()
        pages = self._paired_pages(
            table, key_range, columns, max_version, limit=page_rows, reverse=reverse, reads=reads
        )
        return Pages(pages, reads)

    def _paired_pages(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        max_version: int,
        *,
        limit: int,
        reverse: bool,
        reads: Reads,
    ) -> Iterator[list[list[PairedCell]]]:
        start, end = key_range
        bounds = Bounds(0, max_version, 1)

        def call() -> tuple[list[list[PairedCell]], bool]:
            known = self._physical(table)
            cells, specs = known.cells, known.selection(table, columns)

            def read(connection: sqlite3.Connection) -> tuple[list[list[PairedCell]], bool]:
                left = KeyRange(start, end)
                found = scan_cells(
                    connection, cells, left, specs, bounds, reverse=reverse, is_paired=True
                )
                return read_page(found, limit, to_pairs)

            return self._file.read(partial(in_one_view, read))

        is_last = False
        while not is_last:
            reads.count += 1
            page, is_last = self._afresh(call)
            if not page:
                return
            if reverse:
                end = page[-1][0][0]
                page = [row[::-1] for row in page]
            else:
                start = page[-1][0][0] + b"\x00"
            yield page

    def scan_portions(
        self, table: str, key_range: KeyRange, wanted: Wanted, *, page_rows: int, most: Portion
    ) -> Iterator[Sequence[Row] | LongRow]:
        """Yield pages of rows, and long ones without their cells; see `CutsRows`."""
        rules.check_page_rows(page_rows)
        start, end = key_range
        is_last = False
        while not is_last:
            left = KeyRange(start, end)
            page, is_last = self._read_cells(
                table, partial(rows.page, key_range=left, wanted=wanted, count=page_rows, most=most)
            )
            if isinstance(page, LongRow):
                start = page.key + b"\x00"
            elif page:
                start = page[-1][0].row + b"\x00"
            else:
                return
            yield page

    def get_portion(
        self, table: str, keys: Sequence[bytes], wanted: Wanted, *, most: Portion
    ) -> list[Row | LongRow]:
        """Read the first of some rows; see `CutsRows`."""
        return self._read_cells(table, partial(rows.first, keys=keys, wanted=wanted, most=most))

    def row_parts(self, table: str, row: bytes, wanted: Wanted, *, most: Portion) -> Iterator[Row]:
        """Yield the cells of a row, a portion at a time; see `CutsRows`."""
        last: Cell | None = None
        while True:
            part, is_last = self._read_cells(
                table, partial(rows.part, row=row, after=last, wanted=wanted, most=most)
            )
            if part:
                yield part
            if is_last:
                return
            last = part[-1]

    def sift(self, table: str, key_range: KeyRange, sieve: Sieve, *, most_cells: int) -> Sifted:
        """Look which rows are clean; see `SiftsRows`."""
        return self._read_cells(
            table, partial(sift, key_range=key_range, sieve=sieve, most_cells=most_cells)
        )

    def _read_cells(self, table: str, read: Callable[[sqlite3.Connection, str], T]) -> T:
        """Read some of a table's cells in one view."""

        def call() -> T:
            cells = self._physical(table).cells

            def view(connection: sqlite3.Connection) -> T:
                return read(connection, cells)

            return self._file.read(partial(in_one_view, view))

        return self._afresh(call)

    def find_cell(
        self,
        table: str,
        *,
        prefix: bytes = b"",
        columns: Sequence[ColumnSpec] | None = None,
        min_version: int = 0,
        max_version: int = MAX_VERSION,
    ) -> Cell | None:
        """Return a cell of the first row that has such a one; see `Store`."""
        rules.check_bounds(min_version, max_version, None)
        bounds = Bounds(min_version, max_version, None)

        def call() -> Cell | None:
            known = self._physical(table)
            cells, specs = known.cells, known.selection(table, columns)
            return self._file.read(
                lambda connection: find_cell(connection, cells, prefix, specs, bounds)
            )

        return self._afresh(call)

    # -- what is remembered -----------------------------------------------------------------------

    def _physical(self, table: str) -> Physical:
        known = self._known.get(table)
        if known is None:
            known = self._known[table] = self._file.read(
                lambda connection: self._catalog.physical(connection, table)
            )
        return known

    def _afresh(self, call: Callable[[], T]) -> T:
        """Run `call`, which uses what is remembered of tables; again if a table was replaced."""
        last_stale: StaleTable | None = None
        while True:
            try:
                return call()
            except StaleTable as stale:
                # A name looked up after it failed cannot fail again unless the file is damaged.
                if last_stale is not None and str(stale) == str(last_stale):
                    raise StorageError(
                        f"{self.url} is damaged ({stale}); restore it from a backup"
                    ) from stale
                last_stale = stale
                self._known.clear()
