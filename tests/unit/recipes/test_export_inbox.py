"""A receiver that has noted what it has taken: each effect is there once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from omidpy.errors import UsageError
from omidpy.recipes.export_queue import Batch
from omidpy.recipes.export_queue.inbox import Inbox
from tests.machines.export_queues import STEPS, Scene


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    """Return a receiver's database, with a sum."""
    with closing(sqlite3.connect(":memory:")) as connection:
        with connection:
            Inbox().make(connection.cursor())
            connection.execute("CREATE TABLE sums (sum INTEGER)")
            connection.execute("INSERT INTO sums VALUES (0)")
        yield connection


def the_sum(database: sqlite3.Connection) -> int:
    """Return what all effects come to."""
    return int(database.execute("SELECT sum FROM sums").fetchone()[0])


@pytest.mark.parametrize("step", STEPS)
def test_each_entry_is_added_once(database: sqlite3.Connection, step: str) -> None:
    """An exporter dies at each step, and the batch comes again."""
    scene = Scene()

    def receive(batch: Batch) -> None:
        for entry in batch:
            with database:
                if Inbox().accept(database.cursor(), entry.id):
                    database.execute("UPDATE sums SET sum = sum + ?", (entry.value,))

    scene.sink.on_batch = receive
    scene.add(1, 10)
    scene.add(100)
    scene.die_at(step)
    scene.export()
    assert the_sum(database) == 111


def test_what_is_undone_was_not_taken(database: sqlite3.Connection) -> None:
    """The id goes with the effect that failed."""
    inbox = Inbox()
    assert inbox.accept(database.cursor(), "1-0")
    database.rollback()
    with database:
        assert inbox.accept(database.cursor(), "1-0")
        assert not inbox.accept(database.cursor(), "1-0")


def test_old_ids_can_go(database: sqlite3.Connection) -> None:
    """Which then count as new."""
    inbox = Inbox()
    with database:
        inbox.accept(database.cursor(), "1-0")
        assert inbox.forget(database.cursor(), "1970-01-01") == 0
        assert inbox.forget(database.cursor(), "9999-01-01") == 1
        assert inbox.accept(database.cursor(), "1-0")


def test_a_name_that_is_none_is_refused() -> None:
    """It goes into statements."""
    with pytest.raises(UsageError, match="letters, digits"):
        Inbox("a; DROP TABLE b")
