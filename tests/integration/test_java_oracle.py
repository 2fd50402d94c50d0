"""What our client makes of the weaknesses of Omid's own oracle.

No other oracle runs meanwhile: Omid's without a lease ends as soon as another one moves the ceiling
of timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import omidpy
from compactor.shell.command import ask_oracle
from omidpy.base.cells import commit_row, encode_commit
from omidpy.errors import ConfigError, OracleError
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE
from omidpy.model import TIMESTAMP_STEP, CellId
from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.base import Put, RowMutation, Store
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


def test_what_a_dead_one_left_undecided_never_commits_behind_a_reader(
    hbase: HBase, store: Store, tmp_path: Path
) -> None:
    """Its last entry may be under way when its successor answers, which no client is told of (I8).

    Who read without it and wrote would have overwritten an update that somebody hears of later.
    """
    with ExitStack() as stack:
        oracle = stack.enter_context(JavaOracle(hbase.zookeeper, tmp_path / "first"))
        ours = stack.enter_context(omidpy.connect(hbase.url, oracle.address, post_commit="sync"))
        ours.create_table("left", families=["cf"])
        with ours.begin() as before:
            before.table("left").put(b"r", {b"cf:n": b"0"})
        dead = ours.begin()
        dead.table("left").put(b"r", {b"cf:n": b"1"})
        dead.flush()
        oracle.kill()
        stack.enter_context(JavaOracle(hbase.zookeeper, tmp_path / "next", port=oracle.port))
        reader = ours.begin()
        assert reader.table("left").row(b"r") == {b"cf:n": b"0"}
        late = encode_commit(dead.start_ts, dead.start_ts + TIMESTAMP_STEP)
        put = Put(*COMMIT, dead.start_ts, late)
        store.write({COMMIT_TABLE: [RowMutation(commit_row(dead.start_ts), (put,))]})
        with ours.begin() as later:
            assert later.table("left").row(b"r") == {b"cf:n": b"0"}
        ours.store.drop_table("left")


def test_omid_s_low_latency_mode_is_refused(hbase: HBase, store: Store, tmp_path: Path) -> None:
    """Its clients write the commit table themselves, and swallow errors there.

    So a compaction that is told of such an oracle does not begin.
    """
    with JavaOracle(hbase.zookeeper, tmp_path, is_low_latency=True) as oracle:
        with pytest.raises(ConfigError, match="lowLatency"):
            omidpy.connect(hbase.url, oracle.address)
        with pytest.raises(ConfigError, match="lowLatency"):
            ask_oracle(store, oracle.address)
