"""Is a `with` block still running, even if its `__exit__` never got to its first line?

An exception may come there, and then the block has ended and nothing of what it should have done at
its end is done.  What it had set up for others to find would stay for ever.

A `with` statement looks `__exit__` up when it begins, and keeps what it got until it has ended,
however it ends; no other object keeps it.  So where each statement gets an object of its own, the
life of that object is the block's.
"""

from __future__ import annotations

from collections.abc import Callable
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
