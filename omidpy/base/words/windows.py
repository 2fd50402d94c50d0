"""Until when may a run work?  A duration, or a time of day, as `--until` and tables have them.

Pure.  Nothing rests on it but politeness, so that the date may tell it: a worker whose clock is
wrong by a minute stops a minute early or late.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from omidpy.base.words.durations import duration_ms
from omidpy.errors import UsageError

WINDOW_ADVICE: Final = (
    "write how long the run may work, as in 4h, or until what time of day, as in 06:00, or 06:00Z "
    "for UTC"
)

_TIME_OF_DAY: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(Z?)")


@dataclass(frozen=True, slots=True)
class Window:
    """When a run stops to begin anything: so long after its start, or at a time of day."""

    length_ms: int | None = None
    hour: int = 0
    minute: int = 0
    is_utc: bool = False

    def ends_ms(self, now_ms: int) -> int:
        """Return the wall time at which a run ends that starts at `now_ms`.

        A time of day is the next one; that of now is tomorrow's.
        """
        if self.length_ms is not None:
            return now_ms + self.length_ms
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        if not self.is_utc:
            # Without a zone, so that the day after is as long as the clocks of this place make it.
            now = now.astimezone().replace(tzinfo=None)
        end = now.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        if end <= now:
            end += timedelta(days=1)
        return round(end.timestamp() * 1000)


def window_of(text: str) -> Window | None:
    """Return the window in `4h`, `06:00` (of the reader's zone) or `06:00Z`; None if it is none."""
    match = _TIME_OF_DAY.fullmatch(text.strip())
    if match is not None:
        return Window(hour=int(match[1]), minute=int(match[2]), is_utc=bool(match[3]))
    length_ms = duration_ms(text)
    if not length_ms or math.isinf(length_ms):
        return None
    return Window(round(length_ms))


def parse_window(text: str, *, name: str) -> Window:
    """Return the window that an option asks for.

    Raises:
        UsageError: naming the option and the text.
    """
    if (found := window_of(text)) is None:
        raise UsageError(f"{name} is {text!r}; {WINDOW_ADVICE}")
    return found
