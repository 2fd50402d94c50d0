"""The oracle on a real HBase and its ZooKeeper: set-up, life, death, takeover and zombies."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import omidpy
from omidpy.base.cells import commit_row
from omidpy.cli import main
from omidpy.errors import OracleUnavailable
from omidpy.facts.commit_table import COMMIT_TABLE, CommitTable
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.address import parse_address
from omidpy.oracle.base import CommitGranted, CommitRefused
from omidpy.oracle.tcp import TcpOracle
from omidpy.oracle.zookeeper import (
    connected,
    find_oracle,
    parse_zookeeper,
    resolver,
)
from omidpy.storage.base import Put, RowMutation
from omidpy.wire.frames import decode_response, encode_request
from omidpy.wire.messages import CommitRequest, TimestampRequest, TimestampResponse
from tests.integration.test_tso_server import HANDSHAKE, HANDSHAKE_ANSWER, Raw
from tests.integration.test_tso_server_killed import Load, check_load
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import HBaseStore, drop_tables, open_hbase
from tests.machines.processes import ServerProcess, tso_server

pytestmark = pytest.mark.integration

ROAD_BY_DAY = Road.DIRECT

PERIOD_S = 2
CELLS = [CellId(1), CellId(2)]
TABLES = [TableId(9)]
OMIDS_SPLITS = """
    00f8 01f0 02e8 03e0 04d8 05d0 06c8 07c0 08b8 09b0 0aa8 0ba0 0c98 0d90 0e88
"""
"""The keys that Omid's own tool splits at, without the seven zero bytes behind each."""


@pytest.fixture(scope="module")
def url(hbase: HBase) -> str:
    """Return the address of a store that `omidpy init` has just set up."""
    set_up(hbase)
    return hbase.url


def set_up(hbase: HBase) -> None:
    """Run `omidpy init` on an HBase without tables."""
    drop_tables(hbase)
    with pytest.raises(SystemExit) as ended:
        main(["init", "--store", hbase.url])
    assert ended.value.code == 0


@pytest.fixture
def store(hbase: HBase, url: str) -> Iterator[HBaseStore]:
    """Return the store."""
    opened = open_hbase(hbase)
    yield opened
    opened.close()


@pytest.fixture
def lease(hbase: HBase) -> str:
    """Return the address of a lease in a namespace of this test's own."""
    namespace = f"test-{random.SystemRandom().randrange(10**12)}"
    return f"zk://{hbase.zookeeper}/{namespace}?period={PERIOD_S}s"


@contextmanager
def client(address: str, store: HBaseStore) -> Iterator[TcpOracle]:
    """Give a client of the oracle at an address."""
    oracle = TcpOracle(address, store_id=store.store_id)
    try:
        yield oracle
    finally:
        oracle.close()


def committed(oracle: TcpOracle) -> tuple[Timestamp, Timestamp]:
    """Commit a transaction; return its timestamps."""
    start_ts = oracle.begin().start_ts
    verdict = oracle.commit(start_ts, CELLS, TABLES)
    assert isinstance(verdict, CommitGranted)
    return start_ts, verdict.commit_ts


# -- set-up and life -------------------------------------------------------------------------------


def test_the_commit_table_is_made_as_omids_own_tool_makes_it(store: HBaseStore) -> None:
    """Sixteen regions between the same keys, one version of each cell."""
    starts = [region.start for region in store.regions(COMMIT_TABLE)]
    splits = [bytes.fromhex(first) + bytes(7) for first in OMIDS_SPLITS.split()]
    assert starts == [b"", *splits]


def test_what_a_server_commits_is_in_omids_table_and_survives_it(
    url: str, store: HBaseStore
) -> None:
    """I1 and I2 over a kill and a clean restart, with the lease in the store."""
    with tso_server(url) as first:
        with client(first.address, store) as oracle:
            start_ts, commit_ts = committed(oracle)
            (cell,) = store.get(COMMIT_TABLE, [commit_row(start_ts)])[0]
            assert (cell.family, cell.qualifier, cell.version) == (b"F", b"C", start_ts)
        first.kill()
    with tso_server(url) as second:
        assert "process" in second.wait_for("^standby")
        with client(second.address, store) as oracle:
            assert oracle.begin().start_ts > commit_ts
            assert oracle.epoch > commit_ts
            again = oracle.commit(start_ts, CELLS, TABLES, is_retry=True)
            assert again == CommitGranted(commit_ts)
            _, last_ts = committed(oracle)
        assert second.terminate() == 0
    with tso_server(url) as third, client(third.address, store) as oracle:
        assert oracle.begin().start_ts > last_ts
        assert third.terminate() == 0


