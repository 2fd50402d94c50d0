"""Which cases of many run by day; all of them run by night.

    @pytest.mark.parametrize(("kind", "trouble", "is_twice"), some(KINDS, TROUBLES, (False, True)))

Of three axes or more, each of which has as many values as there are cases for one that is chosen,
any two values of different axes meet by day.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def some(*axes: Sequence[Any], one_in: int = 2) -> list[Any]:
    """Return the product of the axes; by day one case in some, diagonally."""
    return [
        pytest.param(
            *(value for _, value in case),
            id="-".join(_named(value) for _, value in case),
            marks=() if sum(at for at, _ in case) % one_in == 0 else pytest.mark.nightly,
        )
        for case in itertools.product(*(list(enumerate(axis)) for axis in axes))
    ]


def _named(value: Any) -> str:
    if isinstance(value, tuple):
        return " and ".join(map(_named, value))
    return str(getattr(value, "name", None) or getattr(value, "__name__", value))
