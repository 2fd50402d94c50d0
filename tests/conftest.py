"""Hypothesis profiles: `dev` takes seconds, `nightly` hours; OMIDPY_HYPOTHESIS_PROFILE chooses.

Also makes the fixtures of the real HBase known to every folder of tests.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.machines.hbase_fixtures"]

settings.register_profile("dev", max_examples=60, deadline=None)
settings.register_profile(
    "nightly",
    max_examples=20_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("OMIDPY_HYPOTHESIS_PROFILE", "dev"))
