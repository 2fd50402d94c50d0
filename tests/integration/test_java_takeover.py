"""Oracles of both kinds take over from each other, and the clients of both find the next one.

ZooKeeper says who answers, as Omid has it; nobody is told an address.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

import omidpy
from compactor.run.local import compact
from omidpy.base.commit_facts import INVALID
from omidpy.errors import OracleUnavailable, TransactionAborted
from omidpy.facts.commit_table import CommitTable, read_leading_low_watermark
from omidpy.manager import TransactionManager
from omidpy.storage.base import Store
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.hbase import HBase, Road
from tests.machines.java import JavaDriver, JavaError, JavaOracle
from tests.machines.java_client import JavaManager, JavaTransaction
from tests.machines.java_world import shared_store
from tests.machines.processes import ServerProcess, tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT

TABLE = "takeover"
PATIENCE_S = 60.0
POLL_S = 0.05

T = TypeVar("T")


@pytest.fixture(scope="module")
def store(hbase: HBase) -> Iterator[Store]:
    """Open the HBase as our clients do, with Omid's tables and ours."""
    with shared_store(hbase) as store:
        yield store


@pytest.fixture(scope="module")
def driver(hbase: HBase, store: Store) -> Iterator[JavaDriver]:
    """Run Omid's classes beside it."""
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        yield driver


@pytest.fixture
def namespace() -> str:
    """Return a part of ZooKeeper that no other test uses."""
    return f"java-{random.SystemRandom().randrange(10**12)}"


@pytest.fixture
def lease(hbase: HBase, namespace: str) -> str:
    """Return where the oracles compete: as Omid's do, with a period of two seconds."""
    return f"zk://{hbase.zookeeper}/{namespace}?period=2s"


@pytest.fixture
def our_server(hbase: HBase, lease: str, store: Store) -> Iterator[ServerProcess]:
    """Run our oracle."""
    with tso_server(hbase.url, "--lease", lease) as server:
        assert server.address
        yield server


@contextmanager
def in_java(driver: JavaDriver, hbase: HBase, namespace: str) -> Iterator[JavaManager]:
    """Give a client of Omid's in its mode HA."""
    manager = JavaManager(
        driver, hbase.zookeeper, mode="HA", namespace=namespace, timeout_ms=2000, retries=2
    )
    yield manager
    manager.close()


@contextmanager
def in_python(hbase: HBase, lease: str) -> Iterator[TransactionManager]:
    """Give a client of ours that looks in ZooKeeper."""
    with omidpy.connect(hbase.url, lease, post_commit="sync") as manager:
        if TABLE not in manager.tables():
            manager.create_table(TABLE, families=["cf"])
        yield manager
        manager.store.drop_table(TABLE)  # no oracle of ours is left, which would fence it off


def begun_in_java(java: JavaManager, *, after: int) -> JavaTransaction:
    """Begin a transaction with the oracle that follows the one of timestamp `after`.

    Omid's client refuses everything for a second after each failure.
    """

    def begun() -> JavaTransaction | None:
        try:
            transaction = java.begin()
        except JavaError:
            return None
        return transaction if transaction.epoch > after else None

    return until(begun, "Omid's client does not find the next oracle")


def begun_in_python(ours: TransactionManager) -> omidpy.Transaction:
    """Begin a transaction once an oracle answers again."""

    def begun() -> omidpy.Transaction | None:
        try:
            return ours.begin()
        except OracleUnavailable:
            return None

    return until(begun, "our client does not find the next oracle")


def until(attempt: Callable[[], T | None], otherwise: str) -> T:
    """Return what an attempt returns once it succeeds."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (found := attempt()) is None:
        assert time.monotonic() < deadline_s, otherwise
        time.sleep(POLL_S)
    return found


def test_clients_of_both_kinds_follow_from_our_oracle_to_omid_s_and_back(
    hbase: HBase,
    store: Store,
    driver: JavaDriver,
    our_server: ServerProcess,
    lease: str,
    namespace: str,
    tmp_path: Path,
) -> None:
    """Timestamps only rise, what had committed stays, what was open is refused."""
    with (
        in_python(hbase, lease) as ours,
        in_java(driver, hbase, namespace) as java,
    ):
        with java.begin() as first:
            first.put(TABLE, b"java", {b"cf:n": b"1"})
        with ours.begin() as second:
            second.table(TABLE).put(b"ours", {b"cf:n": b"1"})
        assert 0 < first.epoch < first.start_ts < second.start_ts
        open_in_java, open_in_python = java.begin(), ours.begin()
        open_in_java.put(TABLE, b"java", {b"cf:n": b"lost"})
        open_in_python.table(TABLE).put(b"ours", {b"cf:n": b"lost"})
        open_in_python.flush()

        our_server.kill()
        with JavaOracle(hbase.zookeeper, tmp_path, has_lease=True, namespace=namespace) as omids:
            third = begun_in_java(java, after=open_in_python.start_ts)
            assert third.epoch > open_in_python.start_ts
            assert third.row(TABLE, b"java") == {b"cf:n": b"1"}
            # Omid's reader met a cell of an older epoch that nobody had decided, and forbade it.
            entries = CommitTable(store).read([open_in_python.start_ts])
            assert third.row(TABLE, b"ours") == {b"cf:n": b"1"}
            assert entries == {open_in_python.start_ts: None}
            entries = CommitTable(store).read([open_in_python.start_ts])
            assert entries == {open_in_python.start_ts: INVALID}
            with pytest.raises(JavaError) as caught:
                open_in_java.commit()
            assert caught.value.type == "RollbackException"
            with pytest.raises(TransactionAborted):
                open_in_python.commit()
            third.put(TABLE, b"java", {b"cf:n": b"2"})
            third.commit()
            fourth = begun_in_python(ours)
            assert fourth.start_ts > third.start_ts
            assert fourth.table(TABLE).row(b"java") == {b"cf:n": b"2"}
            fourth.table(TABLE).put(b"ours", {b"cf:n": b"2"})
            fourth.commit()
            # Ours stays where it was; a compaction goes by that of the oracle which leads.
            assert read_leading_low_watermark(store) == (third.epoch, True)
            report = compact(store, ALL_AT_ONCE)
            assert (report.low_watermark, report.horizon) == (third.epoch, third.epoch)
            assert CommitTable(store).read([open_in_python.start_ts]) == {
                open_in_python.start_ts: None
            }
            omids.kill()

        with tso_server(hbase.url, "--lease", lease) as successor:
            assert successor.address
            fifth = begun_in_java(java, after=fourth.start_ts)
            assert fifth.row(TABLE, b"ours") == {b"cf:n": b"2"}
            fifth.put(TABLE, b"java", {b"cf:n": b"3"})
            fifth.commit()
            sixth = begun_in_python(ours)
            assert sixth.start_ts > fifth.start_ts
            found = dict(sixth.table(TABLE).scan())
            assert found == {b"java": {b"cf:n": b"3"}, b"ours": {b"cf:n": b"2"}}
            sixth.rollback()
            leading = read_leading_low_watermark(store)
            assert not leading.is_omids
            assert fourth.start_ts < leading.value < fifth.start_ts
