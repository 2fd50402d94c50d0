"""How long does Spark take to save a frame to S3, with this checkout and with an earlier one?

Each has a Spark of its own, and both save in turns to one server behind one proxy; which one is
first changes from round to round.  What counts is the median, over the rounds, of the ratio of two
times of one round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.committers import saves
from bench.committers.saver import ROWS_A_FILE
from bench.hbase.rounds import Ratio, ratio
from bench.measure import Document, Result, commit_id, describe_machine, today
from tests.machines.processes import ROOT
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

KINDS: Final = {saves.INLINE: {}, saves.UPLOADS: {"inlineBytes": "0"}}
WARM_UPS: Final = 2
MOST: Final = 1.05
"""So many times as long as before a save may take."""


class BeforeDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    ratios: list[Ratio]
    seconds: dict[str, list[float]]
    """By number of files, committer and commit; one for each round."""


class Saver:
    """A Spark of one checkout."""

    def __init__(self, process: subprocess.Popen[str], commit: str) -> None:
        """Keep a process that has begun; wait until it can save."""
        self.commit = commit
        self._process = process
        self._answer()

    def save(self, address: str, files: int, options: dict[str, str]) -> tuple[float, float]:
        """Save a frame; return when that began and ended, in monotonic seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([address, files, options]) + "\n")
        self._process.stdin.flush()
        began_s, ended_s = self._answer()
        return began_s, ended_s

    def _answer(self) -> list[float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Spark of {self.commit} has ended: {self._process.wait()}")
        found: list[float] = json.loads(line)
        return found


@contextmanager
def _saver(checkout: Path, environment: dict[str, str]) -> Iterator[Saver]:
    words = [sys.executable, str(Path(saves.__file__).with_name("saver.py"))]
    process = subprocess.Popen(
        words,
        cwd=checkout,
        env={**os.environ, **environment, "PYTHONPATH": str(checkout)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Saver(process, commit_id(checkout))
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def measure(
    directory: Path, *, before: Path, rounds: int, files: Sequence[int], delay_s: float
) -> BeforeDocument:
    """Measure.

    Args:
        directory: For the server's buckets.
        before: The other checkout.
        rounds: How often each saves; two more, which warm up, do not count.
        files: How many files a frame has; each number is measured.
        delay_s: Added to each request.
    """
    load_before = os.getloadavg()[0]
    machine = describe_machine(directory)
    found: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    requests: dict[str, int] = {}
    with ExitStack() as stack:
        server = stack.enter_context(S3Server(directory))
        watch = stack.enter_context(saves.Watch(server.port, delay_s=delay_s))
        bucket = Bucket(server)
        environment = {
            **server.environment,
            "AWS_ENDPOINT_URL_S3": watch.endpoint,
            "PYSPARK_PYTHON": sys.executable,
        }
        savers = [stack.enter_context(_saver(one, environment)) for one in (before, ROOT)]
        for number in range(-WARM_UPS, rounds):
            for count in files:
                for kind, options in KINDS.items():
                    for saver in savers if number % 2 else savers[::-1]:
                        name = f"{count} files, {kind}, {saver.commit}"
                        folder = f"out-{number}-{count}-{len(options)}-{savers.index(saver)}"
                        watch.came.clear()
                        address = f"s3://{bucket.name}/{folder}"
                        began_s, ended_s = saver.save(address, count, options)
                        if number >= 0:
                            found.setdefault(name, []).append(round(ended_s - began_s, 4))
                            ends.setdefault(name, []).append(round(_end_s(watch), 4))
                            requests[name] = len(watch.came)
    old, new = (saver.commit for saver in savers)
    names = [f"{count} files, {kind}" for count in files for kind in KINDS]
    load = f"{delay_s * 1000:g} ms more for each request, {ROWS_A_FILE} rows a file, in turns"
    results = []
    for one in names:
        for commit in (old, new):
            name = f"{one}, {commit}"
            p50_ms = round(1000 * statistics.median(found[name]), 1)
            results.append(Result(name, load, p50_ms=p50_ms, count=rounds))
            end_ms = round(1000 * statistics.median(ends[name]), 1)
            results.append(Result(f"{name}, its end alone", load, p50_ms=end_ms, count=rounds))
            results.append(Result(f"{name}, requests", load, count=requests[name]))
    return BeforeDocument(
        today(),
        new,
        machine,
        load_before,
        os.getloadavg()[0],
        results,
        ratios=[
            ratio(
                f"{one}, time: {new} over {old}",
                found[f"{one}, {new}"],
                found[f"{one}, {old}"],
                most=MOST,
            )
            for one in names
        ],
        seconds=found,
    )


def _end_s(watch: saves.Watch) -> float:
    """Return how long the end of a job took: from its plan to the request that removes it."""
    plan = [at for at, _, path in watch.came if path.endswith("/plan.json")]
    return max(plan) - min(plan)
