"""A real Apache Phoenix on our oracle, and Python on the same tables.

Both read what both have written, at every stage: while somebody writes, after deletes and
rollbacks, from old snapshots, by the table and by its indexes, and after our compactor was there.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import omidpy
from omidpy import phoenix as phoenixs
from omidpy.cli import main
from omidpy.errors import ConfigError, CorruptCell, NoSuchTable, UsageError, WriteConflict
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import Watermarks
from omidpy.manager import TransactionManager
from omidpy.model import KeyRange
from tests.machines.documents import ROOT, PageRun
from tests.machines.java import JavaDriver, JavaError
from tests.machines.java_client import JavaManager
from tests.machines.phoenix import TRANSACTIONAL, Connection, Phoenix
from tests.machines.tpcc import conditions, tables
from tests.machines.tpcc.clerk import Clerk

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

Cli = Callable[..., tuple[int, str, str]]
NO_GRACES: Final = ("--grace", "0s", "--invalidation-grace", "0s", "--retention", "0s", "--wait")


@pytest.fixture(scope="module")
def tm(phoenix: Phoenix) -> Iterator[TransactionManager]:
    """Return our client, whose own tables are by cell."""
    with omidpy.connect(phoenix.url, phoenix.address, post_commit="sync") as manager:
        yield manager


@pytest.fixture
def sql(phoenix: Phoenix) -> Iterator[Connection]:
    """Return a connection that commits when it is told to."""
    connection = phoenix.driver.open()
    yield connection
    connection.close()


@pytest.fixture
def cli(phoenix: Phoenix, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs an `omidpy` command on this HBase."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--store", phoenix.url, "--tso", phoenix.address])
        printed = capsys.readouterr()
        return int(str(ended.value.code or 0)), printed.out, printed.err

    return run


def done(said: tuple[int, str, str]) -> str:
    """Return what a command that succeeded has printed."""
    code, out, err = said
    assert code == 0, out + err
    return out


def made(phoenix: Phoenix, cli: Cli, columns: str, options: str = "") -> str:
    """Make a table in SQL, and adopt it."""
    name = f"S.T{uuid.uuid4().hex[:8].upper()}"
    phoenix.sql.execute(f"CREATE TABLE {name} ({columns}) {options}{TRANSACTIONAL}")
    assert "conflicts are detected by row" in done(cli("table", "adopt", name, "--apply"))
    return name


def in_sql(value: Any) -> Any:
    """Return a value of Python's as `Sql.plain` puts it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(value)]
    return value


# -- types -----------------------------------------------------------------------------------------

MOMENT: Final = datetime(2024, 2, 29, 23, 59, 58, 123000, tzinfo=UTC)
EARLY: Final = datetime(1907, 5, 4, 3, 2, 1, 7000, tzinfo=UTC)
DATES: Final = {
    "TO_{}('2024-02-29 23:59:58.123')": MOMENT,
    "TO_{}('1907-05-04 03:02:01.007')": EARLY,
    "TO_{}('1970-01-01 00:00:00.000')": datetime(1970, 1, 1, tzinfo=UTC),
}


def dates(type_: str, function: str, *, is_unsigned: bool = False) -> dict[str, datetime]:
    """Return literals of moments, cast to a type."""
    return {
        f"CAST({sql.format(function)} AS {type_})": value
        for sql, value in DATES.items()
        if not (is_unsigned and value.year < 1970)
    }


