"""How long is `15m`?  Durations as operators write them: a number and a unit, never a bare number.

Seconds to one reader are milliseconds to the next, so that only 0 goes without a unit, where its
user allows it.
"""

from __future__ import annotations

import re
from typing import Final

EXAMPLES: Final = "500ms, 90s, 15m, 24h or 7d"

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def duration_ms(text: str) -> float | None:
    """Return the milliseconds in a duration; None if the text is none."""
    match = _DURATION.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _UNITS_MS[match[2]]
