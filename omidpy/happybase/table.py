"""A plain table of HBase's: rows, cells, scans, changes and counters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from omidpy.base.schema.family_options import happybase_settings
from omidpy.happybase.batch import Batch, durability_of
from omidpy.happybase.columns import (
    Text,
    after,
    all_specified,
    as_bytes,
    behind,
    bound,
    counted,
    counter_of,
    pieces,
    row_of,
    table_text,
    version_of,
)
from omidpy.happybase.session import PlainSession
from omidpy.model import MAX_VERSION, Cell, KeyRange
from omidpy.storage.hbase.native.scanning import Position, Scanner
from omidpy.storage.hbase.native.values import ALL_VERSIONS, Get, Selection

Row = dict[bytes, Any]


class Table:
    """A table; `Connection.table` gives it.  Safe to share among threads."""

    def __init__(self, name: bytes, connection: PlainSession) -> None:
        """Name a table, with the prefix if it has one."""
        self.name = name
        self.connection = connection

    def __repr__(self) -> str:
        """Return its name."""
        return f"<{__name__}.{type(self).__name__} name={self.name!r}>"

    @property
    def _text(self) -> str:
        return table_text(self.name)

    # -- what it is --------------------------------------------------------------------------------

    def families(self) -> dict[bytes, dict[str, Any]]:
        """Return the settings of each family, by its name without a colon.

        Raises:
            NoSuchTable: it is not there.
        """
        found = self.connection.admin.descriptor(self._text).families
        return {
            family.name: happybase_settings(
                family.name,
                {
                    name.decode(errors="replace"): value.decode(errors="replace")
                    for name, value in family.attributes.items()
                },
            )
            for family in found
        }

    def regions(self) -> list[dict[str, Any]]:
        """Return its regions, in order: keys, id, name, and the host and port of their server.

        `version` is 1, as the gateway says of every region.
        """
        return [
            {
                "start_key": region.start,
                "end_key": region.end,
                "id": region.region_id,
                "name": region.name,
                "version": 1,
                "server_name": region.server.host.encode(),
                "port": region.server.port,
            }
            for region in self.connection.admin.regions(self._text)
        ]

    # -- reads -------------------------------------------------------------------------------------

    def row(
        self,
        row: Text,
        columns: Sequence[Text] | None = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> Row:
        """Return the newest cells of a row, by column; empty if there are none.

        Args:
            row: The row.
            columns: Columns `family:qualifier`, or families, which have no colon; None is all.
            timestamp: Versions from here on do not count.
            include_timestamp: Give (value, version) for each column.
        """
        get = Get(as_bytes(row), _selection(columns, timestamp))
        found = self.connection.native.get(self._text, get)
        return row_of(found.cells, with_timestamp=include_timestamp)

    def rows(
        self,
        rows: Sequence[Text],
        columns: Sequence[Text] | None = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> list[tuple[bytes, Row]]:
        """Return (row, cells) of those rows that are there, in the order that was asked; see `row`.

        Of no rows it is an empty list; happybase returns an empty dict.
        """
        selection = _selection(columns, timestamp)
        gets = [Get(as_bytes(row), selection) for row in rows]
        found = self.connection.native.get_many(self._text, gets)
        return [
            (get.row, row_of(one.cells, with_timestamp=include_timestamp))
            for get, one in zip(gets, found, strict=True)
            if one.cells
        ]

    def cells(
        self,
        row: Text,
        column: Text,
        versions: int | None = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> list[Any]:
        """Return the values of a column, the newest first; with `include_timestamp`, as in `row`.

        Args:
            row: The row.
            column: The column.
            versions: How many at most; None is all.
            timestamp: Versions from here on do not count.
            include_timestamp: Give (value, version) for each.
        """
        if versions is None:
            versions = ALL_VERSIONS
        elif not isinstance(versions, int):
            raise TypeError("'versions' argument must be a number or None")
        elif versions < 1:
            raise ValueError("'versions' argument must be at least 1 (or None)")
        most = min(versions, ALL_VERSIONS)
        selection = _selection([column], timestamp)._replace(max_versions=most)
        found = self.connection.native.get(self._text, Get(as_bytes(row), selection))
        return [
            (cell.value, cell.version) if include_timestamp else cell.value for cell in found.cells
        ]

    def scan(
        self,
        row_start: Text | None = None,
        row_stop: Text | None = None,
        row_prefix: Text | None = None,
        columns: Sequence[Text] | None = None,
        filter: bytes | str | None = None,  # noqa: A002 - happybase's signature
        timestamp: int | None = None,
        include_timestamp: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
        batch_size: int = 1000,
        scan_batching: int | None = None,
        limit: int | None = None,
        sorted_columns: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
        reverse: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> Generator[tuple[bytes, Row], None, None]:
        """Yield (row, cells), in the order of rows.

        Nothing stays on a server between two pages, so that a scan may take its time; it shows what
        is written meanwhile.

        Args:
            row_start: The first row; None is the first, or with `reverse` the last.
            row_stop: The first row that is left out; None is the end.  The row itself comes if it
                is `row_start` as well.
            row_prefix: What rows begin with, instead of both.
            columns: See `row`.
            filter: Must be None: the gateway reads filters as text, and HBase itself does not.
            timestamp: See `row`.
            include_timestamp: See `row`.
            batch_size: Rows of a page.
            scan_batching: Cut rows into pieces of so many columns.
            limit: How many rows, or pieces, at most.
            sorted_columns: Give each row as an `OrderedDict`; columns are in order without it, too.
            reverse: From the greatest row down; `row_start` is included, `row_stop` is not.

        Cost: 1 RPC for each page, of `batch_size` rows or about 1 MiB.
        """
        if batch_size < 1:
            raise ValueError("'batch_size' must be >= 1")
        if limit is not None and limit < 1:
            raise ValueError("'limit' must be >= 1")
        if scan_batching is not None and scan_batching < 1:
            raise ValueError("'scan_batching' must be >= 1")
        if filter is not None:
            raise NotImplementedError(
                "'filter' is text that the Thrift gateway reads, and HBase itself does not; filter "
                "what comes, or scan through happybase"
            )
        if row_prefix is not None and (row_start is not None or row_stop is not None):
            raise TypeError("'row_prefix' cannot be combined with 'row_start' or 'row_stop'")
        start, stop, prefix = map(bound, (row_start, row_stop, row_prefix))
        if row_prefix is not None:
            key_range = KeyRange(prefix, behind(prefix))
        elif start and start == stop:
            # Of old a scan that ends where it starts is a get, and to the gateway it is still.
            key_range = KeyRange(start, after(start))
        elif reverse:
            # The range of a scanner includes its lower end, and not its upper one.
            key_range = KeyRange(stop and after(stop), start and after(start))
        else:
            key_range = KeyRange(start, stop)
        scanner = Scanner(
            self.connection.native.calls,
            self._text,
            key_range,
            _selection(columns, timestamp),
            is_reversed=reverse,
        )
        found = (
            (cells[0].row, row_of(piece, with_timestamp=include_timestamp))
            for cells in self._rows(scanner, batch_size, limit)
            for piece in pieces(cells, scan_batching)
        )
        if sorted_columns:
            found = ((row, OrderedDict(cells)) for row, cells in found)
        return (one for one in islice(found, limit))  # which, as happybase's, can be closed

    def _rows(self, scanner: Scanner, batch_size: int, limit: int | None) -> Iterator[list[Cell]]:
        """Yield rows, page by page, at most so many."""
        # A method: whoever has the rows keeps the table, and so the connection from being closed.
        position: Position | None = scanner.start()
        left = limit
        while position is not None and left != 0:
            page = scanner.page(position, batch_size if left is None else min(batch_size, left))
            yield from page.rows
            position = page.position
            left = None if left is None else left - len(page.rows)

    # -- changes -----------------------------------------------------------------------------------

    def put(
        self,
        row: Text,
        data: Mapping[Text, Text],
        timestamp: int | None = None,
        wal: bool = True,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> None:
        """Write cells of a row; see `Batch.put` and `batch`.  Cost: 1 RPC."""
        with self.batch(timestamp=timestamp, wal=wal) as batch:
            batch.put(row, data)

    def delete(
        self,
        row: Text,
        columns: Sequence[Text] | None = None,
        timestamp: int | None = None,
        wal: bool = True,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> None:
        """Delete a row, or some columns or families of it; see `Batch.delete` and `batch`.

        Cost: 1 RPC, and for a whole row 1 to the master.
        """
        with self.batch(timestamp=timestamp, wal=wal) as batch:
            batch.delete(row, columns)

    def batch(
        self,
        timestamp: int | None = None,
        batch_size: int | None = None,
        transaction: bool = False,  # noqa: FBT001, FBT002 - happybase's signature
        wal: bool = True,  # noqa: FBT001, FBT002 - happybase's signature
    ) -> Batch:
        """Return what collects changes, and sends them at the end of a `with` block.

        Args:
            timestamp: The version of all of them; None takes the server's clock, in milliseconds.
                A delete hides versions up to it.
            batch_size: Send whenever there are so many cells; None only at the end.
            transaction: Send nothing after an exception.  It is no transaction.
            wal: Whether HBase logs them; without, they are lost if their server dies.

        Raises:
            TypeError, ValueError: an argument is none, or `transaction` is with `batch_size`.
        """
        return Batch(self, timestamp, batch_size, transaction, wal)

    # -- counters ----------------------------------------------------------------------------------

    def counter_get(self, row: Text, column: Text) -> int:
        """Return a counter; one that is not there is made, with 0."""
        return self.counter_inc(row, column, value=0)

    def counter_set(self, row: Text, column: Text, value: int = 0) -> None:
        """Write a counter: 8 bytes, signed, big endian."""
        self.put(row, {column: counted(value).to_bytes(8, signed=True)})

    def counter_inc(self, row: Text, column: Text, value: int = 1) -> int:
        """Add to a counter, in one, and return what it is then; one that is not there is 0.

        Made again after a lost answer where HBase knows the call, and adds once; a server that the
        row has moved to meanwhile does not, nor does any a long time later.  Cost: 1 RPC.

        Args:
            row: The row.
            column: The column; without a colon, that of an empty qualifier.
            value: What to add.

        Raises:
            StorageUnavailable: it may have been added all the same if the message says that this
                is not known.
            UsageError: what is there has other than 8 bytes, or the value has more.
        """
        amount = counted(value)
        self.connection.check_plain(self.name)
        client, (family, qualifier) = self.connection.native, counter_of(column)
        return client.increment(
            self._text, as_bytes(row), family, qualifier, amount, durability=durability_of(client)
        )

    def counter_dec(self, row: Text, column: Text, value: int = 1) -> int:
        """Take away from a counter; see `counter_inc`."""
        return self.counter_inc(row, column, -value)


def _selection(columns: object, timestamp: object) -> Selection:
    """Return what a read wants: the newest version of some columns, below a timestamp.

    Raises:
        TypeError: one of them is none.
        UsageError: nor is the timestamp one of HBase's.
    """
    wanted = all_specified(columns)
    below = version_of(timestamp, otherwise=MAX_VERSION)
    return Selection(wanted, max_version=below, max_versions=1)
