"""Random histories: the feed is what was committed, each change once, whatever compactions remove.

The model is the list of commits.  Transactions overlap, last long, die before they commit and
after, half healed or not at all, and are invalidated; the low watermark rises and compactions
collect.  A window is what the model has between two offsets, or it is refused because it begins
below the collection horizon; never anything else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.run.local import compact
from omidpy.base.cells import LEGACY_TOMBSTONE, SHADOW_PREFIX, SHADOW_SUFFIX, encode_long
from omidpy.base.timing.ages import Sample
from omidpy.base.timing.clock import ManualClock
from omidpy.commit.post_commit import Completer
from omidpy.errors import SnapshotTooOld, TransactionAborted
from omidpy.facts.commit_table import (
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
    CommitTable,
)
from omidpy.facts.control import ControlTable, encode_document
from omidpy.facts.watermarks import Watermarks, sample_row
from omidpy.manager import TransactionManager
from omidpy.model import Change, ChangeKind, KeyRange, Timestamp
from omidpy.reading.changes import ordering
from omidpy.reading.changes.change import order
from omidpy.storage.base import Put, Row, RowMutation, Store
from omidpy.storage.hbase.native import cellblock
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite.store import SqliteStore
from omidpy.tx.transaction import Transaction
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.naive_oracle import NaiveOracle
from tests.property.test_client_model import FailingPostCommitter

ROWS: Final = (b"a", b"b", b"c")
COLUMNS: Final = (b"f:", b"f:q", b"g:q")
SLOTS: Final = 4
TABLE: Final = "t"


@dataclass(eq=False)
class Running:
    """A transaction, and what it has written."""

    tx: Transaction
    written: dict[tuple[bytes, bytes], bytes | None] = field(default_factory=dict)


class Life:
    """A store, clients that come to all kinds of ends, and the model of what they committed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.oracle = NaiveOracle(store)
        self.clock = ManualClock()
        self.tm = TransactionManager(store, self.oracle, post_commit="sync", clock=self.clock)
        completer = Completer(store, CommitTable(store), lambda _: None)
        assert isinstance(store, MemoryStore | SqliteStore)
        self.post_committer = FailingPostCommitter(completer, store)  # type: ignore[arg-type]
        self.tm.session.post_committer = self.post_committer
        self.tm.create_table(TABLE, ["f", "g"], splits=[b"b"])
        self.control = ControlTable(store)
        ceiling = Put(*TIMESTAMP_CEILING, 1, encode_long(10**6))
        store.write({TIMESTAMP_TABLE: [RowMutation(TIMESTAMP_CEILING_ROW, (ceiling,))]})
        self.oracle.raise_low_watermark(0)
        self.running: dict[int, Running] = {}
        self.commits: list[Change] = []
        self.state: dict[tuple[bytes, bytes], bytes] = {}
        self.offsets: list[Timestamp] = [self.tm.begin().start_ts]
        self.followed: list[Change] = []
        self.follower: Timestamp | None = self.offsets[0]
        self.elapsed_ms = 0

    # -- what clients do -----------------------------------------------------------------------

    def run(self, slot: int) -> Running:
        """Return the transaction of a slot; one begins where there is none."""
        if slot not in self.running:
            self.running[slot] = Running(self.tm.begin())
        return self.running[slot]

    def write(self, slot: int, row: bytes, column: bytes, value: bytes | None) -> None:
        """Put, or delete a column."""
        one = self.run(slot)
        table = one.tx.table(TABLE)
        if value is None:
            table.delete(row, [column])
        else:
            table.put(row, {column: value})
        one.written[row, column] = value

    def flush(self, slot: int) -> None:
        """Send what is buffered, so that it lies there."""
        one = self.run(slot)
        if one.tx._buffer._checkpoint < 40:
            one.tx.flush()

    def commit(self, slot: int, ending: str) -> None:
        """Commit, and die afterwards, perhaps; or not at all, where something forbids it."""
        one = self.run(slot)
        del self.running[slot]
        self.post_committer.mode = ending
        try:
            one.tx.commit()
        except TransactionAborted:
            return
        if one.tx.commit_ts is None:
            return
        for (row, column), value in one.written.items():
            kind = ChangeKind.DELETE if value is None else ChangeKind.PUT
            old = self.state.get((row, column))
            commit_ts, start_ts = one.tx.commit_ts, one.tx.start_ts
            self.commits.append(Change(row, column, value, kind, start_ts, commit_ts, old))
        for name, value in one.written.items():
            if value is None:
                self.state.pop(name, None)
            else:
                self.state[name] = value

    def die(self, slot: int) -> None:
        """Leave the cells where they are."""
        self.running.pop(slot, None)

    def invalidate(self, slot: int) -> None:
        """Let somebody forbid the commit."""
        self.oracle.invalidate(self.run(slot).tx.start_ts)

    # -- what happens meanwhile ----------------------------------------------------------------

    def raise_low_watermark(self, share: int) -> None:
        """Raise it to somewhere between where it is and now."""
        low, last = self.oracle.low_watermark, self.oracle._last
        self.oracle.raise_low_watermark(low + (last - low) // 50 * share // 4 * 50)

    def sample(self) -> None:
        """Record what the oracle records each minute."""
        self.elapsed_ms += 60_000
        sample = Sample(
            self.elapsed_ms, 0, self.oracle._last, "", 0, int(self.oracle.low_watermark)
        )
        self.control.write(sample_row(self.elapsed_ms), encode_document(sample))

    def compact(self) -> None:
        """Collect all that may be."""
        options = replace(ALL_AT_ONCE, should_wait=True)
        compact(self.store, options, clock=self.clock, sleep=self.clock.advance)

    # -- what is read --------------------------------------------------------------------------

    def expected(self, since: int, until: int, *, old: bool) -> list[Change]:
        """Return what the model has."""
        return sorted(
            (
                one if old else one._replace(old=None)
                for one in self.commits
                if since < one.commit_ts <= until
            ),
            key=order,
        )

    def follow(self) -> None:
        """Read the next window, from where the last one ended to now."""
        if self.follower is None:
            return
        feed = self.tm.changes(TABLE, self.follower)
        try:
            self.followed += feed
        except SnapshotTooOld:
            assert self.follower + 1 < self.horizon()
            self.follower = None
            return
        self.follower = feed.offset
        self.offsets.append(feed.until)
        assert self.followed == self.expected(0, feed.until, old=False)

    def window(self, first: int, second: int, *, old: bool) -> None:
        """Read between any two offsets, of snapshots and of commits."""
        marks = sorted({*self.offsets, *(one.commit_ts for one in self.commits)})
        since, until = sorted((marks[first % len(marks)], marks[second % len(marks)]))
        is_refused = since + 1 < self.horizon()
        try:
            found = list(self.tm.changes(TABLE, since, until, old_values=old))
        except SnapshotTooOld:
            assert is_refused
        else:
            assert not is_refused
            assert found == self.expected(since, until, old=old)

    def state_and_rest(self, first: int) -> None:
        """Read the state at an offset and the changes behind it: what a copy is made of."""
        since = self.offsets[first % len(self.offsets)]
        copy: dict[tuple[bytes, bytes], bytes] = {}
        feed = self.tm.changes(TABLE, since, snapshot=True)
        try:
            for one in feed:
                if one.value is None:
                    copy.pop((one.row, one.column), None)
                else:
                    copy[one.row, one.column] = one.value
        except SnapshotTooOld:
            assert since + 1 < self.horizon()
        else:
            assert copy == self.state
            assert feed.offset == feed.until

    def horizon(self) -> Timestamp:
        """Return the collection horizon."""
        return Watermarks(self.control).collection_horizon()


slots = st.integers(0, SLOTS - 1)
numbers = st.integers(0, 1000)
STEPS: Final = st.one_of(
    st.tuples(
        st.just("write"),
        slots,
        st.sampled_from(ROWS),
        st.sampled_from(COLUMNS),
        st.sampled_from([b"1", b"2", None]),
    ),
    st.tuples(st.just("flush"), slots),
    st.tuples(st.just("commit"), slots, st.sampled_from(["complete", "complete", "die", "half"])),
    st.tuples(st.just("die"), slots),
    st.tuples(st.just("invalidate"), slots),
    st.tuples(st.just("raise_low_watermark"), st.integers(0, 4)),
    st.tuples(st.just("sample")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("follow")),
    st.tuples(st.just("window"), numbers, numbers, st.booleans()),
    st.tuples(st.just("state_and_rest"), numbers),
)


def play(store: Store, steps: list[tuple[object, ...]], *, most_bytes: int) -> None:
    """Carry out a history, and compare."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "MOST_BYTES", most_bytes)
        _play(Life(store), steps)


def _play(life: Life, steps: list[tuple[object, ...]]) -> None:
    for name, *arguments in steps:
        if name == "window":
            *places, old = arguments
            life.window(*places, old=bool(old))  # type: ignore[arg-type]
        else:
            getattr(life, str(name))(*arguments)
    for slot in list(life.running):
        life.commit(slot, "die")
    life.follow()
    life.state_and_rest(0)
    for first, second in itertools.product(range(3), repeat=2):
        life.window(first * 7, second * 7, old=True)


@pytest.mark.parametrize("most_bytes", [1, 1000, 2**25])
@given(steps=st.lists(STEPS, max_size=60))
def test_the_feed_is_what_was_committed(steps: list[tuple[object, ...]], most_bytes: int) -> None:
    """No gap, no duplicate, in order; refused exactly where something may be gone.

    Sorted in memory, and through a file, in runs of one change and of some.
    """
    play(MemoryStore(), steps, most_bytes=most_bytes)


@given(steps=st.lists(STEPS, max_size=60))
def test_the_feed_of_a_cluster_is_what_was_committed(steps: list[tuple[object, ...]]) -> None:
    """Where rows change one by one, and a delete hides what is put at its version later."""
    play(LikeThrift2(), steps, most_bytes=1000)


class Shaping(LikeThrift2):
    """The same, which makes changes of rows that need no decision, as HBase's client does."""

    def scan_changes(
        self, table: str, key_range: KeyRange, *, first: bytes, before: bytes, **options: Any
    ) -> Iterator[list[tuple[bytes, list[Change], Row]]]:
        """Read as HBase would, and decode what it would send."""
        for page in self.scan(table, key_range, **options):
            block = b"".join(cellblock.encode(*cell) for row in page for cell in row)
            affixes = SHADOW_PREFIX, SHADOW_SUFFIX
            yield cellblock.decode_changes(
                block, 0, list(map(len, page)), *affixes, first, before, LEGACY_TOMBSTONE
            )


@given(steps=st.lists(STEPS, max_size=60))
def test_the_feed_of_shaped_changes_is_what_was_committed(steps: list[tuple[object, ...]]) -> None:
    """Where the store has made some changes already, and leaves other rows to be decided."""
    play(Shaping(), steps, most_bytes=1000)


@settings(max_examples=15)
@given(steps=st.lists(STEPS, max_size=40))
def test_the_feed_of_a_file_is_what_was_committed(steps: list[tuple[object, ...]]) -> None:
    """The same, where scans come in pages of another store."""
    with TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "s.db")
        try:
            play(store, steps, most_bytes=1000)
        finally:
            store.close()
