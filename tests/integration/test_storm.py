"""A storm of ten thousand transactions, every tenth client killed, and then one compaction."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

import omidpy
from omidpy.facts.commit_table import create_system_tables
from omidpy.opening import open_store
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import empty_hbase
from tests.machines.java import JavaDriver
from tests.machines.java_client import JavaManager
from tests.machines.processes import tso_server
from tests.machines.storm import ACCOUNTS, JOURNAL, Plan, Remains, Told, open_accounts, rage
from tests.machines.workload import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.in_memory]

ROAD_BY_DAY = Road.DIRECT

CLIENTS: Final = 100
EACH: Final = 110
"""Those that are killed do half of it, or less."""
BY_DAY: Final = (30, 55)
"""Clients, and what each does."""
AT_LEAST: Final = 10 / 11
"""Of them, on the average, with those of the killed."""
COMPACT: Final = """
import sys
from omidpy.cli import main
main(["compact", "--store", sys.argv[1], "--grace", "0", "--invalidation-grace", "0",
      "--retention", "0", "--wait", "--json"])
"""


def compacted(url: str) -> dict[str, Any]:
    """Run one compaction as an operator does; return its report."""
    command = [sys.executable, "-c", COMPACT, url]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def weathered(
    url: str, folder: Path, *, at_once: int, clients: int = CLIENTS, each: int = EACH
) -> Told:
    """Let a storm pass over a store; return what its clients were told."""
    with tso_server(url) as server:
        with omidpy.connect(url, tso=server.address) as tm:
            open_accounts(tm)
        plan = Plan(url, server.address, str(folder), clients, each, at_once)
        codes = rage(plan)
        assert codes == {0: clients * 9 // 10, -9: clients // 10}
    told = Told.read(folder)
    assert len(told.committed) + len(told.aborted) + len(told.open) >= AT_LEAST * clients * each
    assert len(told.committed) > AT_LEAST * clients * each * 9 // 10
    assert told.aborted
    assert told.open
    return told


def cleaned(url: str, told: Told) -> Remains:
    """Compact once, and check what is left; an oracle must have begun anew since the storm."""
    with closing(open_store(url)) as store:
        dirty = Remains(store)
        unhealed = {
            name
            for table, data in dirty.data.items()
            for name in data.keys() - dirty.shadows[table]
        }
        assert dirty.entries
        assert unhealed
        report = compacted(url)
        assert report["laggards"] == []
        assert report["cells_healed"] > 0
        assert report["entries_pruned"] > 0
        assert report["transactions_invalidated"] > 0
        remains = Remains(store)
    remains.check(told, report["horizon"])
    return remains


@pytest.mark.parametrize(
    ("clients", "each"), [BY_DAY, pytest.param(CLIENTS, EACH, marks=pytest.mark.nightly)]
)
def test_a_storm_leaves_nothing_behind_but_what_was_committed(
    tmp_path: Path, clients: int, each: int
) -> None:
    """No entry below the horizon, no orphan, and not one committed value lost."""
    url = f"sqlite:///{tmp_path}/store.db"
    told = weathered(url, tmp_path, at_once=4, clients=clients, each=each)
    with tso_server(url) as server:
        # Its epoch is above all that the dead wrote.
        assert server.address
        remains = cleaned(url, told)
        with omidpy.connect(url, tso=server.address) as tm, tm.begin(read_only=True) as tx:
            for table in (ACCOUNTS, JOURNAL):
                assert dict(tx.table(table).scan()) == remains.values(table)


@pytest.mark.hbase
@pytest.mark.java
@pytest.mark.nightly
def test_a_storm_on_hbase_leaves_nothing_behind_and_java_agrees(
    hbase: HBase, tmp_path: Path
) -> None:
    """The same on HBase, where a client of Omid's reads everything afterwards."""
    with empty_hbase(hbase) as url:
        with closing(open_store(url)) as store:
            create_system_tables(store)
        told = weathered(url, tmp_path, at_once=8)
        with (
            tso_server(url) as server,
            JavaDriver(zookeeper=hbase.zookeeper) as driver,
        ):
            java = JavaManager(driver, server.address)
            remains = cleaned(url, told)
            for table in (ACCOUNTS, JOURNAL):
                assert dict(java.begin().scan(table)) == remains.values(table)
            java.close()
