"""Reads what a person writes for a moment: how long ago, a date, or a timestamp."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from omidpy.base.words.durations import EXAMPLES, duration_ms
from omidpy.errors import UsageError

_TOO_MANY_DIGITS: Final = 20
"""No timestamp has so many."""


def moment(option: str, text: str) -> int | datetime | timedelta:
    """Read a moment: a timestamp, a date with its time zone, or how long ago.

    Raises:
        UsageError: it is none.
    """
    if text.isdecimal() and len(text) < _TOO_MANY_DIGITS:
        return int(text)
    milliseconds = duration_ms(text)
    if milliseconds is not None:
        return timedelta(milliseconds=milliseconds)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option}={text[:80]!r} is no moment; write how long ago ({EXAMPLES}), a date with "
            "its time zone as in 2026-01-31T12:00:00+00:00, or a timestamp"
        ) from None
