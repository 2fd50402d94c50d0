"""Who runs right now: a task of asyncio, or else a thread.

A context variable is no answer: threads and tasks are handed copies of their maker's, and go on
beside it.  Nor is the number of a thread, which another one gets once it has ended.

It imports nothing of asyncio, so that programs without tasks do not pay for it.
"""

from __future__ import annotations

import sys
import threading
from weakref import ref


class _Thread:
    """Stands for one thread, as long as that lives."""


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = _Thread()


_local = _Local()


class Runner:
    """A thread, or a task of asyncio in it, that keeps neither alive."""

    __slots__ = ("_task", "_thread")

    def __init__(self) -> None:
        """Remember who runs this."""
        task = _current_task()
        self._thread = ref(_local.thread)
        self._task = None if task is None else ref(task)

    @property
    def is_this_thread(self) -> bool:
        """Whether the caller is in the same thread."""
        return self._thread() is _local.thread

    @property
    def is_current(self) -> bool:
        """Whether the caller is the same thread, and the same task of it."""
        task = None if self._task is None else self._task()
        return (
            self.is_this_thread
            and task is _current_task()
            and (self._task is None) == (task is None)
        )


def _current_task() -> object | None:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:  # noqa: SLF001 - exported, raises not
        return None
    task: object | None = asyncio.current_task()
    return task
