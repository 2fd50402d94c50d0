"""Do these steps stand being run twice?  A caller that calls every step so, for users' own tests.

Whoever goes on after a crash calls a step again that has already done its work, or part of it.
`Flaky` does that all the time: it calls a step, asks `ready` once more, makes the step anew from
what is kept of it, as a successor would, and calls it again.  The second answer counts, and must
lead to the same kind of step.  What is undone is undone twice.

    fate = Fate(env, TableFateStore(MemoryStore()), caller=Flaky())

A step that notes something twice, or fails where it finds its own work, fails the test then.  The
fixture `flaky_fate` of `omidpy.testing.fate.fixtures` has all of that ready.
"""

from __future__ import annotations

from typing import Any

from omidpy.fate.running.runner import Caller
from omidpy.fate.step import Again, Answer, Defer, Done, Step, StepContext, decode_step, encode_step


class NotRepeatable(AssertionError):
    """A step answered otherwise when it was called again."""


class Flaky(Caller):
    """Calls each step twice."""

    def call(self, step: Step, tx: StepContext, env: Any) -> Answer:
        """Call a step, and what is kept of it once more."""
        first = super().call(step, tx, env)
        copy = decode_step(encode_step(step))
        wait = super().ready(copy, tx, env)
        if (wait.seconds if isinstance(wait, Defer) else wait or 0) > 0:
            raise NotRepeatable(
                f"ready() of {step.spec.name} asks to wait for {wait!r} after it was called: a "
                "successor would never come to call it"
            )
        second = super().call(copy, tx, env)
        if _kind(first) != _kind(second):
            raise NotRepeatable(
                f"call() of {step.spec.name} returned {first!r}, and {second!r} when it was called "
                "again: a crash in between would lead elsewhere"
            )
        return second

    def undo(self, step: Step, tx: StepContext, env: Any) -> None:
        """Undo a step, and what is kept of it once more."""
        super().undo(step, tx, env)
        super().undo(decode_step(encode_step(step)), tx, env)


def _kind(answer: Answer) -> object:
    """Return what must be the same of two answers."""
    if answer is None:
        return Done
    return (Again, type(answer.step)) if isinstance(answer, Again) else type(answer)
