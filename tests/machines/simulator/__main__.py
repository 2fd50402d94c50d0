"""Run seeds on all cores, print what was found and which marks were reached, and sum up.

make simulate SEEDS=100                    # seeds 0 to 99
make simulate SEEDS=0                      # from 0 on, until it is interrupted
make simulate SEEDS=1 FIRST=4711           # one of them again
make simulate SEEDS=1 FIRST=4711 SHRINK=1  # the same, without what its finding does not need
make simulate FOCUS=crowded                # other worlds: see `plan.FOCI`
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.machines.simulator.before import WITHOUT, before
from tests.machines.simulator.marks import ROOT, table_of
from tests.machines.simulator.plan import FOCI
from tests.machines.simulator.runs import run_all
from tests.machines.simulator.shrinking import shrink

KEPT: Final = ROOT / "build" / "simulated.txt"
"""Where seeds that found something are kept, also of a run that is interrupted."""


def main() -> int:
    """Run the seeds; 1 if any of them found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="0: until it is interrupted")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--focus", choices=FOCI, default="usual")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shrink", action="store_true", help="of each seed that finds something")
    parser.add_argument("--keep", type=Path, default=KEPT, help="add what was found to this file")
    parser.add_argument("--record", type=Path, help="add what was done to this file")
    chosen = parser.parse_args()
    if any(FOCI[chosen.focus].before_shares) and before() is None:
        parser.error(WITHOUT)
    counts: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    failures: list[tuple[int, str]] = []
    began_s = time.monotonic()
    try:
        for ran in run_all(
            chosen.first,
            chosen.seeds,
            focus=chosen.focus,
            is_told=chosen.seeds == 1,
            jobs=chosen.jobs,
        ):
            counts += ran.counts
            marks += ran.marks
            failures += ran.failures
            keep(chosen.keep, ran.failures, focus=chosen.focus)
            for text in ran.texts:
                print(text, flush=True)
            for seed, _ in ran.failures if chosen.shrink else ():
                print(shrink(seed, focus=FOCI[chosen.focus]), flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    seconds = time.monotonic() - began_s
    for name, number in sorted(counts.items()):
        print(f"{number:10} {name}")
    print("seeds that reached each mark:")
    for line in table_of(marks):
        print(line)
    print(
        f"from seed {chosen.first} on, in {seconds:.0f} s: {counts['seeds'] / seconds:.1f} seeds "
        f"a second, {counts['simulated seconds'] / seconds:.0f} simulated hours an hour"
    )
    for seed, finding in failures:
        print(f"seed {seed} found {finding}")
    if failures:
        print(f"kept in {chosen.keep}")
    if chosen.record is not None:
        record(chosen.record, counts)
    return 1 if failures else 0


def keep(path: Path, failures: Sequence[tuple[int, str]], *, focus: str) -> None:
    """Add a line for each seed that found something: seed, focus and finding."""
    if failures:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(
                f"{seed} {focus} {' '.join(found.split())}\n" for seed, found in failures
            )


def record(path: Path, counts: Counter[str]) -> None:
    """Add to what earlier runs have done."""
    all_counts = counts + Counter(json.loads(path.read_text("utf-8")) if path.exists() else {})
    path.write_text(json.dumps(all_counts, indent=2, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
