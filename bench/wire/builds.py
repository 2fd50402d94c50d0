"""What does the engine cost in each form in which it can be built, in processor time alone?

    python -m bench.wire.builds [--rounds N] [--output DIRECTORY]

`own` is compiled for this one Python, `abi3` for the stable interface of all of them (PEP 384),
`interpreted` is the source as it is.  Each form decides the same bytes in a process of its own, in
turns, and the quickest round counts: other work on the machine makes a round slower and never
quicker.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.measure import Machine, commit_id, describe_machine, today
from bench.processes import ROOT
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.frames import encode_request, frame_request
from omidpy.wire.messages import CommitRequest, TimestampRequest
from tests.machines.engines import SOURCE, build_engine, interpreted_engine, load_engine
from tso.core.engine import STEP

FORMS: Final[Mapping[str, str]] = {
    "own": "-O3",
    "abi3": "-O3 -DPy_LIMITED_API=0x030B0000",
    "interpreted": "",
}
"""What the compiler is told."""
RUN: Final = 64
"""Transactions that a client begins, and then commits, in one write."""
CELLS: Final = 10


class Form(msgspec.Struct, frozen=True):
    """What one form of the engine costs."""

    name: str
    run_us: float
    """Microseconds of a processor for a begin and a commit of ten cells, among 64 in a run."""
    single_us: float
    """For a request that is read and decided by itself."""
    run_over_own: float
    """The share of `own`'s rate that it reaches, in runs."""
    single_over_own: float
    rounds: int


class Document(msgspec.Struct, frozen=True):
    """What a result file holds."""

    date: str
    commit: str
    machine: Machine
    forms: list[Form]


def main() -> None:
    """Measure, print, and keep the numbers."""
    parser = argparse.ArgumentParser(prog="bench.wire.builds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--transactions", type=int, default=200_000)
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        print(json.dumps(work(options.work, options.transactions)))
        return
    with tempfile.TemporaryDirectory() as folder:
        forms = compare(Path(folder), options.rounds, options.transactions)
        document = Document(today(), commit_id(), describe_machine(Path(folder)), forms)
    for form in forms:
        print(
            f"{form.name:12} run {form.run_us:8.3f} us ({form.run_over_own:.3f} of own's rate), "
            f"single {form.single_us:8.3f} us ({form.single_over_own:.3f})"
        )
    path = options.output / f"{document.date}-{document.commit}-builds.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    print(path)


def compare(folder: Path, rounds: int, transactions: int) -> list[Form]:
    """Build all forms and let them work in turns."""
    places = {
        name: str(build_engine(_made(folder / name), SOURCE.read_text(), flags=flags))
        for name, flags in FORMS.items()
        if flags
    }
    best = {name: (float("inf"), float("inf")) for name in FORMS}
    for _ in range(rounds):
        for name in FORMS:
            count = transactions if name in places else transactions // 10
            command = [sys.executable, "-m", "bench.wire.builds"]
            command += ["--work", places.get(name, name), "--transactions", str(count)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            run_us, single_us = json.loads(done.stdout)
            best[name] = (min(best[name][0], run_us), min(best[name][1], single_us))
    own = best["own"]
    return [
        Form(
            name,
            round(run_us, 4),
            round(single_us, 4),
            round(own[0] / run_us, 3),
            round(own[1] / single_us, 3),
            rounds,
        )
        for name, (run_us, single_us) in best.items()
    ]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def work(place: str, transactions: int) -> tuple[float, float]:
    """Decide with one form; return microseconds of a transaction in runs, and of a lone request."""
    engine = interpreted_engine() if place == "interpreted" else load_engine(Path(place))
    assert engine.is_compiled() is (place != "interpreted")
    return run_us(engine, transactions), single_us(engine, transactions // 4)


def run_us(engine: Any, transactions: int) -> float:
    """Return what a transaction costs among others in a run, in microseconds of a processor."""
    dice = random.Random(1)
    decider = engine.Engine(last_issued=0, conflict_map_size=2**20, begin_memory=2**14)
    decisions = engine.Decisions(2**14, forgotten_start=0, seed=0)
    run = engine.Run(decider, decisions, max_commit_cells=1000, invalidated=set())
    begins = frame_request(TimestampRequest()) * RUN
    commits = []
    for number in range(transactions // RUN):
        first = number * 2 * RUN
        starts = [Timestamp((first + one) * STEP) for one in range(1, RUN + 1)]
        commits.append(b"".join(frame_request(_commit(dice, start)) for start in starts))
    before = time.process_time()
    for commit in commits:
        run.take(begins, 7, True, False, RUN)
        run.take(commit, 7, True, False, RUN)
    spent_s = time.process_time() - before
    assert run.request_count == RUN
    assert run.commit_count == RUN, "the times would be those of refusals"
    return spent_s * 1e6 / (len(commits) * RUN)


def single_us(engine: Any, transactions: int) -> float:
    """Return what a lone begin and commit cost, read and decided, in microseconds."""
    dice = random.Random(2)
    decider = engine.Engine(last_issued=0, conflict_map_size=2**20, begin_memory=2**14)
    payloads = [
        encode_request(_commit(dice, Timestamp((2 * number + 1) * STEP)))
        for number in range(transactions)
    ]
    before = time.process_time()
    for payload in payloads:
        start_ts = decider.begin(7)
        _, _, cells, tables = engine.read_commit(payload, 1000)
        assert decider.commit(start_ts, cells, tables) > start_ts
    return (time.process_time() - before) * 1e6 / transactions


def _commit(dice: random.Random, start_ts: Timestamp) -> CommitRequest:
    cells = tuple(CellId(dice.getrandbits(64) - 2**63) for _ in range(CELLS))
    return CommitRequest(start_ts, cells, (TableId(-(2**62)),))


if __name__ == "__main__":
    main()
