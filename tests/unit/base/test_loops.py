"""Which run of a loop is meant, where the same function runs more than once."""

from __future__ import annotations

import sys

from omidpy.base.callers.loops import Loop


def test_a_loop_is_gone_with_its_iterator() -> None:
    """What has its frame's number by then is another frame: a refusal was swallowed there."""
    frame = sys._getframe()
    loop = Loop.around(frame)
    assert not loop.runs_in(frame)
    iterator = loop.over(number for number in range(3))
    assert loop.runs_in(frame)
    del iterator
    assert not loop.runs_in(frame)


def test_a_function_that_calls_itself_has_two_loops() -> None:
    """They are at the same place of the same code."""

    def run(outer: Loop | None) -> bool:
        frame = sys._getframe()
        if outer is not None:
            return outer.runs_in(frame)
        loop = Loop.around(frame)
        iterator = loop.over(number for number in range(3))
        return run(loop) or not loop.runs_in(frame) or iterator is None

    assert not run(None)