TYPES: Final[dict[str, dict[str, Any]]] = {
    "BIGINT": {str(n): n for n in (0, 1, -1, 2**62, -(2**62), 2**63 - 1)},
    "INTEGER": {str(n): n for n in (0, 1, -1, 2**31 - 1, -(2**31))},
    "SMALLINT": {str(n): n for n in (0, 1, -1, 2**15 - 1, -(2**15))},
    "TINYINT": {str(n): n for n in (0, 1, -1, 127, -128)},
    "UNSIGNED_LONG": {str(n): n for n in (0, 1, 2**63 - 1)},
    "UNSIGNED_INT": {str(n): n for n in (0, 1, 2**31 - 1)},
    "UNSIGNED_SMALLINT": {str(n): n for n in (0, 1, 2**15 - 1)},
    "UNSIGNED_TINYINT": {str(n): n for n in (0, 1, 127)},
    "DOUBLE": {repr(x): x for x in (0.0, 1.5, -1.5, 1e-300, -1e300, 0.1)},
    "FLOAT": {repr(x): x for x in (0.0, 1.5, -1.5, 2.0**-100, -(2.0**100))},
    "UNSIGNED_DOUBLE": {repr(x): x for x in (0.0, 1.5, 1e300)},
    "UNSIGNED_FLOAT": {repr(x): x for x in (0.0, 1.5)},
    "DECIMAL": {
        text: Decimal(text)
        for text in (
            "0",
            "1",
            "-1",
            "10",
            "100",
            "-100",
            "0.1",
            "0.01",
            "-0.001",
            "123.456",
            "-123.456",
            "99",
            "-99.99",
            "12345678901234567890123456789012345678",
            "-12345678901234567890123456789012345678",
            "-1234567890123456789012345678901234567.8",
            "0.00000000000000000000000000000000012345",
        )
    },
    "DECIMAL(10,2)": {text: Decimal(text) for text in ("12345678.9", "-0.05", "7")},
    "BOOLEAN": {"true": True, "false": False},
    "VARCHAR": {f"'{text}'": text for text in ("a", "Zoë", "日本", "a b ")},
    "VARCHAR(5)": {"'abcde'": "abcde"},
    "CHAR(4)": {"'abcd'": "abcd", "'a'": "a", "'a b'": "a b"},
    "VARBINARY": {"DECODE('00ff', 'HEX')": b"\x00\xff", "DECODE('61', 'HEX')": b"a"},
    "BINARY(3)": {"DECODE('00ff01', 'HEX')": b"\x00\xff\x01", "DECODE('61', 'HEX')": b"a\x00\x00"},
    "DATE": dates("DATE", "DATE"),
    "TIME": dates("TIME", "TIME"),
    "TIMESTAMP": dates("TIMESTAMP", "TIMESTAMP"),
    "UNSIGNED_DATE": dates("UNSIGNED_DATE", "DATE", is_unsigned=True),
    "UNSIGNED_TIME": dates("UNSIGNED_TIME", "TIME", is_unsigned=True),
    "UNSIGNED_TIMESTAMP": dates("UNSIGNED_TIMESTAMP", "TIMESTAMP", is_unsigned=True),
}


def test_each_type_has_the_bytes_of_phoenixs(
    phoenix: Phoenix, tm: TransactionManager, sql: Connection, cli: Cli
) -> None:
    """Java writes and Python reads, Python writes and Java reads, and the cells are the same."""
    names = {f"C{number}": type_ for number, type_ in enumerate(TYPES)}
    columns = ", ".join(f"{name} {type_}" for name, type_ in names.items())
    table = made(phoenix, cli, f"K VARCHAR PRIMARY KEY, {columns}")
    values: dict[str, dict[str, Any]] = {}
    for name, type_ in names.items():
        for at, (literal, value) in enumerate(TYPES[type_].items()):
            sql.execute(f"UPSERT INTO {table} (K, {name}) VALUES ('java{at:02}', {literal})")
            values.setdefault(f"{at:02}", {})[name] = value
    sql.commit()
    typed = phoenixs.table(tm, table)
    with tm.begin() as tx:
        for row in typed.scan(tx):
            written = values[row["K"].removeprefix("java")]
            assert row == {"K": row["K"], **dict.fromkeys(names), **written}
            typed.put(tx, {"K": row["K"].replace("java", "ours"), **written})
    with tm.begin(read_only=True) as tx:
        cells = tx.table(table)
        for number in values:
            assert cells.row(b"ours" + number.encode()) == cells.row(b"java" + number.encode())
    # The same codecs type the columns of a frame.
    framed = {
        name: (f"0:{name}", f"omidpy.phoenix.types:{type_}")
        for name, type_ in names.items()
        if not type_.startswith("DECIMAL")
    }
    for row in tm.scan_arrow(table, columns=framed).read_all().to_pylist():
        written = values[row["row"].decode()[4:]]
        assert {
            name: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
            for name, value in row.items()
            if name in framed
        } == {name: written.get(name) for name in framed}
    found = {row[0]: row[1:] for row in sql.query(f"SELECT * FROM {table}")}
    assert len(found) == 2 * len(values)
    for number, written in values.items():
        assert found[f"ours{number}"] == found[f"java{number}"]
        for at, name in enumerate(names):
            value = written.get(name)
            if isinstance(value, Decimal | bytes | bool | str | int):
                assert found[f"ours{number}"][at] == in_sql(value), (name, value)


KEYED: Final[dict[str, tuple[list[str], list[tuple[Any, ...]]]]] = {
    "A VARCHAR, B BIGINT NOT NULL, C VARCHAR": (
        ["A", "B", "C"],
        [("a", 1, "x"), ("a", -1, "x"), ("a", 1, None), (None, 5, "z"), ("ab", 0, None)],
    ),
    "A CHAR(3) NOT NULL, B DECIMAL, C VARBINARY": (
        ["A", "B", "C"],
        [("a", Decimal("1.5"), b"\x00\x01"), ("abc", Decimal(-2), b"\xff\x00"), ("b", None, None)],
    ),
    "A VARCHAR, B VARCHAR, C VARCHAR": (
        ["A", "B", "C"],
        [
            ("a", None, None),
            ("a", None, "c"),
            (None, "b", None),
            ("a", "b", "c"),
            ("ab", "c", None),
        ],
    ),
    "A DATE NOT NULL, B TIMESTAMP NOT NULL": (["A", "B"], [(MOMENT, EARLY), (EARLY, MOMENT)]),
}
ORDERS: Final = ["", " DESC"]


