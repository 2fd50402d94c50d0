"""What does a transaction leave behind: its puts and deletes, or after a rollback nothing?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omidpy.errors import TransactionAborted, UsageError
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.buffer import FLUSH_LIMIT_BYTES
from tests.machines.client_chapters.basics import COLUMN, Chapter, assert_only, cells, put


class Writes(Chapter):
    """Deletes, endings and batches."""

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

    @pytest.mark.parametrize("transaction", [True, False])
    def test_a_failing_batch_sends_nothing(
        self, tm: TransactionManager, name: str, *, transaction: bool
    ) -> None:
        """Half of it would be committed by whoever catches the error; and the error wins."""
        tx = tm.begin()
        table = tx.table(name)

        def fail() -> None:
            with table.batch(transaction=transaction) as batch:
                batch.put(b"a", {COLUMN: b"1"})
                batch.delete(b"b")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert table.row(b"a") == {}
        tx.commit()
        assert tx.commit_ts is None

    def test_a_batch_deletes_what_it_has_put(self, tm: TransactionManager, filled: str) -> None:
        """What deletes take along is read once, before: rows of the store and of the batch."""
        with tm.begin() as tx:
            table = tx.table(filled)
            table.put(b"a", {b"cf:own": b"1"})
            table.delete(b"b", [b"other:"])
            with table.batch() as batch:
                batch.put(b"a", {b"cf:new": b"1", b"other:new": b"1"})
                batch.delete(b"a", [b"cf"])
                batch.delete(b"b")
                batch.put(b"b", {COLUMN: b"again"})
                batch.delete(b"none")
            expected = {b"other:": b"a", b"other:new": b"1"}
            assert table.row(b"a") == expected
            assert table.row(b"b") == {COLUMN: b"again"}
        rows = dict(self._rows(tm, filled))
        assert rows[b"a"] == expected
        assert rows[b"b"] == {COLUMN: b"again"}
