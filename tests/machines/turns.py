"""Every order in which the store calls of a few programs can come.

Each program runs in a thread of its own, and stops before each call of a store that was opened
`in_turns`.  One program at a time is let go on, up to its next call, so that a run is as repeatable
as its list of choices; `every_order` goes through all lists.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

from omidpy.storage.base import Store
from tests.machines.interleaving import interleaved

DEADLINE_S: Final = 60.0


def in_turns(store: Store) -> Store:
    """Return a store before whose calls programs wait for their turn, and nobody else."""

    def before(_method: str, _table: str) -> None:
        program = threading.current_thread()
        if isinstance(program, Program):
            program.wait()

    return interleaved(store, before)


class Program(threading.Thread):
    """A function that goes on to its next call when it is told to."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.error: Exception | None = None
        self._function = function
        self._is_over = False
        self._may_go_on = threading.Semaphore(0)
        self._has_stopped = threading.Semaphore(0)
        self.start()
        self._await()

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end."""
        return self._is_over

    def run(self) -> None:
        """Run to the end, turn by turn."""
        try:
            self._function()
        except Exception as error:  # noqa: BLE001 - it is looked at when all is over
            self.error = error
        self._is_over = True
        self._has_stopped.release()

    def wait(self) -> None:
        """Stop until it is told to go on."""
        self._has_stopped.release()
        self._may_go_on.acquire()

    def go_on(self) -> None:
        """Let it make its call, and run to its next one or to its end."""
        self._may_go_on.release()
        self._await()

    def _await(self) -> None:
        assert self._has_stopped.acquire(timeout=DEADLINE_S), "it never came to its next call"


def every_order(play: Callable[[Callable[..., None]], None]) -> Iterator[list[int]]:
    """Play the same once for every order of its calls, and yield each order.

    Args:
        play: Prepares everything afresh and hands its programs to what it is given, which runs all
            of them to their ends.
    """
    choices: list[int] = []
    while True:
        widths: list[int] = []

        def run(*programs: Program, widths: list[int] = widths) -> None:
            while alive := [program for program in programs if not program.is_over]:
                if len(widths) == len(choices):
                    choices.append(0)
                choice = choices[len(widths)]
                widths.append(len(alive))
                alive[choice].go_on()

        play(run)
        yield choices
        while choices and choices[-1] == widths[len(choices) - 1] - 1:
            choices.pop()
        if not choices:
            return
        choices[-1] += 1
