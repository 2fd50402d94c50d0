"""Which timestamp is "yesterday at nine"?  A moment in, the timestamp to read at out; no I/O.

World timestamps are nanoseconds since 1970, so a date is a timestamp.  Incremental ones are
counted, and only the oracle's recorded samples say which had been issued by when, to the minute.

A snapshot in the past reads at an earlier timestamp than the fresh one it draws; a little ahead of
it is taken for clocks that differ, more is an error.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from omidpy.base.timing.ages import Sample
from omidpy.errors import SnapshotTooOld, UsageError
from omidpy.model import FIRST_WORLD_TIMESTAMP, Timestamp

FUTURE_TOLERANCE_NS: Final = 5_000_000_000
"""How far ahead of the fresh timestamp a wanted moment may be."""

FUTURE_TOLERANCE_MS: Final = FUTURE_TOLERANCE_NS // 1_000_000
"""The same, ahead of the date."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)


def read_timestamp(
    at: int | datetime | timedelta,
    *,
    fresh_ts: Timestamp,
    first_ts: Timestamp,
    samples: list[Sample],
    now_ms: int,
) -> Timestamp:
    """Return the timestamp to read at.

    Args:
        at: A timestamp, an aware datetime, or how long ago.
        fresh_ts: A timestamp drawn just now.
        first_ts: The first one the oracle ever issued, which tells world time from counting.
        samples: The oracle's time samples, oldest first; asked for only where timestamps are
            counted.
        now_ms: The date here: where timestamps are counted nothing else says what lies ahead.

    Raises:
        UsageError: a naive datetime, a moment in the future, or a negative age.
        SnapshotTooOld: timestamps are counted, and no sample is as old as that.
    """
    is_world = first_ts >= FIRST_WORLD_TIMESTAMP
    match at:
        case bool():
            raise TypeError(f"at={at!r} must be a start_ts, a datetime or a timedelta")
        case int():
            wanted = at
        case timedelta():
            if at < timedelta(0):
                raise UsageError(f"at={at!r} lies in the future; a timedelta says how long ago")
            wanted = (
                fresh_ts - at // _MICROSECOND * 1000
                if is_world
                else _issued_by(
                    samples, elapsed_ms=_newest(samples).elapsed_ms - at // _MILLISECOND
                )
            )
        case datetime():
            if at.utcoffset() is None:
                raise UsageError(
                    f"at={at!r} has no time zone; write at.replace(tzinfo=UTC), or at.astimezone()"
                )
            since_epoch = at - _EPOCH
            if is_world:
                wanted = since_epoch // _MICROSECOND * 1000
            else:
                wall_ms = since_epoch // _MILLISECOND
                newest_ms = max((one.wall_ms for one in samples), default=0)
                if wall_ms > max(now_ms, newest_ms) + FUTURE_TOLERANCE_MS:
                    raise UsageError(f"at={at!r} lies in the future of this machine and the oracle")
                wanted = _issued_by(samples, wall_ms=wall_ms)
        case _:
            raise TypeError(f"at={at!r} must be a start_ts, a datetime or a timedelta")
    tolerance = FUTURE_TOLERANCE_NS if is_world else 0
    if wanted > fresh_ts + tolerance:
        raise UsageError(
            f"at={at!r} lies in the future of the oracle, whose newest timestamp is {fresh_ts}"
        )
    if wanted < 0:
        raise UsageError(f"at={at!r} lies before every timestamp")
    return Timestamp(min(wanted, fresh_ts))


def _newest(samples: list[Sample]) -> Sample:
    if not samples:
        raise SnapshotTooOld(
            "the oracle has recorded no time sample yet, so that no age can be turned into one of "
            "its counted timestamps; give a start_ts",
            retryable=False,
        )
    return samples[-1]


def _issued_by(
    samples: list[Sample], *, wall_ms: int | None = None, elapsed_ms: int | None = None
) -> int:
    """Return the snapshot that sees all that was committed by the newest sample in time."""
    fitting = [
        sample
        for sample in samples
        if (wall_ms is None or sample.wall_ms <= wall_ms)
        and (elapsed_ms is None or sample.elapsed_ms <= elapsed_ms)
    ]
    if not fitting:
        raise SnapshotTooOld(
            "the oracle's recorded time samples do not reach back that far; give a start_ts",
            retryable=False,
        )
    return fitting[-1].last_issued_ts + 1
