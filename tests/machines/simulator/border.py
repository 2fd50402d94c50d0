"""Between the two releases of one world: what crosses is made anew, of the other one's classes.

The store speaks this tree's classes: its mutations, conditions, cells, schemas, errors.  A process
of the release before has its own, and sees the store through `Seen`.  What passes is known by its
shape: a class with fields becomes the class of the same name over there, field by field; a choice
of an enumeration the one of that name; an error one with the same message and state.  What has no
shape that is known is refused, so that nothing passes by chance.

A field that the other side does not have passes as long as it has the value that it has by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final, NoReturn

from tests.machines.simulator.before import Before, Tree
from tests.machines.two_versions import PACKAGES

_PLAIN: Final = (int, float, bool, str, bytes, bytearray, memoryview, type(None), type(Ellipsis))
_CALLABLE: Final = (FunctionType, MethodType, partial)

Make = Callable[[Any], Any]


class Way:
    """One direction: what comes from one release, as the other one has it."""

    def __init__(self, source: Tree, target: Tree) -> None:
        self.back: Way
        """The other direction."""
        self._source = source
        self._target = target
        self._makes: dict[type, Make] = {kind: lambda value: value for kind in _PLAIN}

    def __call__(self, value: Any) -> Any:
        """Return a value as it is on the other side."""
        kind = type(value)
        make = self._makes.get(kind)
        if make is None:
            make = self._makes[kind] = self._make_for(kind)
        return make(value)

    def error(self, error: BaseException) -> BaseException:
        """Return an error as it is there, or as a more general one; nobody's own as it is."""
        for kind in type(error).__mro__:
            try:
                theirs = self._class(kind)
            except LookupError:  # it is newer than that release
                continue
            if theirs is not None and theirs is not kind:
                made: BaseException = theirs.__new__(theirs, *self(error.args))
                made.__dict__.update(self(vars(error)))
                return made
        return error

    def called(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what is on the side that this way comes from, for the other one."""
        try:
            answer = function(*self.back(args), **self.back(kwargs))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._raise(error)
        return self._pages(answer) if isinstance(answer, Iterator) else self(answer)

    def _pages(self, pages: Iterator[Any]) -> Iterator[Any]:
        while True:
            try:
                page = next(pages)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 - it is the caller's
                self._raise(error)
            yield self(page)

    def _raise(self, error: Exception) -> NoReturn:
        made = self.error(error)
        if made is error:
            raise error
        raise made from error

    def _class(self, kind: type) -> Any:
        """Return the class that has this one's place there; None if it belongs to nobody."""
        prefix = self._source.prefix
        module = kind.__module__
        if not module.startswith(prefix):
            return None
        module = module.removeprefix(prefix)
        if module.partition(".")[0] not in PACKAGES:
            return None
        return self._target.get(module, kind.__qualname__)

    def _make_for(self, kind: type) -> Make:
        theirs = self._class(kind)
        if theirs is None:
            return self._make_for_any(kind)
        if issubclass(kind, Enum):
            return lambda value: theirs[value.name]
        names, known = field_names(kind), field_names(theirs)
        assert names is not None, f"{kind} has no shape that could pass"
        assert known is not None, f"{theirs} has no shape that could pass"
        if names == known and not is_dataclass(kind):
            return lambda value: theirs(*[self(getattr(value, name)) for name in names])
        lost = {name: inspect.signature(kind).parameters[name].default for name in names}
        lost = {name: default for name, default in lost.items() if name not in known}

        def make(value: Any) -> Any:
            for name, default in lost.items():
                assert getattr(value, name) == default, f"nobody there knows {name} of {value}"
            shared = [name for name in names if name in known]
            return theirs(**{name: self(getattr(value, name)) for name in shared})

        return make

    def _make_for_any(self, kind: type) -> Make:
        if kind.__module__.startswith("tests."):
            return lambda value: value  # what the simulation itself hands out
        if issubclass(kind, _CALLABLE):
            return lambda function: partial(self.called, function)
        if issubclass(kind, tuple):
            return lambda values: tuple([self(one) for one in values])
        if issubclass(kind, set | frozenset):
            made = set if issubclass(kind, set) else frozenset
            return lambda values: made(self(one) for one in values)
        if issubclass(kind, Mapping):
            return lambda values: {self(key): self(one) for key, one in values.items()}
        if issubclass(kind, Iterable):
            return lambda values: [self(one) for one in values]
        raise AssertionError(f"{kind} has no shape that could pass")


def field_names(kind: Any) -> tuple[str, ...] | None:
    """Return what an object of a class is made of, in order; None if that is not known."""
    if is_dataclass(kind):
        return tuple(one.name for one in fields(kind) if one.init)
    names: tuple[str, ...] | None = getattr(kind, "_fields", None)
    return names or getattr(kind, "__struct_fields__", None)


class Border:
    """Both directions."""

    def __init__(self, before: Before) -> None:
        self.out = Way(before.here, before.tree)
        """What is this tree's, as the release before has it."""
        self.home = Way(before.tree, before.here)
        self.out.back, self.home.back = self.home, self.out

    def seen(self, target: Any, **instead: Any) -> Any:
        """Return something of this tree's as a process of the release before sees it.

        Args:
            target: A store, for example: its methods are called, and what it holds is read.
            instead: What is seen in place of some of it, as it is.
        """
        way = self.out

        def method(name: str) -> Callable[..., Any]:
            def call(self: object, *args: Any, **kwargs: Any) -> Any:
                del self
                return way.called(getattr(target, name), *args, **kwargs)

            return call

        def found(self: object, name: str) -> Any:
            del self
            value = getattr(target, name)  # who asks whether it has this is told
            return partial(way.called, value) if callable(value) else way(value)

        def keep(self: object, name: str, value: Any) -> None:
            del self
            setattr(target, name, way.back(value))

        # Who asks a class what it can do looks at the class, and not at what its objects answer.
        kind = type(target)
        names = [name for name in dir(kind) if not name.startswith("_")]
        methods = {name: method(name) for name in names if callable(getattr(kind, name))}
        return type("Seen", (), {**methods, "__getattr__": found, "__setattr__": keep, **instead})()
