"""The oracle's decision step, at its boundaries, interpreted and compiled."""

from __future__ import annotations

import itertools
from array import array
from types import ModuleType

import pytest

from tests.machines.engines import compiled_engine, interpreted_engine

pytestmark = pytest.mark.timeout(120)  # a chain that leads round does not end by itself

FORMS = ["interpreted", "compiled"]


@pytest.fixture(params=FORMS)
def engine(request: pytest.FixtureRequest) -> ModuleType:
    """Return the module in one of its two forms."""
    if request.param == "interpreted":
        return interpreted_engine()
    module = compiled_engine()
    if module is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    return module


def test_each_form_says_what_it_is(engine: ModuleType, request: pytest.FixtureRequest) -> None:
    """An operator who wonders about the speed asks which form runs."""
    assert engine.is_compiled() == ("compiled" in request.node.name)


def test_timestamps_follow_the_clock_and_never_repeat(engine: ModuleType) -> None:
    """I1: one step at a time while the clock stands or goes back, the clock's when it is ahead."""
    decider = engine.Engine(last_issued=100, conflict_map_size=4)
    assert [decider.issue(), decider.issue()] == [150, 200]
    decider.clock_ts = 1_000_000
    assert [decider.issue(), decider.issue()] == [1_000_000, 1_000_050]
    decider.clock_ts = 5_000
    assert decider.issue() == 1_000_100


def test_a_snapshot_at_the_watermark_is_refused(engine: ModuleType) -> None:
    """I4: forgotten commits are at or *below* the watermark, so equality is already unsafe."""
    decider = engine.Engine(last_issued=1000, conflict_map_size=4)
    decider.issue()
    assert decider.commit(1000, (1,), ()) == engine.ABORT_LOW_WATERMARK
    assert decider.commit(1050, (1,), ()) == 1100


def test_a_commit_at_the_snapshot_itself_conflicts(engine: ModuleType) -> None:
    """A commit at start_ts is not below the snapshot, so the snapshot did not see it."""
    decider = engine.Engine(last_issued=0, conflict_map_size=4)
    assert decider.commit(50, (7,), ()) == 50
    assert decider.commit(50, (7,), ()) == engine.ABORT_CONFLICT
    assert decider.commit(100, (7,), ()) == 100


@pytest.mark.parametrize("cell", [0, -(2**63), 2**63 - 1, -1])
def test_no_cell_id_is_special(engine: ModuleType, cell: int) -> None:
    """In Java -2**63 kills the oracle, and 0 looks like an empty slot."""
    decider = engine.Engine(last_issued=0, conflict_map_size=4)
    start_ts = decider.issue()
    assert decider.commit(start_ts, (cell,), ()) == 100
    assert decider.commit(start_ts, (cell,), ()) == engine.ABORT_CONFLICT
    assert decider.conflicts(start_ts, (cell,)) == [cell]


def test_an_empty_write_set_gets_a_commit_timestamp(engine: ModuleType) -> None:
    """Java sends one for writes to tables without conflict detection."""
    decider = engine.Engine(last_issued=0, conflict_map_size=4)
    start_ts = decider.issue()
    assert decider.commit(start_ts, (), ()) == 100
    assert decider.remembered_cell_count == 0


def test_repeated_cells_in_one_write_set_are_one(engine: ModuleType) -> None:
    """Two cells may share a hash, and a client need not look."""
    decider = engine.Engine(last_issued=0, conflict_map_size=4)
    assert decider.commit(decider.issue(), (7, 7, 7), ()) == 100
    assert decider.remembered_cell_count == 1


def test_the_oldest_commit_of_all_is_evicted(engine: ModuleType) -> None:
    """I3, with the lowest watermark that the capacity permits: a cell committed anew is young."""
    decider = engine.Engine(last_issued=0, conflict_map_size=2)
    first = decider.commit(decider.issue(), (1,), ())
    second = decider.commit(decider.issue(), (2,), ())
    decider.commit(decider.issue(), (1,), ())
    assert decider.low_watermark == 0
    third_start = decider.issue()
    decider.commit(third_start, (3,), ())
    assert decider.low_watermark == second
    assert decider.conflicts(first, (1,)) == [1]


def test_a_write_set_larger_than_the_map_refuses_what_it_forgot(engine: ModuleType) -> None:
    """Its own cells fall out at once; the watermark then stands at its own commit."""
    decider = engine.Engine(last_issued=0, conflict_map_size=3)
    open_start = decider.issue()
    commit_ts = decider.commit(decider.issue(), range(10), ())
    assert decider.low_watermark == commit_ts
    assert decider.commit(open_start, (0,), ()) == engine.ABORT_LOW_WATERMARK


