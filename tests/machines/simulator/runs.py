"""Seeds one after the other, and what they came to together; on one core, or on all of them."""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final, NamedTuple

from tests.machines.simulator.plan import FOCI
from tests.machines.simulator.simulation import simulate

AT_ONCE: Final = 50
"""So many seeds are handed out together."""


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


def run_all(
    first: int, count: int, *, focus: str, is_told: bool = False, jobs: int = os.cpu_count() or 1
) -> Iterator[Ran]:
    """Run seeds on as many cores as there are; a `count` of 0 has no end.

    Who takes no more of it waits for the few that have begun.
    """
    one = partial(run, focus=focus, is_told=is_told)
    end = first + count if count else sys.maxsize
    each = (range(at, min(at + AT_ONCE, end)) for at in itertools.count(first, AT_ONCE))
    parts = itertools.takewhile(len, each)
    if 0 < count <= AT_ONCE or jobs == 1:
        yield from map(one, parts)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        waiting = [pool.submit(one, part) for part in itertools.islice(parts, 2 * jobs)]
        while waiting:
            yield waiting.pop(0).result()
            waiting += [pool.submit(one, part) for part in itertools.islice(parts, 1)]
    finally:
        pool.shutdown(cancel_futures=True)
