"""A wrong port, no master, a name that nobody knows: one line that names it, and the remedy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.native import inspection
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.calling.calls import Calls
from omidpy.storage.hbase.native.connections.diagnosis import Speaker, what_answers
from omidpy.storage.hbase.native.inspection import servers
from omidpy.storage.hbase.native.values import Get, Selection, ServerName
from tests.machines.fake_hbase import (
    Call,
    FakeHBase,
    FixedRegistry,
    Reply,
    client_of,
    fault,
    frame_of,
)
from tests.machines.hbase_messages import message

HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"
THRIFT = b"\x80\x01\x00\x02\x00\x00\x00\x13getThriftServerType"
HBASE = bytes.fromhex("0000000e0608ffffffff0f060a04") + b"name"


@pytest.fixture(name="port")
def ports() -> Iterator[Callable[[Callable[[bytes], bytes]], int]]:
    """Return what starts a server that answers the first bytes of each connection."""
    with ExitStack() as resources:

        def started(answer: Callable[[bytes], bytes]) -> int:
            listener = resources.enter_context(socket.create_server(("127.0.0.1", 0)))
            resources.callback(listener.shutdown, socket.SHUT_RDWR)

            def serve() -> None:
                while True:
                    try:
                        connected, _ = listener.accept()
                    except OSError:
                        return
                    with connected:
                        connected.sendall(answer(connected.recv(512)))

            threading.Thread(target=serve, daemon=True).start()
            port: int = listener.getsockname()[1]
            return port

        yield started


Ports = Callable[[Callable[[bytes], bytes]], int]


@pytest.mark.parametrize(
    ("answer", "speaker", "for_hbase"),
    [
        (lambda _: HTTP, Speaker.HTTP, "name the port of HBase's RPC, 16000 or 16020"),
        (
            lambda asked: THRIFT if b"getThrift" in asked else b"",
            Speaker.THRIFT,
            r"write hbase\+thrift2://127.0.0.1:\d+, or name masters",
        ),
        (
            lambda asked: b"imok" if asked == b"ruok" else b"",
            Speaker.ZOOKEEPER,
            r"write hbase://127.0.0.1:\d+/hbase",
        ),
        (lambda asked: HBASE if asked == b"Regist" else b"", Speaker.HBASE, "see its log"),
        (lambda _: b"what?", Speaker.SILENT, "room for one more connection"),
    ],
)
def test_what_answers_at_a_port_is_named(
    port: Ports, answer: Callable[[bytes], bytes], speaker: Speaker, for_hbase: str
) -> None:
    """With what to write instead; and the store says it in its first error."""
    found = what_answers("127.0.0.1", port(answer), patience_s=0.2)
    assert found.speaker is speaker
    store = NativeStore(f"hbase+rpc://127.0.0.1:{port(answer)}?connect_timeout_s=0.2&timeout_s=0.2")
    with pytest.raises(StorageUnavailable, match=f"does not answer: at .*{for_hbase}") as caught:
        store.tables()
    assert "\n" not in str(caught.value)
    store.close()


def test_nobody_and_an_unknown_name_are_told_apart() -> None:
    """Both with the remedy."""
    nobody = what_answers("127.0.0.1", 1, patience_s=0.2)
    assert nobody.told("HBase") == "nobody listens; start HBase, or check the address"
    unknown = what_answers("no.such.host.invalid", 16000, patience_s=0.2)
    assert unknown.speaker is Speaker.UNKNOWN_HOST
    assert "check its name" in unknown.told("ZooKeeper")


def test_a_gateway_named_as_zookeeper_is_told(port: Ports) -> None:
    """It closes what ZooKeeper's client sends, which says nothing by itself."""
    at = port(lambda asked: THRIFT if b"getThrift" in asked else b"")
    store = NativeStore(f"hbase://127.0.0.1:{at}/hbase?connect_timeout_s=1")
    with pytest.raises(StorageUnavailable, match=r"Thrift gateway answers; write hbase\+thrift2"):
        store.tables()
    store.close()


def test_a_zookeeper_that_lets_nobody_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers, so that what answers there is no question."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoAuthError

    def refuse(client: object, path: str) -> None:
        raise NoAuthError

    monkeypatch.setattr(KazooClient, "start", lambda client, timeout: None)
    monkeypatch.setattr(KazooClient, "sync_async", refuse)
    store = NativeStore("hbase://127.0.0.1:1/hbase")
    with pytest.raises(ConfigError, match=r"strangers read below /hbase; .*hbase\+rpc://HOST"):
        store.tables()
    store.close()


def test_no_master_is_told_by_the_servers_that_answer() -> None:
    """They know, and HBase may just be starting."""
    with FakeHBase(lambda _: Reply()) as fake:
        store = NativeStore(f"hbase+rpc://127.0.0.1:{fake.port}?retry_s=0")
        with pytest.raises(StorageUnavailable, match=r"no master is active.*start HBase"):
            store.tables()
        store.close()
    with FakeHBase(lambda _: fault("ipc.ServerNotRunningYetException", "not yet")) as fake:
        store = NativeStore(f"hbase+rpc://127.0.0.1:{fake.port}?retry_s=0")
        with pytest.raises(StorageUnavailable, match=r"no master is active.*not yet"):
            store.tables()
        store.close()


