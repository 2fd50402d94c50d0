"""Connections that threads use one at a time: as many as are used at once, and none that failed.

    pool.use(work)    work(connection), with an idle connection or a new one

A connection whose work has failed is closed, whatever the failure was: what it would do next is
unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from omidpy.base.within import within

C = TypeVar("C")
T = TypeVar("T")


class Pool(Generic[C]):
    """Idle connections to one server.  Safe to share among threads."""

    def __init__(self, connect: Callable[[], C], close: Callable[[C], object]) -> None:
        """Open the first connection when one is asked for."""
        self._connect = connect
        self._close = close
        self._idle: list[C] = []
        self._lock = threading.Lock()
        self._is_open = True

    def use(self, work: Callable[[C], T]) -> T:
        """Return what `work` returns, called with a connection that no other thread has."""
        try:
            connection = self._idle.pop()  # atomic
        except IndexError:
            connection = self._connect()
        is_good = False
        try:
            found = work(connection)
            is_good = True
            return found
        finally:
            if not (is_good and within(self._lock, self._is_kept, connection)):
                self._close(connection)

    def close(self) -> None:
        """Close what is idle, and later what is in use."""
        for connection in within(self._lock, self._end):
            self._close(connection)

    def _is_kept(self, connection: C) -> bool:
        if self._is_open:
            self._idle.append(connection)
        return self._is_open

    def _end(self) -> list[C]:
        self._is_open = False
        idle, self._idle = self._idle, []
        return idle
