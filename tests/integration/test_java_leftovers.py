"""What Java's clients leave in the commit table for ever, our compaction heals and prunes.

This is what the project is for: Omid's page on the failures of clients asks for it, and Omid has
nothing that does it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import omidpy
from omidpy.cli import main
from omidpy.facts.commit_table import COMMIT_TABLE, CommitTable
from omidpy.model import Timestamp
from omidpy.opening import open_store
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import drop_tables
from tests.machines.java import JavaDriver, JavaOracle
from tests.machines.java_client import JavaManager, JavaTransaction
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT

TABLE: Final = "java_accounts"
ROWS: Final = [b"account%02d" % number for number in range(20)]
NO_GRACES: Final = ("--grace", "0", "--invalidation-grace", "0", "--retention", "0")
Rows = dict[bytes, dict[bytes, bytes]]
Cli = Callable[..., Any]


@pytest.fixture
def survivor(hbase: HBase) -> Iterator[JavaDriver]:
    """Run a Java client that lives to see the end, with Omid's tables made by Omid's tool."""
    drop_tables(hbase)
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        driver.call("admin.init")
        driver.call(
            "admin.create",
            table=TABLE,
            families=[b"cf".hex(), b"log".hex()],
            splits=[ROWS[10].hex()],
        )
        yield driver
        driver.call("admin.drop", table=TABLE)


@pytest.fixture
def cli(hbase: HBase, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs an `omidpy` command on this HBase and returns its JSON."""

    def run(*words: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--store", hbase.url, "--json"])
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
        return json.loads(printed.out)

    return run


def test_what_dead_java_clients_left_is_healed_and_pruned_and_java_reads_on(
    hbase: HBase, survivor: JavaDriver, cli: Cli, tmp_path: Path
) -> None:
    """Four ways to leave an entry behind; one compaction; not one committed value is lost."""
    with JavaOracle(hbase.zookeeper, tmp_path) as oracle:
        committed, leaked, orphan = a_life_with_accidents(hbase, survivor, oracle.address)
        # Java heals what it reads, here the first half.  The entries stay, in Omid for ever.
        healing = JavaManager(survivor, oracle.address).begin()
        assert dict(healing.scan(TABLE, stop=ROWS[10].hex())) == {
            row: data for row, data in committed.items() if row < ROWS[10]
        }
    assert entries_left(hbase, leaked) == leaked

    with tso_server(hbase.url) as server:
        java = JavaManager(survivor, server.address)
        refuse_to_adopt_what_is_undecided(cli)
        assert cli("table", "adopt", TABLE, "--accept-undecided", "--apply")["applied"]
        before = [survivor.call("admin.raw", table=name) for name in (TABLE, COMMIT_TABLE)]
        planned = cli("compact", "run", "--dry-run", *NO_GRACES)
        assert planned["dry_run"]
        after = [survivor.call("admin.raw", table=name) for name in (TABLE, COMMIT_TABLE)]
        assert after == before

        report = cli("compact", "run", *NO_GRACES)
        assert report["laggards"] == []
        # The half of the killed transaction that Java did not read, and the other one's rows.
        assert report["cells_healed"] == 5
        assert report["cells_dropped"] == 10
        assert report["transactions_invalidated"] == report["invalidations_pruned"] == 1
        assert report["entries_pruned"] == len(leaked) == 3
        stats = cli("commit-table", "stats")
        assert (stats["entries"], stats["invalidations"]) == (0, 0)
        assert entries_left(hbase, leaked | {orphan}) == set()
        assert orphan not in versions(hbase)

        # Nobody can ask the commit table any more, and every value is still there for everybody.
        assert java_reads(java) == committed
        with omidpy.connect(hbase.url, server.address) as ours, ours.begin() as tx:
            assert dict(tx.table(TABLE).scan()) == committed
        with java.begin() as later:
            for row in ROWS:
                later.put(TABLE, row, {b"cf:balance": b"0"})
        assert java_reads(java) == {
            row: {**committed.get(row, {}), b"cf:balance": b"0"} for row in ROWS
        }
        java.close()


def a_life_with_accidents(
    hbase: HBase, survivor: JavaDriver, address: str
) -> tuple[Rows, set[int], int]:
    """Commit as Java does, and die as Java does.

    Returns:
        What is committed, the transactions whose entries are left, and the one that was killed
        before it committed.
    """
    java = JavaManager(survivor, address)
    committed: Rows = {}
    with java.begin() as first:
        for row in ROWS:
            put(first, committed, row, b"cf:balance", b"100")
            put(first, committed, row, b"log:note", b"opened")
    leaked: set[int] = set()
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        mortal = JavaManager(driver, address)

        # The oracle's answer is lost: Java finds the commit, and leaves the entry on purpose.
        mortal.ends_at("lost_answer")
        with mortal.begin() as answered_late:
            put(answered_late, committed, ROWS[0], b"cf:balance", b"90")
        leaked.add(answered_late.start_ts)

        # Every shadow cell is written; the entry's removal fails, which is only logged.
        mortal.ends_at("before_completion")
        with mortal.begin() as half_done:
            put(half_done, committed, ROWS[1], b"cf:balance", b"110")
        leaked.add(half_done.start_ts)

        # Killed with the commit durable and no shadow cell written.
        mortal.ends_at("after_commit", ends_process=True)
        killed = mortal.begin()
        for row in ROWS[5:15]:
            put(killed, committed, row, b"cf:balance", b"200")
        killed.delete(TABLE, ROWS[7], [b"log"])
        del committed[ROWS[7]][b"log:note"]
        killed.delete(TABLE, ROWS[8])
        del committed[ROWS[8]]
        killed.is_killed()
        leaked.add(killed.start_ts)

    # Killed with its cells written and nothing committed.
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        mortal = JavaManager(driver, address)
        mortal.ends_at("before_commit", ends_process=True)
        orphan = mortal.begin()
        for row in ROWS[10:]:
            orphan.put(TABLE, row, {b"cf:balance": b"-1"})
        orphan.is_killed()
    java.close()
    return committed, leaked, orphan.start_ts


def put(tx: JavaTransaction, committed: Rows, row: bytes, column: bytes, value: bytes) -> None:
    """Write a cell that will be committed."""
    tx.put(TABLE, row, {column: value})
    committed.setdefault(row, {})[column] = value


def java_reads(java: JavaManager) -> Rows:
    """Return what a scan and gets of Java's see, which must be the same."""
    tx = java.begin()
    scanned = dict(tx.scan(TABLE))
    assert {row: found for row in ROWS if (found := tx.row(TABLE, row))} == scanned
    return scanned


def entries_left(hbase: HBase, start_timestamps: set[int]) -> set[int]:
    """Return which of some transactions have anything in the commit table."""
    store = open_store(hbase.url)
    found = CommitTable(store).read([Timestamp(start_ts) for start_ts in start_timestamps])
    store.close()
    return {start_ts for start_ts, entry in found.items() if entry is not None}


def versions(hbase: HBase) -> set[int]:
    """Return the versions of all cells of the table."""
    store = open_store(hbase.url)
    found = {cell.version for page in store.scan(TABLE) for row in page for cell in row}
    store.close()
    return found


def refuse_to_adopt_what_is_undecided(cli: Cli) -> None:
    """See that cells nobody has decided about are told before they are given up."""
    plan = cli("table", "adopt", TABLE)
    assert not plan["applied"]
    assert sum(family["undecided_cells"] for family in plan["cells_by_family"].values()) == 10
    with pytest.raises(AssertionError, match="10 cells of java_accounts"):
        cli("table", "adopt", TABLE, "--apply")
