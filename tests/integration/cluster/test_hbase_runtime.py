"""Does the HBase that the tests start deserve to be tested against?

It answers, keeps what it acknowledged through `kill -9`, says why when it cannot start, and leaves
nothing behind.
"""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from thriftpy2.transport import TTransportException

from tests.integration.test_keeper import wait_for_end
from tests.machines.hbase import HBase, NotReady, RunningHBase
from tests.machines.hbase.bare import bare_client, gateway_idl
from tests.machines.hbase.ports import answers
from tests.machines.processes import LONGEST_S, ROOT

pytestmark = pytest.mark.integration

FAMILY = b"cf"


def create_table(hbase: HBase, name: bytes, split_keys: list[bytes]) -> None:
    """Create a table with one family."""
    idl = gateway_idl(hbase)
    table = idl.TTableName(ns=b"default", qualifier=name)
    family = idl.TColumnFamilyDescriptor(name=FAMILY)
    with bare_client(hbase) as client:
        client.createTable(idl.TTableDescriptor(tableName=table, columns=[family]), split_keys)


def drop_table(hbase: HBase, name: bytes) -> None:
    """Drop a table with its cells."""
    table = gateway_idl(hbase).TTableName(ns=b"default", qualifier=name)
    with bare_client(hbase) as client:
        client.disableTable(table)
        client.deleteTable(table)


def put(hbase: HBase, client: Any, table: bytes, rows: range) -> None:
    """Write one cell in each of many rows."""
    idl = gateway_idl(hbase)

    def cell(number: int) -> Any:
        return idl.TColumnValue(FAMILY, b"q", b"value %d" % number)

    client.putMultiple(table, [idl.TPut(b"%05d" % n, [cell(n)]) for n in rows])


def values(hbase: HBase, client: Any, table: bytes) -> list[bytes]:
    """Return the values of all rows, in order."""
    found = client.getScannerResults(table, gateway_idl(hbase).TScan(), 10_000)
    return [result.columnValues[0].value for result in found]


def has_no_such_table(client: Any) -> bool:
    """Say whether HBase answers a question to the master with the truth."""
    return bool(client.getTableNamesByPattern("nothing.*", False) == [])


def test_a_gateway_answers(hbase: HBase) -> None:
    """Everything else stands on this: a table, cells in it, and cells out of it."""
    create_table(hbase, b"runtime", [b"00050"])
    try:
        with bare_client(hbase) as client:
            put(hbase, client, b"runtime", range(100))
            assert values(hbase, client, b"runtime") == [b"value %d" % n for n in range(100)]
            assert len(client.getAllRegionLocations(b"runtime")) == 2
    finally:
        drop_table(hbase, b"runtime")


def test_its_addresses_are_those_that_clients_take(hbase: HBase) -> None:
    """The URL is for our clients, the configuration for Java's."""
    assert hbase.thrift2_url == "hbase+thrift2://" + ",".join(hbase.gateways)
    site = (hbase.conf_dir / "hbase-site.xml").read_text()
    assert f"<value>{hbase.zookeeper.partition(':')[2]}</value>" in site
    assert (hbase.idl_dir / "thrift" / "Hbase.thrift").exists()


@pytest.mark.nightly
def test_what_was_acknowledged_survives_the_kill_of_a_region_server(
    hbase_cluster: RunningHBase,
) -> None:
    """The tests of faults blame us for every lost row, so HBase itself must lose none."""
    hbase = hbase_cluster
    create_table(hbase, b"killed", [b"%05d" % n for n in range(500, 2000, 500)])
    with bare_client(hbase) as client:
        put(hbase, client, b"killed", range(2000))
        hosts = {place.serverName.port for place in client.getAllRegionLocations(b"killed")}
        assert len(hosts) == 2, "both region servers hold some of it"
        hbase.crash("rs1")
        # The gateway repeats the call until the regions are served by the other one, for 30 s at
        # most; how long that takes is ZooKeeper's session plus the replay of a log.
        for _ in range(3):
            try:
                found = values(hbase, client, b"killed")
            except gateway_idl(hbase).TIOError:
                continue
            break
    assert found == [b"value %d" % n for n in range(2000)]


