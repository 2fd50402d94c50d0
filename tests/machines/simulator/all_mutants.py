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

BY_NIGHT: Final = frozenset(
    {
        "one claim suffices",
        "horizon acted on at once",
        "young for a minute",
        "hold not confirmed",
        "intent not raised",
        "watermark read behind the pass",
        "newest timestamp taken for the watermark",
        "fenced at once",
        "commits beside a long one unseen",
        "absent taken for aborted",
        "table of nobody kept",
        "put of few trusted",
        "lease ignored for single commits",
        "tentative cells believed",
        "invalidations forgotten",
        "begins overtake a batch",
        "lease renewed whoever has it",
        "blind to renewals",
        "every abort remembered",
        "the old admitted",
        "shadow cell not looked at twice",
        "healed at another timestamp",
        "completed at another timestamp",
        "snapshot sees the future",
        "last row of a page left out",
        "cells never sent",
        "forbidden in word only",
        "silence taken for a commit",
        "undone savepoint kept",
        "two transactions of one timestamp",
        "dropped unforbidden",
        "claimed too much",
        "healed at another time",
        "cursor moved first",
        "deposed, and delivered",
        "rows removed first",
        "scan begun at the snapshot",
        "order of begins",
        "nothing removed",
        "undone by name",
        "another's taken for one's own",
        "ghosts taken for tables",
        "given up in word only",
        "commits unsynced, and lost",
        "beginning unsynced",
        "own ceiling taken for synced",
        "heals unsynced",
        "operations unsynced",
        "completed without a plan",
        "decided twice",
        "old files listed once",
        "first in word only",
        "taken back while it is late",
        "lists removed that are named",
        "aborted, and not removed",
        "another run taken back",
        "second run taken for the first",
        "plan written over another's",
        "outcome forgotten too soon",
        "forgotten, and not asked",
        "swept before it has committed",
        "no row that all write",
        "files removed as it commits",
        "settled unfenced",
        "switched before it is empty",
        "dead letters left behind",
        "switched without a look at the dead",
        "definition believed for ever",
        "added to the old meanwhile",
        "poison alone set aside",
        "given up with what waits",
        "long one not looked for beside the map",
        "pushed out by a long one, and not said",
        "row of parts left open",
        "given up, and left there",
        "written, and then announced",
        "announced where it is closed",
        "acknowledged before it is sent",
        "parts merged, and not counted",
        "any part taken",
        "keys forgotten at once",
        "never begun, and decided",
        "unhealed changes left out",
        "told what comes later",
        "offset of half a commit",
        "forbidden in another column",
        "cells hashed otherwise",
        "operations kept elsewhere",
        "used keys in other rows",
        "cancelled commit told as aborted",
        "savepoint kept that timed out",
        "cancelled, and run all the same",
        "opened for nobody",
        "write kept that timed out",
        "operation's znode written over",
        "watermark before durability",
        "shadow cells under another prefix",
        "lease kept elsewhere",
        "claimed unhealed",
        "last row left out",
        "cancelled, and left at once",
        "snapshot before the watermark",
        "next table made unfenced",
    }
)
"""Those that are looked for by night alone: there is not time for all of them."""

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
