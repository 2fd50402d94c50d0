"""Numbers, and what has to be known about the machine to believe them."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from bench.processes import ROOT
from tso.core import engine

_SPIN_S: Final = 0.002
"""The last moments before an arrival are spent spinning: a sleep would oversleep by more than what
is measured."""

_PROBES: Final = 200


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measured quantity."""

    name: str
    load: str
    """What was asked: arrivals a second, or so many processes that never pause."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    per_second: float | None = None
    mib: float | None = None
    ratio: float | None = None
    count: int = 0


class Machine(msgspec.Struct, frozen=True):
    """Where it was measured."""

    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    sqlite: str
    oracle_engine: str
    """`compiled` or `interpreted`."""
    fsync_p50_ms: float
    """Of 4 KiB appended to a file beside the stores that were measured."""
    fsync_p99_ms: float


class Document(msgspec.Struct, frozen=True):
    """What a result file holds."""

    date: str
    commit: str
    machine: Machine
    load_average_before: float
    load_average_after: float
    results: list[Result]


def keep(document: Document, output: Path, *words: str) -> None:
    """Write a result file, named by date, commit and some words, and print its path."""
    path = output / f"{'-'.join((document.date, document.commit, *words))}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    print(path)


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the smallest value that at least `fraction` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(fraction * 1000) // 1000) - 1)]


def latencies(name: str, load: str, seconds: Sequence[float]) -> Result:
    """Sum up latencies."""
    return Result(
        name,
        load,
        p50_ms=round(percentile(seconds, 0.50) * 1000, 4),
        p99_ms=round(percentile(seconds, 0.99) * 1000, 4),
        count=len(seconds),
    )


def paced(
    operation: Callable[[], object],
    *,
    per_second: float,
    count: int,
    prepare: Callable[[], object] | None = None,
) -> list[float]:
    """Return the latencies of `count` operations that arrive at a fixed rate.

    A latency counts from the moment an operation was due, so that a stall shows in every operation
    that it delays (open loop).  `prepare` runs before each arrival and is not counted.
    """
    found = []
    start_s = time.perf_counter() + _SPIN_S
    for number in range(count):
        if prepare is not None:
            prepare()
        due_s = start_s + number / per_second
        while (left_s := due_s - time.perf_counter()) > 0:
            if left_s > _SPIN_S:
                time.sleep(left_s - _SPIN_S)
        operation()
        found.append(time.perf_counter() - due_s)
    return found


def describe_machine(directory: Path) -> Machine:
    """Describe this machine, and the disk that holds `directory`."""
    syncs = _sync_latencies(directory / "probe")
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    source = str(engine.__file__)
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(pages / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        oracle_engine="interpreted" if source.endswith(".py") else "compiled",
        fsync_p50_ms=round(percentile(syncs, 0.50) * 1000, 3),
        fsync_p99_ms=round(percentile(syncs, 0.99) * 1000, 3),
    )


def resident_mib(pid: int) -> float:
    """Return how much memory a process takes now, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def commit_id(checkout: Path = ROOT) -> str:
    """Return the short id of the checked out commit, marked if the tree differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def today() -> str:
    """Return the date, as result files are named."""
    return datetime.now(UTC).date().isoformat()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _sync_latencies(path: Path) -> list[float]:
    found = []
    with path.open("wb", buffering=0) as file:
        for _ in range(_PROBES):
            began_s = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            found.append(time.perf_counter() - began_s)
    path.unlink()
    return found
