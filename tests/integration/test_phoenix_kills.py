"""Clients of Phoenix and of ours move money between the same accounts, and are killed.

Meanwhile the table is adopted, compacted by us and by HBase, split, and served by both oracles in
turn.  Nothing is lost: the sum is what it was, and both read the same balances.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import omidpy
from omidpy import phoenix as phoenixs
from omidpy.cli import main
from omidpy.errors import OmidError
from tests.machines.java import JavaDriver, JavaError
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


@pytest.fixture
def movers(phoenix: Phoenix) -> Iterator[Mortals]:
    """Run them on accounts that SQL has made."""
    columns = "K VARCHAR PRIMARY KEY, N BIGINT"
    phoenix.sql.execute(f"CREATE TABLE {TABLE} ({columns}) {TRANSACTIONAL}")
    for number in range(ACCOUNTS):
        phoenix.sql.execute(f"UPSERT INTO {TABLE} VALUES ('a{number:03}', {BALANCE})")
    cli(phoenix, "table", "adopt", TABLE, "--apply")
    size = str(ACCOUNTS)
    with Mortals(
        phoenix,
        in_sql=lambda connection, seed: connection.transfers(
            TABLE, accounts=ACCOUNTS, times=20, seed=seed
        ),
        in_python=lambda seed: (
            "tests.machines.phoenix_transfers",
            *(phoenix.url, phoenix.address, TABLE, size, str(seed)),
        ),
    ) as running:
        yield running


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
    phoenix: Phoenix, movers: Mortals, tmp_path: Path
) -> None:
    """Under our oracle and under Omid's, compacted by us and by HBase, and split."""
    chance = random.Random(41)
    with JavaDriver(zookeeper=phoenix.hbase.zookeeper) as java:
        for number in range(ROUNDS):
            deadline_s = time.monotonic() + ROUND_S
            while time.monotonic() < deadline_s:
                time.sleep(chance.uniform(0.5, 2.0))
                movers.kill(chance)
            balances(phoenix)
            if number % 4 == 2:
                phoenix.serve_omids(tmp_path / f"omid-{number}")
            elif number % 4 == 3:
                phoenix.serve()
            if number in (1, 5):
                java.call("admin.split", table=TABLE, at=(b"a%03d" % (10 + 3 * number)).hex())
            if phoenix.server is not None:
                cli(phoenix, "compact", "run", "--grace", "0s", "--retention", "0s", "--collect")
            if number % 2:
                java.call("admin.major_compact", table=TABLE)
            with contextlib.suppress(OmidError, JavaError):
                balances(phoenix)
    movers.close()
    found = balances(phoenix)
    assert found == dict(phoenix.sql.query(f"SELECT K, N FROM {TABLE}"))
    assert movers.moved > ROUNDS
    assert movers.committed > ROUNDS
    assert set(found.values()) != {BALANCE}
