"""How many transactions a second, beside bare SQLite transactions that write the same cells?

Every transaction writes ten cells of two random rows.  The bare ones insert the ten cells into a
table of cells and commit with `synchronous=FULL`: no snapshot, no conflict detection, no commit
table, no shadow cells.  The kinds run in turns, from as many processes, as fast as they can.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Final, Protocol

import omidpy
from bench.measure import Result, percentile
from bench.workloads.bare import connect_bare, create_bare, write_bare
from bench.workloads.latency import shared

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
            cases: dict[str, tuple[Callable[..., None], tuple[str | None, ...]]] = {
                "bare SQLite": (_bare_worker, (str(bare),)),
                "omidpy, tso-server": (_omidpy_worker, (url, tso)),
            }
            if processes == 1:
                cases["omidpy, embedded oracle"] = (_omidpy_worker, (embedded, None))
            found: dict[str, list[list[float]]] = {name: [] for name in cases}
            for _ in range(rounds):
                for name, (worker, arguments) in cases.items():
                    found[name].append(_run(worker, arguments, processes, seconds))
            results += [
                _result(f"transactions, {name}", processes, seconds, runs)
                for name, runs in found.items()
            ]
    return results


def _result(name: str, processes: int, seconds: float, runs: list[list[float]]) -> Result:
    latencies = [latency for run in runs for latency in run]
    return Result(
        name,
        f"{processes} process{'es' if processes > 1 else ''} without pause",
        p50_ms=round(percentile(latencies, 0.50) * 1000, 3),
        p99_ms=round(percentile(latencies, 0.99) * 1000, 3),
        per_second=round(statistics.median(len(run) / seconds for run in runs), 1),
        count=len(latencies),
    )


def _run(
    worker: Callable[..., None],
    arguments: tuple[str | None, ...],
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
    write: Write, *, seed: int, seconds: float, barrier: Barrier, answers: _Numbers
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

        def write(rng: random.Random) -> None:
            for attempt in tm.attempts():
                with attempt as tx:
                    table = tx.table("throughput")
                    for _ in range(ROWS):
                        row = {b"f:%d" % column: b"value" for column in range(COLUMNS)}
                        table.put(b"%08d" % rng.randrange(KEYS), row)

        _write_until(write, seed=seed, seconds=seconds, barrier=barrier, answers=answers)


def _bare_worker(path: str, seed: int, seconds: float, barrier: Barrier, answers: _Numbers) -> None:
    connection = connect_bare(Path(path))

    def write(rng: random.Random) -> None:
        rows = {b"%08d" % rng.randrange(KEYS) for _ in range(ROWS)}
        write_bare(connection, rows, version=time.time_ns(), columns=COLUMNS)

    _write_until(write, seed=seed, seconds=seconds, barrier=barrier, answers=answers)
    connection.close()
