"""The pool over real sockets, against gateways that a test holds in its hand.

What scripted connections cannot show: that a broken, silent or foreign gateway looks to the pool as
the scripts say, that TLS verifies, that threads and processes never meet each other's answers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TBufferedTransportFactory, TFramedTransportFactory, TSocket

from omidpy.errors import ConfigError, NoSuchTable, StorageUnavailable, UsageError
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.storage.hbase.idl import thrift2
from omidpy.storage.hbase.rpc import gateway as clients
from omidpy.storage.hbase.rpc.gateway import (
    BUFFER_BYTES,
    CallNotSent,
    OutOfStep,
    Unanswered,
    open_client,
)
from omidpy.storage.hbase.rpc.pool import GatewayPool
from tests.machines.gateways import PATIENCE_S, FakeGateway

pytestmark = pytest.mark.integration


def echo(_table: bytes, get: Any) -> Any:
    """Answer a get with its own row, as key and as value."""
    value = thrift2.TColumnValue(family=b"f", qualifier=b"q", value=get.row, timestamp=1)
    return thrift2.TResult(row=get.row, columnValues=[value])


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    """Give a gateway that echoes gets and takes puts."""
    with FakeGateway({"get": echo, "put": lambda _table, _put: None}) as running:
        yield running


@pytest.fixture
def pools() -> Iterator[Callable[..., GatewayPool]]:
    """Give a function that makes pools, which are closed in the end."""
    made: list[GatewayPool] = []

    def make(url: str) -> GatewayPool:
        made.append(GatewayPool(parse_address(url)))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


Pools = Callable[..., GatewayPool]


def read(pool: GatewayPool, row: bytes) -> bytes:
    """Return the value that a get of `row` brings."""
    result = pool.call("get", b"t", thrift2.TGet(row=row), is_idempotent=True, table="t")
    value: bytes = result.columnValues[0].value
    return value


def put(pool: GatewayPool, row: bytes = b"r") -> None:
    """Make a call that may not be made twice."""
    cell = thrift2.TColumnValue(family=b"f", qualifier=b"q", value=b"v")
    one = thrift2.TPut(row=row, columnValues=[cell])
    pool.call("put", b"t", one, is_idempotent=False, table="t")


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for another thread or process, with a deadline."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what}: not within {PATIENCE_S} s"
        threading.Event().wait(0.005)


# -- one connection --------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["binary", "compact"])
@pytest.mark.parametrize("transport", ["buffered", "framed"])
def test_every_transport_and_protocol_carries_any_bytes(
    pools: Pools, transport: str, protocol: str
) -> None:
    """Keys and values are bytes; sizes around the buffer's are where framing goes wrong."""
    options = (f"transport={transport}", f"protocol={protocol}")
    with FakeGateway({"get": echo}, transport=transport, protocol=protocol) as gateway:
        pool = pools(gateway.url(*options))
        sizes = (BUFFER_BYTES - 40, BUFFER_BYTES, BUFFER_BYTES + 1, 3 * BUFFER_BYTES)
        for row in (b"\xff\x00\xc2\x80", bytes(range(256)), *(b"\x80" * size for size in sizes)):
            assert read(pool, row) == row
        assert gateway.connection_count == 1


def test_the_answer_to_another_call_is_refused(gateway: FakeGateway) -> None:
    """After a time-out the late answer is the first thing on the connection."""
    client = open_client(parse_address(gateway.url()), "127.0.0.1", gateway.port)
    client.call("getThriftServerType")
    client._sequence += 1
    original, client._protocol = client._protocol, _Renumbered(client._protocol)
    with pytest.raises(OutOfStep, match="getThriftServerType"):
        client.call("getThriftServerType")
    client._protocol = original
    client.close()


class _Renumbered:
    """A protocol that numbers the calls it writes one too low."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol

    def write_message_begin(self, name: str, kind: int, number: int) -> None:
        """Write a number that is not the call's."""
        self._protocol.write_message_begin(name, kind, number - 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)


def test_an_argument_of_the_wrong_type_is_found_before_it_is_sent(
    gateway: FakeGateway, pools: Pools
) -> None:
    """Half a message may be in the buffer: the connection goes, the gateway executes nothing."""
    client = open_client(parse_address(gateway.url()), "127.0.0.1", gateway.port)
    with pytest.raises(CallNotSent, match="'row"):
        client.call("get", b"t", thrift2.TGet(row=17))
    client.close()
    pool = pools(gateway.url())
    with pytest.raises(UsageError, match="does not fit"):
        pool.call("get", b"t", thrift2.TGet(row=17), is_idempotent=True)
    assert read(pool, b"next") == b"next"
    assert gateway.calls["get"] == 1


