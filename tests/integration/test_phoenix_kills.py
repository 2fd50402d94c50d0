"""Clients of Phoenix and of ours move money between the same accounts, and are killed.

Meanwhile the table is adopted, compacted by us and by HBase, split, and served by both oracles in
turn.  Nothing is lost: the sum is what it was, and both read the same balances.
"""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest

import omidpy
from omidpy import phoenix as phoenixs
from omidpy.base.tables import CONFLICT_LEVEL_ATTRIBUTE
from omidpy.cli import main
from omidpy.errors import ConfigError, NoSuchTable, OmidError
from omidpy.manager import TransactionManager
from omidpy.model import KeyRange
from tests.machines.java import JavaDied, JavaDriver, JavaError
from tests.machines.phoenix import TRANSACTIONAL, Phoenix
from tests.machines.phoenix_mortals import Mortals

pytestmark = [
    pytest.mark.integration,
    pytest.mark.java,
    pytest.mark.hbase,
    pytest.mark.nightly,
]

TABLE, ACCOUNTS, BALANCE = "BANK.ACCOUNTS", 40, 100
ROUNDS = 8
ROUND_S = 8.0
NO_GRACES = ("--grace", "0s", "--invalidation-grace", "0s", "--retention", "0s", "--wait")


def movers(phoenix: Phoenix) -> Mortals:
    """Let both kinds work on accounts that SQL makes."""
    columns = "K VARCHAR PRIMARY KEY, N BIGINT"
    phoenix.sql.execute(f"CREATE TABLE {TABLE} ({columns}) {TRANSACTIONAL}")
    for number in range(ACCOUNTS):
        phoenix.sql.execute(f"UPSERT INTO {TABLE} VALUES ('a{number:03}', {BALANCE})")
    cli(phoenix, "table", "adopt", TABLE, "--apply")
    size = str(ACCOUNTS)
    return Mortals(
        phoenix,
        in_sql=lambda connection, seed: connection.transfers(
            TABLE, accounts=ACCOUNTS, times=20, seed=seed
        ),
        in_python=lambda seed: (
            "tests.machines.phoenix_transfers",
            *(phoenix.url, phoenix.address, TABLE, size, str(seed)),
        ),
    )


def cli(phoenix: Phoenix, *words: str) -> None:
    """Run a command, which must not fail."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--store", phoenix.url, "--tso", phoenix.address])
    assert not ended.value.code, (words, ended.value.code)


def balances(phoenix: Phoenix) -> dict[str, int]:
    """Return the balances as both read them, at one moment without writers or at two with them."""
    read = dict(phoenix.sql.query(f"SELECT K, N FROM {TABLE}"))
    assert (len(read), sum(read.values())) == (ACCOUNTS, ACCOUNTS * BALANCE)
    with omidpy.connect(phoenix.url, phoenix.address) as tm, tm.begin(read_only=True) as tx:
        ours = {row["K"]: row["N"] for row in phoenixs.table(tm, TABLE).scan(tx)}
    assert (len(ours), sum(ours.values())) == (ACCOUNTS, ACCOUNTS * BALANCE)
    return ours


def test_nothing_is_lost_while_both_kinds_of_client_are_killed(
    phoenix: Phoenix, tmp_path: Path
) -> None:
    """Under our oracle and under Omid's, compacted by us and by HBase, and split."""
    chance = random.Random(41)
    with JavaDriver(zookeeper=phoenix.hbase.zookeeper) as java, movers(phoenix) as mortals:
        for number in range(ROUNDS):
            deadline_s = time.monotonic() + ROUND_S
            while time.monotonic() < deadline_s:
                time.sleep(chance.uniform(0.5, 2.0))
                mortals.kill(chance)
            balances(phoenix)
            if number % 4 == 2:
                phoenix.serve_omids(tmp_path / f"omid-{number}")
            elif number % 4 == 3:
                phoenix.serve()
            if number in (1, 5):
                # The second time HBase may refuse: files of the first split are still referred to.
                with contextlib.suppress(*([JavaError] if number > 1 else [])):
                    java.call("admin.split", table=TABLE, at=(b"a%03d" % (10 + 3 * number)).hex())
            if phoenix.server is not None:
                cli(phoenix, "compact", "run", "--grace", "0s", "--retention", "0s", "--collect")
            if number % 2:
                java.call("admin.major_compact", table=TABLE)
            with contextlib.suppress(OmidError, JavaError):
                balances(phoenix)
        mortals.close()
        found = balances(phoenix)
        assert found == dict(phoenix.sql.query(f"SELECT K, N FROM {TABLE}"))
        mortals.check(least=ROUNDS)
    assert set(found.values()) != {BALANCE}


# -- a CREATE INDEX that is killed -----------------------------------------------------------------

INDEXED, BY_PLACE = "KILLED.STOCK", "KILLED.BY_PLACE"
INDEXED_ROWS, PLACES = 10_000, 100
CELLS_OF_A_ROW = 4
QUERY = f"SELECT {{}} K, N FROM {INDEXED} WHERE PLACE = 'p07' ORDER BY K"
IN_TABLE, IN_CATALOGUE, IN_ROWS = "its table is there", "Phoenix knows of it", "rows are there"


def cells_of(tm: TransactionManager, table: str) -> int | None:
    """Return how many cells a table has, shadow cells among them; None: it is not there."""
    try:
        return sum(len(row) for page in tm.store.scan(table, KeyRange(b"", b"")) for row in page)
    except NoSuchTable:
        return None


