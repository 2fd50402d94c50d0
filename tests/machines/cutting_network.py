"""A network between a client and a server that ends a connection at a byte that a test names.

    with CuttingNetwork("127.0.0.1", fake.port) as network:
        network.cut(REQUEST, 17)  # of what is sent from now on, 17 bytes arrive and no more

Unlike `proxy.py` and `lossy_gateway.py` it knows nothing of frames or calls: what has passed before
the cut has arrived, and the rest never does.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final, Self

from omidpy.storage.hbase.native.values import ServerName

REQUEST: Final = "request"
ANSWER: Final = "answer"
_CHUNK_BYTES: Final = 1 << 16
_PATIENCE_S: Final = 30.0


class CuttingNetwork:
    """Listens on a port of its own; every connection leads to one server."""

    def __init__(self, host: str, port: int) -> None:
        """Lead to a server."""
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.passed = {REQUEST: 0, ANSWER: 0}
        """Bytes that have arrived."""
        self.cut_count = 0
        self._left: dict[str, int | None] = {REQUEST: None, ANSWER: None}
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._run(self._accept)

    @property
    def server(self) -> ServerName:
        """Its own address, as a server's name."""
        return ServerName("127.0.0.1", self.port, 1)

    def cut(self, way: str, after_bytes: int) -> None:
        """Cut once: `after_bytes` more pass on that way, and with the next one the connection ends.

        The byte behind those ends it, and so does, on either way, nothing else.
        """
        with self._lock:
            self._left[way] = after_bytes

    def close(self) -> None:
        """End everything, and wait for the threads."""
        with self._lock:
            self._is_closed = True
            sockets = [self._listener, *self._sockets]
        for one in sockets:
            _end(one)
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                self._listener.close()
                return
            try:
                server = socket.create_connection(self._target, timeout=_PATIENCE_S)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._is_closed:
                    client.close()
                    server.close()
                    return
                self._sockets |= {client, server}
                open_ways = [REQUEST, ANSWER]
                self._run(self._pass, REQUEST, client, server, open_ways)
                self._run(self._pass, ANSWER, server, client, open_ways)

    def _pass(
        self, way: str, source: socket.socket, sink: socket.socket, open_ways: list[str]
    ) -> None:
        try:
            while data := source.recv(_CHUNK_BYTES):
                allowed, is_cut = self._allowed(way, data)
                sink.sendall(allowed)
                if is_cut:
                    return
        except OSError:
            return
        finally:
            _end(source)
            _end(sink)
            with self._lock:
                open_ways.remove(way)
                if not open_ways:
                    self._sockets -= {source, sink}
                    source.close()
                    sink.close()

    def _allowed(self, way: str, data: bytes) -> tuple[bytes, bool]:
        with self._lock:
            left = self._left[way]
            is_cut = left is not None and left < len(data)
            if left is not None:
                self._left[way] = None if is_cut else left - len(data)
                data = data[:left]
            self.passed[way] += len(data)
            self.cut_count += is_cut
        return data, is_cut


def _end(one: socket.socket) -> None:
    """End a connection, also while another thread waits for it."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
