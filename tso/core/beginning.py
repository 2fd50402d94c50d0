"""Which timestamp may a new instance issue first, and is the clock of this machine to be believed?

Pure: the stored ceiling and the clock arrive as arguments.  A clock that is absurd is refused,
since timestamps never go back: what is issued far ahead of time stays issued, and every transaction
after it would be as far ahead (docs/decisions/0005).
"""

from __future__ import annotations

from typing import Final

from omidpy.errors import ConfigError
from omidpy.model import FIRST_WORLD_TIMESTAMP, MAX_VERSION, TIMESTAMP_STEP, Timestamp
from tso.core.events import Now
from tso.core.settings import TIMESTAMPS_PER_MS, Settings

_MS_PER_DAY: Final = 24 * 3600 * 1000

MAX_CLOCK_LEAD_MS: Final = 30 * _MS_PER_DAY
"""A wall clock further above the stored ceiling is taken for a mistake, at the start."""


def step_from(timestamp: int) -> Timestamp:
    """Return the least multiple of the step that is not below a timestamp."""
    return Timestamp(-(-timestamp // TIMESTAMP_STEP) * TIMESTAMP_STEP)


def first_candidate(settings: Settings, now: Now, ceiling: int, *, accept_clock: bool) -> int:
    """Return the least timestamp that a new instance would issue now.

    Raises:
        ConfigError: the wall clock fits no timestamp, or is far above `ceiling`, the stored one; or
            there are none left above that.
    """
    end = MAX_VERSION - 2 * settings.lookahead
    if ceiling >= end:
        raise ConfigError(
            f"the timestamp ceiling of this store is {ceiling}, and no timestamp is left above it: "
            "some of its bytes have changed, or a clock was centuries ahead; restore the whole "
            "store from a backup"
        )
    if settings.timestamps == "incremental":
        return ceiling + TIMESTAMP_STEP
    clock_ts = now.wall_ms * TIMESTAMPS_PER_MS
    if not ceiling and clock_ts < FIRST_WORLD_TIMESTAMP:
        # What such timestamps say would be taken for numbers that merely count, for ever, and
        # HBase's own milliseconds for timestamps.
        raise ConfigError(
            f"the clock of this machine says {now.wall_ms} ms since 1970: it was not set since the "
            "machine was started, and this store is about to get its first timestamp; set the "
            "clock, or use --timestamps incremental"
        )
    if not 0 <= clock_ts < end:
        raise ConfigError(
            f"the clock of this machine says {now.wall_ms} ms since 1970, which no timestamp can "
            "express; set the clock, or use --timestamps incremental"
        )
    lead_ms = now.wall_ms - ceiling // TIMESTAMPS_PER_MS
    if ceiling and lead_ms > MAX_CLOCK_LEAD_MS and not accept_clock:
        raise ConfigError(
            f"the clock of this machine is {lead_ms // _MS_PER_DAY} days above the last timestamp "
            "of this store. If that is right (the store rested so long, or used incremental "
            "timestamps), start with --accept-clock, an embedded oracle with accept_clock=True; "
            "else set the clock, since timestamps never go back"
        )
    return max(ceiling + TIMESTAMP_STEP, clock_ts)


def check_initial(settings: Settings, now: Now, ceiling: int, *, accept_clock: bool) -> None:
    """Refuse a timestamp to go on at, named by the operator, that is far ahead of the clock.

    Raises:
        ConfigError: it is; `accept_clock` would take it.
    """
    now_ts = now.wall_ms * TIMESTAMPS_PER_MS
    lead_ms = (ceiling - now_ts) // TIMESTAMPS_PER_MS
    if settings.timestamps == "world" and lead_ms > MAX_CLOCK_LEAD_MS and not accept_clock:
        raise ConfigError(
            f"--initial-timestamp {ceiling} is {lead_ms // _MS_PER_DAY} days ahead of the clock, "
            f"which says {now_ts}; timestamps never go back. If it is right, add --accept-clock"
        )
