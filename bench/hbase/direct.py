"""`python -m bench.hbase.direct`: how fast is HBase without a gateway, beside what Java has?

Transactions on `hbase://` beside those of Omid's client in its low-latency mode, and bare calls
beside those of Java's own HBase client, in turns within each round, on one HBase.  What counts is
the ratio of two numbers of one round; beside it stands what each operation costs each process, in
processor time, since all of them share the cores.  At last a table is compacted in this process.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Self

from rich.console import Console

import omidpy
from bench.hbase import compaction, omid, work
from bench.hbase.fleet import Answer, Fleet, Job
from bench.hbase.rounds import SCANNED, SCANS, Ratio, ratio, timed
from bench.measure import Document, Result, commit_id, describe_machine, keep, percentile, today
from bench.processes import tso_server
from bench.run import print_results
from omidpy.model import FamilySchema, TableSchema
from omidpy.opening import open_store
from tests.machines.hbase import HBase, RunningHBase

OURS, PROCESSES, JAVA = "omidpy", "omidpy, processes", "Java"
SCAN_ROWS: Final = 20_000
COMPACTED_ROWS: Final = 10_000
WARM_UP_ROUNDS: Final = 2
"""Which do not count: the first transactions of a JVM are several times slower."""
AIM_HEALED: Final = 300_000
"""Healed cells that a pass reads for each second of a processor of its own."""
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_QUICKLY: Final = 40

Key = tuple[str, str, int]
"""Work, client, and number of workers."""


class DirectDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    ratios: list[Ratio]
    load_averages: list[float]
    """At the start of each round."""


class Bench:
    """Collects what each client did in each round, and what it cost which process."""

    def __init__(self, hbase: HBase, directory: Path, workers: int, rows: int) -> None:
        """Hold what is measured; `open` starts it."""
        self._hbase = hbase
        self._directory = directory
        self._workers = workers
        self._rows = rows
        self._resources = contextlib.ExitStack()
        self._pids: dict[str, list[int]] = {}
        self.answers: dict[Key, list[Answer]] = {}
        self.costs_us: dict[tuple[Key, str], list[float]] = {}
        self.load_averages: list[float] = []

    def __enter__(self) -> Self:
        """Start all clients and oracles, and fill the tables."""
        with contextlib.ExitStack() as resources:
            self._open(resources)
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        self._resources.close()

    def _open(self, resources: contextlib.ExitStack) -> None:
        url = self._hbase.direct_url
        store = resources.enter_context(contextlib.closing(open_store(url)))
        oracle: list[int] = []
        tso = resources.enter_context(
            tso_server(url, log=self._directory / "tso.log", on_start=oracle.append)
        )
        store.create_table(TableSchema(work.BARE_TABLE, (FamilySchema(work.FAMILY),)))
        where = work.Where(url, tso)
        self._manager = resources.enter_context(omidpy.connect(url, tso=tso))
        self._java = omid.Omid(
            omid.LOW_LATENCY, store, self._hbase.zookeeper, self._directory / "java", resources
        )
        self._manager.create_table(work.PUT_TABLE, families=["f"])
        for table, columns in SCANNED.items():
            self._manager.create_table(table, families=["f"])
            work.fill(self._manager, table, rows=self._rows, columns=columns)
            self._java.fill(table, rows=self._rows, columns=columns)
        self._lone = resources.enter_context(Fleet(1, where))
        self._fleet = resources.enter_context(Fleet(self._workers, where))
        self._clients = resources.enter_context(work.Clients(where, self._manager))
        self._pids = {
            **(
                {"HBase": [self._hbase.pid("master")]}
                if isinstance(self._hbase, RunningHBase)
                else {}
            ),
            "the client": [os.getpid(), *self._lone.pids, *self._fleet.pids],
            "our oracle": oracle,
            **self._java.pids,
        }

    def run(self, *, seconds: float, number: int) -> None:
        """Let every client do every kind of work once."""
        self.load_averages.append(round(os.getloadavg()[0], 2))
        workers = self._workers
        for count in (1, workers):
            for kind, rows in (("put", 1), ("get", 10)):
                job = Job(kind, rows, count, seconds, number)
                what = f"{kind} {rows} and commit"
                self._note((what, OURS, count), partial(self._lone.run, job))
                if count > 1:
                    alone = Job(kind, rows, 1, seconds, number)
                    self._note((what, PROCESSES, count), partial(self._fleet.run, alone))
                java = partial(self._java.run, kind, rows=rows, threads=count, seconds=seconds)
                self._note((what, JAVA, count), java)
            for kind in ("put", "get"):
                job = Job(f"native {kind}", 1, count, seconds, number)
                self._note((f"bare {kind}", OURS, count), partial(self._lone.run, job))
                java = partial(self._java.bare, kind, threads=count, seconds=seconds)
                self._note((f"bare {kind}", JAVA, count), java)
        client = self._clients.native()
        for table, columns in SCANNED.items():
            self._scan(
                f"snapshot scan of {columns} cells a row",
                partial(timed, partial(work.scan, self._manager, table)),
                partial(self._java.scan, table),
            )
            self._scan(
                f"bare scan of {columns} cells a row and as many shadow cells",
                partial(timed, partial(work.native_scan, client, table)),
                partial(self._java.bare_scan, table),
            )

    def _scan(
        self,
        what: str,
        ours: Callable[[], tuple[float, int]],
        java: Callable[[], tuple[float, int]],
    ) -> None:
        """Let each scan some times in turns; its quickest counts."""
        found: dict[str, list[tuple[float, int]]] = {OURS: [], JAVA: []}
        for _ in range(SCANS):
            for name, scan in ((OURS, ours), (JAVA, java)):
                found[name].append(scan())
        for name, times in found.items():
            elapsed_s, rows = min(times)
            if rows != self._rows:
                raise RuntimeError(f"{what}, {name}: {rows} rows")
            # Every row is an operation whose latency nobody measured.
            self.answers.setdefault((what, name, 1), []).append(Answer([0.0] * rows, elapsed_s))

    def _note(self, key: Key, case: Callable[[], Answer]) -> None:
        before = self._used_s()
        answer = case()
        self.answers.setdefault(key, []).append(answer)
        for who, after_s in self._used_s().items():
            cost_us = (after_s - before[who]) / len(answer.latencies_s) * 1e6
            self.costs_us.setdefault((key, who), []).append(cost_us)

    def _used_s(self) -> dict[str, float]:
        return {who: sum(map(_processor_s, pids)) for who, pids in self._pids.items()}

    # -- what was found ----------------------------------------------------------------------------

    def results(self) -> list[Result]:
        """Return the median round's rate, latencies of all rounds, and processor by process."""
        found: list[Result] = []
        for key, answers in self.answers.items():
            what, name, workers = key
            load = f"{workers} worker{'s' if workers > 1 else ''}"
            latencies = [latency for answer in answers for latency in answer.latencies_s]
            is_scan = "scan" in what
            found.append(
                Result(
                    f"{what}, {name}",
                    load,
                    p50_ms=None if is_scan else round(percentile(latencies, 0.50) * 1000, 3),
                    p99_ms=None if is_scan else round(percentile(latencies, 0.99) * 1000, 3),
                    per_second=round(statistics.median(one.per_second for one in answers), 1),
                    count=len(latencies),
                )
            )
            for (of, who), costs in self.costs_us.items():
                cost_us = round(statistics.median(costs), 1)
                if of == key and cost_us >= 1:
                    text = f"{what}, {name}: microseconds of {who}"
                    found.append(Result(text, load, ratio=cost_us, count=len(costs)))
        return found

    def ratios(self) -> list[Ratio]:
        """Compare what the aims compare."""
        many = self._workers
        found = [
            ratio(
                f"put 1 and commit, {many} {'threads' if name == OURS else 'processes'}",
                self._rates("put 1 and commit", name, many),
                self._rates("put 1 and commit", JAVA, many),
                least=1.2,
            )
            for name in (OURS, PROCESSES)
        ]
        found.append(
            ratio(
                "lone put 1 and commit, p50",
                self._medians_s("put 1 and commit", OURS),
                self._medians_s("put 1 and commit", JAVA),
                most=0.7,
            )
        )
        found += [
            ratio(
                f"get 10 and commit, {many} {'threads' if name == OURS else 'processes'}",
                self._rates("get 10 and commit", name, many),
                self._rates("get 10 and commit", JAVA, many),
                least=2.0,
            )
            for name in (OURS, PROCESSES)
        ]
        for what in sorted({what for what, _, _ in self.answers if "scan" in what}):
            least = 0.8 if what.startswith("snapshot") else 0.7
            ours, java = self._rates(what, OURS, 1), self._rates(what, JAVA, 1)
            found.append(ratio(what, ours, java, least=least))
        for what in ("bare put", "bare get"):
            for workers in (1, many):
                label = f"{what}, {workers} thread{'s' if workers > 1 else ''}"
                ours, java = self._rates(what, OURS, workers), self._rates(what, JAVA, workers)
                found.append(ratio(label, ours, java, least=0.7))
        return found

    def _rates(self, what: str, name: str, workers: int) -> list[float]:
        return [answer.per_second for answer in self.answers[what, name, workers]]

    def _medians_s(self, what: str, name: str) -> list[float]:
        return [percentile(one.latencies_s, 0.5) for one in self.answers[what, name, 1]]


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def measure(
    hbase: HBase,
    directory: Path,
    *,
    seconds: float,
    rounds: int,
    warm_up: int,
    workers: int,
    quick: bool,
) -> DirectDocument:
    """Measure on `hbase`, which has no tables."""
    before = os.getloadavg()[0]
    less = _QUICKLY if quick else 1
    # First: a compaction looks into every table of the store.
    compacted = compaction.measure(hbase.direct_url, directory, rows=COMPACTED_ROWS // less)
    rows = SCAN_ROWS if not quick else max(work.GET_KEYS, SCAN_ROWS // less)
    with Bench(hbase, directory, workers, rows) as bench:
        for number in range(warm_up):
            bench.run(seconds=seconds, number=-1 - number)
        bench.answers.clear()
        bench.costs_us.clear()
        for number in range(rounds):
            bench.run(seconds=seconds, number=number)
    healed = next(
        one.per_second
        for one in compacted
        if one.name == "compaction, every cell healed before, of a processor of its own"
    )
    assert healed is not None
    aim = ratio("healed cells read for a second of a processor", [healed], [1.0], least=AIM_HEALED)
    return DirectDocument(
        today(),
        commit_id(),
        describe_machine(directory),
        before,
        os.getloadavg()[0],
        bench.results() + compacted,
        ratios=[*bench.ratios(), aim],
        load_averages=bench.load_averages,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the numbers; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.hbase.direct", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each case in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=WARM_UP_ROUNDS, help="rounds before")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as resources:
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        hbase = resources.enter_context(HBase.start(directory / "hbase", quick=options.quick))
        document = measure(
            hbase,
            directory,
            seconds=0.05 if options.quick else options.seconds,
            rounds=1 if options.quick else options.rounds,
            warm_up=0 if options.quick else options.warm_up,
            workers=options.workers,
            quick=options.quick,
        )
    print_results(Console(width=160), document)
    for one in document.ratios:
        met = "" if one.is_met is None else ", met" if one.is_met else ", missed"
        print(f"{one.name}: {one.median:.2f} {one.rounds} ({one.aim}{met})")
    keep(document, options.output, "hbase-direct")
    return 0


if __name__ == "__main__":
    sys.exit(main())
