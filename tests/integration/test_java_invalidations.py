"""Omid's client forbids commits by itself, unseen by our oracle, which must tell what counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omidpy
from omidpy.base.commit_facts import INVALID
from omidpy.errors import TransactionAborted
from omidpy.facts.commit_table import CommitTable, create_system_tables
from omidpy.opening import open_store
from omidpy.storage.base import Store
from tests.machines.hbase import HBase, Road
from tests.machines.java import JavaDriver
from tests.machines.java_client import JavaManager
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.THRIFT2


@pytest.fixture(scope="module")
def store(hbase: HBase) -> Iterator[Store]:
    """Open the HBase, with Omid's tables and ours."""
    store = open_store(hbase.url)
    create_system_tables(store)
    yield store
    store.close()


def test_a_commit_below_a_fence_reader_of_omid_is_refused(hbase: HBase, store: Store) -> None:
    """Its fence of one table forbids every older transaction that it meets in any other (I8).

    The oracle fences that one table alone.  If it looked at nothing else it would tell the writer
    that it committed, and no reader would ever see it.
    """
    url = hbase.url
    with (
        JavaDriver(zookeeper=hbase.zookeeper) as driver,
        tso_server(url) as server,
        omidpy.connect(url, server.address, post_commit="sync") as ours,
    ):
        java = JavaManager(driver, server.address)
        for table in ("fenced", "other"):
            ours.create_table(table, families=["cf"])
        tx, untouched = ours.begin(), ours.begin()
        for one, row in ((tx, b"met"), (untouched, b"not met")):
            one.table("other").put(row, {b"cf:q": b"v"})
            one.flush()
        reader = java.fence("fenced")
        assert reader.epoch > tx.start_ts
        assert reader.row("other", b"met") == {}
        assert CommitTable(store).read([tx.start_ts]) == {tx.start_ts: INVALID}
        with pytest.raises(TransactionAborted):
            tx.commit()
        untouched.commit()
        with ours.begin(read_only=True) as later:
            assert [row for row, _ in later.table("other").scan()] == [b"not met"]
        later_in_java = java.begin()
        assert later_in_java.row("other", b"met") == {}
        assert later_in_java.row("other", b"not met") == {b"cf:q": b"v"}
        java.close()
        for table in ("fenced", "other"):
            ours.drop_table(table)
