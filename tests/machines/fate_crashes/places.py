"""Where operations are kept that real processes share, and how each of them opens it."""

from __future__ import annotations

from pathlib import Path

from omidpy.fate.store import FateStore
from omidpy.fate.table.store import TableFateStore
from omidpy.fate.zookeeper.store import ZooKeeperFateStore
from omidpy.opening import open_store
from omidpy.storage.sqlite import SqliteStore


def in_a_file(path: Path) -> FateStore:
    """Open operations in a file."""
    return TableFateStore(SqliteStore(path))


def on_hbase(url: str, table: str) -> FateStore:
    """Open operations on HBase."""
    return TableFateStore(open_store(url), table)


def in_zookeeper(hosts: str, path: str) -> FateStore:
    """Open operations in ZooKeeper."""
    return ZooKeeperFateStore(hosts, path)