FIRST: Final = next(iter(KEYED))


@pytest.mark.parametrize(
    ("columns", "salt"),
    [
        *((columns, 0) for columns in KEYED),
        (FIRST, 3),
        *(pytest.param(columns, 7, marks=pytest.mark.nightly) for columns in KEYED),
    ],
)
def test_keys_are_phoenixs(
    phoenix: Phoenix, tm: TransactionManager, cli: Cli, columns: str, salt: int
) -> None:
    """Composite, with NULL, in either order, and salted."""
    names, keys = KEYED[columns]
    sql = phoenix.sql
    for order in ORDERS:
        # The end of a VARBINARY in a key that is sorted DESC nobody can tell from a byte of it.
        parts = ", ".join(
            name if f"{name} VARBINARY" in columns else name + order for name in names
        )
        table = made(
            phoenix,
            cli,
            f"{columns}, N INTEGER CONSTRAINT PK PRIMARY KEY ({parts})",
            f"SALT_BUCKETS={salt}, " if salt else "",
        )
        typed = phoenixs.table(tm, table)
        with tm.begin() as tx:
            for number, key in enumerate(keys):
                typed.put(tx, {**dict(zip(names, key, strict=True)), "N": number})
        # What Phoenix finds under the key, and writes back under its own, is the same row.
        marks = sql.query(f"SELECT N FROM {table}")
        assert sorted(number for (number,) in marks) == list(range(len(keys)))
        assert sql.execute(
            f"UPSERT INTO {table} ({', '.join(names)}, N) "
            f"SELECT {', '.join(names)}, N + 100 FROM {table}"
        ) == len(keys)
        with tm.begin(read_only=True) as tx:
            found = list(typed.scan(tx))
            assert {row["N"]: tuple(row[one] for one in names) for row in found} == {
                100 + number: key for number, key in enumerate(keys)
            }
            for number, key in enumerate(keys):
                assert (typed.get(tx, key) or {})["N"] == 100 + number
                first = [row["N"] for row in typed.scan(tx, key[0])]
                assert first == [row["N"] for row in found if row[names[0]] == key[0]]
            if not salt:
                in_order = [n for (n,) in sql.query(f"SELECT N FROM {table} ORDER BY {parts}")]
                assert [row["N"] for row in found] == in_order
        with tm.begin() as tx:
            typed.delete(tx, keys[0])
        assert len(sql.query(f"SELECT N FROM {table}")) == len(keys) - 1


# -- what is refused -------------------------------------------------------------------------------


def test_what_is_not_held_is_refused_by_name(
    phoenix: Phoenix, tm: TransactionManager, cli: Cli
) -> None:
    """Before a row of it is read, or written and then read by Phoenix as something else."""
    table = made(
        phoenix,
        cli,
        "K VARCHAR PRIMARY KEY, N BIGINT, A INTEGER ARRAY, B VARCHAR DEFAULT 'x', X.N SMALLINT",
    )
    with pytest.raises(UsageError, match=r"A \(INTEGER ARRAY\), B \(VARCHAR DEFAULT 'x'\)"):
        phoenixs.table(tm, table)
    with pytest.raises(UsageError, match="has no column M to leave out"):
        phoenixs.table(tm, table, without=["A", "B", "M"])
    typed = phoenixs.table(tm, table, without=["A", "B"])
    assert (typed.key, typed.columns) == (("K",), ("0.N", "X.N"))
    phoenix.sql.execute(f"UPSERT INTO {table} VALUES ('k', 1, ARRAY[1, 2], 'b', 2)")
    with tm.begin() as tx:
        assert typed.get(tx, "k") == {"K": "k", "0.N": 1, "X.N": 2}
        typed.put(tx, {"K": "k", "0.N": None})
        for wrong, message in (
            ({"K": "k", "A": [1]}, "has no column A"),
            ({"0.N": 1}, "the key lacks K"),
            ({"K": None}, "all NULL"),
            ({"K": "k", "X.N": 2**15}, "does not fit in SMALLINT"),
        ):
            with pytest.raises(UsageError, match=message):
                typed.put(tx, wrong)
    (found,) = phoenix.sql.query(f'SELECT K, "0".N, A[2], B, X.N FROM {table}')
    assert found == ["k", None, 2, "b", 2]
    phoenix.sql.execute(f"CREATE VIEW {table}_V AS SELECT * FROM {table}")
    phoenix.sql.execute(f"CREATE TABLE {table}_P (K VARCHAR PRIMARY KEY)")
    for name, error, message in (
        (f"{table}_V", ConfigError, "is a view, and no table"),
        (f"{table}_P", ConfigError, "without transactions of Omid's"),
        ("SYSTEM.CATALOG", ConfigError, "one of Phoenix's own tables"),
        ("S.NONE", NoSuchTable, "Phoenix has no table 'S.NONE'"),
    ):
        with pytest.raises(error, match=message):
            phoenixs.table(tm, name)


