"""Broken ways to go on after an exception at any line, each of which a sweep of the calls finds.

Each breaks one thing that a call relies on; the sweep of that call then reports harm, and names the
line.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from omidpy.base.within import within
from omidpy.errors import StorageUnavailable
from omidpy.storage import memory
from omidpy.storage.sqlite.file import Database
from omidpy.storage.sqlite.handle import Handle
from omidpy.storage.sqlite.lock import FairLock, _Place
from omidpy.storage.sqlite.queries import reads
from omidpy.tx.transaction import Transaction
from omidpy.tx.writes.buffer import WriteBuffer
from tests.machines.interrupts.calls import Harm
from tests.machines.interrupts.lines import FOLDERS, Interrupter
from tests.machines.interrupts.sweep import Choice, World, sweep
from tests.machines.interrupts.worlds import MEMORY, a_file
from tso.core.events import Answer, Asked, Question, now_by
from tso.driver import Driver, Waiter

T = TypeVar("T")

SOON_S = 3.0
"""A hang is what is expected."""

HASTY = World(MEMORY.open, deadline_s=SOON_S)


def broken_lines() -> Choice:
    """Count the lines of this module too."""
    return Choice(interrupter=Interrupter([*FOLDERS, Path(__file__).parent]))


def harm_of(world: World, name: str, *, insists: bool = False) -> str:
    """Return what a sweep says."""
    with pytest.raises(Harm) as caught:
        sweep(world, name, broken_lines(), insists=insists)
    return str(caught.value)


def within_many_lines(held: Any, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Give back at a line of its own; who waits gives up, so that this process can end."""
    if not held.acquire(timeout=0.3):
        raise StorageUnavailable("the lock stays held", retryable=False)
    try:
        return work(*args, **kwargs)
    finally:
        held.release()


def test_a_lock_that_is_given_back_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception there leaves it held by a thread that has gone on."""
    monkeypatch.setattr(memory, "within", within_many_lines)
    assert "stays held" in harm_of(MEMORY, "flush")


def test_a_transaction_of_sqlite_that_begins_before_its_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And whose connection is lent again as it came back: later reads see an old state."""

    def in_one_view(read: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
        connection.execute("BEGIN")
        try:
            return read(connection)
        finally:
            if connection.in_transaction:
                connection.execute("COMMIT")

    def run(handle: Handle, work: Callable[[sqlite3.Connection], T]) -> T:
        if handle._connection is None:
            handle._open(handle)
        assert handle._connection is not None
        return work(handle._connection)

    def read(file: Database, work: Callable[[sqlite3.Connection], T]) -> T:
        reader = file._an_idle_one()
        try:
            return within(reader.in_use, reader.run, work)
        finally:
            file._idle.append(reader)

    monkeypatch.setattr(reads, "in_one_view", in_one_view)
    monkeypatch.setattr(Handle, "run", run)
    monkeypatch.setattr(Database, "read", read)
    with a_file(deadline_s=SOON_S) as file:
        assert "row" in harm_of(file, "row")


def test_a_place_in_line_that_nobody_looks_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is handed to a thread that has gone, and so to nobody."""

    def first(lock: FairLock) -> _Place:
        return lock._line[0]

    monkeypatch.setattr(FairLock, "_first", first)
    with a_file(deadline_s=SOON_S) as file:
        assert "hangs" in harm_of(file, "flush")


def test_an_oracle_that_decides_in_the_thread_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It remembers a commit that no batch has, or loses a batch."""
    mutex = threading.Lock()

    def ask(driver: Driver, question: Question) -> Answer:
        waiter = Waiter(question)
        with mutex:
            driver._waiting.add(waiter)
            driver._lead(driver._tell(Asked(now_by(driver._clock), [(waiter, question)])))
        assert waiter.answer is not None
        return waiter.answer

    monkeypatch.setattr(Driver, "ask", ask)
    assert harm_of(HASTY, "commit")


def test_a_buffer_that_is_used_on_though_it_was_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell counts as sent that never was, and the commit leaves it out."""
    of_layer = property(lambda torn: torn._layers[0].flaw)
    monkeypatch.setattr(WriteBuffer, "flaw", of_layer)
    assert "is not there" in harm_of(MEMORY, "flush", insists=True)


def test_a_block_that_is_joined_although_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that writes in it returns, and what it wrote is never committed."""
    monkeypatch.setattr(Transaction, "is_in_block", True)
    assert "counted to" in harm_of(MEMORY, "block")
