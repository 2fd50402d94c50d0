"""HBase through `THBaseService`, the newer of its gateways."""

from __future__ import annotations

from omidpy.storage.hbase.thrift2.store import Thrift2Store

__all__ = ["Thrift2Store"]
