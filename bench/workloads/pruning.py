"""How many commit entries a second does the compactor prune, beside bare deletes in batches?

Bare deletes are told which entries there are; the pruner reads and judges each before it goes.
Both delete exact versions, a thousand in a write, in one thread, in turns within one run.

Before that the pruner looks for the least and the greatest entry of each bucket.  HBase goes
through the delete markers of all former rounds for that, few or many as there are entries now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from bench.measure import Result
from compactor.pruning.prune import PAGE_ENTRIES, PruneLimits, PruneTask, SlicesHere
from compactor.pruning.slices import begun, find_ends, prune_round
from compactor.pruning.unvisited import stretches
from omidpy.base.cells import commit_row, encode_commit
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE, CommitTable, create_system_tables
from omidpy.model import FIRST_WORLD_TIMESTAMP, TIMESTAMP_STEP, KeyRange, Timestamp
from omidpy.opening import open_store
from omidpy.storage.base import DeleteVersion, Put, RowMutation, Store

BUCKETS: Final = 8
"""Timestamps are even, so that half of the sixteen are used."""


def measure(directory: Path, *, entries: int, rounds: int) -> list[Result]:
    """Measure on one file."""
    with closing(open_store(f"sqlite:///{directory}/pruning.db")) as store:
        create_system_tables(store)
        return results(store, entries=entries, rounds=rounds)


def results(store: Store, *, entries: int, rounds: int) -> list[Result]:
    """Fill the commit table of a store and empty it, in turns by bare deletes and by the pruner."""
    bare, pruned, from_ends = [], [], []
    first = FIRST_WORLD_TIMESTAMP
    # HBase's delete markers would hide entries that come back, so that each time others go.
    for _ in range(rounds):
        elapsed_s, _ = _emptied(store, _batches(first, entries), _delete_bare)
        bare.append(entries / elapsed_s)
        first += entries * TIMESTAMP_STEP
        elapsed_s, ends_s = _emptied(store, _batches(first, entries), _prune)
        pruned.append(entries / elapsed_s)
        from_ends.append(entries / (elapsed_s - ends_s))
        first += entries * TIMESTAMP_STEP
    load = f"{entries} entries, 1 process, median of {rounds} rounds"
    ratio, ends_ratio = (
        median(mine / theirs for mine, theirs in zip(rates, bare, strict=True))
        for rates in (pruned, from_ends)
    )
    return [
        Result(name, load, per_second=rate, count=entries * rounds)
        for name, rate in (
            ("entries, bare deletes in batches", round(median(bare), 1)),
            ("entries, pruned", round(median(pruned), 1)),
            ("entries, pruned over bare deletes", round(ratio, 3)),
            ("entries, pruned once the ends were found, over bare deletes", round(ends_ratio, 3)),
        )
    ]


def _emptied(
    store: Store, batches: Sequence[range], empty: Callable[[Store, Sequence[range]], float]
) -> tuple[float, float]:
    """Fill the commit table; return in how many seconds it was emptied, and its ends were found."""
    for batch in batches:
        rows = [
            RowMutation(
                commit_row(start_ts),
                (Put(*COMMIT, start_ts, encode_commit(start_ts, start_ts + TIMESTAMP_STEP)),),
            )
            for start_ts in batch
        ]
        store.write({COMMIT_TABLE: rows})
    began_s = time.perf_counter()
    searched_s = empty(store, batches)
    elapsed_s = time.perf_counter() - began_s
    # Transactions of other measurements are far above.
    below = max(batch.stop for batch in batches)
    if any(True for _ in CommitTable(store).scan(below=below)):
        raise RuntimeError("there are entries left")
    return elapsed_s, searched_s


def _batches(first: int, entries: int) -> list[range]:
    """Return the start timestamps, those of one bucket together as the pruner meets them."""
    found = []
    for bucket in range(BUCKETS):
        low, high = first + bucket * TIMESTAMP_STEP, first + entries * TIMESTAMP_STEP
        of_bucket = range(low, high, BUCKETS * TIMESTAMP_STEP)
        found += [
            of_bucket[at : at + PAGE_ENTRIES] for at in range(0, len(of_bucket), PAGE_ENTRIES)
        ]
    return found


def _delete_bare(store: Store, batches: Sequence[range]) -> float:
    for batch in batches:
        rows = [
            RowMutation(commit_row(start_ts), deletes=(DeleteVersion(*COMMIT, start_ts),))
            for start_ts in batch
        ]
        store.write({COMMIT_TABLE: rows})
    return 0.0


def _prune(store: Store, batches: Sequence[range]) -> float:
    began_s = time.perf_counter()
    horizon = Timestamp(max(batch[-1] for batch in batches))
    limits = PruneLimits(Timestamp(0), horizon, horizon)
    ends = find_ends(CommitTable(store), limits)
    ends_s = time.perf_counter() - began_s
    limits = replace(limits, asked=stretches(ends.start_timestamps))
    task = PruneTask(KeyRange(), limits, COMMIT_TABLE)
    pruning = begun(limits, ends)
    while pruning.rests:
        pruning = prune_round(task, SlicesHere(store), pruning)
    if pruning.entries != sum(map(len, batches)):
        raise RuntimeError(f"only {pruning.entries} entries were pruned")
    return ends_s
