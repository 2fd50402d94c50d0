"""Pauses grow to their longest, and are drawn between a share of the cap and the cap."""

from __future__ import annotations

import logging
import random
from itertools import repeat

import pytest

from omidpy.base.timing.pauses import SAID_EVERY_S, Pauses, Seldom, pause_after

FIRST_S, LONGEST_S = 0.1, 1.0
CAPS_S = (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)


@pytest.mark.parametrize("at_least", [0.0, 0.5, 1.0])
def test_a_pause_lies_between_its_share_and_its_cap(at_least: float) -> None:
    """Both ends are reached as nearly as the draw comes to them."""
    for draw, share in ((0.0, at_least), (0.5, (1 + at_least) / 2), (1.0, 1.0)):
        pauses = Pauses(FIRST_S, LONGEST_S, at_least=at_least, draw=repeat(draw).__next__)
        assert [pauses.next_s() for _ in CAPS_S] == pytest.approx([cap * share for cap in CAPS_S])


def test_who_failed_for_days_waits_the_longest_and_no_longer() -> None:
    """The cap does not overflow, however often it would have doubled."""
    assert pause_after(10**9, FIRST_S, LONGEST_S, draw=lambda: 1.0) == LONGEST_S


def test_two_who_failed_together_do_not_come_together() -> None:
    """Nor do two whose process was forked from one that had drawn already."""
    ours, theirs = Pauses(FIRST_S, LONGEST_S), Pauses(FIRST_S, LONGEST_S)
    assert [ours.next_s() for _ in CAPS_S] != [theirs.next_s() for _ in CAPS_S]


def test_a_generator_with_a_seed_draws_the_same_again() -> None:
    """So that a test can know its pauses."""
    first, second = (Pauses(FIRST_S, LONGEST_S, draw=random.Random(7).random) for _ in range(2))
    assert [first.next_s() for _ in CAPS_S] == [second.next_s() for _ in CAPS_S]


# -- how often it is said --------------------------------------------------------------------------


class Saying:
    """Somebody who says what fails, at times that a test sets."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now_s = 0.0
        self._caplog = caplog
        self._seldom = Seldom(logging.getLogger("whose-failure"), lambda: self.now_s)

    def say(self, error: Exception, about: int | None = None) -> list[str]:
        """Say it; return what that came to."""
        self._caplog.clear()
        self._seldom.say("a look failed: %s", error, about=about)
        return [record.getMessage() for record in self._caplog.records]


def test_the_same_failure_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With how often it came; the texts of one failure differ in numbers."""
    saying = Saying(caplog)
    assert saying.say(RuntimeError("full: 1")) == ["a look failed: full: 1"]
    for number in range(99):
        saying.now_s = number * SAID_EVERY_S / 100
        assert saying.say(RuntimeError(f"full: {number}")) == []
    saying.now_s = SAID_EVERY_S
    said = saying.say(RuntimeError("full: 1"))
    assert said == ["a look failed: full: 1 (and 99 times more since that was said)"]
    saying.now_s = 2 * SAID_EVERY_S
    assert saying.say(RuntimeError("full: 1")) == ["a look failed: full: 1"]


def test_another_failure_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Of another kind, or of something else."""
    saying = Saying(caplog)
    assert saying.say(OSError("full"))
    assert saying.say(ValueError("full"))
    assert saying.say(OSError("full"), about=1)
    assert saying.say(OSError("full"), about=2)
    assert not saying.say(OSError("full"), about=1)


def test_failures_of_very_many_things_take_little_memory(caplog: pytest.LogCaptureFixture) -> None:
    """They are forgotten when they are too many, and each is said once more."""
    saying = Saying(caplog)
    for number in range(3000):
        assert saying.say(OSError("full"), about=number)
    assert len(saying._seldom._said) <= 1000