def test_an_invalidation_of_a_foreign_reader_refuses_the_commit(
    url: str, store: HBaseStore, lease: str
) -> None:
    """Omid's clients plant them below a fence; the answer must say what readers will see."""
    with tso_server(url, "--lease", lease) as server, client(server.address, store) as oracle:
        start_ts = oracle.begin().start_ts
        assert CommitTable(store).invalidate(start_ts)
        assert isinstance(oracle.commit(start_ts, CELLS, TABLES), CommitRefused)
        committed(oracle)


# -- found through ZooKeeper -----------------------------------------------------------------------


def test_clients_find_the_oracle_through_zookeeper(url: str, store: HBaseStore, lease: str) -> None:
    """As Omid's clients do in their mode HA; and a standby takes over after the period."""
    address = parse_zookeeper(lease)
    find = resolver(address)
    with pytest.raises(OracleUnavailable, match="does not exist"):
        find()
    with tso_server(url, "--lease", lease) as first:
        where = parse_address(first.address)
        epoch = find().epoch
        assert find() == (*where, epoch)
        with omidpy.connect(url, tso=lease) as tm:
            if "accounts" not in tm.tables():
                tm.create_table("accounts", families=["cf"])
            with tm.begin() as tx:
                assert tx.start_ts > epoch
                tx.table("accounts").put(b"r", {b"cf:q": b"before"})
            with tso_server(url, "--lease", lease) as second:
                second.wait_for("^standby")
                first.kill()
                assert parse_address(second.address) == find()[:2]
                assert find().epoch > epoch
                for attempt in tm.attempts(budget_s=30):
                    with attempt as tx:
                        assert tx.table("accounts").row(b"r") == {b"cf:q": b"before"}
                        tx.table("accounts").put(b"r", {b"cf:q": b"after"})
                with tm.begin(read_only=True) as tx:
                    assert tx.table("accounts").row(b"r") == {b"cf:q": b"after"}
                assert second.terminate() == 0


def test_an_oracle_of_omid_is_waited_for_and_then_replaced(
    url: str, store: HBaseStore, lease: str, hbase: HBase
) -> None:
    """It writes the znode's next version while it lives, and nothing afterwards."""
    address = parse_zookeeper(lease)
    with connected(address) as session:
        for path, data in (
            (address.lease_path, b"java:24758"),
            (address.current_path, b"java:24758#50"),
        ):
            session.create(path)
            assert session.replace(path, data, version=0) == 1
        with tso_server(url, "--lease", lease) as server:
            assert "java:24758" in server.wait_for("^standby")
            assert session.replace(address.lease_path, b"java:24758", version=1) == 2
            assert server.address
            assert find_oracle(session, address)[:2] == parse_address(server.address)
            node = session.read(address.lease_path)
            assert node is not None
            assert node.data == server.address.encode()
            assert server.terminate() == 0


def test_a_namespace_with_a_later_epoch_is_refused(url: str, store: HBaseStore, lease: str) -> None:
    """As Omid refuses it: another store's, or timestamps that went back.  Exit 2."""
    address = parse_zookeeper(lease)
    with connected(address) as session:
        session.create(address.current_path)
        session.replace(address.current_path, b"java:24758#9000000000000000000", version=0)
    with tso_server(url, "--lease", lease) as server:
        assert server.wait() == 2
        assert "whose epoch is above" in server.wait_for("configuration")


def test_a_lost_ensemble_is_a_named_error(url: str) -> None:
    """Exit 1, and the addresses in the message."""
    with tso_server(url, "--lease", "zk://127.0.0.1:1/omid?timeout=1s") as server:
        assert server.wait() == 1
        assert "ZooKeeper at 127.0.0.1:1 does not answer" in server.wait_for("store-failed")


