"""Which calls of the gateway does a write on HBase become?"""

from __future__ import annotations

from typing import Any

import pytest

from omidpy.model import Column
from omidpy.storage.base import DeleteVersion, Put, RowMutation
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.rpc.pool import GatewayPool
from omidpy.storage.hbase.thrift2 import Thrift2Store


class RecordingPool(GatewayPool):
    """Connects to nothing: a table with one family that takes every write."""

    def __init__(self) -> None:
        super().__init__(parse_address("hbase+thrift2://nowhere:1"))
        self.methods: list[str] = []

    def call(self, method: str, *args: Any, **more: Any) -> Any:
        """Note a write, and answer that it was done."""
        del args, more
        if method == "getTableDescriptor":
            return idl.TTableDescriptor(columns=[idl.TColumnFamilyDescriptor(name=b"f")])
        self.methods.append(method)
        return True if method.startswith("check") else None


@pytest.fixture
def pool() -> RecordingPool:
    """Return a pool that records."""
    return RecordingPool()


@pytest.fixture
def store(pool: RecordingPool) -> Thrift2Store:
    """Return a store over it."""
    return Thrift2Store("hbase+thrift2://nowhere:1", pool=pool)


def put(row: bytes) -> RowMutation:
    """Return a put of one cell."""
    return RowMutation(row, puts=(Put(b"f", b"q", 50, b"value"),))


def delete(row: bytes) -> RowMutation:
    """Return a delete of one version."""
    return RowMutation(row, deletes=(DeleteVersion(b"f", b"other", 50),))


def test_a_lone_row_goes_by_the_call_for_one(store: Thrift2Store, pool: RecordingPool) -> None:
    """Most transactions write one row, and a batch of one takes half as long again."""
    store.write({"t": [put(b"a")]})
    store.write({"t": [delete(b"a")]})
    assert pool.methods == ["put", "deleteSingle"]


def test_rows_go_together(store: Thrift2Store, pool: RecordingPool) -> None:
    """One call for those that put, one for those that delete, one for each that does both."""
    both = RowMutation(b"e", puts=put(b"e").puts, deletes=delete(b"e").deletes)
    store.write({"t": [put(b"a"), delete(b"b"), put(b"c"), delete(b"d"), both]})
    assert pool.methods == ["putMultiple", "deleteMultiple", "mutateRow"]


def test_a_check_that_only_puts_has_a_call_of_its_own(
    store: Thrift2Store, pool: RecordingPool
) -> None:
    """A lone commit waits for it, and the general call takes half as long again."""
    mutation = put(b"a")
    assert store.check_and_mutate("t", b"a", Column(b"f", b"x"), None, mutation)
    assert pool.methods == ["checkAndPut"]
