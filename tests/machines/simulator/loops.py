"""An event loop of asyncio in virtual time: the real one, whose selector and clock are the world's.

Tasks, futures, locks and time limits are asyncio's own.  The loop runs in a program of its process
and hands the turn on where it would wait for its selector; threads wake it as they always do.

A loop ends in three ways: what runs in it is done; what still does is cancelled, as `asyncio.run`
does it; or it is abandoned, with its process or in the middle of it, and no task goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from tests.machines.simulator.threads import NEVER_S, SimThreads
from tests.machines.simulator.world import Crashed, Process, Program, World

MOST_ENDED: Final = 200
"""So many tasks are kept at most that have ended."""


class _Turns:
    """The selector: nothing is ever ready, but threads may wake the loop."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._is_woken = False

    def select(self, timeout: float | None) -> list[object]:
        """Hand the turn on until the loop has something to do."""
        self._program.check_alive()
        if not self._is_woken and (timeout is None or timeout > 0):
            self._program.wait(NEVER_S if timeout is None else timeout)
        self._is_woken = False
        return []

    def wake(self) -> None:
        """Let the loop look again."""
        self._is_woken = True
        self._program.wake()


class SimLoop(asyncio.BaseEventLoop):
    """The loop of the program that makes it."""

    def __init__(self, world: World, threads: SimThreads) -> None:
        """Belong to the program that runs; `threads` are those of `asyncio.to_thread`."""
        super().__init__()
        program = world.program
        self._process: Process = program.process
        self._selector = _Turns(program)
        self._default_executor = threads
        self.is_over = False
        """Whether no task goes on."""
        self._tasks: list[asyncio.Task[Any]] = []
        self.set_exception_handler(lambda *_: None)

    def time(self) -> float:
        """Return the elapsed seconds."""
        return self._process.clock.monotonic_s()

    def _process_events(self, event_list: object) -> None:
        """Have none."""

    def _write_to_self(self) -> None:
        self._selector.wake()

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        # The collector comes here at any moment: a task for it would shift what follows.
        if not self.is_over:
            closing = agen.aclose()
            with suppress(StopIteration, StopAsyncIteration, GeneratorExit):
                closing.send(None)
                raise AssertionError("an asynchronous iterator waits as it is closed")

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Begin a task, which is known until it has ended."""
        if self.is_over:
            coro.close()
            raise Crashed
        task = super().create_task(coro, **options)
        self._tasks.append(task)
        if len(self._tasks) > MOST_ENDED:
            self._tasks = [one for one in self._tasks if not one.done()]
        return task

    # -- from its beginning to its end -----------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine, then cancel what is left, as `asyncio.run` does."""
        try:
            with suppress(asyncio.CancelledError):
                self.run_until_complete(main)
            self._cancel_all()
            self.run_until_complete(self.shutdown_asyncgens())
        finally:
            self.abandon()

    def run_and_abandon(self, main: Coroutine[Any, Any, object], *, after_s: float) -> None:
        """Run a coroutine for a while, and then leave everything as it is."""
        try:
            self.create_task(main).add_done_callback(lambda _: self.stop())
            self.call_later(after_s, self.stop)
            self.run_forever()
        finally:
            self.abandon()

    def _cancel_all(self) -> None:
        # In the order in which they began, where asyncio has that of their addresses.
        left = [one for one in self._tasks if not one.done()]
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.wait(left))

    def abandon(self) -> None:
        """Let no task go on: each is unwound here, and can do nothing more."""
        self.is_over = True
        asyncio._set_running_loop(self)
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _unwind(task.get_coro())
        finally:
            asyncio._set_running_loop(None)
        self.close()


def _unwind(coroutine: Any) -> None:
    while True:
        try:
            coroutine.throw(Crashed())
        except BaseException:  # noqa: BLE001 - whatever it ends with, nobody waits for it
            return
