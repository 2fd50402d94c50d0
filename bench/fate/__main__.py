"""`python -m bench.fate`: measure operations beside Accumulo's, and keep the numbers as a file.

Each round runs everything in turns, since other work slows all of it; what counts is the ratio of
two numbers of one round, and the median of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.fate.chains import Ours, bare_commits, recovery_s
from bench.fate.machines import STEPS, WORKERS, Accumulo, zookeeper
from bench.hbase.rounds import Ratio, ratio
from bench.measure import Document, Result, commit_id, describe_machine, keep, latencies, today
from bench.run import print_results
from omidpy.fate import TableFateStore, ZooKeeperFateStore
from omidpy.storage.sqlite import SqliteStore

LEASE_S: Final = 3.0
ON_ZOOKEEPER: Final = "omidpy on ZooKeeper"
ON_SQLITE: Final = "omidpy on SQLite"
BARE: Final = "bare SQLite, synchronous=FULL"


class FateDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    ratios: list[Ratio]
    load_averages: list[float]
    """At the start of each round."""


class Measured:
    """What each client did in each round."""

    def __init__(self) -> None:
        self.rates: dict[str, list[float]] = {}
        """Steps, or commits, a second; one for each round."""
        self.lone_s: dict[str, list[float]] = {}
        """Seconds of lone chains, of all rounds."""
        self.lone_medians_s: dict[str, list[float]] = {}
        """Of each round."""
        self.recovery_s: list[float] = []
        self.load_averages: list[float] = []

    def run(
        self, clients: dict[str, Ours | Accumulo], directory: Path, *, chains: int, lone: int
    ) -> None:
        """Do one round."""
        self.load_averages.append(round(os.getloadavg()[0], 2))
        number = len(self.load_averages)
        for name, client in clients.items():
            rate = STEPS * chains / client.chains(chains)
            self.rates.setdefault(name, []).append(rate)
        bare_s = bare_commits(directory / f"bare-{number}.db", STEPS * chains)
        self.rates.setdefault(BARE, []).append(STEPS * chains / bare_s)
        for name, client in clients.items():
            seconds = client.lone(lone)
            self.lone_s.setdefault(name, []).extend(seconds)
            self.lone_medians_s.setdefault(name, []).append(statistics.median(seconds))
        self.recovery_s.append(recovery_s(directory / f"killed-{number}", lease_s=LEASE_S))

    def results(self) -> list[Result]:
        """Sum up."""
        load = f"{STEPS} empty steps, {WORKERS} workers, median of {len(self.load_averages)} rounds"
        found = [
            Result(
                f"durable steps, {name}",
                load,
                per_second=round(statistics.median(rates), 1),
                count=len(rates),
            )
            for name, rates in self.rates.items()
        ]
        found += [
            latencies(f"a lone chain, {name}", f"{STEPS} empty steps", seconds)
            for name, seconds in self.lone_s.items()
        ]
        load = f"kill -9 in a step, another executor waits, lease of {LEASE_S:g} s"
        found.append(latencies(f"recovery, {ON_SQLITE}", load, self.recovery_s))
        return found

    def ratios(self) -> list[Ratio]:
        """Compare what the aims compare."""
        ones = [1.0] * len(self.load_averages)
        accumulo = Accumulo.name
        found = [
            ratio(
                f"durable steps: {ON_ZOOKEEPER} over {accumulo}",
                self.rates[ON_ZOOKEEPER],
                self.rates[accumulo],
                least=2.0,
            ),
            ratio(
                f"durable steps: {ON_SQLITE} over {BARE}",
                self.rates[ON_SQLITE],
                self.rates[BARE],
                least=0.6,
            ),
            ratio(
                f"a lone chain: {ON_ZOOKEEPER} over {accumulo}",
                self.lone_medians_s[ON_ZOOKEEPER],
                self.lone_medians_s[accumulo],
            ),
        ]
        found += [
            ratio(
                f"a lone chain, ms: {name}",
                [seconds * 1000 for seconds in self.lone_medians_s[name]],
                ones,
                most=25.0,
            )
            for name in (ON_ZOOKEEPER, ON_SQLITE)
        ]
        found.append(ratio(f"recovery, s: {ON_SQLITE}", self.recovery_s, ones, most=LEASE_S + 1.0))
        return found


def measure(directory: Path, *, rounds: int, chains: int, lone: int) -> FateDocument:
    """Measure.

    Args:
        directory: For stores and logs; its disk is what is measured.
        rounds: How often everything is done; a first time, which warms up Java, does not count.
        chains: Chains in each round, by each client.
        lone: Lone chains in each round, by each client.
    """
    before = os.getloadavg()[0]
    machine = describe_machine(directory)
    measured = Measured()
    with ExitStack() as resources:
        address = resources.enter_context(zookeeper(directory))
        store = resources.enter_context(contextlib.closing(SqliteStore(directory / "ours.db")))
        znodes = ZooKeeperFateStore(address, "/ours/fate")
        resources.callback(znodes.close)
        clients: dict[str, Ours | Accumulo] = {
            Accumulo.name: Accumulo(address, "/accumulo/fate"),
            ON_ZOOKEEPER: Ours(znodes),
            ON_SQLITE: Ours(TableFateStore(store)),
        }
        for client in clients.values():
            resources.callback(client.close)
        for client in clients.values():
            client.chains(chains)
        for _ in range(rounds):
            measured.run(clients, directory, chains=chains, lone=lone)
    return FateDocument(
        today(),
        commit_id(),
        machine,
        before,
        os.getloadavg()[0],
        measured.results(),
        ratios=measured.ratios(),
        load_averages=measured.load_averages,
    )


def print_document(console: Console, document: FateDocument) -> None:
    """Print all results and ratios."""
    print_results(console, document)
    table = Table("ratio", "median", "rounds", "aim", "met")
    for one in document.ratios:
        met = "" if one.is_met is None else "yes" if one.is_met else "no"
        each = " ".join(f"{value:.2f}" for value in one.rounds)
        table.add_row(one.name, f"{one.median:.2f}", each, one.aim, met)
    console.print(table)
    console.print(f"load average at each round: {document.load_averages}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.fate", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chains", type=int, default=200, help="of each client in each round")
    parser.add_argument("--lone", type=int, default=15, help="of each client in each round")
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        document = measure(
            Path(name),
            rounds=1 if options.quick else options.rounds,
            chains=4 if options.quick else options.chains,
            lone=2 if options.quick else options.lone,
        )
    print_document(Console(width=140), document)
    keep(document, options.output, "fate")
    return 0


if __name__ == "__main__":
    sys.exit(main())
