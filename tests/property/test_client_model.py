"""Interleaved transactions against the shortest meaning of snapshot isolation there is.

The model keeps every commit whole, with the database as it was after it.  A transaction reads the
database as of its begin with its own writes laid over, and commits unless a cell it wrote was
committed by another since.  Every read of the client is compared with the model's, and clients die:
after the decision, before or half way through their shadow cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from omidpy.base.timing.clock import ManualClock
from omidpy.commit.post_commit import Completer, Completion
from omidpy.errors import SnapshotTooOld, WriteConflict
from omidpy.facts.commit_table import CommitTable
from omidpy.manager import TransactionManager
from omidpy.storage.base import RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.buffer import MAX_CHECKPOINTS
from tests.machines.examples import fewer_by_day
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.naive_oracle import NaiveOracle

TABLES = ("t", "u")
ROWS = (b"\x00", b"a", b"a\xff", b"\xff")
COLUMNS = (b"f:", b"f:q", b"f:r", b"g:", b"g:q")

Name = tuple[str, bytes, bytes]
Database = Mapping[Name, bytes]

tables = st.sampled_from(TABLES)
rows = st.sampled_from(ROWS)
columns = st.sampled_from(COLUMNS)
values = st.sampled_from([b"1", b"2", b"3", b"\x00", b"long" * 20])
selections = st.one_of(
    st.none(),
    st.lists(st.sampled_from([*COLUMNS, b"f", b"g"]), min_size=1, max_size=3),
)
datas = st.dictionaries(columns, values, min_size=1, max_size=3)


class Write(NamedTuple):
    """A put of `data`, or without it a delete of `selected` columns."""

    table: str
    row: bytes
    data: dict[bytes, bytes] | None
    selected: list[bytes] | None


writes = st.lists(
    st.one_of(
        st.builds(Write, tables, rows, datas, st.none()),
        st.builds(Write, tables, rows, st.none(), selections),
    ),
    min_size=1,
    max_size=4,
)
bounds = st.one_of(st.none(), rows)


@dataclass(eq=False)
class Pair:
    """A transaction and what the model knows of it."""

    tx: Transaction
    snapshot: Database
    seen_commits: int
    written: dict[Name, bytes | None] = field(default_factory=dict)
    """Value, or None for a delete."""

    def database(self) -> dict[Name, bytes]:
        """Return what the transaction must see."""
        merged: dict[Name, bytes | None] = {**self.snapshot, **self.written}
        return {name: value for name, value in merged.items() if value is not None}

    def has_checkpoints_left(self) -> bool:
        """Say whether a few more flushes leave a version for the commit."""
        return self.tx._buffer._checkpoint < MAX_CHECKPOINTS - 2 * len(ROWS)

    def rows(
        self, table: str, selected: list[bytes] | None
    ) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Return the rows of a table in order, without the empty ones."""
        found: dict[bytes, dict[bytes, bytes]] = {}
        for (where, row, column), value in sorted(self.database().items()):
            if where == table and _is_selected(column, selected):
                found.setdefault(row, {})[column] = value
        return sorted(found.items())


def _is_selected(column: bytes, selected: list[bytes] | None) -> bool:
    return selected is None or column in selected or column.partition(b":")[0] in selected


