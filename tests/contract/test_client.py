"""One behaviour of transactions over every store and every oracle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omidpy
from omidpy.manager import TransactionManager
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.client_suite import ClientSuite, closing
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import empty_hbase
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.processes import tso_server

ROAD_BY_DAY = Road.DIRECT


class TestMemoryAndNaiveOracle(ClientSuite):
    """The meaning of both in their shortest form."""

    @pytest.fixture(params=["async", "sync"])
    def tm(self, request: pytest.FixtureRequest) -> Iterator[TransactionManager]:
        """Return a manager over memory."""
        store = MemoryStore()
        yield from closing(TransactionManager(store, NaiveOracle(store), post_commit=request.param))


class TestLikeThrift1AndNaiveOracle(ClientSuite):
    """A store that cannot delete single versions, nor scan more than the newest."""

    @pytest.fixture(params=["async", "sync"])
    def tm(self, request: pytest.FixtureRequest) -> Iterator[TransactionManager]:
        """Return a manager over the poorer view; the oracle has the store itself."""
        store = MemoryStore()
        oracle = NaiveOracle(store)
        yield from closing(
            TransactionManager(LikeThrift1(store), oracle, post_commit=request.param)
        )


class TestSqliteAndNaiveOracle(ClientSuite):
    """The embedded store."""

    @pytest.fixture
    def tm(self, tmp_path: Path) -> Iterator[TransactionManager]:
        """Return a manager over a file."""
        store = SqliteStore(tmp_path / "store.db")
        yield from closing(TransactionManager(store, NaiveOracle(store)))


class TestMemoryAndEmbeddedOracle(ClientSuite):
    """What `omidpy.connect("memory:")` gives."""

    @pytest.fixture
    def tm(self) -> Iterator[TransactionManager]:
        """Return a manager over memory."""
        yield from closing(omidpy.connect("memory:"))


class TestSqliteAndEmbeddedOracle(ClientSuite):
    """What `omidpy.connect("sqlite:///...")` gives."""

    @pytest.fixture
    def tm(self, tmp_path: Path) -> Iterator[TransactionManager]:
        """Return a manager over a file."""
        yield from closing(omidpy.connect(f"sqlite:///{tmp_path}/store.db"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransactionManager]:
    """Return a manager of a server that runs as long as this module."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
    with tso_server(url) as server:
        yield from closing(omidpy.connect(url, tso=server.address))
        assert server.terminate() == 0


@pytest.mark.integration
class TestSqliteAndServer(ClientSuite):
    """Many processes on one file, one server; one manager for all tests."""

    @pytest.fixture
    def tm(self, served: TransactionManager) -> TransactionManager:
        """Return the one manager of the server."""
        return served


@pytest.fixture(scope="module")
def served_by_hbase(hbase: HBase) -> Iterator[TransactionManager]:
    """Return a manager of a server that keeps everything in HBase."""
    with empty_hbase(hbase) as url, tso_server(url) as server:
        yield from closing(omidpy.connect(url, tso=server.address))
        assert server.terminate() == 0


class TestHBaseAndServer(ClientSuite):
    """What a cluster runs: HBase, and one server."""

    @pytest.fixture
    def tm(self, served_by_hbase: TransactionManager) -> TransactionManager:
        """Return the one manager of the server."""
        return served_by_hbase
