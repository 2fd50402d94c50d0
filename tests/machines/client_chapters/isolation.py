"""What do transactions see of each other, and which of two that write one cell commits?"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from omidpy.errors import Fenced, WriteConflict
from omidpy.manager import TransactionManager
from omidpy.model import TransactionStatus
from omidpy.testing.contract import in_threads
from omidpy.tx.transaction import Transaction
from tests.machines.client_chapters.basics import COLUMN, Chapter, Rows, assert_only, cells, put


class Isolation(Chapter):
    """Snapshots stand still, and no update is lost."""

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
