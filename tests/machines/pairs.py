"""Writers whose transactions each write the same value into two rows of different regions.

Afterwards what was acknowledged is there, what was refused is not, what was unknown is what
`outcome` says it is; and all of it in both rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import omidpy
from omidpy.errors import CommitOutcomeUnknown, OmidError
from omidpy.facts.commit_table import create_system_tables
from omidpy.manager import TransactionManager
from omidpy.model import TransactionStatus
from omidpy.opening import open_store
from tests.machines.processes import ServerProcess

TABLE = "pairs"
COLUMN = b"cf:q"
WRITERS = 3
PACE_S = 0.02
"""Between two transactions of a writer: HBase needs the processor to come back."""
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
                while not self._stop.wait(PACE_S):
                    self._write_pair(tm, b"%d-%06d" % (number, count))
                    count += 1
        except BaseException as error:  # noqa: BLE001 - the test's thread reports it
            with self._news:
                self.strange.append(error)
                self._news.notify_all()

    def _write_pair(self, tm: TransactionManager, key: bytes) -> None:
        tx = None
        try:
            with tm.begin() as tx:
                table = tx.table(TABLE)
                table.put(b"a" + key, {COLUMN: key})
                table.put(b"z" + key, {COLUMN: key})
        except CommitOutcomeUnknown as error:
            assert tx is not None
            assert tx.status is TransactionStatus.UNKNOWN
            self.unknown[key] = error
        except OmidError:
            # Whatever it is called: the transaction must say that it did not commit.
            assert tx is None or tx.status is TransactionStatus.ROLLED_BACK
            self.refused.add(key)
        else:
            assert tx.status is TransactionStatus.COMMITTED
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
            self._server = ServerProcess(self._store, listen=self.address)


@contextmanager
def writers(
    url: str, *, oracles_url: str | None = None, clients_url: str | None = None
) -> Iterator[Load]:
    """Give writers for an empty table of two regions, and an oracle for them.

    Args:
        url: An empty store, in which all is set up.
        oracles_url: The address by which the oracle knows it, if that is another one.
        clients_url: The same for the writers.
    """
    with closing(open_store(url)) as store:
        create_system_tables(store)
    oracle = Oracle(oracles_url or url)
    try:
        with omidpy.connect(url, oracle.address) as tm:
            tm.create_table(TABLE, ["cf"], splits=[b"m"])
        yield Load(lambda: omidpy.connect(clients_url or url, oracle.address))
    finally:
        oracle.close()
