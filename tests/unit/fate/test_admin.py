"""An administrator against operations that do not end: what may be done, and what is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from omidpy.base.timing.clock import ManualClock
from omidpy.fate.admin import FAILED_BY_ADMIN, Admin, Outcome, Told
from omidpy.fate.locks import Locks, UnreadableQueue
from omidpy.fate.operation import CANCELLED, FateId, Operation, Status, Unreadable, new_id
from omidpy.fate.table.rows import row_of
from omidpy.fate.table.store import FATE_TABLE, TableFateStore
from omidpy.model import KeyRange
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.basics import an_operation
from tests.machines.interleaving import interleaved, once


class Bench:
    """An administrator, with a clock that turns while he waits."""

    def __init__(self, *, wait_s: float = 60.0) -> None:
        """Begin with nothing."""
        self.store = MemoryStore()
        self.fates = TableFateStore(self.store)
        self.clock = ManualClock()
        self.admin = Admin(self.fates, wait_s=wait_s, clock=self.clock, sleep=self.clock.advance)

    def made(self, status: Status, **changes: Any) -> Operation:
        """Keep an operation in some status."""
        operation = an_operation(status=status, **changes)
        assert self.fates.insert(operation)
        return operation

    def read(self, operation: Operation) -> Operation:
        """Return it as it is now."""
        return self.fates.existing(operation.id)


@pytest.fixture
def bench() -> Bench:
    """Return a new one."""
    return Bench()


@pytest.mark.parametrize("status", [Status.NEW, Status.SUBMITTED])
def test_what_has_not_begun_is_cancelled(bench: Bench, status: Status) -> None:
    """Twice is once; an executor undoes it."""
    operation = bench.made(status)
    for _ in range(2):
        told = bench.admin.cancel(operation.id)
        assert told == Told(
            Outcome.DONE,
            f"FaTE transaction {operation.id} was cancelled or already completed.",
        )
    found = bench.read(operation)
    assert found.status is Status.FAILED_IN_PROGRESS
    assert found.exception is not None
    assert found.exception.message == CANCELLED
    assert found.version == operation.version + 1


@pytest.mark.parametrize("status", [Status.IN_PROGRESS, Status.FAILED_IN_PROGRESS])
def test_what_has_begun_is_not_cancelled(bench: Bench, status: Status) -> None:
    """And nothing is changed."""
    operation = bench.made(status)
    told = bench.admin.cancel(operation.id)
    assert told.outcome is Outcome.REFUSED
    assert told.text.startswith(
        f"FaTE transaction {operation.id} was not cancelled, status may have changed."
    )
    assert bench.read(operation) == operation


def test_a_cancel_that_comes_too_late_is_told_so(bench: Bench) -> None:
    """An executor begins it in between."""
    operation = bench.made(Status.SUBMITTED)

    def begin() -> None:
        bench.fates.write(operation, replace(operation, status=Status.IN_PROGRESS))

    fates = TableFateStore(interleaved(bench.store, once("write_guarded", "OMIDPY_FATE", begin)))
    assert Admin(fates, clock=bench.clock).cancel(operation.id).outcome is Outcome.REFUSED
    assert bench.read(operation).status is Status.IN_PROGRESS


@pytest.mark.parametrize("status", [Status.NEW, Status.SUBMITTED, Status.IN_PROGRESS])
def test_what_is_under_way_is_failed(bench: Bench, status: Status) -> None:
    """It is free afterwards, with the reason, so that an executor undoes it."""
    operation = bench.made(status)
    told = bench.admin.fail(operation.id)
    assert told == Told(Outcome.DONE, f"Failing transaction: {operation.id} ({status})")
    found = bench.read(operation)
    assert (found.status, found.reservation) == (Status.FAILED_IN_PROGRESS, None)
    assert found.exception is not None
    assert found.exception.message == FAILED_BY_ADMIN


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (Status.SUCCESSFUL, "Transaction already completed: {}"),
        (Status.FAILED, "Transaction already failed: {}"),
        (Status.FAILED_IN_PROGRESS, "Transaction already failed: {}"),
    ],
)
def test_what_is_over_is_not_failed(bench: Bench, status: Status, text: str) -> None:
    """Nor what is undone already."""
    operation = bench.made(status)
    told = bench.admin.fail(operation.id)
    assert told == Told(Outcome.REFUSED, f"{text.format(operation.id)} ({status})")
    assert bench.read(operation) == operation


def test_what_is_past_its_pivot_is_not_failed(bench: Bench) -> None:
    """Whoever insists can delete it, and knows then what he does."""
    operation = bench.made(Status.IN_PROGRESS, is_past_pivot=True)
    told = bench.admin.fail(operation.id)
    assert told.outcome is Outcome.REFUSED
    assert "past its pivot and only rolls forward" in told.text
    assert bench.read(operation) == operation
    told = bench.admin.delete(operation.id)
    assert told.outcome is Outcome.REFUSED
    assert "would stay half-done; --past-pivot deletes it" in told.text
    assert bench.read(operation) == operation
    assert bench.admin.delete(operation.id, is_past_pivot_too=True).outcome is Outcome.DONE


@pytest.mark.parametrize("status", [Status.SUCCESSFUL, Status.FAILED])
def test_what_is_over_is_deleted_past_its_pivot_too(bench: Bench, status: Status) -> None:
    """Nothing of it is half-done."""
    operation = bench.made(status, is_past_pivot=True, finished_ms=1)
    assert bench.admin.delete(operation.id).outcome is Outcome.DONE


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.UNKNOWN}))
def test_a_delete_takes_the_locks_along(bench: Bench, status: Status) -> None:
    """Whatever its status; another's stay."""
    operation, other = bench.made(status), bench.made(Status.IN_PROGRESS)
    locks = Locks(bench.fates)
    locks.write("t", operation.id)
    locks.write("t", other.id)
    told = bench.admin.delete(operation.id)
    assert told == Told(Outcome.DONE, f"Deleting transaction: {operation.id} ({status})")
    assert bench.fates.read(operation.id) is None
    assert locks.write("t", other.id) is None
    assert bench.fates.worker_names() == {}


