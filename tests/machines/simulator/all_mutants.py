"""Every mutant, by name, and how many seeds it takes to find each: a table, as the page shows it.

    python -m tests.machines.simulator.all_mutants --windows 10 [part of a name ...]

A window is a row of seeds of its own, in which a mutant is looked for by the name of its finding.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Final

from tests.machines.simulator.batch_mutants import BATCH_MUTANTS
from tests.machines.simulator.bucket_mutants import BUCKET_MUTANTS
from tests.machines.simulator.client_mutants import CLIENT_MUTANTS
from tests.machines.simulator.collection_mutants import COLLECTION_MUTANTS
from tests.machines.simulator.committer_mutants import COMMITTER_MUTANTS
from tests.machines.simulator.compaction_mutants import COMPACTION_MUTANTS
from tests.machines.simulator.disk_mutants import DISK_MUTANTS
from tests.machines.simulator.export_mutants import EXPORT_MUTANTS
from tests.machines.simulator.follow_mutants import FOLLOW_MUTANTS
from tests.machines.simulator.heavy_mutants import HEAVY_MUTANTS
from tests.machines.simulator.juggle_mutants import JUGGLE_MUTANTS
from tests.machines.simulator.mutants import MUTANTS
from tests.machines.simulator.operation_mutants import OPERATION_MUTANTS
from tests.machines.simulator.retry_mutants import RETRY_MUTANTS
from tests.machines.simulator.rolling_mutants import ROLLING_MUTANTS
from tests.machines.simulator.sharing_mutants import SHARING_MUTANTS
from tests.machines.simulator.simulation import Mutant
from tests.machines.simulator.stranger_mutants import STRANGER_MUTANTS
from tests.machines.simulator.znode_mutants import ZNODE_MUTANTS

ALL_MUTANTS: Final[dict[str, Mutant]] = {
    **MUTANTS,
    **BATCH_MUTANTS,
    **CLIENT_MUTANTS,
    **COMPACTION_MUTANTS,
    **COLLECTION_MUTANTS,
    **EXPORT_MUTANTS,
    **OPERATION_MUTANTS,
    **DISK_MUTANTS,
    **COMMITTER_MUTANTS,
    **BUCKET_MUTANTS,
    **HEAVY_MUTANTS,
    **SHARING_MUTANTS,
    **RETRY_MUTANTS,
    **STRANGER_MUTANTS,
    **FOLLOW_MUTANTS,
    **ROLLING_MUTANTS,
    **JUGGLE_MUTANTS,
    **ZNODE_MUTANTS,
}

BY_DAY: Final = frozenset(
    {
        "no conflict check",
        "forgotten epoch",
        "early reply",
        "lost fence",
        "retry answered abort",
        "invalidation ignored",
        "impatient standby",
        "lock of a file ignored",
        "cells without shadow cells",
        "undecided left alone",
        "put of many trusted",
        "failed batch answered",
        "lease taken from the living",
        "entry written unconditionally",
        "undone savepoint kept",
        "pruned up to the watermark",
        "horizon not published",
        "holds not read",
        "refusal taken for delivered",
        "order of begins",
        "removed by name",
        "commits unsynced",
        "cells unsynced",
        "forbidden, and not synced",
        "clock that stands still with its host",
        "taken back without a word",
        "length taken for identity",
        "woken, and not asked",
        "dead letters left behind",
        "watermark beside a long one unseen",
        "overwritten, and not compared",
        "used key not looked for",
        "another's commit decided",
        "read from the offset on",
        "lease kept elsewhere",
        "cancelled commit told as aborted",
        "znode of the lease not looked at",
        "nobody's session over",
    }
)
"""Those that are looked for by day, too: for each actor and each main promise one, in few seeds."""

MOST_SEEDS: Final = 120
"""In so many a mutant must be found: of one that each 16th seed finds, 1 of 2,300 rows has none."""
BETWEEN_WINDOWS: Final = 1000


def seeds_until_found(mutant: Mutant, first: int) -> int | None:
    """Return how many seeds it took, from one on; None: it was not found in `MOST_SEEDS`."""
    for count in range(1, MOST_SEEDS + 1):
        if mutant.is_found(first + count - 1):
            return count
    return None


def main() -> int:
    """Print the table; 1 if a mutant survived in a window."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("names", nargs="*", help="parts of names; all mutants if there are none")
    chosen = parser.parse_args()
    has_survivor = False
    print("| broken | found as | median | worst | seconds of processor |\n|---|---|---|---|---|")
    for name, mutant in ALL_MUTANTS.items():
        if chosen.names and not any(part in name for part in chosen.names):
            continue
        began_s = time.process_time()
        firsts = range(0, chosen.windows * BETWEEN_WINDOWS, BETWEEN_WINDOWS)
        found = [seeds_until_found(mutant, first) for first in firsts]
        seconds = (time.process_time() - began_s) / chosen.windows
        counts = [MOST_SEEDS + 1 if one is None else one for one in found]
        has_survivor |= None in found
        worst = f"over {MOST_SEEDS}" if None in found else max(counts)
        median = statistics.median(counts)
        finding = mutant.finding.replace("|", " or ")
        print(f"| {name} | {finding} | {median:g} | {worst} | {seconds:.1f} |", flush=True)
    return int(has_survivor)


if __name__ == "__main__":
    sys.exit(main())