def states(phoenix: Phoenix) -> list[str]:
    """Return in which states Phoenix's catalogue has the index."""
    schema, _, name = BY_PLACE.partition(".")
    return [
        state
        for (state,) in phoenix.sql.query(
            "SELECT INDEX_STATE FROM SYSTEM.CATALOG WHERE INDEX_STATE IS NOT NULL "
            f"AND TABLE_SCHEM = '{schema}' AND TABLE_NAME = '{name}'"
        )
    ]


def kill_create_index(phoenix: Phoenix, tm: TransactionManager, stage: str) -> None:
    """Begin a CREATE INDEX, and kill who does it when it has come to a stage."""
    with phoenix.client() as victim:
        connection = victim.open(autocommit=True)
        future = victim.start(
            "sql.execute",
            session=connection.name,
            connection=connection.name,
            sql=f"CREATE INDEX BY_PLACE ON {INDEXED} (PLACE) INCLUDE (N)",
        )
        while not (
            cells_of(tm, BY_PLACE) is not None
            if stage == IN_TABLE
            else states(phoenix)
            if stage == IN_CATALOGUE
            else cells_of(tm, BY_PLACE)
        ):
            assert not future.done(), "the index is whole; it needs more rows"
            time.sleep(0.01)
        victim.kill()
        with pytest.raises(JavaDied):
            future.result()


def check_reading(phoenix: Phoenix, tm: TransactionManager, expected: dict[str, int]) -> None:
    """Compare what SQL finds, by the index where Phoenix takes it, and what Python does."""
    wanted = [[key, number] for key, number in sorted(expected.items())]
    assert phoenix.sql.query(QUERY.format("")) == wanted
    assert phoenix.sql.query(QUERY.format("/*+ NO_INDEX */")) == wanted
    with tm.begin(read_only=True) as tx:
        rows = phoenixs.table(tm, INDEXED).scan(tx)
        assert [[row["K"], row["N"]] for row in rows if row["PLACE"] == "p07"] == wanted


def test_a_create_index_that_is_killed_hurts_nobody(
    phoenix: Phoenix, capsys: pytest.CaptureFixture[str]
) -> None:
    """At each of three stages: what is left is read right, adopted, and made whole or again."""
    sql = phoenix.sql
    sql.execute(
        f"CREATE TABLE {INDEXED} (K VARCHAR PRIMARY KEY, N BIGINT, PLACE VARCHAR) {TRANSACTIONAL}"
    )
    cli(phoenix, "table", "adopt", "--phoenix", "--schema", "KILLED", "--apply")
    cli(phoenix, "table", "adopt", INDEXED, "--apply")
    with omidpy.connect(phoenix.url, phoenix.address) as tm:
        with tm.begin() as tx:
            stock = phoenixs.table(tm, INDEXED)
            for number in range(INDEXED_ROWS):
                place = f"p{number % PLACES:02}"
                stock.put(tx, {"K": f"k{number:05}", "N": number, "PLACE": place})
        expected = {f"k{number:05}": number for number in range(7, INDEXED_ROWS, PLACES)}
        for number, stage in enumerate((IN_TABLE, IN_CATALOGUE, IN_ROWS)):
            kill_create_index(phoenix, tm, stage)
            # An index that is not whole is used by nobody, and Phoenix goes on writing.
            sql.execute(f"UPSERT INTO {INDEXED} VALUES ('new{number}', {number}, 'p07')")
            expected[f"new{number}"] = number
            assert states(phoenix) == ([] if stage == IN_TABLE else ["b"])
            assert BY_PLACE not in str(sql.query("EXPLAIN " + QUERY.format("")))
            check_reading(phoenix, tm, expected)
            with tm.begin() as tx, pytest.raises(ConfigError, match=r"\(KILLED.BY_PLACE\)"):
                stock.put(tx, {"K": "k00000", "N": 1})
            # Adopted by the rule, whatever is in it.
            phoenix.serve()
            capsys.readouterr()
            cli(phoenix, "compact", "run", *NO_GRACES)
            assert f"table {BY_PLACE} was adopted by row" in capsys.readouterr().err
            left = cells_of(tm, BY_PLACE)
            # Rows of an index that is being built are committed as they are written.
            assert left is not None
            assert (left > 0) == (stage != IN_TABLE)
            assert left < CELLS_OF_A_ROW * INDEXED_ROWS
            check_reading(phoenix, tm, expected)
            # The same statement goes on where Phoenix does not know of the index, else a drop.
            if stage != IN_TABLE:
                sql.execute(f"DROP INDEX BY_PLACE ON {INDEXED}")
                with tm.begin() as tx:
                    stock.put(tx, {"K": "k00000", "N": 0})
            sql.execute(f"CREATE INDEX BY_PLACE ON {INDEXED} (PLACE) INCLUDE (N)")
            assert states(phoenix) == ["a"]
            assert BY_PLACE in str(sql.query("EXPLAIN " + QUERY.format("")))
            check_reading(phoenix, tm, expected)
            phoenix.serve()
            cli(phoenix, "compact", "run", *NO_GRACES)
            assert tm.store.schema(BY_PLACE).attributes[CONFLICT_LEVEL_ATTRIBUTE] == "row"
            check_reading(phoenix, tm, expected)
            sql.execute(f"DROP INDEX BY_PLACE ON {INDEXED}")
    cli(phoenix, "table", "adopt", "--no-phoenix", "--apply")
