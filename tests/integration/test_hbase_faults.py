"""Processes of a real HBase die while clients commit: every error says whether it committed (I8).

Writers and what they are held to: `tests.machines.pairs`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.machines.hbase import RunningHBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.pairs import Load, writers

pytestmark = [pytest.mark.integration, pytest.mark.hbase]


@pytest.fixture
def load(hbase_cluster: RunningHBase) -> Iterator[Load]:
    """Give writers for an empty table of two regions, and an oracle for them."""
    with empty_hbase(hbase_cluster) as url, writers(url) as load:
        yield load


@pytest.mark.parametrize("name", ["rs1", "rs2", "thrift2-1", "thrift2-2", "master"])
def test_commits_outlive_the_kill_of_a_process(
    hbase_cluster: RunningHBase, load: Load, name: str
) -> None:
    """The rest of the cluster takes over, and then the process comes back."""
    with load.running():
        load.wait_for(20)
        hbase_cluster.crash(name)
        load.wait_for(20)
        hbase_cluster.start_process(name)
        load.wait_for(20)
    load.check()


def test_a_region_server_that_stands_still_is_replaced(
    hbase_cluster: RunningHBase, load: Load
) -> None:
    """It believes that it still serves when it goes on, after its regions have moved."""
    with load.running():
        load.wait_for(20)
        with hbase_cluster.paused("rs1"):
            load.wait_for(20)
        load.wait_for(20)
    load.check()
    # It ends by itself once it hears that it counts as dead, perhaps in the middle of another test.
    hbase_cluster.crash("rs1")


def test_commits_go_on_after_all_of_hbase_was_down(hbase_cluster: RunningHBase, load: Load) -> None:
    """Nobody can commit meanwhile, and nobody is told that he did."""
    with load.running():
        load.wait_for(20)
        hbase_cluster.crash("rs1", "rs2", "master")
        hbase_cluster.start_all()
        load.wait_for(20)
    load.check()
