"""What goes wrong in HBase reaches a user as an error of ours, through either gateway.

It names the gateway, the table and the remedy, never shows a Java stack, and `retryable` says
whether trying again can help.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from omidpy.errors import (
    ConfigError,
    NoSuchFamily,
    NoSuchTable,
    OmidError,
    StorageUnavailable,
)
from omidpy.facts.commit_table import create_system_tables
from omidpy.model import Column, FamilySchema, TableSchema
from omidpy.opening import open_store
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.hbase.thrift2 import Thrift2Store
from tests.machines.hbase import HBase, RunningHBase
from tests.machines.hbase.bare import bare_client, gateway_idl
from tests.machines.hbase_store import drop_tables

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

APIS = ("thrift2", "thrift1")
ROADS = (*APIS, "direct")
PATIENCE_S = 120.0
FAMILY, COLUMN = b"f", Column(b"f", b"q")
CALLS = ("get", "scan", "write", "find_cell", "schema", "regions")
Open = Callable[..., Store]


def url_of(hbase: HBase, api: str) -> str:
    """Return the address of a gateway of an API, or of HBase itself."""
    urls = {"thrift2": hbase.thrift2_url, "direct": hbase.direct_url}
    return urls.get(api, hbase.thrift1_url)


@pytest.fixture
def opened() -> Iterator[Open]:
    """Give a function that opens stores, which are closed in the end."""
    stores: list[Store] = []

    def open_one(url: str) -> Store:
        stores.append(open_store(url))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def admin(hbase: HBase) -> Iterator[Thrift2Store]:
    """Return a store that makes and drops tables behind the back of another."""
    store = Thrift2Store(hbase.thrift2_url)
    create_system_tables(store)
    kept = [schema.name for schema in store.tables()]
    yield store
    store.close()
    drop_tables(hbase, but=kept)


def call(store: Store, name: str, table: str = "t", family: bytes = FAMILY) -> object:
    """Make one of `CALLS`."""
    put = RowMutation(b"r", puts=[Put(family, b"q", 1, b"v")])
    match name:
        case "get":
            return store.get(table, [b"r"], columns=[(family, b"q")], max_versions=1)
        case "scan":
            return list(store.scan(table, columns=[(family, None)], max_versions=1))
        case "write":
            store.write({table: [put]})
            return None
        case "check_and_mutate":
            return store.check_and_mutate(table, b"r", Column(family, b"q"), None, put)
        case "find_cell":
            return store.find_cell(table, prefix=b"q")
        case "schema":
            return store.schema(table)
        case _:
            return store.regions(table)


def refused(kind: type[OmidError], store: Store, name: str, *, naming: str) -> OmidError:
    """Make a call that must fail; return what it raises, after a look at its text."""
    with pytest.raises(kind) as caught:
        call(store, name)
    text = str(caught.value)
    assert naming in text
    assert "\tat " not in text, "a Java stack is for the gateway's log"
    assert "\n" not in text
    assert len(text) < 900
    return caught.value


@pytest.mark.parametrize("api", APIS)
def test_a_table_that_was_dropped_meanwhile_is_missing(
    hbase: HBase, admin: Thrift2Store, opened: Open, api: str
) -> None:
    """A client that has used it remembers it; the gateway's own words are then all there is."""
    admin.create_table(TableSchema("t", [FamilySchema(FAMILY)]))
    stores = {name: opened(url_of(hbase, api)) for name in CALLS}
    for store in stores.values():
        call(store, "write")
    admin.drop_table("t")
    for name, store in stores.items():
        error = refused(NoSuchTable, store, name, naming="'t'")
        assert not getattr(error, "retryable", False)


@pytest.mark.parametrize("api", APIS)
def test_a_family_that_was_removed_meanwhile_is_missing(
    hbase: HBase, admin: Thrift2Store, opened: Open, api: str
) -> None:
    """Removed and the table made anew without it, as somebody does in the shell."""
    admin.create_table(TableSchema("t", [FamilySchema(FAMILY)]))
    stores = {name: opened(url_of(hbase, api)) for name in ("get", "scan", "write")}
    for store in stores.values():
        call(store, "write")
    admin.drop_table("t")
    admin.create_table(TableSchema("t", [FamilySchema(b"other")]))
    for name, store in stores.items():
        refused(NoSuchFamily, store, name, naming="f")


