"""`python -m bench.hbase.before DIRECTORY`: what do transactions cost, beside another checkout's?

Both take turns on one HBase, through one gateway: of each round each starts its `tso-server` on the
same tables, does every job, and ends it; who is first changes from round to round.  What counts is
the median, over the rounds, of the ratio of two numbers of one round: rates, and the processor time
of client and oracle, which other work on the machine touches less.

The other checkout must be compiled (`python setup.py build_ext --inplace` in it).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.hbase.rounds import Ratio, ratio
from bench.measure import Document, Result, commit_id, describe_machine, keep, today
from bench.processes import ROOT
from bench.run import print_results
from tests.machines.hbase import HBase

JOBS: Final = ("put 1 1", "put 1 8", "get 10 1", "get 10 8", "scan")
"""Kind, rows of a transaction, and threads."""
WARM_UPS: Final = 4
"""Rounds that do not count: HBase and its gateway are compiled in them."""
LEAST: Final = 0.97
MOST: Final = 1.03


class BeforeDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    ratios: list[Ratio]


def turn(checkout: Path, store: str, *, seconds: float, seed: int) -> dict[str, dict[str, float]]:
    """Let a checkout do every job once; return what it found of each.

    Raises:
        RuntimeError: it failed; the message ends with what it printed.
    """
    words = [sys.executable, str(Path(__file__).with_name("turn.py")), store]
    done = subprocess.run(
        [*words, str(seconds), str(seed), *JOBS],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"a turn of {checkout} ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def measure(
    directory: Path, *, before: Path, rounds: int, warm_ups: int, seconds: float
) -> BeforeDocument:
    """Measure.

    Args:
        directory: For HBase.
        before: The other checkout.
        rounds: How often each does every job; `warm_ups` more do not count.
        warm_ups: As it says.
        seconds: Of each job of each turn.
    """
    load_before = os.getloadavg()[0]
    machine = describe_machine(directory)
    names = {before: commit_id(before), ROOT: commit_id(ROOT)}
    found: dict[tuple[str, Path], list[dict[str, float]]] = {}
    with HBase.start(directory / "hbase") as hbase:
        for number in range(-warm_ups, rounds):
            for checkout in (before, ROOT) if number % 2 else (ROOT, before):
                answers = turn(checkout, hbase.thrift2_url, seconds=seconds, seed=number)
                for job, answer in answers.items() if number >= 0 else ():
                    found.setdefault((job, checkout), []).append(answer)
    results = []
    ratios = []
    for job in JOBS:
        for checkout, name in names.items():
            of = {
                what: round(statistics.median(one[what] for one in found[job, checkout]), 4)
                for what in ("per_second", "p50_ms", "processor_us")
            }
            results.append(
                Result(
                    f"{job}, {name}",
                    "in turns",
                    p50_ms=of["p50_ms"],
                    per_second=of["per_second"],
                    count=rounds,
                )
            )
            microseconds = f"{job}, {name}: microseconds of client and oracle"
            results.append(Result(microseconds, "in turns", ratio=of["processor_us"], count=rounds))
        for what, aim in (("per_second", {"least": LEAST}), ("processor_us", {"most": MOST})):
            new, old = ([one[what] for one in found[job, of]] for of in (ROOT, before))
            label = f"{job}, {what}: {names[ROOT]} over {names[before]}"
            ratios.append(ratio(label, new, old, **aim))
    return BeforeDocument(
        today(), names[ROOT], machine, load_before, os.getloadavg()[0], results, ratios=ratios
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the numbers; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.hbase.before", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("before", type=Path, metavar="DIRECTORY", help="the other checkout")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each job of each turn")
    parser.add_argument("--rounds", type=int, default=13)
    parser.add_argument("--warm-up", type=int, default=WARM_UPS, help="rounds before")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        document = measure(
            Path(directory),
            before=options.before.resolve(),
            rounds=options.rounds,
            warm_ups=options.warm_up,
            seconds=options.seconds,
        )
    print_results(Console(width=160), document)
    for one in document.ratios:
        met = "met" if one.is_met else "missed"
        print(f"{one.name}: {one.median:.2f} {one.rounds} ({one.aim}, {met})")
    keep(document, options.output, "hbase-before")
    return 0


if __name__ == "__main__":
    sys.exit(main())
