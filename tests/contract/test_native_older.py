"""HBase 2.5, the line before, without a gateway: the contract, and what its order rests on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omidpy
from omidpy.errors import UsageError
from omidpy.facts.commit_table import create_system_tables
from omidpy.manager import TransactionManager
from omidpy.model import Column, FamilySchema, TableSchema
from omidpy.storage.base import Condition, GuardedMutation, Put, RowMutation, Store
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.native.admin import Admin
from omidpy.testing.contract import StoreContract
from tests.machines.client_suite import ClientSuite, closing
from tests.machines.hbase import OLDER, HBase, Road
from tests.machines.hbase_store import drop_tables, empty_hbase
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.hbase, pytest.mark.nightly]


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    """Run it; it has no gateway."""
    running = HBase.start(
        tmp_path_factory.mktemp("hbase-older"), gateways=0, quick=True, release=OLDER
    )
    running.road = Road.DIRECT
    try:
        yield running
    finally:
        running.stop(forget=True)


class TestNativeStoreOnOlder(StoreContract):
    """`hbase://` against the contract."""

    @pytest.fixture
    def store(self, older: HBase) -> Iterator[NativeStore]:
        """Return a store without a table of a user's."""
        store = NativeStore(older.direct_url)
        create_system_tables(store)
        kept = [schema.name for schema in store.tables()]
        yield store
        store.close()
        drop_tables(older, but=kept)

    def reopen(self, store: Store) -> Store:
        """Open the same HBase again."""
        return NativeStore(store.url)


@pytest.fixture(scope="module")
def served(older: HBase) -> Iterator[TransactionManager]:
    """Return a manager of a server that keeps everything there."""
    with empty_hbase(older) as url, tso_server(url) as server:
        yield from closing(omidpy.connect(url, tso=server.address))


class TestClientsOnOlder(ClientSuite):
    """Clients and a server."""

    @pytest.fixture
    def tm(self, served: TransactionManager) -> TransactionManager:
        """Return the one manager of the server."""
        return served


def test_a_snapshot_is_kept_there_too(older: HBase) -> None:
    """Its master has no procedure for it."""
    drop_tables(older)
    store = NativeStore(older.direct_url)
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    admin = Admin(store._client.calls)
    admin.snapshot("kept", "t")
    assert [(one.name, one.table) for one in admin.snapshots()] == [("kept", "t")]
    with pytest.raises(UsageError, match="choose another name"):
        admin.snapshot("kept", "t")
    admin.delete_snapshot("kept")
    assert admin.snapshots() == []
    store.close()
    drop_tables(older)


def test_parts_of_a_multi_are_done_in_order_there_too(older: HBase) -> None:
    """What the oracle rests on (docs/decisions/0060), in one region and over two."""
    drop_tables(older)
    store = NativeStore(older.direct_url)
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]), splits=[b"m"])
    column, other = Column(b"cf", b"q"), Column(b"cf", b"x")
    for number in range(500):
        key, value = b"%c%d" % (b"az"[number % 2], number % 7), b"%d" % number
        mutation = RowMutation(key, [Put(*column, number + 1, value)])
        change = GuardedMutation("t", mutation, Condition("t", key, other, None))
        look = Condition("t", key, column, value)
        assert store.write_then_check([change], look) == ([True], True)
    store.close()
    drop_tables(older)
