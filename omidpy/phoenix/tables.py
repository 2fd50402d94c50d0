"""Rows of a table of Phoenix's as dictionaries, read and written in a transaction.

    people = omidpy.phoenix.table(tm, "S.PEOPLE")
    with tm.begin() as tx:
        people.put(tx, {"ID": 7, "NAME": "Ann"})
        people.get(tx, 7)

A dictionary has a value for each column, None for NULL.  What is written is what UPSERT writes: the
columns that are given, and the marker `_0`, without which Phoenix would miss the row in some
queries.  Indexes are not kept: a table that has some is read alone, unless the caller keeps them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from omidpy.base.schema.phoenix import EMPTY_VALUE
from omidpy.errors import CorruptCell, UsageError
from omidpy.manager import TransactionManager
from omidpy.phoenix.catalogue import Column, Described, describe
from omidpy.phoenix.types import UNREADABLE
from omidpy.tx.table import TransactionalTable

Row: TypeAlias = dict[str, Any]
Key: TypeAlias = Any
"""The value of the one column of the primary key; of several a tuple, or a mapping by name."""


class Within(Protocol):
    """A transaction, a snapshot, or a worker of a transaction."""

    def table(
        self, name: str, *, conflict_free: bool = False, phoenix_indexes: str | None = None
    ) -> TransactionalTable:
        """Return a table of it."""
        ...


class PhoenixTable:
    """A table of Phoenix's, as it was when it was opened.  Safe to share among threads.

    Attributes:
        name: As SQL has it.
        key: The columns of the primary key, in their order.
        columns: The other columns.
    """

    def __init__(self, described: Described, *, phoenix_indexes: str | None = None) -> None:
        """Take over what SYSTEM.CATALOG says; see `table`."""
        self.name = described.name
        self.key = tuple(one.name for one in described.key.columns)
        self.columns = tuple(one.name for one in described.columns)
        self._row_key = described.key
        self._in_store = described.in_store
        self._marker = described.marker
        self._is_whole = described.is_whole
        self._by_name = {one.name: one for one in described.columns}
        self._indexes = phoenix_indexes

    def __repr__(self) -> str:
        return f"<PhoenixTable {self.name!r}>"

    def get(self, tx: Within, key: Key, columns: Iterable[str] | None = None) -> Row | None:
        """Return a row; None: it is not there.

        Args:
            tx: A transaction, a snapshot or a worker.
            key: The value of the primary key; a tuple of them in their order, or a mapping by name,
                where it has several columns.
            columns: The columns to read beside the key; None for all.

        Raises:
            UsageError, TypeError: no row has such a key, or there is no such column.
            CorruptCell: a value is none of its type.

        Cost: 1 get.
        """
        row = self.row_key(key)
        wanted = self._wanted(columns)
        found = self._table(tx).row(row, columns=self._cells(wanted))
        return self._decoded(row, found, wanted) if found else None

    def scan(
        self,
        tx: Within,
        *first: Any,
        columns: Iterable[str] | None = None,
        batch_size: int | None = None,
    ) -> Iterator[Row]:
        """Iterate over the rows in the order of their keys.

        Args:
            tx: As in `get`.
            first: Values of the first columns of the key, which all rows have; none for all rows.
            columns: As in `get`.
            batch_size: Rows a request; None: as many as fit well.

        Raises:
            UsageError, TypeError, CorruptCell: as in `get`, from the iterator.

        Cost: as `TransactionalTable.scan`, once for each salt.
        """
        if len(first) > len(self.key):
            raise UsageError(f"the key of {self.name} has {len(self.key)} columns: {first!r:.80}")
        wanted = self._wanted(columns)
        table, cells = self._table(tx), self._cells(wanted)
        is_whole = self._is_whole and columns is None
        asked: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
        scans = [
            # HBase looks for each column that is named, which takes it several times as long as
            # to bring them all.
            table.scan(row_start=start, row_stop=stop, columns=None if is_whole else cells, **asked)
            for start, stop in self._row_key.spans(first)
        ]
        beginning = dict(zip(self.key, first, strict=False))
        decoded_by = self._decoder(wanted)
        for row, found in _merged(scans, has_salt=bool(self._row_key.salt_buckets)):
            if is_whole and self._marker not in found and found.keys().isdisjoint(cells):
                continue  # it has cells, and none of the table
            decoded = decoded_by(row, found)
            # Of a text the range holds longer ones, too.
            if not beginning or all(
                _equal(decoded[name], value) for name, value in beginning.items()
            ):
                yield decoded

    def put(self, tx: Within, row: Mapping[str, Any]) -> None:
        """Write columns of a row, as UPSERT does; others stay as they are.

        Args:
            tx: A transaction or a worker.
            row: Values by column, those of the primary key among them; None is NULL.

        Raises:
            UsageError, TypeError: something of it cannot be written; nothing was.
            ConfigError: Phoenix keeps indexes of the table.
        """
        if unknown := sorted(set(row) - set(self.key) - set(self.columns)):
            raise UsageError(f"table {self.name} has no column {', '.join(unknown)}")
        key = self._row_key.encode(row)
        cells = {self._marker: EMPTY_VALUE}
        nulls = []
        for name, value in row.items():
            if (column := self._by_name.get(name)) is None:
                continue
            if value is None:
                nulls.append(column.cell)
            else:
                cells[column.cell] = column.type.codec.encode(value)
        with self._table(tx).batch() as batch:
            batch.put(key, cells)
            if nulls:
                batch.delete(key, columns=nulls)

    def delete(self, tx: Within, key: Key) -> None:
        """Delete a row.

        Args:
            tx: A transaction or a worker.
            key: As in `get`.

        Raises:
            UsageError, TypeError: no row has such a key.
            ConfigError: Phoenix keeps indexes of the table.

        Cost: 1 get.
        """
        self._table(tx).delete(self.row_key(key))

    def row_key(self, key: Key) -> bytes:
        """Return the bytes of a row's key, for programs that read the table by cells."""
        if isinstance(key, Mapping):
            if unknown := sorted(set(key) - set(self.key)):
                raise UsageError(f"{', '.join(unknown)} is no part of the key of {self.name}")
            return self._row_key.encode(key)
        values = key if isinstance(key, tuple) else (key,)
        if len(values) != len(self.key):
            raise UsageError(f"the key of {self.name} has {len(self.key)} columns: {key!r:.80}")
        return self._row_key.encode(dict(zip(self.key, values, strict=True)))

    def _table(self, tx: Within) -> TransactionalTable:
        if self._indexes is None:
            return tx.table(self._in_store)
        return tx.table(self._in_store, phoenix_indexes=self._indexes)

    def _wanted(self, columns: Iterable[str] | None) -> list[Column]:
        if columns is None:
            return list(self._by_name.values())
        named = dict.fromkeys(columns)
        if unknown := [one for one in named if one not in self._by_name and one not in self.key]:
            raise UsageError(f"table {self.name} has no column {', '.join(unknown)}")
        return [self._by_name[one] for one in named if one in self._by_name]

    def _cells(self, wanted: list[Column]) -> list[bytes]:
        """Return what to read: a row without any of its columns is there by its marker."""
        return [self._marker, *(one.cell for one in wanted)]

    def _decoder(self, wanted: list[Column]) -> Callable[[bytes, Mapping[bytes, bytes]], Row]:
        """Return what does as `_decoded`, for many rows."""
        key_values = self._row_key.decoder()
        plan = [(one.name, one.cell, one.type.plain) for one in wanted]

        def decoded(row: bytes, found: Mapping[bytes, bytes]) -> Row:
            try:
                values = key_values(row)
                for name, cell, decode in plan:
                    value = found.get(cell)
                    values[name] = None if value is None else decode(value)
            except UNREADABLE:
                return self._decoded(row, found, wanted)  # which says which one it is
            return values

        return decoded

    def _decoded(self, row: bytes, found: Mapping[bytes, bytes], wanted: list[Column]) -> Row:
        decoded = self._row_key.decode(row)
        for column in wanted:
            value = found.get(column.cell)
            try:
                decoded[column.name] = None if value is None else column.type.codec.decode(value)
            except CorruptCell as error:
                raise CorruptCell(
                    f"table {self.name} row {row!r} column {column.name}: {error}"
                ) from error
        return decoded


