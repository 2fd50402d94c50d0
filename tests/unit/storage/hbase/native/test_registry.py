"""Whoever tells where HBase's parts are tells of one HBase."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from omidpy.base.ensemble import start
from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.oracle.zookeeper import parse_zookeeper, start_client
from omidpy.storage.hbase.direct.store import NativeStore
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.calling import registry as registry_module
from omidpy.storage.hbase.native.calling.calls import Calls
from omidpy.storage.hbase.native.calling.registry import RpcRegistry, ZooKeeperRegistry
from omidpy.storage.hbase.native.connections.pool import MASTER, REGIONS, until
from omidpy.storage.hbase.native.faults import Garbled
from omidpy.storage.hbase.native.values import Scan, Selection
from tests.machines.fake_hbase import Call, FakeHBase, Reply
from tests.machines.hbase_messages import message
from tests.machines.speaking_zookeeper import SpeakingZooKeeper
from tests.machines.waiting import wait_for

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from kazoo.interfaces import IAsyncResult

DEADLINE_S: Final = 20.0
NO_ROWS = message("ScanResponse", more_results_in_region=False).SerializeToString()


class Server:
    """A server that says it is everything, of one HBase."""

    def __init__(self, cluster_id: bytes) -> None:
        self.cluster_id = cluster_id
        self.fake = FakeHBase(self._answer)

    def _answer(self, call: Call) -> Reply:
        if call.method == "Scan":
            return Reply(NO_ROWS)
        if call.method == "GetClusterId":
            told = self.cluster_id
        else:
            name = message("ServerName", host_name="127.0.0.1", port=self.fake.port, start_code=1)
            told = name.SerializeToString()
            if call.method == "GetMetaRegionLocations":
                told = b"\x12" + bytes((len(told),)) + told
        return Reply(b"\x0a" + bytes((len(told),)) + told if told else b"")


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    """Close what a test opens."""
    with ExitStack() as stack:
        yield stack


def opened(resources: ExitStack, *servers: Server) -> Calls:
    """Return calls to an address that names these servers, asked in this order."""
    places = ",".join(
        f"127.0.0.1:{resources.enter_context(server.fake).port}" for server in servers
    )
    calls = Calls(parse_native(f"hbase+rpc://{places}?retry_s=0&connect_timeout_s=2"))
    resources.callback(calls.close)
    return calls


def test_two_clusters_in_one_address_are_told(
    resources: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would get a part of what is written: here the tables, and there the cells."""
    red, blue = Server(b"red"), Server(b"blue")
    monkeypatch.setattr(random, "shuffle", lambda places: None)
    calls = opened(resources, red, blue)
    assert calls.registry.master() == red.fake.server
    red.fake.stop()
    with pytest.raises(ConfigError, match="lead to two HBase clusters, red and blue: correct"):
        calls.registry.meta_server()


def test_servers_of_one_cluster_are_believed(
    resources: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one that does not know yet, while HBase starts."""
    red, other, starting = Server(b"red"), Server(b"red"), Server(b"")
    monkeypatch.setattr(random, "shuffle", lambda places: None)
    calls = opened(resources, starting, red, other)
    assert calls.registry.master() == starting.fake.server
    starting.fake.stop()
    assert calls.registry.meta_server() == red.fake.server
    assert calls.registry.cluster_id() == "red"
    red.fake.stop()
    assert calls.registry.master() == other.fake.server


def test_an_hbase_that_was_made_anew_is_another_store(resources: ExitStack) -> None:
    """What a client knows is of the one before: its tables, its store's id, its oracle."""
    server = Server(b"red")
    calls = opened(resources, server)
    calls.registry.master()
    server.cluster_id = b"blue"
    with pytest.raises(ConfigError, match=r"of the HBase cluster red before.*open the store again"):
        calls.registry.master()


@pytest.mark.parametrize("is_met_before", [False, True])
@pytest.mark.parametrize("is_by_master", [False, True])
def test_an_hbase_that_was_made_anew_behind_an_open_client_is_noticed(
    resources: ExitStack,
    is_by_master: bool,  # noqa: FBT001 - a table
    is_met_before: bool,  # noqa: FBT001 - a table
) -> None:
    """At the same places, where no call fails: in each HBase the catalogue has the same name."""
    server = Server(b"red")
    calls = opened(resources, server)

    def ask() -> None:
        if is_by_master:
            Admin(calls).version()
        else:
            calls.read_catalogue(Scan(b"", b"", Selection()), 1, until_s=until(5))

    def hang_up() -> None:
        server.fake.hang_up()
        places = calls.connections._places.values()
        wait_for(lambda: all(one.connection and one.connection.has_ended for one in places), 5)
        if is_met_before:
            # Another call finds its server there again, and asks for nothing.
            for service in (REGIONS, MASTER):
                calls.connections.get("127.0.0.1", server.fake.port, service)

    ask()
    asked = server.fake.methods.count("GetClusterId")
    ask()
    assert server.fake.methods.count("GetClusterId") == asked
    hang_up()
    ask()
    assert server.fake.methods.count("GetClusterId") == asked + 1
    server.cluster_id = b"blue"
    hang_up()
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"of the HBase cluster red before.*open the store a"):
            ask()


