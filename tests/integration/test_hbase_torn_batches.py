"""A batch of rows is applied in part, because HBase does not serve one of its two regions.

The gateway goes on trying for its client, also when that is dead: what it still owes arrives when
the region is served again.  The same states, made by hand and at every step: `test_crashes.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

import omidpy
from omidpy.base.cells import is_shadow_qualifier
from omidpy.errors import CommitOutcomeUnknown
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Cell, Committed, Timestamp
from omidpy.storage.base import Store
from tests.machines.hbase import HBase
from tests.machines.hbase_store import one_region_store
from tests.machines.java import JavaDriver
from tests.machines.processes import ServerProcess
from tests.machines.scripts import Child
from tests.machines.workload import check_clean

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

TABLE = "pairs"
COLUMN = b"cf:q"
SERVED, CLOSED = b"a", b"z"
DEADLINE_S = 60.0

CLIENT = f"""
import sys
import omidpy

url, tso = sys.argv[1:]
tm = omidpy.connect(url, tso, post_commit="sync")

def reach(step):
    print(step, flush=True)
    sys.stdin.readline()

tm.session.on_step = reach
tx = tm.begin()
print(tx.start_ts, flush=True)
for row in {SERVED!r}, {CLOSED!r}:
    tx.table({TABLE!r}).put(row, {{{COLUMN!r}: b"new"}})
tx.commit()
"""


@dataclass
class Pair:
    """Two rows in two regions, of which one can be closed."""

    store: Store
    server: ServerProcess
    driver: JavaDriver

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Let nobody serve the second row's region meanwhile."""
        self.driver.call("admin.close", table=TABLE, at=CLOSED.hex())
        try:
            yield
        finally:
            self.driver.call("admin.open", table=TABLE, at=CLOSED.hex())

    def wait_for_cell(self, row: bytes, start_ts: int, *, is_shadow: bool) -> Cell:
        """Return a cell of a transaction, or its shadow cell, once it is there."""
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            for cell in self.store.get(TABLE, [row], min_version=start_ts)[0]:
                if is_shadow_qualifier(cell.qualifier) is is_shadow:
                    return cell
        raise AssertionError(f"{row!r} has no such cell")

    @contextmanager
    def manager(self) -> Iterator[TransactionManager]:
        """Connect a client."""
        with omidpy.connect(self.store.url, self.server.address, post_commit="none") as tm:
            yield tm

    def start_client(self, step: str) -> tuple[Child, int]:
        """Start a client that writes both rows, and let it go up to a step, where it waits."""
        child = Child(CLIENT, self.store.url, self.server.address)
        start_ts = int(child.line())
        while child.line() != step:
            child.say("go on")
        return child, start_ts

    def check_after_compaction(self, expected: bytes) -> None:
        """Begin an epoch, compact, and look at both rows and at what is left."""
        assert self.server.terminate() == 0
        address = self.server.address
        self.server.close()
        self.server = ServerProcess(self.store.url, listen=address)
        assert self.server.address
        check_clean(self.store, [TABLE])
        with self.manager() as tm:
            assert seen(tm, SERVED, CLOSED) == {SERVED: expected, CLOSED: expected}


def seen(tm: TransactionManager, *rows: bytes) -> dict[bytes, bytes]:
    """Return what a fresh reader finds in rows."""
    with tm.begin(read_only=True) as tx:
        return {row: data[COLUMN] for row, data in tx.table(TABLE).rows(rows)}


@pytest.fixture(scope="module")
def driver(hbase: HBase) -> Iterator[JavaDriver]:
    """Run an administrator's process: Thrift has no commands for regions."""
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        yield driver


@pytest.fixture
def pair(hbase: HBase, driver: JavaDriver) -> Iterator[Pair]:
    """Return two rows that hold the same old value."""
    with one_region_store(hbase) as store:
        pair = Pair(store, ServerProcess(store.url), driver)
        try:
            with pair.manager() as tm:
                tm.create_table(TABLE, ["cf"], splits=[b"m"])
                with tm.begin() as tx:
                    for row in (SERVED, CLOSED):
                        tx.table(TABLE).put(row, {COLUMN: b"old"})
            yield pair
        finally:
            pair.server.close()


def test_half_of_a_flush_is_nothing_also_when_the_rest_arrives_late(pair: Pair) -> None:
    """The client is dead by then, and somebody was told that it had not committed."""
    child, start_ts = pair.start_client("before-flush")
    with child, pair.manager() as tm:
        with pair.closed():
            child.say("go on")
            cell = pair.wait_for_cell(SERVED, start_ts, is_shadow=False)
            child.process.kill()
            assert child.wait() == -9
            assert seen(tm, SERVED) == {SERVED: b"old"}
            error = CommitOutcomeUnknown(start_ts=Timestamp(start_ts), witness=(TABLE, cell))
            assert tm.outcome(error) == Aborted()
        pair.wait_for_cell(CLOSED, start_ts, is_shadow=False)
        assert seen(tm, SERVED, CLOSED) == {SERVED: b"old", CLOSED: b"old"}
    pair.check_after_compaction(b"old")


def test_half_of_the_shadow_cells_is_a_commit_also_while_the_rest_is_missing(pair: Pair) -> None:
    """The commit entry stays until every shadow cell is acknowledged, and answers for the others.

    What the gateway still owed is what a reader or the compactor heals: the same bytes.
    """
    child, start_ts = pair.start_client("decided")
    with child, pair.manager() as tm:
        with pair.closed():
            child.say("go on")
            pair.wait_for_cell(SERVED, start_ts, is_shadow=True)
            child.process.kill()
            assert child.wait() == -9
            assert seen(tm, SERVED) == {SERVED: b"new"}
            assert isinstance(tm.outcome(start_ts), Committed)
        pair.wait_for_cell(CLOSED, start_ts, is_shadow=True)
        assert seen(tm, SERVED, CLOSED) == {SERVED: b"new", CLOSED: b"new"}
    pair.check_after_compaction(b"new")
