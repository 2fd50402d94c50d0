"""What is called around the end of a transaction, and which of it goes with an undone savepoint.

A callback belongs to the savepoints that were open where it was registered.  If one of them is
undone, what it would tell of, or write, has not been: it is taken back, as the writes are.  What is
to be done behind a rollback stays: it cleans up behind the undone, too.

Pure, but for the callbacks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

from omidpy.base.words.arguments import is_unrun, runs_later
from omidpy.errors import UsageError

log: Final = logging.getLogger("omidpy.tx.transaction")

C = TypeVar("C", bound=Callable[..., object])
T = TypeVar("T")


class _Registered(NamedTuple, Generic[C]):
    """A callback, and where among the savepoints it was registered."""

    call: C
    depth: int
    """In how many of the savepoints that are open it was registered."""


class Callbacks:
    """The callbacks of one transaction, in the order of their registration."""

    def __init__(self) -> None:
        """Begin with no callback."""
        self._before_commit: list[_Registered[Callable[[], object]]] = []
        self._before_commit_last: list[_Registered[Callable[[], object]]] = []
        self._after_commit: list[_Registered[Callable[[Any], object]]] = []
        self._after_rollback: list[Callable[[], object]] = []
        self._when_undone: list[_Registered[Callable[[], object]]] = []

    # -- registering ---------------------------------------------------------------------------

    def before_commit(self, callback: Callable[[], object], depth: int) -> None:
        """Call it as the commit begins."""
        self._before_commit.append(_Registered(check_callback("before_commit", callback), depth))

    def before_commit_last(self, callback: Callable[[], object], depth: int) -> None:
        """Call it behind all of these, also those that are registered later or by one of them."""
        self._before_commit_last.append(
            _Registered(check_callback("before_commit_last", callback), depth)
        )

    def after_commit(self, callback: Callable[[Any], object], depth: int) -> None:
        """Call it with the transaction, after the commit."""
        self._after_commit.append(_Registered(check_callback("after_commit", callback), depth))

    def after_rollback(self, callback: Callable[[], object]) -> None:
        """Call it once it is certain that the transaction never commits."""
        self._after_rollback.append(check_callback("after_rollback", callback))

    def when_undone(self, callback: Callable[[], object], depth: int) -> None:
        """Call it if the savepoint is undone, and forget it otherwise."""
        self._when_undone.append(_Registered(check_callback("when_undone", callback), depth))

    # -- savepoints ----------------------------------------------------------------------------

    def keep(self, depth: int) -> None:
        """Let the innermost savepoint, of that depth, be part of what is around it."""
        _lower(self._before_commit, depth)
        _lower(self._before_commit_last, depth)
        _lower(self._after_commit, depth)
        _lower(self._when_undone, depth)

    def undo(self, depth: int) -> None:
        """Take back what was registered in the innermost savepoint, of that depth."""
        undone = [one.call for one in self._when_undone if one.depth >= depth]
        _remove(self._when_undone, depth)
        _remove(self._before_commit, depth)
        _remove(self._before_commit_last, depth)
        _remove(self._after_commit, depth)
        for call in reversed(undone):
            call()

    # -- the end -------------------------------------------------------------------------------

    @property
    def has_preparations(self) -> bool:
        """Whether something is to be called as the commit begins."""
        return bool(self._before_commit or self._before_commit_last)

    def prepare(self, check: Callable[[], object]) -> None:
        """Call what is to be called as the commit begins, and `check` behind each.

        A callback may register others, which are called, too.  Not so one of the last ones: what it
        would have to be called behind is over.

        Raises:
            Exception: what one of them, or `check`, has raised; the others are not called.
        """
        for one in self._before_commit:
            run_callback(one.call)
            check()
        count = len(self._before_commit)
        for one in self._before_commit_last:
            run_callback(one.call)
            check()
            if len(self._before_commit) != count:
                raise UsageError(
                    "a callback that is called last in a commit registers no other one"
                )

    def committed(self, tx: object, start_ts: int) -> None:
        """Call what is to be called after the commit, once, however many threads learn of it."""
        for one in _taken(self._after_commit):
            try:
                run_callback(one.call, tx)
            except Exception:
                log.exception("after_commit of transaction %d failed", start_ts)

    def will_not_commit(self) -> None:
        """Forget what is to be called after a commit."""
        self._after_commit = []

    def rolled_back(self, start_ts: int) -> None:
        """Call what is to be called after a rollback; once, too."""
        for call in _taken(self._after_rollback):
            try:
                run_callback(call)
            except Exception:
                log.exception("after_rollback of transaction %d failed", start_ts)


def check_callback(name: str, callback: C) -> C:
    """Return what is to be called, if it can be.

    Raises:
        TypeError: it is no function, or one that nobody would go on with.
    """
    if not callable(callback):
        raise TypeError(f"{name} takes a function, not {callback!r:.80}")
    if runs_later(callback):
        raise TypeError(
            f"{name} takes a plain function, not an `async def` or a generator, which nobody goes "
            "on with; let it start a task of its own"
        )
    return callback


def run_callback(call: Callable[..., object], *args: object) -> None:
    """Call something, and see that it has run.

    Raises:
        TypeError: it has only made what nobody goes on with: nothing of it was done.
    """
    if is_unrun(returned := call(*args)):
        raise TypeError(f"{call!r:.80} returned {returned!r:.80}, which nobody goes on with")


def _taken(some: list[T]) -> Iterator[T]:
    """Take one after the other, of which each goes to one thread."""
    with suppress(IndexError):  # another has taken the last
        while some:
            yield some.pop(0)


# In place: a commit that begins walks along one of these lists, and may call who has a savepoint.


def _lower(some: list[_Registered[C]], depth: int) -> None:
    some[:] = [_Registered(one.call, min(one.depth, depth - 1)) for one in some]


def _remove(some: list[_Registered[C]], depth: int) -> None:
    some[:] = [one for one in some if one.depth < depth]
