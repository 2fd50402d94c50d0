"""HBase through its Thrift1 gateway: what it can do means what it means elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omidpy.commit_table import create_system_tables
from omidpy.control import is_system_table
from omidpy.storage.base import Store
from omidpy.storage.hbase.thrift1 import Thrift1Store
from omidpy.storage.hbase.thrift2 import Thrift2Store
from omidpy.testing.contract import StoreContract
from tests.machines.hbase import HBase


class TestThrift1Store(StoreContract):
    """`hbase+thrift1://` against the contract; what the gateway lacks is refused."""

    @pytest.fixture
    def store(self, hbase: HBase) -> Iterator[Thrift1Store]:
        """Return a store without a table of a user's."""
        admin = Thrift2Store(hbase.thrift2_url)
        create_system_tables(admin)
        assert admin.store_id
        store = Thrift1Store(hbase.thrift1_url)
        yield store
        store.close()
        for schema in admin.tables():
            if not is_system_table(schema.name):
                admin.drop_table(schema.name)
        admin.close()

    def reopen(self, store: Store) -> Store:
        """Open the same HBase again."""
        return Thrift1Store(store.url)
