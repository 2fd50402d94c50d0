"""Locks on tables and ranges of keys: who holds, who waits, and what a crash leaves of it."""

from __future__ import annotations

from omidpy.fate.locks import Locks, Mode
from omidpy.fate.operation import Operation, Status, new_id
from omidpy.fate.store import FateStore
from omidpy.model import KeyRange
from omidpy.testing.chapters.basics import in_threads
from omidpy.testing.fate.basics import Chapter, an_operation

TABLE = "ns:things"


class Queues(Chapter):
    """Queues of locks, kept by a store."""

    def test_readers_share_and_a_writer_waits_for_them(self, fates: FateStore) -> None:
        """And is told for whom."""
        a, b, c = three(fates)
        locks = Locks(fates)
        assert locks.read(TABLE, a.id) is None
        assert locks.read(TABLE, b.id) is None
        waits = locks.write(TABLE, c.id)
        assert waits is not None
        assert waits.seconds > 0
        assert f"waits for READ of {a.id} and 1 more" in waits.reason
        locks.release(a.id, TABLE)
        assert locks.write(TABLE, c.id) is not None
        locks.release(b.id)
        assert locks.write(TABLE, c.id) is None

    def test_who_came_first_is_served_first(self, fates: FateStore) -> None:
        """A reader behind a waiting writer waits too, or the writer would wait for ever."""
        a, b, c = three(fates)
        locks = Locks(fates)
        assert locks.read(TABLE, a.id) is None
        assert locks.write(TABLE, b.id) is not None
        assert locks.read(TABLE, c.id) is not None
        locks.release(a.id)
        assert locks.read(TABLE, c.id) is not None
        assert locks.write(TABLE, b.id) is None
        locks.release(b.id)
        assert locks.read(TABLE, c.id) is None

    def test_ranges_that_do_not_overlap_are_no_hindrance(self, fates: FateStore) -> None:
        """An empty end is the end of the table; ranges that meet do not overlap."""
        a, b, c = three(fates)
        locks = Locks(fates)
        assert locks.write(TABLE, a.id, KeyRange(b"", b"m")) is None
        assert locks.write(TABLE, b.id, KeyRange(b"m", b"")) is None
        assert locks.write("other", c.id) is None
        assert locks.read(TABLE, c.id, KeyRange(b"l", b"n")) is not None
        locks.release(a.id)
        assert locks.read(TABLE, c.id, KeyRange(b"l", b"n")) is not None
        locks.release(b.id)
        assert locks.read(TABLE, c.id, KeyRange(b"l", b"n")) is None

    def test_an_operation_is_not_in_its_own_way(self, fates: FateStore) -> None:
        """Asking twice is asking once, and a reader may come to write."""
        a, b, _ = three(fates)
        locks = Locks(fates)
        for _ in range(2):
            assert locks.read(TABLE, a.id) is None
            assert locks.write(TABLE, a.id) is None
        assert locks.read(TABLE, b.id) is not None
        locks.release(a.id)
        assert locks.read(TABLE, b.id) is None

    def test_a_lock_belongs_to_the_operation_and_to_no_process(self, fates: FateStore) -> None:
        """Whoever goes on with it after a crash finds what it held, and its place in the queue."""
        a, b, c = three(fates)
        assert Locks(fates).write(TABLE, a.id) is None
        assert Locks(fates).write(TABLE, b.id) is not None
        other = self.reopen(fates)
        try:
            locks = Locks(other)
            assert locks.write(TABLE, a.id) is None
            assert locks.write(TABLE, c.id) is not None
            locks.release(a.id)
            assert locks.write(TABLE, c.id) is not None
            assert locks.write(TABLE, b.id) is None
        finally:
            other.close()

    def test_a_queue_is_swapped_only_as_it_was_read(self, fates: FateStore) -> None:
        """Else one of two who ask at once would lose its place."""
        table = f"ns:{new_id()}"
        other = self.reopen(fates)
        try:
            assert fates.swap_lock_queue(table, None, b"1")
            assert not other.swap_lock_queue(table, None, b"2")
            assert fates.read_lock_queue(table) == other.read_lock_queue(table) == b"1"
            assert other.swap_lock_queue(table, b"1", b"2")
            assert not fates.swap_lock_queue(table, b"1", b"3")
            assert not fates.swap_lock_queue(table, b"1", b"3")
            assert fates.read_lock_queue(table) == b"2"
            assert fates.read_lock_queue(f"{table}-other") is None
            assert dict(fates.lock_queues())[table] == b"2"
        finally:
            other.swap_lock_queue(table, b"2", b"{}")
            other.close()

    def test_all_locks_are_listed_with_what_they_wait_for(self, fates: FateStore) -> None:
        """So that one sees who is in the way."""
        a, b, _ = three(fates)
        locks = Locks(fates)
        locks.write(TABLE, a.id, KeyRange(b"a", b"f"))
        locks.read(TABLE, b.id)
        locks.read("others", b.id)
        first, second, third = locks.states()
        assert (first.table, first.entry.mode, first.waits_for) == (TABLE, Mode.WRITE, ())
        assert first.entry.key_range == KeyRange(b"a", b"f")
        assert (second.table, second.entry.mode) == (TABLE, Mode.READ)
        assert second.waits_for == (first.entry,)
        assert (third.table, third.waits_for) == ("others", ())

    def test_locks_of_operations_that_are_finished_or_gone_are_released(
        self, fates: FateStore
    ) -> None:
        """An executor that dies right behind the end of an operation leaves its locks."""
        a, b, _ = three(fates)
        done = an_operation(status=Status.SUCCESSFUL, finished_ms=1)
        fates.insert(done)
        gone = an_operation()
        locks = Locks(fates)
        for operation in (done, gone, a, b):
            locks.write(TABLE, operation.id)
        locks.release_dangling()
        assert {state.entry.operation for state in locks.states()} == {a.id, b.id}
        assert locks.write(TABLE, a.id) is None

    def test_a_queue_goes_with_the_last_one_in_it(self, fates: FateStore) -> None:
        """Else locks would outlive their tables, and every release would walk all of them."""
        a, b, _ = three(fates)
        locks = Locks(fates)
        table = f"ns:{new_id()}"
        for _ in range(4):
            assert locks.write(table, a.id) is None
            assert locks.write(table, b.id) is not None
            locks.release(a.id)
            assert table in dict(fates.lock_queues())
            locks.release(b.id)
            assert table not in dict(fates.lock_queues())
            assert fates.read_lock_queue(table) is None

    def test_a_change_of_a_queue_that_went_meanwhile_is_refused(self, fates: FateStore) -> None:
        """It was sent long ago, and the queue that is there now is another one."""
        a, b, _ = three(fates)
        table = f"ns:{new_id()}"
        other = self.reopen(fates)
        try:
            locks = Locks(fates)
            locks.write(table, a.id)
            seen = other.read_lock_queue(table)
            locks.release(a.id)
            locks.write(table, b.id)
            now = fates.read_lock_queue(table)
            assert seen is not None
            assert not other.swap_lock_queue(table, seen, b"late")
            assert not other.swap_lock_queue(table, None, b"late")
            assert not other.swap_lock_queue(table, seen, None)
            assert other.read_lock_queue(table) == now != seen
            locks.release(b.id)
        finally:
            other.close()

    def test_an_empty_queue_of_an_earlier_version_goes(self, fates: FateStore) -> None:
        """With the next sweep."""
        table = f"ns:{new_id()}"
        assert fates.swap_lock_queue(table, None, b'{"changes":4,"entries":[]}')
        Locks(fates).release_dangling()
        assert fates.read_lock_queue(table) is None

    def test_a_queue_that_cannot_be_read_stops_its_own_locks_alone(self, fates: FateStore) -> None:
        """Whoever wants one there waits and says for what; everything else goes on."""
        a, b, _ = three(fates)
        locks = Locks(fates)
        damaged = f"ns:{new_id()}"
        assert locks.write(TABLE, a.id) is None
        assert fates.swap_lock_queue(damaged, None, b"{")
        try:
            waits = locks.write(damaged, a.id)
            assert waits is not None
            assert "holds b'{'" in waits.reason
            assert "omidpy fate repair" in waits.reason
            locks.release_dangling()
            assert [state.entry.operation for state in locks.states()] == [a.id]
            queues, (bad,) = locks.read_queues()
            assert TABLE in [table for table, _ in queues]
            assert (bad.table, bad.raw) == (damaged, b"{")
            locks.release(a.id, damaged)
            locks.release(a.id)
            assert locks.write(TABLE, b.id) is None
            assert fates.read_lock_queue(damaged) == b"{"
        finally:
            assert locks.repair(bad)
        assert locks.write(damaged, a.id) is None

    def test_of_many_writers_one_holds_and_all_get_it_in_turn(self, fates: FateStore) -> None:
        """However many ask at once."""
        operations = [an_operation() for _ in range(5)]
        for operation in operations:
            fates.insert(operation)
        locks = Locks(fates)
        in_threads([lambda one=one: locks.write(TABLE, one.id) for one in operations])  # type: ignore[misc]  # a bound default
        waiting = {one.id for one in operations}
        while waiting:
            holding = {one for one in waiting if locks.write(TABLE, one) is None}
            assert len(holding) == 1
            waiting -= holding
            locks.release(holding.pop())


def three(fates: FateStore) -> tuple[Operation, Operation, Operation]:
    """Keep three operations in the store, whose locks exclude each other."""
    a, b, c = an_operation(), an_operation(), an_operation()
    for operation in (a, b, c):
        fates.insert(operation)
    return a, b, c
