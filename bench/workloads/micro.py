"""What do single steps cost?  The median of each benchmark in `bench/test_*.py`.

pytest-benchmark runs them, in a process of its own, one after another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from bench.measure import Result
from bench.processes import ROOT

_QUICK: Final = ("bench/test_micro.py", "--benchmark-min-rounds=1", "--benchmark-max-time=0.01")


class _Stats(msgspec.Struct, frozen=True):
    median: float
    rounds: int


class _Benchmark(msgspec.Struct, frozen=True):
    fullname: str
    stats: _Stats


class _Benchmarks(msgspec.Struct, frozen=True):
    benchmarks: list[_Benchmark]


def measure(directory: Path, *, quick: bool) -> list[Result]:
    """Run the benchmarks; stores are made in `directory`, whose disk is measured.

    Raises:
        RuntimeError: one of them failed.
    """
    report = directory / "micro.json"
    chosen = _QUICK if quick else ("bench",)
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(*chosen, "--benchmark-enable", f"--benchmark-json={report}"),
            f"--basetemp={directory / 'micro'}",
        ],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        raise RuntimeError(f"a benchmark failed:\n{finished.stdout[-4000:]}")
    found = msgspec.json.decode(report.read_bytes(), type=_Benchmarks)
    return [
        Result(
            one.fullname.removeprefix("bench/"),
            "one after another, 1 process",
            p50_ms=round(one.stats.median * 1000, 5),
            count=one.stats.rounds,
        )
        for one in found.benchmarks
    ]


def _environment() -> dict[str, str]:
    """Return this environment without what a run of pytest around it says to its children.

    In what takes itself for one of two workers, pytest-benchmark measures nothing.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return {**kept, "PYTEST_ADDOPTS": ""}
