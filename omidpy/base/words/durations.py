"""How long is `15m`?  Durations as operators write them: a number and a unit, never a bare number.

Seconds to one reader are milliseconds to the next, so that only 0 goes without a unit, where its
user allows it.
"""

from __future__ import annotations

import math
import re
from typing import Final

from omidpy.base.words.arguments import check_number
from omidpy.errors import UsageError

EXAMPLES: Final = "500ms, 90s, 15m, 24h or 7d"

MAX_DURATION_S: Final = 100_000 * 86_400.0
"""A longer one is none: neither dates nor the waits of a system reach so far."""

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def duration_ms(text: str) -> float | None:
    """Return the milliseconds in a duration; None if the text is none, or beyond all measure."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    milliseconds = float(match[1]) * _UNITS_MS[match[2]]
    return milliseconds if milliseconds <= 1000 * MAX_DURATION_S else None


def seconds_in(text: str, *, name: str, may_be_zero: bool = False) -> float:
    """Return the seconds in a duration that a person was asked for.

    Args:
        text: What was answered.
        name: Of the option that asked.
        may_be_zero: A bare 0 is a duration.

    Raises:
        UsageError: naming the option and the text.
    """
    milliseconds = 0.0 if may_be_zero and text.strip() == "0" else duration_ms(text)
    if milliseconds is None:
        raise UsageError(
            f"{name}={text[:80]!r} is no duration; write a number and a unit, as in {EXAMPLES}, "
            "and no more than 100000d"
        )
    return milliseconds / 1000


def check_seconds(*, or_none: bool = False, **given: float | None) -> None:
    """Refuse what nobody can wait for, by the name of its argument: a clock would raise it, later.

    Args:
        or_none: None says that there is no such time.
        given: The times, by name.

    Raises:
        TypeError: it is no number.
        UsageError: it is not positive, not a number (NaN), or beyond `MAX_DURATION_S`.
    """
    for name, seconds in given.items():
        if seconds is None and or_none:
            continue
        if seconds is None or not 0 < check_number(name, seconds) <= MAX_DURATION_S:
            raise UsageError(
                f"{name}={seconds!r} must be positive seconds, {MAX_DURATION_S:.0f} at most"
                f"{', or None' if or_none else ''}"
            )


def check_waits(**given: float | None) -> None:
    """Refuse how long nobody can wait, by the name of its argument.

    0 and less are not at all, None is for ever; and so would be what is no number (NaN).

    Raises:
        TypeError: it is no number.
        UsageError: it is NaN.
    """
    for name, seconds in given.items():
        if seconds is not None and math.isnan(check_number(name, seconds)):
            raise UsageError(f"{name}={seconds!r} is no number of seconds")
