"""Gateways that are no gateways: an HBase that a test holds in its hand.

`FakeGateway` speaks Thrift on a loopback port and answers from functions; it can close every
connection as a gateway does with idle ones, or die.  `ScriptedClient` is not even a connection: it
plays what a call is to meet, so that the pool is tested without sockets and without time.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import pytest
from thriftpy2.protocol import TBinaryProtocolFactory, TCompactProtocolFactory
from thriftpy2.thrift import TProcessor
from thriftpy2.transport import TBufferedTransportFactory, TFramedTransportFactory, TSocket

from omidpy.storage.hbase.addresses.gateways import Api
from omidpy.storage.hbase.idl import service, thrift2

PATIENCE_S: Final = 30.0
SILENCE: Final = object()
"""A step of a script: the answer lets itself be waited for."""


class FakeGateway:
    """Listens on a port of its own and answers each call by the function of its name."""

    def __init__(
        self,
        answers: Mapping[str, Callable[..., Any]] | None = None,
        *,
        api: Api = "thrift2",
        transport: str = "buffered",
        protocol: str = "binary",
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Listen; questions about the gateway are answered unless `answers` says otherwise."""
        kind = thrift2.TThriftServerType.TWO if api == "thrift2" else thrift2.TThriftServerType.ONE
        about: dict[str, Callable[..., Any]] = {
            "getThriftServerType": lambda: kind,
            "getClusterId": lambda: "cluster",
        }
        self._answers = {**about, **(answers or {})}
        self._processor = TProcessor(service(api), self)
        self._transports: Any = (
            TFramedTransportFactory() if transport == "framed" else TBufferedTransportFactory()
        )
        self._protocols: Any = (
            TCompactProtocolFactory() if protocol == "compact" else TBinaryProtocolFactory()
        )
        self._tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_dead = False
        self._threads: list[threading.Thread] = []
        self.calls: Counter[str] = Counter()
        self.connection_count = 0
        self._start(self._accept)

    def url(self, *options: str) -> str:
        """Return its address with options `name=value`."""
        query = "?" + "&".join(options) if options else ""
        return f"hbase+thrift2://127.0.0.1:{self.port}{query}"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return what answers the call `name`, and counts it."""
        if name not in self._answers:
            raise AttributeError(name)

        def counted(*args: Any) -> Any:
            with self._lock:
                self.calls[name] += 1
            return self._answers[name](*args)

        return counted

    def hang_up(self) -> None:
        """End every connection, as a gateway does with idle ones.

        The thread that serves one closes it: TLS may still write an alert to the descriptor, whose
        number would be another connection's by then.
        """
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for connected in sockets:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Die: refuse connections, break those that are open, and wait for the threads."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._is_dead = True  # what was accepted just now is not served
        self.hang_up()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._serve, plain)

    def _serve(self, plain: socket.socket) -> None:
        try:
            connected = self._tls.wrap_socket(plain, server_side=True) if self._tls else plain
        except OSError:
            plain.close()
            return
        with self._lock:
            if self._is_dead:
                connected.close()
                return
            self._sockets.add(connected)
            self.connection_count += 1
        trans = self._transports.get_transport(TSocket(sock=connected))
        spoken = self._protocols.get_protocol(trans)
        try:
            while True:
                self._processor.process(spoken, spoken)
        except Exception:  # noqa: BLE001 - as in a gateway, whatever it reads ends its connection
            return
        finally:
            with self._lock:
                self._sockets.discard(connected)
            connected.close()


class ScriptedClient:
    """Plays the pool's part of a connection: each call takes the next step of a script.

    A step is an answer, or an exception to raise.
    """

    def __init__(self, steps: deque[Any], log: list[str]) -> None:
        """Take steps from the front of `steps`, which several clients may share."""
        self._steps = steps
        self._log = log
        self.has_died = False
        self.is_closed = False

    def call(
        self,
        method: str,
        *args: Any,
        while_silent: Callable[[], object] | None = None,
        patience_s: float | None = None,
    ) -> Any:
        """Return or raise the next step.  `SILENCE` is noticed, and followed by another."""
        del args, patience_s
        if self.is_closed:
            # No `assert`: the pool would take it for a broken connection, and go on to the next.
            pytest.fail("a discarded connection is used again")
        self._log.append(method)
        step = self._steps.popleft()
        if step is SILENCE:
            if while_silent is not None:
                while_silent()
            step = self._steps.popleft()
        if isinstance(step, BaseException):
            raise step
        return step

    def call_ahead(
        self, calls: Sequence[tuple[str, Sequence[Any]]], *, patience_s: float
    ) -> list[Any]:
        """Take a step for each call."""
        del patience_s
        return [self.call(method, *args) for method, args in calls]

    def is_dead(self) -> bool:
        """Say what the test said."""
        self._log.append("look")
        return self.has_died

    def close(self) -> None:
        """Note it."""
        self.is_closed = True

    def forget(self) -> None:
        """Note it."""
        self.is_closed = True


class ScriptedGateways:
    """Opens scripted clients: `open` is the pool's `open_client`."""

    def __init__(self, *steps: Any, down: Mapping[str, Exception] | None = None) -> None:
        """Let all clients share `steps`; connecting to a host in `down` raises."""
        self.steps: deque[Any] = deque(steps)
        self.down = dict(down or {})
        self.log: list[str] = []
        self.hosts: list[str] = []
        self.clients: list[ScriptedClient] = []

    def open(self, host: str, _port: int) -> ScriptedClient:
        """Connect, or raise what `down` says."""
        self.hosts.append(host)
        if host in self.down:
            raise self.down[host]
        client = ScriptedClient(self.steps, self.log)
        self.clients.append(client)
        return client
