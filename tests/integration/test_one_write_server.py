"""A `tso-server` that writes the cells of small commits: real processes on one file."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import omidpy
from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import CommitOutcomeUnknown, OracleUnavailable, TransactionAborted, WriteConflict
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.writers import WRITER_KEY_FACT, read_writer_key
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed
from omidpy.oracle.tcp import MAX_SENT_CELLS_BYTES, TcpOracle
from omidpy.storage.sqlite import SqliteStore
from tests.machines.processes import ServerProcess, tso_server

pytestmark = pytest.mark.integration

PACE_S = 0.01
"""Between two transactions of a client: what takes the time is servers that start."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a file."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def server(url: str) -> Iterator[ServerProcess]:
    """Run a server on it."""
    with tso_server(url) as server:
        yield server


@pytest.fixture
def tm(url: str, server: ServerProcess) -> Iterator[TransactionManager]:
    """Join them."""
    with omidpy.connect(url, tso=server.address, post_commit="sync") as tm:
        tm.create_table("t", ["cf"])
        yield tm


def steps_of(tm: TransactionManager) -> list[str]:
    """Note the steps of the protocol from now on."""
    steps: list[str] = []
    tm.session.on_step = steps.append
    return steps


def test_a_small_commit_is_the_servers_one_write(tm: TransactionManager) -> None:
    """The client writes nothing, and there is no entry at any time."""
    steps = steps_of(tm)
    with tm.begin() as tx:
        tx.table("t").put(b"r", {b"cf:q": b"1", b"cf:p": b"2"})
    assert steps == ["decided"]
    assert list(tm.store.scan(COMMIT_TABLE)) == []
    (row,) = tm.store.get("t", [b"r"])
    assert len(row) == 4
    with tm.begin(read_only=True) as tx:
        assert tx.table("t").row(b"r") == {b"cf:q": b"1", b"cf:p": b"2"}


def test_a_conflict_leaves_nothing(tm: TransactionManager) -> None:
    """And names the cells."""
    first, second = tm.begin(), tm.begin()
    for tx in (first, second):
        tx.table("t").put(b"r", {b"cf:q": b"%d" % tx.start_ts})
    first.commit()
    with pytest.raises(WriteConflict, match="b'r' b'cf':b'q'"):
        second.commit()
    assert len(tm.store.get("t", [b"r"])[0]) == 2


def test_a_large_one_goes_in_steps(tm: TransactionManager) -> None:
    """More than a request should take."""
    steps = steps_of(tm)
    with tm.begin() as tx:
        tx.table("t").put(b"r", {b"cf:q": bytes(MAX_SENT_CELLS_BYTES)})
    assert steps[:3] == ["before-flush", "flushed", "decided"]
    assert list(tm.store.scan(COMMIT_TABLE)) == []


def test_a_table_that_is_gone_refuses_its_own_commit_alone(tm: TransactionManager) -> None:
    """The server goes on."""
    tm.create_table("u", ["cf"])
    gone, good = tm.begin(), tm.begin()
    gone.table("u").put(b"r", {b"cf:q": b"1"})
    good.table("t").put(b"r", {b"cf:q": b"1"})
    tm.store.drop_table("u")
    with pytest.raises(TransactionAborted, match="dropped"):
        gone.commit()
    good.commit()
    assert tm.outcome(gone) == Aborted()


def test_who_does_not_know_the_key_gets_nothing_written(
    tm: TransactionManager, server: ServerProcess
) -> None:
    """The connection ends, and the outcome is found: it was not committed."""
    oracle = TcpOracle(server.address, writer_key=bytes(16))
    with TransactionManager(SqliteStore(tm.store.url.partition("///")[2]), oracle) as stranger:
        oracle.ping()
        tx = stranger.begin()
        tx.table("t").put(b"r", {b"cf:q": b"1"})
        with pytest.raises(TransactionAborted):
            tx.commit()
    assert tm.store.get("t", [b"r"]) == [[]]
    assert any("cannot read the store" in line for line in server.lines)


def test_the_key_is_drawn_once(url: str, tmp_path: Path) -> None:
    """So that who has connected needs no other behind a restart."""
    keys = []
    for _ in range(2):
        with tso_server(url) as server, omidpy.connect(url, tso=server.address) as tm:
            keys.append(read_writer_key(tm.store))
    assert keys[0] is not None
    assert keys[0] == keys[1]
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        assert WRITER_KEY_FACT in {row[0].row for page in store.scan(CONTROL_TABLE) for row in page}


def test_a_killed_server_leaves_no_outcome_open(url: str) -> None:
    """I8: whoever lost an answer finds out from the next server, and what he is told is so."""
    server = ServerProcess(url)
    address = server.address
    told: dict[int, bool] = {}
    unknown: list[int] = []
    is_over = threading.Event()

    def work(number: int) -> None:
        with omidpy.connect(url, tso=address) as tm:
            name = number
            while not is_over.wait(PACE_S):
                name += 10
                try:
                    tx = tm.begin()
                    for row in range(3):
                        tx.table("t").put(b"%06d/%d" % (name, row), {b"cf:q": b"1"})
                    tx.commit()
                    told[name] = True
                except TransactionAborted:
                    told[name] = False
                except CommitOutcomeUnknown as error:
                    outcome = tm.outcome(error)
                    if isinstance(outcome, Committed | Aborted):
                        told[name] = isinstance(outcome, Committed)
                    else:
                        unknown.append(name)
                except OracleUnavailable:
                    continue

    try:
        with omidpy.connect(url, tso=address) as tm:
            tm.create_table("t", ["cf"])
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            time.sleep(0.6)
            server.kill()
            server.close()
            server = ServerProcess(url, listen=address)
            assert server.address == address
        time.sleep(0.3)
        is_over.set()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        with omidpy.connect(url, tso=address) as tm, tm.begin(read_only=True) as tx:
            found = [int(key[:6]) for key, _ in tx.table("t").scan()]
            counts = {name: found.count(name) for name in set(found)}
        assert unknown == []
        assert set(counts.values()) == {3}
        assert {name for name, is_committed in told.items() if is_committed} == set(counts)
        assert len(counts) > 50
    finally:
        is_over.set()
        server.close()


def test_a_file_that_others_may_read_takes_no_cells(url: str, tmp_path: Path) -> None:
    """What lies in it proves nothing then: commits go in steps."""
    SqliteStore(tmp_path / "store.db").close()
    (tmp_path / "store.db").chmod(0o640)
    with tso_server(url) as server, omidpy.connect(url, tso=server.address) as tm:
        tm.create_table("t", ["cf"])
        steps = steps_of(tm)
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"cf:q": b"1"})
        assert steps[:3] == ["before-flush", "flushed", "decided"]
    (tmp_path / "store.db").chmod(0o660)
    with tso_server(url) as server, omidpy.connect(url, tso=server.address) as tm:
        steps = steps_of(tm)
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"cf:q": b"2"})
        assert steps == ["decided"]
