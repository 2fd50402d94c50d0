"""TLS to HBase itself: calls, both sides' certificates, and an end that speaks no TLS."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from omidpy.errors import ConfigError
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.connections import connection as connections
from omidpy.storage.hbase.native.connections.connection import Connection
from omidpy.storage.hbase.native.connections.opening import Pipe, open_conversation
from omidpy.storage.hbase.native.faults import Disagreed, Lost, NotSent, Unanswered
from omidpy.storage.hbase.native.security.settings import OPEN, Security, security_of
from omidpy.storage.hbase.native.translate import translate
from tests.machines.fake_hbase import SILENCE, Call, FakeHBase, Reply
from tests.machines.interrupts.lines import Interrupt, Interrupter
from tests.machines.tls import Authority

LIMIT_S = 20.0


CLOSE_NOTIFY = bytes.fromhex("15030300020100")
USER_CANCELED = bytes.fromhex("1503030002015a")
GOODBYES = (b"", CLOSE_NOTIFY, USER_CANCELED + CLOSE_NOTIFY)


def until(seconds: float = LIMIT_S) -> float:
    """Return a deadline."""
    return time.monotonic() + seconds


def echo(call: Call) -> Reply:
    """Answer with what was asked."""
    return Reply(body=call.body, cells=call.cells)


def connected(server: FakeHBase, security: Security, *, host: str = "127.0.0.1") -> Connection:
    """Connect to a fake."""
    return connections.connect(
        host,
        server.port,
        "ClientService",
        user="me",
        timeout_s=LIMIT_S,
        max_frame_bytes=2**22,
        security=security,
        is_first=True,
    )


@pytest.fixture(scope="module", name="authority")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return an authority that has signed for `server` and `client`."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    for name in ("server", "client"):
        authority.issue(name)
    return authority


def trusting(authority: Authority, options: str = "") -> Security:
    """Return what an address of a client says that trusts an authority."""
    return security_of(parse_native(f"hbase+rpc://m?tls=on&tls_ca={authority.ca}{options}"))


def certificate(authority: Authority, name: str) -> Path:
    """Return the file of a certificate that was issued."""
    return authority.ca.with_name(f"authority-{name}.pem")


def serving(authority: Authority, *, is_asking: bool = False) -> ssl.SSLContext:
    """Return what a server shows; with `is_asking` it wants a certificate of the client's."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca))
    context.load_cert_chain(certificate(authority, "server"))
    context.verify_mode = ssl.CERT_REQUIRED if is_asking else ssl.CERT_NONE
    return context


@pytest.fixture(name="server")
def echoing(authority: Authority) -> Iterator[FakeHBase]:
    """Return a server that speaks TLS, and answers with what it is asked."""
    with FakeHBase(echo, tls=serving(authority)) as server:
        yield server


def test_calls_of_many_threads_get_their_own_answers(
    authority: Authority, server: FakeHBase
) -> None:
    """Short ones and ones of many records, over one connection."""
    connection = connected(server, trusting(authority))
    assert connection.secured == "by TLS"

    def call(number: int) -> bool:
        body = b"%d" % number * (1 + number % 50 * 2000)
        return connection.call("Echo", body, b"c" * (number % 3), until_s=until()).body == body

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(200)))
    assert len(server.openings) == 1
    assert not connection.has_ended
    connection.close()
    assert connection.has_ended


def test_the_end_of_an_idle_connection_is_noticed(authority: Authority, server: FakeHBase) -> None:
    """Though TLS has something to say after its handshake, which is no answer."""
    connection = connected(server, trusting(authority))
    assert connection.call("M", b"x", until_s=until()).body == b"x"
    assert not connection.has_ended
    server.hang_up()
    limit_s = until()
    while not connection.has_ended and time.monotonic() < limit_s:
        time.sleep(0.01)
    with pytest.raises(NotSent):
        connection.call("M", b"x", until_s=until())
    connection.close()


@pytest.mark.parametrize("number", [1, 2])
def test_a_certificate_of_somebody_else_is_refused(
    number: int, authority: Authority, server: FakeHBase, tmp_path: Path
) -> None:
    """One that a stranger signed, and one for another host; `tls_name` says whose is right."""
    security = trusting(Authority(tmp_path) if number == 1 else authority)
    host = "127.0.0.1" if number == 1 else "localhost"
    with pytest.raises(Disagreed, match=r"not trusted: .*tls_ca=FILE, and with tls_name=NAME"):
        connected(server, security, host=host)
    renamed = trusting(authority, "&tls_name=127.0.0.1")
    connection = connected(server, renamed, host="localhost")
    assert connection.call("M", b"x", until_s=until()).body == b"x"
    connection.close()


def test_a_server_that_wants_a_certificate_is_shown_one(authority: Authority) -> None:
    """And who shows none is told so: by TLS 1.3 after the handshake, whatever is sent then."""
    shown = f"&tls_cert={certificate(authority, 'client')}"
    with FakeHBase(echo, tls=serving(authority, is_asking=True)) as server:
        connection = connected(server, trusting(authority, shown))
        assert connection.call("M", b"x", until_s=until()).body == b"x"
        connection.close()
        with (
            pytest.raises(Disagreed, match=r"\(.*certificate.*\); name one .* tls_cert=FILE"),
            closing(connected(server, trusting(authority))) as connection,
        ):
            connection.call("M", b"x", until_s=until())


