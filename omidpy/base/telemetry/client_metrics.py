"""How is this client doing?  Numbers that a program can read at any time.

A `Tally` is counted into by the parts of one manager; `tm.metrics` reads it as one frozen
`ClientMetrics`.  Two of them differ by what happened in between.  Prometheus reads the same numbers
if it is asked to (`prometheus.py`), and nothing here knows it.

Counting is on the way of every transaction: what all of them do takes no lock.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from omidpy.base.within import within
from omidpy.errors import CommitOutcomeUnknown, OmidError

BOUNDS_S: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""The upper bounds of the buckets of a distribution, in seconds; what is longer has one more."""

MANY: Final = 1024
"""So many latencies wait at most to be sorted into buckets."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long something took, each time."""

    count: int
    """How often it was done."""
    total_s: float
    """How long that took in all."""
    buckets: tuple[int, ...]
    """How often it took at most each of `BOUNDS_S` and more than the one before; last, longer."""

    @property
    def mean_s(self) -> float:
        """How long it took on average; 0 if it was never done."""
        return self.total_s / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    """What one manager has seen since it was made, or since its process was forked."""

    commits: int
    """Transactions that committed what they had written."""
    aborts: Mapping[str, int]
    """Commits that ended in an abort, by the name of the error: `WriteConflict` and so on."""
    retries: int
    """Tries that `tm.transactional` and `tm.attempts` made after a failed one."""
    outcomes_unknown: int
    """Commits that raised `CommitOutcomeUnknown`."""
    healed_cells: int
    """Shadow cells written for transactions of others that had left them out."""
    begin: Latencies
    """Begins of transactions."""
    commit: Latencies
    """Commits that are counted in `commits`, until the caller's code went on."""


class _Distribution:
    """Latencies as they come, and sorted into buckets now and then.

    An append needs no lock, and costs a tenth of an addition under one.
    """

    def __init__(self) -> None:
        self.waiting: deque[float] = deque()
        self._total_s = 0.0
        self._buckets = [0] * (len(BOUNDS_S) + 1)

    def sort(self) -> None:
        """Sort in what waits; one thread at a time."""
        # As many as there are now: others append meanwhile, without the lock.
        for _ in range(len(self.waiting)):
            seconds = self.waiting.popleft()
            self._total_s += seconds
            self._buckets[bisect_left(BOUNDS_S, seconds)] += 1

    def read(self) -> Latencies:
        """Return all of it; one thread at a time."""
        self.sort()
        return Latencies(sum(self._buckets), self._total_s, tuple(self._buckets))


class Tally:
    """Counts what happens to one manager.  Safe to share among threads."""

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self.now_s = now_s
        """Elapsed time, to measure by."""
        self.reset()

    def reset(self) -> None:
        """Begin at nought; the lock too, which another thread of a forked parent may have held."""
        self._lock = threading.Lock()
        self._begin = _Distribution()
        self._commit = _Distribution()
        self._aborts: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def began(self, since_s: float) -> None:
        """Count a begin that was asked for at `since_s`."""
        self._add(self._begin, since_s)

    def committed(self, since_s: float | None) -> None:
        """Count a commit that was asked for at `since_s`; None: that was found out later."""
        if since_s is None:
            within(self._lock, self._count, "late commits")
        else:
            self._add(self._commit, since_s)

    def _add(self, distribution: _Distribution, since_s: float) -> None:
        distribution.waiting.append(self.now_s() - since_s)
        if len(distribution.waiting) >= MANY:
            within(self._lock, distribution.sort)

    def not_committed(self, error: OmidError) -> None:
        """Count a commit that raised an abort, or that its outcome is not known."""
        if isinstance(error, CommitOutcomeUnknown):
            within(self._lock, self._count, "outcomes unknown")
        else:
            within(self._lock, self._count_abort, type(error).__name__)

    def retried(self) -> None:
        """Count a further try."""
        within(self._lock, self._count, "retries")

    def healed(self, cell_count: int) -> None:
        """Count shadow cells that a reader wrote."""
        within(self._lock, self._count, "healed cells", cell_count)

    def _count(self, what: str, by: int = 1) -> None:
        self._counts[what] += by

    def _count_abort(self, name: str) -> None:
        self._aborts[name] += 1

    def read(self) -> ClientMetrics:
        """Return the numbers of one moment."""
        return within(self._lock, self._read)

    def _read(self) -> ClientMetrics:
        commit = self._commit.read()
        return ClientMetrics(
            commits=commit.count + self._counts["late commits"],
            aborts=dict(self._aborts),
            retries=self._counts["retries"],
            outcomes_unknown=self._counts["outcomes unknown"],
            healed_cells=self._counts["healed cells"],
            begin=self._begin.read(),
            commit=commit,
        )
