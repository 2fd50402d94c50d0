"""HBase without a gateway, as a store: over the client in `native/`."""

from __future__ import annotations

from omidpy.storage.hbase.direct.store import NativeStore

__all__ = ["NativeStore"]
