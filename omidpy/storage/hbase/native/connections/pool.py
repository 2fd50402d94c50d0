"""The connections of a process: one for each server and service, opened when it is asked for.

One that ended is replaced by the next call that wants it.  None does where servers come and go, so
whoever opens a connection lets go of the descriptors of those that have ended.  Threads that want
the same one share an attempt to connect, and its failure: a server that does not answer costs all
of them the time of one.

A fork leaves the child without connections.  Its copies of the descriptors are closed without a
word, so that the parent's connections live on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from omidpy.base.within import within
from omidpy.errors import StorageUnavailable
from omidpy.storage import forking
from omidpy.storage.hbase.native.connections.connection import Connection
from omidpy.storage.hbase.native.faults import NotSent

REGIONS: Final = "ClientService"
"""Data of regions."""
SERVER: Final = "AdminService"
"""Flushes and compactions of regions, asked of their server."""
REGISTRY: Final = "ClientMetaService"
"""Where the catalogue and the master are; masters and region servers both tell."""
MASTER: Final = "MasterService"
"""Tables; the active master alone."""


class _Place:
    """A service of a server, and the connection to it."""

    __slots__ = ("connection", "failed_s", "failure", "lock")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.lock = threading.Lock()
        """Held while one thread connects for all who wait."""
        self.failure: NotSent | None = None
        self.failed_s = 0.0
        """When the last attempt to connect failed."""


class Connections:
    """Gives each thread the same connection.  Safe to share among threads, and after a fork."""

    def __init__(self, open_connection: Callable[[str, int, str], Connection]) -> None:
        """Open connections by a function of host, port and service."""
        self._open = open_connection
        self._lock = threading.Lock()
        self._places: dict[tuple[str, int, str], _Place] = {}
        self._is_closed = False
        self._has_answered = False
        forking.register(self)

    @property
    def has_answered(self) -> bool:
        """Whether any server has ever answered a call."""
        return self._has_answered

    def note_answer(self) -> None:
        """Note that a server has answered."""
        self._has_answered = True

    def get(self, host: str, port: int, service: str) -> Connection:
        """Return the connection to a service.

        Raises:
            NotSent: it cannot be connected to.
            StorageUnavailable: all of them were closed for good.
        """
        place = self._places.get((host, port, service))
        if place is not None:
            connection = place.connection
            if connection is not None and not connection.has_ended:
                return connection
        self._check_open()
        if place is None:
            place = within(self._lock, self._places.setdefault, (host, port, service), _Place())
        asked_s = time.monotonic()
        return within(place.lock, self._connected, place, (host, port, service), asked_s)

    def _connected(self, place: _Place, where: tuple[str, int, str], asked_s: float) -> Connection:
        """Connect, unless another has tried while this thread waited.  Holds the place's lock."""
        old = place.connection
        if old is not None:
            if not old.has_ended:
                return old
            place.connection = None
            old.close()
        if place.failure is not None and place.failed_s >= asked_s:
            raise type(place.failure)(*place.failure.args) from place.failure.__cause__
        try:
            place.connection = self._open(*where)
        except NotSent as error:
            place.failure, place.failed_s = error, time.monotonic()
            raise
        if self._is_closed:
            # While it was opened: who closed the others has not seen it.
            place.connection.close()
        self._check_open()
        place.failure = None
        for other in list(self._places.values()):
            ended = other.connection
            if ended is not None and ended.has_ended:
                ended.close()  # and stays where it is, for its next caller to replace
        return place.connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageUnavailable("the store was closed meanwhile; open it again")

    def close(self) -> None:
        """Close every connection; calls in flight fail.  A second call does nothing."""
        self._is_closed = True
        for place in list(self._places.values()):
            if place.connection is not None:
                place.connection.close()

    # -- fork --------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Keep other threads from changing the list; calls in flight go on."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Let other threads in again."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin with no connection; those of the parent stay the parent's."""
        self._lock = threading.Lock()
        places, self._places = self._places, {}
        for place in places.values():
            if place.connection is not None:
                place.connection.abandon()


def until(seconds: float) -> float:
    """Return the moment so many seconds from now, by the clock of deadlines."""
    return time.monotonic() + seconds