def _merged(
    scans: list[Iterator[tuple[bytes, dict[bytes, Any]]]], *, has_salt: bool
) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
    """Return the rows of some scans in the order of their keys without the salt."""
    if len(scans) == 1:
        return scans[0]
    after_salt = 1 if has_salt else 0
    return heapq.merge(*scans, key=lambda one: one[0][after_salt:])


def _equal(found: Any, asked: Any) -> bool:
    if isinstance(found, bytes) and isinstance(asked, bytes):
        return found.rstrip(b"\x00") == asked.rstrip(b"\x00")  # BINARY is filled up
    return bool(
        found == (asked.rstrip(" ") if isinstance(asked, str) and found != asked else asked)
    )


def table(
    tm: TransactionManager,
    name: str,
    *,
    without: Collection[str] = (),
    phoenix_indexes: str | None = None,
) -> PhoenixTable:
    """Open a table of Phoenix's, whose columns and types SYSTEM.CATALOG knows.

    Args:
        tm: The manager of the store in which Phoenix has it, adopted with `omidpy table adopt`.
        name: `SCHEMA.TABLE` or `TABLE`, as Phoenix stores it: in capitals, unless it was quoted.
        without: Columns to leave out, such as those of types that are not held here; what they hold
            is neither read nor changed.
        phoenix_indexes: `mine`: the caller writes the rows of the table's indexes, too; see
            `Transaction.table`.

    Raises:
        NoSuchTable: Phoenix has none of this name, or none at all.
        UsageError: it has a column that is not held here, and not left out; or no such one.
        ConfigError: it is a view or an index, or Phoenix writes it without transactions of Omid's.

    Cost: 1 or 2 scans of a few rows.
    """
    return PhoenixTable(describe(tm.store, name, without=without), phoenix_indexes=phoenix_indexes)
