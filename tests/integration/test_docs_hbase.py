"""The guides to HBase and to Omid, run as printed, on a cluster that Omid has served."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.hbase.addresses.gateways import Gateway, parse_address
from omidpy.storage.hbase.thrift2 import Thrift2Store
from tests.machines.documents import ROOT, PageRun
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.java import JavaDriver, JavaError, JavaOracle
from tests.machines.java_client import JavaManager
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

GUIDES = ROOT / "docs" / "guide"


@pytest.fixture
def java(hbase: HBase) -> Iterator[JavaDriver]:
    """Empty HBase, and run Omid's classes beside it."""
    with empty_hbase(hbase), JavaDriver(zookeeper=hbase.zookeeper) as driver:
        yield driver


@contextmanager
def omid(hbase: HBase, java: JavaDriver, directory: Path) -> Iterator[JavaOracle]:
    """Leave HBase as the guides find it, and run the oracle that has served it.

    Omid's tables and `accounts` are Java's.  Three clients died after their commit and one before.
    `people` was written by somebody who knows nothing of transactions.
    """
    java.call("admin.init")
    java.call("admin.create", table="accounts", families=[b"cf".hex()], splits=[b"m".hex()])
    with JavaOracle(hbase.zookeeper, directory) as oracle:
        live_and_die(JavaManager(java, oracle.address))
        write_plain_table(hbase)
        yield oracle


def live_and_die(manager: JavaManager) -> None:
    """Commit as Java does, and end as its clients do."""
    for name in (b"alice", b"bob", b"nina"):
        with manager.begin() as tx:
            tx.put("accounts", name, {b"cf:balance": b"100"})
    for point in ("lost_answer", "before_completion", "after_commit"):
        manager.ends_at(point)
        dying = manager.begin()
        dying.put("accounts", b"alice", {b"cf:balance": b"90"})
        dying.put("accounts", b"nina", {b"cf:balance": b"110"})
        if point == "after_commit":
            with pytest.raises(JavaError, match="abandoned"):
                dying.commit()
        else:
            dying.commit()
    manager.begin().put("accounts", b"zoe", {b"cf:balance": b"1000000"})
    manager.close()


def write_plain_table(hbase: HBase) -> None:
    """Make a table as the HBase shell does, with versions of HBase's clock."""
    store = Thrift2Store(hbase.thrift2_url)
    store.create_table(TableSchema("people", [FamilySchema(b"cf", {"VERSIONS": "1"})]))
    now_ms = time.time_ns() // 1_000_000
    store.write(
        {
            "people": [
                RowMutation(name, [Put(b"cf", b"email", now_ms, name + b"@example.org")])
                for name in (b"alice", b"bob")
            ]
        }
    )
    store.close()


def thrift1(hbase: HBase) -> Gateway:
    """Return the gateway for clients of happybase."""
    (gateway,) = parse_address(hbase.thrift1_url).gateways
    return gateway


def test_the_guide_to_hbase_runs_as_printed(hbase: HBase, java: JavaDriver, tmp_path: Path) -> None:
    """Whoever has such a cluster copies it from top to bottom; and Java reads on afterwards.

    So does the guide for those who come from happybase, which begins where that one ends.
    """
    with omid(hbase, java, tmp_path / "omid"):
        pass
    folder = tmp_path / "page"
    folder.mkdir()
    with PageRun(GUIDES / "hbase.md", folder, addresses={"gateway:9090": hbase.gateways[0]}) as run:
        run.run()
    with tso_server(hbase.thrift2_url) as server:
        addresses = {
            "127.0.0.1:24758": server.address,
            'host="gateway", port=9091': 'host="{}", port={}'.format(*thrift1(hbase)),
            "hbase://zk1:2181/hbase": hbase.direct_url,
        }
        with PageRun(GUIDES / "happybase.md", folder, addresses=addresses) as run:
            run.run()
        manager = JavaManager(java, server.address)
        reader = manager.begin()
        assert dict(reader.scan("accounts")) == {
            b"alice": {b"cf:balance": b"80"},
            b"bob": {b"cf:balance": b"110"},
            b"nina": {b"cf:balance": b"110"},
        }
        assert reader.row("people", b"alice") == {b"cf:email": b"alice@example.org"}
        manager.close()


def test_the_guide_to_omid_runs_as_printed(hbase: HBase, java: JavaDriver, tmp_path: Path) -> None:
    """From Omid's oracle to ours, with Python's clients at both; and the way back."""
    folder = tmp_path / "page"
    folder.mkdir()
    with omid(hbase, java, tmp_path / "omid") as oracle:
        pid_file = tmp_path / "omid-tso.pid"
        pid_file.write_text(str(oracle.pid))
        addresses = {
            "gateway:9090": hbase.gateways[0],
            "omid:24758": oracle.address,
            "/var/run/omid-tso.pid": str(pid_file),
        }
        with PageRun(GUIDES / "omid.md", folder, addresses=addresses) as run:
            run.run()
    with JavaOracle(hbase.zookeeper, tmp_path / "back") as oracle:
        manager = JavaManager(java, oracle.address)
        with manager.begin() as tx:
            tx.put("accounts", b"bob", {b"cf:balance": b"111"})
        assert manager.begin().row("accounts", b"bob") == {b"cf:balance": b"111"}
        manager.close()
