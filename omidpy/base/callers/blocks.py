"""Is a `with` block still running, even if its `__exit__` never got to its first line?

An exception may come there, and then the block has ended and nothing of what it should have done at
its end is done.  What it had set up for others to find would stay for ever.

A `with` statement looks `__exit__` up when it begins, and keeps what it got until it has ended,
however it ends; no other object keeps it.  So where each statement gets an object of its own, the
life of that object is the block's.

And which blocks is a caller within?  One context variable says so for all who ask: a context keeps
each variable that was ever set in it, so that one for each manager would outlive them all.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload
from weakref import ref

P = ParamSpec("P")
T = TypeVar("T")

Block: TypeAlias = Callable[[], object | None]
"""A block: a call returns None once it has ended."""


class Entered(Protocol):
    """What `with` statements enter."""

    block: Block | None
    """The block of the last statement that looked `__exit__` up."""


class exit_of_block(Generic[P, T]):  # noqa: N801 - a decorator
    """Let an `__exit__` note the block of each statement that looks it up."""

    def __init__(self, function: Callable[Concatenate[Any, P], T]) -> None:
        self._function = function

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[Concatenate[Any, P], T]: ...

    @overload
    def __get__(self, instance: Entered, owner: type) -> Callable[P, T]: ...

    def __get__(self, instance: Entered | None, owner: type) -> Callable[..., T]:
        if instance is None:
            return self._function
        end = partial(self._function, instance)
        instance.block = ref(end)
        return end


_around: ContextVar[tuple[tuple[Around[Any], Any], ...]] = ContextVar("around", default=())
"""What was entered and not left, the outermost first, each with whose it is."""


class Around(Generic[T]):
    """What of one owner the caller is within the blocks of."""

    def __init__(self, still: Callable[[T], bool] = lambda _: True) -> None:
        """Begin with nothing; `still` says whether the block of something runs."""
        self._still = still

    def enter(self, one: T) -> None:
        """Let whoever runs in this context find something, until it is left."""
        _around.set((*(pair for pair in _around.get() if pair[0]._still(pair[1])), (self, one)))  # noqa: SLF001 - of the same class

    def leave(self, is_left: Callable[[T], bool]) -> None:
        """Let nobody find any more what is left."""
        kept = (one for one in _around.get() if one[0] is not self or not is_left(one[1]))
        _around.set(tuple(kept))

    def found(self) -> tuple[T, ...]:
        """Return what the caller is within, the outermost first."""
        own = (one for owner, one in _around.get() if owner is self)
        return tuple(one for one in own if self._still(one))
