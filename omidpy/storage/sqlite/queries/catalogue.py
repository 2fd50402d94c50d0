"""The SQL over the list of a file's tables: their families, attributes and regions.

Methods from a connection to schemas and back; the cells of each table are `sqlite_cells.py`'s.
Families, attributes and split points are JSON, with bytes as hexadecimal.  Whoever calls owns the
transaction.  A table's id is never used again, so that what is remembered of a dropped table fails.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from omidpy.base.documents import prepared
from omidpy.errors import NoSuchTable, StorageError, TableExists
from omidpy.model import ColumnSpec, FamilySchema, TableSchema
from omidpy.storage import rules
from omidpy.storage.sqlite.queries.cells import create_cells

T = TypeVar("T")

Selection: TypeAlias = list[ColumnSpec] | None
"""Columns in order and without overlap; None: all."""


class Physical(NamedTuple):
    """What never changes of a table while it exists."""

    cells: str
    families: frozenset[bytes]
    whole: list[ColumnSpec]
    """The families, in order, as a selection of all that there is."""

    def selection(self, table: str, columns: Sequence[ColumnSpec] | None) -> Selection:
        """Return which columns are selected; see `rules.selection`."""
        if columns == self.whole:
            return None  # what most gets ask for, and quickly said
        return rules.selection(table, columns, self.families)


class Catalog:
    """The list of the tables of one file, whose address its errors name."""

    def __init__(self, url: str) -> None:
        self._url = url

    # -- reads ------------------------------------------------------------------------------------

    def schema(self, connection: sqlite3.Connection, table: str) -> TableSchema:
        """Return a table's families and attributes."""
        return _schema(self._entry(connection, table, "name, families, attributes"))

    def schemas(self, connection: sqlite3.Connection) -> list[TableSchema]:
        """Return the schemas of every table, by name."""
        query = "SELECT name, families, attributes FROM omidpy_tables"
        rows = connection.execute(query).fetchall()
        return sorted(map(_schema, rows), key=lambda schema: schema.name)

    def splits(self, connection: sqlite3.Connection, table: str) -> list[bytes]:
        """Return where a table's regions meet."""
        (text,) = self._entry(connection, table, "splits")
        return _splits(text)

    def physical(self, connection: sqlite3.Connection, table: str) -> Physical:
        """Return where a table's cells are, and its families."""
        number, families = self._entry(connection, table, "id, families")
        names = sorted(map(bytes.fromhex, _families(families)))
        return Physical(f"cells_{number}", frozenset(names), [(name, None) for name in names])

    def check_absent(self, connection: sqlite3.Connection, table: str) -> None:
        """Refuse the name of a table that is there."""
        if _find(connection, table, "id") is not None:
            raise TableExists(f"table {table!r} exists already in {self._url}")

    # -- changes ----------------------------------------------------------------------------------

    def create(
        self, connection: sqlite3.Connection, schema: TableSchema, splits: Sequence[bytes]
    ) -> None:
        """Add a table that is absent, and make the one of its cells."""
        families = {family.name.hex(): dict(family.attributes) for family in schema.families}
        cursor = connection.execute(
            "INSERT INTO omidpy_tables (name, families, attributes, splits) VALUES (?, ?, ?, ?)",
            (
                schema.name,
                _families_json(families),
                json.dumps(dict(schema.attributes)),
                _splits_json(sorted(splits)),
            ),
        )
        create_cells(connection, f"cells_{cursor.lastrowid}")

    def drop(
        self, connection: sqlite3.Connection, table: str, only: Mapping[str, str] | None
    ) -> bool:
        """Remove a table and its cells, if it has some attributes; say whether it was so."""
        number, attributes = self._entry(connection, table, "id, attributes")
        if not rules.has(_attributes(attributes), only):
            return False
        connection.execute("DELETE FROM omidpy_tables WHERE id = ?", (number,))
        connection.execute(f"DROP TABLE cells_{number}")
        return True

    def set_table_attributes(
        self,
        connection: sqlite3.Connection,
        table: str,
        attributes: Mapping[str, str | None],
        only: Mapping[str, str | None] | None,
    ) -> bool:
        """Set attributes of a table, if it has some; say whether it was so; None removes one."""
        _, before = self._entry(connection, table, "id, attributes")
        if not rules.has(_attributes(before), only):
            return False

        def change(old: str) -> str:
            return json.dumps(rules.changed(_attributes(old), attributes))

        self._update(connection, table, "attributes", change)
        return True

    def set_family_attributes(
        self,
        connection: sqlite3.Connection,
        table: str,
        family: bytes,
        attributes: Mapping[str, str | None],
    ) -> None:
        """Set attributes of a family; None removes one."""

        def change(old: str) -> str:
            families = _families(old)
            rules.check_family(table, family, [bytes.fromhex(name) for name in families])
            families[family.hex()] = rules.changed(families[family.hex()], attributes)
            return _families_json(families)

        self._update(connection, table, "families", change)

    def split(self, connection: sqlite3.Connection, table: str, at: bytes) -> None:
        """Split the region that holds `at`; no-op where one starts there."""

        def change(old: str) -> str:
            return _splits_json(rules.splits_with(_splits(old), at))

        self._update(connection, table, "splits", change)

    def merge(self, connection: sqlite3.Connection, table: str, at: bytes) -> None:
        """Merge the two regions that meet at `at`."""

        def change(old: str) -> str:
            return _splits_json(rules.splits_without(_splits(old), at, table=table))

        self._update(connection, table, "splits", change)

    def _update(
        self, connection: sqlite3.Connection, table: str, column: str, change: Callable[[str], str]
    ) -> None:
        (old,) = self._entry(connection, table, column)
        if (new := change(old)) != old:
            query = f"UPDATE omidpy_tables SET {column} = ? WHERE name = ?"  # noqa: S608  ours
            connection.execute(query, (new, table))

    def _entry(self, connection: sqlite3.Connection, table: str, columns: str) -> tuple[str, ...]:
        row = _find(connection, table, columns)
        if row is None:
            raise NoSuchTable(
                f"there is no table {table!r} in {self._url}; create it with create_table"
            )
        return row


