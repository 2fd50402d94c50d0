"""How many more transactions does the conflict map abort than a map that never forgets?

Both play the same game: so many transactions are under way, one of them by chance commits its cells
or is refused, and another one takes its place, with cells by chance.  One game has a place for the
latest commit of every key; the other the oracle's engine, whose memory is bounded.

What forgetting costs depends on how long transactions last, counted in writes, and on the size of
the map alone, so that no clock and no wire are needed.  The smallest map here is too small, which
shows that the game would tell.
"""

from __future__ import annotations

import os
import random
from array import array
from pathlib import Path
from typing import Final, Protocol

from bench.measure import Result, resident_mib
from tso.core.engine import STEP, Engine

KEYS: Final = 10_000_000
UNDER_WAY: Final = 1024
CELLS: Final = 10
MAP_SIZES: Final = (2**24, 1_000_000, 20_000)


class Decider(Protocol):
    """Says whether transactions may commit."""

    def issue(self) -> int:
        """Return a timestamp to begin at."""
        ...

    def commit(self, start_ts: int, cell_ids: list[int], table_ids: tuple[int, ...]) -> int:
        """Return the timestamp of the commit, or a negative number."""
        ...


class ExactMap:
    """Remembers the latest commit of every key; keys are 0 to `keys` - 1."""

    def __init__(self, keys: int) -> None:
        """Begin with no commits."""
        self._commits = array("q", bytes(8 * keys))
        self._last_issued = 0

    def issue(self) -> int:
        """Return a new timestamp."""
        self._last_issued += STEP
        return self._last_issued

    def commit(self, start_ts: int, cell_ids: list[int], table_ids: tuple[int, ...]) -> int:
        """Decide as the engine does, of which tables are no part here."""
        del table_ids
        commits = self._commits
        for cell in cell_ids:
            if commits[cell] >= start_ts:
                return -1
        commit_ts = self.issue()
        for cell in cell_ids:
            commits[cell] = commit_ts
        return commit_ts


def measure(_: Path, *, transactions: int, keys: int = KEYS) -> list[Result]:
    """Play with every size of the map.

    Args:
        transactions: Counted ones; before them as many are played as fill the largest map.
        keys: Cells that transactions choose theirs from.
    """
    unseen = 0 if keys < KEYS else MAP_SIZES[0] // CELLS
    load = f"{UNDER_WAY} under way, {CELLS} of {keys} keys each"
    exact = play(ExactMap(keys), keys=keys, unseen=unseen, transactions=transactions)
    results = [_share("aborts, exact map", load, exact, transactions)]
    for size in MAP_SIZES:
        before_mib = resident_mib(os.getpid())
        engine = Engine(last_issued=0, conflict_map_size=size, begin_memory=1, seed=1)
        found = play(engine, keys=keys, unseen=unseen, transactions=transactions)
        taken_mib = round(resident_mib(os.getpid()) - before_mib, 1)
        name = f"aborts, map of {size} writes"
        results += [
            _share(name, load, found, transactions),
            Result(f"{name}, over the exact map's", load, ratio=found / exact, count=exact),
            Result(f"memory, map of {size} writes", load, mib=taken_mib, count=size),
        ]
        del engine  # whose memory is not the next one's
    return results


def play(decider: Decider, *, keys: int, unseen: int, transactions: int) -> int:
    """Return how many of the last so many transactions were refused; `unseen` come before them."""
    dice = random.Random(1)
    draw, draw_some = dice.randrange, dice.choices
    cells = range(keys)
    under_way = [decider.issue() for _ in range(UNDER_WAY)]
    aborted_count = 0
    for number in range(unseen + transactions):
        place = draw(UNDER_WAY)
        # No transaction looks at its cells before it commits, so that they are drawn only then.
        if decider.commit(under_way[place], draw_some(cells, k=CELLS), ()) < 0:
            aborted_count += number >= unseen
        under_way[place] = decider.issue()
    return aborted_count


def _share(name: str, load: str, aborted_count: int, transactions: int) -> Result:
    return Result(name, load, ratio=aborted_count / transactions, count=transactions)
