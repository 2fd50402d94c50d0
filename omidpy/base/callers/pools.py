"""Hands calls to a pool of threads; where the system lets no thread start, it knows what is made.

A pool takes a call into its queue before it starts a thread for it.  Where that is refused, because
a user has too many processes for one, it raises, and the call stays in the queue: another thread of
the pool makes it later, when its caller has long been told that it failed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_NO_THREAD: Final = ("can't start new thread", "can't create new thread")
"""What Python says of one that it cannot start, before 3.13 and as it ends."""


def says_no_thread(error: BaseException) -> bool:
    """Say whether an error is that no thread can be started."""
    return isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD)


def submitted(
    submit: Callable[..., Any], function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Future[R] | None:
    """Let a pool make a call.

    Args:
        submit: How the pool takes calls, as `Executor.submit`.
        function: What to call.
        *args: Its arguments.
        **kwargs: And those with names.

    Returns:
        What becomes of the call; None: no thread can be started, and it is never made.
    """
    made: Future[R] = Future()
    try:
        submit(_make, made, lambda: function(*args, **kwargs))
    except RuntimeError as error:
        # One that has begun all the same, in another thread of the pool, is told of as any other.
        if made.cancel():
            if not says_no_thread(error):  # the pool was closed
                raise
            return None
    return made


def begun(
    submit: Callable[..., Any], function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Future[R]:
    """Let a pool make a call; where no thread can be started it is made here, before this returns.

    For callers that may wait for as long as it takes, and hold nothing that it waits for.
    """
    made = submitted(submit, function, *args, **kwargs)
    if made is None:
        made = Future()
        _make(made, lambda: function(*args, **kwargs))
        if (error := made.exception()) is not None and not isinstance(error, Exception):
            raise error  # an interrupt is this thread's own
    return made


def _make(made: Future[R], call: Callable[[], R]) -> None:
    """Make a call that nobody has taken back."""
    if not made.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        made.set_exception(error)
        del made  # or the error would refer to itself, by way of this frame
    else:
        made.set_result(result)
