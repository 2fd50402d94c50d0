"""What is taken of a connection of happybase's: its settings, and nothing of its sockets."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import happybase
import pytest

import omidpy
from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.storage.hbase.addresses import from_happybase
from omidpy.storage.hbase.addresses.from_happybase import settings_of
from omidpy.storage.hbase.addresses.gateways import parse_address
from tests.machines.gateways import FakeGateway


def connection(**options: Any) -> happybase.Connection:
    """Return a connection that was never opened."""
    return happybase.Connection("gw", 9091, autoconnect=False, **options)


def test_a_connection_becomes_an_address() -> None:
    """Host, port, transport, protocol and time limit."""
    plain = parse_address(settings_of(connection()).url)
    assert (plain.api, plain.gateways) == ("thrift1", (("gw", 9091),))
    assert (plain.transport, plain.protocol) == ("buffered", "binary")
    assert plain.timeout_s == parse_address("hbase+thrift1://gw").timeout_s
    other = parse_address(
        settings_of(connection(transport="framed", protocol="compact", timeout=1500)).url
    )
    assert (other.transport, other.protocol, other.timeout_s) == ("framed", "compact", 1.5)


@pytest.mark.parametrize(
    ("options", "prefix"),
    [
        ({}, ""),
        ({"table_prefix": "app"}, "app_"),
        ({"table_prefix": b"app", "table_prefix_separator": b"."}, "app."),
        ({"table_prefix_separator": "."}, ""),
    ],
)
def test_the_prefix_of_tables_is_taken(options: dict[str, Any], prefix: str) -> None:
    """Whoever renames nothing in his program finds his tables."""
    assert settings_of(connection(**options)).table_prefix == prefix


def test_a_connection_to_an_ipv6_address() -> None:
    """Its colons would be read as a port's."""
    found = settings_of(happybase.Connection("::1", 9090, autoconnect=False))
    assert parse_address(found.url).gateways == (("::1", 9090),)


def test_classes_of_ones_own_are_taken_too() -> None:
    """Programs derive from happybase's, and others wrap it."""

    class Ours(happybase.Connection):  # type: ignore[misc]  # happybase has no types
        pass

    assert settings_of(Ours("gw", autoconnect=False)).url.startswith("hbase+thrift1://gw:9090?")


@pytest.mark.parametrize(
    "given", [happybase, happybase.Table(b"t", connection()), object(), 5, None, b"memory:"]
)
def test_anything_else_is_refused(given: object) -> None:
    """By its type; a table has a connection, but is none."""
    with pytest.raises(TypeError, match=r"(must be str|of happybase's), not "):
        omidpy.connect(given)  # type: ignore[arg-type]  # the point


def test_a_way_to_speak_that_is_not_known_is_named() -> None:
    """A later happybase may have others; a guess would hang at the first call."""
    odd = connection()
    odd._transport_class = object
    with pytest.raises(ConfigError, match=r"to gw:9091 speaks in a way .*hbase\+thrift1://"):
        settings_of(odd)


def test_a_pool_is_taken_with_its_size_and_keeps_its_connections() -> None:
    """None of them is opened, used or closed by us."""
    with FakeGateway({"getTableNames": lambda: [b"t"]}, api="thrift1") as gateway:
        pool = happybase.ConnectionPool(3, host="127.0.0.1", port=gateway.port)
        with pool.connection() as mine:
            # One is in use by this thread, which the pool lends again to the same thread.
            found = parse_address(settings_of(pool).url)
            assert mine.tables() == [b"t"]
        assert (found.gateways, found.pool_size) == ((("127.0.0.1", gateway.port),), 3)
        assert gateway.connection_count == 1
        with pool.connection() as mine:
            assert mine.tables() == [b"t"]


def test_a_pool_that_is_used_up_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than waited for without end, as happybase does."""
    monkeypatch.setattr(from_happybase, "PATIENCE_S", 0.01)
    with FakeGateway(api="thrift1") as gateway:
        pool = happybase.ConnectionPool(1, host="127.0.0.1", port=gateway.port)
        taken = pool._acquire_connection()
        with pytest.raises(ConfigError, match="all connections of the pool have been in use"):
            omidpy.connect(pool, tso="127.0.0.1:1")
        pool._return_connection(taken)


@contextmanager
def nobody_at(port: int) -> Iterator[None]:
    """Keep a port from whoever else looks for one; a connection to it is refused."""
    with socket.socket() as claimed:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claimed.bind(("127.0.0.1", port))
        yield


def test_a_gateway_that_died_is_named() -> None:
    """A pool opens the connection that it lends, if it was never used."""
    with FakeGateway(api="thrift1") as gateway:
        pool = happybase.ConnectionPool(2, host="127.0.0.1", port=gateway.port)
        opened = pool._acquire_connection()
    with (
        nobody_at(gateway.port),
        pytest.raises(StorageUnavailable, match="the pool of happybase's lends no connection"),
    ):
        omidpy.connect(pool, tso="127.0.0.1:1")
    pool._return_connection(opened)


def test_happybase_is_imported_by_nobody_else() -> None:
    """Who has an address needs none of it."""
    script = (
        "import sys; sys.modules['happybase'] = None; import omidpy\n"
        "tm = omidpy.connect('memory:'); tm.close()\n"
        "from omidpy.storage.hbase import thrift1, thrift2\n"
        "try: omidpy.connect(object())\n"
        "except TypeError: print('refused')"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert run.stdout == b"refused\n"


# -- the prefix of tables --------------------------------------------------------------------------


def test_a_prefix_is_part_of_every_name_in_the_store() -> None:
    """And of none outside of it: tables are made, listed, used, fenced and dropped without it."""
    with omidpy.connect("memory:") as owner:
        store, oracle = owner.store, owner.oracle
        tm = omidpy.TransactionManager(store, oracle, table_prefix="app_", post_commit="sync")
        owner.create_table("other", ["cf"])
        tm.create_table("t", ["cf"])
        assert (tm.tables(), owner.tables()) == (["t"], ["app_t", "other"])
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"cf:q": b"v"})
            worker = tm.resume(tx.token())
            worker.table("t").put(b"s", {b"cf:q": b"w"})
            tx.merge(worker.finish())
        with owner.begin() as tx:
            assert [key for key, _ in tx.table("app_t").scan()] == [b"r", b"s"]
        old = owner.begin()
        old.table("app_t").put(b"r", {b"cf:q": b"x"})
        tm.fence("t")
        with pytest.raises(omidpy.Fenced):
            old.commit()
        with pytest.raises(omidpy.NoSuchTable, match="'app_other'"):
            tm.begin().table("other")
        tm.drop_table("t")
        assert owner.tables() == ["other"]
