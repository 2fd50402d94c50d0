"""What do several writers of one transaction leave, those that were merged and the others?

Where single versions cannot be deleted, what a worker wrote that was not merged cannot be removed,
and the commit says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from unittest import mock

import pytest

from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import TransactionAborted, TransactionClosed
from omidpy.facts.registration import parts_row
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed, TransactionStatus
from omidpy.tx.parts import worker as worker_module
from omidpy.tx.parts.worker import Worker
from omidpy.tx.transaction import Transaction
from tests.machines.client_chapters.basics import COLUMN, Chapter, assert_only, cells


class Parts(Chapter):
    """Tokens, workers and their parts."""

    def test_one_commit_covers_every_part(self, tm: TransactionManager, name: str) -> None:
        """Of workers in several regions, and of an owner that wrote before and after."""
        tx, token = self._begun(tm, name)
        parts = [self._worker(tm, token, name, {row: b"worker's"}).finish() for row in (b"e", b"z")]
        for part in parts:
            tx.merge(part)
        tx.table(name).put(b"b", {COLUMN: b"owner's"})
        assert self._values(tm, name) == {}
        tx.commit()
        owned = dict.fromkeys((b"a", b"b"), b"owner's")
        assert self._values(tm, name) == {**owned, b"e": b"worker's", b"z": b"worker's"}
        assert cells(tm, name) == 8
        assert tm.outcome(token) == Committed(tx.commit_ts)
        assert self._row(tm, tx) == []

    def test_a_part_that_nobody_merged_aborts_the_commit(
        self, tm: TransactionManager, name: str
    ) -> None:
        """And its cells go with the others."""
        tx, token = self._begun(tm, name)
        tx.merge(self._worker(tm, token, name, {b"b": b"1"}).finish())
        lost = self._worker(tm, token, name, {b"e": b"1", b"z": b"1"}, task="load 7")
        lost.finish()
        with pytest.raises(TransactionAborted, match=f"{lost.worker_id} of task 'load 7'"):
            tx.commit()
        assert tx.status is TransactionStatus.ROLLED_BACK
        assert self._values(tm, name) == {}
        assert_only(tm, name, 0)
        assert tm.outcome(token) == Aborted()
        assert self._row(tm, tx) == []

    def test_the_cells_of_a_discarded_worker_go(self, tm: TransactionManager, name: str) -> None:
        """But for those that the worker wrote too that took over."""
        tx, token = self._begun(tm, name)
        dead = self._worker(tm, token, name, {b"e": b"1", b"y": b"1", b"z": b"1"}, is_dead=True)
        tx.merge(self._worker(tm, token, name, {b"f": b"1", b"z": b"1"}).finish())
        tx.discard(dead.worker_id)
        if not tm.store.capabilities.exact_delete:
            with pytest.raises(TransactionAborted, match="cannot delete single versions"):
                tx.commit()
            return
        tx.commit()
        assert self._values(tm, name) == {b"a": b"owner's", b"f": b"1", b"z": b"1"}
        assert cells(tm, name) == 6

    def test_an_attempt_that_ended_covers_one_that_died(
        self, tm: TransactionManager, name: str
    ) -> None:
        """It wrote the cells of the other one again."""
        tx, token = self._begun(tm, name)
        written = {b"e": b"1", b"z": b"2"}
        self._worker(tm, token, name, {b"e": b"1"}, task="t", is_dead=True)
        tx.merge(self._worker(tm, token, name, written, task="t").finish())
        assert sorted(one.status for one in tx.parts()) == ["covered", "merged"]
        tx.commit()
        assert self._values(tm, name) == {b"a": b"owner's", **written}
        assert cells(tm, name) == 6

    @pytest.mark.parametrize("end", [Transaction.commit, Transaction.rollback])
    def test_a_worker_that_comes_late_writes_nothing(
        self, tm: TransactionManager, name: str, end: object
    ) -> None:
        """Whether it had begun to write or not."""
        tx, token = self._begun(tm, name)
        slow = self._worker(tm, token, name, {b"e": b"1"})
        assert callable(end)
        end(tx)
        count = cells(tm, name)
        for worker in (slow, self._worker(tm, token, name, {b"z": b"1"})):
            with pytest.raises(TransactionClosed, match=worker.worker_id):
                worker.finish()
        assert cells(tm, name) == count

    # -- short ways ------------------------------------------------------------------------------

    def _begun(self, tm: TransactionManager, name: str) -> tuple[Transaction, bytes]:
        tx = tm.begin()
        tx.table(name).put(b"a", {COLUMN: b"owner's"})
        return tx, tx.token()

    def _worker(
        self,
        tm: TransactionManager,
        token: bytes,
        name: str,
        values: Mapping[bytes, bytes],
        *,
        task: str | None = None,
        is_dead: bool = False,
    ) -> Worker:
        """Return a worker that has written some rows, and flushed each if it died."""
        worker = tm.resume(token, task=task)
        limit = 1 if is_dead else 1 << 20
        with mock.patch.object(worker_module, "FLUSH_LIMIT_BYTES", limit):
            for row, value in values.items():
                worker.table(name).put(row, {COLUMN: value})
        return worker

    def _values(self, tm: TransactionManager, name: str) -> dict[bytes, bytes]:
        return {row: data[COLUMN] for row, data in self._rows(tm, name)}

    def _row(self, tm: TransactionManager, tx: Transaction) -> list[object]:
        """Return what is left of the row of its parts."""
        tm.session.post_committer.drain()
        return list(tm.store.get(CONTROL_TABLE, [parts_row(tx.start_ts)], max_versions=1)[0])
