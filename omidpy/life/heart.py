"""Shows life from a thread of its own, however long the others take, and says when it cannot.

A thread goes on while its process is at work on something else, and stands still when the process
is stopped, which is what the others want to know.  No failure ends it: a beat that was not seen is
followed by the next one, and one whose heart has ended would be taken for dead while it is at work.

Lacks the thread, and what it means to be over: the member says that.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import ERROR, Logger
from typing import Final

from omidpy.base.timing.pauses import Seldom
from omidpy.errors import OmidError

BEATS_PER_LEASE: Final = 4


def beat_until(
    is_over: Callable[[float], bool],
    beat: Callable[[], object],
    *,
    every_s: float,
    who: str,
    log: Logger,
) -> None:
    """Beat again and again until that is over.

    Args:
        is_over: Waits for so many seconds, less if it is over, and says whether it is.
        beat: Shows life, as `Member.beat` does.
        every_s: Seconds between two beats.
        who: Whose life it is, for messages.
        log: Where those go.
    """
    seldom = Seldom(log)
    while not is_over(every_s):
        try:
            beat()
        except OmidError as error:
            seldom.say("cannot show that %s lives: %s", who, error)
        except Exception as error:  # noqa: BLE001 - as the module says
            seldom.say("the heart of %s stumbles: %r", who, error, level=ERROR, exc_info=error)
