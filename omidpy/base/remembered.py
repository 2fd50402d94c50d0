"""A property that is worked out when it is first read, and then kept by its object.

`functools.cached_property` of Python 3.11 has one lock for all objects of a class, and holds it
while the value is worked out.  Where that asks a store or an oracle, one that does not answer would
hold up all other objects of the process.  Here no object waits for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class remembered(Generic[T]):  # noqa: N801 - stands where `property` does
    """Decorates a method; two threads that are first at once may both work it out."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
        """Work it out; later reads find it in the object, and do not come here."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._work(instance)
        return value