def test_what_phoenix_writes_without_transactions_is_not_adopted(
    phoenix: Phoenix, cli: Cli
) -> None:
    """Its own tables among them, and nobody takes a transactional one by cell."""
    name = f"P{uuid.uuid4().hex[:8].upper()}"
    phoenix.sql.execute(f"CREATE TABLE {name} (K VARCHAR PRIMARY KEY, N BIGINT)")
    phoenix.sql.execute(f"CREATE TABLE {name}X (K VARCHAR PRIMARY KEY, N BIGINT) {TRANSACTIONAL}")
    for words, message in (
        (["SYSTEM.CATALOG"], "one of Phoenix's own"),
        (["SYSTEM.MUTEX"], "one of Phoenix's own"),
        ([name], "which writes it without transactions; make it with TRANSACTIONAL=true"),
        ([f"{name}X", "--conflict-level", "cell"], "by cell updates of both would be lost"),
    ):
        code, _, err = cli("table", "adopt", *words, "--apply")
        assert code == 2
        assert message in err
    phoenix.sql.execute(f"DROP TABLE {name}X")


# -- beside each other -----------------------------------------------------------------------------


FRAME: Final[Any] = {
    "N": ("0:N", phoenixs.codec("BIGINT")),
    "V": ("0:V", phoenixs.codec("VARCHAR")),
}


class Beside:
    """A table with an index, read by both in every way."""

    def __init__(self, phoenix: Phoenix, tm: TransactionManager, cli: Cli) -> None:
        self.phoenix, self.tm, self.cli = phoenix, tm, cli
        self.table = made(phoenix, cli, "K VARCHAR PRIMARY KEY, N BIGINT, V VARCHAR")
        self.typed = phoenixs.table(tm, self.table)

    def agree(self, expected: Mapping[str, tuple[int | None, str | None]]) -> None:
        """Compare what SQL finds, by the table and by each index, with what Python does."""
        rows = [[key, *values] for key, values in sorted(expected.items())]
        sql, name = self.phoenix.sql, self.table
        assert sql.query(f"SELECT /*+ NO_INDEX */ K, N, V FROM {name} ORDER BY K") == rows
        assert sorted(sql.query(f"SELECT K, N, V FROM {name}")) == rows
        assert sql.query(f"SELECT COUNT(*) FROM {name}") == [[len(rows)]]
        assert sql.query(f"SELECT K FROM {name} ORDER BY K") == [row[:1] for row in rows]
        for value in {value for _, value in expected.values() if value is not None}:
            found = sql.query(f"SELECT K, N, V FROM {name} WHERE V = '{value}' ORDER BY K")
            assert found == [row for row in rows if row[2] == value]
        with self.tm.begin(read_only=True) as tx:
            read = [[row["K"], row["N"], row["V"]] for row in self.typed.scan(tx)]
            assert read == rows
            for key in expected:
                assert self.typed.get(tx, key) is not None
            assert self.typed.get(tx, "nobody") is None
        direct = self.phoenix.hbase.direct_url
        with omidpy.connect(direct, tso=self.phoenix.address) as near, near.snapshot() as moment:
            seen = phoenixs.table(near, name).scan(moment)
            assert [[row["K"], row["N"], row["V"]] for row in seen] == rows
        # A row without a value is one of the frame by its marker.
        columns = {**FRAME, "mark": ("0:_0", "string")}
        frame = self.tm.scan_arrow(name, columns=columns, key={"K": "string"}).read_all()
        assert [[row["K"], row["N"], row["V"]] for row in frame.to_pylist()] == rows


