"""What is held for the length of a call is given back, whatever line an exception comes at."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.base.within import within
from tests.machines.interrupts.lines import Interrupt, Interrupter

PACKAGE: Final = Path(omidpy.__file__).parent


def test_a_lock_is_free_again() -> None:
    """At each line, the last one among them."""
    lock = threading.Lock()
    interrupter = Interrupter([PACKAGE, Path(__file__).parent])

    def work() -> int:
        assert lock.locked()
        return 1

    def call() -> None:
        within(lock, work)

    count = len(interrupter.lines(call))
    assert count >= 4
    for number in range(1, count + 1):
        with pytest.raises(Interrupt):
            interrupter.interrupt(call, number, Interrupt())
        assert not lock.locked()


def test_a_connection_of_sqlite_ends_its_transaction() -> None:
    """It commits what came to its end, and rolls back the rest."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (n)")

    def work(number: int) -> None:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (?)", (number,))
        if number == 2:
            raise Interrupt

    within(connection, work, 1)
    with pytest.raises(Interrupt):
        within(connection, work, 2)
    assert not connection.in_transaction
    assert connection.execute("SELECT n FROM t").fetchall() == [(1,)]
    connection.close()
