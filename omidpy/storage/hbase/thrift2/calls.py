"""Calls of HBase's Thrift2 gateway that `Thrift2Store` stands on: how it describes a table."""

from __future__ import annotations

from typing import Any

from omidpy.storage.hbase.rpc.calls import GatewayCalls
from omidpy.storage.hbase.thrift2 import schema as schemas


class Thrift2Calls(GatewayCalls[frozenset[bytes]]):
    """Remembers the names of a table's families."""

    def _describe(self, table: str) -> Any:
        return self._read(table, "getTableDescriptor", schemas.table_name(table))

    def _families_of(self, description: Any) -> frozenset[bytes]:
        return frozenset(bytes(one.name) for one in description.columns or ())
