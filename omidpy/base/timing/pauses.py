"""How long to wait between two tries: up to a cap that doubles, drawn so that who waits is spread.

Who was refused beside others would meet the same others again after equal pauses (full jitter: from
0 to the cap).  Where a pause must not come out as none, a share of the cap is always waited.

Source: Brooker, "Exponential Backoff And Jitter".

And how often does one say that it fails?  Once a minute, or a log is full of it in the morning.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from logging import WARNING, Logger
from math import inf
from typing import Final

from omidpy.base.timing.clock import SystemClock

dice: random.Random = random.SystemRandom()
"""One for all, without a seed that forked processes would share.

A generator for each transaction would cost it 15 µs of seeding, and few draw from it.  What plays a
run again puts a seeded one here.
"""

_MOST_DOUBLINGS: Final = 30

SAID_EVERY_S: Final = 60.0
"""How often the same failure is said."""

_MOST_SAID: Final = 1000
"""Failures that are remembered; beyond that each is said once more."""


def pause_after(
    failures: int,
    first_s: float,
    longest_s: float,
    *,
    at_least: float = 0.0,
    draw: Callable[[], float] | None = None,
) -> float:
    """Return the seconds to wait after so many failures in a row, from 1.

    Args:
        failures: How many.
        first_s: The cap after the first.
        longest_s: What the cap stops to grow at.
        at_least: The share of the cap that is always waited, from 0 to 1.
        draw: A number in [0, 1); one of `dice` if None.
    """
    cap_s = min(longest_s, first_s * (1 << min(failures - 1, _MOST_DOUBLINGS)))
    return cap_s * (at_least + (1 - at_least) * (draw or dice.random)())


class Pauses:
    """The pauses of one who tries again and again."""

    def __init__(
        self,
        first_s: float,
        longest_s: float,
        *,
        at_least: float = 0.0,
        draw: Callable[[], float] | None = None,
    ) -> None:
        """Begin with no failure; the arguments are those of `pause_after`."""
        self._first_s = first_s
        self._longest_s = longest_s
        self._at_least = at_least
        self._draw = draw
        self._failures = 0

    def next_s(self) -> float:
        """Note one more failure; return the seconds to wait after it."""
        self._failures += 1
        return pause_after(
            self._failures,
            self._first_s,
            self._longest_s,
            at_least=self._at_least,
            draw=self._draw,
        )


class Seldom:
    """Says the same failure once a minute, with how often it came in between.

    Safe to share among threads: where two come at once, both may say it.
    """

    def __init__(self, log: Logger, now_s: Callable[[], float] = SystemClock.monotonic_s) -> None:
        """Say it to a logger."""
        self._log = log
        self._now_s = now_s
        self._said: dict[Hashable, tuple[float, int]] = {}
        """When each was last said, and how often it came since."""

    def say(
        self,
        text: str,
        *args: object,
        about: Hashable = None,
        level: int = WARNING,
        exc_info: BaseException | None = None,
    ) -> None:
        """Say what has failed, unless it was said within a minute.

        Args:
            text: What to say, with places for `args`, as loggers have it.
            *args: Of which the last one is the error: one of another type is another failure.
            about: What tells apart what is to be said of each.
            level: As what to log it.
            exc_info: An error to be shown with all that is known.
        """
        what, now_s = (text, about, type(args[-1])), self._now_s()
        said_s, count = self._said.get(what, (-inf, 0))
        if now_s - said_s < SAID_EVERY_S:
            self._said[what] = (said_s, count + 1)
            return
        if len(self._said) >= _MOST_SAID:
            self._said.clear()
        self._said[what] = (now_s, 0)
        if count:
            text, args = f"{text} (and %d times more since that was said)", (*args, count)
        self._log.log(level, text, *args, exc_info=exc_info)
