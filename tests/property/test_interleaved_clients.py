"""Many clients with everything that they may do, against the naive meaning of it.

The model is a list of commits: a snapshot at any moment is their fold below it, in the order in
which they began; it is that of their commits too, but for conflict-free writes.  Transactions write
two tables, take savepoints and undo them, flush, hand tokens to workers, die at any point; others
look at the past and hold it; compactions heal, drop and prune under all of them.  Every read is
compared, and every refusal must be the one that the model expects.

It runs once with conflicts by cell and once by row.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    precondition,
    rule,
)

from compactor.run.local import compact
from omidpy.base.timing.clock import ManualClock
from omidpy.commit.post_commit import Completion
from omidpy.errors import SnapshotTooOld, TransactionAborted, TransactionClosed, WriteConflict
from omidpy.facts.holds import HeldSnapshot
from omidpy.facts.watermarks import Watermarks
from omidpy.manager import TransactionManager
from omidpy.model import TIMESTAMP_STEP
from omidpy.storage.memory import MemoryStore
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.savepoint import Savepoint
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.examples import fewer_by_day
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.workers import rows_of_parts

pytestmark = pytest.mark.usefixtures("spans_however_small")

TABLES = ("t", "u")
ROWS = (b"a", b"b", b"c")
COLUMNS = (b"f:", b"f:x", b"g:y")
WORKER_ROW = b"w"
TASK = "the only one"
FEW_CHECKPOINTS = 30
"""A transaction that has used more does nothing any more that could take one."""

Name = tuple[str, bytes, bytes]
Writes = dict[Name, bytes | None]
"""(table, row, column) -> value, None for a delete."""
Rows = dict[bytes, dict[bytes, bytes]]


class Loss(Enum):
    """What became of the worker whose part is not merged."""

    ATTEMPT = "another attempt of its task wrote the same"
    DISCARDED = "the owner gave it up"
    FORGOTTEN = "nobody knows"


class Commit(NamedTuple):
    """A commit, as the model remembers it."""

    commit_ts: int
    start_ts: int
    writes: Writes
    is_free: bool
    """Whether its writes conflict with nobody's."""


tables = st.sampled_from(TABLES)
rows = st.sampled_from(ROWS)
columns = st.sampled_from(COLUMNS)
values = st.sampled_from([b"1", b"2", b"3"])
writes = st.dictionaries(
    st.tuples(tables, rows, columns), st.one_of(values, values, st.none()), min_size=1, max_size=3
)


def fold(many: Iterable[Writes]) -> dict[str, Rows]:
    """Return the tables after some writes, without empty rows."""
    merged: Writes = {}
    for writes in many:
        merged.update(writes)
    folded: dict[str, Rows] = {table: {} for table in TABLES}
    for (table, row, column), value in sorted(merged.items()):
        if value is not None:
            folded[table].setdefault(row, {})[column] = value
    return folded


def shown(tx: Transaction) -> dict[str, Rows]:
    """Return what a transaction sees of the tables."""
    return {table: dict(tx.table(table).scan()) for table in TABLES}


@dataclass(eq=False)
class Twin:
    """A transaction, and what the model knows of it."""

    tx: Transaction
    is_free: bool = False
    """Whether it writes without conflict detection."""
    layers: list[Writes] = field(default_factory=lambda: [{}])
    savepoints: list[Savepoint] = field(default_factory=list)
    has_sent: bool = False
    token: bytes | None = None
    lost: Writes = field(default_factory=dict)
    """What a worker wrote whose part is not merged: only this transaction sees it."""
    is_incomplete: bool = False
    """Whether such a worker is neither given up nor made up for."""

    def table(self, name: str = TABLES[0]) -> TransactionalTable:
        """Return a table in the transaction."""
        return self.tx.table(name, conflict_free=self.is_free)

    def may_checkpoint(self) -> bool:
        """Say whether a few more checkpoints are left."""
        return self.tx._buffer._checkpoint < FEW_CHECKPOINTS


