"""Place an exception at a line that a call reaches: Ctrl-C, made repeatable.

    interrupter = Interrupter()
    for number in range(1, 1 + len(interrupter.lines(call))):
        interrupter.interrupted(call, number, Interrupt())  # raises, at that line
        assert everything_is_usable()

A signal handler raises wherever Python looks for signals, in the main thread; here an exception is
raised at any line of omidpy and of its oracle that the calling thread reaches, by its tracer.  That
is more than a signal can do: lines are not where Python looks.  It is also less: nothing is raised
inside a line, nor in the standard library.  And it is once: with the exception the thread loses its
tracer, so that what tidies up is not interrupted again.

`interrupt` hits another thread, wherever that is.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import omidpy

_PACKAGE: Final = Path(omidpy.__file__).parent

FOLDERS: Final = (_PACKAGE, _PACKAGE.parent / "tso")
"""Whose lines are reached: the library's and the oracle's."""

NOT_THESE: Final = (_PACKAGE / "testing",)


class Interrupt(KeyboardInterrupt):
    """What is raised."""


class Line(NamedTuple):
    """A line of code."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number} {self.function}"


class Interrupter:
    """Counts the lines that the calling thread reaches, and raises at one of them."""

    def __init__(
        self, folders: Sequence[Path] = FOLDERS, *, but: Sequence[Path] = NOT_THESE
    ) -> None:
        """Count lines of files in `folders`, without those in `but`."""
        self._in = tuple(f"{folder}/" for folder in folders)
        self._but = tuple(f"{folder}/" for folder in but)
        self._known: dict[CodeType, bool] = {}

    def lines(self, call: Callable[[], object]) -> list[Line]:
        """Make a call; return each line that it reached, as often as it did."""
        found: list[Line] = []

        def at_line(frame: FrameType, event: str, _: object) -> Any:
            if event == "line":
                found.append(_line(frame))
            return at_line

        self._traced(call, at_line)
        return found

    def interrupted(
        self, call: Callable[[], object], number: int, error: BaseException
    ) -> Line | None:
        """Make a call and raise `error` at the line that is its `number`th.

        Returns:
            The line, if the call swallowed the error; None if it reached fewer lines.
        """
        left = number
        where: Line | None = None

        def at_line(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left, where
            if event == "line":
                left -= 1
                if left == 0:
                    where = _line(frame)
                    raise error
            return at_line

        self._traced(call, at_line)
        return where

    def _traced(self, call: Callable[[], object], at_line: Any) -> None:
        def at_call(frame: FrameType, _event: str, _arg: object) -> Any:
            return at_line if self._counts(frame.f_code) else None

        before = sys.gettrace()
        sys.settrace(at_call)
        try:
            call()
        finally:
            sys.settrace(before)

    def _counts(self, code: CodeType) -> bool:
        known = self._known.get(code)
        if known is None:
            known = code.co_filename.startswith(self._in)
            known = self._known[code] = known and not code.co_filename.startswith(self._but)
        return known


def _line(frame: FrameType) -> Line:
    return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def interrupt(thread: threading.Thread) -> None:
    """Raise an `Interrupt` in a thread, as soon as it runs Python code."""
    assert thread.ident is not None, "it was started"
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupt)
    )
