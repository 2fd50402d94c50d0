"""What a store on HBase reads through its Thrift2 gateway: rows, pages of them, parts of one.

Scans keep nothing on the gateway: each page is a scan of its own from the row after the last, with
a limit, so that a dead gateway costs one repeated call (`paging.py`).  Measured over 100,000 rows
of two cells, 1,000 a page: 0.66 s, against 0.61 s with a scanner that is held open, which would be
lost with its gateway and would not see what is written while it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from omidpy.base.cells import shadow_qualifier
from omidpy.errors import StorageUnavailable
from omidpy.model import MAX_VERSION, Cell, ColumnSpec, KeyRange, PairedCell
from omidpy.storage import portions, rules
from omidpy.storage.base import WHOLE_TABLE, Row
from omidpy.storage.hbase import paging
from omidpy.storage.hbase.addresses.gateways import HBaseAddress
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.keys import check_findable
from omidpy.storage.hbase.rpc.pool import GatewayPool
from omidpy.storage.hbase.thrift2 import convert, cutting, parts, search
from omidpy.storage.hbase.thrift2 import schema as schemas
from omidpy.storage.hbase.thrift2.calls import Thrift2Calls
from omidpy.storage.hbase.thrift2.pages import Thrift2Reader
from omidpy.storage.options import LazyRow, LongRow, Portion, Wanted
from omidpy.storage.pages import Pages

GET_BATCH_ROWS: Final = 500
"""Rows that one RPC reads."""


class Thrift2Reads(Thrift2Calls):
    """Reads, and remembers how long the rows of tables were."""

    def __init__(self, address: HBaseAddress, pool: GatewayPool) -> None:
        """Call through `pool`, which is closed with this object."""
        super().__init__(address, pool)
        self._sizes = paging.RowSizes()

    def regions(self, table: str) -> list[KeyRange]:
        """Return the table's regions; see `Store`."""
        locations = self._read(table, "getAllRegionLocations", table.encode())
        if not locations:
            self._described(table)  # the gateway knows no regions of a table that is not there
        return schemas.regions_of(locations)

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
        """Read rows; see `Store`.  Cost: 1 RPC per `GET_BATCH_ROWS` rows, or fewer long ones."""
        rules.check_bounds(min_version, max_version, max_versions)
        for row in rows:
            rules.check_row(row)
            check_findable(table, row)
        specs = self._specs(table, columns)
        if specs == [] or min_version >= max_version:
            return [[] for _ in rows]
        wanted = convert.selection(specs, min_version, max_version, max_versions)
        gets = [
            idl.TGet(
                row=row,
                columns=wanted.columns,
                timeRange=wanted.time_range,
                maxVersions=wanted.max_versions,
            )
            for row in rows
        ]
        found: list[Row] = []
        count = self._sizes.first_count(table, GET_BATCH_ROWS)
        while len(found) < len(gets):
            batch = gets[len(found) : len(found) + count]
            read = self._rows(table, batch)
            found += read
            count = self._sizes.next_count(table, read, count, GET_BATCH_ROWS)
        return found

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
        """Yield pages of rows; see `Store`.  The first page is short, later ones by bytes."""
        rules.check_page_rows(page_rows)
        bounds = min_version, max_version, max_versions
        selected = self._selected(table, key_range, columns, bounds)
        if selected is None:
            return iter(())
        reader = self._reader(table, selected, convert.row_of, is_reversed=reverse)
        in_order = paging.pages_backwards if reverse else paging.pages
        # A caller that asks for versions from one on looks for what one transaction wrote.
        is_sparse = min_version > 0
        pages = in_order(
            reader, key_range, page_rows, table=table, sizes=self._sizes, is_sparse=is_sparse
        )
        return Pages(pages, reader.reads)

    def _selected(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        bounds: tuple[int, int, int | None],
    ) -> convert.Selection | None:
        """Check what is asked for; None if that is nothing.

        `bounds` are the lowest version, the highest, and how many.
        """
        rules.check_bounds(*bounds)
        rules.check_range(key_range)
        for key in key_range:
            check_findable(table, key)
        specs = self._specs(table, columns)
        if specs == [] or bounds[0] >= bounds[1]:
            return None
        return convert.selection(specs, *bounds)

    def scan_portions(
        self, table: str, key_range: KeyRange, wanted: Wanted, *, page_rows: int, most: Portion
    ) -> Iterator[Sequence[LazyRow] | LongRow]:
        """Yield rows whose cells are not made yet, and long ones without any; see `CutsRows`."""
        rules.check_page_rows(page_rows)
        bounds = wanted.min_version, wanted.max_version, None
        selected = self._selected(table, key_range, wanted.columns(), bounds)
        if selected is None:
            return iter(())
        reader = self._reader(table, selected, convert.lazy_row_of)
        return cutting.cut_pages(
            reader,
            key_range,
            page_rows,
            most,
            table=table,
            sizes=self._sizes,
            is_sparse=wanted.min_version > 0,
        )

    def get_portion(
        self, table: str, rows: Sequence[bytes], wanted: Wanted, *, most: Portion
    ) -> list[Row | LongRow]:
        """Read the first of some rows; see `CutsRows`.

        Cost: 1 RPC, and 1 for the first row if it fills its share.
        """
        count = min(self._sizes.first_count(table, GET_BATCH_ROWS), most.cells)
        batch = rows[: max(1, count)]
        share = max(1, most.cells // len(batch))
        found = self._get_cut(table, batch, wanted, share)
        self._sizes.next_count(table, found, len(batch), GET_BATCH_ROWS)
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
        selected = self._selected(table, WHOLE_TABLE, wanted.columns(), bounds)
        if selected is None:
            return [[] for _ in rows]
        gets = [
            idl.TGet(
                row=row,
                columns=selected.columns,
                timeRange=selected.time_range,
                maxVersions=selected.max_versions,
                storeLimit=most_cells,
            )
            for row in rows
        ]
        return self._rows(table, gets)

    def _rows(self, table: str, gets: list[Any]) -> list[Row]:
        """Read rows in one call; they are told apart by their places in the answer alone."""
        results = self._read(table, "getMultiple", table.encode(), gets)
        if len(results) != len(gets):
            raise StorageUnavailable(
                f"getMultiple of table {table!r} at {self.url}: the answer has {len(results)} rows "
                f"where {len(gets)} were asked for, so that nobody knows which; is it a Thrift2 "
                "gateway of HBase's?"
            )
        return list(map(convert.row_of, results))

    def row_parts(self, table: str, row: bytes, wanted: Wanted, *, most: Portion) -> Iterator[Row]:
        """Yield the cells of a row, a portion at a time; see `CutsRows` and `parts.py`.

        Cost: 2 RPCs a portion, and 2 for each column that one ends within.
        """
        for family in wanted.families:
            yield from parts.family_parts(
                self._read, table, row, family, (wanted.min_version, wanted.max_version), most
            )

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
        rules.check_page_rows(page_rows)
        for key in key_range:
            check_findable(table, key)
        specs = self._specs(table, columns)
        if specs == []:
            return iter(())
        if specs is not None:
            shadows = (
                (family, shadow_qualifier(name)) for family, name in specs if name is not None
            )
            specs = [*specs, *shadows]
        wanted = convert.selection(specs, 0, max_version, 1)
        reader = self._reader(table, wanted, convert.pairs_of, is_reversed=reverse)
        in_order = paging.pages_backwards if reverse else paging.pages
        pages = in_order(reader, key_range, page_rows, table=table, sizes=self._sizes)
        return Pages(pages, reader.reads)

    def find_cell(
        self,
        table: str,
        *,
        prefix: bytes = b"",
        columns: Sequence[ColumnSpec] | None = None,
        min_version: int = 0,
        max_version: int = MAX_VERSION,
    ) -> Cell | None:
        """Return a cell of the first row that has such a one; see `Store` and `search.py`.

        Region by region: where no file has such a version a call has nothing to read, but through
        thousands of regions it would still go on for too long.
        """
        rules.check_bounds(min_version, max_version, None)
        specs = self._specs(table, columns)
        if specs == [] or min_version >= max_version:
            return None
        wanted = convert.selection(specs, min_version, max_version, 1)
        filter_bytes = search.sought(prefix) if prefix else None
        reader = self._reader(table, wanted, convert.row_of, filter_bytes=filter_bytes)
        for region in self.regions(table):
            rows = paging.pages(reader, region, 1, table=table, sizes=self._sizes)
            if (found := search.first_match(rows, prefix)) is not None:
                return found
        return None

    def _reader(
        self,
        table: str,
        wanted: convert.Selection,
        convert_row: Callable[[Any], paging.RowT],
        *,
        is_reversed: bool = False,
        filter_bytes: bytes | None = None,
    ) -> Thrift2Reader[paging.RowT]:
        return Thrift2Reader(
            self._read,
            self._address.patience_s,
            table,
            wanted,
            convert_row,
            is_reversed=is_reversed,
            filter_bytes=filter_bytes,
        )

    def _specs(
        self, table: str, columns: Sequence[ColumnSpec] | None
    ) -> Sequence[ColumnSpec] | None:
        """Return the selected columns without overlap; None is everything."""

        def select(families: frozenset[bytes]) -> Sequence[ColumnSpec] | None:
            if columns is None:
                return None
            specs = rules.selection(table, columns, families)
            # All families that we know of: there may be others by now.
            return [(family, None) for family in sorted(families)] if specs is None else specs

        return self._checked(table, select)
