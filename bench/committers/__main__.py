"""`python -m bench.committers`: save frames beside Hadoop's committers, and keep the numbers.

Each round saves through every committer in turns, since other work slows all of them; what counts
is the ratio of two times of one round, and the median of the rounds.  A round of few files, which
warms up Java and Python, does not count.

More files have fewer rounds, so that each number of files takes about as long.  Hadoop's committer
that renames saves once to S3, in the first round and of the least files, since it takes longest;
and both ones that rename save to the local disk in each round.

With `--before DIRECTORY` another checkout saves in turns with this one, and nobody else does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console
from rich.table import Table

from bench.committers import before, saves
from bench.committers.saves import Saved
from bench.hbase.rounds import Ratio, ratio
from bench.measure import Document, Result, commit_id, describe_machine, keep, today
from tests.machines.processes import ROOT
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

DELAY_S: Final = 0.02
ROWS_A_FILE: Final = 10_000
WARM_UP_FILES: Final = 20


class CommittersDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    ratios: list[Ratio]
    saves: dict[str, list[Saved]]
    """By number of files and committer; one for each round."""
    load_averages: list[float]
    """At the start of each round."""


def measure(directory: Path, *, rounds: int, files: Sequence[int]) -> CommittersDocument:
    """Measure.

    Args:
        directory: For the server's buckets and for what is staged.
        rounds: How often everything is saved.
        files: How many files a frame has; each number is measured.
    """
    before = os.getloadavg()[0]
    machine = describe_machine(directory)
    found: dict[str, list[Saved]] = {}
    loads: list[float] = []
    with (
        S3Server(directory) as server,
        saves.Watch(server.port, delay_s=DELAY_S) as watch,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.setenv("AWS_ENDPOINT_URL_S3", watch.endpoint)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        bucket = Bucket(server)
        with saves.session(watch, directory) as spark:
            for number in range(-1, rounds):
                loads.append(round(os.getloadavg()[0], 2))
                for count in files if number >= 0 else [WARM_UP_FILES]:
                    if number >= max(1, rounds * min(files) // count):
                        continue
                    given = saves.frame(spark, count, count * ROWS_A_FILE)
                    remote = saves.savers()
                    if number == 0 and count == min(files):
                        remote |= saves.renamers()
                    ones = {}
                    for name, save in remote.items():
                        folder = _folder(number, count, name)
                        ones[name] = saves.saved(watch, bucket, folder, save, given)
                    for name, save in saves.local_savers().items():
                        place = directory / "local" / _folder(number, count, name)
                        ones[name] = saves.saved_locally(place, save, given)
                    for name, one in ones.items():
                        if number >= 0:
                            found.setdefault(f"{count} files, {name}", []).append(one)
    return CommittersDocument(
        today(),
        commit_id(),
        machine,
        before,
        os.getloadavg()[0],
        _results(found),
        ratios=[one for count in files for one in _ratios(found, count)],
        saves=found,
        load_averages=loads[1:],
    )


def _folder(number: int, count: int, name: str) -> str:
    return f"out-{number}-{count}-{name.replace(' ', '-').replace(',', '')}"


def _results(found: dict[str, list[Saved]]) -> list[Result]:
    load = f"{DELAY_S * 1000:g} ms more for each request, {ROWS_A_FILE} rows a file"
    return [
        Result(
            name,
            load,
            p50_ms=round(1000 * statistics.median(one.seconds for one in ones), 1),
            mib=round(ones[-1].bytes / 2**20, 2),
            count=len(ones),
        )
        for name, ones in found.items()
    ]


def _ratios(found: dict[str, list[Saved]], count: int) -> list[Ratio]:
    def seconds(name: str) -> list[float]:
        return [one.seconds for one in found[f"{count} files, {name}"]]

    def sizes(name: str) -> list[float]:
        return [float(one.bytes) for one in found[f"{count} files, {name}"]]

    ratios = []
    for name in (saves.INLINE, saves.UPLOADS, saves.MAGIC):
        for theirs, most in ((saves.HADOOP_MAGIC, 0.35), (saves.HADOOP_DIRECTORY, 0.6)):
            ratios.append(
                ratio(
                    f"{count} files, time: {name} over {theirs}",
                    seconds(name),
                    seconds(theirs),
                    # A committer that leaves what Hadoop leaves is no aim.
                    most=None if name == saves.MAGIC else most,
                )
            )
    for version in saves.VERSIONS:
        name, theirs = (one.format(version) for one in (saves.LOCAL, saves.HADOOP_LOCAL))
        ratios.append(
            ratio(f"{count} files, time: {name} over {theirs}", seconds(name), seconds(theirs))
        )
    ratios.append(
        ratio(
            f"{count} files, bytes of Parquet: {saves.INLINE} over Spark",
            sizes(saves.INLINE),
            sizes(saves.HADOOP_DIRECTORY),
            most=1.0,
        )
    )
    return ratios


def print_document(console: Console, document: CommittersDocument) -> None:
    """Print the medians of all saves, and the ratios."""
    table = Table("save", "s", "tasks", "visible", "end", "requests", "MiB")
    for name, ones in document.saves.items():
        phases = [
            f"{statistics.median(values):.2f}"
            for values in (
                [one.seconds for one in ones],
                [one.tasks_s for one in ones],
                [one.visible_s for one in ones],
                [one.end_s for one in ones],
            )
        ]
        requests = " ".join(f"{count} {kind}" for kind, count in ones[-1].requests.items())
        total = sum(ones[-1].requests.values())
        table.add_row(name, *phases, f"{total}: {requests}", f"{ones[-1].bytes / 2**20:.2f}")
    console.print(table)
    print_ratios(console, document.ratios)
    console.print(f"load average at each round: {document.load_averages}")


def print_ratios(console: Console, ratios: Sequence[Ratio]) -> None:
    """Print ratios, and whether they are what was aimed at."""
    table = Table("ratio", "median", "rounds", "aim", "met")
    for one in ratios:
        met = "" if one.is_met is None else "yes" if one.is_met else "no"
        each = " ".join(f"{value:.2f}" for value in one.rounds)
        table.add_row(one.name, f"{one.median:.2f}", each, one.aim, met)
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.committers", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    parser.add_argument("--before", type=Path, help="compare with this checkout, not with Hadoop's")
    options = parser.parse_args(arguments)
    if options.before:
        return _compare(options)
    with tempfile.TemporaryDirectory() as name:
        document = measure(
            Path(name),
            rounds=1 if options.quick else options.rounds,
            files=[2] if options.quick else options.files,
        )
    print_document(Console(width=160), document)
    counts = "-".join(map(str, options.files))
    keep(document, options.output, f"committers-{counts}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as name:
        document = before.measure(
            Path(name),
            before=options.before.resolve(),
            rounds=1 if options.quick else options.rounds,
            files=[2] if options.quick else options.files,
            delay_s=DELAY_S,
        )
    console = Console(width=160)
    table = Table("save", "ms", "count")
    for one in document.results:
        table.add_row(one.name, "" if one.p50_ms is None else f"{one.p50_ms:g}", str(one.count))
    console.print(table)
    print_ratios(console, document.ratios)
    keep(document, options.output, "committers-before")
    return 0


if __name__ == "__main__":
    sys.exit(main())
