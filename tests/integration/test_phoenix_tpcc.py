"""TPC-C's conditions hold after clerks in SQL and in Python have served the same warehouses.

Its transactions keep sums and counts over several tables together: an update that is lost, half a
transaction, or a row that one of both does not see breaks a condition.  They are judged by the
rows that either reads, which are the same, and by SQL's own sums.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.base.tables import CONFLICT_LEVEL_ATTRIBUTE
from omidpy.cli import main
from omidpy.errors import OmidError
from omidpy.manager import TransactionManager
from tests.machines.java import JavaDriver, JavaError
from tests.machines.phoenix import Phoenix
from tests.machines.phoenix_mortals import Mortals
from tests.machines.tpcc import conditions, tables
from tests.machines.tpcc.clerk import Clerk
from tests.machines.tpcc.tables import Size

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

CLERKS: Final = 2
"""Of each kind."""
KINDS: Final = {"new_order", "payment", "delivery"}
ROUNDS: Final = 8
ROUND_S: Final = 10.0
LONGEST_S: Final = 60.0


@pytest.fixture(scope="module")
def tm(phoenix: Phoenix) -> Iterator[TransactionManager]:
    """Return a client of ours."""
    with omidpy.connect(phoenix.url, phoenix.address) as manager:
        yield manager


def cli(phoenix: Phoenix, *words: str) -> None:
    """Run a command, which must not fail."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--store", phoenix.url, "--tso", phoenix.address])
    assert not ended.value.code, (words, ended.value.code)


def made(phoenix: Phoenix, tm: TransactionManager, schema: str, size: Size) -> None:
    """Make the tables in SQL, adopt them, and fill them."""
    tables.make(phoenix.sql, schema)
    # Each is changed in HBase, which is mostly waiting.
    with ThreadPoolExecutor(len(tables.TABLES)) as threads:
        for done in [
            threads.submit(cli, phoenix, "table", "adopt", f"{schema}.{name}", "--apply")
            for name in (*tables.TABLES, tables.BY_LAST)
        ]:
            done.result(LONGEST_S)
    sql = phoenix.driver.open()
    tables.fill(sql, tm, schema, size)
    sql.close()


def check(phoenix: Phoenix, tm: TransactionManager, schema: str) -> conditions.Rows:
    """Judge the rows that Python reads, those that SQL finds, and SQL's sums; nobody writes."""
    opened = tables.opened(tm, schema)
    with tm.begin(read_only=True) as tx:
        ours = conditions.by_python(tx, opened)
    assert conditions.broken(ours) == []
    assert conditions.by_sql(phoenix.sql, schema, opened) == ours
    assert conditions.broken_in_sql(phoenix.sql, schema) == []
    return ours


def test_the_conditions_hold_after_a_mixed_run(phoenix: Phoenix, tm: TransactionManager) -> None:
    """Each warehouse is served by all clerks, so that they conflict."""
    size = Size()
    made(phoenix, tm, "TPCC", size)
    clerks = [Clerk(tm, "TPCC", size, seed=number) for number in range(CLERKS)]
    connections = [phoenix.driver.open() for _ in range(CLERKS)]
    with ThreadPoolExecutor(CLERKS) as threads:
        in_sql = [
            connection.tpcc("TPCC", size, times=20, seed=number)
            for number, connection in enumerate(connections)
        ]
        in_python = [threads.submit(clerk.work, 30) for clerk in clerks]
        done = sum((Counter(one.result(LONGEST_S)) for one in in_sql), Counter[str]())
        for one in in_python:
            one.result(LONGEST_S)
    ours = sum((clerk.committed for clerk in clerks), Counter[str]())
    assert set(ours) == KINDS
    assert set(done) >= KINDS
    rows = check(phoenix, tm, "TPCC")
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


# -- while everything happens to them --------------------------------------------------------------


def check_meanwhile(phoenix: Phoenix, tm: TransactionManager, schema: str) -> None:
    """Judge what a snapshot of either shows while clerks write."""
    opened = tables.opened(tm, schema)
    with tm.begin(read_only=True) as tx:
        assert conditions.broken(conditions.by_python(tx, opened)) == []
    sql = phoenix.driver.open()
    try:
        assert conditions.broken(conditions.by_sql(sql, schema, opened)) == []
        sql.rollback()
        assert conditions.broken_in_sql(sql, schema) == []
    finally:
        sql.close()


@pytest.mark.nightly
def test_the_conditions_hold_whatever_happens(
    phoenix: Phoenix, tm: TransactionManager, tmp_path: Path
) -> None:
    """Clerks of both kinds are killed, both oracles serve, tables are split and compacted.

    Meanwhile Phoenix makes an index, which the next compaction adopts by a rule.
    """
    schema, size, chance = "TPCCLONG", Size(warehouses=3, customers=9, items=20), random.Random(73)
    made(phoenix, tm, schema, size)
    cli(phoenix, "table", "adopt", "--phoenix", "--schema", schema, "--apply")
    with (
        JavaDriver(zookeeper=phoenix.hbase.zookeeper) as java,
        Mortals(
            phoenix,
            in_sql=lambda connection, seed: sum(
                count
                for kind, count in connection.tpcc(schema, size, times=10, seed=seed)
                .result(LONGEST_S)
                .items()
                if kind in KINDS
            ),
            in_python=lambda seed: (
                "tests.machines.tpcc",
                *(phoenix.url, phoenix.address, schema, str(seed), *size.words()),
            ),
        ) as mortals,
    ):
        for number in range(ROUNDS):
            deadline_s = time.monotonic() + ROUND_S
            while time.monotonic() < deadline_s:
                time.sleep(chance.uniform(0.5, 3.0))
                mortals.kill(chance)
            check_meanwhile(phoenix, tm, schema)
            if number % 4 == 2:
                phoenix.serve_omids(tmp_path / f"omid-{number}")
            elif number % 4 == 3:
                phoenix.serve()
            if number == 1:
                phoenix.sql.execute(f"CREATE INDEX BY_NAME ON {schema}.CUSTOMER (C_LAST)")
            if number in (0, 5):
                at = b"\x80\x00\x00" + bytes((2 + number // 5,))
                java.call("admin.split", table=f"{schema}.STOCK", at=at.hex())
            if phoenix.server is not None:
                cli(phoenix, "compact", "run", "--grace", "0s", "--retention", "0s", "--collect")
            if number % 2:
                for table in ("DISTRICT", "ORDER_LINE", "CUSTOMER"):
                    java.call("admin.major_compact", table=f"{schema}.{table}")
            with contextlib.suppress(OmidError, JavaError):
                check_meanwhile(phoenix, tm, schema)
    cli(phoenix, "table", "adopt", "--no-phoenix", "--apply")
    rows = check(phoenix, tm, schema)
    index = tm.store.schema(f"{schema}.BY_NAME")
    assert index.attributes[CONFLICT_LEVEL_ATTRIBUTE] == "row"
    names = phoenix.sql.query(f"SELECT C_LAST, COUNT(*) FROM {schema}.CUSTOMER GROUP BY C_LAST")
    assert sum(count for _, count in names) == len(rows["CUSTOMER"])
    # What was counted may have been counted before its program was killed, and not after.
    assert len(rows["ORDERS"]) + len(rows["HISTORY"]) > mortals.moved / 2
    assert mortals.moved > ROUNDS
    assert mortals.committed > ROUNDS
