"""The same calls through happybase, over a Thrift1 gateway, and through ours, over none.

Both have tables of the same options and cells in one HBase; what they return must be equal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple

import happybase
import pytest

import omidpy
from omidpy import errors
from omidpy import happybase as ours
from omidpy.storage.hbase.addresses.gateways import parse_address
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

Use = Callable[[Any], Any]

FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "cf": {"max_versions": 5},
    "other:": {"in_memory": True, "bloom_filter_type": "ROW", "block_cache_enabled": True},
    "plain": {},
    "old": {"time_to_live": 86_400, "compression": "GZ", "max_versions": 1},
}
PREFIX: Final = "p"


class World(NamedTuple):
    """Both clients of one HBase."""

    theirs: Any
    """A `happybase.Connection`."""
    ours: ours.Connection


@pytest.fixture(scope="module")
def world(hbase: HBase) -> Iterator[World]:
    """Return the clients, each with a table of its own, of the same options and cells."""
    ((host, port),) = parse_address(hbase.thrift1_url).gateways
    with empty_hbase(hbase), ours.Connection(hbase.direct_url) as mine:
        theirs = happybase.Connection(host, port, timeout=30_000)
        for connection, name in ((theirs, "theirs"), (mine, "ours")):
            connection.create_table(name, FAMILIES)
            fill(connection.table(name))
        yield World(theirs, mine)
        theirs.close()


def fill(table: Any) -> None:
    """Write what the reads below find, through the client itself."""
    for version in (10, 20, 30):
        table.put(b"a", {b"cf:q": b"%d" % version}, timestamp=version)
    table.put("a", {"cf:w": "text", b"other:": b"empty", b"cf:z:z": b"colon"}, timestamp=15)
    with table.batch(timestamp=40) as batch:
        batch.put(b"b", {b"cf:q": b"b", b"plain:\xff": b"\x00\xff"})
        batch.put(b"b\x00", {b"cf:q": b""})
        for number in range(30):
            batch.put(b"m%02d" % number, {b"cf:q": b"%d" % number, b"plain:q": b"p"})
        batch.put(b"\xff\xff", {b"cf:q": b"last"})
    with table.batch(timestamp=50, batch_size=3) as batch:
        batch.put(b"gone", {b"cf:q": b"1", b"cf:r": b"2", b"other:x": b"3"})
        batch.put(b"half", {b"cf:q": b"1", b"cf:r": b"2", b"other:x": b"3"})
    table.delete(b"gone", timestamp=60)
    table.delete(b"half", columns=[b"cf:q", b"other"], timestamp=60)
    table.put(b"a", {b"cf:old": b"hidden"}, timestamp=5)
    table.delete(b"a", columns=["cf:old"], timestamp=4)
    with table.batch(timestamp=70, wal=False) as batch:
        batch.delete(b"both", [b"cf:x"])
        batch.put(b"both", {b"cf:q": b"1"}, wal=True)
    table.put(b"colons", {b"cf:": b"empty", b"cf:q": b"stays", b"other:": b"goes"}, timestamp=80)
    table.delete(b"colons", columns=[b"cf:", b"other"], timestamp=90)
    with table.batch() as batch:
        batch.put(b"crossed", {b"cf:q": b"1", b"other:x": b"2"})
        batch.delete(b"crossed", [b"cf:q"])
        batch.delete(b"crossed", [b"other"])
        batch.put(b"crossed", {b"other:y": b"3", b"plain:q": b"4"})
    with suppress(KeyError), table.batch(transaction=True) as batch:
        batch.put(b"never", {b"cf:q": b"1"})
        raise KeyError
    with suppress(KeyError), table.batch(timestamp=80) as batch:
        batch.put(b"all the same", {b"cf:q": b"1"})
        raise KeyError


READS: Final[dict[str, Use]] = {
    "row": lambda t: t.row(b"a"),
    "row by text": lambda t: t.row("a", columns=["cf:q"]),
    "row of some": lambda t: t.row(b"a", [b"cf:q", b"other:"], include_timestamp=True),
    "row of a family": lambda t: t.row(b"a", (b"cf",)),
    "row of a family with a colon": lambda t: t.row(b"a", [b"cf:"]),
    "row of a column with a colon": lambda t: t.row(b"a", [b"cf:z:z"]),
    "row of a column and its family": lambda t: t.row(b"a", [b"cf:w", b"cf"]),
    "row of a family and its column": lambda t: t.row(b"a", [b"cf", b"cf:w", b"other"]),
    "row by other bytes": lambda t: t.row(bytearray(b"a")),
    "row before": lambda t: t.row(b"a", timestamp=20, include_timestamp=True),
    "row before all": lambda t: t.row(b"a", timestamp=1),
    "row that is not there": lambda t: t.row(b"none"),
    "row that is gone": lambda t: t.row(b"gone"),
    "row with colons": lambda t: t.row(b"colons"),
    "row that was put and deleted at once": lambda t: t.row(b"crossed"),
    "half a row": lambda t: t.row(b"half"),
    "row of both": lambda t: t.row(b"both", include_timestamp=True),
    "rows": lambda t: t.rows([b"b", b"none", b"a", b"b"]),
    "rows by tuple": lambda t: t.rows((b"a", "b"), columns=[b"cf"], include_timestamp=True),
    "rows before": lambda t: t.rows([b"a", b"b"], timestamp=30, include_timestamp=True),
    "cells": lambda t: t.cells(b"a", b"cf:q"),
    "two cells": lambda t: t.cells(b"a", "cf:q", versions=2, include_timestamp=True),
    "cells before": lambda t: t.cells(b"a", b"cf:q", timestamp=30, include_timestamp=True),
    "cells of a family": lambda t: t.cells(b"a", b"cf"),
    "no cells": lambda t: t.cells(b"none", b"cf:q"),
    "families": lambda t: t.families(),
    "scan": lambda t: list(t.scan()),
    "scan from": lambda t: list(t.scan(row_start=b"b")),
    "scan to": lambda t: list(t.scan(row_stop=b"b")),
    "scan between": lambda t: list(t.scan("b", "m03")),
    "scan of a prefix": lambda t: list(t.scan(row_prefix=b"m0")),
    "scan of a prefix of the last": lambda t: list(t.scan(row_prefix=b"\xff")),
    "scan of some": lambda t: list(t.scan(columns=[b"plain", b"cf:w"])),
    "scan before": lambda t: list(t.scan(timestamp=20, include_timestamp=True)),
    "scan of one row": lambda t: list(t.scan(row_start=b"a", row_stop=b"b", batch_size=1)),
    "scan by threes": lambda t: list(t.scan(batch_size=3)),
    "scan with a limit": lambda t: list(t.scan(limit=4, batch_size=3)),
    "scan in pieces": lambda t: list(t.scan(scan_batching=2, limit=9)),
    "scan in order": lambda t: [(r, list(d.items())) for r, d in t.scan(sorted_columns=True)],
    "scan in reverse": lambda t: list(t.scan(reverse=True)),
    "scan in reverse between": lambda t: list(t.scan("m05", "b", reverse=True)),
    "scan in reverse from between": lambda t: list(t.scan("m05x", "a", reverse=True, limit=3)),
    "scan of a column and its family": lambda t: list(t.scan(columns=[b"cf:w", b"cf"])),
    "scan that ends where it starts": lambda t: list(t.scan(b"b", b"b")),
    "scan in reverse that ends where it starts": lambda t: list(t.scan(b"b", b"b", reverse=True)),
    "scan in reverse from the longest": lambda t: list(t.scan(b"m" * 32767, reverse=True, limit=2)),
    "scan of nothing": lambda t: list(t.scan(row_start=b"c", row_stop=b"d")),
    "repr": lambda t: repr(t).rpartition(".")[2].partition(" ")[0],
}


@pytest.mark.parametrize("name", READS)
def test_reads_return_the_same(world: World, name: str) -> None:
    """In value, type and order."""
    use = READS[name]
    theirs, mine = use(world.theirs.table("theirs")), use(world.ours.table("ours"))
    assert mine == theirs
    assert type(mine) is type(theirs)


def test_regions_are_the_same(world: World) -> None:
    """But for the names of the tables, and the hashes and times in those of regions."""
    (theirs,), (mine,) = (
        world.theirs.table("theirs").regions(),
        world.ours.table("ours").regions(),
    )
    assert mine.keys() == theirs.keys()
    for key in ("start_key", "end_key", "version", "server_name", "port"):
        assert mine[key] == theirs[key]
    assert {type(value) for value in mine.values()} == {type(one) for one in theirs.values()}


def counted(table: Any) -> list[Any]:
    """Count up and down."""
    found = [table.counter_get(b"n", b"cf:n"), table.counter_inc(b"n", b"cf:n")]
    found += [table.counter_inc("n", "cf:n", value=5), table.counter_dec(b"n", b"cf:n", 9)]
    # Not the same one: HBase gives a counter a version above its clock if it is raised in a hurry.
    table.counter_set(b"n", b"cf:m", -7)
    table.counter_inc(b"n", b"cf")  # which has the empty qualifier
    return [*found, table.counter_get(b"n", b"cf:m"), table.row(b"n")]


def test_counters_are_the_same(world: World) -> None:
    """Atomic, signed, and made when they are asked for."""
    found = counted(world.ours.table("ours"))
    assert found == counted(world.theirs.table("theirs"))
    assert found[:5] == [0, 1, 6, -3, -7]


def administered(connection: Any, prefixed: Any) -> list[Any]:
    """Make, disable, enable and remove tables, with and without a prefix."""
    found: list[Any] = [sorted(prefixed.tables())]
    prefixed.create_table("t", {"cf": None})
    found += [prefixed.tables(), PREFIX.encode() + b"_t" in connection.tables()]
    found += [prefixed.is_table_enabled("t"), prefixed.table("t").name]
    found += [prefixed.table("t", use_prefix=False).name, prefixed.table("t").families()]
    prefixed.disable_table(b"t")
    found.append(prefixed.is_table_enabled("t"))
    prefixed.enable_table("t")
    prefixed.table("t").put(b"r", {b"cf:q": b"v"})
    found.append(prefixed.table("t").row(b"r"))
    prefixed.compact_table("t")
    prefixed.compact_table("t", major=True)
    prefixed.delete_table("t", disable=True)
    return [*found, prefixed.tables()]


def test_tables_are_administered_alike(world: World, hbase: HBase) -> None:
    """Names have prefixes, and are bytes."""
    ((host, port),) = parse_address(hbase.thrift1_url).gateways
    theirs = happybase.Connection(host, port, table_prefix=PREFIX)
    with ours.Connection(hbase.direct_url, table_prefix=PREFIX) as mine:
        found = administered(world.ours, mine)
    assert found == administered(world.theirs, theirs)
    theirs.close()


WRONG: Final[dict[str, Use]] = {
    "columns": lambda c: c.table("ours").row(b"a", columns=b"cf:q"),
    "timestamp": lambda c: c.table("ours").row(b"a", timestamp="1"),
    "versions": lambda c: c.table("ours").cells(b"a", b"cf:q", versions=0),
    "versions by text": lambda c: c.table("ours").cells(b"a", b"cf:q", versions="1"),
    "batch size": lambda c: c.table("ours").batch(batch_size=0),
    "batch size and transaction": lambda c: c.table("ours").batch(batch_size=1, transaction=True),
    "timestamp of a batch": lambda c: c.table("ours").batch(timestamp="1"),
    "limit": lambda c: list(c.table("ours").scan(limit=0)),
    "page": lambda c: list(c.table("ours").scan(batch_size=0)),
    "pieces": lambda c: list(c.table("ours").scan(scan_batching=0)),
    "prefix": lambda c: list(c.table("ours").scan(b"a", row_prefix=b"a")),
    "no families": lambda c: c.create_table("x", {}),
    "families": lambda c: c.create_table("x", ["cf"]),
    "option": lambda c: c.create_table("x", {"cf": {"speed": 3}}),
    "name": lambda c: c.table(5),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_raise_the_same(world: World, name: str) -> None:
    """The kind of exception is part of the surface."""
    kinds = []
    for connection in (world.theirs, world.ours):
        with pytest.raises((TypeError, ValueError)) as refused:
            WRONG[name](connection)
        kinds.append(refused.type)
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("name", ["Connection", "Table", "Batch", "ConnectionPool"])
def test_signatures_are_the_same(name: str) -> None:
    """A call that names its arguments, or does not, goes on."""
    theirs, mine = getattr(happybase, name, None), getattr(ours, name)
    if name == "Batch":
        from happybase.batch import Batch

        theirs = Batch
    for method, function in inspect.getmembers(theirs, inspect.isfunction):
        if method.startswith("_") and method != "__init__":
            continue
        expected = inspect.signature(function).parameters
        found = inspect.signature(getattr(mine, method)).parameters
        assert list(found) == list(expected), method
        if name == "Connection" and method == "__init__":
            continue  # a gateway's port is no port of ZooKeeper's
        for argument, parameter in expected.items():
            if argument not in ("self", "kwargs"):
                assert found[argument].default == parameter.default, f"{method}: {argument}"


# -- where it is not happybase ---------------------------------------------------------------------


def test_errors_are_ours(world: World) -> None:
    """By what went wrong, where the gateway has one kind for all."""
    connection = world.ours
    with pytest.raises(errors.TableExists):
        connection.create_table("ours", {"cf": {}})
    for name in ("OMIDPY_KEYS", "default:OMID_COMMIT_TABLE"):
        with pytest.raises(errors.UsageError):
            connection.create_table(name, {"cf": {}})
    with pytest.raises(errors.NoSuchTable, match="no table 'none'"):
        connection.table("none").put(b"r", {b"cf:q": b"v"})
    with pytest.raises(errors.NoSuchFamily):
        connection.table("ours").put(b"r", {b"no:q": b"v"})
    with pytest.raises(errors.NoSuchFamily):
        connection.table("ours").row(b"r", [b"no:q"])
    with pytest.raises(errors.UsageError, match="family:qualifier"):
        connection.table("ours").put(b"r", {b"cf": b"v"})
    with pytest.raises(errors.UsageError, match="disable it first"):
        connection.delete_table("ours")
    wrongs: tuple[Use, ...] = (
        lambda t: t.counter_inc(b"a", b"cf:q"),
        lambda t: t.put(b"a", {b"cf:q": b"x" * (11 * 2**20)}),
        lambda t: t.row(b""),
        lambda t: t.put(b"", {b"cf:q": b"v"}),
        lambda t: t.scan(b"a" * 32768),
    )
    for wrong in wrongs:
        with pytest.raises(errors.UsageError):
            wrong(connection.table("ours"))
    with pytest.raises(NotImplementedError, match="filter"):
        connection.table("ours").scan(filter="KeyOnlyFilter()")
    with pytest.raises(errors.UsageError, match="name of a table"):
        connection.table(b"\xff").row(b"r")


def test_a_prefix_in_reverse_is_all_of_the_prefix(world: World) -> None:
    """Happybase leaves out the row that is the prefix itself."""
    table = world.ours.table("ours")
    forward = [row for row, _ in table.scan(row_prefix=b"b")]
    assert forward[0] == b"b"
    assert [row for row, _ in table.scan(row_prefix=b"b", reverse=True)] == forward[::-1]


def test_a_closed_connection_says_so_and_may_be_opened_again(hbase: HBase) -> None:
    """As in happybase, where it is the transport that is opened."""
    connection = ours.Connection(hbase.rpc_url, autoconnect=False)
    with pytest.raises(errors.StorageUnavailable, match=r"call open\(\)"):
        connection.tables()
    connection.open()
    assert connection.tables() == connection.tables()
    connection.close()
    connection.close()
    connection.open()
    connection.close()


def test_a_pool_lends_one_connection_to_all(hbase: HBase) -> None:
    """Which may be shared, so that nobody waits."""
    pool = ours.ConnectionPool(1, host=hbase.direct_url)
    with pool.connection() as one, pool.connection(timeout=0.1) as other, closing(one):
        assert one is other
        other.close()  # as after an error, when it is no other thread's
        assert one.tables() is not None
    for size, kind in (("1", TypeError), (0, ValueError)):
        with pytest.raises(kind):
            ours.ConnectionPool(size, host=hbase.direct_url)  # type: ignore[arg-type]  # the point


def test_transactions_begin_with_such_a_connection_and_it_leaves_their_tables_alone(
    hbase: HBase, world: World
) -> None:
    """A cell that is written past a transaction would be one of nobody's to its readers."""
    assert world.ours.tables()
    with (
        tso_server(hbase.direct_url) as server,
        ours.Connection(hbase.direct_url, table_prefix=PREFIX) as connection,
        omidpy.connect(connection, server.address, post_commit="sync") as tm,
    ):
        tm.create_table("bank", ["cf"])
        with tm.begin() as tx:
            tx.table("bank").put(b"r", {b"cf:q": b"v"})
        assert connection.tables() == [b"bank"]
        table = connection.table("bank")
        assert table.row(b"r", [b"cf:q"]) == {b"cf:q": b"v"}
        changes: list[Callable[[], Any]] = [
            lambda: table.put(b"r", {b"cf:q": b"w"}),
            lambda: table.delete(b"r"),
            lambda: table.counter_inc(b"r", b"cf:n"),
            lambda: connection.delete_table("bank", disable=True),
            lambda: connection.table("OMID_COMMIT_TABLE", use_prefix=False).put(
                b"r", {b"F:q": b""}
            ),
        ]
        for change in changes:
            with pytest.raises(errors.UsageError, match="written by transactions"):
                change()
        with tm.begin(read_only=True) as tx:
            assert tx.table("bank").row(b"r") == {b"cf:q": b"v"}
        tm.drop_table("bank")


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("hbase+thrift1://gw:9090", None, "gateway's address"),
        ("a:b:c", None, "is no server"),
        ("hbase://zk/hbase", 2181, "leave 2181 out"),
    ],
)
def test_addresses_that_do_not_fit_are_told(host: str, port: int | None, message: str) -> None:
    """Before anything is asked."""
    with pytest.raises(errors.ConfigError, match=message):
        ours.Connection(host, port, autoconnect=False)


def test_hosts_are_those_of_zookeeper() -> None:
    """With the usual port and znode; a time limit is in milliseconds."""
    made = ours.Connection("zk1,zk2", 2182, timeout=1500, autoconnect=False)
    assert made.url == "hbase://zk1,zk2:2182/hbase?timeout_s=1.5"
    assert ours.Connection(None, autoconnect=False).url == "hbase://localhost/hbase"
    words = ours.Connection("hbase://zk/hbase?user=me", timeout=2000, autoconnect=False)
    assert words.url == "hbase://zk/hbase?user=me&timeout_s=2"
    for wrong in ({"transport": "x"}, {"protocol": "x"}, {"compat": "x"}):
        with pytest.raises(ValueError, match="must be one of"):
            ours.Connection(autoconnect=False, **wrong)  # type: ignore[arg-type]  # the point
    for odd in ({"table_prefix": 5}, {"table_prefix_separator": None}):
        with pytest.raises(TypeError, match="must be a string"):
            ours.Connection(autoconnect=False, **odd)
