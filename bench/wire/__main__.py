"""`python -m bench.wire`: measure both oracles in turns, print the numbers, and keep them.

The oracles share one core, and the generator has another one; while one oracle is asked, the other
has nothing to do.  Rates are transactions for each second of a processor that the server used,
which other work on the machine changes little, and by the clock.

With `--hbase` both persist commits on one HBase, which both wait for: then rates are by the clock.
With `--before` ours is compared with that of another checkout, whose `engine.py` must be compiled,
too: who asks first takes turns, and what counts is the median of many short rounds.
With `--sqlite` ours persists them on a file, alone, and is asked by more at once as well.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.measure import Document, Result, commit_id, describe_machine, keep, percentile, today
from bench.processes import on_core
from bench.run import print_results
from bench.wire.load import Answers, Load, generate
from bench.wire.oracles import OMIDS, OURS, Oracle, omids, ours
from omidpy.wire.messages import Feature
from tests.machines.hbase import HBase

LOADS: Final = (Load(8, 64), Load(64, 16), Load(1, 1), Load(8, 64, commits=False))
AIMS: Final = {LOADS[0].name: 10, LOADS[1].name: 7, LOADS[3].name: 12}
"""How many times Omid's rate ours should be."""

DURABLE_AIMS: Final = {LOADS[0].name: 1, LOADS[1].name: 1}
"""The same where both have a commit table on the same HBase; 3 in sight."""

DURABLE_LOADS: Final = (*LOADS[:3], Load(8, 256))
"""What an oracle on a file is asked; the last one keeps it busy while it waits for the disk."""

LEAST_OF_BEFORE: Final = 0.95
"""How much of an earlier commit's rate ours must be at least."""

WARM_UP_S: Final = 20.0
GENERATOR_CORE: Final = 0


class Measured(msgspec.Struct, frozen=True):
    """One oracle under one load; the median round counts."""

    oracle: str
    load: str
    per_processor_s: float
    """Transactions, or timestamps, for each second of a processor that the server used."""
    per_second: float
    """The same by the clock."""
    processors: float
    """How much of a processor the server used."""
    aborted_share: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    mib: float
    """Memory of the server after the round, the most."""
    generators_processors: float
    """How much of a processor the generator used."""


class Ratio(msgspec.Struct, frozen=True):
    """Our rate over another's: for a second of a processor, or on HBase by the clock."""

    load: str
    over: str
    """Whose the other rate is."""
    found: float
    rounds: list[float]
    aim: float | None = None


class WireDocument(Document, frozen=True, kw_only=True):
    """What a result file holds."""

    measured: list[Measured]
    ratios: list[Ratio]


def measure(
    directory: Path,
    *,
    store: str,
    seconds: float,
    rounds: int,
    warm_up_s: float,
    beside_omid: bool,
    before: Path | None = None,
    hbase: HBase | None = None,
    features: Feature = Feature.INVALIDATE,
    loads: Sequence[Load] = LOADS,
) -> WireDocument:
    """Measure.

    Args:
        directory: For logs and settings.
        store: What ours persists to.
        seconds: How long each load lasts in each round.
        rounds: How often each oracle has each load.
        warm_up_s: How long each is asked before anything is measured.
        beside_omid: Whether to measure Omid's as well.
        before: A checkout of an earlier commit, whose `tso-server` is measured as well.
        hbase: What both persist to, in place of `store`; without system tables.
        features: What the generator announces.
        loads: What each is asked.
    """
    load_before = os.getloadavg()[0]
    machine = describe_machine(directory)
    server_core = max(os.sched_getaffinity(0))
    found: dict[tuple[str, str], list[Measured]] = {}
    loads = [msgspec.structs.replace(load, features=features) for load in loads]
    with ExitStack() as resources:
        address = store if hbase is None else hbase.thrift2_url
        oracles = [resources.enter_context(ours(directory, store=address, core=server_core))]
        if before is not None:
            theirs = ours(
                directory,
                store=address,
                core=server_core,
                checkout=before,
                name=f"{OURS} of {commit_id(before)}",
            )
            oracles.append(resources.enter_context(theirs))
        if beside_omid:
            oracles.append(resources.enter_context(omids(directory, core=server_core, hbase=hbase)))
        resources.enter_context(on_core(GENERATOR_CORE))
        for oracle in oracles:
            generate(oracle.address, loads[0], seconds=warm_up_s, seed=0)
        for number in range(1, rounds + 1):
            for load in loads:
                for oracle in oracles if number % 2 else reversed(oracles):
                    measured = _measured(oracle, load, seconds=seconds, seed=number)
                    found.setdefault((oracle.name, load.name), []).append(measured)
    medians = [_median(several) for several in found.values()]
    return WireDocument(
        today(),
        commit_id(),
        machine,
        load_before,
        os.getloadavg()[0],
        [_result(one) for one in medians],
        measured=medians,
        ratios=list(_ratios(found, is_durable=hbase is not None)),
    )


