"""What our client makes of the weaknesses of Omid's own oracle.

No other oracle runs meanwhile: Omid's without a lease ends as soon as another one moves the ceiling
of timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omidpy
from compactor.shell.command import ask_oracle
from omidpy.errors import ConfigError, OracleError
from omidpy.model import CellId
from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.base import Store
from tests.machines.hbase import HBase, Road
from tests.machines.java import JavaOracle
from tests.machines.java_world import shared_store

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT


@pytest.fixture(scope="module")
def store(hbase: HBase) -> Iterator[Store]:
    """Open the HBase as our clients do, with Omid's tables and ours."""
    with shared_store(hbase) as store:
        yield store


@pytest.mark.nightly
def test_one_cell_id_kills_omid_s_oracle(hbase: HBase, store: Store, tmp_path: Path) -> None:
    """Any client can send it; to ours it is an ordinary cell."""
    with JavaOracle(hbase.zookeeper, tmp_path) as oracle:
        client = TcpOracle(oracle.address, reconnect_budget_s=0)
        start_ts = client.begin().start_ts
        with pytest.raises(OracleError):
            client.commit(start_ts, [CellId(-(2**63))], [])
        client.close()
        assert oracle.process.wait(60) != 0


def test_omid_s_low_latency_mode_is_refused(hbase: HBase, store: Store, tmp_path: Path) -> None:
    """Its clients write the commit table themselves, and swallow errors there.

    So a compaction that is told of such an oracle does not begin.
    """
    with JavaOracle(hbase.zookeeper, tmp_path, is_low_latency=True) as oracle:
        with pytest.raises(ConfigError, match="lowLatency"):
            omidpy.connect(hbase.url, oracle.address)
        with pytest.raises(ConfigError, match="lowLatency"):
            ask_oracle(store, oracle.address)
