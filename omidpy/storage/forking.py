"""Who must be told of a `fork`?  Objects that hold what two processes must not share.

One set of hooks for the process.  Lacks any order among the objects: each is suspended by itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from omidpy.base.within import within

T = TypeVar("T")


class ForkAware(Protocol):
    """An object that lets go before a fork and starts afresh on both sides."""

    def before_fork(self) -> None:
        """Wait for the calls in flight, keep others out, and let go of what cannot be shared."""
        ...

    def after_fork_in_parent(self) -> None:
        """Let callers in again."""
        ...

    def after_fork_in_child(self) -> None:
        """Make new locks, since threads that held or wanted the old ones do not exist here."""
        ...


_registered: Final[WeakSet[ForkAware]] = WeakSet()
_suspended: Final[list[ForkAware]] = []
_gate = threading.Lock()
"""Held during a fork, so that no object appears half way through it."""


def register(thing: ForkAware) -> None:
    """Tell `thing` of every fork, as long as it lives."""
    within(_gate, _registered.add, thing)


_anew: Final[WeakKeyDictionary[Any, Callable[[Any], object]]] = WeakKeyDictionary()


def begin_anew(thing: T, begin: Callable[[T], object]) -> None:
    """Call `begin(thing)` now, and in every child that is forked, as long as `thing` lives.

    For what a child has to forget of its parent's threads: their locks, above all.
    """
    begin(thing)
    within(_gate, _anew.__setitem__, thing, begin)


def _before_fork() -> None:
    _gate.acquire()
    for thing in list(_registered):
        thing.before_fork()
        _suspended.append(thing)


def _after_fork_in_parent() -> None:
    for thing in _suspended:
        thing.after_fork_in_parent()
    _suspended.clear()
    _gate.release()


def _after_fork_in_child() -> None:
    global _gate  # noqa: PLW0603  a thread of the parent might hold the place in the old one's queue
    _gate = threading.Lock()
    for thing in _suspended:
        thing.after_fork_in_child()
    _suspended.clear()
    for thing, begin in list(_anew.items()):
        begin(thing)


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
