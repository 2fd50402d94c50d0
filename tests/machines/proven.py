"""Runs of `verify` that go on until they have proven something, on a machine that may be busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from omidpy.errors import OmidError
from omidpy.testing.verification import Judgement, Plan, verify

TIMES_LONGER: Final = (1, 2, 4, 8)


def proven(plan: Plan, is_enough: Callable[[Judgement], bool]) -> Judgement:
    """Run the workloads, and once more for longer where that was not enough.

    Every run is held to no anomaly, and to clients that end as they should.
    """
    for times in TIMES_LONGER:
        try:
            judgement = verify(replace(plan, duration_s=times * plan.duration_s))
        except OmidError as error:
            if "nothing was proven" not in str(error):
                raise
            continue
        assert judgement.anomalies == []
        assert judgement.problems == []
        if is_enough(judgement):
            return judgement
    pytest.fail(f"in {TIMES_LONGER[-1] * plan.duration_s} s too little happened to prove anything")
