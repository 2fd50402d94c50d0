"""What SYSTEM.CATALOG says of a table, with HBase's namespaces and without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pytest

import omidpy
from omidpy import phoenix
from omidpy.errors import ConfigError, NoSuchTable
from omidpy.manager import TransactionManager
from omidpy.model import FamilySchema, TableSchema
from omidpy.phoenix import codec
from omidpy.storage.base import Put, RowMutation

INT, SHORT, BYTE = codec("INTEGER"), codec("SMALLINT"), codec("TINYINT")
TABLE: Final = {
    b"TABLE_TYPE": b"u",
    b"TRANSACTION_PROVIDER": BYTE.encode(2),
    b"IS_NAMESPACE_MAPPED": b"\x01",
}
VARCHAR, BIGINT = 12, -5


def column(at: int, code: int, *, key_seq: int = 0) -> dict[bytes, bytes]:
    """Return the cells of a column."""
    found = {
        b"ORDINAL_POSITION": INT.encode(at),
        b"DATA_TYPE": INT.encode(code),
        b"SORT_ORDER": INT.encode(2),
    }
    return {**found, b"KEY_SEQ": SHORT.encode(key_seq)} if key_seq else found


def describe(
    tm: TransactionManager, catalogue: str, schema: bytes, header: Mapping[bytes, bytes]
) -> None:
    """Write what Phoenix does of the table T: a key K, and columns N in family B and X in A."""
    start = b"\x00" + schema + b"\x00T"
    rows = {
        start: header,
        start + b"\x00K": column(1, VARCHAR, key_seq=1),
        start + b"\x00N\x00B": column(2, BIGINT),
        start + b"\x00X\x00A": column(3, VARCHAR),
        # Another table, whose name begins as this one's.
        start + b"T": TABLE,
        start + b"T\x00OTHER": column(1, VARCHAR, key_seq=1),
    }
    mutations = [
        RowMutation(row, [Put(b"0", qualifier, 1, value) for qualifier, value in cells.items()])
        for row, cells in rows.items()
    ]
    tm.store.write({catalogue: mutations})


@pytest.fixture
def tm() -> Iterator[TransactionManager]:
    """Return a manager of a store with Phoenix's catalogue, as it is called with namespaces."""
    with omidpy.connect("memory:") as tm:
        tm.store.create_table(TableSchema("SYSTEM:CATALOG", [FamilySchema(b"0")]))
        yield tm


def test_a_table_of_a_namespace_is_one_of_sqls(tm: TransactionManager) -> None:
    """It is S.T to SQL, and S:T to the store, which the catalogue is, too."""
    describe(tm, "SYSTEM:CATALOG", b"S", TABLE)
    tm.create_table("S:T", families=["A", "B"])
    table = phoenix.table(tm, "S.T")
    assert (table.name, table.key, table.columns) == ("S.T", ("K",), ("N", "X"))
    row = {"K": "a", "N": 7, "X": None}
    with tm.begin() as tx:
        table.put(tx, row)
    with tm.begin(read_only=True) as tx:
        assert list(table.scan(tx)) == [row]
        assert tx.table("S:T").row(b"a") == {
            b"B:_0": b"x",
            b"B:N": codec("BIGINT").encode(7),
        }


def test_a_table_without_schema_is_in_no_namespace(tm: TransactionManager) -> None:
    """Nor is one that was made before namespaces were mapped."""
    describe(tm, "SYSTEM:CATALOG", b"", TABLE)
    old = {name: value for name, value in TABLE.items() if name != b"IS_NAMESPACE_MAPPED"}
    describe(tm, "SYSTEM:CATALOG", b"S", old)
    for name in ("T", "S.T"):
        tm.create_table(name, families=["A", "B"])
        table = phoenix.table(tm, name)
        with tm.begin() as tx:
            table.put(tx, {"K": "a", "N": 1})
            assert tx.table(name).row(b"a")[b"B:_0"] == b"x"


def test_a_table_has_the_name_that_sql_has(tm: TransactionManager) -> None:
    """And not the store's; where there is no catalogue of either name there is no Phoenix."""
    describe(tm, "SYSTEM:CATALOG", b"S", TABLE)
    with pytest.raises(NoSuchTable, match=r"Phoenix has no table 'S:T'"):
        phoenix.table(tm, "S:T")
    with omidpy.connect("memory:") as other, pytest.raises(NoSuchTable, match="no Phoenix uses it"):
        phoenix.table(other, "S.T")


def test_a_table_without_transactions_is_refused_by_its_name(tm: TransactionManager) -> None:
    """As SQL has it."""
    describe(tm, "SYSTEM:CATALOG", b"S", {b"TABLE_TYPE": b"u"})
    with pytest.raises(ConfigError, match=r"writes S\.T without transactions"):
        phoenix.table(tm, "S.T")
