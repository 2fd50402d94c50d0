"""A pytest plugin for tests of steps: `pytest_plugins = ["omidpy.testing.fate.fixtures"]`.

    def test_paying(flaky_fate):
        shop = Shop()
        fate = flaky_fate(shop)
        tx = fate.submit("PAY", Reserve("order-1"))
        fate.run_pending()
        assert tx.result() == "paid"
        assert shop.charges == 1

Nothing waits: `fate.clock` is turned by hand, and `run_pending` says for how long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.fate.client import Fate
from omidpy.fate.running.runner import Caller
from omidpy.fate.table.store import TableFateStore
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.flaky import Flaky


@pytest.fixture
def flaky_fate() -> Callable[[Any], Fate]:
    """Return a function from an environment to a `Fate` that calls every step twice."""
    return lambda env: _fate(env, Flaky())


@pytest.fixture
def plain_fate() -> Callable[[Any], Fate]:
    """Return the same, calling every step once: for comparison."""
    return lambda env: _fate(env, Caller())


def _fate(env: Any, caller: Caller) -> Fate:
    return Fate(env, TableFateStore(MemoryStore()), clock=ManualClock(), caller=caller)
