"""Commits of Java's dead clients survive wherever they wrote, also where nothing says so.

A client that dies after its commit leaves no mark and no shadow cell: in a family that was empty
when its table was adopted, in one that only such clients had written, or in a whole table.  One
life and two compactions serve all tests; the first is stopped by the places that are not ours, the
second comes after the operator's word.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

import omidpy
from omidpy.cli import main
from omidpy.facts.commit_table import CommitTable
from omidpy.model import Timestamp
from omidpy.opening import open_store
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import drop_tables
from tests.machines.java import JavaDriver
from tests.machines.java_client import JavaManager
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.THRIFT2

OURS: Final = "adopted"
"""Adopted with all its families: `cf` is written, `empty` is not, `dead` by the dead alone."""
PART: Final = "adopted_in_part"
"""Adopted without its family `other`."""
GRAVEYARD: Final = "graveyard"
"""Written by the dead alone, and adopted by nobody at first."""
NO_GRACES: Final = ("--grace", "0", "--invalidation-grace", "0", "--retention", "0")

Seen = dict[tuple[str, bytes], dict[bytes, bytes]]


@dataclass(frozen=True)
class Life:
    """What happened, and what everybody saw."""

    healthy: dict[bytes, bytes]
    """What we saw, of a commit that Java completed in the family that had been empty."""
    dead: Seen
    """What the dead had committed, by table and row."""
    first: tuple[int, dict[str, Any]]
    """The exit code of the first compaction, and its report."""
    kept: int
    """How many entries of the dead it left."""
    second: tuple[int, dict[str, Any]]
    seen_by_java: Seen
    """At the end, when no entry is left."""
    seen_by_us: Seen


@pytest.fixture(scope="module")
def life(hbase: HBase) -> Iterator[Life]:
    """Let Java's clients write and die, and compact twice."""
    drop_tables(hbase)
    tables = {OURS: (b"cf", b"dead", b"empty"), PART: (b"cf", b"other"), GRAVEYARD: (b"cf",)}
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        driver.call("admin.init")
        for table, families in tables.items():
            driver.call("admin.create", table=table, families=[one.hex() for one in families])
        yield lived(hbase, driver)
        for table in tables:
            driver.call("admin.drop", table=table)


def lived(hbase: HBase, driver: JavaDriver) -> Life:
    """Live, and tell what was seen."""
    dead: Seen = {}
    entries: list[Timestamp] = []

    def die(java: JavaManager, table: str, family: bytes) -> None:
        java.ends_at("after_commit")
        tx = java.begin()
        row, data = b"of " + family, {family + b":q": b"committed"}
        tx.put(table, row, data)
        tx.is_abandoned()
        dead[table, row] = data
        entries.append(Timestamp(tx.start_ts))

    with tso_server(hbase.url) as server:
        java = JavaManager(driver, server.address)
        for table in (OURS, PART):
            with java.begin() as tx:
                tx.put(table, b"r", {b"cf:q": b"healed"})
        die(java, OURS, b"dead")
        die(java, GRAVEYARD, b"cf")
        cli(hbase, "table", "adopt", OURS, "--apply")
        cli(hbase, "table", "adopt", PART, "--families", "cf", "--apply")
        die(java, OURS, b"empty")
        die(java, PART, b"other")
        java.close()
        assert server.terminate() == 0, server.log
    # Another oracle: all that began before is below its low watermark.
    with tso_server(hbase.url) as server:
        assert server.address
        first = cli(hbase, "compact", "run", *NO_GRACES)
        kept = entries_left(hbase, entries)
        for table in (GRAVEYARD, PART):
            cli(hbase, "table", "adopt", table, "--apply")
        second = cli(hbase, "compact", "run", *NO_GRACES)
        java = JavaManager(driver, server.address)
        last = java.begin()
        by_java = {(table, row): last.row(table, row) for table, row in dead}
        with java.begin() as tx:
            tx.put(OURS, b"healthy", {b"empty:q": b"completed"})
        java.close()
        with omidpy.connect(hbase.url, server.address) as ours, ours.begin() as mine:
            healthy = mine.table(OURS).row(b"healthy")
            known = ours.tables()
            by_us = {
                (table, row): mine.table(table).row(row) for table, row in dead if table in known
            }
    return Life(healthy, dead, first, kept, second, by_java, by_us)


def cli(hbase: HBase, *words: str) -> tuple[int, dict[str, Any]]:
    """Run an `omidpy` command on this HBase; return its exit code and its JSON."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        main([*words, "--store", hbase.url, "--json"])
    code = ended.value.code or 0
    assert isinstance(code, int)
    return code, json.loads(printed.getvalue() or "{}")


def entries_left(hbase: HBase, start_timestamps: list[Timestamp]) -> int:
    """Return how many of some transactions have an entry."""
    with contextlib.closing(open_store(hbase.url)) as store:
        found = CommitTable(store).read(start_timestamps)
    return sum(entry is not None for entry in found.values())


@pytest.mark.parametrize(
    ("table", "row"),
    [
        pytest.param(OURS, b"of empty", id="a-family-that-was-empty-at-the-adoption"),
        pytest.param(OURS, b"of dead", id="a-family-that-only-the-dead-wrote"),
        pytest.param(GRAVEYARD, b"of cf", id="a-table-that-only-the-dead-wrote"),
        pytest.param(PART, b"of other", id="a-family-that-was-left-out"),
    ],
)
def test_what_the_dead_committed_is_seen_by_everybody(life: Life, table: str, row: bytes) -> None:
    """Their entry was the only proof, and is gone."""
    assert life.seen_by_java[table, row] == life.dead[table, row]
    assert life.seen_by_us.get((table, row)) == life.dead[table, row]


def test_once_every_place_is_spoken_for_the_entries_go(life: Life) -> None:
    """Adopted, each of them is passed over, and nothing is kept any more."""
    code, report = life.second
    assert (code, report["laggards"], report["entries_pruned"]) == (0, [], 4)


def test_while_a_place_is_nobodys_every_entry_stays(life: Life) -> None:
    """The run says so, where, and what to do; what is ours was healed meanwhile."""
    code, report = life.first
    assert (code, report["entries_pruned"], report["cells_healed"]) == (3, 0, 2)
    assert life.kept == 4
    reasons = {one["table"]: one["reason"] for one in report["laggards"]}
    assert reasons.keys() == {GRAVEYARD, PART}
    assert "row b'of cf' holds the cell b'q' of family cf at version" in reasons[GRAVEYARD]
    assert f"`omidpy table adopt {GRAVEYARD} --apply`" in reasons[GRAVEYARD]
    assert "family other is not ours: row b'of other' holds the cell" in reasons[PART]
    assert f"`omidpy table ignore {PART} --families other --apply`" in reasons[PART]


def test_we_see_what_java_commits_in_a_family_that_was_empty_at_the_adoption(life: Life) -> None:
    """It was left out, so that a healthy commit was invisible to us."""
    assert life.healthy == {b"empty:q": b"completed"}
