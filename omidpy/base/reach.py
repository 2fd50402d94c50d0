"""Which rare branches has a run taken?  Marks in the product, which a simulator of it reads.

A claim that holds wherever nothing goes wrong is tested by what goes wrong.  Seeds are drawn, so
that it is not known whether any of them ever came to the branch that a claim is about, unless it
says so itself:

    reached("lease.own_answer_found", "I1")

A mark has one name, of the actor and of what has happened to it, and the claim that it belongs to,
as `docs/explanation/invariants.md` numbers them, and of committers `committers.md` beside it.  It
stands where something rare has just happened, never where every transaction comes by: without a
listener it costs one call, less than 100 ns.  There is none in a module that is compiled; what that
has decided is marked by who asks it.

Lacks any list: the marks are what the sources say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listener: Callable[[str], object] | None = None


def reached(mark: str, claim: str) -> None:
    """Say that a branch was taken.

    Args:
        mark: Its name, which no other branch has.
        claim: What depends on what is done there.
    """
    del claim  # it is for who reads the source
    if _listener is not None:
        _listener(mark)


@contextmanager
def listening(listener: Callable[[str], object]) -> Iterator[None]:
    """Tell `listener` each mark that is reached, in all threads, in place of any other one."""
    global _listener  # noqa: PLW0603 - one for the process: a mark has nothing to be handed one by
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before
