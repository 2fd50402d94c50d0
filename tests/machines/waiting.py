"""Waiting for what another thread or process does, where nothing tells of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 0.01


def wait_for(condition: Callable[[], object], longest_s: float) -> None:
    """Look until something is so, for some seconds at most."""
    waiting = threading.Event()
    for _ in range(int(longest_s / LOOK_EVERY_S)):
        if condition():
            return
        waiting.wait(LOOK_EVERY_S)
    raise AssertionError("it never came to be")
