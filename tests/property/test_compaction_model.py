"""Random histories of one row: no snapshot at or above the horizon notices a compaction.

The model is the naive truth: the list of transactions with their fates.  Cells are healed, half
healed, tombstoned, checkpointed, autocommitted, overlapping as conflict-free writes are, and hidden
by family markers as Java writes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omidpy.base.cells import is_tombstone
from omidpy.model import Cell, base
from omidpy.reading.visibility import sort_row
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.examples import fewer_by_day

pytestmark = pytest.mark.usefixtures("spans_however_small")

ROW: Final = b"r"
SNAPSHOTS: Final = range(50, 1100, 50)


@dataclass(frozen=True)
class Write:
    """One cell of a transaction."""

    qualifier: bytes
    value: bytes
    checkpoint: int
    is_healed: bool


@dataclass(frozen=True)
class Transaction:
    """What a client did, and how far it came."""

    start_ts: int
    commit_ts: int | None
    is_invalidated: bool
    is_autocommitted: bool
    keeps_entry: bool
    writes: tuple[Write, ...]


def writes() -> st.SearchStrategy[tuple[Write, ...]]:
    """Draw the cells of a transaction, one a column and checkpoint."""
    one = st.builds(
        Write,
        st.sampled_from([b"", b"a", b"b"]),
        st.sampled_from([b"x", b"y", b""]),
        st.sampled_from([0, 0, 1, 49]),
        st.booleans(),
    )
    return st.lists(
        one, min_size=1, max_size=3, unique_by=lambda write: (write.qualifier, write.checkpoint)
    ).map(tuple)


@st.composite
def histories(draw: st.DrawFn) -> list[Transaction]:
    """Draw transactions whose timestamps are all different, as an oracle's are."""
    numbers = draw(st.permutations(list(SNAPSHOTS)))
    transactions = []
    for index in range(draw(st.integers(1, 5))):
        first, second = sorted(numbers[2 * index : 2 * index + 2])
        fate = draw(st.sampled_from(["committed", "committed", "committed", "open", "invalid"]))
        is_autocommitted = fate == "committed" and draw(st.sampled_from([False, False, True]))
        transactions.append(
            Transaction(
                start_ts=first,
                commit_ts=second if fate == "committed" else None,
                is_invalidated=fate == "invalid",
                is_autocommitted=is_autocommitted,
                keeps_entry=draw(st.booleans()),
                writes=draw(writes()),
            )
        )
    return transactions


def play(world: World, transactions: list[Transaction], *, low_watermark: int) -> None:
    """Write the cells and entries that a history leaves."""
    for transaction in transactions:
        start_ts, commit_ts = transaction.start_ts, transaction.commit_ts
        is_whole = True
        for write in transaction.writes:
            version = start_ts + write.checkpoint
            cell = world.put(ROW, version, write.value, qualifier=write.qualifier)
            if transaction.is_autocommitted:
                world.heal(cell, version)
            elif commit_ts is not None and write.is_healed:
                world.heal(cell, commit_ts)
            else:
                is_whole = False
        if transaction.is_invalidated:
            world.invalidate(start_ts)
        if (
            commit_ts is not None
            and not transaction.is_autocommitted
            and (transaction.keeps_entry or not is_whole)
        ):
            world.enter(start_ts, commit_ts)
    # An open transaction at or below L can no longer commit; above it, it still may.
    world.set_low_watermark(low_watermark)


@given(histories(), st.sampled_from(SNAPSHOTS), st.sampled_from(SNAPSHOTS))
def test_no_snapshot_at_or_above_the_horizon_notices(
    transactions: list[Transaction], low_watermark: int, retained: int
) -> None:
    """I10, and I5 with it: what a snapshot shows is the same before and after, twice over."""
    world = World(MemoryStore(), low_watermark=0)
    world.table()
    play(world, transactions, low_watermark=low_watermark)
    horizon = min(low_watermark, retained)
    world.control.write(
        b"sample/%020d" % 0, b'{"elapsed_ms":0,"wall_ms":0,"last_issued_ts":%d}' % horizon
    )
    world.control.write(
        b"sample/%020d" % 10_000, b'{"elapsed_ms":10000,"wall_ms":0,"last_issued_ts":2000}'
    )
    # A snapshot with the number of one of these transactions would be that transaction itself.
    taken = {transaction.start_ts for transaction in transactions}
    before = {at: world.visible(ROW, at) for at in (*SNAPSHOTS, 2000) if at not in taken}
    options = replace(ALL_AT_ONCE, retention_s=5.0, should_wait=True)
    report = world.compact(options)
    kept_snapshots = [at for at in before if at >= horizon]
    assert {at: world.visible(ROW, at) for at in kept_snapshots} == {
        at: before[at] for at in kept_snapshots
    }
    check_clean(world, transactions, low_watermark)
    assert report.horizon == low_watermark
    image = world.cells()
    world.compact(options)
    assert world.cells() == image, "a second run finds nothing more to do"


