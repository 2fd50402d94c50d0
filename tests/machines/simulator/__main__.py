"""`make simulate SEEDS=n FIRST=m ALONE=1`: run seeds, print what was found, and sum up."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from tests.machines.simulator.plan import ALONE, USUAL
from tests.machines.simulator.simulation import simulate


def main() -> int:
    """Run the seeds; 1 if any of them found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--alone", action="store_true", help="oracles and clients, nobody else")
    parser.add_argument("--record", type=Path, help="add what was done to this file")
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    began_s = time.monotonic()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        report = simulate(seed, focus=ALONE if chosen.alone else USUAL)
        counts += report.counts
        counts["seeds"] += 1
        counts["simulated seconds"] += round(report.simulated_s)
        if report.findings:
            counts["seeds that found something"] += 1
        if report.findings or chosen.seeds == 1:
            print(report)
    for name, number in sorted(counts.items()):
        print(f"{number:10} {name}")
    print(f"from seed {chosen.first} on, in {time.monotonic() - began_s:.0f} s")
    if chosen.record is not None:
        record(chosen.record, counts)
    return 1 if counts["seeds that found something"] else 0


def record(path: Path, counts: Counter[str]) -> None:
    """Add to what earlier runs have done."""
    all_counts = counts + Counter(json.loads(path.read_text("utf-8")) if path.exists() else {})
    path.write_text(json.dumps(all_counts, indent=2, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
