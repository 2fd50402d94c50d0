"""How a command ends that is told to, and is no daemon: in the same order as behind ^C.

A system that stops a service sends SIGTERM, as `timeout` does, and a terminal that goes SIGHUP.  By
default a process ends at once: a backup leaves a file that stands in the way of the next one, and a
verification its oracle, which then has the store for ever.

The second signal ends it at once.  And it ends by the signal in any case, as who sent it expects.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGTERM, signal.SIGHUP)

EXIT_INTERRUPTED: Final = 130
"""As shells have it of what ^C has ended."""


@contextmanager
def told_as_interrupts() -> Iterator[None]:
    """Let the first of these signals be an interrupt for as long as the block lasts.

    One that was ignored before, as behind `nohup`, stays so.
    """
    came: list[int] = []
    ours: list[signal.Signals] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(number)
        for one in ours:
            signal.signal(one, signal.SIG_DFL)
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        ours += [one for one in ENDING if signal.getsignal(one) is signal.SIG_DFL]
    try:
        for one in ours:
            signal.signal(one, handle)
        yield
    finally:
        for one in ours:
            signal.signal(one, signal.SIG_DFL)
        if came:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            os.kill(os.getpid(), came[0])