def test_no_catalogue_is_told_by_the_servers_that_answer() -> None:
    """There is a master, and it has not given the catalogue to anybody yet."""
    name = message("ServerName", host_name="127.0.0.1", port=1, start_code=1).SerializeToString()

    def script(call: Call) -> Reply:
        is_asked_for_meta = call.method == "GetMetaRegionLocations"
        return Reply(b"" if is_asked_for_meta else b"\x0a" + bytes((len(name),)) + name)

    with FakeHBase(script) as fake:
        url = f"hbase+rpc://127.0.0.1:{fake.port}?retry_s=0"
        store = NativeStore(url)
        with pytest.raises(
            StorageUnavailable, match=r"^no server has the catalogue[^\n]*wait until it has start"
        ):
            store.regions("t")
        store.close()
        (seen,) = servers(parse_native(url))
    assert (seen.role, seen.server) == ("catalogue", url)
    assert "no server has the catalogue" in (seen.problem or "")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda store: store.tables(), "no master is active: the znode /hbase/master of"),
        (
            lambda store: store.regions("t"),
            r"no server has the catalogue \(hbase:meta\): the znode /hbase/meta-region-server of",
        ),
    ],
)
def test_neither_in_zookeeper_is_told_by_its_znode(
    monkeypatch: pytest.MonkeyPatch, asked: Callable[[NativeStore], object], message: str
) -> None:
    """Where HBase keeps its own there, and has written nothing of it."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoNodeError

    def told(client: KazooClient, found: object) -> object:
        answer = client.handler.async_result()
        answer.set(found)
        return answer

    def get(client: object, path: str) -> None:
        raise NoNodeError

    monkeypatch.setattr(KazooClient, "start", lambda client, timeout: None)
    monkeypatch.setattr(KazooClient, "sync_async", told)
    monkeypatch.setattr(KazooClient, "get_async", get)
    monkeypatch.setattr(KazooClient, "exists_async", told)
    store = NativeStore("hbase://127.0.0.1:1/hbase?retry_s=0")
    with pytest.raises(StorageUnavailable, match=f"^[^\n]*{message}[^\n]*; start HBase"):
        asked(store)
    store.close()


def test_another_protocol_is_told_with_the_versions_that_are_spoken() -> None:
    """HBase says so under no call's id, and hangs up."""
    refusal = frame_of(2**32 - 1, fault("ipc.WrongVersionException", "Unknown version 9"))
    with FakeHBase(lambda _: Reply(raw=refusal)) as fake:
        client = client_of(fake, options="retry_s=0")
        with pytest.raises(ConfigError, match=r"^[^\n]*another protocol; 2\.5 and 2\.6 are supp"):
            client.get("t", Get(b"a", Selection()))
        client.close()


@pytest.mark.parametrize("version", ["2.6.4", "2.5.13", "", "3.0.0-beta-1", "1.7.2"])
def test_a_release_that_is_not_supported_is_named_by_the_doctor(version: str) -> None:
    """It may answer all the same; nobody has tried."""
    with ExitStack() as resources:
        at: list[int] = []

        def script(call: Call) -> Reply:
            if call.method == "GetClusterStatus":
                content = version.encode()
                told = b"\x0a" + bytes((len(content) + 2, 0x0A, len(content))) + content
                return Reply(b"\x0a" + bytes((len(told),)) + told)
            name = message("ServerName", host_name="127.0.0.1", port=at[0], start_code=1)
            body = name.SerializeToString()
            if call.method == "GetMetaRegionLocations":
                body = b"\x12" + bytes((len(body),)) + body
            if call.method == "Scan":
                return Reply(message("ScanResponse", more_results=False).SerializeToString())
            return Reply(b"\x0a" + bytes((len(body),)) + body)

        fake = resources.enter_context(FakeHBase(script))
        at.append(fake.port)
        found = list(servers(parse_native(f"hbase+rpc://127.0.0.1:{fake.port}")))
    assert [one.role for one in found[:2]] == ["catalogue", "master"]
    named = [(one.role, one.server) for one in found[2:]]
    assert named == ([("HBase", version)] if version[:1] in ("3", "1") else [])
    assert all("tested with 2.5 and 2.6 alone" in (one.problem or "") for one in found[2:])


def test_a_region_server_whose_name_is_unknown_here_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The usual failure of an HBase in containers; `doctor` looks for it, too, and does not wait.

    What the master would tell is left out where it cannot be reached.
    """
    calls = Calls(
        parse_native("hbase+rpc://m?retry_s=0"),
        registry=FixedRegistry(ServerName("rs1.invalid", 16020)),
    )
    calls.connections.note_answer()
    with pytest.raises(StorageUnavailable, match=r"rs1\.invalid:16020: the host's name is unknown"):
        calls.at_master("M", b"", bytes, what="look", table=None, is_repeatable=True)
    calls.close()

    def script(call: Call) -> Reply:
        name = message("ServerName", host_name="rs1.invalid", port=16020, start_code=1)
        if call.method == "GetMetaRegionLocations":
            location = b"\x12" + bytes((name.ByteSize(),)) + name.SerializeToString()
            return Reply(b"\x0a" + bytes((len(location),)) + location)
        return Reply(b"\x0a" + bytes((name.ByteSize(),)) + name.SerializeToString())

    monkeypatch.setattr(inspection, "Admin", None)
    with FakeHBase(script) as fake:
        found = list(servers(parse_native(f"hbase+rpc://127.0.0.1:{fake.port}")))
    assert [one.role for one in found[:2]] == ["catalogue", "master"]
    assert all("let this machine resolve them" in (one.problem or "") for one in found[:2])
