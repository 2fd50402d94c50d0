"""A happybase connection leaves tables alone that transactions write, also from now on."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE
from omidpy.base.timing.clock import SystemClock
from omidpy.errors import StorageUnavailable, UsageError
from omidpy.happybase import session
from omidpy.happybase.connection import Connection
from omidpy.happybase.pool import ConnectionPool
from omidpy.happybase.session import PlainSession
from omidpy.storage.hbase.native.values import TableDescriptor
from tests.machines.waiting import wait_for
from tests.unit.storage.hbase.native.test_registry import Server


class Master:
    """HBase's master, as far as a connection asks it."""

    def __init__(self) -> None:
        """Have plain tables."""
        self.attributes: dict[bytes, bytes] = {}
        self.asked = 0
        self.dropped: list[str] = []

    def descriptor(self, table: str) -> TableDescriptor:
        """Describe a table."""
        self.asked += 1
        return TableDescriptor(table, (), self.attributes, {})

    def drop(self, table: str) -> None:
        """Remove one."""
        self.dropped.append(table)


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    """Return what connections ask."""
    made = Master()
    monkeypatch.setattr(PlainSession, "admin", made)
    return made


def connection() -> Connection:
    """Return one that has asked nobody yet."""
    return Connection("localhost", autoconnect=False)


def test_a_table_that_was_adopted_meanwhile_is_not_written(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs have connections open for months, and operators adopt tables in between."""
    now_s = 1000.0
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda: now_s)
    one = connection()
    for _ in range(3):
        one.check_plain(b"t")
    assert master.asked == 1
    master.attributes[COMMIT_TABLE_ATTRIBUTE.encode()] = b"OMID_COMMIT_TABLE"
    now_s += session.PLAIN_AGE_S
    with pytest.raises(UsageError, match="written by transactions"):
        one.check_plain(b"t")


def test_a_table_that_was_adopted_a_moment_ago_is_not_removed(master: Master) -> None:
    """Nothing would bring back what transactions have written there."""
    one = connection()
    one.check_plain(b"t")
    master.attributes[COMMIT_TABLE_ATTRIBUTE.encode()] = b"OMID_COMMIT_TABLE"
    with pytest.raises(UsageError, match="written by transactions"):
        one.delete_table("t")
    assert master.dropped == []


def world() -> Server:
    """Return an HBase that says where its parts are."""
    return Server(b"one")


def descriptors() -> int:
    """Return how many files are open."""
    return len([*Path("/proc/self/fd").iterdir()])


def test_threads_that_open_at_once_share_one_client() -> None:
    """What another one has opened would be nobody's, and open for as long as it is not found."""
    server = world()
    with server.fake as fake, ThreadPoolExecutor(8) as threads:
        one = Connection(f"hbase+rpc://127.0.0.1:{fake.port}", autoconnect=False)
        before = descriptors()
        for _ in range(20):
            for done in [threads.submit(one.open) for _ in range(8)]:
                done.result()
            found = {id(threads.submit(lambda: one.native).result()) for _ in range(8)}
            assert len(found) == 1
            one.close()
        wait_for(lambda: descriptors() < before + 16, longest_s=10)


def test_a_connection_that_nobody_has_is_closed() -> None:
    """As happybase's; a program with many objects looks for such ones seldom."""
    server = world()
    gc.collect()
    gc.disable()
    try:
        with server.fake as fake:
            before = descriptors()
            for _ in range(30):
                Connection(f"hbase+rpc://127.0.0.1:{fake.port}")
            wait_for(lambda: descriptors() < before + 10, longest_s=10)
    finally:
        gc.enable()


def test_who_closes_what_a_pool_lends_leaves_it_to_others() -> None:
    """With happybase each thread has one of its own, and closes that after an error."""
    server = world()
    with server.fake as fake:
        pool = ConnectionPool(
            2, host=f"hbase+rpc://127.0.0.1:{fake.port}", autoconnect=False, timeout=5000
        )
        assert fake.methods == ["GetClusterId", "GetBootstrapNodes"]
        with pool.connection() as mine:
            with pool.connection() as theirs:
                theirs.close()
            assert mine.native is theirs.native
            mine.close()
            with pytest.raises(StorageUnavailable, match="not open"):
                mine.tables()
        with pool.connection() as again:
            assert again.native is not None
            again.close()
