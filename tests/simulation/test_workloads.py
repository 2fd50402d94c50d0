"""The workloads on the product as it is: clients take turns and die, and no anomaly is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omidpy.manager import TransactionManager
from omidpy.oracle.base import Oracle
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.testing.anomalies import overlap
from omidpy.testing.clients import check, interleave
from omidpy.testing.workloads import standard_workloads
from tests.machines.naive_oracle import NaiveOracle
from tso.embedded import EmbeddedOracle

POST_COMMIT_MODES = ("sync", "none", "async")


@pytest.mark.parametrize("oracle_type", [NaiveOracle, EmbeddedOracle])
@pytest.mark.parametrize("seed", range(5))
def test_interleaved_clients_leave_a_clean_history(
    seed: int, oracle_type: Callable[[Store], Oracle]
) -> None:
    """Each post-commit mode has its own clients, and what a dead one left is found by others."""
    store = MemoryStore()
    oracle = oracle_type(store)
    managers = [TransactionManager(store, oracle, post_commit=mode) for mode in POST_COMMIT_MODES]
    workloads = standard_workloads("v")
    history = interleave(
        managers, workloads, seed=seed, client_count=6, transaction_count=300, crash_share=0.02
    )
    for manager in managers:
        manager.close()
    assert check(workloads, history) == []
    # A history without overlap, conflicts and deaths would prove nothing.
    found = overlap(history)
    assert found.committed > 150
    assert found.conflicts > 10
    assert found.died > 5
    assert found.concurrent_pairs > 300


def test_the_same_seed_gives_the_same_history() -> None:
    """A failure can be replayed."""

    def history(seed: int) -> list[object]:
        store = MemoryStore()
        manager = TransactionManager(store, NaiveOracle(store), post_commit="sync")
        return list(interleave([manager], standard_workloads("v"), seed=seed))

    assert history(1) == history(1) != history(2)
