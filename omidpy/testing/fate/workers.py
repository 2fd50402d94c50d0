"""Who may run an operation, and for how long after it has died."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ReservationLost
from omidpy.fate.operation import Operation, Status, released
from omidpy.fate.store import FateStore
from omidpy.testing.chapters.basics import in_threads
from omidpy.testing.fate.basics import LEASE_S, Chapter, an_operation, losing_answers


class Workers(Chapter):
    """Reservations, signs of life, and what becomes of reservations without."""

    def test_an_operation_is_reserved_once(self, fates: FateStore, clock: ManualClock) -> None:
        """Two executors see the same work, and one gets it."""
        first = fates.new_worker(lease_s=LEASE_S, clock=clock)
        second = fates.new_worker(lease_s=LEASE_S, clock=clock)
        assert first.id != second.id
        made = fates.submit(an_operation())
        held = fates.try_reserve(made, first)
        assert held is not None
        assert held.reservation is not None
        assert held.reservation.worker == first.id
        assert fates.try_reserve(made, second) is None
        assert fates.try_reserve(held, second) is None
        assert fates.runnable() == []
        free = fates.write(held, released(held))
        again = fates.try_reserve(free, second)
        assert again is not None
        assert again.reservation != held.reservation
        for worker in (first, second):
            worker.retire()

    def test_of_many_who_reserve_at_once_one_does(
        self, fates: FateStore, clock: ManualClock
    ) -> None:
        """The check and the change are one."""
        made = fates.submit(an_operation())
        workers = [fates.new_worker(lease_s=LEASE_S, clock=clock) for _ in range(4)]
        got: list[Operation | None] = []
        in_threads(
            [lambda one=one: got.append(fates.try_reserve(made, one)) for one in workers]  # type: ignore[misc]  # a bound default
        )
        assert len([one for one in got if one is not None]) == 1
        for worker in workers:
            worker.retire()

    def test_a_reservation_whose_answer_was_lost_is_recognised(
        self, fates: FateStore, clock: ManualClock
    ) -> None:
        """Else the operation would be reserved by a worker that does not know it."""
        worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
        made = fates.submit(an_operation())
        with losing_answers(fates, "swap"):
            assert fates.try_reserve(made, worker) is not None
        worker.retire()

    def test_a_worker_that_shows_life_is_not_dead(
        self, fates: FateStore, clock: ManualClock
    ) -> None:
        """However long it goes on."""
        worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
        judge = fates.new_judge(clock)
        for _ in range(8):
            assert worker.beat()
            assert worker.is_trusted()
            assert judge.dead([worker.id]) == frozenset()
            clock.advance(LEASE_S / 4)
        worker.retire()

    def test_a_worker_that_ends_is_dead_at_once(self, fates: FateStore, clock: ManualClock) -> None:
        """What it held is others' without a wait; and so is what nobody ever was."""
        worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
        judge = fates.new_judge(clock)
        assert judge.dead([worker.id, "nobody"]) == {"nobody"}
        worker.retire()
        worker.retire()
        assert judge.dead([worker.id]) == {worker.id}
        assert not worker.is_trusted()

    def test_workers_say_where_they_are(self, fates: FateStore, clock: ManualClock) -> None:
        """Whoever waits for one wants to know whom to ask; before there is any, too."""
        assert fates.worker_names() == {}
        worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
        assert f"process {os.getpid()} on " in fates.worker_names()[worker.id]
        worker.retire()
        assert fates.worker_names() == {}

    def test_a_dead_worker_stays_dead(self, fates: FateStore, clock: ManualClock) -> None:
        """It learns so, if it lives after all, and goes on under another id."""
        worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
        judge = fates.new_judge(clock)
        self.let_die(worker, judge, clock)
        assert judge.dead([worker.id]) == {worker.id}
        fates.sweep(judge)
        assert not worker.beat()
        assert not worker.is_trusted()
        assert not worker.beat()
        assert judge.dead([worker.id]) == {worker.id}
        worker.retire()

    def test_what_a_dead_worker_held_is_free_and_its_next_write_fails(
        self, fates: FateStore, clock: ManualClock
    ) -> None:
        """A paused process wakes up, and nothing of what it writes lands."""
        worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
        other = fates.new_worker(lease_s=3600 * LEASE_S, clock=clock)
        judge = fates.new_judge(clock)
        operations = [fates.submit(an_operation()) for _ in range(3)]
        held = [
            fates.try_reserve(operation, one)
            for operation, one in zip(operations, (worker, worker, other), strict=True)
        ]
        assert fates.break_dead(judge) == []
        self.let_die(worker, judge, clock)
        broken = fates.break_dead(judge)
        assert {one.id for one in broken} == {operation.id for operation in operations[:2]}
        assert {one.id for one in fates.runnable()} == {one.id for one in broken}
        mine = held[0]
        assert mine is not None
        with pytest.raises(ReservationLost):
            fates.write(mine, replace(mine, status=Status.IN_PROGRESS))
        assert fates.break_dead(judge) == []
        taken = fates.read(mine.id)
        assert taken is not None
        assert fates.try_reserve(taken, other) is not None
        with pytest.raises(ReservationLost):
            fates.write(mine, released(mine))
        other.retire()
        worker.retire()
