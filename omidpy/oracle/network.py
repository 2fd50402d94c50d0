"""How a client reaches an oracle: through the operating system, or a simulator in its place.

To fall asleep and to be woken takes longer than an oracle's decision, so that a lone client would
spend most of a transaction on it.  `WakefulPoller` therefore looks for an answer again and again,
for as long as a short answer takes, before it sleeps.  It does so only

* while answers come soon: many in a row did, and the first that does not ends it;
* while nobody else wants the processor: who is kept from looking for long was made to give way, and
  sleeps for a while, since one that never sleeps waits longest for its next turn;
* where there are several processors: on one, nobody could answer meanwhile.

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

from omidpy.oracle.tls import TlsSocket

SOON_S: Final = 0.000_2
"""What comes within this time, sleep included, comes soon."""

LOOKS_S: Final = 0.000_15
"""For so long it is looked for before the thread sleeps."""

SOON_COUNT: Final = 64
"""So many answers in a row came soon before the next one is looked for.

With both, looking in vain takes a fortieth of the time at most."""

MADE_WAY_S: Final = 0.001
"""Who could not look for so long was made to give way."""

SLEEPS_S: Final = 1.0
"""So long thereafter it is slept again."""


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
        self._soon_count = 0
        self._sleeps_until_s = 0.0

    def poll(self, timeout: int, /) -> Sequence[object]:
        """Wait so many milliseconds at most; return something if the socket is ready."""
        if timeout <= 0:
            return self._sleeper.poll(timeout)
        began_s = self._now_s()
        if self._soon_count >= SOON_COUNT and began_s >= self._sleeps_until_s:
            if ready := self._look(began_s):
                return ready
            self._soon_count = 0
            return self._sleeper.poll(timeout)
        ready = self._sleeper.poll(timeout)
        is_soon = self._now_s() - began_s < SOON_S
        self._soon_count = self._soon_count + 1 if is_soon else 0
        return ready

    def _look(self, began_s: float) -> Sequence[object]:
        """Look until the socket is ready, or it is time to sleep."""
        looked_s = began_s
        while True:
            ready = self._sleeper.poll(0)
            now_s = self._now_s()
            if now_s - looked_s > MADE_WAY_S:
                self._sleeps_until_s = now_s + SLEEPS_S
            if ready or now_s - began_s > LOOKS_S:
                return ready
            looked_s = now_s


class SystemNetwork:
    """The network of the operating system."""

    def connect(self, address: tuple[str, int], *, timeout_s: float) -> socket.socket:
        """Connect; see `Network`."""
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
