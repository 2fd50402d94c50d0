"""How many transactions a second, beside bare SQLite transactions that write the same cells?

Every transaction writes ten cells of two random rows.  The bare ones insert the ten cells into a
table of cells and commit with `synchronous=FULL`: no snapshot, no conflict detection, no commit
table, no shadow cells.  The kinds run in turns, from as many processes, as fast as they can; those
with an oracle of their own from as many threads of one process.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Protocol

import omidpy
from bench.measure import Result, percentile
from bench.workloads.bare import connect_bare, create_bare, write_bare
from bench.workloads.latency import shared
from omidpy.manager import TransactionManager

ROWS: Final = 2
COLUMNS: Final = 5
KEYS: Final = 1_000_000
_START_TIMEOUT_S: Final = 60.0

Write = Callable[[random.Random], None]


class _Numbers(Protocol):
    """The queue over which workers answer."""

    def put(self, item: list[float]) -> None: ...
    def get(self) -> list[float]: ...


def measure(
    directory: Path, *, seconds: float, rounds: int, process_counts: Sequence[int]
) -> list[Result]:
    """Measure each kind `rounds` times for `seconds`; the median round counts."""
    bare = directory / "bare.db"
    create_bare(bare)
    embedded = f"sqlite:///{directory}/embedded-throughput.db"
    results = []
    with shared(directory / "shared.db") as (url, tso):
        for address, oracle in ((embedded, None), (url, tso)):
            with omidpy.connect(address, tso=oracle) as tm:
                tm.create_table("throughput", families=["f"])
        for processes in process_counts:
            cases: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
                "bare SQLite": (_bare_worker, (str(bare),)),
                "omidpy, tso-server": (_omidpy_worker, (url, tso)),
            }
            found: dict[str, list[list[float]]] = {name: [] for name in cases}
            own = found.setdefault("omidpy, embedded oracle", [])
            for _ in range(rounds):
                for name, (worker, arguments) in cases.items():
                    found[name].append(_run(worker, arguments, processes, seconds))
                own.append(_run(_omidpy_threads, (embedded, processes), 1, seconds))
            results += [
                _result(f"transactions, {name}", processes, seconds, runs, in_threads=runs is own)
                for name, runs in found.items()
            ]
    return results


def _result(
    name: str, count: int, seconds: float, runs: list[list[float]], *, in_threads: bool
) -> Result:
    latencies = [latency for run in runs for latency in run]
    one, many = ("thread", "threads") if in_threads else ("process", "processes")
    return Result(
        name,
        f"{count} {many if count > 1 else one} without pause",
        p50_ms=round(percentile(latencies, 0.50) * 1000, 3),
        p99_ms=round(percentile(latencies, 0.99) * 1000, 3),
        per_second=round(statistics.median(len(run) / seconds for run in runs), 1),
        count=len(latencies),
    )


def _run(
    worker: Callable[..., None],
    arguments: tuple[Any, ...],
    processes: int,
    seconds: float,
) -> list[float]:
    """Return the latencies of the transactions that all workers ended within the time."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    answers: _Numbers = context.SimpleQueue()
    workers = [
        context.Process(target=worker, args=(*arguments, seed, seconds, barrier, answers))
        for seed in range(processes)
    ]
    for process in workers:
        process.start()
    found = [latency for _ in workers for latency in answers.get()]
    for process in workers:
        process.join()
    return found


def _write_until(
    write: Write,
    *,
    seed: int,
    seconds: float,
    barrier: Barrier | threading.Barrier,
    answers: _Numbers,
) -> None:
    rng = random.Random(seed)
    write(rng)
    barrier.wait(_START_TIMEOUT_S)
    deadline_s = time.perf_counter() + seconds
    latencies = []
    while (began_s := time.perf_counter()) < deadline_s:
        write(rng)
        latencies.append(time.perf_counter() - began_s)
    answers.put(latencies)


def _omidpy_worker(
    url: str, tso: str | None, seed: int, seconds: float, barrier: Barrier, answers: _Numbers
) -> None:
    with omidpy.connect(url, tso=tso) as tm:
        write = partial(_transact, tm)
        _write_until(write, seed=seed, seconds=seconds, barrier=barrier, answers=answers)


def _omidpy_threads(
    url: str, count: int, seed: int, seconds: float, barrier: Barrier, answers: _Numbers
) -> None:
    """Let threads of one process write, and answer with the latencies of all."""
    together = threading.Barrier(count)
    told: SimpleQueue[list[float]] = SimpleQueue()
    with omidpy.connect(url) as tm, ThreadPoolExecutor(count) as pool:
        barrier.wait(_START_TIMEOUT_S)
        writing = [
            pool.submit(
                _write_until,
                partial(_transact, tm),
                seed=seed + number,
                seconds=seconds,
                barrier=together,
                answers=told,
            )
            for number in range(count)
        ]
        for one in writing:
            one.result()
    answers.put([latency for _ in writing for latency in told.get()])


def _transact(tm: TransactionManager, rng: random.Random) -> None:
    for attempt in tm.attempts():
        with attempt as tx:
            table = tx.table("throughput")
            for _ in range(ROWS):
                row = {b"f:%d" % column: b"value" for column in range(COLUMNS)}
                table.put(b"%08d" % rng.randrange(KEYS), row)


def _bare_worker(path: str, seed: int, seconds: float, barrier: Barrier, answers: _Numbers) -> None:
    connection = connect_bare(Path(path))

    def write(rng: random.Random) -> None:
        rows = {b"%08d" % rng.randrange(KEYS) for _ in range(ROWS)}
        write_bare(connection, rows, version=time.time_ns(), columns=COLUMNS)

    _write_until(write, seed=seed, seconds=seconds, barrier=barrier, answers=answers)
    connection.close()
