"""What a store on HBase reads without a gateway: rows, pages of them, parts of one.

A page is one call where one region has its rows; it ends at a number of rows or of bytes, or after
some seconds of rows that do not show, and nothing of it stays on a server (`native/scanning.py`).
So what gateways need landmarks and guesses for needs none here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from omidpy.base.cells import (
    LEGACY_TOMBSTONE,
    SHADOW_PREFIX,
    SHADOW_SUFFIX,
    shadow_qualifier,
)
from omidpy.model import MAX_VERSION, Cell, Change, ColumnSpec, KeyRange, PairedCell, RowValues
from omidpy.storage import portions, rules
from omidpy.storage.base import WHOLE_TABLE, Row
from omidpy.storage.hbase import filters
from omidpy.storage.hbase.direct import descriptors
from omidpy.storage.hbase.direct.some_columns import pages_of_some
from omidpy.storage.hbase.keys import check_findable
from omidpy.storage.hbase.known import KnownTables
from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.cellblock import is_compiled
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.scanning import PAGE_BYTES, Position, Scanner
from omidpy.storage.hbase.native.values import (
    ALL_VERSIONS,
    Get,
    Pairing,
    Selection,
    TableDescriptor,
)
from omidpy.storage.options import LongRow, Portion, Wanted
from omidpy.storage.pages import Pages, Reads

SHADOWS: Final = Pairing(SHADOW_PREFIX, SHADOW_SUFFIX)
CUT_GETS: Final = 64
"""Rows that are read at once where each may be long."""


class NativeReads(KnownTables[frozenset[bytes]]):
    """Reads of one HBase."""

    def __init__(self, address: NativeAddress, client: NativeClient) -> None:
        """Call through `client`, which is closed with this object."""
        super().__init__()
        self._address = address
        self._client = client
        self._admin = Admin(client.calls)

    @property
    def url(self) -> str:
        """The address the store was opened with."""
        return self._address.url

    def close(self) -> None:
        """Close every connection; a second call does nothing."""
        self._is_closed = True
        self._client.close()

    def _describe(self, table: str) -> TableDescriptor:
        return self._admin.descriptor(table)

    def _families_of(self, description: TableDescriptor) -> frozenset[bytes]:
        return frozenset(family.name for family in description.families)

    def regions(self, table: str) -> list[KeyRange]:
        """Return the table's regions; see `Store`."""
        self._check_open()
        found = self._admin.regions(table)
        if not found:
            self._described(table)  # the catalogue knows no regions of a table that is not there
        return descriptors.key_ranges(found)

    def region_servers(self, table: str) -> list[tuple[KeyRange, str]]:
        """Return the table's regions, and for each who serves it; see `KnowsServers`."""
        self._check_open()
        found = self._admin.regions(table)
        if not found:
            self._described(table)  # as above
        servers = {region.start: str(region.server) for region in found}
        return [
            (key_range, servers.get(key_range.start, ""))
            for key_range in descriptors.key_ranges(found)
        ]

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
        """Read rows; see `Store`.  Cost: 1 RPC per server and 500 rows, a batch at once."""
        for row in rows:
            rules.check_row(row)
            check_findable(table, row)
        selection = self._selected(table, columns, (min_version, max_version, max_versions))
        if selection is None or not rows:
            return [[] for _ in rows]
        gets = [Get(row, selection) for row in rows]
        with self._forgetting(table):
            return [found.cells for found in self._client.get_many(table, gets)]

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
        rules.check_page_rows(page_rows)
        bounds = min_version, max_version, max_versions
        scanner = self._scanner(table, key_range, columns, bounds, is_reversed=reverse)
        if scanner is None:
            return iter(())
        return Pages(self._pages(scanner, page_rows), scanner.reads)

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
        """Yield the newest version of data cells with their shadow cells; see `PairsCells`."""
        return self._paired(table, key_range, columns, max_version, page_rows, reverse, SHADOWS)

    def scan_values(
        self,
        table: str,
        key_range: KeyRange,
        *,
        columns: Sequence[ColumnSpec] | None,
        max_version: int,
        before: bytes,
        page_rows: int,
        reverse: bool = False,
    ) -> Iterator[list[tuple[bytes, RowValues | list[PairedCell]]]]:
        """Yield the values of rows where nothing has to be decided; see `ShapesRows`."""
        options = columns, max_version, page_rows, reverse
        if is_compiled():
            pairing = SHADOWS._replace(before=before, erased=LEGACY_TOMBSTONE)
            return self._paired(table, key_range, *options, pairing)
        # Written in Python, two passes over each row would take longer than what they save.
        pages = self._paired(table, key_range, *options, SHADOWS)
        return Pages(([(row[0][0], row) for row in page] for page in pages), pages.reads)

    def scan_changes(
        self,
        table: str,
        key_range: KeyRange,
        *,
        columns: Sequence[ColumnSpec] | None,
        min_version: int,
        max_version: int,
        first: bytes,
        before: bytes,
        page_rows: int,
    ) -> Iterator[list[tuple[bytes, list[Change], Row]]]:
        """Yield the changes of rows where nothing has to be decided; see `ShapesChanges`."""
        rules.check_page_rows(page_rows)
        bounds = min_version, max_version, None
        scanner = self._scanner(table, key_range, columns, bounds)
        if scanner is None:
            return iter(())
        if is_compiled():
            pairing = SHADOWS._replace(first=first, before=before, erased=LEGACY_TOMBSTONE)
            shaped = self._pages_ahead(replace(scanner, pairing=pairing).pages(page_rows), table)
            return Pages(shaped, scanner.reads)
        # As above.
        pages = self._pages_ahead(scanner.pages(page_rows), table)
        keyed: Iterator[list[tuple[bytes, list[Change], Row]]] = (
            [(cells[0].row, [], cells) for cells in page] for page in pages
        )
        return Pages(keyed, scanner.reads)

    def _paired(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        max_version: int,
        page_rows: int,
        reverse: bool,  # noqa: FBT001 - private, and called beside the two above alone
        pairing: Pairing,
    ) -> Pages[list[Any]]:
        rules.check_page_rows(page_rows)
        named = [(family, name) for family, name in columns or () if name is not None]
        if columns is not None:
            columns = [*columns, *((family, shadow_qualifier(name)) for family, name in named)]
        bounds = 0, max_version, 1
        scanner = self._scanner(table, key_range, columns, bounds, is_reversed=reverse)
        if scanner is None:
            return Pages(iter(()), Reads())
        scanner = replace(scanner, pairing=pairing)
        if not named or columns is None:
            return Pages(self._pages_ahead(scanner.pages(page_rows), table), scanner.reads)
        families = [(family, None) for family in dict.fromkeys(family for family, _ in columns)]
        whole = self._scanner(table, key_range, families, bounds, is_reversed=reverse)
        assert whole is not None, "something of these families is wanted"
        whole = replace(whole, pairing=pairing, reads=scanner.reads)
        pages = pages_of_some(scanner, whole, frozenset(columns), page_rows)
        return Pages(self._pages_ahead(pages, table), scanner.reads)

    def _pages_ahead(
        self, pages: Generator[list[Any], None, Any], table: str
    ) -> Iterator[list[Any]]:
        with closing(pages):
            while True:
                self._check_open()
                with self._forgetting(table):
                    page = next(pages, None)
                if page is None:
                    return
                yield page

    def find_cell(
        self,
        table: str,
        *,
        prefix: bytes = b"",
        columns: Sequence[ColumnSpec] | None = None,
        min_version: int = 0,
        max_version: int = MAX_VERSION,
    ) -> Cell | None:
        """Return a cell of the first row that has such a one; see `Store`.

        Cost: 1 RPC for each region, more where a server looks for long.
        """
        bounds = min_version, max_version, 1
        scanner = self._scanner(table, WHOLE_TABLE, columns, bounds, prefix=prefix)
        if scanner is None:
            return None
        for page in self._pages(scanner, 1):
            return page[0][0]
        return None

    # -- long rows ---------------------------------------------------------------------------------

    def scan_portions(
        self, table: str, key_range: KeyRange, wanted: Wanted, *, page_rows: int, most: Portion
    ) -> Iterator[list[Row] | LongRow]:
        """Yield rows, and long ones without any of their cells; see `CutsRows`."""
        rules.check_page_rows(page_rows)
        bounds = wanted.min_version, wanted.max_version, None
        scanner = self._scanner(table, key_range, wanted.columns(), bounds, most=most)
        if scanner is not None:
            yield from self._cut_pages(scanner, page_rows, most)

    def _cut_pages(
        self, scanner: Scanner, page_rows: int, most: Portion
    ) -> Iterator[list[Row] | LongRow]:
        position: Position | None = scanner.start()
        most_bytes = min(PAGE_BYTES, most.size_bytes)
        while position is not None:
            self._check_open()
            with self._forgetting(scanner.table):
                page = scanner.page(position, page_rows, most_bytes=most_bytes)
            yield from portions.pages(
                (portions.whole_or_long(row, most) for row in page.rows), most
            )
            if page.long_row is not None:
                yield LongRow(page.long_row)
            position = page.position

    def get_portion(
        self, table: str, rows: Sequence[bytes], wanted: Wanted, *, most: Portion
    ) -> list[Row | LongRow]:
        """Read the first of some rows; see `CutsRows`.

        Cost: 1 RPC, and 1 for the first row if it fills its share.
        """
        batch = rows[: max(1, min(CUT_GETS, most.cells))]
        share = max(1, most.cells // len(batch))
        found = self._get_cut(table, batch, wanted, share)
        is_cut = [portions.fills(row, share) for row in found]
        if not is_cut[0]:
            whole = is_cut.index(True) if True in is_cut else len(found)
            rest = (portions.whole_or_long(row, most) for row in found[:whole])
            return portions.first_portion(rest, most)
        # Its bytes are judged by the cells that it began with.
        cell_bytes = max(1, portions.size_bytes(found[0]) // len(found[0]))
        most_cells = max(1, min(most.cells, most.size_bytes // cell_bytes))
        (alone,) = self._get_cut(table, rows[:1], wanted, most_cells + 1)
        if portions.fills(alone, most_cells + 1):
            return [LongRow(rows[0])]
        return [portions.whole_or_long(alone, most)]

    def _get_cut(
        self, table: str, rows: Sequence[bytes], wanted: Wanted, most_cells: int
    ) -> list[Row]:
        """Read rows, of each family of each row at most so many cells."""
        bounds = wanted.min_version, wanted.max_version, None
        selection = self._selected(table, wanted.columns(), bounds)
        if selection is None:
            return [[] for _ in rows]
        selection = selection._replace(most_cells=most_cells)
        with self._forgetting(table):
            found = self._client.get_many(table, [Get(row, selection) for row in rows])
        return [one.cells for one in found]

    def row_parts(self, table: str, row: bytes, wanted: Wanted, *, most: Portion) -> Iterator[Row]:
        """Yield the cells of a row, a portion at a time; see `CutsRows`.

        Family by family; a portion begins behind the one before it, first within the last column,
        by versions, then with the columns behind it.  Only a read that finds nothing ends anything.

        Cost: 1 RPC a portion, and 1 for each column that one ends within.
        """
        low, high = wanted.min_version, wanted.max_version
        for family in wanted.families:
            behind: bytes | None = None
            while part := self._part(table, row, (family, None), (low, high), behind, most):
                while part:
                    yield part
                    behind, version = part[-1].qualifier, part[-1].version
                    if version <= low:
                        break
                    part = self._part(table, row, (family, behind), (low, version), None, most)

    def _part(
        self,
        table: str,
        row: bytes,
        spec: ColumnSpec,
        versions: tuple[int, int],
        behind: bytes | None,
        most: Portion,
    ) -> Row:
        """Read the first portion of a column or family of a row, from behind a qualifier on."""
        selection = self._selected(table, [spec], (*versions, None))
        if selection is None:
            return []
        if spec[1] is None:
            # Of a table of one family alone all columns would be selected.
            selection = selection._replace(columns=[spec])
        if behind is not None:
            selection = selection._replace(filter_bytes=filters.columns_behind(behind))
        scanner = Scanner(self._client.calls, table, KeyRange(row, b""), selection)
        with self._forgetting(table):
            cells = scanner.first_cells(row, most.cells, min(PAGE_BYTES, most.size_bytes))
        return portions.first_part(cells, most)[0]

    # -- what is asked -----------------------------------------------------------------------------

    def _pages(self, scanner: Scanner, page_rows: int) -> Iterator[list[Row]]:
        position: Position | None = scanner.start()
        while position is not None:
            self._check_open()
            with self._forgetting(scanner.table):
                page = scanner.page(position, page_rows)
            if page.rows:
                yield page.rows
            position = page.position

    def _scanner(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        bounds: tuple[int, int, int | None],
        *,
        is_reversed: bool = False,
        prefix: bytes = b"",
        most: Portion | None = None,
    ) -> Scanner | None:
        """Return what reads a range; None if nothing is asked for."""
        rules.check_range(key_range)
        for key in key_range:
            check_findable(table, key)
        selection = self._selected(table, columns, bounds)
        if selection is None or key_range.is_empty():
            return None
        if prefix:
            selection = selection._replace(filter_bytes=filters.column_prefix(prefix))
        is_too_long = None
        if most is not None:
            is_too_long = lambda cells: portions.is_more(cells, most)  # noqa: E731 - it needs `most`
        return Scanner(self._client.calls, table, key_range, selection, is_reversed, is_too_long)

    def _selected(
        self,
        table: str,
        columns: Sequence[ColumnSpec] | None,
        bounds: tuple[int, int, int | None],
    ) -> Selection | None:
        """Check what is asked for; None if that is nothing.

        `bounds` are the lowest version, the highest, and how many.
        """
        min_version, max_version, max_versions = bounds
        rules.check_bounds(*bounds)

        def select(families: frozenset[bytes]) -> Sequence[ColumnSpec] | None:
            if columns is None:
                return None
            specs = rules.selection(table, columns, families)
            # All families that we know of: there may be others by now.
            return [(family, None) for family in sorted(families)] if specs is None else specs

        specs = self._checked(table, select)
        if specs == [] or min_version >= max_version:
            return None
        count = ALL_VERSIONS if max_versions is None else min(max_versions, ALL_VERSIONS)
        return Selection(specs, min_version, max_version, count)
