"""Clients that do one recorded transaction after the other, by themselves or taking turns.

A transaction is a generator that pauses between its steps.  A client process runs each to its end;
`interleave` takes turns among many clients in one thread, by a seed, and lets some of them die at a
pause: a generator that is dropped does nothing more, like a process that was killed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Final, Protocol, TypeAlias

from omidpy.errors import (
    CommitOutcomeUnknown,
    OmidError,
    OracleUnavailable,
    SnapshotTooOld,
    StorageUnavailable,
    TransactionAborted,
)
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed
from omidpy.testing.anomalies import Anomaly
from omidpy.testing.checkers import check_order
from omidpy.testing.history import Event, Recorded, Recorder, TransactionRecord, transactions
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction

ROLLBACK_SHARE: Final = 0.05
"""Transactions that end with `rollback` although nothing is wrong."""

Steps: TypeAlias = Iterator[None]
"""Work in progress: it goes on by one step whenever it is asked."""

Body: TypeAlias = Callable[[Transaction, TransactionalTable, TransactionRecord], Steps]
"""What a transaction does between its begin and its end."""

_AT_BEGIN: Final = (OracleUnavailable, StorageUnavailable)
"""Errors behind which nothing has begun."""

_BEFORE_COMMIT: Final = (TransactionAborted, OracleUnavailable, StorageUnavailable)
"""Errors that end a transaction which has not asked for its commit yet."""


class Workload(Protocol):
    """A kind of transaction, and what must hold of its history."""

    @property
    def name(self) -> str:
        """What its transactions are recorded under."""
        ...

    @property
    def table(self) -> str:
        """The table it uses."""
        ...

    def prepare(self, client: Client) -> Steps:
        """Make the table and fill it."""
        ...

    def transaction(self, client: Client) -> Steps:
        """Do one transaction of random kind."""
        ...

    def last_look(self, client: Client, keys: Iterable[str]) -> Steps:
        """Read every key once, at the end: what was acknowledged must be there."""
        ...

    def check(self, history: Sequence[Recorded]) -> list[Anomaly]:
        """Judge what the transactions of this workload read."""
        ...


class Client:
    """One client: a manager, a record and dice.  It does one transaction at a time."""

    def __init__(
        self, tm: TransactionManager, recorder: Recorder, rng: random.Random, *, number: int
    ) -> None:
        """Begin with nothing done.

        Args:
            tm: Shared with other clients or not.
            recorder: Of this client alone.
            rng: Where its choices come from.
            number: Makes the values it writes unique among all clients of the history.
        """
        self.tm = tm
        self.recorder = recorder
        self.rng = rng
        self._values = count(number * 10_000_000 + 1)

    def value(self) -> int:
        """Return a number that nobody writes but this client, now."""
        return next(self._values)

    def chance(self, share: float) -> bool:
        """Say yes with this probability."""
        return self.rng.random() < share

    def transaction(
        self, workload: Workload, body: Body, *, rollback_share: float = ROLLBACK_SHARE
    ) -> Steps:
        """Do one transaction and record what becomes of it."""
        began_ns = self.recorder.now_ns()
        try:
            tx = self.tm.begin()
        except _AT_BEGIN:
            return  # Nothing began, so there is nothing to record.
        record = self.recorder.begin(workload.name, start_ts=tx.start_ts, began_ns=began_ns)
        yield
        try:
            yield from body(tx, tx.table(workload.table), record)
        except _BEFORE_COMMIT as error:
            if tx.is_running:
                tx.rollback()
            record.aborted(type(error).__name__)
            return
        if self.chance(rollback_share):
            tx.rollback()
            record.aborted("rolled back")
        else:
            self._commit(tx, record)

    def look_back(self, workload: Workload, at: int, body: Body) -> Steps:
        """Read at an earlier moment."""
        began_ns = self.recorder.now_ns()
        try:
            tx = self.tm.snapshot(at=at)
        except (*_AT_BEGIN, SnapshotTooOld):
            return
        record = self.recorder.begin(
            workload.name, start_ts=tx.start_ts, began_ns=began_ns, is_historical=True
        )
        yield
        try:
            yield from body(tx, tx.table(workload.table), record)
        except _BEFORE_COMMIT as error:
            record.aborted(type(error).__name__)
            return
        self._commit(tx, record)

    def _commit(self, tx: Transaction, record: TransactionRecord) -> None:
        record.committing()
        try:
            tx.commit()
        except TransactionAborted as error:
            record.aborted(type(error).__name__)
        except CommitOutcomeUnknown as error:
            self._find_out(error, record)
        else:
            record.committed(tx.commit_ts)

    def _find_out(self, error: CommitOutcomeUnknown, record: TransactionRecord) -> None:
        try:
            outcome = self.tm.outcome(error)
        except OmidError:
            record.unknown()
            return
        match outcome:
            case Committed():
                record.committed(outcome.commit_ts)
            case Aborted():
                record.aborted("found aborted")
            case _:
                record.unknown()


def run(steps: Steps) -> None:
    """Take every step, one after another."""
    for _ in steps:
        pass


def interleave(
    managers: Sequence[TransactionManager],
    workloads: Sequence[Workload],
    *,
    seed: int,
    client_count: int = 4,
    transaction_count: int = 200,
    crash_share: float = 0.0,
    between_steps: Callable[[], object] = lambda: None,
) -> list[Recorded]:
    """Let clients take turns in this thread; the same seed gives the same history.

    Args:
        managers: Given to the clients in turn.
        workloads: One of them is drawn for each transaction.
        seed: Of every choice.
        client_count: Transactions that run at the same time.
        transaction_count: How many are begun in all.
        crash_share: Steps after which the client dies instead of going on.
        between_steps: Called after every step, for faults and chores.
    """
    rng = random.Random(seed)
    events: list[Event] = []
    ticks = count(1)
    clients = [
        Client(
            managers[number % len(managers)],
            Recorder(str(number), events.append, now_ns=lambda: next(ticks)),
            random.Random(rng.random()),
            number=number,
        )
        for number in range(client_count + 1)
    ]
    for workload in workloads:
        run(workload.prepare(clients[-1]))
    working: dict[int, Steps] = {}
    begun = 0
    while begun < transaction_count or working:
        number = rng.randrange(client_count) if begun < transaction_count else min(working)
        if number not in working:
            begun += 1
            working[number] = rng.choice(workloads).transaction(clients[number])
        elif rng.random() < crash_share:
            del working[number]
            continue
        if next(working[number], working) is working:
            del working[number]
        between_steps()
    take_last_looks(clients[-1], workloads, transactions(events))
    return transactions(events)


def take_last_looks(
    client: Client, workloads: Sequence[Workload], history: Sequence[Recorded]
) -> None:
    """Read, workload by workload, every key that the history names."""
    for workload in workloads:
        keys = {
            operation.key
            for one in history
            if one.workload == workload.name
            for operation in one.operations
        }
        run(workload.last_look(client, sorted(keys)))


def check(workloads: Sequence[Workload], history: Sequence[Recorded]) -> list[Anomaly]:
    """Judge a history: its order as a whole, and each workload's part by its own checker."""
    found = check_order(history)
    for workload in workloads:
        found += workload.check([one for one in history if one.workload == workload.name])
    return found
