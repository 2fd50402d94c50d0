"""Durations and moments as operators write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from omidpy.base.words.durations import MAX_DURATION_S, duration_ms, seconds_in
from omidpy.base.words.moments import moment
from omidpy.errors import UsageError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7", 7),
        ("1700000000000000050", 1_700_000_000_000_000_050),
        ("90m", timedelta(minutes=90)),
        ("2026-01-31T12:00:00+00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_timestamp_an_age_or_a_date(
    text: str, found: int | timedelta | datetime
) -> None:
    """Which of them it is the text alone says."""
    assert moment("--at", text) == found


@pytest.mark.parametrize("text", ["9" * 20, "9" * 5000, "9" * 400 + "s", "100001d", "yesterday"])
def test_a_moment_beyond_all_measure_is_refused_by_name(text: str) -> None:
    """Python reads no number of thousands of digits, and has no date in a million years."""
    with pytest.raises(UsageError, match=r"^--at='.*' is no moment") as caught:
        moment("--at", text)
    assert len(str(caught.value)) < 400


def test_no_duration_is_longer_than_systems_can_wait() -> None:
    """What waits would raise instead, and what is stored would come back as nothing."""
    assert duration_ms("100000d") == 1000 * MAX_DURATION_S
    assert duration_ms("100000.5d") is None
    with pytest.raises(UsageError, match=r"--lease='9+' is no duration; .* no more than 100000d"):
        seconds_in("9" * 400, name="--lease")
    with pytest.raises(UsageError, match="no more than 100000d"):
        seconds_in("9" * 400 + "s", name="--lease")
