"""Is that process still there?  Asked on the machine where it ran; elsewhere that cannot be seen.

A process is named by its number, the moment at which it began, and the *place* where numbers mean
that: one boot of one machine, and one of its namespaces of processes, since each container counts
for itself.  Numbers are given anew, moments within a boot are not.

Only a clear no counts.  Where the kernel does not tell, a process is never said to have ended.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from omidpy.base.timing.clock import SystemClock

_PROC: Final = Path("/proc")
_STATE: Final = 0
_BEGUN: Final = 19
"""Which word behind the program's name in `/proc/PID/stat` that is."""

_DEAD: Final = frozenset("ZX")
"""A zombie runs no more, though its parent has not asked for it."""


class Process(msgspec.Struct, frozen=True):
    """One process among all that ever were."""

    pid: int
    place: str = ""
    """Empty where the kernel does not tell."""
    begun: int = 0
    """Ticks of the kernel's clock since the boot."""


def here() -> str:
    """Say, for people, which process this is."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def this_process() -> Process:
    """Return the process that asks."""
    return _described(os.getpid())


def has_ended(process: Process) -> bool:
    """Say whether a process runs no more, for certain."""
    here = this_process()
    if not process.place or process.place != here.place or process.pid <= 0:
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        # It is there, and another user's.
        return False
    words = _stat(str(process.pid))
    return words is not None and (words[_STATE] in _DEAD or int(words[_BEGUN]) != process.begun)


@lru_cache(1)
def _described(pid: int) -> Process:
    """Describe this process; `pid` makes a child of a fork ask anew."""
    words = _stat("self")
    try:
        namespace = str((_PROC / "self/ns/pid").readlink())
        is_mine = int((_PROC / "self").readlink().name) == pid
    except (OSError, ValueError):
        return Process(pid)
    if words is None or not is_mine:
        return Process(pid)
    return Process(pid, f"{SystemClock().boot} {namespace}", int(words[_BEGUN]))


def _stat(name: str) -> list[str] | None:
    """Return what the kernel tells of a process; None if it does not."""
    try:
        text = (_PROC / name / "stat").read_text("ascii", errors="replace")
    except OSError:
        return None
    # The program's name comes first, in parentheses, and may hold spaces and parentheses.
    words = text.rpartition(")")[2].split()
    return words if len(words) > _BEGUN and words[_BEGUN].isdigit() else None
