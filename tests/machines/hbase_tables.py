"""A fresh store on the HBase that all tests share."""

from __future__ import annotations

from omidpy.storage.hbase.thrift2 import Thrift2Store


def drop_all(url: str) -> None:
    """Drop every table, Omid's and ours included, as if HBase had just been installed."""
    store = Thrift2Store(url)
    try:
        for schema in store.tables():
            store.drop_table(schema.name)
    finally:
        store.close()
