"""The commit table is pruned in slices: all of it, once, wherever its entries are."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.pruning.prune import (
    PAGE_ENTRIES,
    PruneLimits,
    PruneResult,
    PruneTask,
    SlicePruner,
    SlicesHere,
)
from compactor.pruning.slices import Ends, Pruned, begun, cut, find_ends, prune_round, slices
from omidpy.base.cells import commit_row
from omidpy.base.commit_facts import INVALID
from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE, CommitTable, EntryRow
from omidpy.model import FIRST_WORLD_TIMESTAMP, KeyRange, Timestamp
from omidpy.storage.base import Capabilities, Put, Row, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import World
from tests.machines.interleaving import interleaved

PATIENCE_S: Final = 30.0
WORLD_TS: Final = FIRST_WORLD_TIMESTAMP
START_TIMESTAMPS: Final = st.one_of(
    st.integers(0, 80), st.integers(WORLD_TS // 50, WORLD_TS // 50 + 80)
).map(lambda number: number * 50)
"""Of oracles that count, and of those in world time."""


def limits_of(
    horizon: int, *, first: int = 0, invalidations: int | None = None, asked: Sequence[range] = ()
) -> PruneLimits:
    """Return limits that let invalidations go like commits."""
    below = horizon if invalidations is None else invalidations
    return PruneLimits(Timestamp(first), Timestamp(horizon), Timestamp(below), asked)


# -- the ends --------------------------------------------------------------------------------------


@given(
    st.dictionaries(START_TIMESTAMPS, st.sampled_from(["commit", "invalid", "malformed"])),
    START_TIMESTAMPS,
    START_TIMESTAMPS,
    START_TIMESTAMPS,
)
def test_ends_are_those_of_everything_that_could_go(
    entries: dict[int, str], first: int, horizon: int, invalidation_horizon: int
) -> None:
    """Found from both ends of each bucket, they are what a reader of the whole table finds."""
    world = World(MemoryStore())
    for start_ts, kind in entries.items():
        if kind == "commit":
            world.enter(start_ts, start_ts + 50)
        elif kind == "invalid":
            world.invalidate(start_ts)
        else:
            world.enter(start_ts, start_ts - 1)
    limits = limits_of(horizon, first=first, invalidations=invalidation_horizon)
    found = find_ends(world.commit_table, limits)
    everything = [row for page in world.commit_table.scan() for row in page]
    old = [row.start_ts for row in everything if limits.is_old_enough(row)]
    for is_world in (False, True):
        of_kind = [one for one in old if (one >= WORLD_TS) == is_world]
        ends = [one for one in found.start_timestamps if (one >= WORLD_TS) == is_world]
        assert (min(ends, default=0), max(ends, default=0)) == (
            min(of_kind, default=0),
            max(of_kind, default=0),
        )
    outside = {
        row.start_ts
        for row in everything
        if row.complaint
        and row.start_ts <= horizon
        and not any(min(old, default=0) <= row.start_ts <= one for one in old)
    }
    assert outside <= found.malformed.keys(), "what no slice comes to was met on the way"


def test_ends_of_a_million_entries_are_as_near_as_those_of_two() -> None:
    """Reading them all took the driver of a job longer than anything else."""
    world = World(MemoryStore())
    for number in range(1, 3001):
        world.enter(800 * number, 800 * number + 50)  # one bucket
    calls: Counter[str] = Counter()
    store = interleaved(world.store, lambda method, _: calls.update([method]))
    found = find_ends(CommitTable(store), limits_of(800 * 3000))
    assert sorted(found.start_timestamps) == [800, 800 * 3000]
    assert calls == {"scan": 17}, "one for each bucket, and one from the end of the full one"


class FarStore(MemoryStore):
    """A store behind a network, which says what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_scan: Callable[[], object] = ignore
        self.on_page: Callable[[int], None] = ignore
        self.on_write: Callable[[], None] = ignore

    @property
    def capabilities(self) -> Capabilities:
        """Say that it is far, and that nothing is looked at in a write."""
        return Capabilities(remote=True, guarded_batches=False)

    def scan(self, *args: Any, **kwargs: Any) -> Iterator[list[Row]]:
        """Yield pages."""
        self.on_scan()
        for number, page in enumerate(super().scan(*args, **kwargs)):
            self.on_page(number)
            yield page

    def write(self, *args: Any, **kwargs: Any) -> None:
        """Write."""
        self.on_write()
        super().write(*args, **kwargs)