@pytest.mark.parametrize("api", APIS)
def test_a_disabled_table_is_said_to_be_disabled(
    hbase: HBase, admin: Thrift2Store, opened: Open, api: str
) -> None:
    """Waiting does not help; enabling does."""
    admin.create_table(TableSchema("t", [FamilySchema(FAMILY)]))
    store = opened(url_of(hbase, api) + "?retry_s=0")
    call(store, "write")
    disable(hbase, "t")
    for name in ("get", "scan"):
        refused(StorageUnavailable, store, name, naming="enable")
    if api == "thrift2":  # the other gateway says so only after a minute, in words of its own
        refused(StorageUnavailable, store, "write", naming="enable")


def disable(hbase: HBase, table: str) -> None:
    """Disable a table as the shell does."""
    with bare_client(hbase) as client:
        name = gateway_idl(hbase).TTableName(ns=b"default", qualifier=table.encode())
        client.disableTable(name)


@pytest.mark.parametrize("api", APIS)
def test_where_no_gateway_listens_the_address_is_named(opened: Open, api: str) -> None:
    """The first thing to look at is the address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        store = opened(f"hbase+{api}://{where}?retry_s=0")
        for name in CALLS:
            error = refused(StorageUnavailable, store, name, naming=where)
            assert "nobody listens" in str(error)
            assert getattr(error, "retryable", False)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("options", ["transport=framed", "protocol=compact"])
def test_another_tongue_than_the_gateways_points_to_the_doctor(
    hbase: HBase, opened: Open, api: str, options: str
) -> None:
    """A gateway that hears framed calls on a buffered transport waits for more, for ever."""
    store = opened(f"{url_of(hbase, api)}?timeout_s=0.5&retry_s=0&{options}")
    for name in ("get", "scan", "write", "schema"):
        error = refused(StorageUnavailable, store, name, naming="omidpy doctor")
        assert options.partition("=")[2] in str(error)


@pytest.mark.parametrize("api", APIS)
def test_the_other_kind_of_gateway_is_recognised(hbase: HBase, opened: Open, api: str) -> None:
    """Both listen; only the calls differ."""
    other = "thrift1" if api == "thrift2" else "thrift2"
    where = url_of(hbase, other).partition("://")[2]
    store = opened(f"hbase+{api}://{where}?retry_s=0")
    for name in ("get", "schema", "regions"):
        error = refused(ConfigError, store, name, naming=where)
        assert f"hbase+{other}://" in str(error)


@pytest.mark.nightly
def test_a_region_that_nobody_serves_may_be_tried_again(
    hbase_cluster: RunningHBase, opened: Open
) -> None:
    """Gateways and master are up, every region server is dead: HBase is about to mend it.

    That commits go on when it has done so is seen by day, in `test_hbase_faults.py`.
    """
    admin = opened(hbase_cluster.thrift2_url)
    stores = []
    for api in ROADS:
        admin.create_table(TableSchema(f"of_{api}", [FamilySchema(FAMILY)]))
        stores.append(opened(url_of(hbase_cluster, api) + "?timeout_s=1&retry_s=0"))
        write_at_last(stores[-1], f"of_{api}")
    hbase_cluster.crash("rs1", "rs2")
    for api, store in zip(ROADS, stores, strict=True):
        for name in ("get", "write", "scan"):
            with pytest.raises(StorageUnavailable) as caught:
                call(store, name, f"of_{api}")
            assert f"of_{api}" in str(caught.value)
            assert "\tat " not in str(caught.value)
            assert caught.value.retryable
    hbase_cluster.start_all()
    for api in ROADS:
        assert call(opened(url_of(hbase_cluster, api)), "get", f"of_{api}")


def write_at_last(store: Store, table: str) -> None:
    """Write through a store that waits for seconds alone, on a machine that may be busy."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            call(store, "write", table)
        except StorageUnavailable:
            assert time.monotonic() < deadline_s
        else:
            return
