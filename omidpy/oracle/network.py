"""How a client reaches an oracle: through the operating system, or a simulator in its place.

`Reader` waits for bytes, and takes them in the same system call where it can.  It looks for an
answer that is about to come, see `base/timing/wakefulness.py`, where there are several processors
and one thread alone waits: where there are others, they have something better to do with both.

It lacks any idea of what is read: `link.py` has that.
"""

from __future__ import annotations

import math
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from omidpy.base.timing.wakefulness import Wakefulness
from omidpy.oracle.tls import TlsSocket

_LONGEST_READ_S: Final = 1
"""How long a system call waits that reads, unless it is to be shorter."""
_LONGEST_READ: Final = struct.pack("ll", _LONGEST_READ_S, 0)


class Poller(Protocol):
    """Says whether one socket is ready, like `select.poll`."""

    def poll(self, timeout: int, /) -> Sequence[object]:
        """Wait so many milliseconds at most; return something if the socket is ready."""
        ...


class Network(Protocol):
    """How a client reaches an oracle: the operating system, or a simulator in its place."""

    def connect(self, address: tuple[str, int], *, timeout_s: float) -> socket.socket:
        """Return a connected socket, or raise `OSError`."""
        ...

    def poller(self, sock: socket.socket | TlsSocket, events: int) -> Poller:
        """Return what waits until a socket is ready for `select.POLLIN` or `select.POLLOUT`."""
        ...

    def reader(self, sock: socket.socket | TlsSocket) -> Reader:
        """Return what waits for a socket's bytes and takes them."""
        ...

    def pause(self, seconds: float, *, until_free: threading.Lock) -> None:
        """Wait for so long, or until a lock is free."""
        ...


class Readable(Protocol):
    """What is read: a socket."""

    def recv(self, size: int, /) -> bytes:
        """Return what has arrived, or raise `OSError`."""
        ...


class Reader:
    """Waits for the bytes of a socket, awake where they are about to come."""

    def __init__(
        self,
        sock: Readable,
        poller: Poller,
        now_s: Callable[[], float] = time.monotonic,
        *,
        waits_in_recv: bool = False,
        may_look: bool = False,
    ) -> None:
        """Read a socket.

        Args:
            sock: What is read.
            poller: Says whether there is something to read.
            now_s: Tells the time.
            waits_in_recv: Whether the socket itself waits for bytes, for a second at most.
            may_look: Whether a processor is left for what it waits for.
        """
        self._sock = sock
        self._poller = poller
        self._now_s = now_s
        self._waits_in_recv = waits_in_recv
        self._may_look = may_look
        self._wakefulness = Wakefulness()

    def read(self, size: int, timeout_s: float, *, is_alone: bool) -> bytes:
        """Wait for bytes and return them; none at the end of the conversation.

        Args:
            size: How many at most.
            timeout_s: How long to wait at most, above 0; it may be less.
            is_alone: Whether no other thread waits for what comes.

        Raises:
            BlockingIOError: nothing has come.
            OSError: the connection has ended.
        """
        if not (is_alone and self._may_look):
            self._wakefulness.forget()
            return self._sleep(size, timeout_s)
        wakefulness = self._wakefulness
        began_s = self._now_s()
        if wakefulness.begin(began_s):
            looks = True
            while looks:
                is_ready = self._poller.poll(0)
                looks = wakefulness.goes_on(self._now_s())
                if is_ready:
                    return self._sock.recv(size)
            wakefulness.forget()
        try:
            return self._sleep(size, timeout_s)
        finally:
            wakefulness.came(self._now_s() - began_s)

    def _sleep(self, size: int, timeout_s: float) -> bytes:
        """Wait for bytes in one system call, or in two."""
        if self._waits_in_recv and timeout_s >= _LONGEST_READ_S:
            return self._sock.recv(size)
        if not self._poller.poll(math.ceil(timeout_s * 1000)):
            raise BlockingIOError
        return self._sock.recv(size)


class SystemNetwork:
    """The network of the operating system."""

    def connect(self, address: tuple[str, int], *, timeout_s: float) -> socket.socket:
        """Connect as `Network` says, over TCP."""
        return socket.create_connection(address, timeout=timeout_s)

    def poller(self, sock: socket.socket | TlsSocket, events: int) -> Poller:
        """Watch a descriptor; see `Network`."""
        found = select.poll()
        found.register(sock, events)
        return found

    def reader(self, sock: socket.socket | TlsSocket) -> Reader:
        """Read a descriptor; see `Network`.  A plain socket waits by itself from now on."""
        waits_in_recv = isinstance(sock, socket.socket)
        if isinstance(sock, socket.socket):
            sock.setblocking(True)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LONGEST_READ)
        return Reader(
            sock,
            self.poller(sock, select.POLLIN),
            waits_in_recv=waits_in_recv,
            may_look=(os.cpu_count() or 1) > 1,
        )

    def pause(self, seconds: float, *, until_free: threading.Lock) -> None:
        """Wait for so long, or until a lock is free; see `Network`."""
        if until_free.acquire(timeout=seconds):
            until_free.release()


SYSTEM_NETWORK: Final = SystemNetwork()