def check_clean(world: World, transactions: list[Transaction], low_watermark: int) -> None:
    """Hold what is left at or below L to the model: healed or gone, and no entry."""
    fates = {transaction.start_ts: transaction for transaction in transactions}
    row = sort_row(world.cells())
    for cell in row.data:
        if base(cell.version) > low_watermark:
            continue
        transaction = fates[base(cell.version)]
        assert transaction.commit_ts is not None, "cells of the dead are gone"
        assert row.shadows[cell[1:4]] == (
            cell.version if transaction.is_autocommitted else transaction.commit_ts
        )
    keys = {cell[1:4] for cell in row.data}
    assert all(key in keys for key in row.shadows if base(key[2]) <= low_watermark)
    assert all(start_ts > low_watermark for start_ts in world.entries())


@given(histories())
def test_fully_collected_row_keeps_one_version_a_column_and_no_tombstone(
    transactions: list[Transaction],
) -> None:
    """With nothing to retain and everything decided, only what the newest snapshot needs stays."""
    world = World(MemoryStore(), low_watermark=0)
    world.table()
    play(world, transactions, low_watermark=1100)
    world.compact(replace(ALL_AT_ONCE, should_wait=True))
    row = sort_row(world.cells())
    tops: dict[bytes, Cell] = {}
    for cell in row.data:
        tops.setdefault(cell.qualifier, cell)
    shown = world.visible(ROW, 2000)
    assert shown == {qualifier: cell.value for qualifier, cell in tops.items()}
    assert not any(is_tombstone(cell.value) for cell in tops.values())
    assert len(row.data) <= 2 * len(tops)


STAGES: Final = st.lists(
    st.tuples(st.sampled_from(SNAPSHOTS), st.sampled_from(SNAPSHOTS), st.booleans(), st.booleans()),
    min_size=2,
    max_size=5,
)
"""For each run: L, the horizon allowed, whether it reads all, and whether it is rehearsed."""


def one_cell(start_ts: int, commit_ts: int | None) -> Transaction:
    """Write one column, which the client does not heal."""
    written = (Write(b"", b"x", 0, is_healed=False),)
    return Transaction(
        start_ts,
        commit_ts,
        is_invalidated=False,
        is_autocommitted=False,
        keeps_entry=False,
        writes=written,
    )


# What the second run remembers of the row must not be the version of the garbage that it drops.
@example(
    [one_cell(50, 100), one_cell(250, 400), one_cell(300, None)],
    [(50, 50, False, False), (450, 50, False, False), (50, 450, False, False)],
)
@settings(max_examples=fewer_by_day(20))
@given(histories(), STAGES)
def test_runs_over_spans_come_to_what_runs_come_to_that_read_all(
    transactions: list[Transaction], stages: list[tuple[int, int, bool, bool]]
) -> None:
    """I5, I6 and I10: nothing is missed, and nothing dropped too soon, whichever runs read all.

    Each transaction is written just before L passes it, as late as it may be.
    """
    world, twin = World(MemoryStore(), low_watermark=0), World(MemoryStore(), low_watermark=0)
    world.table()
    twin.table()
    taken = {transaction.start_ts for transaction in transactions}
    snapshots = [at for at in (*SNAPSHOTS, 2000) if at not in taken]
    low_watermark = horizon = 0
    for number, (next_low_watermark, allowed, is_whole, is_rehearsed) in enumerate(stages):
        passed = range(low_watermark + 1, next_low_watermark + 1)
        low_watermark = max(low_watermark, next_low_watermark)
        horizon = max(horizon, min(low_watermark, allowed))
        new = [one for one in transactions if one.start_ts in passed]
        for one in (world, twin):
            play(one, new, low_watermark=low_watermark)
            sample = b'{"elapsed_ms":%d,"wall_ms":0,"last_issued_ts":%d}'
            elapsed_ms = 20_000 * number
            for row_ms in (elapsed_ms, elapsed_ms + 10_000):
                one.control.write(b"sample/%020d" % row_ms, sample % (row_ms, horizon))
        before = {at: world.visible(ROW, at) for at in snapshots}
        options = replace(
            ALL_AT_ONCE, retention_s=5.0, should_wait=True, should_collect=is_whole, collect_every=0
        )
        told = world.compact(replace(options, is_dry_run=True)) if is_rehearsed else None
        done = world.compact(options)
        if told is not None:
            assert (told.cells_read, told.cells_healed, told.cells_dropped) == (
                done.cells_read,
                done.cells_healed,
                done.cells_dropped,
            )
        twin.compact(replace(options, should_collect=True))
        check_clean(
            world, [one for one in transactions if one.start_ts <= low_watermark], low_watermark
        )
        for at in snapshots:
            assert at < horizon or world.visible(ROW, at) == before[at]
        assert world.image()["t"] == twin.image()["t"]
        assert world.entries() == twin.entries()
