"""HBase through its Thrift2 gateway means what the memory store means."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omidpy.facts.commit_table import create_system_tables
from omidpy.storage.base import Store
from omidpy.storage.hbase.thrift2 import Thrift2Store
from omidpy.testing.contract import StoreContract
from tests.machines.hbase import HBase
from tests.machines.hbase_store import drop_tables


class TestThrift2Store(StoreContract):
    """`hbase+thrift2://` against the contract."""

    @pytest.fixture
    def store(self, hbase: HBase) -> Iterator[Thrift2Store]:
        """Return a store without a table of a user's."""
        store = Thrift2Store(hbase.thrift2_url)
        create_system_tables(store)
        kept = [schema.name for schema in store.tables()]
        yield store
        store.close()
        drop_tables(hbase, but=kept)

    def reopen(self, store: Store) -> Store:
        """Open the same HBase again."""
        return Thrift2Store(store.url)
