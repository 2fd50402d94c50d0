"""A store on HBase through its Thrift1 gateway: `hbase+thrift1://host:port,...`.

For clients where only that gateway can be reached.  The gateway knows rows and their newest cells,
and little else, so this store has fewer capabilities, says so in the log when it is opened, and
refuses what it could do wrongly:

* a delete at a version takes all older ones along.  That is an exact delete only where a family
  keeps one version, as those of the commit table do; elsewhere deletes are refused
* a scan shows the newest version of each column below a bound; a get can show more, but reads the
  older ones column by column, so that only the newest are one view of their row
* a put has its version from its call, so a row mutation is atomic where all its puts have the same
* a checked put has HBase's clock for a version.  See `check_and_mutate`
* tables are made in one region and without attributes, and attributes cannot be read.  Those that
  Thrift2 has set are read from a copy (`described.py`)
* HBase's default durability is all there is: `durable` writes are in the memory of every replica of
  the log, not on their disks

So an oracle and a compaction need Thrift2, and so does setting a store up.  Every HBase brings that
gateway along; it can run beside the oracle alone.

Versions must be world time (`FIRST_WORLD_TIMESTAMP`): HBase's own versions are milliseconds, and
lie below.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from omidpy.errors import (
    ConfigError,
    NoSuchTable,
    StorageError,
    UsageError,
)
from omidpy.model import (
    FIRST_WORLD_TIMESTAMP,
    MAX_VERSION,
    Cell,
    Column,
    ColumnSpec,
    KeyRange,
    TableSchema,
)
from omidpy.storage import rules
from omidpy.storage.base import (
    WHOLE_TABLE,
    Capabilities,
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    ProcessLock,
    Put,
    Row,
    RowMutation,
)
from omidpy.storage.hbase import described, identity, paging
from omidpy.storage.hbase.addresses.gateways import FRAMED_BATCH_BYTES, HBaseAddress, parse_address
from omidpy.storage.hbase.idl import thrift1 as idl
from omidpy.storage.hbase.keys import check_findable
from omidpy.storage.hbase.rpc.pool import GatewayPool
from omidpy.storage.hbase.thrift1 import convert
from omidpy.storage.hbase.thrift1.calls import Thrift1Calls
from omidpy.storage.hbase.thrift1.pages import Thrift1Reader
from omidpy.storage.pages import Pages

T = TypeVar("T")

logger = logging.getLogger(__name__)

GET_BATCH_ROWS: Final = 500
"""Rows that one RPC reads."""
WRITE_BATCH_ROWS: Final = 1000
"""Rows that one RPC writes."""
WRITE_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one RPC writes, unless one row has more; see also `FRAMED_BATCH_BYTES`."""

LACKS: Final = (
    "the Thrift1 gateway cannot delete single versions, scan more than the newest, check a change, "
    "or describe tables: cells of rolled-back transactions stay, unseen, until a compaction "
    "through Thrift2 removes them; a savepoint undone after a flush ends its transaction; oracle, "
    "`omidpy init`, create_table and compaction need hbase+thrift2://"
)
"""What is said when such a store is opened."""


