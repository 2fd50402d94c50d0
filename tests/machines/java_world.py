"""An HBase that is set up for clients of both languages, and empty but for that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omidpy.facts.commit_table import create_system_tables
from omidpy.opening import open_store
from omidpy.storage.base import Store
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase


@contextmanager
def shared_store(hbase: HBase) -> Iterator[Store]:
    """Open an HBase with Omid's tables and ours, and with no others."""
    with empty_hbase(hbase) as url:
        store = open_store(url)
        create_system_tables(store)
        try:
            yield store
        finally:
            store.close()
