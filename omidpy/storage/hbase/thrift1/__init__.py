"""HBase through `Hbase`, the older of its gateways: for clients only."""

from __future__ import annotations

from omidpy.storage.hbase.thrift1.store import Thrift1Store

__all__ = ["Thrift1Store"]
