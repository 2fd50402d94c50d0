"""How long to wait between two tries: up to a cap that doubles, drawn so that who waits is spread.

Who was refused beside others would meet the same others again after equal pauses (full jitter: from
0 to the cap).  Where a pause must not come out as none, a share of the cap is always waited.

Source: Brooker, "Exponential Backoff And Jitter".
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

dice: random.Random = random.SystemRandom()
"""One for all, without a seed that forked processes would share.

A generator for each transaction would cost it 15 µs of seeding, and few draw from it.  What plays a
run again puts a seeded one here.
"""

_MOST_DOUBLINGS: Final = 30


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
