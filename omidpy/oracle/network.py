"""How a client reaches an oracle: through the operating system, or a simulator in its place.

`WakefulPoller` looks for an answer that is about to come, see `base/wakefulness.py`, where there
are several processors.

It lacks any idea of what is read: `link.py` has that.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from omidpy.base.timing.wakefulness import Wakefulness
from omidpy.oracle.tls import TlsSocket

LIVENESS_OPTIONS: Final = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 25_000,
}
"""A peer whose machine is gone is let go after 25 s: of silence, or with bytes on their way.

By default that takes the kernel two hours, for which a server keeps a client's place and its
holds, and a client believes in a connection that no server knows of."""


def watch_peer(sock: socket.socket) -> None:
    """Let the kernel find out in seconds when the other end of a TCP connection is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in LIVENESS_OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


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

    def pause(self, seconds: float, *, until_free: threading.Lock) -> None:
        """Wait for so long, or until a lock is free."""
        ...


class WakefulPoller:
    """A poller that stays awake where what it waits for is about to come."""

    def __init__(self, sleeper: Poller, now_s: Callable[[], float] = time.monotonic) -> None:
        """Sleep by means of `sleeper`, which also looks; `now_s` tells the time."""
        self._sleeper = sleeper
        self._now_s = now_s
        self._wakefulness = Wakefulness()

    def poll(self, timeout: int, /) -> Sequence[object]:
        """Wait so many milliseconds at most; return something if the socket is ready."""
        if timeout <= 0:
            return self._sleeper.poll(timeout)
        wakefulness = self._wakefulness
        began_s = self._now_s()
        if wakefulness.begin(began_s):
            looks = True
            while looks:
                ready = self._sleeper.poll(0)
                looks = wakefulness.goes_on(self._now_s())
                if ready:
                    return ready
            wakefulness.forget()
            return self._sleeper.poll(timeout)
        ready = self._sleeper.poll(timeout)
        wakefulness.came(self._now_s() - began_s)
        return ready


class SystemNetwork:
    """The network of the operating system."""

    def connect(self, address: tuple[str, int], *, timeout_s: float) -> socket.socket:
        """Connect as `Network` says, over TCP."""
        return socket.create_connection(address, timeout=timeout_s)

    def poller(self, sock: socket.socket | TlsSocket, events: int) -> Poller:
        """Watch a descriptor; see `Network`."""
        found = select.poll()
        found.register(sock, events)
        is_alone = (os.cpu_count() or 1) == 1
        return found if is_alone or events != select.POLLIN else WakefulPoller(found)

    def pause(self, seconds: float, *, until_free: threading.Lock) -> None:
        """Wait; see `Network`."""
        if until_free.acquire(timeout=seconds):
            until_free.release()


SYSTEM_NETWORK: Final = SystemNetwork()
