"""Transactions that can no longer commit: what they flushed is garbage to the compactor.

They may run on for a while, and must not read their own writes as if they had never made them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from compactor.run.local import compact
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import SnapshotTooOld
from omidpy.manager import TransactionManager
from omidpy.storage.memory import MemoryStore
from omidpy.tx.transaction import Transaction
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.naive_oracle import NaiveOracle

KEEPING = replace(ALL_AT_ONCE, retention_s=86_400.0)
"""Versions are kept for a day, so that no snapshot is too old by itself."""

ROW = {b"f:x": b"1"}


class Doom:
    """A manager, and the way to doom its transactions."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.oracle = NaiveOracle(self.store)
        self.tm = TransactionManager(self.store, self.oracle, clock=self.clock)
        self.tm.create_table("t", ["f"])

    def begin(self) -> Transaction:
        """Begin a transaction that has written a row."""
        tx = self.tm.begin()
        tx.table("t").put(b"a", ROW)
        return tx

    def strike(self, *, seconds: float = 0) -> None:
        """Let the low watermark pass every transaction, and compact."""
        self.oracle.raise_low_watermark()
        self.clock.advance(seconds)
        compact(self.store, KEEPING, clock=self.clock, sleep=self.clock.advance)


@pytest.fixture
def doom() -> Doom:
    """Return a fresh store."""
    return Doom()


@pytest.mark.parametrize("seconds", [0, 1000])
def test_a_doomed_transaction_is_told_instead_of_missing_its_flushed_writes(
    doom: Doom, seconds: float
) -> None:
    """However young it is: an eviction from the conflict map may doom it at once."""
    tx = doom.begin()
    tx.flush()
    assert tx.table("t").row(b"a") == ROW
    doom.strike(seconds=seconds)
    with pytest.raises(SnapshotTooOld, match="--max-transaction-age") as refused:
        tx.table("t").row(b"a")
    assert refused.value.retryable
    with pytest.raises(SnapshotTooOld):
        list(tx.table("t").scan())
    with pytest.raises(SnapshotTooOld):
        tx.commit()


def test_a_worker_of_a_doomed_transaction_is_told(doom: Doom) -> None:
    """It reads what its owner flushed."""
    tx = doom.begin()
    worker = doom.tm.resume(tx.token())
    assert worker.table("t").row(b"a") == ROW
    doom.strike()
    with pytest.raises(SnapshotTooOld):
        worker.table("t").row(b"a")


def test_an_owner_reads_merged_cells_no_longer_once_it_is_doomed(doom: Doom) -> None:
    """A part is as good as flushed."""
    tx = doom.tm.begin()
    worker = doom.tm.resume(tx.token())
    worker.table("t").put(b"a", ROW)
    tx.merge(worker.finish())
    assert tx.table("t").row(b"a") == ROW
    doom.strike()
    with pytest.raises(SnapshotTooOld):
        tx.table("t").row(b"a")


def test_a_doomed_transaction_that_flushed_nothing_reads_on(doom: Doom) -> None:
    """All that it reads is still there: its snapshot, and its buffer."""
    tx = doom.begin()
    doom.strike(seconds=1000)
    assert tx.table("t").row(b"a") == ROW
    with pytest.raises(SnapshotTooOld):
        tx.commit()
