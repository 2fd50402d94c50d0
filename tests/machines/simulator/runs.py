"""Seeds one after the other, and what they came to together: what each core does."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tests.machines.simulator.plan import FOCI
from tests.machines.simulator.simulation import simulate


class Ran(NamedTuple):
    """What some seeds came to."""

    counts: Counter[str]
    marks: Counter[str]
    """Seeds that reached each."""
    failures: list[tuple[int, str]]
    """Seeds that found something, and what there is to say of them."""
    texts: list[str]


def run(seeds: range, *, focus: str, is_told: bool) -> Ran:
    """Run seeds in this process; `is_told` has each of them described."""
    counts: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    failures = []
    texts = []
    for seed in seeds:
        report = simulate(seed, focus=FOCI[focus])
        counts += report.counts
        counts["seeds"] += 1
        counts["simulated seconds"] += round(report.simulated_s)
        marks.update(report.reached)
        if report.findings:
            failures.append((seed, report.findings[0]))
        if report.findings or is_told:
            texts.append(str(report))
    return Ran(counts, marks, failures, texts)