def test_a_declared_error_leaves_the_connection_in_step(pools: Pools) -> None:
    """HBase's refusals are answers like any other."""

    def missing(_table: bytes, _put: Any) -> None:
        raise thrift2.TIOError(message="t", canRetry=False)

    with FakeGateway({"get": echo, "put": missing}) as gateway:
        pool = pools(gateway.url())
        for _ in range(3):
            with pytest.raises(NoSuchTable):
                put(pool)
            assert read(pool, b"r") == b"r"
        assert gateway.connection_count == 1


@pytest.mark.parametrize("transport", ["buffered", "framed"])
def test_calls_ahead_do_not_wait_for_an_answer(transport: str) -> None:
    """All are sent before the first is answered, and each answer belongs to its call."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"hbase+thrift2://127.0.0.1:{listener.getsockname()[1]}?transport={transport}"
        asked: list[bytes] = []

        def answer_at_the_end() -> None:
            connected, _ = listener.accept()
            with contextlib.closing(connected):
                factories: dict[str, Any] = {
                    "buffered": TBufferedTransportFactory,
                    "framed": TFramedTransportFactory,
                }
                trans = factories[transport]().get_transport(TSocket(sock=connected))
                spoken = TBinaryProtocolFactory().get_protocol(trans)
                numbers = []
                for _ in range(3):
                    _, _, number = spoken.read_message_begin()
                    arguments = thrift2.THBaseService.get_args()
                    arguments.read(spoken)
                    spoken.read_message_end()
                    asked.append(arguments.tget.row)
                    numbers.append(number)
                for row, number in zip(asked, numbers, strict=True):
                    spoken.write_message_begin("get", TMessageType.REPLY, number)
                    result = thrift2.TResult(row=row, columnValues=[])
                    thrift2.THBaseService.get_result(success=result).write(spoken)
                    spoken.write_message_end()
                    trans.flush()

        server = threading.Thread(target=answer_at_the_end)
        server.start()
        client = open_client(parse_address(url), "127.0.0.1", listener.getsockname()[1])
        rows = [b"a", b"b", b"c"]
        calls = [("get", (b"t", thrift2.TGet(row=row))) for row in rows]
        found = client.call_ahead(calls, patience_s=PATIENCE_S)
        client.close()
        server.join(PATIENCE_S)
    assert asked == rows
    assert [result.row for result in found] == rows


def test_calls_ahead_that_fail_leave_no_answer_behind(pools: Pools) -> None:
    """The answers that nobody reads any more must not be taken for those of later calls."""
    is_over = threading.Event()

    def fails(_table: bytes, _put: Any) -> None:
        raise thrift2.TIOError(message="region is moving", canRetry=True)

    def silent(table: bytes, get: Any) -> Any:
        if get.row == b"endless":
            is_over.wait(PATIENCE_S)
        return echo(table, get)

    with FakeGateway({"get": silent, "put": fails}) as gateway:
        pool = pools(gateway.url())
        cell = thrift2.TColumnValue(family=b"f", qualifier=b"q", value=b"v")
        change = ("put", (b"t", thrift2.TPut(row=b"r", columnValues=[cell])))
        look = ("get", (b"t", thrift2.TGet(row=b"r")))
        endless = ("get", (b"t", thrift2.TGet(row=b"endless")))
        with pytest.raises(StorageUnavailable), pool.owned(table="t") as client:
            client.call_ahead([change, look], patience_s=PATIENCE_S)
        assert read(pool, b"next") == b"next"
        with pytest.raises(Unanswered, match="get"), pool.owned(table="t") as client:
            client.call_ahead([look, endless, look], patience_s=0.1)
        assert read(pool, b"again") == b"again"
        with pytest.raises(StorageUnavailable, match="not known"), pool.owned(table="t") as client:
            client.call_ahead([change, ("get", ("no bytes", 1))], patience_s=PATIENCE_S)
        assert gateway.connection_count == 3
        is_over.set()


# -- gateways that fail ----------------------------------------------------------------------------


def test_a_gateway_that_hung_up_costs_no_call(gateway: FakeGateway, pools: Pools) -> None:
    """A gateway closes what was idle for a minute; a write must not be lost in doubt for that."""
    pool = pools(gateway.url())
    for _ in range(3):
        put(pool)
        gateway.hang_up()
        client = pool._idle[0].client
        assert client is not None
        wait_until(client.is_dead, "the end of the connection")
        put(pool)
    assert gateway.calls["put"] == 6


def test_a_silent_gateway_is_left_after_the_time_limit(pools: Pools) -> None:
    """The late answer is never taken for that of the next call."""
    silent = threading.Event()

    def late(table: bytes, get: Any) -> Any:
        if get.row == b"late":
            silent.wait(PATIENCE_S)
        return echo(table, get)

    with FakeGateway({"get": late}) as one, FakeGateway({"get": echo}) as two:
        pool = pools(f"hbase+thrift2://127.0.0.1:{one.port},127.0.0.1:{two.port}?timeout_s=0.2")
        assert {read(pool, b"%d" % n) for n in range(4)} == {b"0", b"1", b"2", b"3"}
        assert read(pool, b"late") == b"late"
        assert read(pool, b"next") == b"next"
        silent.set()
        assert [read(pool, b"%d" % n) for n in range(20)] == [b"%d" % n for n in range(20)]


def test_a_call_without_patience_is_left_long_before_the_time_limit(pools: Pools) -> None:
    """A page of a scan is asked for in smaller parts then; those are waited for as ever."""
    is_over = threading.Event()

    def silent_for_one(table: bytes, get: Any) -> Any:
        if get.row == b"endless":
            is_over.wait(PATIENCE_S)
        return echo(table, get)

    with FakeGateway({"get": silent_for_one}) as gateway:
        pool = pools(gateway.url("timeout_s=20"))
        began_s = time.monotonic()
        with pytest.raises(Unanswered, match="get"):
            pool.call("get", b"t", thrift2.TGet(row=b"endless"), is_idempotent=True, patience_s=0.1)
        assert time.monotonic() - began_s < 10
        assert read(pool, b"next") == b"next"
        result = pool.call(
            "get", b"t", thrift2.TGet(row=b"soon"), is_idempotent=True, patience_s=20.0
        )
        assert result.row == b"soon"
        assert read(pool, b"again") == b"again"
        is_over.set()
        assert gateway.calls["get"] == 4
        assert gateway.connection_count == 2


def test_a_write_that_was_answered_too_late_is_in_doubt_and_made_once(pools: Pools) -> None:
    """Made again it might be applied twice."""
    silent = threading.Event()
    with FakeGateway({"put": lambda _table, _put: silent.wait(PATIENCE_S) and None}) as gateway:
        pool = pools(gateway.url("timeout_s=0.2"))
        pool.call("getThriftServerType", is_idempotent=True)
        with pytest.raises(StorageUnavailable, match=r"0\.2 s.*whether it was applied is not"):
            put(pool)
        silent.set()
        # The gateway may get to it only after we have given it up.
        wait_until(lambda: gateway.calls["put"] > 0, "the put arrives")
        assert gateway.calls["put"] == 1


def test_a_gateway_that_died_is_replaced_by_another(pools: Pools) -> None:
    """The client has both in its address for that."""
    with FakeGateway({"get": echo}) as one, FakeGateway({"get": echo}) as two:
        pool = pools(f"hbase+thrift2://127.0.0.1:{one.port},127.0.0.1:{two.port}")
        read(pool, b"first")
        used = one if one.connection_count else two
        used.close()
        assert [read(pool, b"%d" % n) for n in range(10)] == [b"%d" % n for n in range(10)]


def test_gateways_of_two_clusters_are_refused(pools: Pools) -> None:
    """Half of each transaction would go to either."""
    foreign: dict[str, Callable[..., Any]] = {"get": echo, "getClusterId": lambda: "another"}
    with FakeGateway({"get": echo}) as one, FakeGateway(foreign) as two:
        pool = pools(f"{one.url()},127.0.0.1:{two.port}")
        with pool.owned(), pytest.raises(ConfigError, match="two HBase clusters"):
            read(pool, b"r")
        assert one.calls["get"] + two.calls["get"] == 0


def test_a_gateway_that_was_restarted_is_found_again(pools: Pools) -> None:
    """With one gateway only, calls wait for it."""
    first = FakeGateway({"get": echo})
    pool = pools(first.url())
    assert read(pool, b"1") == b"1"
    port = first.port
    first.close()
    restarted: list[FakeGateway] = []

    def restart() -> None:
        wait_until(lambda: port in pool_ports_down(pool), "a refused connection")
        restarted.append(FakeGateway({"get": echo}, port=port))

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        assert read(pool, b"2") == b"2"
    finally:
        thread.join(PATIENCE_S)
        for gateway in restarted:
            gateway.close()


def pool_ports_down(pool: GatewayPool) -> set[int]:
    """Return the ports of gateways that failed lately."""
    return {port for _, port in pool._down_until_s}


@pytest.mark.parametrize("spoken", ["transport=framed", "protocol=compact"])
def test_a_foreign_tongue_points_to_the_doctor(
    gateway: FakeGateway, pools: Pools, spoken: str
) -> None:
    """A wrong transport hangs, a wrong protocol hangs up: neither says what is wrong."""
    with pytest.raises(StorageUnavailable, match=f"{spoken.partition('=')[2]}.*omidpy doctor"):
        read(pools(gateway.url(spoken, "timeout_s=0.3")), b"r")


def test_a_thrift1_gateway_is_recognised(pools: Pools) -> None:
    """Both gateways listen on 9090 by default."""
    with FakeGateway(api="thrift1") as gateway:
        pool = pools(gateway.url())
        with pytest.raises(ConfigError, match=r"hbase\+thrift1://127"):
            read(pool, b"r")


# -- threads and processes -------------------------------------------------------------------------


def test_threads_never_get_each_others_answers(gateway: FakeGateway, pools: Pools) -> None:
    """Shared without care, one in five reads returns another row, and no error."""
    pool = pools(gateway.url("pool_size=3"))

    def work(worker: int) -> list[tuple[bytes, bytes]]:
        rows = [b"%d/%d" % (worker, n) for n in range(60)]
        return [(row, read(pool, row)) for row in rows]

    with ThreadPoolExecutor(8) as executor:
        pairs = [pair for pairs in executor.map(work, range(8)) for pair in pairs]
    assert len(pairs) == 480
    assert all(row == value for row, value in pairs)
    assert gateway.connection_count <= 3


def test_a_call_that_waits_has_the_regions_looked_up(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HBase's client may be on the wrong track for minutes, and a look-up puts it right."""
    monkeypatch.setattr(clients, "SILENCE_S", 0.02)
    looked_up = threading.Event()

    def look_up(table: bytes) -> list[Any]:
        assert table == b"t"
        looked_up.set()
        return []

    def misled(table: bytes, get: Any) -> Any:
        assert looked_up.wait(PATIENCE_S)
        return echo(table, get)

    with FakeGateway({"get": misled, "getAllRegionLocations": look_up}) as gateway:
        assert read(pools(gateway.url()), b"row") == b"row"
        assert gateway.calls == {"get": 1, "getAllRegionLocations": 1}