def test_what_a_server_said_before_it_hung_up_is_why() -> None:
    """The end may be met in sending, with the reason not read yet."""

    class HungUp:
        def settimeout(self, _: float) -> None: ...

        def sendall(self, _: bytes) -> None:
            raise ConnectionResetError("reset")

        def recv(self, _: int) -> bytes:
            return b"an alert"

    class Refused:
        is_over = False

        def seal(self, data: bytes) -> bytes:
            return data

        def open(self, arrived: bytes) -> bytes:
            raise Disagreed(f"it said {arrived.decode()}")

    hung_up: Any = HungUp()
    pipe = Pipe(hung_up, until())
    with pytest.raises(ConnectionResetError):
        pipe.send(b"x")
    pipe.layer = Refused()
    with pytest.raises(Disagreed, match="it said an alert"):
        pipe.send(b"x")


@pytest.mark.parametrize("farewell", GOODBYES)
def test_a_server_that_ends_during_the_handshake_has_refused_nothing(farewell: bytes) -> None:
    """One that stops says goodbye first, and the next one is worth a try."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(farewell)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionResetError):
            open_conversation(
                ours,
                "ClientService",
                user="me",
                security=Security(tls=ssl.create_default_context),
                host="localhost",
                until_s=until(),
            )


def test_a_client_without_tls_is_told_that_the_server_speaks_it(
    authority: Authority, server: FakeHBase
) -> None:
    """The server itself only hangs up."""
    connection = connected(server, OPEN)
    with pytest.raises(Disagreed, match="speaks TLS; add tls=on") as caught:
        connection.call("M", b"x", until_s=until())
    connection.close()
    address = parse_native(f"hbase+rpc://127.0.0.1:{server.port}")
    meant = translate(caught.value, address=address, what="M", where="rs:1", table=None)
    assert isinstance(meant, ConfigError)
    assert str(meant).startswith("M at the HBase server rs:1: it speaks TLS; add tls=on")


def test_tls_to_a_server_without_it_is_named(authority: Authority) -> None:
    """HBase's answer to it is an exception of its own, in the open."""
    with FakeHBase(echo) as server:
        server.refusal = b"\x00\x00\x00\x93\x91\x01\x08\xff\xff\xff\xff\x0f"
        with pytest.raises(Disagreed, match=r"without TLS; leave tls=on out of the address"):
            connected(server, trusting(authority))


def test_a_silent_server_costs_the_time_of_a_connection(authority: Authority) -> None:
    """In the middle of the handshake, too."""
    with FakeHBase(echo) as server:
        server.refusal = b""
        with pytest.raises(NotSent, match=r"cannot be reached: .*(?:in time|timed out)"):
            connections.connect(
                "127.0.0.1",
                server.port,
                "ClientService",
                user="me",
                timeout_s=0.2,
                max_frame_bytes=2**20,
                security=trusting(authority),
            )


def test_what_a_server_says_that_ended_later_is_not_put_down_to_tls(authority: Authority) -> None:
    """One that has answered speaks as we do; whether the call was done is not known."""
    with FakeHBase(lambda call: echo(call) if call.number == 0 else SILENCE) as server:
        connection = connected(server, OPEN)
        assert connection.call("M", b"x", until_s=until()).body == b"x"
        waiting = connection.send("M", b"x", until_s=until())
        server.tls = serving(authority)
        server.hang_up()
        with pytest.raises(Lost):
            connection.wait(waiting, until_s=until())
        connection.close()


def test_a_call_that_was_sent_is_not_said_to_be_undone(authority: Authority) -> None:
    """The server that explains itself may be another than the one that took the call."""
    with FakeHBase(lambda _: SILENCE) as server:
        connection = connected(server, OPEN)
        waiting = connection.send("M", b"x", until_s=until())
        with pytest.raises(Unanswered):
            connection.wait(waiting, until_s=until(0.2))
        waiting = connection.send("M", b"x", until_s=until())
        server.tls = serving(authority)
        server.hang_up()
        with pytest.raises(Disagreed) as caught:
            connection.wait(waiting, until_s=until())
        assert not caught.value.is_certain
        connection.close()


def test_an_interrupted_call_harms_no_other_but_by_ending(
    authority: Authority, server: FakeHBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever line: a call gets its own answer, or is told that there is none."""
    monkeypatch.setattr(connections, "LOOK_S", 0.02)
    interrupter = Interrupter()
    security = trusting(authority)
    connection = connected(server, security)

    def call() -> object:
        return connection.call("M", b"mine" * 5000, until_s=until())

    places = list(interrupter.places(call))
    assert len(places) > 40
    ended = 0
    for number in places:
        if connection.has_ended:
            connection.close()
            connection = connected(server, security)
            ended += 1
        other = connection.send("M", b"other", until_s=until())
        with suppress(Interrupt):
            interrupter.interrupt(call, number, Interrupt())
        for sent in (other, None):
            try:
                waiting = sent or connection.send("M", b"next", until_s=until())
                answer = connection.wait(waiting, until_s=until())
            except (Lost, NotSent):
                pass
            else:
                assert answer.body == (b"next" if sent is None else b"other")
    assert 0 < ended < len(places) / 2, "most lines harm nobody"
    connection.close()