def test_both_read_what_both_write(
    phoenix: Phoenix, tm: TransactionManager, sql: Connection, cli: Cli
) -> None:
    """Whatever either is doing meanwhile."""
    beside = Beside(phoenix, tm, cli)
    table, typed = beside.table, beside.typed
    sql.execute(f"UPSERT INTO {table} VALUES ('a', 1, 'x')")
    with tm.begin() as tx:
        typed.put(tx, {"K": "b", "N": 2, "V": "y"})
        typed.put(tx, {"K": "c"})
        assert typed.get(tx, "c") == {"K": "c", "N": None, "V": None}
        assert typed.get(tx, "a") is None
        beside.agree({})
    beside.agree({"b": (2, "y"), "c": (None, None)})
    sql.commit()
    before = tm.snapshot()
    rows = {"a": (1, "x"), "b": (2, "y"), "c": (None, None)}
    beside.agree(rows)
    # Old snapshots of either, and what either takes back.
    assert sql.query(f"SELECT COUNT(*) FROM {table}") == [[3]]
    with tm.begin() as tx:
        typed.put(tx, {"K": "a", "V": None})
        typed.delete(tx, "b")
    assert sql.query(f"SELECT K, V FROM {table} ORDER BY K") == [
        ["a", "x"],
        ["b", "y"],
        ["c", None],
    ]
    sql.execute(f"UPSERT INTO {table} VALUES ('d', 9, 'z')")
    sql.rollback()
    tx = tm.begin()
    typed.put(tx, {"K": "e", "N": 1})
    tx.flush()
    tx.rollback()
    assert [row["V"] for row in typed.scan(before)] == ["x", "y", None]
    sql.execute(f"DELETE FROM {table} WHERE K = 'c'")
    sql.execute(f"UPSERT INTO {table} (K, N) VALUES ('a', NULL)")
    sql.commit()
    # Frames, too: rows of which SQL finds each, whatever it reads of them.
    frame = pa.table({"K": ["f", "g"], "N": [7, None], "V": pa.nulls(2)})
    tm.write_arrow(table, frame, columns=FRAME, key={"K": "string"})
    beside.agree({"a": (None, None), "f": (7, None), "g": (None, None)})
    before.rollback()


def test_conflicts_are_found_both_ways_and_by_row(
    phoenix: Phoenix, tm: TransactionManager, sql: Connection, cli: Cli
) -> None:
    """In one transaction with a table of ours, which goes by cell."""
    beside = Beside(phoenix, tm, cli)
    table, typed = beside.table, beside.typed
    ours = f"ours-{table}"
    tm.create_table(ours, families=["cf"])
    with tm.begin() as tx:
        typed.put(tx, {"K": "a", "N": 1, "V": "x"})
        tx.table(ours).put(b"r", {b"cf:q": b"1"})
    mine, other = tm.begin(), tm.begin()
    typed.put(mine, {"K": "a", "N": 2})
    mine.table(ours).put(b"r", {b"cf:q": b"2"})
    other.table(ours).put(b"r", {b"cf:other": b"2"})
    sql.execute(f"UPSERT INTO {table} (K, V) VALUES ('a', 'y')")
    sql.commit()
    other.commit()
    with pytest.raises(WriteConflict) as caught:
        mine.commit()
    assert {cell[:2] for cell in caught.value.cells} == {(table, b"a")}
    sql.execute(f"UPSERT INTO {table} (K, V) VALUES ('a', 'z')")
    with tm.begin() as tx:
        typed.put(tx, {"K": "a", "N": 3})
        tx.table(ours).put(b"r", {b"cf:q": b"3"})
    with pytest.raises(JavaError) as refused:
        sql.commit()
    assert "conflict" in refused.value.message.lower()
    sql.rollback()
    beside.agree({"a": (3, "y")})
    tm.drop_table(ours)


def test_a_table_with_an_index_is_phoenixs_to_write(
    phoenix: Phoenix, tm: TransactionManager, cli: Cli
) -> None:
    """It is read as before, and compacted with its index; nothing that SQL finds changes."""
    beside = Beside(phoenix, tm, cli)
    table, typed = beside.table, beside.typed
    index = f"I{uuid.uuid4().hex[:8].upper()}"
    with tm.begin() as tx:
        typed.put(tx, {"K": "a", "N": 1, "V": "x"})
    phoenix.sql.execute(f"CREATE INDEX {index} ON {table} (V) INCLUDE (N)")
    done(cli("table", "adopt", f"S.{index}", "--apply"))
    for number in range(4):
        phoenix.sql.execute(f"UPSERT INTO {table} VALUES ('b', {number}, 'v{number}')")
    phoenix.sql.execute(f"UPSERT INTO {table} VALUES ('c', 1, 'x')")
    phoenix.sql.execute(f"DELETE FROM {table} WHERE K = 'c'")
    plan = str(phoenix.sql.query(f"EXPLAIN SELECT K, N, V FROM {table} WHERE V = 'x'"))
    assert index in plan
    expected = {"a": (1, "x"), "b": (3, "v3")}
    beside.agree(expected)
    with (
        tm.begin() as tx,
        pytest.raises(ConfigError, match=rf"has indexes of Phoenix's \(S.{index}"),
    ):
        typed.put(tx, {"K": "a", "N": 2})
    with tm.begin() as tx, pytest.raises(ConfigError, match=f"S.{index} is Phoenix's index"):
        tx.table(f"S.{index}").put(b"x\x00z", {b"0:_0": b"\x01"})
    beside.agree(expected)
    # A row of an index: the value, a zero byte, the key; what it covers is named by its family.
    minded = phoenixs.table(tm, table, phoenix_indexes="mine")
    with tm.begin() as tx:
        minded.put(tx, {"K": "d", "N": 4, "V": "x"})
        rows = tx.table(f"S.{index}", phoenix_indexes="mine")
        four = phoenixs.codec("BIGINT").encode(4)
        rows.put(b"x\x00d", {b"0:_0": b"\x01", b"0:0:N": four})
    expected["d"] = (4, "x")
    beside.agree(expected)
    before = cells_of(tm, table) + cells_of(tm, f"S.{index}")
    # A new oracle lets nobody commit who began before it.
    phoenix.serve()
    done(cli("compact", "run", *NO_GRACES))
    beside.agree(expected)
    assert cells_of(tm, table) + cells_of(tm, f"S.{index}") < before
    phoenix.sql.execute(f"UPSERT INTO {table} VALUES ('a', 7, 'v3')")
    expected["a"] = (7, "v3")
    beside.agree(expected)