def test_a_fence_refuses_older_transactions_on_its_table_alone(engine: ModuleType) -> None:
    """A fence's timestamp is above every snapshot taken before it."""
    decider = engine.Engine(last_issued=0, conflict_map_size=4)
    before = decider.issue()
    fence_ts = decider.fence(-5)
    assert fence_ts > before
    assert decider.commit(before, (1,), (-5,)) == engine.ABORT_FENCE
    assert decider.commit(before, (2,), (6,)) > 0
    assert decider.commit(decider.issue(), (1,), (6, -5)) > 0


def test_fences_below_the_watermark_are_forgotten(engine: ModuleType) -> None:
    """They can refuse nobody whom the watermark does not refuse."""
    decider = engine.Engine(last_issued=0, conflict_map_size=4)
    decider.fence(1)
    newest = decider.fence(1)
    assert decider.raise_low_watermark(newest - 50)
    assert decider.fence_count == 1
    assert decider.raise_low_watermark(newest)
    assert decider.fence_count == 0


def test_a_fence_forgotten_for_want_of_room_raises_the_watermark(engine: ModuleType) -> None:
    """I3 holds for fences too: a client cannot make the oracle forget one unnoticed."""
    decider = engine.Engine(last_issued=0, conflict_map_size=4, max_fence_count=2)
    before = decider.issue()
    first = decider.fence(1)
    decider.fence(2)
    decider.fence(3)
    assert decider.low_watermark == first
    assert decider.commit(before, (1,), (1,)) == engine.ABORT_LOW_WATERMARK


def test_the_watermark_neither_falls_nor_passes_the_last_timestamp(engine: ModuleType) -> None:
    """Above the last timestamp it would refuse transactions that have not begun."""
    decider = engine.Engine(last_issued=500, conflict_map_size=4)
    assert not decider.raise_low_watermark(400)
    assert decider.raise_low_watermark(10_000)
    assert decider.low_watermark == 500


def test_an_abort_names_at_most_64_cells(engine: ModuleType) -> None:
    """Java reads frames of 8 KiB."""
    decider = engine.Engine(last_issued=0, conflict_map_size=1000)
    start_ts = decider.issue()
    decider.commit(start_ts, range(100), ())
    assert decider.conflicts(start_ts, range(100)) == list(range(64))


def test_a_map_without_room_is_refused(engine: ModuleType) -> None:
    """A capacity of 0 could not even hold the cell being written."""
    with pytest.raises(ValueError, match="capacity 0"):
        engine.LatestMap(0)


def test_growing_keeps_every_entry_and_its_age(engine: ModuleType) -> None:
    """The arrays double several times on the way to 10,000 entries."""
    entries = engine.LatestMap(10_000, seed=12345)
    for key in range(10_000):
        assert not entries.put(key * 2**40, key + 1)
    assert all(entries.get(key * 2**40) == key + 1 for key in range(10_000))
    assert entries.put(-1, 5)
    assert (entries.evicted_key, entries.evicted_value) == (0, 1)


def test_a_key_that_is_not_remembered_is_found_nowhere(engine: ModuleType) -> None:
    """Chains lead to slots that others took over, and back to the slot they come from."""
    entries = engine.LatestMap(3, seed=7)
    for key in range(1, 1000):
        assert entries.put(key, key) == (key > 3)
        found = {known: entries.get(known) for known in range(1, 1100) if entries.get(known)}
        assert found == {kept: kept for kept in range(max(key - 2, 1), key + 1)}


