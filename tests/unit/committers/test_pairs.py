"""All pairs of two that act on one destination, one at every request of the other.

By day each pair at one request in six, and by night at every one, also where the answer of that
request is lost and it is sent a second time, behind the other.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from omidpy.committers.heads import listing
from tests.machines.by_day import some
from tests.machines.s3.pairs import (
    APPEND,
    FAIL,
    JOBS,
    OPERATORS,
    PARTITIONS,
    REPLACE,
    RESUME,
    ROLL_BACK,
    Kind,
    Pair,
    end_while_it_lives,
    everywhere,
)

pytestmark = pytest.mark.usefixtures("in_line")

NIGHT: Final = pytest.mark.nightly
KINDS: Final = (*JOBS, *OPERATORS)
DEAD: Final = (APPEND, REPLACE, PARTITIONS, FAIL)
DEATHS: Final = (0, 1, 3, 99)
"""Behind the plan, with one file complete, and with three, or all, and before the decision."""


def deaths(first: Kind, second: Kind) -> list[tuple[Kind | None, int]]:
    """Return whose death there is, and when: an operator has something to end."""
    if first in OPERATORS or second in OPERATORS:
        return list(itertools.product(DEAD, DEATHS))
    return [(None, 0), (REPLACE, 2), (APPEND, 99)]


@pytest.mark.parametrize("is_twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("second", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("first", KINDS, ids=lambda kind: kind.name)
def test_two_are_as_one_after_the_other(first: Kind, second: Kind, *, is_twice: bool) -> None:
    """One pair of deaths each, at every sixth request, so that all pairs are seen every day."""
    turn = KINDS.index(first) + KINDS.index(second) + is_twice
    chosen = deaths(first, second)
    dead, dies_at = chosen[turn % len(chosen)]
    has_old = turn % 2 == 0 and dead is not FAIL
    count = everywhere(
        lambda at: Pair(first, second, has_old, dead, dies_at, at, is_twice),
        every=6,
        start=turn % 6,
    )
    assert count > 0


def _at(pair: Pair, at: int) -> Pair:
    return replace(pair, at=at)


@NIGHT
@pytest.mark.parametrize(
    ("is_twice", "inline_bytes"),
    [(False, listing.INLINE_BYTES), (True, listing.INLINE_BYTES), (False, 0)],
    ids=["once", "twice", "lists"],
)
@pytest.mark.parametrize("second", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("first", KINDS, ids=lambda kind: kind.name)
def test_two_are_as_one_after_the_other_everywhere(
    first: Kind,
    second: Kind,
    monkeypatch: pytest.MonkeyPatch,
    inline_bytes: int,
    *,
    is_twice: bool,
) -> None:
    """At every request, with and without files of before, whoever has died, however long."""
    monkeypatch.setattr(listing, "INLINE_BYTES", inline_bytes)
    count = 0
    for (dead, dies_at), has_old in itertools.product(deaths(first, second), (True, False)):
        if dead is not FAIL or not has_old:
            pair = Pair(first, second, has_old, dead, dies_at, 0, is_twice)
            count += everywhere(partial(_at, pair))
    assert count > 10


def test_operators_who_disagree_are_told_apart() -> None:
    """Of two that end one job, in opposite directions, one is first, at every request."""
    for first, second in ((RESUME, ROLL_BACK), (ROLL_BACK, RESUME)):
        assert everywhere(lambda at: Pair(first, second, True, REPLACE, 2, at)) > 4  # noqa: B023


@pytest.mark.parametrize(
    ("kind", "operator", "is_twice"), some((APPEND, REPLACE, PARTITIONS), OPERATORS, (False, True))
)
def test_an_operator_who_ends_a_job_that_lives_ends_it_whole(
    kind: Kind, operator: Kind, *, is_twice: bool
) -> None:
    """It is finished by both, or taken back: the driver undoes what it wrote since.

    Its files were left, and it said that it was half committed, naming a plan that was gone.
    """
    ends = set()
    for at in itertools.count():
        ended = end_while_it_lives(kind, operator, at, is_twice=is_twice)
        if ended is None:
            break
        ends.add(ended)
    assert ends == ({True} if operator is RESUME else {True, False})