def cells_of(tm: TransactionManager, table: str) -> int:
    """Return how many cells a table has, shadow cells among them."""
    return sum(len(row) for page in tm.store.scan(table, KeyRange(b"", b"")) for row in page)


def test_a_row_deleted_and_written_in_one_transaction_differs(
    phoenix: Phoenix, tm: TransactionManager, sql: Connection, cli: Cli
) -> None:
    """As the guide says: once the DELETE was sent, the row is hidden for both or for Phoenix."""
    beside = Beside(phoenix, tm, cli)
    table, typed = beside.table, beside.typed
    with tm.begin() as tx:
        for key in "abcde":
            typed.put(tx, {"K": key, "N": 1, "V": "x"})

    def found() -> tuple[str, str]:
        in_sql = [key for (key,) in phoenix.sql.query(f"SELECT K FROM {table} ORDER BY K")]
        with tm.begin(read_only=True) as tx:
            return "".join(in_sql), "".join(row["K"] for row in typed.scan(tx))

    for key, between in (
        ("a", ""),
        # What reads the table sends what was written before.
        ("b", f"SELECT K FROM {table}"),
        # What reads the table and writes it makes a checkpoint as well.
        ("c", f"UPSERT INTO {table} SELECT K, N + 1, V FROM {table} WHERE K = 'd'"),
    ):
        sql.execute(f"DELETE FROM {table} WHERE K = '{key}'")
        if between.startswith("SELECT"):
            sql.query(between)
        elif between:
            sql.execute(between)
        sql.execute(f"UPSERT INTO {table} VALUES ('{key}', 2, 'y')")
        sql.commit()
    assert found() == ("ade", "acde")
    with tm.begin() as tx:
        typed.delete(tx, "e")
        tx.flush()
        typed.put(tx, {"K": "e", "N": 2})
    assert found() == ("ade", "acde")


def test_a_value_of_another_type_is_said_with_its_place(
    phoenix: Phoenix, tm: TransactionManager, cli: Cli
) -> None:
    """Somebody wrote by cells what no Phoenix would."""
    table = made(phoenix, cli, "K VARCHAR PRIMARY KEY, N BIGINT")
    typed = phoenixs.table(tm, table)
    with tm.begin() as tx:
        tx.table(table).put(typed.row_key("a"), {b"0:N": b"1"})
        with pytest.raises(
            CorruptCell, match=f"table {table} row b'a' column N: b'1' is no BIGINT"
        ):
            typed.get(tx, "a")


def test_what_phoenix_makes_is_adopted_by_the_next_compaction(
    phoenix: Phoenix, tm: TransactionManager, sql: Connection, cli: Cli
) -> None:
    """By a rule, while Phoenix writes: a new index does not keep commits until somebody looks."""
    name = f"F{uuid.uuid4().hex[:8].upper()}"
    table = f"{name}.T"
    done(cli("table", "adopt", "--phoenix", "--schema", name, "--apply"))
    phoenix.sql.execute(f"CREATE TABLE {table} (K VARCHAR PRIMARY KEY, V VARCHAR) {TRANSACTIONAL}")
    phoenix.sql.execute(f"UPSERT INTO {table} VALUES ('a', 'x')")
    phoenix.sql.execute(f"CREATE INDEX I ON {table} (V)")
    sql.execute(f"UPSERT INTO {table} VALUES ('b', 'y')")
    assert sql.query(f"SELECT COUNT(*) FROM {table}") == [[2]]
    code, _, err = cli("compact", "run", *NO_GRACES)
    for adopted in (table, f"{name}.I"):
        assert f"table {adopted} was adopted by row, as is every" in err
    assert code == 0, err
    sql.commit()
    assert sql.query(f"SELECT V FROM {table} WHERE V > 'a' ORDER BY V") == [["x"], ["y"]]
    with tm.begin(read_only=True) as tx:
        assert [row["V"] for row in phoenixs.table(tm, table).scan(tx)] == ["x", "y"]
    done(cli("table", "adopt", "--no-phoenix", "--apply"))


