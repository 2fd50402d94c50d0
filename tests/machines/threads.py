"""A system that lets no more threads start, as where a user has too many processes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest


def refuse_threads(monkeypatch: pytest.MonkeyPatch, names: str = "") -> Callable[[], None]:
    """Let no thread start whose name begins so; return what lets them start again."""
    start, is_refused = threading.Thread.start, [True]

    def refused(thread: threading.Thread) -> None:
        if is_refused[0] and thread.name.startswith(names):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    return lambda: is_refused.__setitem__(0, False)
