"""Drivers that are stopped before a request while their job is ended, and others act behind it."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from omidpy.committers.heads import listing
from tests.machines.by_day import some
from tests.machines.s3.pairs import (
    APPEND,
    DYNAMIC,
    FAIL,
    JOBS,
    OPERATORS,
    PARTITIONS,
    REPLACE,
    RESUME,
    ROLL_BACK,
    Kind,
)
from tests.machines.s3.sleepers import Sleep, everywhere

pytestmark = pytest.mark.usefixtures("in_line")

NIGHT: Final = pytest.mark.nightly
OTHERS: Final = (
    (PARTITIONS,),
    (DYNAMIC,),
    (REPLACE,),
    (PARTITIONS, APPEND),
    (APPEND, REPLACE),
    (REPLACE, PARTITIONS),
    (DYNAMIC, PARTITIONS, APPEND),
)


@pytest.mark.parametrize("is_twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("kind", JOBS, ids=lambda kind: kind.name)
def test_a_driver_that_wakes_behind_others_leaves_what_is_published(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, *, is_twice: bool
) -> None:
    """Where a partition alone was replaced, a small file of it came back, and nobody removed it.

    Where its plan's answer was lost, the plan was written again behind the end of its job, and
    stayed.
    """
    for others in OTHERS[(JOBS.index(kind) + is_twice) % 3 :: 3]:
        count = everywhere(lambda at: Sleep(kind, at, RESUME, others, is_twice), monkeypatch)  # noqa: B023
        assert count > 7


@NIGHT
@pytest.mark.parametrize("inline_bytes", [listing.INLINE_BYTES, 0], ids=["in the head", "lists"])
@pytest.mark.parametrize("is_twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("ended_by", [None, RESUME, ROLL_BACK], ids=str)
@pytest.mark.parametrize("kind", JOBS, ids=lambda kind: kind.name)
def test_a_driver_that_wakes_behind_others_leaves_what_is_published_everywhere(
    kind: Kind,
    ended_by: Kind | None,
    monkeypatch: pytest.MonkeyPatch,
    inline_bytes: int,
    *,
    is_twice: bool,
) -> None:
    """Whoever has ended its job, and wherever files are listed."""
    monkeypatch.setattr(listing, "INLINE_BYTES", inline_bytes)
    for others in OTHERS:
        count = everywhere(lambda at: Sleep(kind, at, ended_by, others, is_twice), monkeypatch)  # noqa: B023
        assert count > 7


@pytest.mark.parametrize(
    "ended_by", [RESUME, pytest.param(None, marks=NIGHT), pytest.param(ROLL_BACK, marks=NIGHT)]
)
@pytest.mark.parametrize(
    ("kind", "others", "is_twice"),
    [
        *some((APPEND, PARTITIONS), ((PARTITIONS,), (DYNAMIC, PARTITIONS, APPEND)), (False, True)),
        *(
            pytest.param(*case, marks=NIGHT)
            for case in itertools.product(
                (REPLACE, DYNAMIC, FAIL),
                ((PARTITIONS,), (DYNAMIC, PARTITIONS, APPEND)),
                (False, True),
            )
        ),
    ],
)
def test_a_magic_driver_that_wakes_behind_others_leaves_what_is_published(
    kind: Kind,
    others: tuple[Kind, ...],
    ended_by: Kind | None,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_twice: bool,
) -> None:
    """It has files about files besides, which nobody is left with."""
    count = everywhere(
        lambda at: Sleep(kind, at, ended_by, others, is_twice, is_magic=True), monkeypatch
    )
    assert count > 7


@pytest.mark.parametrize(
    ("dead", "operator", "others", "is_twice"),
    some((APPEND, PARTITIONS), OPERATORS, ((PARTITIONS,), (REPLACE, PARTITIONS)), (False, True)),
)
def test_an_operator_that_wakes_behind_others_leaves_what_is_published(
    dead: Kind,
    operator: Kind,
    others: tuple[Kind, ...],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_twice: bool,
) -> None:
    """Who ends a dead driver's job may be stopped as well, and another operator be quicker."""
    count = everywhere(
        lambda at: Sleep(operator, at, operator, others, is_twice, dead), monkeypatch
    )
    assert count > 4


@pytest.mark.parametrize(
    ("kind", "others", "is_twice"),
    some(
        (REPLACE, PARTITIONS, DYNAMIC),
        ((REPLACE,), (PARTITIONS,), (DYNAMIC, PARTITIONS), (REPLACE, DYNAMIC)),
        (False, True),
    ),
)
def test_a_driver_that_wakes_never_writes_over_a_newer_file_of_its_name(
    kind: Kind, others: tuple[Kind, ...], monkeypatch: pytest.MonkeyPatch, *, is_twice: bool
) -> None:
    """Without the id of the job in names, its small file took the place of a later job's (C14)."""
    count = everywhere(
        lambda at: Sleep(kind, at, RESUME, others, is_twice, is_shared=True), monkeypatch
    )
    assert count > 7


def test_who_must_be_the_first_and_wakes_behind_another_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody has ended its job; it finds that another was committed."""
    assert everywhere(lambda at: Sleep(FAIL, at, None, (APPEND,)), monkeypatch) > 7
