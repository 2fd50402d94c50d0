"""Who asks for the metrics of an exporter takes nothing from the exporter."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from prometheus_client import CONTENT_TYPE_LATEST

from omidpy.cli import serving
from omidpy.cli.common import serve_metrics
from omidpy.cli.serving import MAX_CONNECTIONS, MetricsServer, serve
from omidpy.errors import ConfigError, UsageError
from tests.machines.waiting import wait_for

TIMEOUT_S = 30.0


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """Return a server on a free port."""
    made = serve("127.0.0.1", 0)
    yield made
    made.shutdown()
    made.server_close()


def come(server: MetricsServer, said: bytes = b"") -> socket.socket:
    """Connect, and say something."""
    made = socket.create_connection(server.server_address[:2], TIMEOUT_S)  # type: ignore[arg-type]  # an address of IPv4
    made.sendall(said)
    return made


def page(server: MetricsServer) -> tuple[int, str]:
    """Scrape from another address; return the status, and of what type the page is."""
    place = server.server_address
    asking = HTTPConnection(
        str(place[0]), int(place[1]), timeout=TIMEOUT_S, source_address=("127.0.0.2", 0)
    )
    try:
        asking.request("GET", "/metrics")
        answer = asking.getresponse()
        assert b"# HELP" in answer.read()
        return answer.status, answer.headers["Content-Type"].partition(";")[0]
    finally:
        asking.close()


def has_ended(one: socket.socket) -> bool:
    """Wait until a connection was ended from the other side."""
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nX: "])
def test_silent_connections_cost_a_few_threads(server: MetricsServer, said: bytes) -> None:
    """Each had a thread and a descriptor for ever: an exporter could open no file any more."""
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(come(server, said)) for _ in range(3 * MAX_CONNECTIONS)]
        assert page(server) == (200, CONTENT_TYPE_LATEST.partition(";")[0])
        assert all(map(has_ended, silent[:MAX_CONNECTIONS])), "those that came first had to go"
        wait_for(lambda: threading.active_count() - before <= MAX_CONNECTIONS, TIMEOUT_S)


def test_a_connection_ends_at_which_nothing_comes(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few there are."""
    with come(server) as silent:
        monkeypatch.setattr(serving, "LIFE_S", 0.0)
        assert has_ended(silent)
    monkeypatch.undo()
    assert page(server)[0] == 200


@pytest.mark.parametrize("address", ["9", "h:", ":9", "a..b:9", "h:99999", "h:-1", "h:9x", "h:٣"])
def test_an_address_that_is_none_is_refused_by_name(address: str) -> None:
    """A port of five digits may be none, too."""
    with pytest.raises(UsageError, match="is no HOST:PORT"):
        serve_metrics(address)


def test_an_address_that_is_taken_is_refused_by_name(server: MetricsServer) -> None:
    """So is one that is none of this machine."""
    host, port = server.server_address[:2]
    with pytest.raises(ConfigError, match="in use"):
        serve_metrics(f"{host!s}:{port}")
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        serve_metrics("192.0.2.1:0")


def test_an_address_may_be_one_of_ipv6() -> None:
    """As everywhere else, in brackets."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as free:
            port = free.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no IPv6")
    serve_metrics(f"[::1]:{port}")
    with socket.create_connection(("::1", port), TIMEOUT_S) as asking:
        asking.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert asking.recv(12) == b"HTTP/1.0 200"


def test_who_waits_for_a_descriptor_does_not_spin(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection stays in the backlog: it was looked at again at once, and again."""
    tries: list[float] = []
    accept = socket.socket.accept

    def lacks(listening: socket.socket) -> Any:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listening)

    monkeypatch.setattr(type(server.socket), "accept", lacks)
    assert page(server)[0] == 200
    assert tries[2] - tries[0] >= serving.LOOK_S