def test_a_silent_gateway_is_given_up_in_time_whatever_a_look_up_does(
    pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HBase may be down, and then the look-up has no answer either."""
    monkeypatch.setattr(clients, "SILENCE_S", 0.02)
    is_over = threading.Event()

    def silent(*_: Any) -> Any:
        assert is_over.wait(PATIENCE_S)
        return []

    with FakeGateway({"get": silent, "getAllRegionLocations": silent, "put": silent}) as gateway:
        pool = pools(gateway.url("timeout_s=0.2", "retry_s=0"))
        pool.call("getThriftServerType", is_idempotent=True)
        with pytest.raises(StorageUnavailable, match=r"no answer within 0\.2 s"):
            put(pool)
        is_over.set()
        wait_until(lambda: {"put", "getAllRegionLocations"} <= set(gateway.calls), "both arrive")
        assert gateway.calls["put"] == 1
        assert gateway.calls["getAllRegionLocations"] == 1


def test_a_fork_leaves_both_sides_with_connections_of_their_own(
    gateway: FakeGateway, pools: Pools
) -> None:
    """Spark forks its workers; the child's close must not end the parent's connection either."""
    pool = pools(gateway.url())
    assert read(pool, b"before") == b"before"
    with pool.owned() as owned:
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            code = 1
            try:
                rows = [b"child %d" % n for n in range(50)]
                code = 0 if [read(pool, row) for row in rows] == rows else 2
                pool.close()
            finally:
                os._exit(code)
        answers = [
            owned.call("get", b"t", thrift2.TGet(row=b"parent %d" % n)).row for n in range(50)
        ]
        _, status = os.waitpid(child, 0)
        answers.append(owned.call("get", b"t", thrift2.TGet(row=b"after")).row)
    assert os.waitstatus_to_exitcode(status) == 0
    assert answers == [*(b"parent %d" % n for n in range(50)), b"after"]
    assert gateway.connection_count == 2


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an authority's own certificate for gw.example, which is no name of the loopback."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=gw.example", "-addext", "subjectAltName=DNS:gw.example"),
            *("-keyout", folder / "key.pem", "-out", folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture
def server_side(certificates: Path) -> ssl.SSLContext:
    """Return the settings of a server that asks its clients for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    context.load_verify_locations(certificates / "cert.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.fixture
def secure(server_side: ssl.SSLContext) -> Iterator[FakeGateway]:
    """Give a gateway that speaks TLS."""
    with FakeGateway({"get": echo, "put": lambda _table, _put: None}, tls=server_side) as running:
        yield running


def test_tls_carries_calls_and_sees_a_hang_up(
    secure: FakeGateway, certificates: Path, pools: Pools
) -> None:
    """Large values cross the limits of TLS records; a dead connection is found before a write."""
    pem, key = certificates / "cert.pem", certificates / "key.pem"
    pool = pools(
        secure.url(
            "tls=on", f"tls_ca={pem}", "tls_name=gw.example", f"tls_cert={pem}&tls_key={key}"
        )
    )
    for row in (b"r", b"x" * 100_000):
        assert read(pool, row) == row
    put(pool)
    assert secure.connection_count == 1
    secure.hang_up()
    client = pool._idle[0].client
    assert client is not None
    wait_until(client.is_dead, "the end of the connection")
    put(pool)
    assert secure.calls["put"] == 2


def test_a_call_without_patience_is_left_over_tls_too(
    certificates: Path, server_side: ssl.SSLContext, pools: Pools
) -> None:
    """A new connection has bytes of TLS to read before those of an answer."""
    is_over = threading.Event()
    silent = {"get": lambda _table, _get: is_over.wait(PATIENCE_S)}
    with FakeGateway(silent, tls=server_side) as gateway:
        pem = certificates / "cert.pem"
        pool = pools(gateway.url("tls=on", f"tls_ca={pem}", "tls_name=gw.example", "timeout_s=20"))
        with pytest.raises(Unanswered):
            pool.call("get", b"t", thrift2.TGet(row=b"r"), is_idempotent=True, patience_s=0.1)
        is_over.set()


def test_a_certificate_of_nobody_known_is_refused(secure: FakeGateway, pools: Pools) -> None:
    """Encryption to an unknown machine protects from nobody."""
    with pytest.raises(ConfigError, match=r"not trusted.*tls_ca=FILE"):
        read(pools(secure.url("tls=on", "tls_name=gw.example")), b"r")


def test_a_certificate_of_another_name_is_refused(
    secure: FakeGateway, certificates: Path, pools: Pools
) -> None:
    """thriftpy2's own sockets do not compare the name."""
    url = secure.url("tls=on", f"tls_ca={certificates / 'cert.pem'}")
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1.*tls_name=NAME"):
        read(pools(url), b"r")


def test_tls_towards_a_gateway_without_says_so(gateway: FakeGateway, pools: Pools) -> None:
    """The gateway takes the greeting for a call, and waits or hangs up."""
    with pytest.raises(StorageUnavailable, match=r"does the gateway speak TLS|does not answer"):
        read(pools(gateway.url("tls=on", "connect_timeout_s=0.5")), b"r")


@pytest.mark.parametrize("option", ["tls_ca", "tls_cert"])
def test_a_file_that_is_missing_is_named(gateway: FakeGateway, pools: Pools, option: str) -> None:
    """The operating system's message alone would not say which option it is about."""
    with pytest.raises(ConfigError, match=f"{option}='/nowhere.pem'"):
        read(pools(gateway.url("tls=on", f"{option}=/nowhere.pem")), b"r")


def test_a_gateway_on_ipv6_is_reached(pools: Pools) -> None:
    """thriftpy2's own sockets speak IPv4 only."""
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no address ::1")
    with FakeGateway({"get": echo}, host="::1") as gateway:
        assert read(pools(f"hbase+thrift2://[::1]:{gateway.port}"), b"r") == b"r"
