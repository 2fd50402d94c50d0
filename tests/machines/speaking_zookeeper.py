"""A server that speaks ZooKeeper's protocol as far as a test wants it, and no further.

It has no znodes.  It says how long a session may be silent, answers a request with the error that
it has been told (there is no such znode, by default), and fails in ways that a real one cannot be
made to fail in.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Final, Self

from omidpy.oracle.zookeeper import ZooKeeperAddress

NO_NODE: Final = -101
NO_AUTH: Final = -102

_PING: Final = -2
_CLOSE: Final = -11
_SYNC: Final = 9


class SpeakingZooKeeper:
    """One server, on a port of this machine."""

    def __init__(self, *, session_s: float = 10.0) -> None:
        """Listen.

        Args:
            session_s: How long a session may be silent, whatever its client asked for.
        """
        self.error = NO_NODE
        """What each request but a sync is answered with."""
        self.is_confused = False
        """Whether it answers what nobody asked, upon which kazoo's thread ends for good."""
        self.sessions = 0
        self.session_s = session_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def hosts(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def address(self, *others: str, timeout_s: float = 5.0) -> ZooKeeperAddress:
        """Return an address that names it, and others before it."""
        return ZooKeeperAddress(hosts=",".join((*others, self.hosts)), timeout_s=timeout_s)

    def stop(self) -> None:
        """Hang up, and listen no more."""
        # An accept that is under way would keep it open.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()  # what it has accepted just now is hung up too
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def __enter__(self) -> Self:
        """Use it in a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), connection.makefile("rb") as asked:
            _frame(asked.read)
            self.sessions += 1
            limit_ms = round(self.session_s * 1000)
            accepted = struct.pack(">iiqi16s?", 0, limit_ms, self.sessions, 16, bytes(16), False)
            _send(connection, accepted)
            while True:
                request = _frame(asked.read)
                xid, kind = struct.unpack_from(">ii", request)
                if self.is_confused and xid != _PING:
                    xid += 1000
                is_well = xid == _PING or kind in (_SYNC, _CLOSE)
                answer = struct.pack(">iqi", xid, 1, 0 if is_well else self.error)
                _send(connection, answer + (request[8:] if kind == _SYNC else b""))


def _frame(read: object) -> bytes:
    assert callable(read)
    (length,) = struct.unpack(">i", read(4))
    found: bytes = read(length)
    return found


def _send(connection: socket.socket, body: bytes) -> None:
    connection.sendall(struct.pack(">i", len(body)) + body)
