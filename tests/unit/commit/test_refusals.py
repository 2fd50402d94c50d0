"""What a caller hears when the oracle refuses a commit."""

from __future__ import annotations

import random

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.commit.refusals import refusal
from omidpy.model import Timestamp
from omidpy.oracle.base import AbortReason
from omidpy.tx.retry import LONGEST_PAUSE_S, Backoff


def test_a_commit_that_is_too_large_is_not_tried_again() -> None:
    """It would be as large the next time; the message says what helps."""
    error = refusal(AbortReason.TOO_LARGE, Timestamp(50), tables=["t"], conflicts=())
    assert not error.retryable
    assert "split the work" in str(error)
    assert "--conflict-map-size" in str(error)


def test_whoever_writes_too_much_tries_again_when_the_oracle_said() -> None:
    """Sooner it would be refused again, and the budget of its tries be spent."""
    error = refusal(AbortReason.RATE, Timestamp(50), tables=["t"], conflicts=(), wait_s=12.3)
    assert error.retryable
    assert str(error).endswith("run it again in 12.3 s")
    assert "--cells-per-s" in str(error)
    backoff = Backoff(ManualClock(), 60.0, rng=random.Random(1))
    assert 12.3 <= backoff.pause_s(error) <= 12.3 + LONGEST_PAUSE_S
    short = Backoff(ManualClock(), 5.0, rng=random.Random(1))
    assert short.pause_s(error) == pytest.approx(5.0)
