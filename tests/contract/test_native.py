"""HBase without a gateway means what the memory store means, by ZooKeeper and by its master."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omidpy.facts.commit_table import create_system_tables
from omidpy.storage.base import Store
from omidpy.storage.hbase.direct import NativeStore
from omidpy.testing.chapters.tables import Tables
from omidpy.testing.contract import StoreContract
from tests.machines.hbase import HBase
from tests.machines.hbase_store import drop_tables


class TestNativeStore(StoreContract):
    """`hbase://` against the contract."""

    @pytest.fixture
    def store(self, hbase: HBase) -> Iterator[NativeStore]:
        """Return a store without a table of a user's."""
        store = NativeStore(hbase.direct_url)
        create_system_tables(store)
        kept = [schema.name for schema in store.tables()]
        yield store
        store.close()
        drop_tables(hbase, but=kept)

    def reopen(self, store: Store) -> Store:
        """Open the same HBase again."""
        return NativeStore(store.url)


class TestNativeStoreByRpc(Tables):
    """`hbase+rpc://`: places alone are found in another way, so a chapter says enough."""

    @pytest.fixture
    def store(self, hbase: HBase) -> Iterator[NativeStore]:
        """Return a store without a table of a user's."""
        store = NativeStore(hbase.rpc_url)
        create_system_tables(store)
        kept = [schema.name for schema in store.tables()]
        yield store
        store.close()
        drop_tables(hbase, but=kept)

    def reopen(self, store: Store) -> Store:
        """Open the same HBase again."""
        return NativeStore(store.url)
