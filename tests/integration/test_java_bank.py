"""Money moves between accounts in two languages while clients die and the compactor runs.

The sum of all accounts is the same in every snapshot of either language, at any moment.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

import omidpy
from compactor.options import Options
from compactor.report import Report
from compactor.run.local import compact
from omidpy.errors import TransactionAborted
from omidpy.facts.commit_table import CommitTable
from omidpy.manager import TransactionManager
from omidpy.storage.base import Store
from tests.machines.hbase import HBase, Road
from tests.machines.java import JavaDriver, JavaError
from tests.machines.java_client import JavaManager
from tests.machines.java_world import shared_store
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT

TABLE: Final = "bank"
BALANCE: Final = b"cf:balance"
ACCOUNTS: Final = [b"account%d" % number for number in range(8)]
TOTAL: Final = 100 * len(ACCOUNTS)
ENTRIES_PRUNED: Final = 1
"""How many entries of dead clients the compactor removes at least among the living."""
LONGEST_S: Final = 300.0
# Nothing gets lost here but clients, so no client looks for an entry that is gone.
OPTIONS: Final = Options(grace_s=0, invalidation_grace_s=0, retention_s=3600)
PACE_S: Final = 0.05
"""How long a worker rests between two moves, or reads.

All versions are kept, and one row in eight is everybody's: without a rest they write thousands of
versions, which each later read and each page of the compaction has to pass over.
"""
DEATHS: Final = (*("never",) * 6, "before_commit", "after_commit", "before_completion")


@pytest.fixture
def store(hbase: HBase) -> Iterator[Store]:
    """Open the HBase as our clients do, with Omid's tables and ours."""
    with shared_store(hbase) as store:
        yield store


@pytest.fixture
def address(hbase: HBase, store: Store) -> Iterator[str]:
    """Run our oracle; what is older than two seconds can no longer commit."""
    with tso_server(hbase.url, "--max-transaction-age", "2s") as server:
        yield server.address


@pytest.fixture
def ours(hbase: HBase, address: str) -> Iterator[TransactionManager]:
    """Return our client, with the accounts."""
    with omidpy.connect(hbase.url, address) as manager:
        manager.create_table(TABLE, families=["cf"], splits=[ACCOUNTS[4]])
        with manager.begin() as tx:
            for account in ACCOUNTS:
                tx.table(TABLE).put(account, {BALANCE: b"100"})
        yield manager
        manager.drop_table(TABLE)


@pytest.fixture
def driver(hbase: HBase) -> Iterator[JavaDriver]:
    """Run Omid's classes."""
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        yield driver


def move_in_python(ours: TransactionManager, dice: random.Random) -> None:
    """Move some money, in one transaction."""
    source, target = dice.sample(ACCOUNTS, 2)
    with ours.begin() as tx:
        accounts = tx.table(TABLE)
        for account, change in ((source, -1), (target, 1)):
            balance = int(accounts.row(account)[BALANCE])
            accounts.put(account, {BALANCE: b"%d" % (balance + change)})


def move_in_java(java: JavaManager, dice: random.Random) -> None:
    """Move some money, and perhaps die of it."""
    source, target = dice.sample(ACCOUNTS, 2)
    java.ends_at(dice.choice(DEATHS))
    tx = java.begin()
    for account, change in ((source, -1), (target, 1)):
        balance = int(tx.row(TABLE, account)[BALANCE])
        tx.put(TABLE, account, {BALANCE: b"%d" % (balance + change)})
    tx.commit()


def sum_of(rows: dict[bytes, dict[bytes, bytes]]) -> int:
    """Return what all accounts hold together."""
    assert set(rows) == set(ACCOUNTS)
    return sum(int(row[BALANCE]) for row in rows.values())


def repeat(is_enough: threading.Event, work: Callable[[], None]) -> int:
    """Do something until it is enough, with rests; return how often."""
    count = 0
    while not is_enough.wait(PACE_S):
        work()
        count += 1
    return count


def tolerant(move: Callable[[], None]) -> None:
    """Move money, and take a refusal or a death for what it is."""
    try:
        move()
    except TransactionAborted:
        return
    except JavaError as error:
        if error.type not in {"RollbackException", "Abandoned"}:
            raise


def test_the_sum_of_all_accounts_never_changes(
    ours: TransactionManager, driver: JavaDriver, address: str, store: Store
) -> None:
    """Two writers and a reader of each language; the compactor heals, forbids and prunes."""
    is_enough = threading.Event()
    reader_in_java = JavaManager(driver, address)

    def write_in_python(seed: int) -> int:
        dice = random.Random(seed)
        return repeat(is_enough, lambda: tolerant(lambda: move_in_python(ours, dice)))

    def write_in_java(seed: int) -> int:
        dice = random.Random(seed)
        java = JavaManager(driver, address)
        count = repeat(is_enough, lambda: tolerant(lambda: move_in_java(java, dice)))
        java.close()
        return count

    def read_in_python() -> int:
        def read() -> None:
            assert sum_of(dict(ours.begin(read_only=True).table(TABLE).scan())) == TOTAL

        return repeat(is_enough, read)

    def read_in_java() -> int:
        def read() -> None:
            assert sum_of(dict(reader_in_java.begin().scan(TABLE))) == TOTAL

        return repeat(is_enough, read)

    reports: list[Report] = []
    with ThreadPoolExecutor(6) as pool:
        writers = (write_in_python, write_in_java)
        workers = [pool.submit(write, seed) for seed, write in enumerate(writers * 2)]
        workers += [pool.submit(read_in_python), pool.submit(read_in_java)]
        try:
            deadline_s = time.monotonic() + LONGEST_S
            while sum(report.entries_pruned for report in reports) < ENTRIES_PRUNED:
                assert time.monotonic() < deadline_s, "the compactor finds nothing to prune"
                assert not any(worker.done() for worker in workers), "a worker has failed"
                reports.append(compact(store, OPTIONS))
                assert reports[-1].laggards == []
        finally:
            is_enough.set()
            counts = [worker.result(LONGEST_S) for worker in workers]
        assert all(count > 0 for count in counts)

    # Whatever the dead left is old enough once the low watermark has passed the last of it.
    last = ours.begin()
    last.rollback()
    while ours.low_watermark() < last.start_ts:
        assert time.monotonic() < deadline_s, "the low watermark does not rise"
        ours.begin().rollback()
    reports.append(compact(store, OPTIONS))
    assert sum(report.transactions_invalidated for report in reports) > 0
    assert sum(report.cells_dropped for report in reports) > 0
    left = {row.start_ts for page in CommitTable(store).scan() for row in page}
    assert not [start_ts for start_ts in left if start_ts <= last.start_ts]
    assert sum_of(dict(ours.begin().table(TABLE).scan())) == TOTAL
    assert sum_of(dict(reader_in_java.begin().scan(TABLE))) == TOTAL