def ignore(*_: object) -> None:
    """Do nothing."""


def test_buckets_behind_a_network_are_searched_at_once() -> None:
    """HBase goes through what was deleted before, for seconds a bucket after a first prune."""
    store = FarStore()
    world = World(store)
    for start_ts in (100, 850, 900):
        world.enter(start_ts, start_ts + 50)
    meeting, numbers = threading.Barrier(2, timeout=PATIENCE_S), itertools.count()
    # Whoever comes later may be alone with the last bucket.
    store.on_scan = lambda: next(numbers) < 2 and meeting.wait()
    found = find_ends(world.commit_table, limits_of(900, first=150))
    assert sorted(found.start_timestamps) == [850, 850, 900, 900]


# -- cutting ---------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 2000)), max_size=2),
    st.integers(0, 4000),
    st.integers(1, 200),
    st.integers(0, 4000),
)
def test_each_entry_lies_in_one_slice_if_it_was_asked_about(
    stretches: list[tuple[int, int]], horizon: int, at_least: int, start_ts: int
) -> None:
    """However finely they are cut, none is left out and none is worked on twice."""
    asked = [range(low, low + length) for low, length in stretches[:1]]
    asked += [range(4000 + low, 4000 + low + length) for low, length in stretches[1:]]
    pieces = cut(slices(limits_of(horizon, asked=asked)), at_least=at_least)
    row = commit_row(start_ts)
    holding = [piece for piece in pieces if piece.start <= row < piece.end]
    is_asked = start_ts <= horizon and any(start_ts in stretch for stretch in asked)
    assert len(holding) == is_asked
    assert all(piece.start[:1] == piece.end[:1] for piece in pieces), "each within a bucket"


def test_slices_are_cut_until_there_are_enough() -> None:
    """Or until one holds one entry at most."""
    whole = [KeyRange(commit_row(0), commit_row(16_000))]
    assert len(cut(whole, at_least=5)) == 8
    finest = cut(whole, at_least=10**6)
    assert len(finest) < 10**4
    assert cut([], at_least=5) == []


# -- the rounds ------------------------------------------------------------------------------------


class Watched(SlicesHere):
    """Remembers the sizes of rounds."""

    workers = 3

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.rounds: list[int] = []

    def run(self, tasks: Sequence[PruneTask]) -> list[PruneResult]:
        """Carry out every task."""
        self.rounds.append(len(tasks))
        return super().run(tasks)


def pruned(task: PruneTask, store: Watched) -> Pruned:
    """Have every entry removed that may go, round after round."""
    pruning = begun(task.limits, Ends())
    while pruning.rests:
        pruning = prune_round(task, store, pruning)
    return pruning.pruned(task.commit_table)


@given(st.dictionaries(st.integers(1, 400), st.booleans(), min_size=1), st.integers(1, 20))
def test_every_round_goes_on_where_the_last_one_ended(
    entries: dict[int, bool], most_entries: int
) -> None:
    """Tasks that leave a rest leave nothing out, and count nothing twice."""
    world = World(MemoryStore())
    for number, is_commit in entries.items():
        world.enter(50 * number, 50 * number + 50) if is_commit else world.invalidate(50 * number)
    limits = limits_of(10_000, asked=[range(15_000)])
    going = {50 * number: is_commit for number, is_commit in entries.items() if number <= 200}
    task = PruneTask(KeyRange(), limits, COMMIT_TABLE, most_entries=most_entries)
    expected = Pruned(sum(going.values()), len(going) - sum(going.values()), [])
    assert pruned(task, Watched(world.store)) == expected
    assert world.entries().keys() == {50 * number for number in entries if number > 200}