def _find(connection: sqlite3.Connection, table: str, columns: str) -> tuple[str, ...] | None:
    query = f"SELECT {columns} FROM omidpy_tables WHERE name = ?"  # noqa: S608  ours
    row: tuple[str, ...] | None = connection.execute(query, (table,)).fetchone()
    return row


def _schema(row: Sequence[str]) -> TableSchema:
    name, families, attributes = row
    if not isinstance(name, str):
        raise _damaged(name, "is the name of a table")
    return TableSchema(
        name,
        tuple(FamilySchema(bytes.fromhex(key), of) for key, of in _families(families).items()),
        _attributes(attributes),
    )


def _families_json(families: Mapping[str, Mapping[str, str]]) -> str:
    return json.dumps(families, sort_keys=True)


def _attributes(text: str) -> dict[str, str]:
    return _decoded(text, dict[str, str])


def _families(text: str) -> dict[str, dict[str, str]]:
    families = _decoded(text, dict[str, dict[str, str]])
    if not all(map(_is_hexadecimal, families)):
        raise _damaged(text, "names families")
    return families


def _splits(text: str) -> list[bytes]:
    splits = _decoded(text, list[str])
    if not all(map(_is_hexadecimal, splits)):
        raise _damaged(text, "splits a table")
    return [bytes.fromhex(key) for key in splits]


def _is_hexadecimal(text: str) -> bool:
    return len(text) % 2 == 0 and set(text) <= set("0123456789abcdef")


def _decoded(text: str, type_: type[T]) -> T:
    """Read JSON as it is written here; the file may have been written by anybody.

    Raises:
        StorageError: it is something else.
    """
    try:
        return msgspec.json.decode(text, type=prepared(type_))
    except (msgspec.MsgspecError, TypeError, RecursionError) as error:
        raise _damaged(text, f"cannot be read ({error})") from error


def _damaged(text: object, what: str) -> StorageError:
    return StorageError(
        f"omidpy_tables is damaged: {str(text)[:80]!r} {what}; restore the store from a backup"
    )


def _splits_json(splits: Sequence[bytes]) -> str:
    return json.dumps([split.hex() for split in splits])