class FailingPostCommitter:
    """Completes, dies before anything, or dies after some of the shadow cells: as told."""

    def __init__(self, completer: Completer, store: MemoryStore) -> None:
        self.completer = completer
        self.store = store
        self.mode = "complete"

    def submit(self, completion: Completion) -> None:
        """Do as much as the mode says."""
        if self.mode == "complete":
            self.completer.complete((completion,))
        elif self.mode == "half":
            half: dict[str, list[RowMutation]] = {}
            for table, mutations in completion.shadow_cells.items():
                half[table] = [
                    RowMutation(one.row, puts=list(one.puts)[::2]) for one in list(mutations)[::2]
                ]
            self.store.write(half)

    def owes(self, start_ts: int) -> bool:
        """Say no: what died will not be done."""
        return False

    def drain(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ClientMachine(RuleBasedStateMachine):
    """Rules are what a program may do; every read is compared."""

    running = Bundle("running")

    manager_type: type[TransactionManager] = TransactionManager
    as_clients_see: Callable[[MemoryStore], MemoryStore] = staticmethod(lambda store: store)

    @initialize()
    def connect(self) -> None:
        """Two managers of one store, as two processes have."""
        store = MemoryStore()
        self.oracle = NaiveOracle(store)
        self.store = self.as_clients_see(store)
        self.managers = [self._manager() for _ in range(2)]
        for table in TABLES:
            self.managers[0].create_table(table, ["f", "g"], splits=[b"a\xff"])
        self.database: dict[Name, bytes] = {}
        self.commits: list[frozenset[Name]] = []

    def _manager(self) -> TransactionManager:
        tm = self.manager_type(self.store, self.oracle, post_commit="sync", clock=ManualClock())
        completer = Completer(self.store, CommitTable(self.store), lambda _: None)
        tm.session.post_committer = FailingPostCommitter(completer, self.store)
        return tm

    @rule(target=running, which=st.integers(0, 1))
    def begin(self, which: int) -> Pair:
        """Begin in one of the two clients."""
        return self._begin(which)

    def _begin(self, which: int) -> Pair:
        return Pair(self.managers[which].begin(), dict(self.database), len(self.commits))

    # -- writing -------------------------------------------------------------------------------

    @rule(pair=running, writes=writes)
    def write(self, pair: Pair, writes: list[Write]) -> None:
        """Put and delete, in the order given, and read everything back."""
        if self._is_refused(pair):
            return
        for write in writes:
            self._write(pair, write)
        self._compare(pair)

    def _write(self, pair: Pair, write: Write) -> None:
        table = pair.tx.table(write.table)
        if write.data is not None:
            table.put(write.row, write.data)
            for column, value in write.data.items():
                pair.written[write.table, write.row, column] = value
            return
        table.delete(write.row, write.selected)
        for name in pair.database():
            if name[:2] == (write.table, write.row) and _is_selected(name[2], write.selected):
                pair.written[name] = None
        # A column named is written whether or not it is there; a family is read first.
        for column in write.selected or ():
            if b":" in column:
                pair.written[write.table, write.row, column] = None

    @rule(pair=running)
    def flush(self, pair: Pair) -> None:
        """Send what is buffered; nobody else may see it."""
        if pair.has_checkpoints_left():
            pair.tx.flush()
        self._compare(pair)

    @rule(which=st.integers(0, 1), writes=writes, ending=st.sampled_from(["die", "half"]))
    def write_at_once(self, which: int, writes: list[Write], ending: str) -> None:
        """Let a whole transaction pass by those that run, and die after its decision."""
        pair = self._begin(which)
        for write in writes:
            self._write(pair, write)
        self.end(pair, ending)

    def _is_doomed(self, pair: Pair) -> bool:
        return pair.tx.start_ts <= self.oracle.low_watermark

    def _is_refused(self, pair: Pair) -> bool:
        """Say whether a doomed transaction has flushed, and expect that its reads are refused."""
        if not (self._is_doomed(pair) and pair.tx._snapshot.has_sent_cells):
            return False
        with pytest.raises(SnapshotTooOld):
            pair.tx.table(TABLES[0]).row(ROWS[0])
        return True

    def _compare(self, pair: Pair) -> None:
        if self._is_refused(pair):
            return
        for table in TABLES:
            assert list(pair.tx.table(table).scan()) == pair.rows(table, None)

    # -- reading -------------------------------------------------------------------------------

    @rule(pair=running, table=tables, row=rows, selected=selections)
    def read(self, pair: Pair, table: str, row: bytes, selected: list[bytes] | None) -> None:
        """Compare a get."""
        if self._is_refused(pair):
            return
        expected = dict(pair.rows(table, selected)).get(row, {})
        assert pair.tx.table(table).row(row, selected) == expected

    @rule(
        pair=running,
        table=tables,
        selected=selections,
        low=bounds,
        high=bounds,
        reverse=st.booleans(),
        limit=st.one_of(st.none(), st.integers(1, 3)),
        batch_size=st.integers(1, 4),
    )
    def scan(
        self,
        pair: Pair,
        table: str,
        selected: list[bytes] | None,
        low: bytes | None,
        high: bytes | None,
        *,
        reverse: bool,
        limit: int | None,
        batch_size: int,
    ) -> None:
        """Compare a scan: range, direction, columns, limit, page size."""
        if self._is_refused(pair):
            return
        expected = pair.rows(table, selected)
        options: dict[str, Any] = {"row_start": low, "row_stop": high}
        if reverse:
            options = {"row_start": high, "row_stop": low, "reverse": True}
            expected = [
                (row, data)
                for row, data in expected
                if (low is None or row > low) and (high is None or row <= high)
            ][::-1]
        else:
            expected = [
                (row, data)
                for row, data in expected
                if (low is None or row >= low) and (high is None or row < high)
            ]
        scanned = pair.tx.table(table).scan(
            columns=selected, limit=limit, batch_size=batch_size, **options
        )
        assert list(scanned) == expected[:limit]

    @rule(pair=running, table=tables)
    def scan_while_writing(self, pair: Pair, table: str) -> None:
        """Compare a scan whose transaction goes on writing: each row once, as it was."""
        if self._is_doomed(pair) or not pair.has_checkpoints_left():
            return
        expected = pair.rows(table, None)
        found = []
        for row, data in pair.tx.table(table).scan(batch_size=1):
            found.append((row, data))
            self._write(pair, Write(table, row, {b"f:r": b"2"}, None))
            pair.tx.flush()
        assert found == expected

    # -- ending --------------------------------------------------------------------------------

    @rule(
        pair=consumes(running),
        ending=st.sampled_from(["complete", "half", "die", "roll back", "vanish"]),
    )
    def end(self, pair: Pair, ending: str) -> None:
        """Roll back, vanish, or commit and do all, half or nothing of what follows."""
        if ending == "roll back":
            pair.tx.rollback()
        elif ending == "vanish":
            pair.tx.flush()
        else:
            self._commit(pair, ending)

    def _commit(self, pair: Pair, mode: str) -> None:
        committer = pair.tx._session.post_committer
        assert isinstance(committer, FailingPostCommitter)
        committer.mode = mode
        if pair.written and self._is_doomed(pair):
            with pytest.raises(SnapshotTooOld):
                pair.tx.commit()
            return
        since = self.commits[pair.seen_commits :]
        if any(not written.isdisjoint(pair.written) for written in since):
            with pytest.raises(WriteConflict):
                pair.tx.commit()
            return
        pair.tx.commit()
        assert (pair.tx.commit_ts is not None) == bool(pair.written)
        for name, value in pair.written.items():
            if value is None:
                self.database.pop(name, None)
            else:
                self.database[name] = value
        self.commits.append(frozenset(pair.written))

    @precondition(lambda self: len(self.commits) % 4 == 3)
    @rule()
    def restart_the_clients_in_a_new_epoch(self) -> None:
        """Make sure that what is running never commits; readers may then say so."""
        self.oracle.raise_low_watermark()
        self.managers = [self._manager() for _ in range(2)]

    @invariant()
    def a_fresh_reader_sees_the_database(self) -> None:
        """Through a third client, which remembers nothing and heals nothing."""
        if not hasattr(self, "database"):
            return
        tm = self.manager_type(self.store, self.oracle, clock=ManualClock(), post_commit="none")
        tm.session.reader.owes = lambda _: True
        tx = tm.begin()
        seen = {
            (table, row, column): value
            for table in TABLES
            for row, data in tx.table(table).scan()
            for column, value in data.items()
        }
        assert seen == self.database


class LikeThrift1Machine(ClientMachine):
    """The same where the store cannot delete single versions, nor scan more than the newest."""

    as_clients_see = LikeThrift1


TestClient = ClientMachine.TestCase
TestClient.settings = settings(TestClient.settings, max_examples=fewer_by_day(20))

TestClientLikeThrift1 = LikeThrift1Machine.TestCase
TestClientLikeThrift1.settings = TestClient.settings
