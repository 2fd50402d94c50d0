"""What a transaction has changed in some tables, as entries: for whoever follows them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from omidpy.errors import NoSuchTable, TransactionClosed, UsageError
from omidpy.model import TransactionStatus
from omidpy.recipes.export_queue import Batch, ExportQueue
from tests.machines.export_queues import Scene

ORDERS = "orders"
OTHER = "other"
STATE = b"cf:state"
SUM = b"cf:sum"


def recorded() -> Scene:
    """Return a queue of changes, and two tables."""
    scene = Scene(codec="msgpack")
    for table in (ORDERS, OTHER):
        scene.tm.create_table(table, ["cf"])
    return scene


def found(scene: Scene) -> list[tuple[bytes, str, Any]]:
    """Deliver what is there, and return what all of it says."""
    scene.export()
    return [(entry.key, entry.headers["table"], entry.value) for entry in scene.sink.entries]


def test_each_row_is_one_entry_of_what_it_came_to() -> None:
    """Written before or after the call, twice, deleted; other tables are not recorded."""
    scene = recorded()
    with scene.tm.begin() as tx:
        tx.table(ORDERS).put(b"2", {STATE: b"old", SUM: b"5"})
    with scene.tm.begin() as tx:
        orders = tx.table(ORDERS)
        orders.put(b"1", {STATE: b"new"})
        scene.queue.record(tx, tables=[ORDERS])
        orders.put(b"1", {STATE: b"paid", SUM: b"\xff"})
        orders.delete(b"2")
        tx.table(OTHER).put(b"3", {STATE: b"x"})
    assert found(scene) == [
        (b"1", ORDERS, {STATE: b"paid", SUM: b"\xff"}),
        (b"2", ORDERS, {STATE: None, SUM: None}),
    ]


def test_what_is_undone_is_not_recorded() -> None:
    """Neither a savepoint, flushed or not, nor a transaction that rolls back."""
    scene = recorded()
    with scene.tm.begin() as tx:
        tx.queue("q").record([ORDERS, OTHER])
        tx.table(ORDERS).put(b"1", {STATE: b"kept"})
        with suppress(ZeroDivisionError), tx.savepoint():
            tx.table(ORDERS).put(b"1", {STATE: b"undone"})
            tx.table(ORDERS).put(b"2", {STATE: b"undone"})
            raise ZeroDivisionError
        tx.flush()
        tx.table(OTHER).put(b"1", {STATE: b"other"})
    with suppress(ZeroDivisionError), scene.tm.begin() as tx:
        scene.queue.record(tx, tables=[ORDERS])
        tx.table(ORDERS).put(b"9", {STATE: b"never"})
        raise ZeroDivisionError
    assert found(scene) == [
        (b"1", ORDERS, {STATE: b"kept"}),
        (b"1", OTHER, {STATE: b"other"}),
    ]


def test_recording_begins_again_behind_an_undone_savepoint() -> None:
    """The entries of whoever asked behind it would be missing."""
    scene = recorded()
    with scene.tm.begin() as tx:
        with suppress(ZeroDivisionError), tx.savepoint():
            scene.queue.record(tx, tables=[ORDERS])
            raise ZeroDivisionError
        tx.table(ORDERS).put(b"1", {STATE: b"new"})
        scene.queue.record(tx, tables=[ORDERS])
    assert found(scene) == [(b"1", ORDERS, {STATE: b"new"})]


def test_a_table_that_was_added_in_an_undone_savepoint_is_not_recorded() -> None:
    """Nor with the others, which were before."""
    scene = recorded()
    with scene.tm.begin() as tx:
        scene.queue.record(tx, tables=[ORDERS])
        with suppress(ZeroDivisionError), tx.savepoint():
            scene.queue.record(tx, tables=[OTHER])
            raise ZeroDivisionError
        tx.table(ORDERS).put(b"1", {STATE: b"new"})
        tx.table(OTHER).put(b"2", {STATE: b"x"})
    assert found(scene) == [(b"1", ORDERS, {STATE: b"new"})]


def test_what_was_flushed_and_written_again_is_recorded_as_it_came_to() -> None:
    """The newest version counts, whether it was sent or is buffered."""
    scene = recorded()
    with scene.tm.begin() as tx:
        scene.queue.record(tx, tables=[ORDERS])
        tx.table(ORDERS).put(b"1", {STATE: b"one", SUM: b"1"})
        tx.flush()
        tx.table(ORDERS).put(b"1", {STATE: b"two"})
        tx.flush()
        tx.table(ORDERS).put(b"1", {SUM: b"2"})
    assert found(scene) == [(b"1", ORDERS, {STATE: b"two", SUM: b"2"})]


def test_what_is_recorded_twice_is_one_entry() -> None:
    """By parts of a program that do not know of each other, and through two objects."""
    scene = recorded()
    with scene.tm.begin() as tx:
        scene.queue.record(tx, tables=[ORDERS])
        tx.table(ORDERS).put(b"1", {STATE: b"new"})
        tx.queue("q").record([ORDERS, OTHER])
        tx.table(OTHER).put(b"2", {STATE: b"x"})
        ExportQueue.open(scene.tm, "q").record(tx, tables=[OTHER])
    with scene.tm.begin() as tx:
        scene.queue.record(tx, tables=[ORDERS])
        tx.table(ORDERS).put(b"1", {STATE: b"paid"})
    assert found(scene) == [
        (b"1", ORDERS, {STATE: b"new"}),
        (b"2", OTHER, {STATE: b"x"}),
        (b"1", ORDERS, {STATE: b"paid"}),
    ]


def test_what_is_written_as_the_commit_begins_is_recorded() -> None:
    """By whoever was registered behind the recorder, or by another one, and of two recorders."""
    scene = recorded()
    audit = ExportQueue.create(scene.tm, "audit", buckets=1, codec="msgpack")
    with scene.tm.begin() as tx:

        def write() -> None:
            tx.table(ORDERS).put(b"2", {STATE: b"late"})
            audit.record(tx, tables=[ORDERS])
            tx.before_commit(write_again)

        def write_again() -> None:
            tx.table(ORDERS).put(b"1", {SUM: b"1"})
            tx.table(OTHER).put(b"3", {STATE: b"later"})
            scene.queue.record(tx, tables=[OTHER])

        scene.queue.record(tx, tables=[ORDERS])
        tx.table(ORDERS).put(b"1", {STATE: b"paid"})
        tx.before_commit(write)
    orders = [(b"1", ORDERS, {STATE: b"paid", SUM: b"1"}), (b"2", ORDERS, {STATE: b"late"})]
    assert found(scene) == [*orders, (b"3", OTHER, {STATE: b"later"})]
    assert [(one.key, one.headers["table"], one.value) for one in audit.peek()] == orders


def test_nothing_changed_is_nothing_recorded() -> None:
    """A transaction that only read has no entry, and asks no oracle."""
    scene = recorded()
    with scene.tm.begin() as tx:
        scene.queue.record(tx, tables=[ORDERS])
        assert tx.table(ORDERS).row(b"1") == {}
    assert tx.commit_ts is None
    assert found(scene) == []


def test_a_follower_has_what_the_tables_have() -> None:
    """Fluo's replication: changes that are written at their commit timestamp, in any order."""
    scene = recorded()
    followed: dict[tuple[str, bytes, bytes], tuple[int, bytes | None]] = {}

    def follow(batch: Batch) -> None:
        for entry in reversed(batch):
            for column, value in entry.value.items():
                place = (entry.headers["table"], entry.key, column)
                followed[place] = max(followed.get(place, (0, None)), (entry.commit_ts, value))

    for number in range(30):
        with scene.tm.begin() as tx:
            scene.queue.record(tx, tables=[ORDERS, OTHER])
            table = tx.table(ORDERS if number % 3 else OTHER)
            row = b"%d" % (number % 5)
            if number % 7 == 6:
                table.delete(row)
            else:
                table.put(row, {STATE: b"%d" % number})
    scene.queue.run_once(follow, wait_s=0)
    scene.queue.run_once(follow, wait_s=0)
    with scene.tm.begin(read_only=True) as tx:
        actual = {
            (name, row, column): value
            for name in (ORDERS, OTHER)
            for row, data in tx.table(name).scan()
            for column, value in data.items()
        }
    assert actual == {place: value for place, (_, value) in followed.items() if value is not None}
    assert actual


