"""An HBase without tables, for tests that share one.

All stores of one HBase have the same system tables, hence one oracle.  A module that runs an oracle
there begins with nothing, and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from omidpy.base.tables import ONE_VERSION, is_system_table
from omidpy.errors import NoSuchTable
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE, LOW_WATERMARK
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.thrift2 import Thrift2Store
from tests.machines.hbase import HBase, Road

HBaseStore = NativeStore | Thrift2Store
_AT_ONCE = 4
"""A drop takes half a second, nearly all of it waiting."""


@contextmanager
def empty_hbase(hbase: HBase) -> Iterator[str]:
    """Give the address of an HBase that has no table, by the road of the test."""
    drop_tables(hbase)
    try:
        yield hbase.url
    finally:
        drop_tables(hbase)


def open_hbase(hbase: HBase) -> HBaseStore:
    """Open an HBase by the road of the test; whoever opens it closes it."""
    return NativeStore(hbase.url) if hbase.road is Road.DIRECT else Thrift2Store(hbase.url)


@contextmanager
def one_region_store(hbase: HBase) -> Iterator[HBaseStore]:
    """Open an HBase that has no table but a commit table of one region.

    It is made and dropped in a fraction of the time that the usual 16 regions take, for tests of
    which there are many.
    """
    drop_tables(hbase)
    store = open_hbase(hbase)
    families = [FamilySchema(column.family, ONE_VERSION) for column in (COMMIT, LOW_WATERMARK)]
    store.create_table(TableSchema(COMMIT_TABLE, families))
    try:
        yield store
    finally:
        store.close()
        drop_tables(hbase)


def drop_tables(hbase: HBase, *, but: Iterable[str] = ()) -> None:
    """Drop every table, system tables included, except those named."""
    store = open_hbase(hbase)
    kept = frozenset(but)
    try:
        names = [schema.name for schema in store.tables() if schema.name not in kept]
        # A drop may be noted in the control table, so system tables go last.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(store.drop_table, (one for one in names if not is_system_table(one))))
        for name in filter(is_system_table, names):
            store.drop_table(name)
    except NoSuchTable:
        raise AssertionError("somebody else drops tables at the same time") from None
    finally:
        store.close()