# -- death and zombies -----------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["store", "zookeeper"])
def test_a_holder_that_was_stopped_answers_nothing_after_a_takeover(
    url: str, store: HBaseStore, lease: str, where: str
) -> None:
    """It wakes up with a request to decide; every connection is closed, and it exits with 3."""
    options = ("--lease", lease if where == "zookeeper" else "store")
    with tso_server(url, *options) as first, client(first.address, store) as before:
        committed(before)
        victim = Raw(first.address)
        victim.send(HANDSHAKE)
        assert victim.receive() == HANDSHAKE_ANSWER
        victim.send(encode_request(TimestampRequest()))
        begun = decode_response(victim.receive())
        assert isinstance(begun, TimestampResponse)
        open_ts = begun.start_ts
        with tso_server(url, *options) as second:
            second.wait_for("^standby")
            first.process.send_signal(signal.SIGSTOP)
            # It waits in the socket, to be the first thing that the process sees.
            victim.send(encode_request(CommitRequest(open_ts, tuple(CELLS), tuple(TABLES))))
            with client(second.address, store) as oracle:
                assert oracle.begin().epoch > open_ts
                committed(oracle)
                first.process.send_signal(signal.SIGCONT)
                assert first.wait() == 3
                assert "lease-lost" in first.log
                assert victim.is_closed(), "a zombie answered"
                # What it wrote may be a commit that nobody was told of; then it is one for all.
                entry = CommitTable(store).read([open_ts])[open_ts]
                verdict = oracle.invalidate(open_ts)
                assert (
                    (verdict == CommitGranted(Timestamp(entry)))
                    if isinstance(entry, int)
                    else not isinstance(verdict, CommitGranted)
                )
            assert second.terminate() == 0
        victim.socket.close()


@pytest.mark.parametrize("seed", [20261122])
def test_nothing_acknowledged_is_lost_and_nothing_is_issued_twice(
    url: str, store: HBaseStore, lease: str, seed: int
) -> None:
    """I1, I2, I8 and I9 over three deaths under load, a standby taking over each time."""
    chance = random.Random(seed)
    servers = [ServerProcess(url, "--lease", lease)]
    try:
        assert servers[0].address
        load = Load(store, seed, resolve=resolver(parse_zookeeper(lease)))
        try:
            for _ in range(3):
                standby = ServerProcess(url, "--lease", lease)
                servers.append(standby)
                standby.wait_for(r"^standby ")
                load.wait_for_commits(chance.randrange(1, 60))
                servers[-2].kill()
                assert standby.address
            load.wait_for_commits(20)
        finally:
            load.end()
        assert not load.faults
        assert servers[-1].terminate() == 0
        check_load(load, store, kill_count=3)
    finally:
        for server in servers:
            server.close()


# -- coming from Java ------------------------------------------------------------------------------


def test_a_store_of_omid_is_taken_over_with_an_initial_timestamp(hbase: HBase) -> None:
    """Omid's tool made the tables and its oracle kept timestamps in memory."""
    set_up(hbase)
    store = open_hbase(hbase)
    put = Put(b"F", b"C", 5000, b"\x32")
    store.write({COMMIT_TABLE: [RowMutation(commit_row(5000), [put])]})
    incremental = ("--timestamps", "incremental")
    with tso_server(hbase.url, *incremental) as server:
        assert server.wait() == 2
        assert "began at 5000" in server.wait_for("configuration")
    with tso_server(hbase.url, *incremental, "--initial-timestamp", "5050") as server:
        assert server.wait() == 2
        assert "holds 5050" in server.wait_for("configuration")
    with tso_server(hbase.url, *incremental, "--initial-timestamp", "5051") as server:
        with client(server.address, store) as oracle:
            assert oracle.begin().start_ts == 5150
            assert oracle.max_transaction_age_s == 24 * 3600
        assert server.terminate() == 0
    with tso_server(hbase.url, *incremental) as server:
        assert server.address
        assert server.terminate() == 0
    store.close()
    drop_tables(hbase)
