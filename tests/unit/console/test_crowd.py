"""No host keeps the others away from a console by connections that it does nothing with."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from omidpy.console.crowd import MAX_CONNECTIONS, MAX_SILENT_COUNT
from omidpy.console.people import Tokens
from tests.machines.clients import Client
from tests.machines.console import over, running

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
