"""A table that HBase has disabled is an obstacle of itself alone, for compactions and lists."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from omidpy.cli import main
from tests.machines.cells import World
from tests.machines.hbase import HBase, Road
from tests.machines.hbase.bare import bare_client, gateway_idl
from tests.machines.hbase_store import one_region_store, open_hbase

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

ROAD_BY_DAY = Road.THRIFT2

Cli = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def world(hbase: HBase) -> Iterator[World]:
    """Return an HBase with a healthy table of ours, and a disabled one of each other kind."""
    with one_region_store(hbase) as store:
        made = World(store)
        made.table("healthy")
        made.table("ours", splits=[b"m"])
        made.table("plain", families=(), plain_families=(b"cf",), owner=None)
        made.put(b"a", 100, table="healthy")
        made.put(b"a", 100, table="ours")
        made.put(b"a", 1_700_000_000_000, table="plain")
        made.enter(100, 150)
        for table in ("ours", "plain"):
            with bare_client(hbase) as client:
                name = gateway_idl(hbase).TTableName(ns=b"default", qualifier=table.encode())
                client.disableTable(name)
        yield made


@pytest.fixture
def cli(hbase: HBase, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs an `omidpy` command on this HBase, and reads the JSON that it prints."""

    def run(*words: str) -> tuple[int, Any, str]:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--store", hbase.url, "--json"])
        printed = capsys.readouterr()
        return int(str(ended.value.code or 0)), json.loads(printed.out), printed.err

    return run


def test_disabled_tables_end_neither_a_compaction_nor_a_list(
    hbase: HBase, world: World, cli: Cli
) -> None:
    """One of them, even a plain one, ended both; it may stay disabled for months."""
    code, listed, _ = cli("table", "list")
    assert code == 0
    by_name = {one["table"]: one for one in listed}
    assert (by_name["ours"]["standing"], by_name["plain"]["standing"]) == ("owned", "plain")
    assert "it is disabled; enable it" in by_name["plain"]["reason"]
    code, status, _ = cli("status")
    assert code == 0
    assert status["tables"]["plain"] == ["plain"]

    options = ("compact", "--grace", "0s", "--invalidation-grace", "0s", "--retention", "0s")
    code, report, said = cli(*options)
    assert code == 3
    assert world.shadows("healthy") == {(b"a", 100): 150}
    (laggard,) = report["laggards"]
    assert (laggard["table"], laggard["start"], laggard["end"]) == ("ours", "", "")
    assert "it is disabled; enable it" in laggard["reason"]
    assert "table plain could not be searched" in said
    assert world.entries() == {100: 150}

    enable(hbase, "ours")
    code, report, _ = cli(*options)
    assert code == 3, (
        "the plain one may hold a cell of the transaction that is about to be forgotten"
    )
    assert [one["table"] for one in report["laggards"]] == ["plain"]
    assert world.shadows("ours") == {(b"a", 100): 150}
    assert world.entries() == {100: 150}
    assert cli("table", "ignore", "plain", "--apply")[0] == 0
    code, report, _ = cli(*options)
    assert (code, report["laggards"], report["entries_pruned"]) == (0, [], 1)


def enable(hbase: HBase, table: str) -> None:
    """Enable a table as the shell does."""
    with bare_client(hbase) as client:
        client.enableTable(gateway_idl(hbase).TTableName(ns=b"default", qualifier=table.encode()))
    store = open_hbase(hbase)
    try:
        assert list(store.scan(table))
    finally:
        store.close()
