"""`kill -9` at any instant: no acknowledged commit is lost, and no timestamp is issued twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from omidpy.errors import OmidError
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.leadership import lease_address
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.address import Place
from omidpy.oracle.base import CommitGranted
from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.base import Store
from omidpy.storage.sqlite import SqliteStore
from tests.machines.processes import LONGEST_S, ServerProcess

pytestmark = pytest.mark.integration

THREAD_COUNT = 4
KILL_COUNT = 10
PACE_S = 0.01
"""Between two transactions of a client: what takes the time is servers that start."""


class Load:
    """Clients that begin and commit all the time, and remember every answer."""

    def __init__(
        self, store: Store, seed: int, *, resolve: Callable[[], Place] | None = None
    ) -> None:
        """Start the clients; the oracle is found through the store unless `resolve` finds it."""
        self.starts: list[int] = []
        self.granted: dict[int, int] = {}
        self.refused: set[int] = set()
        self.open: set[int] = set()
        self.faults: list[BaseException] = []
        self._news = threading.Condition()
        self._is_over = threading.Event()
        self._oracle = TcpOracle(
            resolve=resolve or (lambda: Place(*lease_address(store))),
            store_id=store.store_id,
            reconnect_budget_s=20,
        )
        self._threads = [
            threading.Thread(target=self._work, args=(random.Random(f"{seed} {number}"),))
            for number in range(THREAD_COUNT)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for_commits(self, count: int) -> None:
        """Wait until so many more commits were acknowledged."""
        with self._news:
            wanted = len(self.granted) + count
            assert self._news.wait_for(
                lambda: len(self.granted) >= wanted or self.faults, LONGEST_S
            ), "no commits are acknowledged any more"

    def end(self) -> None:
        """Stop the clients."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(LONGEST_S)
        self._oracle.close()

    def _work(self, chance: random.Random) -> None:
        try:
            while not self._is_over.wait(PACE_S):
                start_ts = self._oracle.begin().start_ts
                with self._news:
                    self.starts.append(start_ts)
                cells = [CellId(chance.randrange(1000)) for _ in range(3)]
                self._commit(start_ts, cells)
        except BaseException as error:  # noqa: BLE001  the test's thread reports it
            with self._news:
                self.faults.append(error)
                self._news.notify_all()

    def _commit(self, start_ts: Timestamp, cells: list[CellId]) -> None:
        for is_retry in (False, True):
            try:
                verdict = self._oracle.commit(start_ts, cells, [TableId(1)], is_retry=is_retry)
            except OmidError:
                continue
            with self._news:
                if isinstance(verdict, CommitGranted):
                    self.granted[start_ts] = verdict.commit_ts
                else:
                    self.refused.add(start_ts)
                self._news.notify_all()
            return
        with self._news:
            self.open.add(start_ts)


@pytest.mark.parametrize("seed", [20261121])
def test_nothing_acknowledged_is_lost_and_nothing_is_issued_twice(
    tmp_path: Path, seed: int
) -> None:
    """I1, I2, I8 and I9 over ten deaths under load, a standby taking over each time."""
    chance = random.Random(seed)
    url = f"sqlite:///{tmp_path}/store.db"
    servers = [ServerProcess(url)]
    try:
        assert servers[0].address
        store = SqliteStore(f"{tmp_path}/store.db", must_exist=True)
        load = Load(store, seed)
        try:
            for _ in range(KILL_COUNT):
                standby = ServerProcess(url)
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
        check_load(load, store, kill_count=KILL_COUNT)
        store.close()
    finally:
        for server in servers:
            server.close()


def check_load(load: Load, store: Store, *, kill_count: int) -> None:
    """Compare what the clients were told with what the commit table says."""
    issued = [*load.starts, *load.granted.values()]
    assert len(issued) == len(set(issued)), "I1: a timestamp was issued twice"
    asked = [Timestamp(start_ts) for start_ts in load.starts]
    entries = CommitTable(store).read(asked)
    for start_ts, commit_ts in load.granted.items():
        assert entries[Timestamp(start_ts)] == commit_ts, "I8: an acknowledged commit is lost"
    for start_ts in load.refused:
        assert entries[Timestamp(start_ts)] is None, "I9: a refused transaction is committed"
    committed = {entry for entry in entries.values() if isinstance(entry, int)}
    others = committed - set(load.granted.values())
    assert not others & set(issued), "I1: an unacknowledged commit shares its timestamp"
    assert len(load.granted) > kill_count