# -- what cannot be read ---------------------------------------------------------------------------


def damage(bench: Bench, operation: Operation) -> Unreadable:
    """Make a record unreadable."""
    put = Put(b"txinfo", b"failures", 1, b"many")
    bench.store.write({FATE_TABLE: [RowMutation(row_of(operation.id), [put])]})
    (found,) = [one for one in bench.fates.scan() if isinstance(one, Unreadable)]
    return found


def test_an_operation_that_cannot_be_read_is_removed_with_key_and_locks(bench: Bench) -> None:
    """Else its key and its locks are taken for ever; what others have stays."""
    operation, other = (
        bench.fates.submit(an_operation(key=f'["{number}"]')) for number in range(2)
    )
    locks = Locks(bench.fates)
    locks.write("t", operation.id)
    locks.write("u", other.id)
    bad = damage(bench, operation)
    told = bench.admin.repair(bad)
    assert told.outcome is Outcome.DONE
    assert "removed with its key and its locks" in told.text
    assert list(bench.fates.scan()) == [other]
    assert [state.table for state in locks.states()] == ["u"]
    again = bench.fates.submit(an_operation(key='["0"]'))
    assert again.id != operation.id
    assert bench.fates.submit(an_operation(key='["1"]')).id == other.id


def test_what_can_be_read_by_now_is_not_removed(bench: Bench) -> None:
    """Somebody has mended it, or a newer omidpy runs it."""
    operation = bench.made(Status.SUBMITTED)
    told = bench.admin.repair(Unreadable(operation.id, "it was"))
    assert told.outcome is Outcome.REFUSED
    assert bench.read(operation) == operation
    locks = Locks(bench.fates)
    locks.write("t", operation.id)
    assert bench.admin.repair(UnreadableQueue("t", b"{", "it was")).outcome is Outcome.REFUSED
    assert locks.states()[0].entry.operation == operation.id


def test_a_queue_that_cannot_be_read_keeps_what_can(bench: Bench) -> None:
    """Whoever held a lock there holds it still, as far as anybody can tell."""
    operation, other = bench.made(Status.SUBMITTED), bench.made(Status.SUBMITTED)
    locks = Locks(bench.fates)
    locks.write("t", operation.id, KeyRange(b"a", b"\xff"))
    raw = bench.fates.read_lock_queue("t")
    assert raw is not None
    torn = msgspec.json.decode(raw)
    torn["entries"] += [{"operation": other.id, "mode": "PAINT"}, 7]
    assert bench.fates.swap_lock_queue("t", raw, msgspec.json.encode(torn))
    _, (bad,) = locks.read_queues()
    told = bench.admin.repair(bad)
    assert told.outcome is Outcome.DONE
    assert f"keeps WRITE of {operation.id};" in told.text
    (state,) = locks.states()
    assert (state.entry.operation, state.entry.key_range) == (
        operation.id,
        KeyRange(b"a", b"\xff"),
    )