def test_the_latest_settings_are_counted_around_the_end_of_the_ring(engine: ModuleType) -> None:
    """Of commits, those at or above a snapshot: all others need no look."""
    entries = engine.LatestMap(10)
    for place in range(1, 38):
        entries.put(place, place // 3 * 10 + 10)
        values = [one // 3 * 10 + 10 for one in range(max(place - 9, 1), place + 1)]
        for since in range(max(place - 20, 0), place // 3 * 10 + 25):
            assert entries.recent(since) == sum(value >= since for value in values)
        for latest in range(12):
            assert bool(entries.find(place - 4, latest)) == (place > 4 and latest > 4)


def test_timestamps_in_a_row_have_buckets_in_a_row_and_chosen_ones_have_not() -> None:
    """Who asks about old ones must not choose them so that all are in one chain."""
    size = 2**16
    entries = interpreted_engine().LatestMap(size, seed=7, is_reserved=True, holds_timestamps=True)
    buckets = [entries._bucket(50 * number) for number in range(10**9, 10**9 + 1000)]
    ahead = [(after - before) % size for before, after in itertools.pairwise(buckets)]
    assert ahead.count(1) >= 998  # where a group ends the next is somewhere else
    chosen = [50 * size * number for number in range(1, size)]
    assert len({entries._bucket(key) for key in chosen}) > size // 2
    for key in chosen:
        entries.put(key, key + 50)
    assert all(entries.get(key) == key + 50 for key in chosen)


@pytest.mark.parametrize("cells", [1, 2, 1000])
def test_cells_that_are_written_all_the_time_raise_no_watermark(
    engine: ModuleType, cells: int
) -> None:
    """A transaction may outlast any number of writes of few cells by others."""
    capacity = 100_000
    decider = engine.Engine(last_issued=0, conflict_map_size=capacity, seed=3)
    before = decider.issue()
    for first in range(0, 3 * capacity, 1000):
        written = [number % cells for number in range(first, first + 1000)]
        assert decider.commit(decider.issue(), sorted(set(written)), ()) > 0
    assert decider.low_watermark == 0
    assert decider.commit(before, (-1,), ()) > 0


@pytest.mark.parametrize("cells", [4500, 9000])
def test_what_is_forgotten_and_not_surely_written_again_raises_the_watermark(
    engine: ModuleType, cells: int
) -> None:
    """I3: nobody remembers that a cell was committed again long after."""
    decider = engine.Engine(last_issued=0, conflict_map_size=5000, seed=3)
    stamps = [decider.commit(decider.issue(), (cell % cells,), ()) for cell in range(20_000)]
    for age, commit_ts in enumerate(reversed(stamps)):
        assert (commit_ts > decider.low_watermark) == (age < 5000)


def test_a_slot_forgets_that_what_it_held_was_written_again(engine: ModuleType) -> None:
    """I3, after a time in which one cell took all the writes."""
    decider = engine.Engine(last_issued=0, conflict_map_size=10)
    for _ in range(30):
        decider.commit(decider.issue(), (7,), ())
    assert decider.low_watermark == 0
    stamps = [decider.commit(decider.issue(), (cell,), ()) for cell in range(100, 120)]
    assert decider.low_watermark == stamps[9]


def test_a_table_takes_one_place_however_often_it_is_fenced(engine: ModuleType) -> None:
    """65,600 fences of one table raised the low watermark, and aborted whatever ran."""
    decider = engine.Engine(last_issued=0, conflict_map_size=4, max_fence_count=2)
    for _ in range(10):
        decider.fence(7)
    assert (decider.fence_count, decider.low_watermark) == (1, 0)
    second = decider.fence(8)
    newest = decider.fence(7)
    decider.fence(9)
    assert decider.low_watermark == second
    assert decider.commit(newest - 50, [], [7]) == engine.ABORT_LOW_WATERMARK
    begun = decider.issue()
    assert decider.commit(begun, [], [7, 8, 9]) > begun


def test_what_is_no_timestamp_belongs_to_nobody_however_old_it_is(engine: ModuleType) -> None:
    """Where it is forgotten who began what, only what can have begun is somebody's."""
    decider = engine.Engine(last_issued=0, conflict_map_size=4, begin_memory=2)
    for client in (7, 8, 9, 10):
        decider.begin(client)
    assert [decider.owner(start_ts) for start_ts in (50, 100, 150, 200, 250)] == [-2, -2, 9, 10, 0]
    assert [decider.owner(start_ts) for start_ts in (-50, 0, 1, 75, 101)] == [0] * 5


def test_who_began_what_is_told_before_it_is_forgotten(engine: ModuleType) -> None:
    """But not of what can commit no more; and what never had an owner is anybody's for ever."""
    kept: list[tuple[int, list[int]]] = []

    def keep(begun: dict[int, bytearray]) -> None:
        kept.extend((client, array("q", stamps).tolist()) for client, stamps in begun.items())

    decider = engine.Engine(last_issued=0, conflict_map_size=4, begin_memory=2, keep=keep)
    for client in (0, 7, 7, 8, 7, 9, 9):
        decider.begin(client)
    assert decider.owner(50) == engine.FORGOTTEN
    decider.settle()
    decider.settle()
    assert kept == [(7, [100, 150, 250]), (8, [200])]
    decider.raise_low_watermark(300)
    decider.begin(7)
    decider.settle()
    assert kept[2:] == []
    decider.begin(7)
    decider.settle()
    assert kept[2:] == [(9, [350])]
    anonymous = engine.Engine(last_issued=0, conflict_map_size=4, begin_memory=2)
    for _ in range(5):
        anonymous.begin(0)
    assert [anonymous.owner(start_ts) for start_ts in (50, 100, 250)] == [engine.EVERYBODYS] * 3
