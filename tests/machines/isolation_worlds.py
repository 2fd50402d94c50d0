"""Worlds in which the workloads run in one thread, by a seed: plain, compacted, lossy.

In the compacted world the low watermark rises and compactions run between the steps of clients; its
clock is turned by hand.  In the lossy world some commits are decided and the reply is lost, on a
store that cannot take single versions back, as HBase's Thrift1 gateway: what is wrongly taken for
an abort stays in sight there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from compactor.run.local import compact
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import OracleUnavailable
from omidpy.manager import TransactionManager
from omidpy.model import TIMESTAMP_STEP
from omidpy.oracle.base import Oracle
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.testing.anomalies import Anomaly
from omidpy.testing.clients import check, interleave
from omidpy.testing.history import Recorded
from omidpy.testing.workloads import standard_workloads
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.naive_oracle import NaiveOracle
from tso.embedded import EmbeddedOracle

POST_COMMIT_MODES = ("sync", "none", "async")

LIVELY_TIMESTAMPS = 25
"""The low watermark stays so many timestamps behind: most transactions end before it comes."""


class World:
    """What a run left: its history, and what the checkers say."""

    def __init__(self, history: list[Recorded], found: list[Anomaly]) -> None:
        self.history = history
        self.found = found

    @property
    def names(self) -> set[str]:
        """The names of the anomalies."""
        return {anomaly.name for anomaly in self.found}


def plain(seed: int) -> World:
    """Run on the embedded oracle."""
    store = MemoryStore()
    return _run(store, EmbeddedOracle(store), seed)


def lossy(seed: int) -> World:
    """Lose the replies to some commits."""
    store = MemoryStore()
    return _run(LikeThrift1(store), _LossyOracle(store, random.Random(seed)), seed)


def compacted(seed: int) -> World:
    """Compact while clients work."""
    store, clock = MemoryStore(), ManualClock()
    oracle = NaiveOracle(store)
    rng = random.Random(seed)

    def chore() -> None:
        if rng.random() < 0.02:
            newest = oracle.begin().start_ts
            oracle.raise_low_watermark(max(newest - LIVELY_TIMESTAMPS * TIMESTAMP_STEP, 0))
            # Version collection waits for its grace, so that readers are warned first.
            clock.advance(3)
            compact(store, ALL_AT_ONCE, clock=clock, sleep=clock.advance)

    return _run(store, oracle, seed, clock=clock, between_steps=chore)


def _run(
    store: Store,
    oracle: Oracle,
    seed: int,
    *,
    clock: ManualClock | None = None,
    between_steps: Callable[[], None] = lambda: None,
) -> World:
    managers = [
        TransactionManager(store, oracle, post_commit=mode, clock=clock)
        for mode in POST_COMMIT_MODES
    ]
    workloads = standard_workloads("v")
    history = interleave(
        managers,
        workloads,
        seed=seed,
        client_count=6,
        transaction_count=250,
        crash_share=0.01,
        between_steps=between_steps,
    )
    for manager in managers:
        manager.close()
    return World(history, check(workloads, history))


class _LossyOracle(EmbeddedOracle):
    """Decides, and sometimes loses the reply."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        super().__init__(store)
        self._rng = rng

    def commit(self, *arguments: Any, **options: Any) -> Any:
        """Decide, and perhaps say nothing."""
        verdict = super().commit(*arguments, **options)
        if self._rng.random() < 0.3:
            raise OracleUnavailable("the reply was lost", retryable=False)
        return verdict
