"""TPC-C's conditions hold while clerks of both kinds serve the same warehouses, and are killed.

Its transactions keep sums and counts over several tables together: an update that is lost, half a
transaction, or a row that one of both does not see breaks a condition.  They are judged by the
rows that either reads, which are the same, and by SQL's own sums.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
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
from tests.machines.tpcc.tables import Size

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.hbase,
    pytest.mark.nightly,
]

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


def test_the_conditions_hold_whatever_happens(
    phoenix: Phoenix, tm: TransactionManager, tmp_path: Path
) -> None:
    """Clerks of both kinds are killed, both oracles serve, tables are split and compacted.

    Meanwhile Phoenix makes an index, which the next compaction adopts by a rule.
    """
    schema, size, chance = "TPCCLONG", Size(warehouses=3, customers=9, items=20), random.Random(73)
    tables.made(phoenix, tm, schema, size)
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
        mortals.close()
        cli(phoenix, "table", "adopt", "--no-phoenix", "--apply")
        rows = conditions.check(phoenix, tm, schema)
        index = tm.store.schema(f"{schema}.BY_NAME")
        assert index.attributes[CONFLICT_LEVEL_ATTRIBUTE] == "row"
        names = phoenix.sql.query(f"SELECT C_LAST, COUNT(*) FROM {schema}.CUSTOMER GROUP BY C_LAST")
        assert sum(count for _, count in names) == len(rows["CUSTOMER"])
        # What was counted may have been counted before its program was killed, and not after.
        assert len(rows["ORDERS"]) + len(rows["HISTORY"]) > mortals.moved / 2
        mortals.check(least=ROUNDS)
