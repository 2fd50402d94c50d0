"""Hold something for the length of a call, and surely give it back (I11).

An exception may come at any line: Ctrl-C, a signal handler that raises, a test's time limit.  What
`with` and `finally` give back is not safe from it.  The end of a `with` block of several lines is a
line of its own, at which the block is left and nothing is given back yet; so is the first line of a
`finally`, and of an `__exit__` that is written in Python.

On one line there is no such place.  The interpreter looks for signals behind a call, hence inside
the block or behind `__exit__`, and tracers are told of lines.

So what other threads or processes wait for (a lock, a transaction of SQLite, a locked file) is held
by `within` wherever a foreign exception may come, which is in every thread that is not our own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def within(
    held: AbstractContextManager[Any], work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what `work` returns, called while `held` is held.

    Args:
        held: A lock, a file or a connection of SQLite: its `__enter__` and `__exit__` are in C.
        work: What to do meanwhile.
        *args: Its arguments.
        **kwargs: And those with names.
    """
    with held: return work(*args, **kwargs)  # fmt: skip  # noqa: E701 - one line, see above