def test_the_cluster_is_whole_again_before_each_test(
    hbase_cluster: RunningHBase,
) -> None:
    """A test that kills need not clean up, not even when it fails."""
    assert all(hbase_cluster.is_running(name) for name in hbase_cluster.names)


def test_a_killed_gateway_comes_back_at_its_address(hbase_cluster: RunningHBase) -> None:
    """Clients know gateways by address, and the other one has served meanwhile."""
    hbase = hbase_cluster
    first, second = hbase.gateways
    hbase.crash("thrift2-1")
    with pytest.raises(TTransportException, match="Could not connect"), bare_client(hbase, first):
        pass
    with bare_client(hbase, second) as client:
        assert has_no_such_table(client)
    hbase.start_process("thrift2-1")
    with bare_client(hbase, first) as client:
        assert has_no_such_table(client)


def test_a_paused_gateway_answers_when_it_is_resumed(hbase_cluster: RunningHBase) -> None:
    """A server that stands still is another fault than one that is gone: the connection lives."""
    hbase = hbase_cluster
    with bare_client(hbase) as client:
        with hbase.paused("thrift2-1"):
            client._send("getTableNamesByPattern", regex="nothing.*", includeSysTables=False)
            assert not _is_waiting(client, 0.5)
        assert _is_waiting(client, LONGEST_S)
        assert client._recv("getTableNamesByPattern") == []


@pytest.mark.nightly
def test_a_standalone_server_has_its_data_after_a_kill(tmp_path: Path) -> None:
    """The same for the small one, which is killed whole, ZooKeeper included."""
    with HBase.start(tmp_path / "hbase", quick=True) as hbase:
        create_table(hbase, b"killed", [])
        with bare_client(hbase) as client:
            put(hbase, client, b"killed", range(1000))
        hbase.crash("master")
        hbase.start_process("master")
        with bare_client(hbase) as client:
            assert values(hbase, client, b"killed") == [b"value %d" % n for n in range(1000)]
        pids = [hbase.pid(name) for name in hbase.names]
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists(), "the block has ended, and with it all of them"
    with pytest.raises(NotReady, match=r"python -m tests\.machines\.hbase"):
        HBase.attach(tmp_path / "hbase")


def test_a_server_that_cannot_start_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    """Whoever reads the report of a machine far away has nothing but this message."""
    with pytest.raises(NotReady, match=r"(?s)master ended with code 1 .*nonsense") as refused:
        HBase.start(tmp_path, more={"hbase.rootdir": "nonsense:///"})
    assert "the end of its log" in str(refused.value)


@pytest.mark.nightly
def test_one_for_many_runs_is_found_by_its_folder_and_ends_with_its_command(
    tmp_path: Path,
) -> None:
    """A run of a few tests should not pay for a start; and `kill -9` leaves no JVM here either."""
    command = [sys.executable, "-m", "tests.machines.hbase", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            hbase = HBase.attach(tmp_path)
            assert first.split() == ["store", hbase.thrift2_url]
            with bare_client(hbase) as client:
                assert has_no_such_table(client)
            jvms = _processes_with(str(tmp_path / "conf"))
            assert len(jvms) == 2
            _, port = hbase.gateway("thrift1").split(":")
            assert answers(int(port)), "a gateway that it lacks is added"
            hbase.stop()
            assert not answers(int(port)), "and ends with the one who added it"
            assert set(_processes_with(str(tmp_path / "conf"))) == set(jvms)
        finally:
            process.send_signal(signal.SIGKILL)
    for pid in jvms:
        wait_for_end(pid)


def _is_waiting(client: Any, longest_s: float) -> bool:
    """Say whether an answer has come, or comes within a time."""
    connection = client._iprot.trans.sock
    return bool(select.select([connection], [], [], longest_s)[0])


def _processes_with(argument: str) -> list[int]:
    """Ids of the Java processes whose command line has something in it."""

    def has_it(process: Path) -> bool:
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return words[0].endswith(b"java") and any(argument.encode() in word for word in words)

    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if has_it(path)]
