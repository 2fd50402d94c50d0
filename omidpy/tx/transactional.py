"""Functions that take a transaction first: which may be decorated, and how they may be called.

`tm.transactional` turns `f(tx, a, b)` into what can be called as `f(a, b)`, in a transaction of its
own, and as `f(tx, a, b)`, in the caller's.  Type checkers see both, by the protocols below; at run
time it is a plain function, so that it becomes a method as any other does: with `self` or `cls`
first, and the transaction behind.

Source: the signatures are those of PEP 612.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, overload

from omidpy.base.words.arguments import is_of
from omidpy.errors import UsageError
from omidpy.model import Committed

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
S_contra = TypeVar("S_contra", contravariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

_OWNERS: Final = ("self", "cls")


class Transactional(Protocol[T_contra, P, R_co]):
    """A decorated function, or a bound method: called with a transaction first, or without."""

    __name__: str

    @overload
    def __call__(self, tx: T_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class UnboundTransactional(Protocol[S_contra, T_contra, P, R_co]):
    """A decorated method, taken from its class."""

    __name__: str

    @overload
    def __call__(
        self, instance: S_contra, tx: T_contra, /, *args: P.args, **kwargs: P.kwargs
    ) -> R_co: ...

    @overload
    def __call__(self, instance: S_contra, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class TransactionalMethod(
    UnboundTransactional[S_contra, T_contra, P, R_co], Protocol[S_contra, T_contra, P, R_co]
):
    """A decorated method in the body of its class."""

    @overload  # a class method, whose first argument is the owner
    def __get__(self, instance: object, owner: S_contra, /) -> Transactional[T_contra, P, R_co]: ...

    @overload
    def __get__(
        self, instance: None, owner: type, /
    ) -> UnboundTransactional[S_contra, T_contra, P, R_co]: ...

    @overload
    def __get__(
        self, instance: S_contra, owner: type | None = None, /
    ) -> Transactional[T_contra, P, R_co]: ...


class Decorator(Protocol[T]):
    """What `tm.transactional(retry_budget_s=...)` returns."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # where both fit, the first is meant
        self, function: Callable[Concatenate[T, P], R], /
    ) -> Transactional[T, P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[S, T, P], R], /
    ) -> TransactionalMethod[S, T, P, R]: ...


class KeyedDecorator(Protocol[T]):
    """What `tm.transactional(idempotency_key=...)` returns: a repetition returns `Committed`."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # where both fit, the first is meant
        self, function: Callable[Concatenate[T, P], R], /
    ) -> Transactional[T, P, R | Committed]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[S, T, P], R], /
    ) -> TransactionalMethod[S, T, P, R | Committed]: ...


class AsyncDecorator(Protocol[T]):
    """The same of asyncio."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # where both fit, the first is meant
        self, function: Callable[Concatenate[T, P], Awaitable[R]], /
    ) -> Transactional[T, P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[S, T, P], Awaitable[R]], /
    ) -> TransactionalMethod[S, T, P, Coroutine[Any, Any, R]]: ...


class AsyncKeyedDecorator(Protocol[T]):
    """The same of asyncio, with a key."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # where both fit, the first is meant
        self, function: Callable[Concatenate[T, P], Awaitable[R]], /
    ) -> Transactional[T, P, Coroutine[Any, Any, R | Committed]]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[S, T, P], Awaitable[R]], /
    ) -> TransactionalMethod[S, T, P, Coroutine[Any, Any, R | Committed]]: ...


def elsewhere(function: Callable[..., Any], start_ts: int, remedy: str) -> UsageError:
    """Return the error of a call that would use a transaction of another thread or task."""
    name = getattr(function, "__qualname__", repr(function))
    return UsageError(
        f"{name} would join transaction {start_ts}, which belongs to another thread or task and "
        f"may commit at any moment; {remedy}"
    )


IN_A_CONTEXT_OF_ITS_OWN: Final = (
    "to begin one here, start the thread or task outside of that block, or run the function in a "
    "context of its own: contextvars.Context().run(function, ...)"
)
"""What to do where a context was handed on that names the transaction of another one."""


def transaction_position(function: Callable[..., Any], *, is_async: bool = False) -> int:
    """Return where the transaction stands among a function's arguments: 0, or 1 behind `self`.

    Raises:
        TypeError: the function cannot be run as a transaction; the message says what to do.
    """
    name = getattr(function, "__qualname__", repr(function))
    if isinstance(function, (staticmethod, classmethod)):
        kind = type(function).__name__
        raise TypeError(f"{name}: write @{kind} above @tm.transactional, not below it")
    if not callable(function):
        raise TypeError(f"@tm.transactional decorates functions, not {function!r}")
    _check_kind(function, name, is_async=is_async)
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of a built-in, which does not tell
        return 0
    return _position(parameters, name)


def _check_kind(function: Callable[..., Any], name: str, *, is_async: bool) -> None:
    if is_of(function, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        raise TypeError(
            f"{name} is a generator, which runs when its transaction has ended already; let it "
            "return a list, or begin a transaction inside of it with `with tm.begin() as tx:`"
        )
    if not is_async and is_of(function, inspect.iscoroutinefunction):
        raise TypeError(
            f"{name} is an `async def`, which runs when its transaction has ended already; use the "
            "manager of `omidpy.aio.connect`, whose transactional awaits it"
        )


def _position(parameters: Iterable[inspect.Parameter], name: str) -> int:
    positional = [
        one.name
        for one in parameters
        if one.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    takes_any = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)
    position = 1 if positional[:1] and positional[0] in _OWNERS else 0
    if len(positional) <= position and not takes_any:
        raise TypeError(
            f"{name} takes no transaction; make that its first argument, in a method the one after "
            "`self`"
        )
    return position
