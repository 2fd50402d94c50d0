"""`python -m bench.hbase.roads`: what does a call of the store cost, with a gateway and without?

The same calls through `hbase+thrift2://` and `hbase://`, in turns within each round, on one HBase:
puts, changes on a condition, gets and scans, by one thread and by several of one process.  What
counts is the ratio of two numbers of one round, and the processor time of all processes together,
since the client, the gateway and HBase share the cores.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.hbase.exports import processor_s
from bench.hbase.rounds import Ratio, ratio
from bench.measure import Document, Result, commit_id, describe_machine, keep, today
from bench.run import print_results
from omidpy.model import Column, FamilySchema, TableSchema
from omidpy.opening import open_store
from omidpy.storage.base import Put, RowMutation, Store
from tests.machines.hbase import HBase

TABLE: Final = "roads"
CF: Final = b"f"
COLUMN, ABSENT = Column(CF, b"q"), Column(CF, b"x")
VALUE: Final = b"v" * 100
SCANNED: Final = {1: 60_000, 5: 20_000}
"""Rows of so many cells."""
DIRECT, GATEWAY = "direct", "Thrift2"
"""The roads."""

Work = Callable[[Store, bytes], object]


class RoadsDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    ratios: list[Ratio]


def put(store: Store, row: bytes) -> None:
    """Write a row of one cell."""
    store.write({TABLE: [RowMutation(row, [Put(*COLUMN, 1, VALUE)])]})


def change(store: Store, row: bytes) -> None:
    """Write a row on a condition that holds."""
    mutation = RowMutation(row, [Put(*COLUMN, 1, VALUE)])
    assert store.check_and_mutate(TABLE, row, ABSENT, None, mutation)


def get(store: Store, row: bytes) -> None:
    """Read a row."""
    store.get(TABLE, [row], max_versions=1)


def puts(store: Store, row: bytes) -> None:
    """Write 100 rows in one call."""
    rows = (RowMutation(b"%b-%d" % (row, one), [Put(*COLUMN, 1, VALUE)]) for one in range(100))
    store.write({TABLE: list(rows)})


WORKS: Final[dict[str, Work]] = {
    "put": put,
    "check-and-put": change,
    "get": get,
    "100 puts a call": puts,
}


def used_s(hbase: HBase) -> float:
    """Return the processor time so far of this process, the gateway and HBase together."""
    return sum(processor_s(hbase).values())


class Measured:
    """Operations a second, and microseconds of processor time for each, round by round."""

    def __init__(self) -> None:
        self.rates: dict[tuple[str, str], list[float]] = {}
        self.costs_us: dict[tuple[str, str], list[float]] = {}

    def add(self, work: str, road: str, count: int, elapsed_s: float, cost_s: float) -> None:
        """Add what one round came to."""
        self.rates.setdefault((work, road), []).append(count / elapsed_s)
        self.costs_us.setdefault((work, road), []).append(cost_s / count * 1e6)

    def results(self) -> Iterator[Result]:
        """Return the medians."""
        for (work, road), rates in self.rates.items():
            yield Result(
                f"{work}, {road}",
                f"median of {len(rates)} rounds",
                per_second=round(statistics.median(rates)),
                count=len(rates),
            )
            costs = self.costs_us[work, road]
            yield Result(
                f"{work}, {road}: microseconds of all processors",
                f"median of {len(costs)} rounds",
                ratio=round(statistics.median(costs), 2),
                count=len(costs),
            )

    def ratios(self) -> Iterator[Ratio]:
        """Return the direct road's over the gateway's."""
        for work in dict.fromkeys(work for work, _ in self.rates):
            rates, costs = self.rates, self.costs_us
            yield ratio(f"{work}, rate", rates[work, DIRECT], rates[work, GATEWAY])
            yield ratio(f"{work}, processor", costs[work, DIRECT], costs[work, GATEWAY])


def run(
    store: Store, work: Work, prefix: bytes, *, threads: int, seconds: float
) -> tuple[int, float]:
    """Do something for some seconds by some threads; return how often, and how long it took."""
    begin_s = time.perf_counter()

    def loop(thread: int) -> int:
        for count in itertools.count(1):
            work(store, b"%b-%d-%d" % (prefix, thread, count))
            if time.perf_counter() - begin_s >= seconds:
                return count
        raise AssertionError("it counts for ever")

    if threads == 1:
        return loop(0), time.perf_counter() - begin_s
    with ThreadPoolExecutor(threads) as pool:
        count = sum(pool.map(loop, range(threads)))
    return count, time.perf_counter() - begin_s


def scan(store: Store, cells: int) -> tuple[int, float]:
    """Read all rows of so many cells; return how many, and how long it took."""
    begin_s = time.perf_counter()
    count = sum(map(len, store.scan(f"{TABLE}{cells}", max_versions=1)))
    return count, time.perf_counter() - begin_s


def prepare(store: Store, *, quick: bool) -> None:
    """Make the tables."""
    store.create_table(TableSchema(TABLE, [FamilySchema(CF)]), splits=[b"m"])
    for cells, rows in SCANNED.items():
        store.create_table(TableSchema(f"{TABLE}{cells}", [FamilySchema(CF)]))
        for first in range(0, 1000 if quick else rows, 1000):
            store.write(
                {
                    f"{TABLE}{cells}": [
                        RowMutation(
                            b"r%08d" % row,
                            [Put(CF, b"q%d" % one, 1, VALUE) for one in range(cells)],
                        )
                        for row in range(first, first + 1000)
                    ]
                }
            )


def measure(
    stores: dict[str, Store],
    hbase: HBase,
    *,
    rounds: int,
    seconds: float,
    threads: int,
) -> Measured:
    """Do every work on every road, a first round to warm up and then so many."""
    measured = Measured()
    for number in range(rounds + 1):
        for name, work in WORKS.items():
            for count in (1, threads):
                for road, store in stores.items():
                    before_s = used_s(hbase)
                    done, elapsed_s = run(
                        store,
                        work,
                        b"%d-%s-%d" % (number, road.encode(), count),
                        threads=count,
                        seconds=seconds,
                    )
                    cost_s = used_s(hbase) - before_s
                    if number:
                        label = f"{name}, {count} thread{'s' if count > 1 else ''}"
                        measured.add(label, road, done, elapsed_s, cost_s)
        for cells in SCANNED:
            for road, store in stores.items():
                before_s = used_s(hbase)
                rows, elapsed_s = scan(store, cells)
                cost_s = used_s(hbase) - before_s
                if number:
                    measured.add(f"scan of {cells} cells a row", road, rows, elapsed_s, cost_s)
    return measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Start an HBase, measure, print, and keep the numbers."""
    parser = argparse.ArgumentParser(prog="python -m bench.hbase.roads", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each case in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    options = parser.parse_args(arguments)
    before = os.getloadavg()[0]
    with ExitStack() as resources:
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        hbase = resources.enter_context(HBase.start(directory / "hbase", quick=options.quick))
        stores: dict[str, Store] = {}
        for road, url in ((DIRECT, hbase.direct_url), (GATEWAY, hbase.thrift2_url)):
            stores[road] = resources.enter_context(closing(open_store(url)))
        prepare(stores[DIRECT], quick=options.quick)
        measured = measure(
            stores,
            hbase,
            rounds=1 if options.quick else options.rounds,
            seconds=0.05 if options.quick else options.seconds,
            threads=options.threads,
        )
        machine = describe_machine(directory)
    document = RoadsDocument(
        today(),
        commit_id(),
        machine,
        before,
        os.getloadavg()[0],
        list(measured.results()),
        ratios=list(measured.ratios()),
    )
    print_results(Console(width=160), document)
    for one in document.ratios:
        print(f"{one.name}: {one.median:.2f} {one.rounds}")
    keep(document, options.output, "hbase-roads")
    return 0


if __name__ == "__main__":
    sys.exit(main())
