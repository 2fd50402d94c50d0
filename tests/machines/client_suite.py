"""What a transaction promises, whatever store and oracle it runs on: a mixin of tests.

A class that inherits `ClientSuite` supplies a fixture `tm`.  Managers may be shared among tests:
every test makes tables of its own.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from omidpy.buffer import FLUSH_LIMIT_BYTES
from omidpy.errors import Fenced, TransactionAborted, UsageError, WriteConflict
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed, TransactionStatus
from omidpy.table import TransactionalTable
from omidpy.testing.contract import in_threads
from omidpy.transaction import Transaction

_names = itertools.count()

COLUMN: Final = b"cf:q"
Rows = list[tuple[bytes, dict[bytes, Any]]]


def put(tm: TransactionManager, name: str, rows: dict[bytes, dict[bytes, bytes]]) -> Transaction:
    """Commit some rows in one transaction, and return it."""
    with tm.begin() as tx:
        for row, data in rows.items():
            tx.table(name).put(row, data)
    return tx


def cells(tm: TransactionManager, name: str) -> int:
    """Return how many cells a table holds, shadow cells included."""
    tm.post_committer.drain()
    versions = None if tm.store.capabilities.multi_version_scan else 1
    return sum(len(row) for page in tm.store.scan(name, max_versions=versions) for row in page)


def assert_only(tm: TransactionManager, name: str, count: int) -> None:
    """Assert that a rollback left `count` cells; where it could take none back, it left more."""
    left = cells(tm, name)
    assert left == count if tm.store.capabilities.exact_delete else left >= count


class ClientSuite:
    """Snapshot isolation with happybase's tables."""

    @pytest.fixture
    def name(self, tm: TransactionManager) -> str:
        """Return the name of a fresh table of two families, in three regions."""
        name = f"t{next(_names)}"
        tm.create_table(name, families=["cf", "other"], splits=[b"d", b"m"])
        return name

    @pytest.fixture
    def filled(self, tm: TransactionManager, name: str) -> str:
        """Return a table with the rows a to h, each with its key as value."""
        keys = [bytes((letter,)) for letter in b"abcdefgh"]
        put(tm, name, {key: {COLUMN: key, b"other:": key} for key in keys})
        return name

    # -- own writes ----------------------------------------------------------------------------

    @pytest.fixture(params=["buffered", "flushed"])
    def settle(self, request: pytest.FixtureRequest) -> Callable[[Transaction], None]:
        """Do nothing, or flush: own writes are seen in the buffer and in the store alike."""
        return Transaction.flush if request.param == "flushed" else (lambda _: None)

    def test_own_writes_are_read(
        self, tm: TransactionManager, filled: str, settle: Callable[[Transaction], None]
    ) -> None:
        """A put, an overwrite, a new column, a deleted column."""
        with tm.begin() as tx:
            table = tx.table(filled)
            table.put(b"new", {COLUMN: b"1"})
            table.put(b"a", {COLUMN: b"changed", b"cf:more": b"2"})
            table.delete(b"b", [COLUMN])
            settle(tx)
            assert table.row(b"new") == {COLUMN: b"1"}
            assert table.row(b"a") == {b"cf:more": b"2", COLUMN: b"changed", b"other:": b"a"}
            assert table.row(b"b") == {b"other:": b"b"}
            table.put(b"a", {COLUMN: b"again"})
            settle(tx)
            assert table.row(b"a", [COLUMN]) == {COLUMN: b"again"}
            table.put(b"b", {COLUMN: b"back"})
            assert table.row(b"b", [b"cf"]) == {COLUMN: b"back"}
        assert self._rows(tm, filled, row_prefix=b"a") == [
            (b"a", {b"cf:more": b"2", COLUMN: b"again", b"other:": b"a"})
        ]

    def test_own_writes_are_scanned(
        self, tm: TransactionManager, filled: str, settle: Callable[[Transaction], None]
    ) -> None:
        """Between, before and behind what is there; deleted rows are left out."""
        with tm.begin() as tx:
            table = tx.table(filled)
            for key in (b"0", b"bb", b"z"):
                table.put(key, {COLUMN: b"own"})
            table.delete(b"c")
            table.put(b"d", {COLUMN: b"own"})
            settle(tx)
            expected = [b"0", b"a", b"b", b"bb", b"d", b"e", b"f", b"g", b"h", b"z"]
            for batch_size in (1, 2, 1000):
                assert [key for key, _ in table.scan(batch_size=batch_size)] == expected
                backwards = table.scan(batch_size=batch_size, reverse=True)
                assert [key for key, _ in backwards] == expected[::-1]
            assert dict(table.scan())[b"d"] == {COLUMN: b"own", b"other:": b"d"}
            assert [key for key, _ in table.scan(limit=3)] == expected[:3]
            assert [key for key, _ in table.scan(limit=3, reverse=True)] == expected[:-4:-1]
            assert [key for key, _ in table.scan(row_prefix=b"b")] == [b"b", b"bb"]
            assert [key for key, _ in table.scan(b"b", b"e")] == [b"b", b"bb", b"d"]
            assert [key for key, _ in table.scan(b"e", b"b", reverse=True)] == [b"e", b"d", b"bb"]
            tx.rollback()
        assert [key for key, _ in self._rows(tm, filled)] == [bytes((x,)) for x in b"abcdefgh"]

    def test_a_row_written_and_deleted_is_gone(
        self, tm: TransactionManager, name: str, settle: Callable[[Transaction], None]
    ) -> None:
        """Own puts are among the columns that a row delete finds."""
        with tm.begin() as tx:
            table = tx.table(name)
            table.put(b"r", {COLUMN: b"v", b"other:x": b"w"})
            settle(tx)
            table.delete(b"r")
            assert table.row(b"r") == {}
            assert list(table.scan()) == []
        assert self._rows(tm, name) == []

    def test_include_timestamp_tells_commit_and_own_start(
        self, tm: TransactionManager, name: str, settle: Callable[[Transaction], None]
    ) -> None:
        """Committed cells have their commit_ts; own ones the start_ts, flushed or not."""
        writer = put(tm, name, {b"r": {b"cf:theirs": b"v"}})
        with tm.begin() as tx:
            table = tx.table(name)
            table.put(b"r", {b"cf:mine": b"w"})
            settle(tx)
            expected = {b"cf:mine": (b"w", tx.start_ts), b"cf:theirs": (b"v", writer.commit_ts)}
            assert table.row(b"r", include_timestamp=True) == expected
            assert table.rows([b"r"], include_timestamp=True) == [(b"r", expected)]
            assert list(table.scan(include_timestamp=True)) == [(b"r", expected)]

    # -- reading -------------------------------------------------------------------------------

    def test_an_absent_row_is_empty(self, tm: TransactionManager, filled: str) -> None:
        """As in happybase; `rows` leaves it out."""
        with tm.begin() as tx:
            table = tx.table(filled)
            assert table.row(b"none") == {}
            assert [key for key, _ in table.rows([b"h", b"none", b"a"])] == [b"h", b"a"]

    def test_columns_are_selected(self, tm: TransactionManager, name: str) -> None:
        """By name, by family, the empty qualifier among them, in gets and scans alike."""
        data = {b"cf:": b"0", b"cf:a": b"1", b"cf:b": b"2", b"other:a": b"3"}
        put(tm, name, {b"r": data, b"s": {b"other:a": b"4"}})
        cases: list[tuple[list[bytes] | None, list[bytes]]] = [
            (None, [b"cf:", b"cf:a", b"cf:b", b"other:a"]),
            ([b"cf"], [b"cf:", b"cf:a", b"cf:b"]),
            ([b"cf:"], [b"cf:"]),
            ([b"cf:b", b"other:a"], [b"cf:b", b"other:a"]),
            ([b"cf:b", b"cf"], [b"cf:", b"cf:a", b"cf:b"]),
            ([b"cf:none"], []),
        ]
        with tm.begin() as tx:
            table = tx.table(name)
            for columns, expected in cases:
                assert list(table.row(b"r", columns)) == expected
                scanned = dict(table.scan(columns=columns))
                assert list(scanned.get(b"r", {})) == expected
                assert (b"s" in scanned) == (columns is None or b"other:a" in columns)

    def test_columns_come_in_order(self, tm: TransactionManager, name: str) -> None:
        """Also where own writes are laid over."""
        put(tm, name, {b"r": {b"cf:b": b"1", b"other:a": b"2"}})
        with tm.begin() as tx:
            table = tx.table(name)
            table.put(b"r", {b"other:": b"3", b"cf:a": b"4", b"cf:c": b"5"})
            names = [b"cf:a", b"cf:b", b"cf:c", b"other:", b"other:a"]
            assert list(table.row(b"r")) == names

    def test_ranges_cross_regions(self, tm: TransactionManager, filled: str) -> None:
        """The table has three; a scan does not care."""
        assert [key for key, _ in self._rows(tm, filled, row_start=b"c", row_stop=b"g")] == [
            *(b"c", b"d", b"e", b"f")
        ]
        backwards = self._rows(tm, filled, row_start=b"g", row_stop=b"c", reverse=True)
        assert [key for key, _ in backwards] == [b"g", b"f", b"e", b"d"]
        assert self._rows(tm, filled, row_start=b"g", row_stop=b"c") == []
        assert self._rows(tm, filled, row_prefix=b"\xff") == []

    def test_binary_keys_and_values_survive(self, tm: TransactionManager, name: str) -> None:
        """Every byte, zero and FF at the ends, a colon in the qualifier."""
        keys = [b"\x00", b"\x00\xff", b"\x80", b"\x81", b"\xff", b"\xff\xff"]
        value = bytes(range(256))
        put(tm, name, {key: {b"cf:a:b\x00": value} for key in keys})
        assert self._rows(tm, name) == [(key, {b"cf:a:b\x00": value}) for key in keys]
        assert [key for key, _ in self._rows(tm, name, row_prefix=b"\xff")] == [*keys[-2:]]

    # -- snapshots -----------------------------------------------------------------------------

    def test_a_snapshot_does_not_change(self, tm: TransactionManager, filled: str) -> None:
        """Puts, deletes and new rows of later commits are not seen, by gets and scans."""
        tx = tm.begin()
        before: Rows = list(tx.table(filled).scan())
        put(tm, filled, {b"a": {COLUMN: b"later"}, b"aa": {COLUMN: b"later"}})
        with tm.begin() as other:
            other.table(filled).delete(b"c")
        assert list(tx.table(filled).scan()) == before
        assert tx.table(filled).row(b"a") == {COLUMN: b"a", b"other:": b"a"}
        assert tx.table(filled).row(b"aa") == {}
        tx.commit()
        assert [key for key, _ in self._rows(tm, filled)][:4] == [b"a", b"aa", b"b", b"d"]

    def test_a_snapshot_reaches_behind_many_versions(
        self, tm: TransactionManager, name: str
    ) -> None:
        """More later commits than the first read asks for."""
        put(tm, name, {b"r": {COLUMN: b"old"}})
        tx = tm.begin()
        for number in range(10):
            put(tm, name, {b"r": {COLUMN: b"%d" % number}})
        assert tx.table(name).row(b"r") == {COLUMN: b"old"}
        assert list(tx.table(name).scan()) == [(b"r", {COLUMN: b"old"})]

    def test_begin_sees_every_acknowledged_commit(self, tm: TransactionManager, name: str) -> None:
        """Start order is real-time order."""
        for number in range(20):
            put(tm, name, {b"r": {COLUMN: b"%d" % number}})
            with tm.begin() as tx:
                assert tx.table(name).row(b"r") == {COLUMN: b"%d" % number}

    def test_tentative_cells_are_nobody_elses(self, tm: TransactionManager, name: str) -> None:
        """A flush writes to the store, and shows nothing."""
        tx = tm.begin()
        tx.table(name).put(b"r", {COLUMN: b"v"})
        tx.flush()
        assert cells(tm, name) == 1
        assert self._rows(tm, name) == []
        tx.commit()
        assert self._rows(tm, name) == [(b"r", {COLUMN: b"v"})]

    def test_a_commit_appears_whole(self, tm: TransactionManager, name: str) -> None:
        """Over tables and rows: a reader sees all of it or nothing."""
        other = f"{name}.other"
        tm.create_table(other, families=["cf"])
        stop = threading.Event()

        def write() -> None:
            try:
                for number in range(1, 40):
                    with tm.begin() as tx:
                        for table in (name, other):
                            for row in (b"a", b"z"):
                                tx.table(table).put(row, {COLUMN: b"%d" % number})
            finally:
                stop.set()

        def read() -> None:
            while not stop.is_set():
                with tm.begin() as tx:
                    seen = {
                        tx.table(table).row(row).get(COLUMN)
                        for table in (name, other)
                        for row in (b"z", b"a")
                    }
                assert len(seen) == 1

        in_threads([write, read, read])

    # -- conflicts -----------------------------------------------------------------------------

    def test_the_first_committer_wins(self, tm: TransactionManager, name: str) -> None:
        """No update is lost; the loser leaves no cell behind."""
        first, second = tm.begin(), tm.begin()
        first.table(name).put(b"r", {COLUMN: b"first"})
        second.table(name).put(b"r", {COLUMN: b"second"})
        second.flush()
        first.commit()
        with pytest.raises(WriteConflict) as caught:
            second.commit()
        assert caught.value.cells == ((name, b"r", b"cf", b"q"),)
        assert second.status is TransactionStatus.ROLLED_BACK
        assert self._rows(tm, name) == [(b"r", {COLUMN: b"first"})]
        assert_only(tm, name, 2)

    def test_a_delete_conflicts_like_a_put(self, tm: TransactionManager, filled: str) -> None:
        """It writes the cell."""
        tx = tm.begin()
        tx.table(filled).delete(b"a", [COLUMN])
        put(tm, filled, {b"a": {COLUMN: b"theirs"}})
        with pytest.raises(WriteConflict):
            tx.commit()

    def test_write_skew_is_possible(self, tm: TransactionManager, filled: str) -> None:
        """Snapshot isolation is not serialisability; who needs more writes what it read."""
        first, second = tm.begin(), tm.begin()
        for tx, reads, writes in ((first, b"a", b"b"), (second, b"b", b"a")):
            table = tx.table(filled)
            table.put(writes, {COLUMN: b"from " + table.row(reads)[COLUMN]})
        first.commit()
        second.commit()
        rows = dict(self._rows(tm, filled))
        assert (rows[b"a"][COLUMN], rows[b"b"][COLUMN]) == (b"from b", b"from a")

    def test_readers_never_abort(self, tm: TransactionManager, filled: str) -> None:
        """Whatever was written meanwhile, a fence included."""
        tx = tm.begin()
        tx.table(filled).row(b"a")
        put(tm, filled, {b"a": {COLUMN: b"new"}})
        tm.fence(filled)
        tx.commit()
        assert tx.commit_ts is None

    def test_a_fence_stops_older_writers_of_its_table(
        self, tm: TransactionManager, name: str, filled: str
    ) -> None:
        """And nobody else's."""
        other = f"{name}.unfenced"
        tm.create_table(other, families=["cf"])
        older, elsewhere = tm.begin(), tm.begin()
        older.table(filled).put(b"x", {COLUMN: b"v"})
        elsewhere.table(other).put(b"x", {COLUMN: b"v"})
        tm.fence(filled)
        elsewhere.commit()
        with pytest.raises(Fenced):
            older.commit()
        put(tm, filled, {b"x": {COLUMN: b"younger"}})

    def test_many_threads_share_a_manager(self, tm: TransactionManager, name: str) -> None:
        """Increments of few counters: each one that returned is counted, once."""
        threads, increments = 6, 15

        @tm.transactional(retry_budget_s=60)
        def increment(tx: Transaction, row: bytes) -> None:
            table = tx.table(name)
            old = int(table.row(row).get(COLUMN, b"0"))
            table.put(row, {COLUMN: b"%d" % (old + 1)})

        def work(number: int) -> None:
            for step in range(increments):
                increment(b"counter %d" % ((number + step) % 3))

        def worker(number: int) -> Callable[[], None]:
            return lambda: work(number)

        in_threads([worker(number) for number in range(threads)])
        total = sum(int(data[COLUMN]) for _, data in self._rows(tm, name))
        assert total == threads * increments

    # -- deletes -------------------------------------------------------------------------------

    def test_a_row_is_deleted_with_every_column(self, tm: TransactionManager, name: str) -> None:
        """Both families, the empty qualifier too; other rows stay."""
        data = {b"cf:": b"0", b"cf:a": b"1", b"other:": b"2", b"other:b": b"3"}
        put(tm, name, {b"q": data, b"r": data, b"s": data})
        with tm.begin() as tx:
            tx.table(name).delete(b"r")
            assert tx.table(name).row(b"r") == {}
        assert self._rows(tm, name) == [(b"q", data), (b"s", data)]

    def test_a_family_is_deleted_alone(self, tm: TransactionManager, name: str) -> None:
        """Its columns, and no others."""
        data = {b"cf:": b"0", b"cf:a": b"1", b"other:": b"2"}
        put(tm, name, {b"r": data})
        with tm.begin() as tx:
            tx.table(name).delete(b"r", [b"cf"])
        assert self._rows(tm, name) == [(b"r", {b"other:": b"2"})]

    def test_the_column_of_the_empty_qualifier_is_deleted_alone(
        self, tm: TransactionManager, name: str
    ) -> None:
        """In this format an empty value there would delete the family."""
        put(tm, name, {b"r": {b"cf:": b"0", b"cf:a": b"1"}})
        with tm.begin() as tx:
            tx.table(name).delete(b"r", [b"cf:"])
            assert tx.table(name).row(b"r") == {b"cf:a": b"1"}
        assert self._rows(tm, name) == [(b"r", {b"cf:a": b"1"})]
        put(tm, name, {b"r": {b"cf:": b"2"}})
        assert self._rows(tm, name) == [(b"r", {b"cf:": b"2", b"cf:a": b"1"})]

    def test_a_put_after_a_delete_counts(
        self, tm: TransactionManager, filled: str, settle: Callable[[Transaction], None]
    ) -> None:
        """In one transaction, in either order: the last one holds, also after the commit."""
        with tm.begin() as tx:
            table = tx.table(filled)
            table.delete(b"a")
            table.delete(b"b", [b"cf"])
            settle(tx)
            table.put(b"a", {COLUMN: b"new"})
            table.put(b"b", {COLUMN: b"new"})
            table.put(b"c", {COLUMN: b"short-lived"})
            settle(tx)
            table.delete(b"c")
        rows = dict(self._rows(tm, filled))
        assert rows[b"a"] == {COLUMN: b"new"}
        assert rows[b"b"] == {COLUMN: b"new", b"other:": b"b"}
        assert b"c" not in rows

    def test_deleting_what_is_not_there_writes_nothing(
        self, tm: TransactionManager, name: str
    ) -> None:
        """A row delete reads; with nothing found there is nothing to commit."""
        with tm.begin() as tx:
            tx.table(name).delete(b"none")
        assert tx.commit_ts is None
        assert cells(tm, name) == 0

    def test_a_row_deleted_and_written_anew_is_new(self, tm: TransactionManager, name: str) -> None:
        """No old column shines through."""
        put(tm, name, {b"r": {b"cf:old": b"1"}})
        with tm.begin() as tx:
            tx.table(name).delete(b"r")
        put(tm, name, {b"r": {b"cf:new": b"2"}})
        assert self._rows(tm, name) == [(b"r", {b"cf:new": b"2"})]

    # -- endings -------------------------------------------------------------------------------

    def test_a_rollback_removes_every_cell(self, tm: TransactionManager, filled: str) -> None:
        """Those of several flushes too; what was there before is as it was."""
        before, count = self._rows(tm, filled), cells(tm, filled)
        tx = tm.begin()
        for number in range(3):
            tx.table(filled).put(b"a", {COLUMN: b"%d" % number})
            tx.table(filled).put(b"new %d" % number, {COLUMN: b"v"})
            tx.table(filled).delete(b"h")
            tx.flush()
        tx.rollback()
        assert tm.outcome(tx) == Aborted()
        assert self._rows(tm, filled) == before
        assert_only(tm, filled, count)

    def test_a_failing_block_leaves_nothing(self, tm: TransactionManager, name: str) -> None:
        """The exception is the block's own."""

        def fail() -> None:
            with tm.begin() as tx:
                tx.table(name).put(b"r", {COLUMN: b"v"})
                tx.flush()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert_only(tm, name, 0)

    def test_rollback_only_leaves_nothing(self, tm: TransactionManager, name: str) -> None:
        """A commit that was forbidden from inside."""
        tx = tm.begin()
        tx.table(name).put(b"r", {COLUMN: b"v"})
        tx.flush()
        tx.set_rollback_only()
        with pytest.raises(TransactionAborted):
            tx.commit()
        assert_only(tm, name, 0)

    def test_the_outcome_of_a_commit_is_known(self, tm: TransactionManager, name: str) -> None:
        """By the transaction, which remembers."""
        tx = put(tm, name, {b"r": {COLUMN: b"v"}})
        assert tx.commit_ts is not None
        assert tm.outcome(tx) == Committed(tx.commit_ts)

    def test_completed_transactions_leave_no_entry(self, tm: TransactionManager, name: str) -> None:
        """Every cell has its shadow cell, and the commit table forgets them."""
        tx = put(tm, name, {b"r": {COLUMN: b"v", b"cf:w": b"x"}, b"s": {COLUMN: b"y"}})
        assert cells(tm, name) == 6
        assert tm.outcome(int(tx.start_ts)) != Committed(tx.commit_ts)

    def test_a_large_transaction_is_sent_in_parts(self, tm: TransactionManager, name: str) -> None:
        """Past the limit the buffer goes to the store, tentative, and is read from there."""
        value = b"x" * 100_000
        rows = FLUSH_LIMIT_BYTES // len(value) * 2
        with tm.begin() as tx:
            table = tx.table(name)
            for number in range(rows):
                table.put(b"%04d" % number, {COLUMN: value})
            assert 0 < cells(tm, name) < rows
            assert self._rows(tm, name) == []
            assert sum(1 for _ in table.scan()) == rows
            table.put(b"0000", {COLUMN: b"rewritten"})
            assert table.row(b"0000") == {COLUMN: b"rewritten"}
        assert sum(1 for _ in self._rows(tm, name)) == rows
        with tm.begin() as tx:
            assert tx.table(name).row(b"0000") == {COLUMN: b"rewritten"}

    def test_the_fiftieth_rewrite_is_refused(self, tm: TransactionManager, name: str) -> None:
        """The format has no more versions; the transaction is rolled back whole."""
        tx = tm.begin()
        table = tx.table(name)
        for number in range(50):
            table.put(b"r", {COLUMN: b"%d" % number})
            tx.flush()
            assert table.row(b"r") == {COLUMN: b"%d" % number}
        table.put(b"r", {COLUMN: b"one too many"})
        with pytest.raises(UsageError, match="used the 49 checkpoints"):
            tx.commit()
        assert_only(tm, name, 0)

    # -- batches -------------------------------------------------------------------------------

    def test_a_batch_reaches_the_transaction_in_order(
        self, tm: TransactionManager, filled: str
    ) -> None:
        """Puts and deletes as they were collected; not before it is sent."""
        with tm.begin() as tx:
            table = tx.table(filled)
            with table.batch() as batch:
                batch.put(b"x", {COLUMN: b"1"})
                batch.delete(b"x")
                batch.put(b"x", {b"cf:last": b"2"})
                batch.delete(b"a")
                assert table.row(b"x") == {}
            assert table.row(b"x") == {b"cf:last": b"2"}
            assert table.row(b"a") == {}

    def test_a_batch_keeps_what_it_was_given(self, tm: TransactionManager, name: str) -> None:
        """A dict that its owner uses again changes nothing, and a bad row is refused at once."""
        with tm.begin() as tx:
            table = tx.table(name)
            batch = table.batch()
            data = {COLUMN: b"1"}
            batch.put(b"a", data)
            data[COLUMN] = b"2"
            with pytest.raises(UsageError, match="row"):
                batch.put(b"", data)
            batch.send()
            assert table.row(b"a") == {COLUMN: b"1"}

    def test_what_a_batch_has_sent_it_does_not_send_again(
        self, tm: TransactionManager, name: str
    ) -> None:
        """It would overwrite what was written since."""
        with tm.begin() as tx:
            table = tx.table(name)
            batch = table.batch()
            batch.put(b"a", {COLUMN: b"1"})
            batch.send()
            table.put(b"a", {COLUMN: b"2"})
            batch.send()
            assert table.row(b"a") == {COLUMN: b"2"}

    def test_a_batch_of_a_size_sends_itself(self, tm: TransactionManager, name: str) -> None:
        """Every so many operations."""
        with tm.begin() as tx:
            batch = tx.table(name).batch(batch_size=2)
            batch.put(b"a", {COLUMN: b"1"})
            assert tx.table(name).row(b"a") == {}
            batch.put(b"b", {COLUMN: b"2"})
            assert tx.table(name).row(b"a") == {COLUMN: b"1"}

    @pytest.mark.parametrize("discards", [True, False])
    def test_a_failing_batch_is_discarded_if_asked(
        self, tm: TransactionManager, name: str, *, discards: bool
    ) -> None:
        """Happybase's `transaction=True`; otherwise what was collected is sent."""
        tx = tm.begin()
        table = tx.table(name)

        def fail() -> None:
            with table.batch(transaction=discards) as batch:
                batch.put(b"a", {COLUMN: b"1"})
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert table.row(b"a") == ({} if discards else {COLUMN: b"1"})

    # -- helpers -------------------------------------------------------------------------------

    def _rows(self, tm: TransactionManager, name: str, **options: Any) -> Rows:
        """Return what a fresh transaction scans."""
        with tm.begin() as tx:
            return list(self._table(tx, name).scan(**options))

    def _table(self, tx: Transaction, name: str) -> TransactionalTable:
        return tx.table(name)


def closing(tm: TransactionManager) -> Iterator[TransactionManager]:
    """Yield a manager and close it."""
    with tm:
        yield tm
