"""Processes of a real HBase die while clients commit: every error says whether it committed (I8).

Each transaction writes the same value into two rows of different regions.  Afterwards what was
acknowledged is there, what was refused is not, what was unknown is what `outcome` says it is; and
all of it in both rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import pytest

import omidpy
from omidpy.commit_table import create_system_tables
from omidpy.connect import open_store
from omidpy.errors import CommitOutcomeUnknown, OmidError
from omidpy.manager import TransactionManager
from tests.machines.hbase import RunningHBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.processes import ServerProcess

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

TABLE = "pairs"
COLUMN = b"cf:q"
WRITERS = 3
DEADLINE_S = 180.0


@dataclass
class Load:
    """Writers, and what became of each of their transactions."""

    connect: Callable[[], TransactionManager]
    committed: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    unknown: dict[bytes, CommitOutcomeUnknown] = field(default_factory=dict)
    strange: list[BaseException] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the writers write for the length of a block."""
        threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(DEADLINE_S)
        assert not self.strange
        assert not any(thread.is_alive() for thread in threads)

    def wait_for(self, count: int) -> None:
        """Wait until so many more transactions have been acknowledged."""
        with self._news:
            goal = len(self.committed) + count
            done = self._news.wait_for(
                lambda: len(self.committed) >= goal or self.strange, DEADLINE_S
            )
            assert done, f"{len(self.committed)} committed of {goal}, {len(self.refused)} refused"

    def check(self) -> None:
        """Hold what readers see against what writers were told."""
        with self.connect() as tm:
            settled = {key: tm.outcome(error) for key, error in self.unknown.items()}
            undecided = [
                key
                for key, outcome in settled.items()
                if not isinstance(outcome, omidpy.Committed | omidpy.Aborted)
            ]
            assert not undecided
            expected = self.committed | {
                key for key, outcome in settled.items() if isinstance(outcome, omidpy.Committed)
            }
            with tm.begin(read_only=True) as tx:
                table = tx.table(TABLE)
                for prefix in (b"a", b"z"):
                    found = {row[1:] for row, _ in table.scan(row_prefix=prefix)}
                    assert expected - found == set(), "acknowledged, but lost"
                    assert found - expected == set(), "refused, but there"

    def _write(self, number: int) -> None:
        try:
            with self.connect() as tm:
                count = 0
                while not self._stop.is_set():
                    self._write_pair(tm, b"%d-%06d" % (number, count))
                    count += 1
        except BaseException as error:  # noqa: BLE001 - the test's thread reports it
            with self._news:
                self.strange.append(error)
                self._news.notify_all()

    def _write_pair(self, tm: TransactionManager, key: bytes) -> None:
        try:
            with tm.begin() as tx:
                table = tx.table(TABLE)
                table.put(b"a" + key, {COLUMN: key})
                table.put(b"z" + key, {COLUMN: key})
        except CommitOutcomeUnknown as error:
            self.unknown[key] = error
        except OmidError:
            self.refused.add(key)
        else:
            with self._news:
                self.committed.add(key)
                self._news.notify_all()


class Oracle:
    """A `tso-server` that is started again when it ends, as a service manager does."""

    def __init__(self, store: str) -> None:
        """Start it."""
        self._store = store
        self._is_closed = False
        self._server = ServerProcess(store)
        self.address = self._server.address
        self.restart_count = 0
        self._watch = threading.Thread(target=self._restart)
        self._watch.start()

    def close(self) -> None:
        """End it for good."""
        self._is_closed = True
        self._server.process.kill()
        self._watch.join(DEADLINE_S)

    def _restart(self) -> None:
        while True:
            self._server.process.wait()
            self._server.close()
            if self._is_closed:
                return
            self.restart_count += 1
            self._server = ServerProcess(self._store, listen=self.address)


@pytest.fixture
def load(hbase_cluster: RunningHBase) -> Iterator[Load]:
    """Give writers for an empty table of two regions, and an oracle for them."""
    with empty_hbase(hbase_cluster) as url:
        with closing(open_store(url)) as store:
            create_system_tables(store)
        oracle = Oracle(url)
        try:
            with omidpy.connect(url, oracle.address) as tm:
                tm.create_table(TABLE, ["cf"], splits=[b"m"])
            yield Load(lambda: omidpy.connect(url, oracle.address))
        finally:
            oracle.close()


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
