"""Rows of a table of Phoenix's, on a store in memory: what a scan reads, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest

import omidpy
from omidpy.errors import CorruptCell
from omidpy.manager import TransactionManager
from omidpy.phoenix.catalogue import Column, Described
from omidpy.phoenix.keys import KeyColumn, RowKey
from omidpy.phoenix.tables import PhoenixTable
from omidpy.phoenix.types import of_name

KEY: Final = RowKey((KeyColumn("K", of_name("VARCHAR")),))
SALTED: Final = RowKey((KeyColumn("K", of_name("VARCHAR")),), salt_buckets=3)
COLUMNS: Final = (
    Column("N", b"0:N", of_name("BIGINT")),
    Column("D", b"0:D", of_name("DECIMAL(12,2)")),
)


def phoenix_table(key: RowKey = KEY, *, is_whole: bool = True) -> PhoenixTable:
    """Return the table, as SYSTEM.CATALOG would describe it."""
    return PhoenixTable(Described("T", "T", key, COLUMNS, b"0:_0", is_whole=is_whole))


@pytest.fixture
def tm() -> Iterator[TransactionManager]:
    """Return a manager of a store that has the table."""
    with closing(omidpy.connect("memory:")) as tm:
        tm.create_table("T", families=["0"])
        yield tm


def scanned(tm: TransactionManager, table: PhoenixTable, *first: Any, **options: Any) -> list[Any]:
    """Return the rows that a transaction scans."""
    with tm.begin(read_only=True) as tx:
        return list(table.scan(tx, *first, **options))


@pytest.mark.parametrize("key", [KEY, SALTED], ids=["plain", "salted"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_scan_reads_what_gets_read(
    tm: TransactionManager, key: RowKey, *, is_whole: bool
) -> None:
    """In the order of keys, with NULLs, and rows that have nothing but their key."""
    table = phoenix_table(key, is_whole=is_whole)
    rows = [{"K": f"k{at}", "N": at, "D": None} for at in range(9)] + [{"K": "z"}]
    with tm.begin() as tx:
        for row in rows:
            table.put(tx, row)
    with tm.begin(read_only=True) as tx:
        expected = [table.get(tx, row["K"]) for row in rows]
    assert expected[-1] == {"K": "z", "N": None, "D": None}
    assert scanned(tm, table) == expected
    assert scanned(tm, table, "k3") == expected[3:4]
    assert scanned(tm, table, columns=["N"]) == [
        {"K": row["K"], "N": row["N"]} for row in expected if row is not None
    ]


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_row_with_none_of_the_tables_columns_is_none_of_its_rows(
    tm: TransactionManager, *, is_whole: bool
) -> None:
    """Such as what a column leaves that was dropped, whether it was read or not."""
    table = phoenix_table(is_whole=is_whole)
    with tm.begin() as tx:
        tx.table("T").put(b"a", {b"0:GONE": b"x"})
        tx.table("T").put(b"b", {b"0:GONE": b"x", b"0:N": of_name("BIGINT").codec.encode(7)})
    assert scanned(tm, table) == [{"K": "b", "N": 7, "D": None}]


@pytest.mark.parametrize(
    ("row", "cells", "named"),
    [(b"a", {b"0:N": b"short"}, "row b'a' column N"), (b"\xff", {b"0:_0": b"x"}, "VARCHAR")],
)
def test_a_scan_names_what_it_cannot_read(
    tm: TransactionManager, row: bytes, cells: dict[bytes, bytes], named: str
) -> None:
    """The row and the column, as a get does."""
    with tm.begin() as tx:
        tx.table("T").put(row, cells)
    with pytest.raises(CorruptCell, match=named):
        scanned(tm, phoenix_table())


def test_a_scan_of_all_columns_names_none(tm: TransactionManager) -> None:
    """HBase would look for each; of some of them, or where some were left out, it is told which."""
    asked: list[Any] = []

    class Table:
        """Notes what it is asked for."""

        def scan(self, *, columns: Any, **_: Any) -> Iterator[Any]:
            asked.append(columns)
            return iter(())

    class Within:
        """Has one table."""

        def table(self, name: str, **_: Any) -> Any:
            assert name == "T"
            return Table()

    for table, columns in (
        (phoenix_table(), None),
        (phoenix_table(), ["D"]),
        (phoenix_table(is_whole=False), None),
    ):
        assert not list(table.scan(Within(), columns=columns))
    assert asked == [None, [b"0:_0", b"0:D"], [b"0:_0", b"0:N", b"0:D"]]
