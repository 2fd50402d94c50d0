"""The product broken on purpose, one rule at a time; the workloads and checkers name each mutant.

A checker may be right about every history and still never meet one that matters: here each mutant
must be caught within a few seeds, by an anomaly that fits it, while the product as it is passes the
same seeds in the same world.  Each takes seconds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from compactor.pruning.collection import Collection
from compactor.ranges.range_pass import RangePass
from compactor.rows.heal import ExaminedRow, unresolved
from compactor.run.plan import Compaction
from omidpy.base.cells import commit_row, encode_commit, is_tombstone
from omidpy.commit.outcome import OutcomeFinder
from omidpy.commit.post_commit import Completer, Completion
from omidpy.errors import OmidError
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE
from omidpy.model import Aborted, Cell, CellId, Committed, Timestamp, TransactionStatus, base
from omidpy.oracle.base import AbortReason, Begun, CommitGranted, CommitRefused
from omidpy.reading.resolution import CellResolver, TableCell
from omidpy.reading.snapshot import Snapshot
from omidpy.reading.visibility import Resolution
from omidpy.storage.base import Put, RowMutation
from omidpy.testing.anomalies import (
    DIRTY_READ,
    FRACTURED_READ,
    FUTURE_READ,
    LOST_APPEND,
    LOST_UPDATE,
    NON_REPEATABLE_READ,
    OWN_WRITE_IGNORED,
    STALE_READ,
    STALE_SNAPSHOT,
    TIMESTAMP_REUSED,
    WRONG_TOTAL,
)
from omidpy.tx import transaction
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.buffer import WriteBuffer
from tests.machines.isolation_worlds import World, compacted, lossy, plain
from tso.durable.persist import StorePersistence
from tso.embedded import EmbeddedOracle

SEEDS = range(4)
SEEDS_BY_DAY = (0, 2)

Break = Callable[[pytest.MonkeyPatch], None]


# -- the oracle ------------------------------------------------------------------------------------


def no_conflict_check(patch: pytest.MonkeyPatch) -> None:
    """Let the oracle compare nothing but transactions with themselves."""
    original = EmbeddedOracle.commit

    def commit(self: Any, start_ts: Timestamp, cell_ids: Any, *rest: Any, **options: Any) -> Any:
        return original(self, start_ts, [CellId(start_ts)], *rest, **options)

    patch.setattr(EmbeddedOracle, "commit", commit)


def conflict_on_the_first_cell_only(patch: pytest.MonkeyPatch) -> None:
    """Let the oracle compare one cell of each transaction."""
    original = EmbeddedOracle.commit

    def commit(self: Any, start_ts: Timestamp, cell_ids: Any, *rest: Any, **options: Any) -> Any:
        return original(self, start_ts, sorted(cell_ids)[:1], *rest, **options)

    patch.setattr(EmbeddedOracle, "commit", commit)


def stale_start(patch: pytest.MonkeyPatch) -> None:
    """Let the oracle hand out timestamps that it drew one request earlier."""
    original = EmbeddedOracle.begin

    def begin(self: Any, **options: Any) -> Begun:
        drawn: Begun = original(self, **options)
        before: Begun = getattr(self, "drawn", None) or original(self, **options)
        self.drawn = drawn
        return before

    patch.setattr(EmbeddedOracle, "begin", begin)


def timestamp_reused(patch: pytest.MonkeyPatch) -> None:
    """Let the oracle issue every tenth start timestamp twice."""
    original = EmbeddedOracle.begin

    def begin(self: Any, **options: Any) -> Begun:
        self.count = getattr(self, "count", 0) + 1
        if self.count % 10:
            self.last = original(self, **options)
        last: Begun = self.last
        return last

    patch.setattr(EmbeddedOracle, "begin", begin)


def wrong_commit_order(patch: pytest.MonkeyPatch) -> None:
    """Let the oracle commit at a timestamp from the time of the transaction's begin."""
    begin_, commit_ = EmbeddedOracle.begin, EmbeddedOracle.commit
    early: dict[Timestamp, Timestamp] = {}

    def begin(self: Any, **options: Any) -> Begun:
        begun = begin_(self, **options)
        early[begun.start_ts] = begin_(self).start_ts
        return begun

    def commit(self: Any, start_ts: Timestamp, *rest: Any, **options: Any) -> Any:
        verdict = commit_(self, start_ts, *rest, **options)
        if not isinstance(verdict, CommitGranted):
            return verdict
        entry = Put(*COMMIT, start_ts, encode_commit(start_ts, early[start_ts]))
        self._store.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), (entry,))]})
        return CommitGranted(early[start_ts])

    patch.setattr(EmbeddedOracle, "begin", begin)
    patch.setattr(EmbeddedOracle, "commit", commit)