class Thrift1Store(Thrift1Calls):
    """A store on HBase, by poorer means.  Safe to share among threads, and after a fork."""

    def __init__(self, address: HBaseAddress | str, *, pool: GatewayPool | None = None) -> None:
        """Open the store without calling it yet.

        Args:
            address: `hbase+thrift1://host:port,...`.
            pool: Connections to its gateways; the store closes them.  None makes a pool.

        Raises:
            ConfigError: the address does not fit, or asks for what the gateway cannot do.
        """
        if isinstance(address, str):
            address = parse_address(address)
        if address.durability == "fsync":
            raise ConfigError(
                f"store address {address.url!r}: the Thrift1 gateway has no durability=fsync; use "
                "hbase+thrift2://, or leave it out"
            )
        super().__init__(address, GatewayPool(address) if pool is None else pool)
        self._store_id: str | None = None
        self._sizes = paging.RowSizes()
        logger.warning("opened %s: %s", self.url, LACKS)

    @property
    def store_id(self) -> str:
        """The id that was made when the store was set up.

        Raises:
            ConfigError: the store has not been set up.
        """
        if self._store_id is None:
            with suppress(NoSuchTable):
                self._store_id = identity.read_id(self)
        if self._store_id is None:
            raise ConfigError(
                f"the store {self.url} has not been set up; run `omidpy init`, or start "
                "`tso-server`, with --store hbase+thrift2://..., since Thrift1 cannot"
            )
        return self._store_id

    @property
    def capabilities(self) -> Capabilities:
        """What is left of HBase, seen through this gateway."""
        return Capabilities(
            exact_delete=False,
            multi_version_scan=False,
            guarded_batches=False,
            process_locks=False,
            remote=True,
            region_admin=False,
            table_admin=False,
            checked_changes=False,
        )

    # -- tables -----------------------------------------------------------------------------------

    def create_table(
        self,
        schema: TableSchema,
        *,
        splits: Sequence[bytes] = (),
        beside: GuardedMutation | None = None,
    ) -> bool:
        """Create a plain table in one region, whose families keep all versions."""
        rules.check_schema(schema, splits)
        rules.check_alone(self.url, beside)
        if splits or schema.attributes or any(family.attributes for family in schema.families):
            raise UsageError(
                f"the Thrift1 gateway creates tables in one region and without attributes; create "
                f"{schema.name!r} through hbase+thrift2://"
            )
        families = [convert.family_descriptor(name) for name in schema.family_names()]
        self._change(schema.name, "createTable", schema.name.encode(), families)
        return True

    def drop_table(self, table: str, *, only: Mapping[str, str] | None = None) -> bool:
        """Disable and remove a table; a second attempt goes on where the first one ended.

        Raises:
            UsageError: it must have some attributes, and the gateway shows none.
        """
        name = table.encode()
        self._described(table)
        if only is not None:
            raise UsageError(
                f"the Thrift1 gateway shows no attributes, so it cannot tell which table {table!r} "
                "is; remove it through hbase+thrift2://"
            )
        if self._read(table, "isTableEnabled", name):
            self._change(table, "disableTable", name)
        self._change(table, "deleteTable", name)
        self._families.pop(table, None)
        described.forget(self, table)
        return True

    def schema(self, table: str) -> TableSchema:
        """Return a table's families, and its attributes as far as a copy of them is known."""
        descriptors = self._described(table)
        return described.merged(table, convert.families(descriptors), described.read(self, table))

    def tables(self) -> list[TableSchema]:
        """List every table of every namespace but HBase's own, by name."""
        names = sorted(name.decode() for name in self._read(None, "getTableNames"))
        known = described.read_all(self)
        found = []
        for name in names:
            try:
                families = convert.families(self._described(name))
            except NoSuchTable:
                continue  # dropped since it was listed
            found.append(described.merged(name, families, known.get(name)))
        return found

    def set_table_attributes(
        self,
        table: str,
        attributes: Mapping[str, str | None],
        *,
        only: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Refuse: the gateway cannot."""
        del only
        rules.check_attributes(attributes)
        self._described(table)
        raise UsageError(
            f"the Thrift1 gateway cannot change attributes of {table!r}; use hbase+thrift2://"
        )

    def set_family_attributes(
        self, table: str, family: bytes, attributes: Mapping[str, str | None]
    ) -> None:
        """Refuse: the gateway cannot."""
        rules.check_attributes(attributes)
        self._described(table)
        rules.check_family(table, family, self._families[table])
        raise UsageError(
            f"the Thrift1 gateway cannot change attributes of family {family!r} of {table!r}; use "
            "hbase+thrift2://"
        )

    def regions(self, table: str) -> list[KeyRange]:
        """Return the table's regions; see `Store`."""
        regions = self._read(table, "getTableRegions", table.encode())
        if not regions:
            self._described(table)  # the gateway knows no regions of a table that is not there
        starts = {bytes(region.startKey) for region in regions}
        return rules.regions_between(sorted(starts - {b""}))

    def split_region(self, table: str, at: bytes) -> None:
        """Refuse: the gateway cannot."""
        self._described(table)
        raise UsageError(
            f"the Thrift1 gateway cannot split a region of {table!r} at {at!r}; use "
            f"`split '{table}', ...` in the HBase shell"
        )

    def merge_regions(self, table: str, at: bytes) -> None:
        """Refuse: the gateway cannot."""
        self._described(table)
        raise UsageError(
            f"the Thrift1 gateway cannot merge the regions of {table!r} that meet at {at!r}; use "
            "`merge_region` in the HBase shell"
        )

    # -- reads ------------------------------------------------------------------------------------

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
        """Read rows; see `Store`.

        Cost: 1 RPC per `GET_BATCH_ROWS` rows; more than the newest version costs another one for
        each column of each row.
        """
        rules.check_bounds(min_version, max_version, max_versions)
        for row in rows:
            rules.check_row(row)
            check_findable(table, row)
        specs = self._specs(table, columns)
        if specs == [] or min_version >= max_version:
            return [[] for _ in rows]
        newest: dict[bytes, Row] = {}
        wanted = list(dict.fromkeys(rows))
        count, start = self._sizes.first_count(table, GET_BATCH_ROWS), 0
        while start < len(wanted):
            batch = wanted[start : start + count]
            start += len(batch)
            results = self._newest(table, batch, specs, max_version)
            read = [convert.row_of(result, min_version) for result in results]
            newest.update((cells[0].row, cells) for cells in read if cells)
            count = self._sizes.next_count(table, read, count, GET_BATCH_ROWS)
        if max_versions != 1 and max_version - min_version > 1:
            limit = convert.ALL if max_versions is None else max_versions
            for key, cells in newest.items():
                newest[key] = list(self._with_older(table, cells, min_version, limit))
        return [newest.get(row, []) for row in rows]

    def _newest(
        self, table: str, rows: list[bytes], specs: list[bytes] | None, max_version: int
    ) -> Any:
        name = table.encode()
        if specs is None:
            return self._read(table, "getRowsTs", name, rows, max_version, {})
        return self._read(table, "getRowsWithColumnsTs", name, rows, specs, max_version, {})

    def _with_older(self, table: str, newest: Row, min_version: int, limit: int) -> Iterable[Cell]:
        name = table.encode()
        for cell in newest:
            yield cell
            row, family, qualifier, version, _ = cell
            if version <= min_version:
                continue
            column = convert.column_name(family, qualifier)
            older = self._read(table, "getVerTs", name, row, column, version, limit - 1, {})
            for found in older:
                if found.timestamp < min_version:
                    break
                yield Cell(row, family, qualifier, found.timestamp, found.value)

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
        """Yield pages of rows with the newest version of each column; see `Store`.

        Cost: 3 RPCs a page.

        Raises:
            UsageError: also if it asks for more than the newest version.
        """
        rules.check_bounds(min_version, max_version, max_versions)
        rules.check_page_rows(page_rows)
        rules.check_range(key_range)
        for key in key_range:
            check_findable(table, key)
        specs = self._specs(table, columns)
        if max_versions != 1 and max_version - min_version > 1:
            raise UsageError(
                f"a scan of {table!r} through the Thrift1 gateway shows the newest version of a "
                "column alone; pass max_versions=1, or use hbase+thrift2://"
            )
        if specs == [] or min_version >= max_version:
            return iter(())
        reader = Thrift1Reader(
            self._page,
            self._address.patience_s,
            table,
            specs,
            min_version,
            max_version,
            is_reversed=reverse,
        )
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
        """Return a cell of the first row that has such a one; see `Store`.

        Cost: the region servers read the table until they find one; 3 RPCs, or as many for each
        stretch of it (`paging.py`), and 1 for each row on the way with such a qualifier whose
        versions are all below `min_version`.
        """
        rules.check_bounds(min_version, max_version, None)
        specs = self._specs(table, columns)
        if specs == [] or min_version >= max_version:
            return None
        sought = b"ColumnPrefixFilter('" + prefix.replace(b"'", b"''") + b"')"
        reader = Thrift1Reader(
            self._page,
            self._address.patience_s,
            table,
            specs,
            min_version,
            max_version,
            filter_text=sought if prefix else None,
        )
        pages = paging.pages(reader, WHOLE_TABLE, 1, table=table, sizes=self._sizes)
        return next((cell for page in pages for row in page for cell in row), None)

    def _specs(self, table: str, columns: Sequence[ColumnSpec] | None) -> list[bytes] | None:
        """Return the names of the selected columns without overlap; None is everything."""

        def select(families: Mapping[bytes, int]) -> list[bytes] | None:
            if columns is None:
                return None
            specs = rules.selection(table, columns, families)
            # All families that we know of: there may be others by now.
            return sorted(families) if specs is None else convert.column_names(specs)

        return self._checked(table, select)

    # -- writes -----------------------------------------------------------------------------------

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Apply row mutations; see `Store`.

        `durable` is what HBase does by default.  Puts of one row and version are atomic.

        Raises:
            UsageError: also for a delete where a family keeps older versions, which would go too,
                and for a row that is put and deleted from at once.

        Cost: 1 RPC per table, version and `WRITE_BATCH_ROWS` rows.
        """
        del durable
        self._check_open()
        is_framed = self._address.transport == "framed"
        max_bytes = min(WRITE_BATCH_BYTES, FRAMED_BATCH_BYTES) if is_framed else WRITE_BATCH_BYTES
        checked = []
        for table, mutations in batch.items():

            def check(
                families: Mapping[bytes, int],
                table: str = table,
                mutations: Sequence[RowMutation] = mutations,
            ) -> rules.Effects:
                effects: rules.Effects = {}
                for mutation in mutations:
                    rules.add_effects(effects, table, mutation, families)
                    check_findable(table, mutation.row)
                    _check_deletes(table, mutation, families)
                return effects

            checked.append((table, self._checked(table, check)))
        for table, effects in checked:
            for version, rows in convert.calls(
                effects, max_rows=WRITE_BATCH_ROWS, max_bytes=max_bytes
            ):
                self._repeatable(table, "mutateRowsTs", table.encode(), rows, version, {})

    def check_and_mutate(
        self,
        table: str,
        row: bytes,
        column: Column,
        expected: bytes | None,
        mutation: RowMutation,
        *,
        durable: bool = False,
    ) -> bool:
        """Put one cell at a version of world time into a family of one version, if `column` lacks.

        That is how an invalidation is written.  The gateway's own checked put has HBase's clock for
        a version, which is below world time.  So it decides; then the cell is put again at its own
        version, and the one at HBase's clock is removed, which takes older ones along and leaves
        the new one.  A reader of the newest version sees the same at every moment.

        Raises:
            UsageError: for any other change, because the gateway cannot check it.
            StorageUnavailable: also if the answer was lost; then it may have been applied.

        Cost: 1 RPC, and 2 more if it was applied.
        """
        del durable
        rules.check_same_row(row, mutation)

        def check(families: Mapping[bytes, int]) -> Put | None:
            effects: rules.Effects = {}
            rules.add_effects(effects, table, mutation, families)
            rules.check_condition(Condition(table, row, column, expected), families)
            check_findable(table, row)
            puts = mutation.puts
            if expected is not None or mutation.deletes or len(puts) != 1:
                return None
            (put,) = puts
            return (
                put if families[put.family] == 1 and put.version >= FIRST_WORLD_TIMESTAMP else None
            )

        put = self._checked(table, check)
        if put is None:
            raise UsageError(
                f"the Thrift1 gateway cannot check a change of {table!r} {row!r} at a version of "
                "the caller's; use hbase+thrift2://"
            )
        name = table.encode()
        target = convert.column_name(put.family, put.qualifier)
        was_applied = self._call(
            table,
            "checkAndPut",
            name,
            row,
            convert.column_name(*column),
            None,
            idl.Mutation(column=target, value=put.value),
            {},
            is_idempotent=False,
        )
        if was_applied:
            try:
                self.write({table: [mutation]})
                self._repeatable(table, "deleteAllTs", name, row, target, put.version - 1, {})
            except StorageError as error:
                # It stands, for every reader.  What is left is a cell that no compaction removes.
                logger.warning(
                    "%s %r: the cell that a check wrote keeps a version of HBase's clock: %s",
                    table,
                    row,
                    error,
                )
        return bool(was_applied)

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Refuse: HBase has no transactions over many rows."""
        del mutations, guard, durable
        raise UsageError(f"{self.url} has no guarded batches: HBase changes one row at a time")

    # -- life -------------------------------------------------------------------------------------

    def lock(self, name: str, *, purpose: str) -> ProcessLock:
        """Refuse: HBase has no locks that die with their process."""
        raise UsageError(
            f"{self.url} has no lock {name!r} for {purpose!r}: HBase does not notice when a client "
            "dies; run tso-server and connect to it with tso="
        )


def _check_deletes(table: str, mutation: RowMutation, families: Mapping[bytes, int]) -> None:
    """Refuse a delete that would do more or less than it says."""
    for family, qualifier, version in mutation.deletes:
        if families[family] != 1:
            raise UsageError(
                f"the Thrift1 gateway cannot delete version {version} of {table!r} "
                f"{mutation.row!r} {family!r}:{qualifier!r} without all older ones; use "
                "hbase+thrift2://"
            )
    if mutation.deletes and mutation.puts:
        raise UsageError(
            f"the Thrift1 gateway applies puts and deletes of {table!r} {mutation.row!r} one after "
            "the other; use hbase+thrift2://"
        )
