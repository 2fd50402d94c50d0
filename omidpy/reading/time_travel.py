"""Which timestamp is "yesterday at nine"?  A moment in, the timestamp to read at out; no I/O.

World timestamps are nanoseconds since 1970, so a date is a timestamp.  Incremental ones are
counted, and only the oracle's recorded samples say which had been issued by when, to the minute.
So are those of world time while they are ahead of the oracle's date, as where that was set back, or
was ahead when the oracle was started: timestamps never go back, and go on by the least step.

A snapshot in the past reads at an earlier timestamp than the fresh one it draws; a little ahead of
it is taken for clocks that differ, more is an error.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Final

from omidpy.base.timing.ages import Sample
from omidpy.errors import SnapshotTooOld, UsageError
from omidpy.model import FIRST_WORLD_TIMESTAMP, Timestamp

FUTURE_TOLERANCE_NS: Final = 5_000_000_000
"""How far ahead of the fresh timestamp a wanted moment may be."""

FUTURE_TOLERANCE_MS: Final = FUTURE_TOLERANCE_NS // 1_000_000
"""The same, ahead of the date."""

_NS_PER_MS: Final = 1_000_000
_LAST_MS: Final = 120_000
"""For so long the newest sample may be that of a date: twice the time between two."""
_LEAST_DATE: Final = 10**7
"""A number from here on may be meant as a date, as 20260131, or seconds since 1970."""
_LEAST_UNIT: Final = 100
"""Microseconds are a thousandth of a timestamp."""
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
            counted, or may be (`may_be_counted`).
        now_ms: The date here: where timestamps are counted nothing else says what lies ahead.

    Raises:
        UsageError: a naive datetime, a moment in the future, or a negative age; or a number that is
            a date, or seconds, milliseconds or microseconds since 1970, and no timestamp.
        SnapshotTooOld: timestamps are counted, and no sample is as old as that.
    """
    is_world = first_ts >= FIRST_WORLD_TIMESTAMP
    is_ahead = is_world and _is_ahead(samples)
    match at:
        case bool():
            raise TypeError(f"at={at!r} must be a start_ts, a datetime or a timedelta")
        case int():
            if is_world and _LEAST_DATE <= at < first_ts // _LEAST_UNIT:
                raise UsageError(
                    f"at={at} lies long before the first timestamp {first_ts}; timestamps of this "
                    "store are nanoseconds since 1970: write a date as one with its time zone"
                )
            wanted = at
        case timedelta():
            if at < timedelta(0):
                raise UsageError(f"at={at!r} lies in the future; a timedelta says how long ago")
            wanted = fresh_ts - at // _MICROSECOND * 1000
            if is_ahead or not is_world:
                elapsed_ms = _newest(samples).elapsed_ms - at // _MILLISECOND
                counted = _issued_by(samples, elapsed_ms=elapsed_ms, otherwise=is_world)
                wanted = max(wanted, counted) if is_world else counted
        case datetime():
            if at.utcoffset() is None:
                raise UsageError(
                    f"at={at!r} has no time zone; write at.replace(tzinfo=UTC), or at.astimezone()"
                )
            since_epoch = at - _EPOCH
            wanted = since_epoch // _MICROSECOND * 1000
            if is_ahead or not is_world:
                wall_ms = since_epoch // _MILLISECOND
                newest_ms = samples[-1].wall_ms if samples else 0
                if wall_ms > max(now_ms, newest_ms) + FUTURE_TOLERANCE_MS:
                    raise UsageError(f"at={at!r} lies in the future of this machine and the oracle")
                counted = _issued_by_date(samples, wall_ms, otherwise=is_world)
                wanted = max(wanted, counted) if is_world else counted
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


def may_be_counted(first_ts: int, fresh_ts: int, *, now_ms: int) -> bool:
    """Say whether samples are needed to tell the age of a timestamp.

    Args:
        first_ts: The first one that the oracle ever issued.
        fresh_ts: One that was drawn just now.
        now_ms: The date here.
    """
    return first_ts < FIRST_WORLD_TIMESTAMP or fresh_ts > now_ms * _NS_PER_MS + FUTURE_TOLERANCE_NS


def _is_ahead(samples: list[Sample]) -> bool:
    """Say whether timestamps of world time were ahead of the oracle's own date, lately."""
    if not samples:
        return False
    newest = samples[-1]
    return newest.last_issued_ts > newest.wall_ms * _NS_PER_MS + FUTURE_TOLERANCE_NS


def _issued_by(samples: list[Sample], *, elapsed_ms: int, otherwise: bool) -> int:
    """Return the snapshot that sees all that was committed by the newest sample in time."""
    fitting = [one for one in samples if one.elapsed_ms <= elapsed_ms]
    return _behind(fitting[-1] if fitting else None, otherwise=otherwise)


def _issued_by_date(samples: list[Sample], wall_ms: int, *, otherwise: bool) -> int:
    """Return the same of a date.

    One that came several times, since the date was set back, is the last of them.  But behind a
    sample from which the date was set forward, there was no such date: else what was wrong for a
    minute would be the newest of all earlier ones.
    """
    found = ran = None
    for one, after in zip_longest(samples, samples[1:]):
        if one.wall_ms <= wall_ms:
            found = one
            lasted_ms = _LAST_MS if after is None else after.elapsed_ms - one.elapsed_ms
            if wall_ms - one.wall_ms <= lasted_ms + FUTURE_TOLERANCE_MS:
                ran = one
    return _behind(ran or found, otherwise=otherwise)


def _behind(sample: Sample | None, *, otherwise: bool) -> int:
    if sample is None and otherwise:
        return 0  # a date is a timestamp, as far as is known
    if sample is None:
        raise SnapshotTooOld(
            "the oracle's recorded time samples do not reach back that far; give a start_ts",
            retryable=False,
        )
    return sample.last_issued_ts + 1