def test_dense_part_is_cut_up_for_all_workers() -> None:
    """The entries of last night lie in a corner of a range of months."""
    world = World(MemoryStore())
    recent = 16 * 50 * 10**9
    world.enter(800, 850)
    for number in range(5000):
        world.enter(recent + 800 * number, recent + 800 * number + 50)
    limits = limits_of(2 * recent, asked=[range(800, recent + 800 * 5000)])
    store = Watched(world.store)
    task = PruneTask(KeyRange(), limits, COMMIT_TABLE, most_entries=PAGE_ENTRIES)
    assert pruned(task, store).entries == 5001
    assert store.rounds[0] >= 12
    assert all(size >= 12 for size in store.rounds), "no worker waits for another"


# -- one slice -------------------------------------------------------------------------------------


def test_row_without_a_column_of_ours_is_no_entry() -> None:
    """The family is read whole, and somebody may have put another column there."""
    world = World(MemoryStore())
    put = Put(COMMIT.family, b"other", 100, b"v")
    world.store.write({COMMIT_TABLE: [RowMutation(commit_row(100), (put,))]})
    assert list(world.commit_table.scan()) == []
    world.enter(100, 150)
    assert list(world.commit_table.scan()) == [[EntryRow(Timestamp(100), Timestamp(150))]]


def test_page_goes_in_one_write_without_a_condition() -> None:
    """One conditional call an entry took days for a thousand million of them."""
    world = World(MemoryStore())
    for number in range(1, 2501):
        world.enter(800 * number, 800 * number + 50)
    limits = limits_of(10**7, asked=[range(10**7)])
    task = PruneTask(KeyRange(commit_row(0), commit_row(16 * 10**6)), limits, COMMIT_TABLE)
    calls: Counter[str] = Counter()
    store = interleaved(world.store, lambda method, _: calls.update([method]))
    assert SlicePruner(store, task).run().entries == 2500
    assert calls == {"scan": 1, "write": 3}


def test_next_page_is_read_while_one_goes() -> None:
    """Where both cross a network; what went is known all the same when the next read fails."""
    store = FarStore()
    world = World(store)
    for number in range(1, 2501):
        world.enter(800 * number, 800 * number + 50)
    limits = limits_of(10**7, asked=[range(10**7)])
    task = PruneTask(KeyRange(commit_row(0), commit_row(16 * 10**6)), limits, COMMIT_TABLE)
    is_read, writes = [threading.Event(), threading.Event()], iter(range(2))

    def on_page(number: int) -> None:
        if number == 2:
            is_read[1].set()
            raise StorageUnavailable("no answer")
        if number:
            is_read[0].set()

    def on_write() -> None:
        assert is_read[next(writes)].wait(PATIENCE_S)

    store.on_page, store.on_write = on_page, on_write
    result = SlicePruner(store, task).run()
    assert (result.entries, result.obstacle) == (2000, "no answer")
    assert result.kept == KeyRange(commit_row(800 * 2000) + b"\x00", task.rows.end)
    assert len(world.entries()) == 500


@pytest.mark.parametrize(
    ("entry", "left"), [(Timestamp(150), {100: INVALID}), (INVALID, {})], ids=["commit", "invalid"]
)
def test_commit_goes_alone_and_an_invalidation_takes_a_commit_with_it(
    entry: Timestamp | object, left: dict[int, object]
) -> None:
    """Either may have come since the row was read; a commit must never be what is left."""
    world = World(MemoryStore())
    world.enter(100, 150)
    world.invalidate(100)
    world.commit_table.forget([EntryRow(Timestamp(100), entry)])  # type: ignore[arg-type]
    assert world.entries() == left
