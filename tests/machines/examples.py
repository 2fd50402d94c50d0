"""How many examples a dear property takes by day; by night it takes what the profile says."""

from __future__ import annotations

from hypothesis import settings


def fewer_by_day(count: int) -> int:
    """Return how many examples to try: `count` of them by day, the profile's number by night."""
    is_night = settings.get_current_profile_name() == "nightly"
    return settings().max_examples if is_night else count
