"""`python -m bench.run`: run every workload, print the numbers, and keep them as a result file.

The file says on which machine and commit they were measured, and how busy the machine was.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.measure import Document, Result, commit_id, describe_machine, keep, today
from bench.workloads import (
    aborts,
    attacks,
    capacity,
    compaction,
    exports,
    latency,
    micro,
    pruning,
    scans,
    throughput,
    tracing,
)

WORKLOADS: Final[dict[str, Callable[[Path, bool], list[Result]]]] = {
    "micro": lambda directory, quick: micro.measure(directory, quick=quick),
    "latency": lambda directory, quick: latency.measure(directory, count=10 if quick else 2000),
    "throughput": lambda directory, quick: throughput.measure(
        directory,
        seconds=0.2 if quick else 5.0,
        rounds=1 if quick else 3,
        process_counts=(1, 2) if quick else (1, 2, 4, 8),
    ),
    "scans": lambda directory, quick: (
        scans.measure(directory, rows=100, rounds=1, version_counts=(1, 3), versioned_rows=10)
        if quick
        else scans.measure(directory, rows=20_000, rounds=15)
    ),
    "compaction": lambda directory, quick: compaction.measure(
        directory, rows=100 if quick else 50_000
    ),
    "pruning": lambda directory, quick: pruning.measure(
        directory, entries=100 if quick else 100_000, rounds=1 if quick else 5
    ),
    "attacks": lambda directory, quick: attacks.measure(
        directory,
        seconds=0.1 if quick else 5.0,
        names=("frames that do not end",) if quick else (),
    ),
    "aborts": lambda directory, quick: (
        aborts.measure(directory, keys=1000, transactions=2000)
        if quick
        else aborts.measure(directory, transactions=1_000_000)
    ),
    "capacity": lambda directory, quick: (
        capacity.measure(directory, connections=2, tables=2, transactions=2)
        if quick
        else capacity.measure(directory, connections=500, tables=200, transactions=2000)
    ),
    "exports": lambda directory, quick: exports.measure(
        directory, transactions=2 if quick else 300, lone=1 if quick else 20
    ),
    "tracing": lambda _directory, quick: tracing.measure(
        transactions=10 if quick else 500, rounds=1 if quick else 30
    ),
}


def measure(directory: Path, names: Sequence[str], *, quick: bool) -> Document:
    """Run workloads in `directory`.

    Args:
        directory: Where stores are made; its disk is what is measured.
        names: Which of `WORKLOADS`.
        quick: Only show that everything runs; the numbers mean nothing.
    """
    before = os.getloadavg()[0]
    machine = describe_machine(directory)
    results = [result for name in names for result in WORKLOADS[name](directory, quick)]
    return Document(today(), commit_id(), machine, before, os.getloadavg()[0], results)


def print_results(console: Console, document: Document) -> None:
    """Print a table of all results."""
    table = Table(title=f"{document.commit}, {document.machine.processor}")
    for name in ("what", "load"):
        table.add_column(name)
    for name in ("p50 ms", "p99 ms", "a second", "MiB", "ratio"):
        table.add_column(name, justify="right")
    for result in document.results:
        table.add_row(
            result.name,
            result.load,
            *(
                _shown(value)
                for value in (
                    result.p50_ms,
                    result.p99_ms,
                    result.per_second,
                    result.mib,
                    result.ratio,
                )
            ),
        )
    console.print(table)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f}" if value < 100 else f"{value:,.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    parser.add_argument(
        "--only", action="append", choices=WORKLOADS, help="one workload; may be given again"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--directory", type=Path, help="where to make the stores")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        document = measure(Path(directory), options.only or list(WORKLOADS), quick=options.quick)
    print_results(Console(), document)
    keep(document, options.output, *(options.only or ()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
