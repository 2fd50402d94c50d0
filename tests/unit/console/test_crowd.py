"""No host keeps the others away from a console by connections that it does nothing with."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import NamedTuple

import pytest

from omidpy.console.crowd import HANDSHAKE_S, MAX_CONNECTIONS, MAX_SILENT_COUNT
from omidpy.console.people import Tokens
from tests.machines.clients import Client
from tests.machines.console import over, running
from tests.machines.tls import client_hello, loopback_certificate

TIMEOUT_S = 30.0
FORM = b"POST /sign-in HTTP/1.1\r\nHost: %b\r\nOrigin: http://%b\r\nContent-Length: 9\r\n\r\ntoken="


@pytest.fixture
def place() -> Iterator[tuple[str, int]]:
    """Return where a console listens."""
    with running(over(Client().tm, tokens=Tokens({"me": "x" * 24}))) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        yield host, int(port)


@pytest.fixture
def strangers() -> Iterator[contextlib.ExitStack]:
    """Return what closes the connections of strangers in the end."""
    with contextlib.ExitStack() as stack:
        yield stack


def come(stack: contextlib.ExitStack, place: tuple[str, int], said: bytes = b"") -> socket.socket:
    """Connect, and say something."""
    made = stack.enter_context(socket.create_connection(place, TIMEOUT_S))
    if said:
        made.sendall(said)
    return made


def status(place: tuple[str, int], path: str = "/healthz") -> int:
    """Ask from another address, over a connection of its own."""
    asking = HTTPConnection(*place, timeout=TIMEOUT_S, source_address=("127.0.0.2", 0))
    try:
        asking.request("GET", path)
        return asking.getresponse().status
    finally:
        asking.close()


def has_ended(one: socket.socket) -> bool:
    """Wait until the console has let go of a connection; False: it answers, or never does."""
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nX: "])
def test_silent_connections_keep_nobody_out(
    place: tuple[str, int], strangers: contextlib.ExitStack, said: bytes
) -> None:
    """A hundred of them had all that there was, for as long as they stayed."""
    silent = [come(strangers, place, said) for _ in range(MAX_CONNECTIONS + MAX_SILENT_COUNT)]
    assert status(place) == 200
    assert all(map(has_ended, silent[:MAX_CONNECTIONS])), "those that came first had to go"


def test_one_that_is_asked_now_and_then_counts_as_silent_in_between(
    place: tuple[str, int], strangers: contextlib.ExitStack
) -> None:
    """Else each had to be asked once, and was no silent one for ever."""
    asked = [
        come(strangers, place, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(MAX_CONNECTIONS + MAX_SILENT_COUNT)
    ]
    assert status(place) == 200
    with contextlib.suppress(ConnectionError):
        while asked[0].recv(1 << 16):
            pass  # its answer, and then the end


def test_forms_without_an_end_keep_nobody_else_out(
    place: tuple[str, int], strangers: contextlib.ExitStack
) -> None:
    """Each is waited for, so that an address has so many of them."""
    host = b"%b:%d" % (place[0].encode(), place[1])
    for _ in range(MAX_CONNECTIONS + 10):
        with contextlib.suppress(ConnectionError):
            come(strangers, place, FORM % (host, host))
    assert status(place) == 200


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nX: "])
def test_a_connection_ends_at_which_nothing_comes(
    place: tuple[str, int],
    strangers: contextlib.ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    said: bytes,
) -> None:
    """However few there are: each is a descriptor."""
    monkeypatch.setattr("omidpy.console.crowd.LIFE_S", 0.2)
    assert has_ended(come(strangers, place, said))
    monkeypatch.undo()
    assert status(place) == 200


# -- before the handshake of TLS -------------------------------------------------------------------


class Secure(NamedTuple):
    """A console that is served with TLS."""

    place: tuple[str, int]
    context: ssl.SSLContext
    """What its clients connect with."""

    def status(self, *, source: str = "127.0.0.2") -> int:
        """Ask from another address, over a connection of its own."""
        asking = HTTPSConnection(
            *self.place, timeout=TIMEOUT_S, source_address=(source, 0), context=self.context
        )
        try:
            asking.request("GET", "/healthz")
            return asking.getresponse().status
        finally:
            asking.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the console's certificate and its key."""
    return loopback_certificate(tmp_path_factory.mktemp("certificate"))


@contextlib.contextmanager
def secured(certificate: tuple[Path, Path]) -> Iterator[Secure]:
    """Serve a console with TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    with running(over(Client().tm, tokens=Tokens({"me": "x" * 24})), context) as address:
        host, _, port = address.removeprefix("https://").partition(":")
        yield Secure((host, int(port)), trusting)


@pytest.fixture
def secure(certificate: tuple[Path, Path]) -> Iterator[Secure]:
    """Return a console with TLS."""
    with secured(certificate) as made:
        yield made


HELLOS = pytest.mark.parametrize(
    "hello", [lambda: b"", client_hello, lambda: client_hello()[:7]], ids=["none", "whole", "part"]
)


@HELLOS
def test_handshakes_without_an_end_keep_nobody_out(
    secure: Secure, strangers: contextlib.ExitStack, hello: Callable[[], bytes]
) -> None:
    """The event loop kept as many as came for a minute, and each is a descriptor."""
    said = hello()
    silent = [
        come(strangers, secure.place, said) for _ in range(MAX_CONNECTIONS + MAX_SILENT_COUNT)
    ]
    assert secure.status() == 200
    assert all(map(has_ended_at_last, silent[:MAX_CONNECTIONS])), "those that came first had to go"


@HELLOS
def test_a_handshake_without_an_end_has_one(
    secure: Secure,
    strangers: contextlib.ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    hello: Callable[[], bytes],
) -> None:
    """However few there are."""
    monkeypatch.setattr("omidpy.console.crowd.HANDSHAKE_S", 0.2)
    assert has_ended_at_last(come(strangers, secure.place, hello()))
    monkeypatch.undo()
    assert secure.status() == 200


def has_ended_at_last(one: socket.socket) -> bool:
    """Wait until the console has let go of a connection, whatever it has said before."""
    try:
        while one.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def test_what_is_no_handshake_ends_at_once(secure: Secure, strangers: contextlib.ExitStack) -> None:
    """Who takes it for a console without TLS."""
    since_s = time.monotonic()
    assert has_ended_at_last(come(strangers, secure.place, b"GET / HTTP/1.1\r\n\r\n"))
    assert time.monotonic() - since_s < HANDSHAKE_S
    assert secure.status() == 200


def test_a_question_that_comes_with_the_end_of_the_handshake_is_answered(secure: Secure) -> None:
    """In one packet: what is behind the handshake comes before anybody is told of its end."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    sealed = secure.context.wrap_bio(incoming, outgoing, server_hostname=secure.place[0])
    with socket.create_connection(secure.place, TIMEOUT_S) as raw:
        while True:
            try:
                sealed.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(1 << 16))
        sealed.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        raw.sendall(outgoing.read())
        answer = b""
        while not answer:
            incoming.write(raw.recv(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                while said := sealed.read(1 << 16):
                    answer += said
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_console_ends_while_strangers_shake_hands(
    certificate: tuple[Path, Path], strangers: contextlib.ExitStack
) -> None:
    """It waits for those that it answers, and for nobody else."""
    with secured(certificate) as secure:
        come(strangers, secure.place, client_hello())
        since_s = time.monotonic()
    assert time.monotonic() - since_s < HANDSHAKE_S
