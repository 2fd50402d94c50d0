"""`make simulate SEEDS=n FIRST=m`: run seeds, print what was found, and sum up."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.machines.simulator.simulation import simulate


def main() -> int:
    """Run the seeds; 1 if any of them found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    simulated_s, failed, began_s = 0.0, 0, time.monotonic()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        report = simulate(seed)
        counts += report.counts
        simulated_s += report.simulated_s
        if report.findings:
            failed += 1
            print(report)
        elif chosen.seeds == 1:
            print(report)
    for name, number in sorted(counts.items()):
        print(f"{number:10} {name}")
    print(
        f"{chosen.seeds} seeds from {chosen.first}, {failed} failed; "
        f"{simulated_s / 3600:.2f} simulated hours in {time.monotonic() - began_s:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
