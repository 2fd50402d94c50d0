"""Clients and the oracle are killed at random while they work on a real HBase, and judged.

What `omidpy verify --kill clients,oracle` does for a user with a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omidpy.facts.commit_table import create_system_tables
from omidpy.opening import open_store
from omidpy.testing.verification import Judgement, Plan
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import empty_hbase
from tests.machines.proven import proven

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT


@pytest.fixture
def url(hbase: HBase) -> Iterator[str]:
    """Return the address of an HBase with Omid's tables and ours, and nothing in them."""
    with empty_hbase(hbase) as url:
        store = open_store(url)
        create_system_tables(store)
        store.close()
        yield url


def run(url: str, duration_s: float, *, clients: int, seed: int) -> Judgement:
    """Run the workloads, and hold the run to no anomaly and to having killed."""
    kill = frozenset({"clients", "oracle"})
    return proven(
        Plan(url, duration_s=duration_s, client_count=clients, kill=kill, seed=seed),
        lambda judgement: (
            judgement.clients_killed > 0
            and judgement.oracle_killed > 0
            and judgement.overlap.committed > 0
            and judgement.overlap.concurrent_pairs > 0
        ),
    )


def test_a_short_run_with_kills_is_clean(url: str) -> None:
    """Nothing that was acknowledged is lost or torn (I8), nothing refused is seen (I9)."""
    run(url, 12, clients=3, seed=3)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_a_long_run_with_kills_is_clean(url: str, seed: int) -> None:
    """Some minutes each."""
    run(url, 180, clients=6, seed=seed)
