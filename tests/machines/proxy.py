"""A network between a client and an oracle that loses what a test wants lost.

    with LossyProxy(server.address) as proxy:
        proxy.lose_answer(COMMIT)       # the next commit is decided, its answer never arrives
        client = ...(proxy.address)

It passes whole frames on, counts them by kind, and cuts the connection where it is told to: before
a request is passed on, or once its answer has come.  A cut closes both sides, as a network that
broke would look after a while.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final, Self

from omidpy.oracle.address import parse_address

# The first byte of a payload names the message: the key of its field in the envelope.
BEGIN: Final = 0x0A
COMMIT: Final = 0x12
HANDSHAKE: Final = 0x1A
FENCE: Final = 0x22

_LENGTH = struct.Struct(">I")
_PATIENCE_S = 60.0


class LossyProxy:
    """Listens on a port of its own; every connection leads to the oracle."""

    def __init__(self, target: str) -> None:
        """Lead to the oracle at `target`, HOST:PORT."""
        self._target = parse_address(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._lost_requests: dict[int, int] = {}
        self._lost_answers: dict[int, int] = {}
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self.requests: list[bytes] = []
        """Every request that arrived, lost or not."""
        self.answers: list[bytes] = []
        """Every answer that arrived, lost or not."""
        self._run(self._accept)

    @property
    def address(self) -> str:
        """HOST:PORT of this side."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def lose_request(self, kind: int, *, count: int = 1) -> None:
        """Cut the connection instead of passing on the next requests of this kind."""
        with self._lock:
            self._lost_requests[kind] = count

    def lose_answer(self, kind: int, *, count: int = 1) -> None:
        """Cut the connection instead of passing back the next answers of this kind."""
        with self._lock:
            self._lost_answers[kind] = count

    def seen(self, kind: int) -> list[bytes]:
        """Return the requests of one kind that have arrived."""
        with self._lock:
            return [payload for payload in self.requests if payload[:1] == bytes((kind,))]

    def close(self) -> None:
        """Cut everything."""
        with self._lock:
            self._is_closed = True
            for end in (self._listener, *self._sockets):
                _cut(end)
            threads = list(self._threads)
        for thread in threads:
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
                return
            try:
                server = socket.create_connection(self._target, timeout=_PATIENCE_S)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                if self._is_closed:
                    _cut(client)
                    _cut(server)
                    return
                self._sockets |= {client, server}
                self._run(self._pass, client, server, self.requests, self._lost_requests)
                self._run(self._pass, server, client, self.answers, self._lost_answers)

    def _pass(
        self,
        source: socket.socket,
        sink: socket.socket,
        seen: list[bytes],
        losses: dict[int, int],
    ) -> None:
        """Pass frames one way until an end is closed or something is to be lost."""
        try:
            while True:
                head = _exactly(source, _LENGTH.size)
                payload = _exactly(source, _LENGTH.unpack(head)[0])
                kind = payload[0] if payload else -1
                with self._lock:
                    seen.append(payload)
                    left = losses.get(kind, 0)
                    losses[kind] = max(0, left - 1)
                if left:
                    return
                sink.sendall(head + payload)
        except OSError:
            return
        finally:
            with self._lock:
                self._sockets -= {source, sink}
            _cut(source)
            _cut(sink)


def _exactly(source: socket.socket, count: int) -> bytes:
    """Return `count` bytes.

    Raises:
        ConnectionError: if the stream ends before.
    """
    data = bytearray()
    while len(data) < count:
        part = source.recv(min(count - len(data), 1 << 20))
        if not part:
            raise ConnectionError("the stream has ended")
        data += part
    return bytes(data)


def _cut(end: socket.socket) -> None:
    """Close a socket, also while another thread waits for it."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