class TornPostCommitter:
    """Writes the first shadow cells of each transaction and dies."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def submit(self, completion: Completion) -> None:
        """Write the shadow cells of the first row; the commit entry stays."""
        for table, mutations in completion.shadow_cells.items():
            self._store.write({table: list(mutations)[:1]})
            return

    def owes(self, _: int) -> bool:
        """Say no: nobody will do the rest."""
        return False

    def drain(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class InterleavedClients(RuleBasedStateMachine):
    """Rules are what programs may do, and what may happen to them."""

    level: ClassVar[str] = "cell"
    running = Bundle("running")
    holds = Bundle("holds")

    @initialize()
    def connect(self) -> None:
        """Three processes on one store: each follows its commits up in its own way."""
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.oracle = NaiveOracle(self.store)
        self.managers = [
            TransactionManager(
                self.store,
                self.oracle,
                conflict_level=self.level,
                post_commit=mode,
                clock=self.clock,
            )
            for mode in ("sync", "none", "none")
        ]
        self.managers[2].session.post_committer = TornPostCommitter(self.store)
        for table in TABLES:
            self.managers[0].create_table(table, ["f", "g"], splits=[b"b"])
        self.commits: list[Commit] = []
        self.twins: list[Twin] = []

    # -- the model -----------------------------------------------------------------------------

    def snapshot(self, at: int) -> list[Writes]:
        """Return what was committed below a moment, in the order in which it began."""
        seen = [commit for commit in self.commits if commit.commit_ts < at]
        return [commit.writes for commit in sorted(seen, key=lambda commit: commit.start_ts)]

    def conflict_key(self, name: Name) -> object:
        """Return what is compared for a write to a cell."""
        return name if self.level == "cell" else name[:2]

    def expected(self, twin: Twin) -> dict[str, Rows]:
        """Return what a transaction must see."""
        return fold([*self.snapshot(twin.tx.start_ts), *twin.layers, twin.lost])

    def horizon(self) -> int:
        """Return what compactions have published: below it a reader is refused."""
        return Watermarks(self.managers[0].session.control).collection_horizon()

    def can_read(self, twin: Twin) -> bool:
        """Say whether a transaction is young enough, and expect a refusal if it is not."""
        start_ts = twin.tx.start_ts
        # Once it cannot commit any more, the compactor takes its own cells back.
        is_doomed = twin.has_sent and start_ts <= self.oracle.low_watermark
        if start_ts < self.horizon() or is_doomed:
            with pytest.raises(SnapshotTooOld):
                twin.table().row(ROWS[0])
            return False
        return True

    # -- one client ----------------------------------------------------------------------------

    @rule(
        target=running,
        client=st.integers(0, 2),
        is_free=st.sampled_from([False, False, True]),
    )
    def begin(self, client: int, is_free: bool) -> Twin:  # noqa: FBT001 - a rule
        """Begin a transaction."""
        twin = Twin(self.managers[client].begin(), is_free)
        self.twins.append(twin)
        return twin

    @rule(twin=running, writes=writes)
    def write(self, twin: Twin, writes: Writes) -> None:
        """Write cells, and delete some."""
        self.do_write(twin, writes)
        self.check(twin)

    def do_write(self, twin: Twin, writes: Writes) -> None:
        """Write cells on both sides."""
        for (table, row, column), value in writes.items():
            if value is None:
                twin.table(table).delete(row, [column])
            else:
                twin.table(table).put(row, {column: value})
        twin.layers[-1].update(writes)

    @rule(twin=running, table=tables, row=rows)
    def delete_row(self, twin: Twin, table: str, row: bytes) -> None:
        """Delete what the transaction sees of a row."""
        if self.can_read(twin):
            seen = self.expected(twin)[table].get(row, {})
            twin.table(table).delete(row)
            twin.layers[-1].update(dict.fromkeys((table, row, column) for column in seen))
            self.check(twin)

    @rule(twin=running)
    def look(self, twin: Twin) -> None:
        """Look again, after whatever others have done."""
        self.check(twin)

    def check(self, twin: Twin) -> None:
        """Compare everything that a transaction sees, by scans and by gets."""
        if not self.can_read(twin):
            return
        for name, expected in self.expected(twin).items():
            table = twin.table(name)
            rows = sorted(expected.items())
            assert list(table.scan(batch_size=2)) == rows
            assert list(table.scan(reverse=True)) == rows[::-1]
            for row in ROWS:
                data = expected.get(row, {})
                assert table.row(row) == data
                assert table.row(row, [COLUMNS[0]]).get(COLUMNS[0]) == data.get(COLUMNS[0])

    @rule(twin=running)
    def flush(self, twin: Twin) -> None:
        """Send what was written."""
        if twin.may_checkpoint():
            twin.has_sent |= bool(twin.layers[0])
            twin.tx.flush()
            self.check(twin)

    @rule(twin=running, writes=writes)
    def open_savepoint(self, twin: Twin, writes: Writes) -> None:
        """Begin a part that may be undone alone, and write in it."""
        if twin.may_checkpoint():
            savepoint = twin.tx.savepoint()
            savepoint.__enter__()
            twin.savepoints.append(savepoint)
            twin.layers.append({})
            self.do_write(twin, writes)
            self.check(twin)

    @precondition(lambda self: any(twin.savepoints for twin in self.twins))
    @rule(data=st.data(), keep=st.booleans())
    def close_savepoint(self, data: st.DataObject, keep: bool) -> None:  # noqa: FBT001 - a rule
        """Keep the innermost part of some transaction, or undo it."""
        twin = data.draw(st.sampled_from([twin for twin in self.twins if twin.savepoints]))
        self.do_close(twin, keep=keep)
        self.check(twin)

    def do_close(self, twin: Twin, *, keep: bool) -> None:
        """Keep or undo on both sides."""
        top = twin.layers.pop()
        savepoint = twin.savepoints.pop()
        if keep:
            savepoint.__exit__(None, None, None)
            twin.layers[-1].update(top)
        else:
            savepoint.__exit__(KeyError, KeyError(), None)

    @rule(twin=running, value=values, loss=st.sampled_from([None, *Loss]), client=st.integers(0, 2))
    def work(self, twin: Twin, value: bytes, loss: Loss | None, client: int) -> None:
        """Let other processes write a row of the transaction; the part of one may be lost."""
        if twin.savepoints or twin.token is not None or not twin.may_checkpoint():
            return
        twin.has_sent = True
        twin.token = twin.tx.token()
        if loss is not None:
            task = TASK if loss is Loss.ATTEMPT else None
            lost = self.managers[client].resume(twin.token, task=task)
            table = lost.table(TABLES[0], conflict_free=twin.is_free)
            table.put(WORKER_ROW, {COLUMNS[1]: value})
            if loss is not Loss.ATTEMPT:
                table.put(WORKER_ROW, {COLUMNS[2]: value})
                twin.lost[TABLES[0], WORKER_ROW, COLUMNS[2]] = value
            lost.finish()
            if loss is Loss.DISCARDED:
                twin.tx.discard(lost.worker_id)
            twin.is_incomplete = loss is Loss.FORGOTTEN
        worker = self.managers[client].resume(twin.token, task=TASK)
        table = worker.table(TABLES[0], conflict_free=twin.is_free)
        if twin.tx.start_ts >= self.horizon() and twin.tx.start_ts > self.oracle.low_watermark:
            assert table.row(ROWS[0]) == self.expected(twin)[TABLES[0]].get(ROWS[0], {})
        table.put(WORKER_ROW, {COLUMNS[1]: value})
        twin.tx.merge(worker.finish())
        twin.layers[-1][TABLES[0], WORKER_ROW, COLUMNS[1]] = value
        self.check(twin)

    def work_too_late(self, twin: Twin) -> None:
        """Let a worker begin when the transaction has ended: it may write nothing."""
        if twin.token is not None:
            worker = self.managers[0].resume(twin.token, task=TASK)
            worker.table(TABLES[0]).put(WORKER_ROW, {COLUMNS[0]: b"too late"})
            with pytest.raises(TransactionClosed):
                worker.finish()

    # -- its end -------------------------------------------------------------------------------

    @rule(twin=consumes(running))
    def commit(self, twin: Twin) -> None:
        """Commit, or learn exactly why not."""
        self.twins.remove(twin)
        self.do_commit(twin)

    @rule(
        slow=consumes(running),
        writes=writes,
        value=st.one_of(values, st.none()),
        client=st.integers(0, 2),
        is_free=st.booleans(),
        gap=st.integers(0, 3),
        data=st.data(),
    )
    def overtake(
        self,
        slow: Twin,
        writes: Writes,
        value: bytes | None,
        client: int,
        is_free: bool,  # noqa: FBT001 - a rule
        gap: int,
        data: st.DataObject,
    ) -> None:
        """Begin after a transaction that writes, write in the same row, and commit before it."""
        self.twins.remove(slow)
        self.do_write(slow, writes)
        table, row, column = data.draw(st.sampled_from(sorted(writes)))
        quick = Twin(self.managers[client].begin(), is_free)
        self.do_write(quick, {(table, row, data.draw(st.just(column) | columns)): value})
        self.do_commit(quick)
        for _ in range(gap):
            self.oracle.begin()
        self.do_commit(slow)

    def do_commit(self, twin: Twin) -> None:
        """Commit on both sides, or be refused on both."""
        while twin.savepoints:
            self.do_close(twin, keep=True)
        (written,) = twin.layers
        start_ts = twin.tx.start_ts
        taken = {
            self.conflict_key(name)
            for commit in self.commits
            if commit.commit_ts > start_ts and not commit.is_free
            for name in commit.writes
        }
        checked = () if twin.is_free else written
        conflicts = {name for name in checked if self.conflict_key(name) in taken}
        if twin.is_incomplete:
            with pytest.raises(TransactionAborted):
                twin.tx.commit()
        elif not written:
            twin.tx.commit()
            assert twin.tx.commit_ts is None
        elif start_ts <= self.oracle.low_watermark:
            with pytest.raises(SnapshotTooOld):
                twin.tx.commit()
        elif conflicts:
            with pytest.raises(WriteConflict) as refused:
                twin.tx.commit()
            named = {(table, row, f + b":" + q) for table, row, f, q in refused.value.cells}
            assert named == conflicts
        else:
            twin.tx.commit()
            assert twin.tx.commit_ts is not None
            self.commits.append(Commit(twin.tx.commit_ts, start_ts, written, twin.is_free))
        self.work_too_late(twin)

    @rule(twin=consumes(running))
    def roll_back(self, twin: Twin) -> None:
        """Give up."""
        self.twins.remove(twin)
        twin.tx.rollback()
        self.work_too_late(twin)

    @rule(twin=consumes(running))
    def die(self, twin: Twin) -> None:
        """Lose the process: what it had flushed stays where it is, and its workers work on."""
        self.twins.remove(twin)
        if twin.token is not None:
            worker = self.managers[0].resume(twin.token, task=TASK)
            worker.table(TABLES[0]).put(WORKER_ROW, {COLUMNS[0]: b"for nothing"})
            with suppress(TransactionClosed):  # once a compaction has removed the row
                worker.finish()

    # -- the past ------------------------------------------------------------------------------

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        """Read at any moment so far, or be refused."""
        newest = self.oracle.begin().start_ts
        edges = [commit.commit_ts + step for commit in self.commits[-5:] for step in (0, 1)]
        at = data.draw(st.one_of(st.sampled_from([newest, *edges]), st.integers(1, newest)))
        manager = data.draw(st.sampled_from(self.managers))
        if at < self.horizon():
            with pytest.raises(SnapshotTooOld):
                manager.snapshot(at=at)
            return
        assert shown(manager.snapshot(at=at)) == fold(self.snapshot(at))

    @rule(target=holds, data=st.data())
    def hold(self, data: st.DataObject) -> HeldSnapshot:
        """Keep a moment readable."""
        at = data.draw(st.integers(max(self.horizon(), 1), self.oracle.begin().start_ts))
        return self.managers[0].hold(at, for_s=1_000_000)

    @rule(held=holds)
    def read_held(self, held: HeldSnapshot) -> None:
        """Read what is held: never refused."""
        past = self.managers[1].snapshot(at=held.start_ts)
        assert shown(past) == fold(self.snapshot(held.start_ts))

    @rule(held=consumes(holds))
    def release(self, held: HeldSnapshot) -> None:
        """Let it go."""
        held.release()

    # -- compaction ----------------------------------------------------------------------------

    @rule(lag=st.integers(0, 6))
    def compact(self, lag: int) -> None:
        """Raise the low watermark near the present, and heal, drop and prune below it."""
        newest = self.oracle.begin().start_ts
        target = max(newest - lag * TIMESTAMP_STEP, self.oracle.low_watermark)
        self.oracle.raise_low_watermark(target)
        self.clock.advance(3)  # Readers are warned for so long before anything goes.
        compact(self.store, ALL_AT_ONCE, clock=self.clock, sleep=self.clock.advance)

    # -- always --------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "managers"))
    @rule(client=st.integers(0, 2))
    def read_the_present(self, client: int) -> None:
        """Read everything in a fresh transaction: never refused."""
        with self.managers[client].begin() as tx:
            expected = fold(self.snapshot(tx.start_ts))
            assert shown(tx) == expected
            for table in TABLES:
                assert dict(tx.table(table).rows(list(ROWS))) == {
                    row: data for row, data in expected[table].items() if row in ROWS
                }

    def teardown(self) -> None:
        """Compact everything away that may go, and look once more."""
        if hasattr(self, "managers"):
            self.compact(0)
            self.compact(0)
            self.read_the_present(0)
            assert rows_of_parts(self.store) == []


class InterleavedClientsByRow(InterleavedClients):
    """The same where every write of a row conflicts with every other."""

    level = "row"


TestInterleavedClients = InterleavedClients.TestCase
TestInterleavedClients.settings = settings(max_examples=fewer_by_day(20), stateful_step_count=40)

TestInterleavedClientsByRow = InterleavedClientsByRow.TestCase
TestInterleavedClientsByRow.settings = settings(
    max_examples=fewer_by_day(20), stateful_step_count=40
)
