"""Pauses grow to their longest, and are drawn between a share of the cap and the cap."""

from __future__ import annotations

import random
from itertools import repeat

import pytest

from omidpy.base.timing.pauses import Pauses, pause_after

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
