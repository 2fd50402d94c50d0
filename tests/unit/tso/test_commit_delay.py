"""Whom does an oracle wait for before it writes a batch, and whom not?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from omidpy.errors import LeaseLost, OracleError
from omidpy.facts.commit_table import create_system_tables
from omidpy.model import CellId, FamilySchema, TableSchema
from omidpy.oracle.base import CommitGranted
from omidpy.storage.memory import MemoryStore
from tests.machines.waiting import wait_for
from tso import driver
from tso.commit_delay import CommitDelay
from tso.embedded import EmbeddedOracle

LONG_S = 20.0
"""A wait that a test would notice."""


def test_those_whom_the_last_batch_answered_are_awaited_once() -> None:
    """Who has come already is not, nor anybody twice: a wait in vain must not bring another."""
    delay = CommitDelay()
    for caller in (1, 2, 3):
        delay.answered(caller)
    assert delay.awaited([2, 4]) == {1, 3}
    assert not delay.awaited([2, 4])


def test_nobody_awaits_a_caller_that_is_alone() -> None:
    """It would wait for itself, and each of its commits would take longer."""
    delay = CommitDelay()
    delay.answered(1)
    assert not delay.awaited([1])


def test_callers_who_do_not_come_back_are_awaited_now_and_then() -> None:
    """Callers that rest between two commits would make each batch late, for nothing."""
    delay = CommitDelay()

    def one_waits() -> bool:
        delay.answered(1)
        awaited = delay.awaited([2])
        if awaited:
            delay.waited(1, 1)
        return bool(awaited)

    waits = [one_waits() for _ in range(400)]
    assert 3 <= sum(waits[:10]) <= 5
    assert 5 <= sum(waits[10:]) <= 20
    # Once they come again, so are they awaited again.
    while not one_waits():
        pass
    for _ in range(5):
        delay.waited(1, 0)
    assert one_waits()


class Held(MemoryStore):
    """A store that counts the batches with cells, and holds each up until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.begins = threading.Semaphore(0)
        self.goes_on = threading.Semaphore(0)

    def write_guarded(self, mutations: Any, **options: Any) -> list[bool] | None:
        """Say that a batch is here, and wait."""
        if count := sum("CellGroup" in type(one).__name__ for one in mutations):
            self.batches.append(count)
            self.begins.release()
            assert self.goes_on.acquire(timeout=LONG_S)
        return super().write_guarded(mutations, **options)


class Caller:
    """A thread that commits when it is told to."""

    def __init__(self, oracle: EmbeddedOracle, name: bytes) -> None:
        self._oracle = oracle
        self._name = name
        # Beforehand: who asks to begin is not kept waiting, and neither is who waits beside.
        self._starts = [oracle.begin().start_ts for _ in range(3)]
        self._todo = threading.Semaphore(0)
        self.done = threading.Semaphore(0)
        self.error: OracleError | None = None
        self.ended = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def commit(self) -> None:
        """Commit a transaction, in its thread."""
        self._todo.release()

    def has_committed(self) -> bool:
        """Wait for one commit more."""
        return self.done.acquire(timeout=LONG_S)

    def _run(self) -> None:
        for start_ts in self._starts:
            if not self._todo.acquire(timeout=2 * LONG_S):
                return
            row = b"%b%d" % (self._name, start_ts)
            cells = {"t": [(row, b"f", b"q", start_ts, b"v")]}
            try:
                verdict = self._oracle.commit_cells(start_ts, [CellId(hash(row))], [], cells)
            except OracleError as error:
                self.error = error
                self.ended.release()
                return
            assert isinstance(verdict, CommitGranted)
            self.done.release()


@contextmanager
def _oracle_waits_long(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Held, EmbeddedOracle]]:
    monkeypatch.setattr(driver, "STEP_S", 4 * LONG_S)
    monkeypatch.setattr(driver, "LONGEST_S", 4 * LONG_S)
    store = Held()
    create_system_tables(store)
    store.create_table(TableSchema("t", (FamilySchema(b"f"),)))
    oracle = EmbeddedOracle(store)
    try:
        yield store, oracle
    finally:
        for _ in range(10):
            store.goes_on.release()
        oracle.close()
        store.close()


def _in_two_batches(store: Held, oracle: EmbeddedOracle, first: Caller, second: Caller) -> None:
    """Have the second caller ask while the batch of the first is written, and write that."""
    first.commit()
    assert store.begins.acquire(timeout=LONG_S)
    second.commit()
    wait_for(lambda: not oracle._driver._inbox.empty(), LONG_S)
    store.goes_on.release()
    assert first.has_committed()


def test_two_who_commit_in_turns_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of them would have a sync of its own for ever."""
    with _oracle_waits_long(monkeypatch) as (store, oracle):
        first, second = Caller(oracle, b"a"), Caller(oracle, b"b")
        _in_two_batches(store, oracle, first, second)
        # The second one waits for the first, which commits again.
        first.commit()
        store.goes_on.release()
        assert first.has_committed()
        assert second.has_committed()
        assert store.batches == [1, 2]


def test_one_that_is_alone_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commits are written as they come."""
    with _oracle_waits_long(monkeypatch) as (store, oracle):
        alone = Caller(oracle, b"a")
        for _ in range(3):
            alone.commit()
            store.goes_on.release()
            assert alone.has_committed()
        assert store.batches == [1, 1, 1]


def test_who_begins_is_answered_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A begin needs no batch; and those who commit go on to wait for each other."""
    with _oracle_waits_long(monkeypatch) as (store, oracle):
        first, second = Caller(oracle, b"a"), Caller(oracle, b"b")
        _in_two_batches(store, oracle, first, second)
        while oracle._driver.spare() is not None:
            pass  # Those to spare are handed out without the oracle.
        began = oracle.begin()
        assert store.batches == [1]
        first.commit()
        store.goes_on.release()
        assert first.has_committed()
        assert second.has_committed()
        assert store.batches == [1, 2]
        assert oracle.begin().start_ts > began.start_ts


def test_an_oracle_that_ends_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program ends, and the commit that was asked for is written first."""
    with _oracle_waits_long(monkeypatch) as (store, oracle):
        first, second = Caller(oracle, b"a"), Caller(oracle, b"b")
        _in_two_batches(store, oracle, first, second)
        store.goes_on.release()
        oracle.close()
        assert second.has_committed()
        assert store.batches == [1, 1]


def test_who_waits_is_told_where_a_begin_ends_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was not heard is refused for certain, and at once."""
    with _oracle_waits_long(monkeypatch) as (store, oracle):
        first, second = Caller(oracle, b"a"), Caller(oracle, b"b")
        _in_two_batches(store, oracle, first, second)
        while oracle._driver.spare() is not None:
            pass
        with monkeypatch.context() as patch:

            def broken(event: object) -> list[object]:
                raise LeaseLost("another oracle has it")

            patch.setattr(oracle._driver.machine, "handle", broken)
            with pytest.raises(OracleError):
                oracle.begin()
        assert second.ended.acquire(timeout=LONG_S)
        assert isinstance(second.error, LeaseLost)
        assert second.error.was_sent is False
        assert store.batches == [1]
