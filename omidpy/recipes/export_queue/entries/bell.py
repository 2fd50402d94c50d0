"""Tells exporters what their own process has committed, so that they need not wait for a poll.

Best effort: no listener hears of what other processes commit, and what is not heard is found by the
next poll.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from omidpy.base.within import within
from omidpy.storage import forking


class Queue(NamedTuple):
    """A queue, as it is told from all others of this process."""

    store_id: str
    table: str


class Listener(Protocol):
    """What is called when an entry was committed."""

    def heard(self, buckets: Collection[int]) -> None:
        """Note that there are entries in some buckets.  Quick, and never raises."""
        ...


class Bell:
    """Who listens to which queue.  Safe to share among threads, and after a fork."""

    def __init__(self) -> None:
        forking.begin_anew(self, Bell._begin)

    def _begin(self) -> None:
        """Have nobody who listens, in this process: a parent's exporters are its own."""
        self._lock = threading.Lock()
        self._listeners: dict[Queue, weakref.WeakSet[Listener]] = {}

    def listen(self, queue: Queue, listener: Listener) -> None:
        """Tell a listener from now on, as long as it lives."""
        within(self._lock, self._listen, queue, listener)

    @property
    def is_heard(self) -> bool:
        """Whether anybody has ever listened: where no exporter runs, nothing is to be done."""
        return bool(self._listeners)

    def ring(self, queue: Queue, buckets: Collection[int]) -> None:
        """Tell those who listen to a queue."""
        for listener in within(self._lock, self._listening, queue):
            listener.heard(buckets)

    def _listen(self, queue: Queue, listener: Listener) -> None:
        self._listeners.setdefault(queue, weakref.WeakSet()).add(listener)

    def _listening(self, queue: Queue) -> list[Listener]:
        return list(self._listeners.get(queue, ()))


BELL: Final = Bell()
"""The one of this process."""
