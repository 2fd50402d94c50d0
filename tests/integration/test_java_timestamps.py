"""Omid's oracle keeps its timestamps in memory, as it is shipped, or in ZooKeeper; ours takes over.

What the store and ZooKeeper hold then is all that is known of the timestamps that were issued (I1).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from omidpy.cli import main
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import one_region_store
from tests.machines.java import JavaDriver, JavaOracle
from tests.machines.java_client import JavaManager
from tests.machines.processes import ServerProcess, tso_server

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase]

ROAD_BY_DAY = Road.THRIFT2

TABLE = "accounts"


@pytest.fixture(scope="module")
def driver(hbase: HBase) -> Iterator[JavaDriver]:
    """Run Omid's client."""
    with JavaDriver(zookeeper=hbase.zookeeper) as driver:
        yield driver


@pytest.fixture
def url(hbase: HBase, driver: JavaDriver) -> Iterator[str]:
    """Return the address of an HBase with a table of Omid's, and no timestamps.

    Nobody marked the table; Omid asks for marks only where its coprocessor shall collect.
    """
    with one_region_store(hbase) as store:
        driver.call("admin.create", table=TABLE, families=[b"cf".hex()], splits=[])
        yield store.url


def newest_of(oracle: JavaOracle, driver: JavaDriver) -> int:
    """Commit with an oracle of Omid's, which then ends; return the newest timestamp."""
    with oracle:
        java = JavaManager(driver, oracle.address)
        with java.begin() as tx:
            tx.put(TABLE, b"alice", {b"cf:balance": b"100"})
        java.close()
    assert tx.commit_ts is not None
    return tx.commit_ts


def goes_on(server: ServerProcess, driver: JavaDriver, newest: int) -> None:
    """See that Omid's client begins above `newest`, reads what was there, and commits."""
    java = JavaManager(driver, server.address)
    later = java.begin()
    assert later.start_ts > newest
    assert later.row(TABLE, b"alice") == {b"cf:balance": b"100"}
    later.put(TABLE, b"alice", {b"cf:balance": b"90"})
    assert later.commit() > later.start_ts
    java.close()


def refusal(url: str, capsys: pytest.CaptureFixture[str]) -> int:
    """Compact a store whose oracle records no timestamps; return the exit code."""
    with pytest.raises(SystemExit):
        main(["init", "--store", url])
    with pytest.raises(SystemExit) as ended:
        main(["compact", "--store", url])
    assert "no ceiling of timestamps is recorded" in capsys.readouterr().err
    return int(str(ended.value.code))


def test_after_timestamps_in_memory_ours_goes_on_only_above_all_that_was_left(
    hbase: HBase,
    url: str,
    driver: JavaDriver,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The commit table holds nothing but the low watermark: the newest timestamp is in a table."""
    newest = newest_of(JavaOracle(hbase.zookeeper, tmp_path, keeps_timestamps=False), driver)
    assert refusal(url, capsys) == 2
    with tso_server(url) as server:
        assert server.wait() == 2
        assert "recorded no timestamp ceiling" in server.wait_for("configuration")
    with tso_server(url, "--initial-timestamp", str(newest)) as server:
        assert server.wait() == 2
        assert f"the table {TABLE} holds {newest}" in server.wait_for("configuration")
    with tso_server(url, "--initial-timestamp", str(newest + 1)) as server:
        goes_on(server, driver, newest)


@pytest.mark.nightly
def test_after_timestamps_in_zookeeper_ours_goes_on_above_their_ceiling(
    hbase: HBase, url: str, driver: JavaDriver, tmp_path: Path
) -> None:
    """It is found below the namespace of the lease, and nowhere else."""
    namespace = f"java-{random.SystemRandom().randrange(10**12)}"
    newest = newest_of(JavaOracle(hbase.zookeeper, tmp_path, timestamp_namespace=namespace), driver)
    with tso_server(url) as server:
        assert server.wait() == 2
        assert "--lease zk://HOSTS/NS" in server.wait_for("configuration")
    with tso_server(url, "--lease", f"zk://{hbase.zookeeper}/{namespace}?period=2s") as server:
        goes_on(server, driver, newest)
        said = server.wait_for("Omid kept its timestamps in ZooKeeper")
        assert said.startswith("log time=")
