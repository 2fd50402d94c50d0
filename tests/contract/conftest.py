"""Stores for tests of compaction; pairs of a store and an oracle for tests of isolation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import omidpy
from omidpy.connect import find_queue
from omidpy.manager import TransactionManager
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import empty_hbase, one_region_store
from tests.machines.isolation import Bench
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.processes import tso_server
from tso.embedded import EmbeddedOracle


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("direct", marks=(pytest.mark.hbase, pytest.mark.nightly)),
        pytest.param("thrift2", marks=(pytest.mark.hbase, pytest.mark.nightly)),
    ]
)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Return an empty store; on HBase, where each test takes seconds, at night."""
    if request.param in iter(Road):
        hbase: HBase = request.getfixturevalue("hbase")  # started for whom it needs alone
        with hbase.by(request.param), one_region_store(hbase) as on_hbase:
            yield on_hbase
        return
    path: Path = request.getfixturevalue("tmp_path")
    found: Store = MemoryStore() if request.param == "memory" else SqliteStore(str(path / "s.db"))
    with closing(found):
        yield found


@pytest.fixture(
    scope="module",
    params=[
        "memory, naive oracle",
        "memory, embedded oracle",
        "like Thrift1, embedded oracle",
        "sqlite, embedded oracle",
        pytest.param("sqlite, tso-server", marks=pytest.mark.integration),
        pytest.param("HBase, tso-server", marks=pytest.mark.hbase),
        pytest.param("Thrift2, tso-server", marks=(pytest.mark.hbase, pytest.mark.nightly)),
    ],
)
def every_manager(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TransactionManager]:
    """Return a manager that the tests of a module share."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
    match request.param:
        case "memory, naive oracle":
            store = MemoryStore()
            with TransactionManager(store, NaiveOracle(store), find_queue=find_queue) as tm:
                yield tm
        case "memory, embedded oracle":
            with omidpy.connect("memory:") as tm:
                yield tm
        case "like Thrift1, embedded oracle":
            store = MemoryStore()
            with TransactionManager(
                LikeThrift1(store), EmbeddedOracle(store), find_queue=find_queue
            ) as tm:
                yield tm
        case "sqlite, embedded oracle":
            with omidpy.connect(url) as tm:
                yield tm
        case "HBase, tso-server" | "Thrift2, tso-server":
            hbase: HBase = request.getfixturevalue("hbase")  # started for whom it needs alone
            road = Road.THRIFT2 if "Thrift2" in request.param else Road.DIRECT
            with (
                hbase.by(road),
                empty_hbase(hbase) as url,
                tso_server(url) as server,
                omidpy.connect(url, tso=server.address) as tm,
            ):
                yield tm
        case _:
            with tso_server(url) as server, omidpy.connect(url, tso=server.address) as tm:
                yield tm


@pytest.fixture(params=[False, True], ids=["buffered", "flushed"])
def bench(request: pytest.FixtureRequest, every_manager: TransactionManager) -> Bench:
    """Return a fresh table whose writes are buffered until the commit, or flushed at once."""
    return Bench(every_manager, is_flushing=request.param)
