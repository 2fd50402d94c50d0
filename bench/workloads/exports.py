"""How many entries a second do export queues take and deliver, and how late is a lone one?

Values of 100 bytes, 100 entries in each transaction, 16 buckets, and an exporter that counts: what
Fluo's recipe was measured with, which came to 610 added and 539 drained a second.  An entry counts
as added once its shadow cell is written, and as drained once it is out of the queue.

Three phases: adding alone, draining alone, and both at the same time.  Then the queue is idle, and
entries come one at a time: how long after its commit does each reach the exporter?
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import omidpy
from bench.measure import Result, latencies
from bench.workloads.latency import shared
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import Batch, ExportQueue, Runner

QUEUE: Final = "bench"
BUCKETS: Final = 16
ENTRIES_PER_TRANSACTION: Final = 100
VALUE: Final = bytes(100)
KEYS: Final = 100_000
MAX_POLL_S: Final = 1.0
_LOOK_S: Final = 0.001
_PATIENCE_S: Final = 600.0


class Counter:
    """An exporter that counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def __call__(self, batch: Batch) -> None:
        """Count a batch."""
        with self._lock:
            self.count += len(batch)


def measure(directory: Path, *, transactions: int, lone: int) -> list[Result]:
    """Measure on a file: with the oracle in the process, and through `tso-server`."""
    url = f"sqlite:///{directory}/embedded-exports.db"
    found = []
    with omidpy.connect(url) as tm:
        found += results(tm, "embedded", transactions=transactions, lone=lone, threads=1)
    with shared(directory / "shared-exports.db") as (url, tso), omidpy.connect(url, tso=tso) as tm:
        found += results(tm, "tso-server", transactions=transactions, lone=lone, threads=1)
    return found


def results(
    tm: TransactionManager,
    where: str,
    *,
    transactions: int,
    lone: int,
    threads: int,
    around: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> list[Result]:
    """Measure each phase, with so many threads that add, and as many that export.

    Args:
        tm: Its store has no queue of this name.
        where: What results are named by.
        transactions: How many are added in each phase.
        lone: How many entries come one at a time.
        threads: How many there are on each side.
        around: What is entered around each phase, which it is told the name of.
    """
    queue = ExportQueue.create(tm, QUEUE, buckets=BUCKETS, codec="bytes")
    phases = Phases(tm, queue, threads)
    phases.both(max(threads, transactions // 4))  # warms every part up
    entries = transactions * ENTRIES_PER_TRANSACTION
    load = f"{threads} threads, {ENTRIES_PER_TRANSACTION} entries a transaction"
    seconds = {}
    for what, phase, count in (
        ("added", phases.add, transactions),
        ("drained", phases.drain, entries),
        ("added and drained", phases.both, transactions),
    ):
        with around(what):
            seconds[what] = phase(count)
    rates = [
        Result(
            f"entries {what}, {where}", load, per_second=round(entries / took_s, 1), count=entries
        )
        for what, took_s in seconds.items()
    ]
    load = f"idle, polled every {MAX_POLL_S:g} s at least"
    late = [
        latencies(f"entry on its way, {where}", load, phases.lone(lone, is_woken=True)),
        latencies(
            f"entry of another process on its way, {where}",
            load,
            phases.lone(lone, is_woken=False),
        ),
    ]
    queue.drop()
    return [*rates, *late]


class Phases:
    """The parts of a measurement, each of which returns seconds."""

    def __init__(self, tm: TransactionManager, queue: ExportQueue, threads: int) -> None:
        self.tm = tm
        self.queue = queue
        self.threads = threads

    def add(self, transactions: int) -> float:
        """Add entries."""
        began_s = time.perf_counter()
        self._add(transactions)
        return time.perf_counter() - began_s

    def drain(self, entries: int) -> float:
        """Drain entries that are there."""
        began_s = time.perf_counter()
        with self._running() as (counter, _):
            _wait(lambda: counter.count >= entries)
        return time.perf_counter() - began_s

    def both(self, transactions: int) -> float:
        """Add and drain at the same time, until all is drained."""
        began_s = time.perf_counter()
        with self._running() as (counter, _):
            self._add(transactions)
            _wait(lambda: counter.count >= transactions * ENTRIES_PER_TRANSACTION)
        return time.perf_counter() - began_s

    def lone(self, count: int, *, is_woken: bool) -> list[float]:
        """Add entries one at a time while nothing else happens; return how late each was.

        Args:
            count: How many.
            is_woken: Whether exporters of this process are told.
        """
        rng = random.Random(13)
        found = []
        with self._running() as (counter, _):
            for number in range(count):
                time.sleep(rng.uniform(1.0, 3.0) * MAX_POLL_S if count > 1 else 0)
                with self.tm.begin() as tx:
                    if is_woken:
                        self.queue.add(tx, b"%d" % number, VALUE)
                    else:
                        # What a worker adds, in whatever process it is, nobody hears of.
                        worker = self.tm.resume(tx.token())
                        self.queue.add(worker, b"%d" % number, VALUE)
                        tx.merge(worker.finish())
                began_s = time.perf_counter()
                _wait(lambda number=number: counter.count > number)  # type: ignore[misc]
                found.append(time.perf_counter() - began_s)
        return found

    def _add(self, transactions: int) -> None:
        each = -(-transactions // self.threads)
        adders = [
            threading.Thread(target=self._add_in_thread, args=(number, each))
            for number in range(self.threads)
        ]
        for thread in adders:
            thread.start()
        for thread in adders:
            thread.join()
        self.tm.session.post_committer.drain()

    def _add_in_thread(self, seed: int, transactions: int) -> None:
        rng = random.Random(seed)
        for _ in range(transactions):
            with self.tm.begin() as tx:
                queue = self.queue.within(tx)
                for _ in range(ENTRIES_PER_TRANSACTION):
                    queue.add(b"%d" % rng.randrange(KEYS), VALUE)

    @contextmanager
    def _running(self) -> Iterator[tuple[Counter, Runner]]:
        """Run an exporter; what it took is out of the queue at the end of the block."""
        counter = Counter()
        runner = self.queue.runner(counter, workers=self.threads, max_poll_s=MAX_POLL_S)
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            yield counter, runner
        finally:
            runner.stop()
            thread.join()


def _wait(is_over: Callable[[], bool]) -> None:
    until_s = time.perf_counter() + _PATIENCE_S
    while not is_over():
        if time.perf_counter() > until_s:
            raise RuntimeError("entries that were added do not come out")
        time.sleep(_LOOK_S)
