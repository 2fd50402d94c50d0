"""Omid's oracle as it is shipped keeps its timestamps in memory; ours takes its store over.

What stands in the store then is all that is known of the timestamps that were issued (I1).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omidpy.commit_table import TIMESTAMP_CEILING_ROW, TIMESTAMP_TABLE
from omidpy.storage.hbase.thrift2 import Thrift2Store
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.java import JavaDriver, JavaOracle
from tests.machines.java_client import JavaManager
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

TABLE = "accounts"


def test_our_oracle_goes_on_only_above_all_that_omid_s_left(hbase: HBase, tmp_path: Path) -> None:
    """The commit table holds nothing but the low watermark: the newest timestamp is in a table.

    Nobody marked that table; Omid asks for marks only where its coprocessor shall collect.
    """
    with empty_hbase(hbase) as url, JavaDriver(zookeeper=hbase.zookeeper) as driver:
        driver.call("admin.init")
        driver.call("admin.create", table=TABLE, families=[b"cf".hex()], splits=[])
        with JavaOracle(hbase.zookeeper, tmp_path, keeps_timestamps=False) as omids:
            before = JavaManager(driver, omids.address)
            with before.begin() as tx:
                tx.put(TABLE, b"alice", {b"cf:balance": b"100"})
            before.close()
        newest = tx.commit_ts
        assert newest is not None
        store = Thrift2Store(url)
        assert store.get(TIMESTAMP_TABLE, [TIMESTAMP_CEILING_ROW]) == [[]]
        store.close()

        with tso_server(url) as server:
            assert server.wait() == 2
            assert "recorded no timestamp ceiling" in server.wait_for("configuration")
        with tso_server(url, "--initial-timestamp", str(newest)) as server:
            assert server.wait() == 2
            said = server.wait_for("configuration")
            assert f"the table {TABLE} holds {newest}" in said
        with tso_server(url, "--initial-timestamp", str(newest + 1)) as server:
            after = JavaManager(driver, server.address)
            later = after.begin()
            assert later.start_ts > newest
            assert later.row(TABLE, b"alice") == {b"cf:balance": b"100"}
            later.put(TABLE, b"alice", {b"cf:balance": b"90"})
            assert later.commit() > later.start_ts
            after.close()
            assert server.terminate() == 0
