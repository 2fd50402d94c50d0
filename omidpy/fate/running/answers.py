"""What does the answer of a step mean for its operation?  Pure.

Whatever a step returns is foreign: it is checked before anything is written, so that a wrong answer
fails the step and never the executor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from omidpy.base.words.arguments import is_unrun
from omidpy.base.words.durations import MAX_DURATION_S
from omidpy.errors import UsageError
from omidpy.fate.operation import Operation, pushed, replaced, succeeded
from omidpy.fate.step import Again, Defer, Done, Step, encode_step


class CheckSize(Protocol):
    """Refuses what a store cannot keep in one piece."""

    def __call__(self, raw: bytes, *, what: str) -> None:
        """Raise `UsageError` if it cannot."""
        ...


def checked_wait(answer: object, top: Step) -> Defer:
    """Return how long `ready` asks to wait, with a reason; 0: not at all.

    Raises:
        UsageError: it asks for nothing that can be done.
    """
    if answer is None:
        return Defer(0)
    asked = answer if isinstance(answer, Defer) else None
    seconds: object = answer if asked is None else asked.seconds
    reason: object = None if asked is None else asked.reason
    if (
        seconds is True  # to whoever returns it, it says that it is ready
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= MAX_DURATION_S
        or not isinstance(reason, str | None)
    ):
        raise UsageError(
            f"ready() of {top.spec.name} returned {answer!r}; return None, seconds, or "
            f"Defer(seconds, reason), with {MAX_DURATION_S:.0f} s at most and a reason of text"
        )
    return Defer(seconds, reason or f"{top.spec.name} asks for {seconds:g} s")


def check_undone(answer: object, top: Step) -> None:
    """See that `undo` has run, whatever else it returned.

    Raises:
        UsageError: it returned what nobody goes on with, so that nothing of it was done.
    """
    if is_unrun(answer):
        raise UsageError(
            f"undo() of {top.spec.name} returned {answer!r}, which nobody goes on with, so that "
            "nothing was undone; let it be a plain function"
        )


def change_for(
    top: Step, answer: object, *, check_size: CheckSize, max_stack: int, now_ms: int
) -> Callable[[Operation], Operation]:
    """Return the change that an answer of `call` means.

    Raises:
        UsageError: it means none, or the store could not keep it.
    """
    if answer is None:
        answer = Done()
    if isinstance(answer, Done):
        result = _as_json(answer.result)
        check_size(msgspec.json.encode(result), what="the result")
        return lambda operation: succeeded(operation, result, now_ms=now_ms)
    is_same = isinstance(answer, Again)
    following = answer.step if isinstance(answer, Again) else answer
    if not isinstance(following, Step) or (is_same and type(following) is not type(top)):
        raise UsageError(
            f"call() of {top.spec.name} returned {answer!r}; return a step, self.again(...), "
            "Done(result) or None"
        )
    raw = encode_step(following)
    check_size(raw, what=f"step {following.spec.name}")
    if is_same:
        return lambda operation: replaced(operation, raw)
    return lambda operation: pushed(operation, raw, max_stack=max_stack)


def _as_json(result: Any) -> Any:
    """Return a result as it will be read: made of what JSON has."""
    try:
        kept = msgspec.json.decode(msgspec.json.encode(result))
        given = msgspec.to_builtins(result, str_keys=True)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"the result {result!r:.200} cannot be kept as JSON: {error}") from error
    if kept != given:  # JSON has no infinity, and none of what is no number
        raise UsageError(f"the result {result!r:.200} would come back as {kept!r:.200}")
    return kept
