"""Znodes with versions: the real ensemble, and the one that stands in for it, mean the same."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.oracle.zookeeper import KazooZooKeeper, Znode, ZooKeeper, parse_zookeeper
from tests.machines.fake_zookeeper import FakeEnsemble, FakeZooKeeper
from tests.machines.hbase import HBase


class ZooKeeperContract:
    """What is asked of every `ZooKeeper`; a subclass gives the fixture `zookeeper`."""

    @pytest.fixture
    def path(self) -> str:
        """Return a path that nobody used before."""
        return f"/omidpy-test-{uuid.uuid4().hex}/a/b"

    def test_a_znode_is_created_empty_with_its_parents(
        self, zookeeper: ZooKeeper, path: str
    ) -> None:
        """As Omid creates its own when it starts."""
        assert zookeeper.read(path) is None
        zookeeper.create(path)
        assert zookeeper.read(path) == Znode(b"", 0)
        assert zookeeper.read(path.rpartition("/")[0]) is not None

    def test_a_znode_that_exists_is_left_alone(self, zookeeper: ZooKeeper, path: str) -> None:
        """Several oracles start at once."""
        zookeeper.create(path)
        assert zookeeper.replace(path, b"x", version=0) == 1
        zookeeper.create(path)
        assert zookeeper.read(path) == Znode(b"x", 1)

    def test_a_write_needs_the_version_that_was_seen(self, zookeeper: ZooKeeper, path: str) -> None:
        """Of two that saw the same, one writes; also where both write the same."""
        zookeeper.create(path)
        assert zookeeper.replace(path, b"x", version=0) == 1
        assert zookeeper.replace(path, b"x", version=0) is None
        assert zookeeper.replace(path, b"", version=1) == 2
        assert zookeeper.read(path) == Znode(b"", 2)

    def test_a_znode_that_is_not_there_is_not_written(
        self, zookeeper: ZooKeeper, path: str
    ) -> None:
        """It is created first, so that its version counts from a known start."""
        assert zookeeper.replace(path, b"x", version=0) is None
        assert zookeeper.read(path) is None

    def test_an_answer_may_be_waited_for_later(self, zookeeper: ZooKeeper, path: str) -> None:
        """The store is asked in the meantime."""
        zookeeper.create(path)
        answer, nothing = zookeeper.read_later(path), zookeeper.read_later(path + "c")
        assert nothing() is None
        assert answer() == Znode(b"", 0)

    def test_a_closed_session_answers_nothing(self, zookeeper: ZooKeeper, path: str) -> None:
        """Closing twice is closing once."""
        zookeeper.close()
        zookeeper.close()
        with pytest.raises(StorageUnavailable):
            zookeeper.read(path)
        with pytest.raises(StorageUnavailable):
            zookeeper.replace(path, b"x", version=0)


class TestFake(ZooKeeperContract):
    """The stand-in."""

    @pytest.fixture
    def zookeeper(self) -> FakeZooKeeper:
        """Return a session."""
        return FakeZooKeeper(FakeEnsemble())


@pytest.mark.integration
class TestReal(ZooKeeperContract):
    """The one that HBase runs."""

    @pytest.fixture
    def zookeeper(self, hbase: HBase) -> Iterator[KazooZooKeeper]:
        """Return a session."""
        session = KazooZooKeeper(parse_zookeeper(f"zk://{hbase.zookeeper}/omidpy-test"))
        yield session
        session.close()
