"""Should one who waits look for what is about to come, in place of sleeping?

To fall asleep and to be woken takes longer than an oracle's decision, so that a lone client and its
oracle would spend most of a transaction on it.  A thread that waits may therefore look again and
again, for as long as a short answer takes, before it sleeps.  It should do so only

* while what it waits for comes soon: many times in a row it did, and the first that does not ends
  it;
* while no other process wants the processor: who is kept from looking for long was made to give
  way, and sleeps for a while, since one that never sleeps waits longest for its next turn;
* where there are several processors: on one, nothing could come meanwhile.

The last is the caller's to see, as are waiting and the clock: here is only the judgement.
"""

from __future__ import annotations

from typing import Final

SOON_S: Final = 0.000_2
"""What comes within this time, sleep included, comes soon."""

LOOKS_S: Final = 0.000_15
"""For so long it is looked for."""

SOON_COUNT: Final = 64
"""So often in a row it came soon before it is looked for.

With both, looking in vain takes a fortieth of the time at most."""

MADE_WAY_S: Final = 0.001
"""Who could not look for so long was made to give way."""

SLEEPS_S: Final = 1.0
"""So long thereafter it is slept again."""


class Wakefulness:
    """What is known of one's own waiting.  Times are of one clock, in seconds."""

    def __init__(self) -> None:
        """Know nothing yet, and sleep."""
        self._soon_count = 0
        self._sleeps_until_s = 0.0
        self._began_s = 0.0
        self._looked_s = 0.0

    def came(self, after_s: float) -> None:
        """Note how long was waited, asleep or awake."""
        self._soon_count = self._soon_count + 1 if after_s < SOON_S else 0

    def forget(self) -> None:
        """Begin to count anew: it was looked in vain, or something else is waited for."""
        self._soon_count = 0

    def begin(self, now_s: float) -> bool:
        """Say whether to look, for a wait that begins now."""
        if self._soon_count < SOON_COUNT or now_s < self._sleeps_until_s:
            return False
        self._began_s = self._looked_s = now_s
        return True

    def goes_on(self, now_s: float) -> bool:
        """Note that it was looked, and say whether to look once more."""
        if now_s - self._looked_s > MADE_WAY_S:
            self._sleeps_until_s = now_s + SLEEPS_S
        self._looked_s = now_s
        return now_s - self._began_s <= LOOKS_S