def test_a_queue_of_nonsense_is_emptied(bench: Bench) -> None:
    """Then it is as if nobody had asked."""
    operation = bench.made(Status.SUBMITTED)
    bench.fates.swap_lock_queue("t", None, b"{")
    _, (bad,) = Locks(bench.fates).read_queues()
    assert "keeps nobody;" in bench.admin.repair(bad).text
    assert Locks(bench.fates).write("t", operation.id) is None


def test_what_is_not_there_is_refused(bench: Bench) -> None:
    """In Accumulo's words."""
    unknown = new_id()
    for change in (bench.admin.cancel, bench.admin.fail, bench.admin.delete):
        assert change(unknown) == Told(Outcome.REFUSED, f"Invalid transaction ID: {unknown}")


@pytest.mark.parametrize("verb", ["fail", "delete"])
def test_what_an_executor_has_is_waited_for_and_then_left(verb: str) -> None:
    """Its step may be running; the executor is named."""
    bench = Bench(wait_s=5.0)
    operation = bench.made(Status.IN_PROGRESS)
    worker = bench.fates.new_worker(lease_s=10.0, clock=bench.clock)
    held = bench.fates.try_reserve(operation, worker)
    began_s = bench.clock.monotonic_s()
    change = getattr(bench.admin, verb)
    told: Told = change(operation.id)
    assert told.outcome is Outcome.RESERVED
    assert told.text.startswith(f"Could not {verb} {operation.id} in a reasonable time. ")
    assert "process " in told.text
    assert bench.clock.monotonic_s() - began_s == pytest.approx(5.0)
    assert bench.read(operation) == held


def test_what_an_executor_gives_back_in_time_is_failed(bench: Bench) -> None:
    """Between two of its steps that wait."""
    operation = bench.made(Status.IN_PROGRESS)
    worker = bench.fates.new_worker(lease_s=10.0, clock=bench.clock)
    held = bench.fates.try_reserve(operation, worker)
    assert held is not None

    def wait(seconds: float) -> None:
        bench.clock.advance(seconds)
        found = bench.read(operation)
        if found.reservation == held.reservation:
            bench.fates.write(found, replace(found, reservation=None))

    admin = Admin(bench.fates, clock=bench.clock, sleep=wait)
    assert admin.fail(operation.id).outcome is Outcome.DONE


def test_what_a_dead_executor_had_needs_no_other_one(bench: Bench) -> None:
    """The administrator breaks its reservation when its lease is over."""
    operation = bench.made(Status.IN_PROGRESS)
    worker = bench.fates.new_worker(lease_s=10.0, clock=bench.clock)
    assert bench.fates.try_reserve(operation, worker) is not None
    began_s = bench.clock.monotonic_s()
    assert bench.admin.fail(operation.id).outcome is Outcome.DONE
    assert 10.0 < bench.clock.monotonic_s() - began_s < 13.0


def test_an_administrator_whose_reservation_is_broken_tries_again(bench: Bench) -> None:
    """He was suspended, and an executor took him for dead."""
    operation = bench.made(Status.IN_PROGRESS)

    def break_it() -> None:
        found = bench.read(operation)
        assert found.reservation is not None
        bench.fates.write(found, replace(found, reservation=None))

    before = once("write_guarded", "OMIDPY_FATE", break_it, after=1)
    fates = TableFateStore(interleaved(bench.store, before))
    admin = Admin(fates, clock=bench.clock, sleep=bench.clock.advance)
    assert admin.fail(operation.id).outcome is Outcome.DONE
    assert bench.read(operation).status is Status.FAILED_IN_PROGRESS


def test_a_change_in_between_is_looked_at_again(bench: Bench) -> None:
    """What ends while an administrator reaches for it has ended."""
    operation = bench.made(Status.IN_PROGRESS)

    def end() -> None:
        bench.fates.write(operation, replace(operation, status=Status.SUCCESSFUL, finished_ms=1))

    before = once("write_guarded", "OMIDPY_FATE", end)
    fates = TableFateStore(interleaved(bench.store, before))
    told = Admin(fates, clock=bench.clock, sleep=bench.clock.advance).fail(FateId(operation.id))
    assert told.text == f"Transaction already completed: {operation.id} (SUCCESSFUL)"