# -- orders and payments ---------------------------------------------------------------------------


KINDS: Final = {"new_order", "payment", "delivery"}
LONGEST_S: Final = 60.0


@pytest.mark.nightly
def test_the_conditions_hold_after_a_mixed_run(phoenix: Phoenix, tm: TransactionManager) -> None:
    """Each warehouse is served by all clerks, so that they conflict."""
    size = tables.Size()
    tables.made(phoenix, tm, "TPCC", size)
    clerks = [Clerk(tm, "TPCC", size, seed=number) for number in range(2)]
    connections = [phoenix.driver.open() for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        in_sql = [
            connection.tpcc("TPCC", size, times=12, seed=number)
            for number, connection in enumerate(connections)
        ]
        in_python = [threads.submit(clerk.work, 25) for clerk in clerks]
        done = sum((Counter(one.result(LONGEST_S)) for one in in_sql), Counter[str]())
        for one in in_python:
            one.result(LONGEST_S)
    ours = sum((clerk.committed for clerk in clerks), Counter[str]())
    assert set(ours) == KINDS
    assert set(done) >= KINDS
    rows = conditions.check(phoenix, tm, "TPCC")
    assert len(rows["ORDERS"]) == ours["new_order"] + done["new_order"]
    assert len(rows["HISTORY"]) == ours["payment"] + done["payment"]
    assert 0 < len(rows["NEW_ORDER"]) < len(rows["ORDERS"])
    # What the conditions are worth: an update that is lost breaks one of them, for either reader.
    found = tables.opened(tm, "TPCC")
    with tm.begin() as tx:
        first = rows["DISTRICT"][0]
        found["DISTRICT"].put(tx, {**first, "D_YTD": first["D_YTD"] + Decimal("0.01")})
        oldest = rows["NEW_ORDER"][0]
        found["NEW_ORDER"].delete(tx, tuple(oldest.values()))
    with tm.begin(read_only=True) as tx:
        broken = conditions.broken(conditions.by_python(tx, found))
    assert {one[:2] for one in broken} >= {"1,", "5,", "9,"}
    assert "1, W_YTD is the sum of D_YTD" in conditions.broken_in_sql(phoenix.sql, "TPCC")


# -- what a compaction brings, and the page that tells it ------------------------------------------


@pytest.fixture
def java(phoenix: Phoenix) -> Iterator[JavaDriver]:
    """Return what can do with HBase what SQL cannot."""
    with JavaDriver(zookeeper=phoenix.hbase.zookeeper) as driver:
        yield driver


@pytest.mark.nightly
def test_a_major_compaction_frees_what_ours_has_dropped(
    phoenix: Phoenix, tm: TransactionManager, sql: Connection, cli: Cli, java: JavaDriver
) -> None:
    """And nothing that SQL finds changes; the page for Phoenix's users has these numbers."""
    table = f"M{uuid.uuid4().hex[:8].upper()}.STOCK"
    index = table.replace("STOCK", "BY_PLACE")
    phoenix.sql.execute(
        f"CREATE TABLE {table} (K VARCHAR PRIMARY KEY, N BIGINT, PLACE VARCHAR) {TRANSACTIONAL}"
    )
    phoenix.sql.execute(f"CREATE INDEX BY_PLACE ON {table} (PLACE) INCLUDE (N)")
    for number in range(10):
        for key in range(20):
            sql.execute(
                f"UPSERT INTO {table} VALUES ('k{key:02}', {number}, 'p{(key + number) % 7}')"
            )
        sql.commit()
    query = f"SELECT K, N, PLACE FROM {table} WHERE PLACE > 'p2' ORDER BY PLACE, K"
    expected = phoenix.sql.query(query)
    assert len(expected) > 5

    def cells(name: str) -> int:
        return len(java.call("admin.raw", table=name))

    counts = {name: [cells(name)] for name in (table, index)}
    for name in (table, index):
        done(cli("table", "adopt", name, "--apply"))
    phoenix.serve()
    done(cli("compact", "run", *NO_GRACES))
    for name in (table, index):
        counts[name].append(cells(name))
        java.call("admin.major_compact", table=name)
        counts[name].append(cells(name))
        before, ours, majors = counts[name]
        # What ours drops gets delete markers, which go with it at HBase's next major compaction.
        assert ours >= majors
        assert majors < before / 5
    assert phoenix.sql.query(query) == expected
    plain = f"SELECT /*+ NO_INDEX */ K, N, PLACE FROM {table} WHERE PLACE > 'p2' ORDER BY PLACE, K"
    assert phoenix.sql.query(plain) == expected


@pytest.mark.nightly
def test_omids_coprocessor_takes_nothing_away(
    phoenix: Phoenix, tm: TransactionManager, cli: Cli, java: JavaDriver
) -> None:
    """It drops by start timestamps, and with a marker whatever the row holds (I8, I10).

    So it must find no watermark of ours: neither a snapshot that is held lost its version, nor
    everybody a row that was deleted by a client in Java and written again.
    """
    table = f"c{uuid.uuid4().hex[:8]}"
    tm.create_table(table, families=["cf"])
    coprocessor = "|org.apache.omid.transaction.OmidCompactor|1001|"
    tm.store.set_table_attributes(table, {"coprocessor$1": coprocessor})
    phoenix.serve("--max-transaction-age", "1s")
    theirs = JavaManager(java, phoenix.address)
    for value in (b"1", b"", b"2"):
        with theirs.begin() as tx:
            if value:
                tx.put(table, b"again", {b"cf:q": value})
            else:
                tx.delete(table, b"again")
    with tm.begin() as ours:
        ours.table(table).put(b"held", {b"cf:q": b"old"})
    writer = tm.begin()
    writer.table(table).put(b"held", {b"cf:q": b"new"})
    held = tm.snapshot()
    tm.hold(held, for_s=600)
    writer.commit()
    while tm.low_watermark() <= writer.start_ts:
        tm.begin().rollback()
    code, _, err = cli("compact", "run", "--tables", table, *NO_GRACES)
    assert code in (0, 3), err  # tables of other tests may lag behind
    horizon = Watermarks(ControlTable(tm.store)).collection_horizon()
    assert writer.start_ts < horizon <= held.start_ts
    phoenix.serve()  # Its first batch has a sample.
    theirs.begin().rollback()
    java.call("admin.major_compact", table=table)
    with tm.begin(read_only=True) as reader:
        rows = {b"again": {b"cf:q": b"2"}, b"held": {b"cf:q": b"new"}}
        assert dict(reader.table(table).scan()) == rows
    assert held.table(table).row(b"held") == {b"cf:q": b"old"}
    theirs.close()
    tm.drop_table(table)


def test_the_guide_to_phoenix_runs_as_printed(phoenix: Phoenix, tmp_path: Path) -> None:
    """From Omid's oracle to ours in five commands, and back in one; SQL finds what it had."""
    sql = phoenix.sql
    phoenix.serve_omids(tmp_path / "before")
    sql.execute(
        f"CREATE TABLE SHOP.STOCK (K VARCHAR PRIMARY KEY, N BIGINT, PLACE VARCHAR) {TRANSACTIONAL}"
    )
    sql.execute("CREATE INDEX BY_PLACE ON SHOP.STOCK (PLACE)")
    sql.execute(
        "CREATE TABLE SHOP.PLACES (SHELF INTEGER NOT NULL, SIDE CHAR(5) NOT NULL, SINCE DATE "
        f"CONSTRAINT PK PRIMARY KEY (SHELF, SIDE)) {TRANSACTIONAL}"
    )
    sql.execute("UPSERT INTO SHOP.STOCK VALUES ('apple', 3, 'cellar')")
    sql.execute("UPSERT INTO SHOP.STOCK (K) VALUES ('pear')")
    folder = tmp_path / "page"
    folder.mkdir()
    pid_file = tmp_path / "omid-tso.pid"
    pid_file.write_text(str(phoenix.omids_pid))
    addresses = {
        "gateway:9090": phoenix.hbase.gateways[0],
        "omid:24758": phoenix.address,
        "/var/run/omid-tso.pid": str(pid_file),
    }
    try:
        with PageRun(ROOT / "docs" / "guide" / "phoenix.md", folder, addresses=addresses) as run:
            run.run()
        phoenix.serve_omids(tmp_path / "after")
        assert sql.query("SELECT K FROM SHOP.STOCK WHERE PLACE = 'cellar'") == [["apple"]]
        assert sql.query("SELECT SHELF, SIDE, SINCE FROM SHOP.PLACES") == [[1, "left", None]]
        sql.execute("UPSERT INTO SHOP.PLACES (SHELF, SIDE) VALUES (3, 'right')")
    finally:
        phoenix.serve()