def _measured(oracle: Oracle, load: Load, *, seconds: float, seed: int) -> Measured:
    own_s, server_s = os.times(), oracle.processor_s()
    answers: Answers = generate(oracle.address, load, seconds=seconds, seed=seed)
    server_s = oracle.processor_s() - server_s
    now_s = os.times()
    generator_s = now_s.user + now_s.system - own_s.user - own_s.system
    p50, p99, p999 = (percentile(answers.latencies, share) for share in (0.50, 0.99, 0.999))
    return Measured(
        oracle.name,
        load.name,
        per_processor_s=round(answers.count / max(server_s, 0.01)),
        per_second=round(answers.count / answers.seconds),
        processors=round(server_s / answers.seconds, 2),
        aborted_share=round(answers.aborted_count / answers.count, 5),
        p50_ms=round(1000 * p50, 3),
        p99_ms=round(1000 * p99, 3),
        p999_ms=round(1000 * p999, 3),
        mib=round(oracle.resident_mib(), 1),
        generators_processors=round(generator_s / answers.seconds, 2),
    )


def _median(several: Sequence[Measured]) -> Measured:
    """Return the round whose rate is the median of all."""
    return sorted(several, key=lambda one: one.per_processor_s)[(len(several) - 1) // 2]


def _ratios(found: dict[tuple[str, str], list[Measured]], *, is_durable: bool) -> Iterable[Ratio]:
    rate = attrgetter("per_second" if is_durable else "per_processor_s")
    for (name, load), them in found.items():
        if name == OURS:
            continue
        rounds = [
            round(rate(one) / rate(other), 3)
            for one, other in zip(found[OURS, load], them, strict=True)
        ]
        aims = DURABLE_AIMS if is_durable else AIMS
        aim = aims.get(load) if name == OMIDS else LEAST_OF_BEFORE
        yield Ratio(load, name, round(statistics.median(rounds), 3), rounds, aim)


def _result(one: Measured) -> Result:
    """Say the same as every benchmark does."""
    return Result(
        f"{one.load}, {one.oracle}",
        "for each second of the server's processor",
        p50_ms=one.p50_ms,
        p99_ms=one.p99_ms,
        per_second=one.per_processor_s,
        mib=one.mib,
        count=round(one.per_second),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.wire", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="show that it runs, measure nothing")
    parser.add_argument("--alone", action="store_true", help="leave Omid's oracle out")
    parser.add_argument(
        "--before", type=Path, help="compare with the tso-server of this checkout, and not Omid's"
    )
    parser.add_argument("--store", default="null:", help="what ours persists to; default null:")
    parser.add_argument(
        "--hbase", action="store_true", help="let both persist commits on an HBase of their own"
    )
    parser.add_argument(
        "--sqlite", action="store_true", help="let ours persist commits on a file, alone"
    )
    parser.add_argument(
        "--omids-clients", action="store_true", help="announce nothing, as Omid's clients do"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    options = parser.parse_args(arguments)
    with ExitStack() as resources:
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        hbase = None
        if options.hbase:
            started = HBase.start(directory / "hbase", quick=options.quick)
            hbase = resources.enter_context(started)
        document = measure(
            directory,
            store=f"sqlite:///{directory}/store.db" if options.sqlite else options.store,
            seconds=0.1 if options.quick else options.seconds,
            rounds=1 if options.quick else options.rounds,
            warm_up_s=0.1 if options.quick else WARM_UP_S,
            beside_omid=not (options.alone or options.sqlite or options.before),
            before=options.before and options.before.resolve(),
            hbase=hbase,
            features=Feature.NONE if options.omids_clients else Feature.INVALIDATE,
            loads=DURABLE_LOADS if options.sqlite else LOADS,
        )
    console = Console()
    print_results(console, document)
    if document.ratios:
        table = Table("load", "ours over", "is", "aim")
        for ratio in document.ratios:
            aim = "" if ratio.aim is None else f"{ratio.aim}"
            table.add_row(ratio.load, ratio.over, f"{ratio.found:.3f}", aim)
        console.print(table)
    kind = "wire-hbase" if options.hbase else "wire-sqlite" if options.sqlite else "wire"
    kind = "wire-before" if options.before else kind
    keep(document, options.output, kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
