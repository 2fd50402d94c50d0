"""`python -m bench.phoenix`: measure beside Apache Phoenix, and keep the numbers as a file.

`oracles` compares our oracle with Omid's under Phoenix's load, `reads` compares Python's two roads
to Phoenix's rows, and `space` counts what a compaction of ours frees.  What is compared takes turns
within each round; what counts is the ratio of two numbers of one round, and the median of those.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import omidpy
from bench.hbase.rounds import SCANS, Ratio, ratio
from bench.measure import Document, Result, commit_id, describe_machine, keep, today
from bench.phoenix import oracles, reads, space
from bench.run import print_results
from tests.machines.phoenix import Phoenix, running_phoenix

AIM: Final = 5.0
"""Times `phoenixdb`'s rate."""


class PhoenixDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    ratios: list[Ratio]
    load_averages: list[float]
    """At the start of each round."""


Measured = tuple[list[Result], list[Ratio], list[float]]


def measure_oracles(phoenix: Phoenix, directory: Path, options: argparse.Namespace) -> Measured:
    """Let each oracle serve once a round."""
    warm_s, seconds = (0.1, 0.1) if options.quick else (options.seconds / 2, options.seconds)
    load = oracles.Load(phoenix, directory)
    served: dict[str, list[oracles.Served]] = {name: [] for name in load.oracles}
    averages: list[float] = []
    for _ in range(options.rounds):
        averages.append(round(os.getloadavg()[0], 2))
        for name, of in served.items():
            of.append(load.round(name, warm_s=warm_s, seconds=seconds))
    asked = f"transfers in SQL, {oracles.CONNECTIONS} connections"
    results = []
    for name, of in served.items():
        rate = round(statistics.median(one.per_second for one in of), 1)
        used = statistics.median(one.processor_us for one in of)
        mib = round(statistics.median(one.resident_mib for one in of), 1)
        results += [
            Result(f"transactions, {name}", asked, per_second=rate, count=len(of)),
            Result(
                f"a processor of the oracle for each transaction, {name}",
                asked,
                p50_ms=round(used / 1000, 4),
                count=len(of),
            ),
            Result(f"memory of the oracle, {name}", asked, mib=mib, count=len(of)),
        ]
    ratios = []
    ours = served[oracles.OURS]
    for name in (oracles.DELIVERED, oracles.TUNED):
        others = served[name]
        ratios += [
            ratio(
                f"transactions a second: {oracles.OURS} over {name}",
                [one.per_second for one in ours],
                [one.per_second for one in others],
                least=1.0,
            ),
            ratio(
                f"a processor of the oracle: {oracles.OURS} over {name}",
                [one.processor_us for one in ours],
                [one.processor_us for one in others],
                most=1.0,
            ),
        ]
    return results, ratios, averages


def measure_reads(phoenix: Phoenix, directory: Path, options: argparse.Namespace) -> Measured:
    """Let each client read in each round; a first one, which warms up, does not count.

    Each scans some times in turns, and its quickest counts: one takes a tenth of a second.
    """
    # Of the group `queryserver`, and without types.
    phoenixdb = importlib.import_module("phoenixdb")

    rows, gets = (50, 5) if options.quick else (options.rows, options.gets)
    reads.make(phoenix, rows)
    rates: dict[tuple[str, str], list[float]] = {}
    averages: list[float] = []
    with contextlib.ExitStack() as resources:
        enter = resources.enter_context
        address = enter(reads.query_server(phoenix, directory))
        queried = enter(contextlib.closing(phoenixdb.connect(address, autocommit=True)))
        clients: dict[str, Any] = {
            name: reads.Ours(enter(omidpy.connect(url, phoenix.address)))
            for name, url in (
                (reads.GATEWAY, phoenix.hbase.thrift2_url),
                (reads.DIRECT, phoenix.hbase.direct_url),
            )
        }
        plain, prepared = (reads.Queried(queried, is_prepared=one) for one in (False, True))
        clients[reads.QUERIED] = plain
        for number in range(options.rounds + 1):
            averages.append(round(os.getloadavg()[0], 2))
            for name, client in clients.items():
                ways: list[Callable[[int], dict[str, Any] | None]] = [client.get]
                if client is plain:
                    ways.append(prepared.get)
                found = max(reads.rate_of_gets(way, rows=rows, count=gets) for way in ways)
                if number:
                    rates.setdefault((reads.GET, name), []).append(found)
            scanned: dict[str, list[float]] = {name: [] for name in clients}
            for _ in range(1 if options.quick else SCANS):
                for name, client in clients.items():
                    scanned[name].append(reads.rate_of_scan(client.scan, rows=rows))
            if number:
                for name, found_rates in scanned.items():
                    rates.setdefault((reads.SCAN, name), []).append(max(found_rates))
    results = [
        Result(
            f"{what}, {name}",
            f"{rows} rows of 4 columns, 1 thread",
            per_second=round(statistics.median(of), 1),
            count=len(of),
        )
        for (what, name), of in rates.items()
    ]
    ratios = [
        ratio(
            f"{what}: {name} over {reads.QUERIED}",
            rates[what, name],
            rates[what, reads.QUERIED],
            least=AIM,
        )
        for what in (reads.GET, reads.SCAN)
        for name in (reads.GATEWAY, reads.DIRECT)
    ]
    return results, ratios, averages


def measure_space(phoenix: Phoenix, _: Path, options: argparse.Namespace) -> Measured:
    """Count at each stage."""
    kills, each, connections = (1, 20, 2) if options.quick else (options.kills, 500, 16)
    average = round(os.getloadavg()[0], 2)
    return (
        space.measure(phoenix, kills=kills, each=each, connections=connections),
        [],
        [average],
    )


WORKS: Final = {"oracles": measure_oracles, "reads": measure_reads, "space": measure_space}


def print_document(console: Console, document: PhoenixDocument) -> None:
    """Print all results and ratios."""
    print_results(console, document)
    table = Table("ratio", "median", "rounds", "aim", "met")
    for one in document.ratios:
        met = "" if one.is_met is None else "yes" if one.is_met else "no"
        each = " ".join(f"{value:.2f}" for value in one.rounds)
        table.add_row(one.name, f"{one.median:.2f}", each, one.aim, met)
    console.print(table)
    console.print(f"load average at each round: {document.load_averages}")


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what is to be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.phoenix", description=__doc__)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each oracle in each round")
    parser.add_argument("--rows", type=int, default=20_000, help="of the table that is read")
    parser.add_argument("--gets", type=int, default=300, help="of each client in each round")
    parser.add_argument("--kills", type=int, default=12, help="of the clients, for `space`")
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds = 1
    return options


def measure(phoenix: Phoenix, directory: Path, options: argparse.Namespace) -> PhoenixDocument:
    """Measure one work, on a Phoenix in which nobody else does anything."""
    before = os.getloadavg()[0]
    machine = describe_machine(directory)
    results, ratios, averages = WORKS[options.work](phoenix, directory, options)
    return PhoenixDocument(
        today(),
        commit_id(),
        machine,
        before,
        os.getloadavg()[0],
        results,
        ratios=ratios,
        load_averages=averages,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    options = parsed(arguments)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with running_phoenix(directory / "phoenix", quick=options.quick) as phoenix:
            document = measure(phoenix, directory, options)
    print_document(Console(width=160), document)
    keep(document, options.output, f"phoenix-{options.work}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