def acknowledgement_before_durability(patch: pytest.MonkeyPatch) -> None:
    """Let the oracle answer a batch of commits when the next one comes to be written."""
    original = StorePersistence.flush

    def flush(self: Any, batch: Any) -> Any:
        waiting, self.waiting = getattr(self, "waiting", None), None
        if waiting is not None:
            original(self, waiting)
        if batch.commits and not batch.lookups and batch.ceiling is None:
            self.waiting = batch
            empty = copy.copy(batch)
            empty.commits = []
            return original(self, empty)
        return original(self, batch)

    patch.setattr(StorePersistence, "flush", flush)


# -- the client's reads ----------------------------------------------------------------------------


def dirty_read(patch: pytest.MonkeyPatch) -> None:
    """Take every cell for committed."""
    original = CellResolver.resolve

    def resolve(self: Any, cells: Any, **options: Any) -> dict[TableCell, Resolution]:
        resolutions = original(self, cells, **options)
        return {
            key: resolution
            if resolution.commit_ts is not None
            else Resolution(Timestamp(base(key[1].version) + 1), is_final=True, is_healed=True)
            for key, resolution in resolutions.items()
        }

    patch.setattr(CellResolver, "resolve", resolve)


def newest(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot of whatever has been committed."""
    moved = copy.copy(snapshot)
    moved.start_ts = Timestamp(2**62)
    moved.max_version = 2**62
    return moved


def read_of_the_newest_version(patch: pytest.MonkeyPatch) -> None:
    """Let gets return what is committed now."""
    original = Snapshot.read
    patch.setattr(Snapshot, "read", lambda self, *rest: original(newest(self), *rest))


def scan_of_the_newest(patch: pytest.MonkeyPatch) -> None:
    """Let scans return what is committed now."""
    original = Snapshot.scan
    patch.setattr(
        Snapshot, "scan", lambda self, *rest, **options: original(newest(self), *rest, **options)
    )


def own_writes_ignored(patch: pytest.MonkeyPatch) -> None:
    """Read past the buffer."""
    original = TransactionalTable._overlaid
    patch.setattr(
        TransactionalTable,
        "_overlaid",
        lambda self, row, seen, _, specs: original(self, row, seen, {}, specs),
    )


def own_deletes_ignored(patch: pytest.MonkeyPatch) -> None:
    """Read past the buffered tombstones."""
    original = TransactionalTable._overlaid

    def overlaid(self: Any, row: Any, seen: Any, own: Mapping[Any, bytes], specs: Any) -> Any:
        puts = {column: value for column, value in own.items() if not is_tombstone(value)}
        return original(self, row, seen, puts, specs)

    patch.setattr(TransactionalTable, "_overlaid", overlaid)


def negative_cache(patch: pytest.MonkeyPatch) -> None:
    """Remember across snapshots that a cell was not committed."""
    original = CellResolver.resolve

    def resolve(
        self: Any, cells: Iterable[TableCell], **options: Any
    ) -> dict[TableCell, Resolution]:
        if not hasattr(self, "refused"):
            self.refused = {}
        known = {key: self.refused[key] for key in cells if key in self.refused}
        resolutions = original(self, [key for key in cells if key not in known], **options)
        self.refused |= {
            key: resolution
            for key, resolution in resolutions.items()
            if resolution.commit_ts is None
        }
        return resolutions | known

    patch.setattr(CellResolver, "resolve", resolve)


# -- the client's writes ---------------------------------------------------------------------------


def abort_leaves_cells_visible(patch: pytest.MonkeyPatch) -> None:
    """Let a rollback write shadow cells instead of taking its cells back."""

    def roll_back(self: Any) -> None:
        self.status = TransactionStatus.ROLLED_BACK
        commit_ts = self._session.oracle.begin().start_ts
        self._session.post_committer.submit(
            Completion(self.start_ts, self._buffer.shadow_cells(commit_ts))
        )

    patch.setattr(Transaction, "_take_back", roll_back)


def torn_shadow_cells(patch: pytest.MonkeyPatch) -> None:
    """Write the shadow cells of the first row, and remove the commit entry."""
    original = Completer.complete

    def complete(self: Any, batch: Sequence[Completion]) -> None:
        original(
            self,
            [
                Completion(
                    one.start_ts, {table: rows[:1] for table, rows in one.shadow_cells.items()}
                )
                for one in batch
            ],
        )

    patch.setattr(Completer, "complete", complete)


def tombstone_lost(patch: pytest.MonkeyPatch) -> None:
    """Flush no tombstones."""
    original = WriteBuffer.take

    def take(self: Any, **options: Any) -> dict[str, list[RowMutation]]:
        return {
            table: [
                RowMutation(row, [put for put in puts if not is_tombstone(put.value)])
                for row, puts, _ in mutations
            ]
            for table, mutations in original(self, **options).items()
        }

    patch.setattr(WriteBuffer, "take", take)


def unknown_treated_as_aborted(patch: pytest.MonkeyPatch) -> None:
    """Take a lost reply for an abort."""

    def decide(
        oracle: Any, _: Any, start_ts: Any, *, cell_ids: Any, table_ids: Any, **__: Any
    ) -> Any:
        try:
            return oracle.commit(start_ts, cell_ids, table_ids)
        except OmidError:
            return CommitRefused(AbortReason.UNSTATED)

    patch.setattr(transaction, "decide", decide)


# -- the compactor ---------------------------------------------------------------------------------


def early_collection(patch: pytest.MonkeyPatch) -> None:
    """Drop versions up to the low watermark at once, and warn no reader."""
    patch.setattr(Collection, "settle", lambda _, low_watermark: Timestamp(low_watermark))


def late_collection_of_uncommitted_cells(patch: pytest.MonkeyPatch) -> None:
    """Drop what is not committed yet although it may be, by the time that it is dropped."""

    def resolve(self: Any, rows: Sequence[ExaminedRow]) -> dict[Cell, Timestamp | None]:
        cells = [(self.task.table, cell) for row in rows for cell in unresolved(row)]
        resolutions = self.resolver.resolve(cells, may_invalidate=lambda _: False)
        return {cell: resolution.commit_ts for (_, cell), resolution in resolutions.items()}

    patch.setattr(RangePass, "resolve", resolve)
    patch.setattr(Compaction, "read_low_watermark", lambda _: Timestamp(2**62))
    patch.setattr(Collection, "settle", lambda *_: Timestamp(0))


# -- caught, each of them --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("break_", "world", "expected"),
    [
        (no_conflict_check, plain, {LOST_UPDATE}),
        (conflict_on_the_first_cell_only, plain, {LOST_UPDATE}),
        (stale_start, plain, {STALE_SNAPSHOT}),
        (timestamp_reused, plain, {TIMESTAMP_REUSED}),
        (wrong_commit_order, plain, {NON_REPEATABLE_READ, STALE_READ}),
        (acknowledgement_before_durability, plain, {STALE_READ, LOST_APPEND}),
        (dirty_read, plain, {DIRTY_READ}),
        (read_of_the_newest_version, plain, {FUTURE_READ}),
        (scan_of_the_newest, plain, {FUTURE_READ}),
        (own_writes_ignored, plain, {OWN_WRITE_IGNORED}),
        (own_deletes_ignored, plain, {OWN_WRITE_IGNORED}),
        (negative_cache, plain, {STALE_READ, LOST_APPEND}),
        (abort_leaves_cells_visible, plain, {DIRTY_READ}),
        (torn_shadow_cells, plain, {STALE_READ, FRACTURED_READ, LOST_APPEND, WRONG_TOTAL}),
        (tombstone_lost, plain, {STALE_READ}),
        (unknown_treated_as_aborted, lossy, {DIRTY_READ}),
        (early_collection, compacted, {STALE_READ}),
        (
            late_collection_of_uncommitted_cells,
            compacted,
            {STALE_READ, LOST_APPEND, OWN_WRITE_IGNORED},
        ),
    ],
)
def test_a_mutant_is_caught_by_name(
    break_: Break,
    world: Callable[[int], World],
    expected: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within a few seeds, by an anomaly that says what is wrong with it."""
    break_(monkeypatch)
    names: set[str] = set()
    for seed in SEEDS:
        names |= world(seed).names
        if names & expected:
            return
    pytest.fail(f"not caught in {len(SEEDS)} seeds; found only {sorted(names)}")


@cache
def as_it_is(world: Callable[[int], World], seed: int) -> tuple[World, list[Any]]:
    """Return a world of the product as it is, and what its compactions said in the end."""
    with pytest.MonkeyPatch.context() as patch:
        reports = returned_by(patch, Compaction, "run")
        return world(seed), reports


@pytest.mark.parametrize("world", [plain, lossy, compacted])
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=() if seed in SEEDS_BY_DAY else pytest.mark.nightly)
        for seed in SEEDS
    ],
)
def test_the_product_passes_where_its_mutants_are_caught(
    world: Callable[[int], World], seed: int
) -> None:
    """A check that always fails would catch every mutant too."""
    assert as_it_is(world, seed)[0].found == []


def test_replies_are_lost_in_the_lossy_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """And found again: as commits, and as aborts.  Otherwise nothing was tried."""
    settled = returned_by(monkeypatch, OutcomeFinder, "settle")
    lossy(0)
    assert {type(outcome) for outcome in settled} == {Committed, Aborted}


@pytest.mark.parametrize("seeds", [SEEDS_BY_DAY, pytest.param(SEEDS, marks=pytest.mark.nightly)])
def test_versions_are_collected_under_readers(seeds: Sequence[int]) -> None:
    """And some readers are too old for what is left.  Otherwise nothing was tried."""
    worlds = [as_it_is(compacted, seed) for seed in seeds]
    dropped = sum(report.cells_dropped for _, reports in worlds for report in reports)
    assert dropped > 50 * len(seeds)
    history = [one for world, _ in worlds for one in world.history]
    assert any(one.reason == "SnapshotTooOld" for one in history)


def returned_by(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[Any]:
    """Collect what a method returns from now on."""
    returned: list[Any] = []
    original = getattr(owner, name)

    def method(*arguments: Any, **options: Any) -> Any:
        returned.append(original(*arguments, **options))
        return returned[-1]

    monkeypatch.setattr(owner, name, method)
    return returned
