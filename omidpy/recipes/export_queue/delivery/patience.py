"""How a bucket goes on after a failure: how long it waits, and which entry is at fault.  Pure.

A batch that failed is tried again in halves, so that the entries before the one at fault leave.  An
entry that has failed `max_attempts` times alone is poison, unless the receiver takes nothing at all
(`verdicts.py`).  What says that it cannot be reached (`Retry`, an `OSError`) blames no entry,
however often it comes; what says that it refuses every request ends the exporter in the end.  Both
have smaller batches follow as well: a receiver that takes so many entries a minute, or for so long,
and then says so, would be given the same beginning of one large batch for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omidpy.base.timing.pauses import pause_after

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
MAX_ATTEMPTS: Final = 8
MOST_REFUSALS: Final = 16
"""In a row; with pauses that double these are some minutes."""


class Patience:
    """What is known of the failures of one bucket."""

    def __init__(
        self, max_attempts: int = MAX_ATTEMPTS, *, draw: Callable[[], float] | None = None
    ) -> None:
        """Know of none.

        Args:
            max_attempts: How often one entry alone may fail.
            draw: A number in [0, 1), which spreads pauses; drawn without a seed if None.
        """
        self._max_attempts = max_attempts
        self._draw = draw
        self._failures = 0
        self._refusals = 0
        self.max_entries: int | None = None
        """How many entries the next batch may have; None: as many as fit."""
        self.attempts = 0
        """How often the first entry has failed alone."""

    def failed(self, entry_count: int) -> bool:
        """Note that a batch failed; say whether its one entry is poison."""
        self._failures += 1
        if entry_count > 1:
            self.max_entries = entry_count // 2
            return False
        self.attempts += 1
        if self.attempts < self._max_attempts:
            return False
        self.attempts = self._failures = 0
        return True

    def unreachable(self, entry_count: int, *, suspect_count: int = 0) -> None:
        """Note a failure of a batch that is no entry's fault.

        Args:
            entry_count: How many entries were handed over.
            suspect_count: How many that have failed alone stood beside them, and were not.
        """
        self._failures += 1
        self._refusals = 0
        self._halve(entry_count, suspect_count)

    def refused(self, entry_count: int, *, suspect_count: int = 0) -> bool:
        """Note a failure that is that of the settings, as `unreachable`; say whether to end."""
        self._failures += 1
        self._refusals += 1
        self._halve(entry_count, suspect_count)
        return self._refusals >= MOST_REFUSALS

    def _halve(self, entry_count: int, suspect_count: int) -> None:
        if entry_count > 1:
            # Never fewer than the suspects and one: alone they would be set aside unasked.
            self.max_entries = suspect_count + entry_count // 2

    def ask_beside(self, suspect_count: int) -> None:
        """Let the next batch hold an entry beside those that have failed alone."""
        self.max_entries = suspect_count + 1

    def ends_behind(self, taken_count: int, suspect_count: int) -> None:
        """Let the next batch end with an entry that the receiver will never take.

        What stands before it leaves with it.  With all that came behind it, each poison of a large
        batch would bring what is before it once more.

        Args:
            taken_count: How many entries stood before it.
            suspect_count: How many that were not handed over stood beside them, and the entry.
        """
        # Alone, they would be set aside unasked.
        self.max_entries = suspect_count + max(taken_count, 1)

    def succeeded(self) -> None:
        """Note that a batch was delivered: the next one may be larger."""
        self.attempts = self._failures = self._refusals = 0
        if self.max_entries is not None:
            self.max_entries *= 2
            if self.max_entries > 10_000:
                self.max_entries = None

    def pause_s(self) -> float:
        """Return how long to wait, which doubles with each failure."""
        return pause_after(
            self._failures + 1, FIRST_PAUSE_S, LONGEST_PAUSE_S, at_least=0.5, draw=self._draw
        )
