"""What does Phoenix's own load cost our oracle, and what Omid's?

Eight connections of one client in SQL move money between accounts, two reads and two writes a
transaction, and the oracles take turns on one port.  Omid's runs as it is delivered, where its
threads spin while they wait, and tuned as in `bench.wire`.  Each serves for some seconds before it
counts, since Java compiles what it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from bench.wire.oracles import Oracle
from tests.machines.java import FULL_SPEED, JavaError
from tests.machines.phoenix import TRANSACTIONAL, Connection, Phoenix

OURS: Final = "tso-server"
DELIVERED: Final = "Omid's, as delivered"
TUNED: Final = "Omid's, tuned"
TUNING: Final = {
    "waitStrategy": "LOW_CPU",
    "numConcurrentCTWriters": "2",
    "batchSizePerCTWriter": "200",
    "batchPersistTimeoutInMs": "1",
}
"""As `bench.wire.oracles` explains it."""

CONNECTIONS: Final = 8
ACCOUNTS: Final = 1000
TABLE: Final = "BENCH.ACCOUNTS"
_A_CALL: Final = 10
"""Moves that a connection makes before it looks at the clock."""
_PAUSE_S: Final = 0.2
PATIENCE_S: Final = 60.0


class Served(NamedTuple):
    """What one oracle did in one round."""

    per_second: float
    """Transactions that committed."""
    processor_us: float
    """Of the oracle's process, for each of them."""
    refused: int
    resident_mib: float


class Load:
    """Phoenix's clients, and whoever serves them."""

    def __init__(self, phoenix: Phoenix, directory: Path) -> None:
        """Make the accounts, and open the connections."""
        self._phoenix = phoenix
        self._directory = directory
        self._seeds = iter(range(10_000_000))
        phoenix.sql.execute(
            f"CREATE TABLE {TABLE} (K VARCHAR PRIMARY KEY, N BIGINT) {TRANSACTIONAL}"
        )
        client = phoenix.client(FULL_SPEED)
        self._connections = [client.open() for _ in range(CONNECTIONS)]
        first = self._connections[0]
        for number in range(ACCOUNTS):
            first.execute(f"UPSERT INTO {TABLE} VALUES ('a{number:03}', 100)")
        first.commit()
        self.oracles: Mapping[str, Callable[[], int]] = {
            OURS: self._ours,
            DELIVERED: lambda: self._omids("delivered", {}),
            TUNED: lambda: self._omids("tuned", TUNING),
        }

    def round(self, name: str, *, warm_s: float, seconds: float) -> Served:
        """Let one of the oracles serve, and measure it."""
        oracle = Oracle(name, self._phoenix.address, self.oracles[name]())
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            list(threads.map(lambda one: self._move(one, warm_s), self._connections))
            began_s, used_s = time.monotonic(), oracle.processor_s()
            moved = list(threads.map(lambda one: self._move(one, seconds), self._connections))
            elapsed_s, used_s = time.monotonic() - began_s, oracle.processor_s() - used_s
        committed = sum(count for count, _ in moved)
        return Served(
            committed / elapsed_s,
            used_s / committed * 1e6,
            sum(tried - count for count, tried in moved),
            oracle.resident_mib(),
        )

    def _ours(self) -> int:
        self._phoenix.serve()
        assert self._phoenix.server is not None
        return self._phoenix.server.pid

    def _omids(self, folder: str, settings: Mapping[str, str]) -> int:
        self._phoenix.serve_omids(self._directory / folder, settings=settings, tuning=FULL_SPEED)
        return self._phoenix.omids_pid

    def _move(self, connection: Connection, seconds: float) -> tuple[int, int]:
        """Move until the time is over; how many committed, and how many were tried."""
        deadline_s = time.monotonic() + seconds
        committed = tried = 0
        while time.monotonic() < deadline_s:
            try:
                committed += connection.transfers(
                    TABLE, accounts=ACCOUNTS, times=_A_CALL, seed=next(self._seeds)
                )
                tried += _A_CALL
            except JavaError:
                # The oracle before is gone; a client finds the new one by itself.
                if time.monotonic() > deadline_s + PATIENCE_S:
                    raise
                time.sleep(_PAUSE_S)
        return committed, tried
