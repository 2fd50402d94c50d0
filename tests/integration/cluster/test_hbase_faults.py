"""Processes of a real HBase die while clients commit: every error says whether it committed (I8).

Writers and what they are held to: `tests.machines.pairs`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from math import inf

import pytest

from omidpy.errors import OmidError
from omidpy.manager import TransactionManager
from omidpy.model import Column, FamilySchema, TableSchema, TransactionStatus
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.native.connections.pool import REGIONS
from omidpy.storage.hbase.thrift2 import Thrift2Store
from omidpy.testing.contract import in_threads
from tests.machines.hbase import Road, RunningHBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.pairs import COLUMN, DEADLINE_S, TABLE, Load, writers
from tests.machines.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT
BY_GATEWAYS = pytest.mark.parametrize("hbase_cluster", [Road.THRIFT2], indirect=True)
BY_ITSELF = pytest.mark.parametrize("hbase_cluster", [Road.DIRECT], indirect=True)

BATCH_ROWS = 40_000
"""A second or two of work, so that a kill comes into the middle of it."""


@pytest.fixture
def load(hbase_cluster: RunningHBase) -> Iterator[Load]:
    """Give writers for an empty table of two regions, and an oracle for them."""
    with empty_hbase(hbase_cluster) as url, writers(url) as load:
        yield load


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("rs1", marks=pytest.mark.nightly),
        pytest.param("rs2", marks=pytest.mark.nightly),
        pytest.param("master", marks=pytest.mark.nightly),
    ],
)
def test_commits_outlive_the_kill_of_a_process(
    hbase_cluster: RunningHBase, load: Load, name: str
) -> None:
    """The rest of the cluster takes over, and then the process comes back."""
    with load.running():
        load.wait_for(20)
        hbase_cluster.crash(name)
        load.wait_for(20)
        hbase_cluster.start_process(name)
        load.wait_for(20)
    load.check()


@BY_GATEWAYS
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["thrift2-1", "thrift2-2"])
def test_commits_outlive_the_kill_of_a_gateway(
    hbase_cluster: RunningHBase, load: Load, name: str
) -> None:
    """The other one takes over."""
    test_commits_outlive_the_kill_of_a_process(hbase_cluster, load, name)


def test_a_region_server_that_stands_still_is_replaced(
    hbase_cluster: RunningHBase, load: Load
) -> None:
    """It believes that it still serves when it goes on, after its regions have moved."""
    with load.running():
        load.wait_for(20)
        with hbase_cluster.paused("rs1"):
            load.wait_for(20)
            hbase_cluster.fence("rs1")
        load.wait_for(20)
    # Until it has ended it may answer readers from its memory: HBase lets it.
    hbase_cluster.crash("rs1")
    load.check()


@BY_ITSELF
@pytest.mark.nightly
def test_nobody_believes_a_region_server_that_goes_on(
    hbase_cluster: RunningHBase, load: Load
) -> None:
    """It answers at once, from its memory, what was there before others had its regions (I8)."""
    rows = (b"a", b"z")
    seen: list[bytes] = []

    def write(tm: TransactionManager, value: bytes) -> None:
        while True:
            with suppress(OmidError), tm.begin() as tx:
                for row in rows:
                    tx.table(TABLE).put(row, {COLUMN: value})
            if tx.status is TransactionStatus.COMMITTED:
                return

    def read(tm: TransactionManager) -> None:
        with tm.begin(read_only=True) as tx:
            seen.extend(tx.table(TABLE).row(row)[COLUMN] for row in rows)

    with load.connect() as writer, load.connect() as reader:
        write(writer, b"old")
        read(reader)
        assert isinstance(writer.store, NativeStore)
        assert isinstance(reader.store, NativeStore)
        region = writer.store._client.calls.locate(TABLE, b"a", until_s=inf)
        (place,) = (
            one
            for (_, port, service), one in reader.store._client.calls.connections._places.items()
            if (port, service) == (region.server.port, REGIONS)
        )
        assert place.connection is not None
        name = hbase_cluster.at_port(region.server.port)
        hbase_cluster.pause(name)
        write(writer, b"new")
        thread = threading.Thread(target=read, args=(reader,))
        thread.start()
        wait_for(lambda: bool(place.connection and place.connection._pending), DEADLINE_S)
        hbase_cluster.fence(name)
        hbase_cluster.resume(name)
        thread.join(DEADLINE_S)
    hbase_cluster.crash(name)
    hbase_cluster.start_all()
    assert seen == [b"old", b"old", b"new", b"new"]


@pytest.mark.nightly
def test_commits_go_on_after_all_of_hbase_was_down(hbase_cluster: RunningHBase, load: Load) -> None:
    """Nobody can commit meanwhile, and nobody is told that he did."""
    with load.running():
        load.wait_for(20)
        hbase_cluster.crash("rs1", "rs2", "master")
        hbase_cluster.start_all()
        load.wait_for(20)
    load.check()


@BY_GATEWAYS
@pytest.mark.parametrize(
    "name", ["thrift2-1", pytest.param("thrift2-2", marks=pytest.mark.nightly)]
)
def test_a_scan_and_a_batch_go_on_without_a_gateway_that_was_killed(
    hbase_cluster: RunningHBase, name: str
) -> None:
    """Whichever of the two a call had: the rows that are there are all of them, each once."""
    column, rows = Column(b"cf", b"q"), [b"%06d" % number for number in range(BATCH_ROWS)]
    with (
        empty_hbase(hbase_cluster) as url,
        closing(Thrift2Store(url)) as store,
        closing(Thrift2Store(url)) as onlooker,
    ):
        store.create_table(TableSchema("t", [FamilySchema(b"cf")]), splits=[rows[BATCH_ROWS // 2]])
        is_killed = threading.Event()

        def write() -> None:
            # A machine on which the killer comes late may need more than one batch; the last one
            # begins when the gateway is dead.
            for version in itertools.count(1):
                is_last = is_killed.is_set()
                store.write(
                    {"t": [RowMutation(row, (Put(*column, version, row),)) for row in rows]}
                )
                if is_last:
                    return

        def kill() -> None:
            try:
                while not onlooker.get("t", rows[:1])[0]:
                    continue
                hbase_cluster.crash(name)
            finally:
                is_killed.set()

        in_threads([write, kill])
        hbase_cluster.start_process(name)
        pages = store.scan("t", page_rows=100)
        seen = [cells[0].value for _ in range(3) for cells in next(pages)]
        hbase_cluster.crash(name)
        seen += [cells[0].value for page in pages for cells in page]
        assert seen == rows
