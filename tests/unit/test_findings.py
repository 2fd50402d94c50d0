"""How serious is what the doctor finds?  Asked of the values alone."""

from __future__ import annotations

import pytest

from omidpy.cli.findings import ClockFinding, Health


@pytest.mark.parametrize(
    ("ahead_ms", "health"),
    [
        (None, Health.OK),
        (5_000, Health.OK),
        (5_001, Health.WARNING),
        (-15_000, Health.OK),
        (-15_001, Health.WARNING),
    ],
)
def test_an_oracle_may_begin_ahead_of_its_clock(ahead_ms: int | None, health: Health) -> None:
    """After a takeover from Omid it does so for ten seconds; a clock that is wrong stays wrong."""
    assert ClockFinding(ahead_ms).health is health
