"""Place an exception at a line that a call reaches: Ctrl-C, made repeatable.

    interrupter = Interrupter()
    for number in interrupter.places(call):
        try:
            interrupter.interrupt(call, number, Interrupt())
        except Interrupt:
            pass
        assert everything_is_usable()

A signal handler raises wherever Python looks for signals, in the main thread; here an exception is
raised at a line of omidpy or of its oracle that the calling thread reaches, by its tracer.  That is
more than a signal can do: lines are not where Python looks.  It is also less: nothing is raised
inside a line, nor in the standard library.  And it is once: with the exception the thread loses its
tracer, so that what tidies up is not interrupted again.

`calls.py` does so with every public call.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, TypeAlias

import omidpy

_PACKAGE: Final = Path(omidpy.__file__).parent

FOLDERS: Final = (_PACKAGE, _PACKAGE.parent / "tso")
"""Whose lines are reached: the library's and the oracle's."""

NOT_THESE: Final = (_PACKAGE / "testing",)


class Interrupt(KeyboardInterrupt):
    """What is raised."""


class TimeLimit(Exception):
    """What may be raised in its place: handlers of signals raise exceptions of every kind."""


class Line(NamedTuple):
    """A line of code."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number} in {self.function}"


Place: TypeAlias = tuple[Line, ...]
"""A line, and those from which it was reached."""

DEPTH: Final = 4
"""How many lines tell places apart."""


class Interrupter:
    """Counts the lines that the calling thread reaches, and raises at one of them."""

    def __init__(
        self, folders: Sequence[Path] = FOLDERS, *, but: Sequence[Path] = NOT_THESE
    ) -> None:
        """Count lines of files in `folders`, without those in `but`."""
        self._in = tuple(f"{folder}/" for folder in folders)
        self._but = tuple(f"{folder}/" for folder in but)
        self._known: dict[CodeType, bool] = {}
        self.where: Line | None = None
        """Where the last interrupt was placed."""

    def lines(self, call: Callable[[], object]) -> list[Line]:
        """Make a call; return each line that it reached, as often as it did."""
        return [way[0] for way in self._ways(call)]

    def places(self, call: Callable[[], object], known: set[Place] | None = None) -> list[int]:
        """Make a call; return the numbers of the lines that are places of their own, from 1.

        A line that is reached from another one is another place.  Of the rounds of a loop the first
        and the last count.

        Args:
            call: What reaches them.
            known: Places that do not count; those of this call are added.
        """
        first: dict[Place, int] = {}
        last: dict[Place, int] = {}
        for number, way in enumerate(self._ways(call), start=1):
            first.setdefault(way, number)
            last[way] = number
        known = set() if known is None else known
        numbers = {
            number for found in (first, last) for way, number in found.items() if way not in known
        }
        known.update(first)
        return sorted(numbers)

    def _ways(self, call: Callable[[], object]) -> list[Place]:
        """Return each line reached, with those from which it was called."""
        found: list[Place] = []

        def at_line(frame: FrameType, event: str, _: object) -> Any:
            if event == "line":
                way: list[Line] = []
                caller: FrameType | None = frame
                while caller is not None and len(way) < DEPTH:
                    if self._counts(caller.f_code):
                        way.append(_line(caller))
                    caller = caller.f_back
                found.append(tuple(way))
            return at_line

        self._traced(call, at_line)
        return found

    def interrupt_in(
        self, call: Callable[[], object], function: str, error: BaseException
    ) -> Line | None:
        """Make a call and raise `error` at the first line of a function, by its qualified name."""
        return self._interrupt(call, lambda frame: frame.f_code.co_qualname == function, error)

    def interrupt(
        self, call: Callable[[], object], number: int, error: BaseException
    ) -> Line | None:
        """Make a call and raise `error` at the line that is its `number`th.

        Returns:
            The line, if the call swallowed the error; None if it reached fewer lines.
        """
        count = itertools.count(1)
        return self._interrupt(call, lambda _: next(count) == number, error)

    def _interrupt(
        self, call: Callable[[], object], is_it: Callable[[FrameType], bool], error: BaseException
    ) -> Line | None:
        self.where = None

        def at_line(frame: FrameType, event: str, _: object) -> Any:
            if event == "line" and is_it(frame):
                self.where = _line(frame)
                raise error
            return at_line

        self._traced(call, at_line)
        return self.where

    def _traced(self, call: Callable[[], object], at_line: Any) -> None:
        def at_call(frame: FrameType, _event: str, _arg: object) -> Any:
            return at_line if self._counts(frame.f_code) else None

        # What others left behind is not to be finalized here, by code of ours whose errors vanish.
        gc.disable()
        before = sys.gettrace()
        sys.settrace(at_call)
        try:
            call()
        finally:
            sys.settrace(before)
            gc.enable()

    def _counts(self, code: CodeType) -> bool:
        known = self._known.get(code)
        if known is None:
            known = code.co_filename.startswith(self._in)
            known = self._known[code] = known and not code.co_filename.startswith(self._but)
        return known


def _line(frame: FrameType) -> Line:
    return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def interrupt(thread: threading.Thread) -> None:
    """Raise an `Interrupt` in another thread, as soon as it runs Python code."""
    assert thread.ident is not None, "it was started"
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupt)
    )