def test_a_zookeeper_that_cannot_be_begun_with_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a descriptor its client fails to start, and then to stop, each in its own way."""

    def no_more(_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(SequentialThreadingHandler, "create_socket_pair", no_more)
    monkeypatch.setattr(registry_module, "_nobody", lambda *_: "nobody")
    address = parse_native("hbase://127.0.0.1:1/hbase?connect_timeout_s=1")
    with pytest.raises(StorageUnavailable, match="nobody") as caught:
        ZooKeeperRegistry(address).meta_server()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(StorageUnavailable, match="Too many open files"):
        start_client(parse_zookeeper("zk://127.0.0.1:1/ns"))


def test_servers_that_are_named_as_places_to_ask_are_bounded(resources: ExitStack) -> None:
    """Each is kept, and asked for seconds where those of the address do not answer."""
    server = Server(b"one")
    other = b"\x0a\x05\x0a\x01h\x10\x01"
    answer = server.fake.script

    def told(call: Call) -> Reply:
        return Reply(other * 10_000) if call.method == "GetBootstrapNodes" else answer(call)

    server.fake.script = told
    calls = opened(resources, server)
    assert calls.registry.cluster_id() == "one"
    assert isinstance(calls.registry, RpcRegistry)
    assert 0 < len(calls.registry._in_turn()) <= 1 + registry_module.MOST_TOLD


def test_an_answer_of_a_place_to_ask_is_short(
    resources: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names some servers, and a longer one is none."""
    monkeypatch.setattr(registry_module, "_nobody", lambda *_: "nobody")
    server = Server(b"one")
    server.fake.script = lambda _: Reply(b"\x0a\x00" * registry_module.MOST_TOLD_BYTES)
    calls = opened(resources, server)
    with pytest.raises(StorageUnavailable, match="nobody") as caught:
        calls.registry.master()
    assert isinstance(caught.value.__cause__, Garbled)


def test_zookeeper_servers_of_two_ensembles_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client takes whichever server answers first."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoNodeError

    ids = [b"red", b"blue"]
    name = message("ServerName", host_name="127.0.0.1", port=1, start_code=1).SerializeToString()

    def get(client: KazooClient, path: str) -> IAsyncResult:
        if path not in ("/hbase/master", "/hbase/hbaseid"):
            raise NoNodeError
        told = ids.pop(0) if path == "/hbase/hbaseid" else name
        return answered(client, (b"\xff\0\0\0\0PBUF\x0a" + bytes((len(told),)) + told, None))

    def answered(client: KazooClient, found: object) -> IAsyncResult:
        answer = client.handler.async_result()
        answer.set(found)
        return answer

    monkeypatch.setattr(KazooClient, "start", lambda client, timeout: None)
    monkeypatch.setattr(KazooClient, "sync_async", answered)
    monkeypatch.setattr(KazooClient, "get_async", get)
    store = NativeStore("hbase://127.0.0.1:1/hbase?retry_s=0")
    registry = store._client.calls.registry
    assert registry.master().port == 1
    with pytest.raises(ConfigError, match="red before, and tells now of blue"):
        registry.master()
    store.close()


@pytest.mark.parametrize(
    ("problem", "told"), [("NoNodeError", "has no znode /hbase"), ("NoAuthError", "strangers read")]
)
def test_what_was_right_once_is_no_mistake_in_the_address(
    monkeypatch: pytest.MonkeyPatch, problem: str, told: str
) -> None:
    """Where ZooKeeper is made anew, HBase's znode is missing until its master has started."""
    from kazoo import exceptions
    from kazoo.client import KazooClient

    problems: list[type[Exception]] = []
    name = message("ServerName", host_name="127.0.0.1", port=1, start_code=1).SerializeToString()

    def answered(client: KazooClient, found: object) -> IAsyncResult:
        answer = client.handler.async_result()
        answer.set(found)
        return answer

    def get(client: KazooClient, _: str) -> IAsyncResult:
        if problems:
            raise problems[0]
        return answered(client, (b"\xff\0\0\0\0PBUF\x0a" + bytes((len(name),)) + name, None))

    monkeypatch.setattr(KazooClient, "start", lambda client, timeout: None)
    monkeypatch.setattr(KazooClient, "sync_async", answered)
    monkeypatch.setattr(KazooClient, "get_async", get)
    monkeypatch.setattr(KazooClient, "exists_async", lambda client, _: answered(client, None))
    monkeypatch.setattr(KazooClient, "get_children_async", lambda client, _: answered(client, []))
    address = parse_native("hbase://127.0.0.1:1/hbase")
    known = ZooKeeperRegistry(address)
    assert known.master().port == 1
    problems.append(getattr(exceptions, problem))
    with pytest.raises(ConfigError, match=told):
        ZooKeeperRegistry(address).master()
    with pytest.raises(StorageUnavailable, match=told) as caught:
        known.master()
    assert caught.value.retryable
    problems.clear()
    assert known.master().port == 1


def test_a_zookeeper_that_goes_in_between_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client keeps what is asked until a server is there again, however long that takes."""
    pytest.importorskip("kazoo")
    with SpeakingZooKeeper() as server:
        registry = ZooKeeperRegistry(
            parse_native(f"hbase://{server.hosts}/hbase?connect_timeout_s=1")
        )

        def start_and_lose(client: KazooClient, *asked: Any, **more: Any) -> None:
            start(client, *asked, **more)
            server.stop()
            wait_for(lambda: not client.connected, DEADLINE_S)

        monkeypatch.setattr(registry_module, "start", start_and_lose)
        told: list[Exception] = []

        def ask() -> None:
            try:
                registry.master()
            except StorageUnavailable as error:
                told.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(DEADLINE_S)
        assert told
        assert "does not answer: at 127.0.0.1" in str(told[0])
