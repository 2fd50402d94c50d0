"""What a caller hears when the oracle refuses a commit."""

from __future__ import annotations

from omidpy.commit.refusals import refusal
from omidpy.model import Timestamp
from omidpy.oracle.base import AbortReason


def test_a_commit_that_is_too_large_is_not_tried_again() -> None:
    """It would be as large the next time; the message says what helps."""
    error = refusal(AbortReason.TOO_LARGE, Timestamp(50), tables=["t"], conflicts=())
    assert not error.retryable
    assert "split the work" in str(error)
    assert "--conflict-map-size" in str(error)
