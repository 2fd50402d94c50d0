"""Operations in ZooKeeper mean what those in a table mean."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.fate.store import FateStore
from omidpy.fate.zookeeper.session import Delete
from omidpy.fate.zookeeper.store import ZooKeeperFateStore
from omidpy.life.base import Judge, Member
from omidpy.testing.fate.contract import FateStoreContract
from tests.machines.hbase import HBase

pytestmark = pytest.mark.integration


class TestInZooKeeper(FateStoreContract):
    """The one that HBase runs."""

    @pytest.fixture
    def fates(self, hbase: HBase) -> Iterator[ZooKeeperFateStore]:
        """Return an empty store of operations."""
        store = ZooKeeperFateStore(hbase.zookeeper, f"/omidpy-test/{uuid.uuid4().hex}/fate")
        yield store
        store.close()

    def reopen(self, fates: FateStore) -> FateStore:
        """Read the same znodes in another session."""
        assert isinstance(fates, ZooKeeperFateStore)
        return ZooKeeperFateStore(fates._session.address.hosts, fates._path)

    def let_die(self, worker: Member, judge: Judge, clock: ManualClock) -> None:
        """Take its znode away, as the ensemble does at the end of a session."""
        fates = judge._session  # type: ignore[attr-defined]  # one of ZooKeeper's
        assert fates.change([Delete(f"{judge._path}/{worker.id}")])  # type: ignore[attr-defined]  # see above