def test_what_a_worker_has_written_is_refused_and_rolled_back() -> None:
    """Its values are not known here: an entry without them would be a hole."""
    scene = recorded()
    tx = scene.tm.begin()
    scene.queue.record(tx, tables=[ORDERS])
    worker = scene.tm.resume(tx.token())
    worker.table(ORDERS).put(b"1", {STATE: b"x"})
    tx.merge(worker.finish())
    with pytest.raises(UsageError, match="was written by a worker"):
        tx.commit()
    assert tx.status is TransactionStatus.ROLLED_BACK
    assert found(scene) == []


def test_mistakes_are_named_before_anything_is_recorded() -> None:
    """Each says what would help."""
    scene = recorded()
    json = ExportQueue.create(scene.tm, "j", buckets=1)
    with scene.tm.begin() as tx:
        with pytest.raises(UsageError, match="codec='msgpack'"):
            json.record(tx, tables=[ORDERS])
        with pytest.raises(NoSuchTable):
            scene.queue.record(tx, tables=["nowhere"])
        with pytest.raises(TypeError, match="a list of names"):
            scene.queue.record(tx, tables=ORDERS)
        worker = scene.tm.resume(tx.token())
        with pytest.raises(UsageError, match="record its transaction"):
            scene.queue.record(worker, tables=[ORDERS])
        worker.finish()
        tx.discard(worker)
    with pytest.raises(TransactionClosed):
        scene.queue.record(tx, tables=[ORDERS])
    reading = scene.tm.begin(read_only=True)
    with pytest.raises(UsageError):
        scene.queue.record(reading, tables=[ORDERS])
