"""The same work through every client in turns, several times over.

What counts is the ratio of two rates of one round: both met the same other load on the machine.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from bench.hbase import work
from bench.hbase.fleet import Answer, Fleet, Job
from bench.hbase.omid import Omid
from bench.measure import Result, percentile
from omidpy.manager import TransactionManager

BARE: Final = "bare Thrift2"
OURS: Final = "omidpy"
THREADS: Final = "omidpy, threads"
SCANNED: Final = {work.READ_TABLE: 1, work.WIDE_TABLE: 5}
"""Tables that are scanned, with their number of columns."""
SCANS: Final = 5
"""Scans of each table by each client in a round; one takes a tenth of a second."""


class Ratio(msgspec.Struct, frozen=True):
    """One rate over another, both of the same round."""

    name: str
    median: float
    rounds: list[float]
    aim: str = ""
    is_met: bool | None = None


class Rounds:
    """Collects what each client did in each round."""

    def __init__(
        self, manager: TransactionManager, fleet: Fleet, lone: Fleet, java: dict[str, Omid]
    ) -> None:
        """Measure by `fleet` (some processes) and `lone` (one process) of ours and Java's clients.

        `manager` is ours, for scans.
        """
        self._manager = manager
        self._fleet = fleet
        self._lone = lone
        self._java = java
        self.answers: dict[tuple[str, str, int], list[Answer]] = {}
        """By work, client and number of workers; one for each round."""
        self.load_averages: list[float] = []

    def run(self, *, seconds: float, workers: int, number: int) -> None:
        """Let every client do every kind of work once."""
        self.load_averages.append(os.getloadavg()[0])
        for what, rows in (("put", 1), ("put", 10), ("get", 10)):
            for count, fleet in ((1, self._lone), (workers, self._fleet)):
                cases: dict[str, Callable[[], Answer]] = {
                    BARE: partial(fleet.run, Job(f"bare {what}", rows, 1, seconds, number)),
                    OURS: partial(fleet.run, Job(what, rows, 1, seconds, number)),
                }
                if count > 1:
                    cases[THREADS] = partial(
                        self._lone.run, Job(what, rows, count, seconds, number)
                    )
                for name, omid in self._java.items():
                    cases[name] = partial(omid.run, what, rows=rows, threads=count, seconds=seconds)
                for name, case in cases.items():
                    self._note(f"{what} {rows}", name, count, case())
        for table, columns in SCANNED.items():
            self._scan(f"scan of {columns} cells a row", table)

    def _scan(self, what: str, table: str) -> None:
        """Let each scan a table some times in turns; its quickest counts."""
        with work.Clients(work.Where(self._manager.store.url, ""), self._manager) as clients:
            scans: dict[str, Callable[[], tuple[float, int]]] = {
                BARE: partial(timed, partial(work.bare_scan, clients.bare(), table)),
                OURS: partial(timed, partial(work.scan, self._manager, table)),
            }
            for name, omid in self._java.items():
                scans[name] = partial(omid.scan, table)
            found: dict[str, list[tuple[float, int]]] = {name: [] for name in scans}
            for _ in range(SCANS):
                for name, scan in scans.items():
                    found[name].append(scan())
        for name, times in found.items():
            elapsed_s, rows = min(times)
            # Every row is an operation whose latency nobody measured.
            self._note(what, name, 1, Answer([0.0] * rows, elapsed_s))

    def _note(self, what: str, name: str, workers: int, answer: Answer) -> None:
        self.answers.setdefault((what, name, workers), []).append(answer)

    # -- what was found ----------------------------------------------------------------------------

    def results(self) -> list[Result]:
        """Return what each client did, the median round for rates and all rounds for latencies."""
        found = []
        for (what, name, workers), answers in self.answers.items():
            rate = statistics.median(answer.per_second for answer in answers)
            load = f"{workers} worker{'s' if workers > 1 else ''} without pause"
            if what.startswith("scan"):
                found.append(
                    Result(f"{what}, {name}", load, per_second=round(rate, 1), count=len(answers))
                )
                continue
            latencies = [latency for answer in answers for latency in answer.latencies_s]
            found.append(
                Result(
                    f"{what}, {name}",
                    load,
                    p50_ms=round(percentile(latencies, 0.50) * 1000, 3),
                    p99_ms=round(percentile(latencies, 0.99) * 1000, 3),
                    per_second=round(rate, 1),
                    count=len(latencies),
                )
            )
        return found

    def rates(self, what: str, name: str, workers: int) -> list[float]:
        """Return the rate of each round."""
        return [answer.per_second for answer in self.answers[what, name, workers]]

    def medians_s(self, what: str, name: str, workers: int) -> list[float]:
        """Return the median latency of each round."""
        return [percentile(one.latencies_s, 0.5) for one in self.answers[what, name, workers]]


def timed(scan: Callable[[], int]) -> tuple[float, int]:
    """Scan; return how many seconds it took, and the rows."""
    began_s = time.perf_counter()
    rows = scan()
    return time.perf_counter() - began_s, rows


def ratio(
    name: str,
    over: list[float],
    under: list[float],
    *,
    least: float | None = None,
    most: float | None = None,
) -> Ratio:
    """Return the ratio of two lists round by round, and whether its median is what was aimed at."""
    rounds = [round(one / other, 3) for one, other in zip(over, under, strict=True)]
    median = statistics.median(rounds)
    if least is not None:
        return Ratio(name, median, rounds, f"at least {least:g}", median >= least)
    if most is not None:
        return Ratio(name, median, rounds, f"at most {most:g}", median <= most)
    return Ratio(name, median, rounds)
