"""`python -m bench.hbase`: measure on a real HBase, print the numbers, and keep them as a file.

It starts its own HBase, or takes one that `python -m tests.machines.hbase DIRECTORY` runs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

import omidpy
from bench.hbase import compaction, exports, omid, rounds, work
from bench.hbase.fleet import Fleet, Job
from bench.hbase.profile import Step, profile
from bench.hbase.rounds import BARE, OURS, THREADS, Ratio, Rounds, ratio
from bench.measure import Document, Result, commit_id, describe_machine, keep, today
from bench.processes import tso_server
from bench.run import print_results
from bench.workloads import pruning
from omidpy.facts.commit_table import create_system_tables
from omidpy.model import FamilySchema, TableSchema
from omidpy.opening import open_store
from tests.machines.hbase import HBase

SCAN_ROWS: Final = 10_000
COMPACTED_ROWS: Final = 10_000
PRUNED_ENTRIES: Final = 100_000
EXPORTED_TRANSACTIONS: Final = 300
EXPORTING_THREADS: Final = 4
PROFILED: Final = 1000
WARM_UP_ROUNDS: Final = 3
_QUICKLY: Final = 50
"""A quick run does so much less, and measures nothing."""


class HBaseDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    ratios: list[Ratio]
    load_averages: list[float]
    """At the start of each round."""
    profile: list[Step]
    """Where the time of a lone put and commit goes."""


def measure(
    hbase: HBase, directory: Path, *, seconds: float, count: int, workers: int, quick: bool
) -> HBaseDocument:
    """Measure on `hbase`, which has no tables.

    Args:
        hbase: Where to measure.
        directory: For logs.
        seconds: How long each client does each kind of work in each round.
        count: Rounds.
        workers: Processes, or threads, that work at the same time.
        quick: Only show that everything runs; the numbers mean nothing.
    """
    before = os.getloadavg()[0]
    less = _QUICKLY if quick else 1
    # First: a compaction looks into every table of the store.
    compacted = compaction.measure(hbase.thrift2_url, directory, rows=COMPACTED_ROWS // less)
    compacted += pruned(hbase, quick=quick)
    measured = _rounds(
        hbase,
        directory,
        seconds=seconds,
        count=count,
        workers=workers,
        rows=SCAN_ROWS,
        warm_up_count=0 if quick else WARM_UP_ROUNDS,
    )
    steps = profile(hbase.thrift2_url, directory, count=PROFILED // less)
    return HBaseDocument(
        today(),
        commit_id(),
        describe_machine(directory),
        before,
        os.getloadavg()[0],
        measured.results() + compacted,
        ratios=ratios(measured, workers),
        load_averages=[round(load, 2) for load in measured.load_averages],
        profile=steps,
    )


def pruned(hbase: HBase, *, quick: bool) -> list[Result]:
    """Measure how fast commit entries go."""
    with contextlib.closing(open_store(hbase.thrift2_url)) as store:
        create_system_tables(store)
        entries = PRUNED_ENTRIES // (_QUICKLY if quick else 1)
        return pruning.results(store, entries=entries, rounds=1 if quick else 5)


def _rounds(
    hbase: HBase,
    directory: Path,
    *,
    seconds: float,
    count: int,
    workers: int,
    rows: int,
    warm_up_count: int,
) -> Rounds:
    with contextlib.ExitStack() as resources:
        store = resources.enter_context(contextlib.closing(open_store(hbase.thrift2_url)))
        tso = resources.enter_context(tso_server(hbase.thrift2_url, log=directory / "tso.log"))
        store.create_table(TableSchema(work.BARE_TABLE, (FamilySchema(work.FAMILY),)))
        manager = resources.enter_context(omidpy.connect(hbase.thrift2_url, tso=tso))
        java = {
            mode.name: omid.Omid(
                mode, store, hbase.zookeeper, directory / mode.name.replace(" ", "-"), resources
            )
            for mode in omid.MODES
        }
        manager.create_table(work.PUT_TABLE, families=["f"])
        for table, columns in rounds.SCANNED.items():
            manager.create_table(table, families=["f"])
            work.fill(manager, table, rows=rows, columns=columns)
            for client in java.values():
                client.fill(table, rows=rows, columns=columns)
        where = work.Where(hbase.thrift2_url, tso)
        lone = resources.enter_context(Fleet(1, where))
        fleet = resources.enter_context(Fleet(workers, where))
        # The first 10,000 calls to a JVM are several times slower than those that follow.
        fleet.run(Job("bare put", 1, 1, 2 * seconds, 0))
        for _ in range(warm_up_count):
            Rounds(manager, fleet, lone, java).run(seconds=seconds, workers=workers, number=-1)
        measured = Rounds(manager, fleet, lone, java)
        for number in range(count):
            measured.run(seconds=seconds, workers=workers, number=number)
        return measured


def ratios(measured: Rounds, workers: int) -> list[Ratio]:
    """Compare what the aims compare."""
    fastest = omid.LOW_LATENCY.name
    found = []
    for what in ("put 1", "put 10", "get 10"):
        aim = 2.0 if what == "put 1" else None
        found += [
            ratio(
                f"{what}, {workers} workers: {name} over {fastest}",
                measured.rates(what, name, workers),
                measured.rates(what, fastest, workers),
                least=aim,
            )
            for name in (OURS, THREADS)
        ]
        found.append(
            ratio(
                f"{what}, 1 worker: {OURS} over {fastest}",
                measured.rates(what, OURS, 1),
                measured.rates(what, fastest, 1),
            )
        )
    found.append(
        ratio(
            "put 1, 1 worker: latency of a transaction over that of a bare put",
            measured.medians_s("put 1", OURS, 1),
            measured.medians_s("put 1", BARE, 1),
            most=3.0,
        )
    )
    found += [
        ratio(
            f"put 10, {workers} workers: {name} over bare putMultiple of ten",
            measured.rates("put 10", name, workers),
            measured.rates("put 10", BARE, workers),
            least=0.25,
        )
        for name in (OURS, THREADS)
    ]
    for columns in rounds.SCANNED.values():
        what = f"scan of {columns} cells a row"
        found.append(
            ratio(
                f"{what}: snapshot over bare",
                measured.rates(what, OURS, 1),
                measured.rates(what, BARE, 1),
                least=0.6,
            )
        )
    return found


def print_document(console: Console, document: HBaseDocument) -> None:
    """Print all results and ratios."""
    table = Table("what", "load", "p50 ms", "p99 ms", "a second", title=document.commit)
    for result in document.results:
        numbers = (result.p50_ms, result.p99_ms, result.per_second)
        shown = (
            "" if value is None else f"{value:,.3g}" if value < 1 else f"{value:,.2f}"
            for value in numbers
        )
        table.add_row(result.name, result.load, *shown)
    console.print(table)
    table = Table("ratio", "median", "rounds", "aim", "met")
    for one in document.ratios:
        met = "" if one.is_met is None else "yes" if one.is_met else "no"
        each = " ".join(f"{value:.2f}" for value in one.rounds)
        table.add_row(one.name, f"{one.median:.2f}", each, one.aim, met)
    console.print(table)
    table = Table("where the time of a lone put and commit goes", "p50 us", "a transaction")
    for step in document.profile:
        table.add_row(step.name, f"{step.p50_us:,.0f}", f"{step.per_transaction:g}")
    console.print(table)
    console.print(f"load average at each round: {document.load_averages}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.hbase", description=__doc__)
    parser.add_argument("--hbase", type=Path, help="directory of an HBase that runs, and is empty")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each case in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    parser.add_argument("--only", choices=["pruning", "exports"], help="one thing alone")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as resources:
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        hbase: HBase
        if options.hbase is not None:
            hbase = HBase.attach(options.hbase)
        else:
            hbase = resources.enter_context(HBase.start(directory / "hbase"))
        if options.only:
            return _measure_only(
                options.only, hbase, directory, options.output, quick=options.quick
            )
        document = measure(
            hbase,
            directory,
            seconds=0.1 if options.quick else options.seconds,
            count=1 if options.quick else options.rounds,
            workers=options.workers,
            quick=options.quick,
        )
    print_document(Console(width=160), document)
    keep(document, options.output, "hbase")
    return 0


def _measure_only(only: str, hbase: HBase, directory: Path, output: Path, *, quick: bool) -> int:
    before = os.getloadavg()[0]
    if only == "pruning":
        results = pruned(hbase, quick=quick)
    else:
        results = exports.measure(
            hbase,
            directory,
            transactions=2 if quick else EXPORTED_TRANSACTIONS,
            lone=1 if quick else 20,
            threads=EXPORTING_THREADS,
        )
    machine = describe_machine(directory)
    document = Document(today(), commit_id(), machine, before, os.getloadavg()[0], results)
    print_results(Console(), document)
    keep(document, output, f"hbase-{only}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
