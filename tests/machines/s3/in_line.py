"""A pool whose one thread is the caller's: what is submitted is done at once.

A store in memory answers in microseconds, and most of what a job costs there is to hand its
requests to another thread and to wait for it.  A pool of one thread does them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest


class InLine(Executor):
    """Does one thing after the other, until something ends it that is no error."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        """Be told what a pool of threads is told."""
        assert max_workers == 1, f"{thread_name_prefix} may do several things at once"
        self._has_ended = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it, unless the driver has died meanwhile: then nobody comes to it."""
        done: Future[Any] = Future()
        if self._has_ended:
            done.cancel()
            return done
        done.set_running_or_notify_cancel()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - who asks for the result is told, as by a pool
            self._has_ended = not isinstance(error, Exception)
            done.set_exception(error)
        return done


def work_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all stores and jobs have such pools."""
    for module in ("objects.store", "publishing.completing"):
        monkeypatch.setattr(f"omidpy.committers.{module}.ThreadPoolExecutor", InLine)
